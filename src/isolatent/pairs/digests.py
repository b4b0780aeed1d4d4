"""Digests by which the data of a pair source are recognised."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from torch import Tensor

from isolatent.pairs.arrays import ArrayPairs, release_pages, tensor_as_array
from isolatent.pairs.recordings import Recording
from isolatent.pairs.separate_recordings import SeparateRecordings
from isolatent.pairs.series import SeriesPairs

__all__ = ["digest_source"]

SAMPLED_ROWS = 4096  # of a memory map
BLOCK_BYTES = 2**24
HOLDERS = (ArrayPairs, SeriesPairs, SeparateRecordings, Recording)


def digest_source(source: Any) -> bytes:
    """Return a hash of all data that a source holds in memory, and of what tells memory maps apart.

    Of a memory map these are shape, dtype, the size of its file and the time of its last change,
    and 4 096 rows. Sources that hold no arrays, such as worlds, have one and the same hash.

    Args:
        source: A pair source, or a part of it, which has the hash of the same part only.

    Example:
        >>> x = np.zeros((50, 2))
        >>> y = x.copy()
        >>> y[49, 1] = 1e-300
        >>> digest_source(ArrayPairs(x, x)) == digest_source(ArrayPairs(x, y))
        False
    """
    total = hashlib.sha256()
    if _holds_data(source):
        _add(total, source)
    return total.digest()


def _holds_data(value: Any) -> bool:
    """Return whether an object holds all its data, or says so itself."""
    return isinstance(value, HOLDERS) or getattr(value, "holds_data", False) is True


def _add(total: Any, value: Any) -> None:
    """Add a value, with its type and size, so that no two values are the same bytes."""
    if isinstance(value, Tensor):
        value = tensor_as_array(value)
    if isinstance(value, np.memmap):
        _add_map(total, value)
    elif isinstance(value, np.ndarray):
        total.update(f"array {value.dtype.str} {value.shape}".encode())
        _add_rows(total, value)
    elif _holds_data(value):
        attributes = {k: v for k, v in vars(value).items() if not k.startswith("__")}
        total.update(f"pairs {len(attributes)}".encode())
        for name in sorted(attributes):
            total.update(f"{name}=".encode())
            _add(total, attributes[name])
    elif isinstance(value, dict):
        total.update(f"dict {len(value)}".encode())
        for key, item in value.items():
            _add(total, key)
            _add(total, item)
    elif isinstance(value, list | tuple):
        total.update(f"list {len(value)}".encode())
        for item in value:
            _add(total, item)
    elif value is None or isinstance(value, bool | int | float | str):
        total.update(f"{type(value).__name__} {value!r};".encode())


def _add_rows(total: Any, array: np.ndarray[Any, Any]) -> None:
    """Add all values of an array, block by block; those of strings by their characters."""
    if array.dtype.kind == "O":  # labels of sessions, say
        total.update(repr(array.tolist()).encode())
        return
    step = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array) if array.ndim else 0, step):
        total.update(np.ascontiguousarray(array[start : start + step]).view(np.uint8).data)


def _add_map(total: Any, array: np.memmap[Any, Any]) -> None:
    total.update(f"map {array.dtype.str} {array.shape}".encode())
    if array.filename is not None:
        found = os.stat(array.filename)
        total.update(f"{found.st_size} {found.st_mtime_ns}".encode())
    rows = np.unique(np.linspace(0, len(array) - 1, SAMPLED_ROWS).astype(np.int64))
    _add_rows(total, np.asarray(array[rows]))
    release_pages(array)
