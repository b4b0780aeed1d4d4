"""Observations from files: arrays (.npy, .npz) and tables (.csv, .parquet), checked as they come.

Every error names the file, and the row and column where they are known; rows count from 0.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Observations", "chunks_of_rows", "read_factors", "read_observations", "read_pairs"]

Array: TypeAlias = npt.NDArray[Any]
FilePath: TypeAlias = str | os.PathLike[str]

SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
SESSION_ARRAYS = ("session", "groups")  # what an .npz may call them
CHUNK_VALUES = 2**22  # values held at a time while a memory map is read: 32 MB as float64
SHOWN = 8  # column names in a message


@dataclass(frozen=True, eq=False)
class Observations:
    """What a file holds.

    Args:
        x: Observations (rows, columns); of an .npy a memory map, which stays on the disk.
        x_pos: The positive of each row, or None for a series.
        names: The columns' names, where the file has them.
        groups: One session id for each row, where the file has them.
    """

    x: Array
    x_pos: Array | None = None
    names: tuple[str, ...] | None = None
    groups: Array | None = None


def read_observations(
    path: FilePath, session: str | None = None, *, varying: bool = True
) -> Observations:
    r"""Read a series, or pairs, and check all of it.

    An .npy file is memory-mapped and read once, in chunks, so that it may exceed the memory; its
    integers stay as they are on the disk. Elsewhere integers and truth values become floats.

    Args:
        path: ``.npy``: a series; ``.npz``: an array ``x`` and perhaps ``x_pos``, or ``session``
            (or ``groups``); ``.csv`` with a header line and ``.parquet``: a series, one column for
            each observed dimension.
        session: The column (of an .npz: the array) that tells sessions apart.
        varying: Whether at least two rows and no constant column are demanded, as for training.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "walk.csv")
        >>> _ = path.write_text("day,left,right\nmon,1,0.5\nmon,2,0.7\ntue,3,0.1\n")
        >>> walk = read_observations(path, session="day")
        >>> walk.x.shape, walk.names, walk.groups.tolist()
        ((3, 2), ('left', 'right'), ['mon', 'mon', 'tue'])
        >>> folder.cleanup()
    """
    path, suffix = _existing(path)
    x_pos = names = groups = None
    if suffix == ".npy":
        if session is not None:
            raise ValueError(
                f"{path.name}: --session (session={session!r}) names a column, and an .npy has no "
                "names; save an .npz with the arrays 'x' and 'session'"
            )
        x = _load_npy(path)
    elif suffix == ".npz":
        arrays = (
            _load_npz(path, ("x",), ("x_pos", *SESSION_ARRAYS))
            if session is None
            else _load_npz(path, ("x", session), ("x_pos",))
        )
        x, x_pos = arrays.pop("x"), arrays.pop("x_pos", None)
        groups = next(iter(arrays.values()), None)
    else:
        x, names, groups = _read_table(path, suffix, session)
    x = _checked(path.name if x_pos is None else f"{path.name}: x", x, names, varying)
    if x_pos is not None:
        if groups is not None:
            raise ValueError(
                f"{path.name}: has both x_pos and sessions; sessions are for a series, without "
                "x_pos"
            )
        x_pos = _checked(f"{path.name}: x_pos", x_pos, names, varying)
        _check_together(f"{path.name}: x", x, f"{path.name}: x_pos", x_pos)
    if groups is not None:
        groups = _checked_groups(path, groups, len(x))
    return Observations(x, x_pos, names, groups)


def read_pairs(path: FilePath, path_pos: FilePath, session: str | None = None) -> Observations:
    """Read observations from one file and their positives, row by row, from another.

    Columns of tables are matched by name. A ``session`` column is left out: pairs need none.
    """
    first, second = read_observations(path, session), read_observations(path_pos, session)
    for where, part in ((path, first), (path_pos, second)):
        if part.x_pos is not None:
            raise ValueError(
                f"{Path(where).name}: holds x_pos already; give this file alone, or two files "
                "without x_pos"
            )
    x_pos = second.x
    if first.names is not None and second.names is not None and first.names != second.names:
        x_pos = x_pos[:, columns_by_name(Path(path_pos).name, second.names, first.names)]
    _check_together(Path(path).name, first.x, Path(path_pos).name, x_pos)
    return Observations(first.x, x_pos, first.names)


def read_factors(path: FilePath) -> Array:
    """Read true factors (rows, factors): of an .npz the array ``z``, else all there is."""
    path, suffix = _existing(path)
    names = None
    if suffix == ".npy":
        z = _load_npy(path)
    elif suffix == ".npz":
        z = _load_npz(path, ("z",))["z"]
    else:
        z, names, _ = _read_table(path, suffix, None)
    return _checked(path.name, z[:, None] if z.ndim == 1 else z, names, varying=True)


def columns_by_name(where: str, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where the wanted columns stand among ``names``; both must be the same set.

    Example:
        >>> columns_by_name("b.csv", ["v", "u"], ["u", "v"])
        [1, 0]
        >>> columns_by_name("b.csv", ["v", "w"], ["u", "v"])
        Traceback (most recent call last):
        ValueError: b.csv: must have the columns 'u', 'v'; lacks 'u', has also 'w'
    """
    missing = [name for name in wanted if name not in set(names)]
    surplus = [name for name in names if name not in set(wanted)]
    if missing or surplus:
        faults = [f"lacks {_listed(missing)}"] if missing else []
        faults += [f"has also {_listed(surplus)}"] if surplus else []
        raise ValueError(f"{where}: must have the columns {_listed(wanted)}; {', '.join(faults)}")
    position = {name: k for k, name in enumerate(names)}
    return [position[name] for name in wanted]


