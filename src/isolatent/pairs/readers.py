"""Read observations and factors from files: arrays (.npy, .npz) and tables (.csv, .parquet).

All values are checked while they are read. Error messages name the file and, if known, the row and
the column; rows are counted from 0.
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

__all__ = [
    "Observations",
    "chunks_of_rows",
    "columns_by_name",
    "read_factors",
    "read_observations",
    "read_pairs",
]

Array: TypeAlias = npt.NDArray[Any]
FilePath: TypeAlias = str | os.PathLike[str]

READABLE_SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
SESSION_ARRAYS = ("session", "groups")  # default names of the session ids in an .npz file
CHUNK_VALUES = 2**22  # values processed at a time: 32 MB in float64
MAX_LISTED = 8  # column names listed in a message


@dataclass(frozen=True, eq=False)
class Observations:
    """The contents of a file.

    Args:
        x: Observations (rows, columns); a memory map if read from an .npy file.
        x_pos: The positive of each row, or None for a series.
        names: The names of the columns, or None if the file has none.
        groups: A session id for each row, or None if the file has none.
    """

    x: Array
    x_pos: Array | None = None
    names: tuple[str, ...] | None = None
    groups: Array | None = None


def read_observations(
    path: FilePath, session: str | None = None, *, varying: bool = True
) -> Observations:
    r"""Read a series, or pairs, and check all values.

    An .npy file is memory-mapped and checked in chunks, so it may be larger than memory; its dtype
    is kept. From other files integers and booleans are converted to floats.

    Args:
        path: ``.npy``: a series; ``.npz``: an array ``x`` and optionally ``x_pos``, or ``session``
            (or ``groups``); ``.csv`` with a header line and ``.parquet``: a series, one column for
            each observed dimension.
        session: Name of the column (.npz: of the array) with the session ids.
        varying: Whether to require at least two rows and no constant column, as for training.

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
    path, suffix = _check_path(path)
    x_pos = names = groups = None
    if suffix == ".npy":
        if session is not None:
            raise ValueError(
                f"{path.name}: --session (session={session!r}) names a column, and an .npy has no "
                "names; save an .npz with the arrays 'x' and 'session'"
            )
        x = _load_npy(path)
    elif suffix == ".npz":
        x, x_pos, groups = _load_observations(path, session)
    else:
        x, names, groups = _load_table(path, suffix, session)
    where = path.name
    x = _check_array(where if x_pos is None else f"{where}: x", x, names, varying)
    if x_pos is not None:
        x_pos = _check_array(f"{where}: x_pos", x_pos, names, varying)
        _check_same_shape(f"{where}: x", x, f"{where}: x_pos", x_pos)
    if groups is not None:
        _check_groups(where, groups, len(x))
    return Observations(x, x_pos, names, groups)


def read_pairs(path: FilePath, path_pos: FilePath, session: str | None = None) -> Observations:
    """Read observations from one file and their positives, row by row, from another.

    Columns of tables are matched by name. A ``session`` column is ignored, since pairs need none.
    """
    first, second = read_observations(path, session), read_observations(path_pos, session)
    name, name_pos = Path(path).name, Path(path_pos).name
    for which, part in ((name, first), (name_pos, second)):
        if part.x_pos is not None:
            raise ValueError(
                f"{which}: holds x_pos already; pass this file alone, or two files without x_pos"
            )
    x_pos = second.x
    if first.names is not None and second.names is not None and first.names != second.names:
        x_pos = x_pos[:, columns_by_name(name_pos, second.names, first.names)]
    _check_same_shape(name, first.x, name_pos, x_pos)
    return Observations(first.x, x_pos, first.names)


def read_factors(path: FilePath) -> Array:
    """Read true factors (rows, factors): the array ``z`` of an .npz file, else the whole file."""
    path, suffix = _check_path(path)
    names = None
    if suffix == ".npy":
        z = _load_npy(path)
    elif suffix == ".npz":
        z = _load_npz(path, ("z",))["z"]
    else:
        z, names, _ = _load_table(path, suffix, None)
    return _check_array(path.name, z[:, None] if z.ndim == 1 else z, names, varying=True)


