"""Find files of published datasets, by path or in the directory that ISOLATENT_DATA names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PathLike", "find_published"]

PathLike = str | os.PathLike[str]


def find_published(
    path: PathLike | None,
    names: str | Sequence[str],
    *,
    folders: Sequence[str] = (),
    dataset: str,
    origin: str,
) -> Path:
    """Return the path of a published file or folder.

    Args:
        path: The file, or a directory that holds it; by default the directory in the environment
            variable ``ISOLATENT_DATA``.
        names: Name of the file, or several that it may have, the preferred one first.
        folders: Folders below the directory in which the file may be, as archives unpack it.
        dataset: Name of the dataset, for messages.
        origin: Which archive holds the file and where its authors publish it, for messages.

    Raises:
        ValueError: If neither a path is given nor ISOLATENT_DATA is set.
        FileNotFoundError: If the file does not exist.

    Example:
        >>> find_published("nowhere", "a.bin", dataset="A", origin="a.zip, on the page of A")
        Traceback (most recent call last):
        FileNotFoundError: nowhere: does not exist; expected a.bin of A (a.zip, on the page of A)
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    if path is None:
        path = os.environ.get("ISOLATENT_DATA")
        if not path:
            raise ValueError(
                f"path must be {names[0]} or its directory, or ISOLATENT_DATA must name that "
                f"directory; got neither. It is part of {dataset} ({origin})"
            )
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be {names[0]} or its directory, or None, got {path!r}")
    where = Path(path)
    if where.is_file() or (where.is_dir() and where.name in names):
        return where
    for folder in ("", *folders):
        for name in names:
            if (found := where / folder / name).exists():
                return found
    where = where / names[0] if where.is_dir() else where
    raise FileNotFoundError(f"{where}: does not exist; expected {names[0]} of {dataset} ({origin})")
