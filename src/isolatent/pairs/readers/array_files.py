"""Read files of arrays: what each holds is listed first, and only what is needed is read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from isolatent.files import DamagedFileError
from isolatent.pairs.readers.faults import (
    damaged_as,
    listed,
    nearest_name,
    unknown_name,
)
from isolatent.pairs.readers.selection import (
    Contents,
    Selection,
    check_memory,
    ids_of,
)

__all__ = ["ArrayStore", "Listed", "NpzStore", "contents_of", "read_npy", "read_npz"]

Array: TypeAlias = npt.NDArray[Any]

ZIP_MAGIC = b"PK\x03\x04"
SESSION_ARRAYS = ("session", "groups")  # default names of the session ids
OBSERVED_ARRAYS = ("x", "X")  # default names of the observations
FACTOR_ARRAYS = ("z",)
OTHER_ARRAYS = ("x_pos", "X_pos", *SESSION_ARRAYS)  # never observations or factors by default


@dataclass(frozen=True)
class Listed:
    """What is known of an array before it is read.

    Args:
        shape: Its shape.
        dtype: Its type; None if it has no values of one type, such as a cell array of MATLAB.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None

    @property
    def n_bytes(self) -> int:
        """Memory that its values take, as floats of 32 bits or as they are."""
        size = 8 if self.dtype is None else max(4, self.dtype.itemsize)
        return math.prod(self.shape) * size

    @property
    def is_numeric(self) -> bool:
        """Whether its values are real numbers."""
        return self.dtype is not None and self.dtype.kind in "fiub"


class ArrayStore(Protocol):
    """A file, or a directory, of named arrays."""

    @property
    def arrays(self) -> Mapping[str, Listed]:
        """What is known of each array, by name."""

    def read(self, name: str) -> Array:
        """Return the values of an array; text as strings."""


def contents_of(path: Path, store: ArrayStore, selection: Selection) -> Contents:
    """Return observations, positives, session ids and times of a file of arrays.

    Args:
        path: The file, for messages.
        store: Its arrays.
        selection: Which of them are asked for. By default the observations are ``x``, or the only
            array that could be observations.
    """
    where = path.name
    selection = selection.resolve(store.arrays)
    name = _observed(where, store.arrays, selection)
    wanted = {"x": name}
    prefix = name.rpartition("/")[0]
    has_pos = name in OBSERVED_ARRAYS and f"{name}_pos" in store.arrays
    if selection.array is None and has_pos and not selection.anchors_only:
        wanted["x_pos"] = f"{name}_pos"
    faults: list[str] = []
    for role in ("session", "time"):
        asked = getattr(selection, role)
        if asked is None:
            continue
        beside = f"{prefix}/{asked}".lstrip("/")
        if asked in store.arrays or beside in store.arrays:
            wanted[role] = asked if asked in store.arrays else beside
        else:
            faults.append(unknown_name("array", asked, f"--{role}", [*store.arrays]))
    if selection.session is None:
        found = [one for one in SESSION_ARRAYS if one in store.arrays]
        wanted |= {"session": found[0]} if found else {}
    for one in wanted.values():
        if store.arrays[one].dtype is None:
            faults.append(
                f"{one!r} holds objects, which are not read; save it as an array of numbers or text"
            )
    if faults:
        return Contents(np.zeros((1, 1)), faults=faults)
    size = sum(store.arrays[one].n_bytes for one in wanted.values())
    advice = "; save the array as .npy, which is read from disk as needed, or raise it"
    check_memory(f"{where}: {name!r} of shape {store.arrays[name].shape}", size, selection, advice)
    with damaged_as(path):
        values = {role: store.read(one) for role, one in wanted.items()}
    if "x_pos" in values and "session" in values:
        faults.append("has both x_pos and sessions; sessions are for a series, without x_pos")
        del values["session"]
    session = values.get("session")
    if session is not None:
        session = session.reshape(-1) if 1 in session.shape else session
        session = ids_of(f"session array {wanted['session']!r}", session, faults)
    times = values.get("time")
    if times is not None and times.ndim > 1 and 1 in times.shape:
        times = times.reshape(-1)
    expected = name in (selection.array, *(FACTOR_ARRAYS if selection.factors else OBSERVED_ARRAYS))
    notes = [] if expected else [f"read the array {name!r}"]
    return Contents(
        *(values["x"], values.get("x_pos")),
        session=session,
        times=times,
        faults=faults,
        notes=notes,
    )