def columns_by_name(where: str, names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the position of each wanted column in ``names``, which must be the same set.

    Args:
        where: Name of the file, for error messages.
        names: Names of the columns of the file.
        wanted: The same names in the required order.

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
    """Return slices that cover the rows of ``x``, with ``CHUNK_VALUES`` values each.

    Example:
        >>> chunks_of_rows(np.zeros((3, CHUNK_VALUES // 2)))
        [slice(0, 2, None), slice(2, 3, None)]
    """
    rows = max(1, CHUNK_VALUES // max(1, x.shape[1]))
    return [slice(start, min(start + rows, len(x))) for start in range(0, len(x), rows)]


# Loading


def _check_path(path: FilePath) -> tuple[Path, str]:
    """Return the path and its suffix in lower case if it is an existing file of a known format."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in READABLE_SUFFIXES:
        raise ValueError(
            f"{path}: must end in one of {', '.join(READABLE_SUFFIXES)}, got {suffix!r}"
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a directory, not a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: does not exist")
    return path, suffix


def _load_npy(path: Path) -> Array:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path.name}: not a valid .npy file of numbers ({error})") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError(f"{path.name}: is an archive of arrays; rename it to .npz")
    return array


def _load_npz(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Array]:
    """Return the arrays of these names; other arrays, which may be large, are not read."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it is a single array: rename it to .npy")
        with archive:
            found = archive.files
            arrays = {name: archive[name] for name in (*required, *optional) if name in found}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path.name}: not a valid .npz file of numbers ({error})") from error
    for name in required:
        if name not in arrays:
            raise ValueError(f"{path.name}: has no array {name!r}; it has {_listed(found)}")
    return arrays


def _load_observations(path: Path, session: str | None) -> tuple[Array, Array | None, Array | None]:
    """Return x, x_pos and the session ids of an .npz file."""
    if session is None:
        arrays = _load_npz(path, ("x",), ("x_pos", *SESSION_ARRAYS))
    else:
        arrays = _load_npz(path, ("x", session), ("x_pos",))
    x, x_pos = arrays.pop("x"), arrays.pop("x_pos", None)
    groups = next(iter(arrays.values()), None)
    if x_pos is not None and groups is not None:
        raise ValueError(
            f"{path.name}: has both x_pos and sessions; sessions are for a series, without x_pos"
        )
    return x, x_pos, groups


def _load_table(
    path: Path, suffix: str, session: str | None
) -> tuple[Array, tuple[str, ...], Array | None]:
    """Return the values (rows, columns), the column names, and the session ids if requested."""
    table = _open_table(path, suffix, session)
    _check_names(path, suffix, table.column_names)
    groups = None
    if session is not None:
        if session not in table.column_names:
            raise ValueError(
                f"{path.name}: has no column {session!r} for --session (session=...); it has "
                f"{_listed(table.column_names)}"
            )
        groups = _session_ids(path, session, table[session])
        table = table.drop_columns([session])
    columns = [_to_floats(path, name, table[name]) for name in table.column_names]
    x = np.column_stack(columns) if columns else np.empty((table.num_rows, 0))
    return x, tuple(table.column_names), groups


def _open_table(path: Path, suffix: str, session: str | None) -> Any:
    """Return the file as an Arrow table."""
    import pyarrow as arrow

    try:
        if suffix == ".csv":
            from pyarrow import csv

            # Ids are read as text, so that 01 and 1 are different sessions.
            as_text = {} if session is None else {session: arrow.string()}
            return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=as_text))
        from pyarrow import parquet

        return parquet.read_table(path)
    except arrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path.name}: not a valid {suffix} file ({reason})") from error


def _check_names(path: Path, suffix: str, names: Sequence[str]) -> None:
    """Raise ValueError for duplicate names, an index written by pandas, or a missing header."""
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path.name}: has more than one column {repeated[0]!r}")
    for k, name in enumerate(names):
        if name == "" or name.startswith("__index_level_"):
            raise ValueError(
                f"{path.name}: column {k} has no name and looks like the index of a pandas "
                "DataFrame; write the table with index=False, or name the column"
            )
    default_names = [str(k) for k in range(len(names))]  # written by pandas for unnamed columns
    if suffix == ".csv" and names and list(names) != default_names and all(map(_is_number, names)):
        raise ValueError(
            f"{path.name}: the first line must hold the names of the columns, got numbers: "
            f"{_listed(names)}; add a header line"
        )


