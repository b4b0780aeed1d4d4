"""Files: atomic writes, reading what may be damaged, locks, plain JSON data and digests."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LOCK_FILE",
    "PARTIAL_SUFFIX",
    "DamagedFileError",
    "LockedError",
    "atomic_write",
    "check_not_truncated",
    "digest_data",
    "digest_file",
    "digest_json",
    "file_name",
    "lock_directory",
    "read_json",
    "reading",
    "to_plain",
    "write_bytes",
    "write_json",
    "write_text",
]

PARTIAL_SUFFIX = ".partial"  # of temporary files, so that a search for *.json does not find them
ABANDONED_SECONDS = 3600.0  # since the last write to a temporary file of a run that was killed
LOCK_FILE = ".isolatent-lock"
LOCKED_BYTE = 2**30  # of a lock file on Windows, where nobody can read what is locked
LARGEST_JSON, DEEPEST_JSON = 64 * 2**20, 100  # bytes, and containers within each other
# What code raises that interprets damaged data.
INTERPRETATION_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError),
    *(MemoryError, AssertionError),
)


class DamagedFileError(ValueError):
    """Raised for a file that is truncated, was changed, or is not a file of isolatent.

    Args:
        path: The file.
        reason: What is wrong with it.
        verdict: What follows the name of the file.

    Example:
        >>> print(DamagedFileError("model.json", "it is empty"))
        model.json is damaged: it is empty
    """

    def __init__(
        self, path: str | os.PathLike[str], reason: str, verdict: str = "is damaged: "
    ) -> None:
        super().__init__(f"{os.fspath(path)} {verdict}{reason}")
        self.path, self.reason, self.verdict = Path(path), reason, verdict

    def __reduce__(self) -> tuple[type, tuple[Path, str, str]]:  # for results of other processes
        return type(self), (self.path, self.reason, self.verdict)


class LockedError(OSError):
    """Raised for a directory that another process is writing to."""


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any error of code that interprets a file into a :class:`DamagedFileError`.

    Errors of the operating system, such as a missing file, stay what they are.

    Example:
        >>> with reading("model.json"):
        ...     {}["estimator"]
        Traceback (most recent call last):
        isolatent.files.DamagedFileError: model.json is damaged: KeyError('estimator')
    """
    try:
        yield
    except DamagedFileError:
        raise
    except INTERPRETATION_ERRORS as error:
        lines = str(error).splitlines()
        plain = isinstance(error, ValueError | RuntimeError) and lines
        raise DamagedFileError(path, lines[0] if plain else repr(error)) from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the contents of a JSON file, which is neither very large nor deeply nested.

    NaN and infinity, which JSON lacks, are refused as all else is that is not JSON.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.json").write_text('{"a": [1')
        ...     with suppress(DamagedFileError):
        ...         read_json(f"{folder}/a.json")
    """
    with Path(path).open("rb") as file:
        data = file.read(LARGEST_JSON + 1)
    if len(data) > LARGEST_JSON:
        raise DamagedFileError(path, f"it is larger than {LARGEST_JSON // 2**20} MB")
    if not data:
        raise DamagedFileError(path, "it is empty or was truncated")
    with reading(path):
        try:
            content = json.loads(data, parse_constant=_refuse_constant)
        except RecursionError:
            raise DamagedFileError(path, "it is nested too deeply") from None
        except ValueError as error:
            raise DamagedFileError(path, f"it is truncated or not JSON: {error}") from error
    if _depth(content) > DEEPEST_JSON:
        raise DamagedFileError(path, f"it is nested more than {DEEPEST_JSON} levels deep")
    return content


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _depth(content: Any) -> int:
    """Return how deeply containers are nested, up to one more than is allowed."""
    level, depth = [content], 0
    while level and depth <= DEEPEST_JSON:
        inner = [item for item in level if isinstance(item, dict | list)]
        if not inner:
            break
        level = [v for item in inner for v in (item.values() if isinstance(item, dict) else item)]
        depth += 1
    return depth


@contextmanager
def lock_directory(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other processes out of a directory that is written to, while the block runs.

    The file ``.isolatent-lock`` in the directory holds the process id and the machine of the owner,
    for a message. The lock itself is the system's, so that it ends with its process, however that
    ends. That of Windows has only been tried with a stand-in for it.

    Args:
        path: The directory; it is created, and removed in the end if it is empty.

    Raises:
        LockedError: If another process holds the lock.
    """
    directory = Path(path)
    made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / LOCK_FILE
    file = _open_lock(target)
    try:
        yield
    finally:
        with suppress(OSError):
            if os.name != "posix":  # open files cannot be removed there
                file.close()
            target.unlink()
        file.close()
        with suppress(OSError):  # unless something was written
            for folder in made:
                folder.rmdir()


def _open_lock(target: Path) -> IO[str]:
    """Return the lock file, locked and with this process as its owner."""
    while True:
        # Not followed if it is a link, which could lead anywhere.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(target, flags, 0o666), "r+")
        owner = file.read(200).strip()
        if not _try_lock(file):
            file.close()
            who = f"process {owner}" if owner else "another process"
            raise LockedError(
                f"{target.parent} is being written by {who}; wait for it, stop it, or choose "
                "another directory"
            )
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), target.stat()):
                break
        file.close()  # its owner removed the file in the meantime: that lock keeps nobody out
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return file


def _try_lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:
        return _try_lock_of_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: as before there were any
        return True
    return True


def _try_lock_of_windows(file: IO[str]) -> bool:
    """Lock a byte far behind the end of the file, so that others can read who its owner is."""
    locking: Any = import_module("msvcrt")
    number = file.fileno()
    place = os.lseek(number, 0, os.SEEK_CUR)
    os.lseek(number, LOCKED_BYTE, os.SEEK_SET)
    try:
        locking.locking(number, locking.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(number, place, os.SEEK_SET)
    return True


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces ``path`` when the block ends normally.

    The temporary file ``.<name>.<random>.partial`` is created in the target's directory,
    exclusively, so that no existing file or link is opened. It is synced to disk before it is
    renamed, and removed on any exception, which leaves ``path`` unchanged. A symbolic link as
    ``path`` remains a link to the written file; a pipe or terminal is written directly. Temporary
    files that a killed process left for this target an hour ago or earlier are removed. Errors of
    the system that name no file, such as that of a full disk, name the target.

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
    _remove_abandoned(target)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PARTIAL_SUFFIX}")
    partial.touch(exist_ok=False)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from error
        raise
    _sync_directory(target.parent)


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files of a target that nobody has written to for an hour."""
    name, now = f".{target.name}.", time.time()
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if not (entry.name.startswith(name) and entry.name.endswith(PARTIAL_SUFFIX)):
                continue
            random = entry.name[len(name) : -len(PARTIAL_SUFFIX)]
            if len(random) != 16 or set(random) - set("0123456789abcdef"):
                continue
            with suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_SECONDS:
                    os.unlink(entry.path)


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