def _observed(where: str, arrays: Mapping[str, Listed], selection: Selection) -> str:
    """Return the name of the array with the observations, or the true factors."""
    ours: tuple[str, ...] = OBSERVED_ARRAYS
    others: tuple[str, ...] = FACTOR_ARRAYS
    if selection.factors:
        ours, others = others, ours
    if selection.array is not None:
        if selection.array in arrays:
            return selection.array
        message = unknown_name("array", selection.array, "--array", [*arrays])
        raise ValueError(f"{where}: {message}")
    for name in ours:
        if name in arrays:
            return name
    roles = {selection.session, selection.time, *OTHER_ARRAYS, *others}
    possible = [
        name
        for name, array in arrays.items()
        if array.is_numeric
        and len(array.shape) in (2, 3, 4)
        and math.prod(array.shape) > max(array.shape)
        and name.rpartition("/")[2] not in roles
    ]
    if len(possible) == 1:
        return possible[0]
    shapes = [f"{name!r} {arrays[name].shape}" for name in possible[:8]]
    if not possible:
        raise ValueError(f"{where}: has no array {ours[0]!r}; it has {listed([*arrays])}")
    if selection.factors:
        raise ValueError(
            f"{where}: has no array 'z'; name the factors so; it has {', '.join(shapes)}"
        )
    close = nearest_name("x", possible) or possible[0]
    raise ValueError(
        f"{where}: has no array 'x'; choose one with --array, such as --array {close}: "
        f"it has {', '.join(shapes)}"
    )


# NumPy


def read_npy(path: Path, selection: Selection) -> Contents:
    """Return the array of an .npy file as a memory map."""
    for option, name in (("session", selection.session), ("time", selection.time)):
        if name is not None:
            raise ValueError(
                f"{path.name}: --{option} ({option}={name!r}) names a column, and an .npy has no "
                f"names; save an .npz with the arrays 'x' and {option!r}"
            )
    if selection.array is not None:
        raise ValueError(f"{path.name}: --array is for files of several arrays, and this holds one")
    with path.open("rb") as file:
        if file.read(4) == ZIP_MAGIC:
            raise ValueError(f"{path.name}: is an archive of arrays; rename it to .npz")
        if not _is_npy(path):
            raise DamagedFileError(path.name, "it does not begin as .npy files do")
        file.seek(0)
        with damaged_as(path):
            _, dtype = _read_header(file)
    if dtype.hasobject:
        raise ValueError(
            f"{path.name}: must hold real numbers, got Python objects, which are never unpickled"
        )
    with damaged_as(path):
        return Contents(np.load(path, mmap_mode="r", allow_pickle=False))


class NpzStore:
    """The arrays of an .npz file, whose headers are read without their values.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if _is_npy(path):
            raise ValueError(f"{path.name}: it is a single array: rename it to .npy")
        self.arrays: dict[str, Listed] = {}
        with damaged_as(path), zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy"):
                    name = member.filename.removesuffix(".npy")
                    self.arrays[name] = self._header(archive, member)

    def read(self, name: str) -> Array:
        """Return an array; pickled objects are refused."""
        with np.load(self.path, allow_pickle=False) as archive:
            return np.asarray(archive[name])

    def _header(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Listed:
        with archive.open(member) as file:
            shape, dtype = _read_header(file)
            start = file.tell()
        if dtype.hasobject:
            return Listed(shape, None)
        if start + math.prod(shape) * dtype.itemsize != member.file_size:
            raise DamagedFileError(
                self.path.name,
                f"the size of {member.filename} is not that of an array of shape {shape} and dtype "
                f"{dtype}",
            )
        return Listed(shape, dtype)


def read_npz(path: Path, selection: Selection) -> Contents:
    """Return the contents of an .npz file."""
    return contents_of(path, NpzStore(path), selection)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of an array in NumPy's format."""
    version = np.lib.format.read_magic(file)
    first = version == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _is_npy(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6) == np.lib.format.MAGIC_PREFIX