def _to_floats(path: Path, name: str, column: Any) -> Array:
    """Convert a column of a table to floats, with NaN for missing values."""
    from pyarrow import types

    kind = column.type
    if types.is_boolean(kind):
        column = column.cast("uint8")
    elif types.is_null(kind) or types.is_decimal(kind):
        column = column.cast("float64")
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        raise ValueError(
            f"{path.name}: column {name!r} holds {_describe(column)}, not numbers; if it holds "
            "session ids, pass it as --session (session=...), otherwise remove it"
            + (" (columns must be separated by commas)" if {";", "\t"} & set(name) else "")
        )
    values = np.asarray(column.to_numpy())  # integers with missing values become float64
    return values.astype(_float_of(values.dtype), copy=False)


def _describe(column: Any) -> str:
    """Describe the contents of a column that is not numeric, for an error message."""
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


def _session_ids(path: Path, name: str, column: Any) -> Array:
    values = column.to_pylist()
    for row, value in enumerate(values):
        if value is None or value == "" or value != value:
            raise ValueError(f"{path.name}: session column {name!r} has no value in row {row}")
    return np.asarray(values if all(isinstance(v, int) for v in values) else [*map(str, values)])


# Checks


def _check_array(where: str, x: Array, names: tuple[str, ...] | None, varying: bool) -> Array:
    """Return an array (rows, columns) of checked values, as floats unless it is memory-mapped."""
    if x.dtype.kind not in "fiub":
        raise ValueError(f"{where}: must hold real numbers, got dtype {x.dtype}")
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"{where}: must have shape (rows, columns), got shape {x.shape}")
    at_least = 2 if varying else 1
    if len(x) < at_least:
        raise ValueError(f"{where}: must have at least {at_least} rows, got {len(x)}")
    if x.dtype.kind == "b":
        x = x.view(np.uint8)
    if not isinstance(x, np.memmap):
        x = x.astype(_float_of(x.dtype), copy=False)
    constant = _scan_columns(where, x, names)
    if varying and constant.any():
        labels = [_label(names, k) for k in np.flatnonzero(constant).tolist()]
        which = f"columns {_joined(labels)} are" if len(labels) > 1 else f"column {labels[0]} is"
        raise ValueError(f"{where}: {which} constant, and must vary or be removed")
    return x


def _scan_columns(where: str, x: Array, names: tuple[str, ...] | None) -> npt.NDArray[np.bool_]:
    """Check in one pass that all values are finite, and return a mask of constant columns."""
    first = np.asarray(x[0])
    constant = np.ones(x.shape[1], dtype=bool)
    for rows in chunks_of_rows(x):
        chunk = np.asarray(x[rows])
        if chunk.dtype.kind == "f" and not (finite := np.isfinite(chunk)).all():
            row, column = np.argwhere(~finite)[0]
            value = chunk[row, column]
            missing = " or no value" if names and np.isnan(value) else ""
            raise ValueError(
                f"{where}: must be finite, got {value}{missing} in row {rows.start + row}, "
                f"column {_label(names, column)}"
            )
        constant &= (chunk == first).all(axis=0)
    return constant


def _check_groups(where: str, groups: Array, rows: int) -> None:
    if groups.shape != (rows,):
        raise ValueError(
            f"{where}: sessions must be one id for each of the {rows} rows, got shape "
            f"{groups.shape}"
        )
    if groups.dtype.kind == "f" and np.isnan(groups).any():
        row = int(np.flatnonzero(np.isnan(groups))[0])
        raise ValueError(f"{where}: session ids must not be NaN, got NaN in row {row}")


def _check_same_shape(name: str, x: Array, name_pos: str, x_pos: Array) -> None:
    for axis, what in enumerate(("rows", "columns")):
        if x.shape[axis] != x_pos.shape[axis]:
            raise ValueError(
                f"x and x_pos must have the same shape, but {name} has {x.shape[axis]} {what} and "
                f"{name_pos} has {x_pos.shape[axis]}"
            )


def _float_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float32 if it holds all values of ``dtype``, else float64."""
    return np.dtype(np.float32 if np.can_cast(dtype, np.float32) else np.float64)


# Text of messages


def _label(names: tuple[str, ...] | None, column: int) -> str:
    return str(column) if names is None else repr(names[column])


def _listed(names: Sequence[str]) -> str:
    return _joined([*map(repr, names)]) if names else "none"


def _joined(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - MAX_LISTED} more" if len(labels) > MAX_LISTED else ""
    return ", ".join(labels[:MAX_LISTED]) + more


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
