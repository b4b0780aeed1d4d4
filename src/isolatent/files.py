"""Atomic file writes, conversion to plain JSON data, and SHA-256 digests."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "PARTIAL_SUFFIX",
    "atomic_write",
    "check_not_truncated",
    "digest_data",
    "digest_file",
    "digest_json",
    "file_name",
    "to_plain",
    "write_bytes",
    "write_json",
    "write_text",
]

PARTIAL_SUFFIX = ".partial"  # of temporary files, so that a search for *.json does not find them


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces ``path`` when the block ends normally.

    The temporary file ``.<name>.<random>.partial`` is created in the target's directory,
    exclusively, so that no existing file or link is opened. It is synced to disk before it is
    renamed, and removed on any exception, which leaves ``path`` unchanged. A symbolic link as
    ``path`` remains a link to the written file; a pipe or terminal is written directly.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with atomic_write(f"{folder}/a.txt") as partial:
        ...         _ = partial.write_text("complete")
        ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
        [('a.txt', 'complete')]
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():  # a pipe or a terminal
        yield target
        return
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PARTIAL_SUFFIX}")
    partial.touch(exist_ok=False)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def check_not_truncated(array: NDArray[Any]) -> None:
    """Raise an error if the file of a memory map has become shorter than the map.

    Reading the lost part would end the process without a message (SIGBUS).
    """
    path = getattr(array, "filename", None)
    if path is None:
        return
    with suppress(FileNotFoundError):  # a deleted file stays readable through its map
        size, needed = os.stat(path).st_size, getattr(array, "offset", 0) + array.nbytes
        if size < needed:
            raise ValueError(
                f"{Path(path).name} is damaged: it has {size} bytes where {needed} were mapped; it "
                "was truncated while it was in use"
            )


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write bytes atomically."""
    with atomic_write(path) as partial:
        partial.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text atomically, in UTF-8 and with its line ends unchanged."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], data: Any, indent: int | None = None) -> None:
    """Write data as JSON atomically; NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(to_plain(data, nan_to_none=True), indent=indent, allow_nan=False)
    write_text(path, text + "\n")


def to_plain(value: Any, *, nan_to_none: bool = False) -> Any:
    """Convert arrays, NumPy scalars, tuples and paths, also in containers, to JSON types.

    Args:
        value: Data of which only those types are converted; other objects are returned unchanged.
        nan_to_none: Replace NaN and infinity by None.

    Example:
        >>> import numpy as np
        >>> to_plain({"scores": (np.float32(0.5), np.nan), "file": Path("a.csv")}, nan_to_none=True)
        {'scores': [0.5, None], 'file': 'a.csv'}
    """
    if hasattr(value, "tolist"):  # a NumPy scalar or array, or a tensor
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: to_plain(item, nan_to_none=nan_to_none) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, nan_to_none=nan_to_none) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if nan_to_none and isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def digest_json(data: Any) -> str:
    """Return the SHA-256 of plain data, which does not depend on the order of keys.

    Example:
        >>> digest_json({"a": 1, "b": 2}) == digest_json({"b": 2, "a": 1})
        True
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's contents."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_data(*parts: NDArray[Any] | str | os.PathLike[str]) -> str:
    """Return one SHA-256 of arrays (values, dtype and shape) and of the files at these paths.

    Example:
        >>> import numpy as np
        >>> digest_data(np.arange(3)) == digest_data(np.arange(3.0))
        False
    """
    import numpy as np  # here, so that importing the other functions stays fast

    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            total.update(f"{part.dtype.str}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).data)
        else:
            total.update(bytes.fromhex(digest_file(part)))
    return total.hexdigest()


def file_name(name: str) -> str:
    """Return an experiment's name as part of a file name.

    Example:
        >>> file_name("zimmermann2021/table1")
        'zimmermann2021-table1'
    """
    return name.replace("/", "-")


def _sync_directory(directory: Path) -> None:
    """Make a rename durable, on systems that can sync directories."""
    if os.name != "posix":
        return
    with suppress(OSError):  # some network file systems refuse
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
