"""Arrays that cost time, kept on the disk under the hash of what they are made from.

They are in the directory that the environment variable ``ISOLATENT_CACHE`` names, else in
``isolatent`` where the platform keeps caches. A file is written beside its place and moved there
when it is whole. One that is damaged, or that something else wrote there, is made anew.
"""

from __future__ import annotations

import os
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isolatent.checks import IsolatentWarning
from isolatent.files import atomic_write, digest_data

__all__ = ["cache_directory", "cached_array"]

Array = NDArray[Any]


def cache_directory() -> Path:
    """Where arrays are kept."""
    if chosen := os.environ.get("ISOLATENT_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local"), "isolatent")
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/isolatent"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "isolatent")


def cached_array(name: str, key: str, build: Callable[[], Array]) -> Array:
    """The array under this name and key, built and kept where there is none.

    Args:
        name: How the file's name begins.
        key: The hash of all that the array depends on.
        build: Makes the array.
    """
    path = cache_directory() / f"{name}-{key[:16]}.npz"
    kept = _read(path, key)
    if kept is not None:
        return kept
    array = build()
    try:
        _write(path, key, array)
    except OSError as error:
        warnings.warn(f"{path} cannot be written ({error}); built each time", IsolatentWarning, 3)
    return array


def _read(path: Path, key: str) -> Array | None:
    try:
        with np.load(path, allow_pickle=False) as archive:  # zip's checksums are verified
            array: Array = archive["array"]
            whole = str(archive["key"]) == key and str(archive["digest"]) == digest_data(array)
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError):
        return None
    return array if whole else None


def _write(path: Path, key: str, array: Array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez(file, array=array, key=key, digest=digest_data(array))