def chunks_of_rows(x: Array) -> list[slice]:
    """Slices that go through the rows of ``x`` a few megabytes at a time.

    Example:
        >>> chunks_of_rows(np.zeros((3, CHUNK_VALUES // 2)))
        [slice(0, 2, None), slice(2, 3, None)]
    """
    rows = max(1, CHUNK_VALUES // max(1, x.shape[1]))
    return [slice(start, min(start + rows, len(x))) for start in range(0, len(x), rows)]


def _existing(path: FilePath) -> tuple[Path, str]:
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: must end in one of {', '.join(SUFFIXES)}, got {suffix!r}")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a directory, not a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: does not exist")
    return path, suffix


def _load_npy(path: Path) -> Array:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path.name}: not a whole .npy file of numbers ({error})") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{path.name}: is a zip of arrays; name it .npz")
    return array


def _load_npz(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Array]:
    """The arrays of these names; others, which may be large, are not read."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it is a single array: name it .npy")
        with archive:
            found = archive.files
            arrays = {name: archive[name] for name in (*required, *optional) if name in found}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path.name}: not a whole .npz file of numbers ({error})") from error
    for name in required:
        if name not in arrays:
            raise ValueError(f"{path.name}: has no array {name!r}; it has {_listed(found)}")
    return arrays


def _read_table(
    path: Path, suffix: str, session: str | None
) -> tuple[Array, tuple[str, ...], Array | None]:
    """Numbers (rows, columns), the columns' names, and the session ids if asked for."""
    import pyarrow as arrow

    try:
        if suffix == ".csv":
            from pyarrow import csv

            # Ids are compared, not counted with: as text, 01 and 1 stay different.
            as_text = {} if session is None else {session: arrow.string()}
            table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=as_text))
        else:
            from pyarrow import parquet

            table = parquet.read_table(path)
    except arrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path.name}: not a whole {suffix} file ({reason})") from error
    _check_names(path, suffix, table.column_names)
    groups = None
    if session is not None:
        if session not in table.column_names:
            raise ValueError(
                f"{path.name}: has no column {session!r} for --session (session=...); it has "
                f"{_listed(table.column_names)}"
            )
        groups = _ids(path, session, table[session])
        table = table.drop_columns([session])
    columns = [_numbers(path, name, table[name]) for name in table.column_names]
    x = np.empty(
        (table.num_rows, len(columns)), np.result_type(*columns) if columns else np.float64
    )
    for k, column in enumerate(columns):
        x[:, k] = column
    return x, tuple(table.column_names), groups


def _check_names(path: Path, suffix: str, names: Sequence[str]) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path.name}: has more than one column {repeated[0]!r}")
    for k, name in enumerate(names):
        if name == "" or name.startswith("__index_level_"):
            raise ValueError(
                f"{path.name}: column {k} has no name and looks like pandas' index; write the "
                "table with index=False, or name the column"
            )
    counted = [str(k) for k in range(len(names))]  # how pandas names columns that have no name
    if suffix == ".csv" and names and list(names) != counted and all(map(_is_number, names)):
        raise ValueError(
            f"{path.name}: its first line holds numbers, {_listed(names)}, where the names of the "
            "columns must be; add such a line"
        )


def _numbers(path: Path, name: str, column: Any) -> Array:
    """A table's column as floats, nan where there is no value."""
    from pyarrow import types

    kind = column.type
    if types.is_boolean(kind) or types.is_null(kind):
        column = column.cast("float64" if types.is_null(kind) else "uint8")
    elif types.is_decimal(kind):
        column = column.cast("float64")
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        raise ValueError(
            f"{path.name}: column {name!r} holds {_in_words(column)}, not numbers; if it tells "
            "sessions apart, pass it as --session (session=...), else remove it"
            + (" (columns must be separated by commas)" if {";", "\t"} & set(name) else "")
        )
    values = np.asarray(column.to_numpy())  # float64 with nan where an integer is missing
    return values.astype(_float_of(values.dtype), copy=False)


def _in_words(column: Any) -> str:
    from pyarrow import types

    if types.is_temporal(column.type):
        return "dates or times"
    if types.is_dictionary(column.type):
        return "categories"
    if types.is_string(column.type) or types.is_large_string(column.type):
        texts = (value.as_py() for value in column)
        text = next((text for text in texts if text and not _is_number(text)), "")
        return f"text ({text[:20]!r})"
    return str(column.type)


def _ids(path: Path, name: str, column: Any) -> Array:
    values = column.to_pylist()
    for row, value in enumerate(values):
        if value is None or value == "" or value != value:
            raise ValueError(f"{path.name}: session column {name!r} has no value in row {row}")
    return np.asarray(values if all(isinstance(v, int) for v in values) else [*map(str, values)])


def _checked(where: str, x: Array, names: tuple[str, ...] | None, varying: bool) -> Array:
    """Observations that can be used, as floats unless they stay on the disk; or an error."""
    if x.dtype.kind not in "fiub":
        raise ValueError(f"{where}: must hold real numbers, got dtype {x.dtype}")
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"{where}: must have shape (rows, columns), got shape {x.shape}")
    needed = 2 if varying else 1
    if len(x) < needed:
        raise ValueError(f"{where}: must have at least {needed} rows, got {len(x)}")
    if x.dtype.kind == "b":
        x = x.view(np.uint8)
    if not isinstance(x, np.memmap):
        x = x.astype(_float_of(x.dtype), copy=False)
    _check_values(where, x, names, varying)
    return x


def _check_values(where: str, x: Array, names: tuple[str, ...] | None, varying: bool) -> None:
    """One pass over the rows, in chunks: all finite and, for training, no column constant."""
    first = np.asarray(x[0])
    varies = np.zeros(x.shape[1], dtype=bool)
    for rows in chunks_of_rows(x):
        part = np.asarray(x[rows])
        if part.dtype.kind == "f" and not (finite := np.isfinite(part)).all():
            row, column = np.argwhere(~finite)[0]
            value = f"{part[row, column]}" + (
                " or no value" if names and np.isnan(part[row, column]) else ""
            )
            raise ValueError(
                f"{where}: must be finite, got {value} in row {rows.start + row}, "
                f"column {_label(names, column)}"
            )
        varies |= (part != first).any(axis=0)
    if varying and not varies.all():
        constant = np.flatnonzero(~varies)
        labels = ", ".join(_label(names, k) for k in constant[:SHOWN])
        more = f" and {len(constant) - SHOWN} more" if len(constant) > SHOWN else ""
        which = f"columns {labels}{more} are" if len(constant) > 1 else f"column {labels} is"
        raise ValueError(f"{where}: {which} constant, and must vary or be removed")


def _checked_groups(path: Path, groups: Array, rows: int) -> Array:
    if groups.shape != (rows,):
        raise ValueError(
            f"{path.name}: sessions must be one id for each of the {rows} rows, got shape "
            f"{groups.shape}"
        )
    if groups.dtype.kind == "f" and np.isnan(groups).any():
        raise ValueError(
            f"{path.name}: the session is nan in row {int(np.flatnonzero(np.isnan(groups))[0])}"
        )
    return groups


def _check_together(name: str, x: Array, name_pos: str, x_pos: Array) -> None:
    for axis, what in enumerate(("rows", "columns")):
        if x.shape[axis] != x_pos.shape[axis]:
            raise ValueError(
                f"x and x_pos must belong together row by row, but {name} has {x.shape[axis]} "
                f"{what} and {name_pos} has {x_pos.shape[axis]}"
            )


def _float_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The shortest of float32 and float64 that holds all values, or nearly all of 64-bit ones."""
    return np.dtype(np.float32 if np.can_cast(dtype, np.float32) else np.float64)


def _label(names: tuple[str, ...] | None, column: int) -> str:
    return str(column) if names is None else repr(names[column])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more if names else "none"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
