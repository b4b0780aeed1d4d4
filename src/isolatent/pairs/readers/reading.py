"""Read observations, pairs and factors from files of any known format, and check all values.

All problems of a file are reported at once. Rows are counted from 0; of text files the line is
named, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from isolatent.files import check_not_truncated
from isolatent.pairs.readers.faults import (
    describe_rows,
    joined,
    listed,
    raise_faults,
    unexpected_as_damaged,
)
from isolatent.pairs.readers.selection import (
    Contents,
    Selection,
    check_memory,
    select_columns,
)

__all__ = [
    "READABLE_SUFFIXES",
    "VIDEO_SUFFIXES",
    "Observations",
    "check_data_path",
    "chunks_of_rows",
    "columns_by_name",
    "read_factors",
    "read_observations",
    "read_pairs",
]

Array: TypeAlias = npt.NDArray[Any]
FilePath: TypeAlias = str | os.PathLike[str]

# The reader of each format: its module in this package and its function.
FORMAT_READERS = {
    ".npy": ("array_files", "read_npy"),
    ".npz": ("array_files", "read_npz"),
    ".csv": ("text_tables", "read_table"),
    ".tsv": ("text_tables", "read_table"),
    ".txt": ("text_tables", "read_table"),
    ".parquet": ("text_tables", "read_table"),
    ".h5": ("laboratory", "read_hdf5"),
    ".hdf5": ("laboratory", "read_hdf5"),
    ".mat": ("laboratory", "read_matlab"),
    ".nwb": ("laboratory", "read_nwb"),
    ".h5ad": ("laboratory", "read_anndata"),
    ".nc": ("laboratory", "read_netcdf"),
    ".zarr": ("laboratory", "read_zarr"),
}
READABLE_SUFFIXES = tuple(FORMAT_READERS)
DIRECTORIES = (".zarr",)
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")  # of images
CHUNK_VALUES = 2**22  # values processed at a time: 32 MB in float64
FEW_MISSING = 0.5  # share of rows; more missing ones are attributed to columns


@dataclass(frozen=True, eq=False)
class Observations:
    """The contents of a file.

    Args:
        x: Observations (rows, columns), or images; a memory map if read from an .npy file. Rows of
            a series may hold NaN, rows of pairs do not.
        x_pos: The positive of each row, or None for a series.
        names: The names of the columns, or None if the file has none and all are used.
        groups: A session id for each row, or None if the file has none.
        times: The time of each row, or None if the file has none.
        row_ids: The name of each row, or None if the file has none.
        rows: Numbers of these rows in the file, or None for all of them.
        notes: What was left out and how the file was read, one line each.
        n_incomplete: Number of rows with missing values, left out of pairs.
        others: Columns of a table that are neither observations nor ids nor times, by name; they
            have all rows of the file.
    """

    x: Array
    x_pos: Array | None = None
    names: tuple[str, ...] | None = None
    groups: Array | None = None
    times: Array | None = None
    row_ids: Array | None = None
    rows: Array | None = None
    notes: tuple[str, ...] = ()
    n_incomplete: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Array]:
        """All columns by name, those that are no observations first, with one value for each row.

        They are converted when they are asked for, since text takes much memory.
        """
        others = {name: _values_or_labels(values) for name, values in self.others.items()}
        if self.rows is not None:
            others = {name: values[self.rows] for name, values in others.items()}
        if self.x.ndim != 2:
            return others
        names = self.names or [f"column {k}" for k in range(self.x.shape[1])]
        return others | dict(zip(names, self.x.T, strict=True))

    @property
    def complete(self) -> npt.NDArray[np.bool_]:
        """Which rows have no missing value (rows,)."""
        if not self.n_incomplete:
            return np.ones(len(self.x), dtype=bool)
        return np.asarray(np.isfinite(self.x).reshape(len(self.x), -1).all(axis=1))


def read_observations(
    path: FilePath,
    session: str | None = None,
    *,
    varying: bool = True,
    selection: Selection | None = None,
) -> Observations:
    r"""Read a series, or pairs, and check all values.

    An .npy file is memory-mapped and checked in chunks, so it may be larger than memory; its dtype
    is kept. From other files integers and booleans are converted to floats. Rows with missing
    values are left out of pairs, and columns that never vary are left out; ``notes`` says so.
    Arrays (trials, time, columns) are a session for each trial.

    Args:
        path: ``.npy``: a series; ``.npz``: an array ``x`` and optionally ``x_pos``, or ``session``
            (or ``groups``); ``.csv`` and other text with a header line and ``.parquet``: a series,
            one column for each observed dimension; ``.h5``, ``.mat``, ``.nwb``, ``.h5ad``,
            ``.zarr`` and ``.nc``: as their own libraries read them.
        session: Name of the column (of the array, for files of arrays) with the session ids.
        varying: Whether to require at least two rows and a column that varies, as for training.
        selection: Further choices, such as the columns and the time of rows.

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
    selection = selection or Selection()
    if session is not None:
        selection = replace(selection, session=session)
    with unexpected_as_damaged(path):
        path, contents = _load(path, selection)
        return _checked(path.name, contents, selection, varying)


def read_pairs(
    path: FilePath,
    path_pos: FilePath,
    session: str | None = None,
    *,
    varying: bool = True,
    selection: Selection | None = None,
) -> Observations:
    """Read observations from one file and their positives, row by row, from another.

    Columns of tables are matched by name. A ``session`` column is ignored, since pairs need none,
    and so is a column of times.
    """
    selection = selection or Selection()
    if session is not None:
        selection = replace(selection, session=session)
    with unexpected_as_damaged(path):
        path, first = _load(path, selection)
    with unexpected_as_damaged(path_pos):
        path_pos, second = _load(path_pos, selection)
    for which, part in ((path.name, first), (path_pos.name, second)):
        if part.x_pos is not None:
            raise ValueError(
                f"{which}: holds x_pos already; pass this file alone, or two files without x_pos"
            )
    _as_rows(path.name, first, selection)
    _as_rows(path_pos.name, second, selection)
    x_pos = second.x
    if first.names is not None and second.names is not None and first.names != second.names:
        x_pos = x_pos[:, columns_by_name(path_pos.name, second.names, first.names)]
    _check_same_shape(path.name, first.x, path_pos.name, x_pos)
    first.notes += [note for note in second.notes if note not in first.notes]
    first.session = first.times = None
    first.x_pos = x_pos
    return _checked(path.name, first, selection, varying, path_pos.name)


def read_factors(path: FilePath, selection: Selection | None = None) -> Observations:
    """Read true factors, which must be finite and vary.

    Of a table, columns of times and ids by their usual names are left out, unless ``columns`` asks
    for them; ``notes`` says so.

    Args:
        path: A file as for :func:`read_observations`; of files of arrays, the array ``z``.
        selection: Its ``columns`` are the factors; its session and time are none.

    Returns:
        The factors as ``x`` (rows, factors), with their ``names``, if they have any.
    """
    selection = replace(selection or Selection(), factors=True, anchors_only=True)
    with unexpected_as_damaged(path):
        path, contents = _load(path, selection)
    raise_faults(path.name, contents.faults)
    if contents.x.ndim == 1:
        contents.x = contents.x[:, None]
    _as_rows(path.name, contents, selection)
    where, z = path.name, contents.x
    finite, constant = _scan_columns(contents, z)
    faults = [] if finite.all() else [_not_finite(contents, z, finite)]
    if constant.any():
        faults.append(f"{_columns(contents.names, constant)} constant, and must vary")
    raise_faults(where, faults)
    return Observations(z, names=contents.names, notes=tuple(contents.notes))


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
    known, needed = set(names), set(wanted)
    missing = [name for name in wanted if name not in known]
    surplus = [name for name in names if name not in needed]
    if missing or surplus:
        faults = [f"lacks {listed(missing)}"] if missing else []
        faults += [f"has also {listed(surplus)}"] if surplus else []
        raise ValueError(f"{where}: must have the columns {listed(wanted)}; {', '.join(faults)}")
    position = {name: k for k, name in enumerate(names)}
    return [position[name] for name in wanted]


def chunks_of_rows(x: Array) -> list[slice]:
    """Return slices that cover the rows of ``x``, with ``CHUNK_VALUES`` values each.

    Example:
        >>> chunks_of_rows(np.zeros((3, CHUNK_VALUES // 2)))
        [slice(0, 2, None), slice(2, 3, None)]
    """
    width = int(np.prod(x.shape[1:], dtype=np.int64))
    rows = max(1, CHUNK_VALUES // max(1, width))
    return [slice(start, min(start + rows, len(x))) for start in range(0, len(x), rows)]


def check_data_path(path: FilePath) -> tuple[Path, str]:
    """Return the path and its suffix in lower case if it is an existing file of a known format."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in READABLE_SUFFIXES:
        raise ValueError(
            f"{path}: must end in one of {', '.join(READABLE_SUFFIXES)}, got {suffix!r}"
        )
    if path.is_dir() and suffix not in DIRECTORIES:
        raise IsADirectoryError(f"{path}: is a directory, not a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: does not exist")
    return path, suffix


# Loading


def _load(path: FilePath, selection: Selection) -> tuple[Path, Contents]:
    """Return the contents of a file whose problems so far are raised with those of its values."""
    path, suffix = check_data_path(path)
    module, name = FORMAT_READERS[suffix]
    read: Callable[..., Contents] = getattr(
        import_module(f"isolatent.pairs.readers.{module}"), name
    )
    if module == "text_tables":
        return path, read(path, suffix, selection)
    contents = read(path, selection)
    if selection.transpose and not contents.faults:
        _transpose(path.name, contents)
    if contents.x.ndim == 2 and not contents.faults:
        select_columns(contents, selection)
    return path, contents


def _transpose(where: str, contents: Contents) -> None:
    """Turn an array (columns, rows), such as channels by times."""
    if contents.x.ndim != 2:
        shape = contents.x.shape
        raise ValueError(f"{where}: --transpose is for arrays with two axes, got shape {shape}")
    contents.x = contents.x.T
    if contents.x_pos is not None:
        contents.x_pos = contents.x_pos.T


# Checks


def _checked(
    where: str,
    contents: Contents,
    selection: Selection,
    varying: bool,
    where_pos: str | None = None,
) -> Observations:
    """Return contents whose values are checked, without rows and columns that cannot be used."""
    x_where = where if contents.x_pos is None or where_pos is not None else f"{where}: x"
    pos_where = where_pos or f"{where}: x_pos"
    _as_rows(x_where, contents, selection)
    x, x_pos = contents.x, contents.x_pos
    at_least = 2 if varying else 1
    if not contents.faults:
        if x_pos is not None:
            x_pos = _as_array(pos_where, x_pos, selection)
            _check_same_shape(x_where, x, pos_where, x_pos)
        if len(x) < at_least:
            contents.faults.append(f"must have at least {at_least} rows, got {len(x)}")
    faults = contents.faults
    finite, constant = _scan_columns(contents, x)
    if not faults and (infinite := _infinite(contents, x, finite)):
        faults.append(infinite)
    if x_pos is not None and not faults:
        finite_pos, constant_pos = _scan_columns(contents, x_pos)
        if infinite := _infinite(contents, x_pos, finite_pos):
            faults.append(f"x_pos {infinite}" if where_pos is None else f"{where_pos} {infinite}")
        finite, constant = finite & finite_pos, constant & constant_pos
    _check_rows(contents, len(x), faults, varying)
    wide = contents.x_pos is None and x.ndim == 2 and len(x) < x.shape[1]
    if varying and wide and contents.line_of is None and not selection.transpose:
        contents.notes.append(
            f"{len(x)} rows and {x.shape[1]} columns: --transpose if rows are channels and columns "
            "are times"
        )
    if varying and not faults:
        _check_complete(contents, x, finite, constant)
    raise_faults(where, faults)
    return _usable(where, contents, selection, x, x_pos, finite, constant & varying)


def _check_rows(contents: Contents, n_rows: int, faults: list[str], varying: bool) -> None:
    """Note problems of session ids and times, which must be one for each row."""
    groups, times = contents.session, contents.times
    if groups is not None and groups.shape != (n_rows,):
        faults.append(
            f"sessions must be one id for each of the {n_rows} rows, got shape {groups.shape}"
        )
        return
    if times is None:
        return
    if times.shape != (n_rows,):
        faults.append(f"times must be one for each of the {n_rows} rows, got shape {times.shape}")
    elif times.dtype.kind not in "fiuM":
        faults.append(f"times must be numbers or dates, got dtype {times.dtype}")
    elif not faults and varying:
        earlier = np.diff(times) <= np.zeros(1, np.diff(times).dtype)
        if groups is not None:
            earlier &= groups[1:] == groups[:-1]
        if wrong := (1 + np.flatnonzero(earlier)).tolist():
            which = "within each session" if groups is not None else "from row to row"
            hint = "" if groups is not None else "; sort the rows, or name their --session"
            faults.append(
                f"times must increase {which}, but do not at "
                f"{describe_rows(wrong, contents.line_of)}{hint}"
            )


def _check_complete(contents: Contents, x: Array, finite: Array, constant: Array) -> None:
    """Note that too few rows are complete, and the columns to blame."""
    if constant.all():
        contents.faults.append(f"{_columns(contents.names, constant)} constant: none varies")
        return
    if finite.all():
        return
    complete = int(finite.sum())
    if complete >= max(2, FEW_MISSING * len(x)):
        return
    missing = np.isnan(x).sum(axis=0) if x.ndim == 2 else np.zeros(0)
    worst: list[int] = np.argsort(-missing, kind="stable")[:3].tolist()
    blame = ", ".join(f"{_label(contents.names, k)} lacks {missing[k]} of {len(x)}" for k in worst)
    text = f"{complete} of {len(x)} rows are complete; columns that lack most values: {blame}"
    if complete < 2:
        contents.faults.append(f"{text}; leave columns out with --drop")
    else:
        contents.notes.append(f"only {text}; --drop leaves columns out")


def _usable(
    where: str,
    contents: Contents,
    selection: Selection,
    x: Array,
    x_pos: Array | None,
    finite: Array,
    constant: Array,
) -> Observations:
    """Leave out constant columns and, of pairs, incomplete rows."""
    names, notes, rows = contents.names, contents.notes, None
    n_incomplete = int(len(finite) - finite.sum())
    changed = bool(constant.any()) or n_incomplete > 0
    if changed and isinstance(x, np.memmap):
        advice = f": it has {'constant columns' if constant.any() else 'missing values'}, so it "
        advice += "cannot stay on disk"
        check_memory(where, x.nbytes * (1 + (x_pos is not None)), selection, advice)
        x = np.array(x, dtype=np.result_type(x.dtype, np.float32))
    if constant.any():
        notes.append(f"{_columns(names, constant)} constant, and left out")
        names = names or tuple(map(str, range(x.shape[1])))
        names = tuple(name for name, same in zip(names, constant, strict=True) if not same)
        x, x_pos = x[:, ~constant], None if x_pos is None else x_pos[:, ~constant]
    if n_incomplete:
        lines = describe_rows(np.flatnonzero(~finite).tolist(), contents.line_of)
        notes.append(
            f"{n_incomplete} of {len(x)} rows have missing values and are left out of pairs: "
            f"{lines}"
        )
        if x_pos is not None:
            rows = np.flatnonzero(finite)
            x, x_pos = x[rows], x_pos[rows]
    ids = contents.row_ids
    return Observations(
        x,
        x_pos,
        names,
        contents.session,
        contents.times,
        ids if ids is None or rows is None else ids[rows],
        rows,
        tuple(notes),
        n_incomplete,
        contents.others,
    )


def _values_or_labels(values: Any) -> Array:
    """Return numbers and dates as they are, and all else as text."""
    array = np.asarray(values)
    if array.dtype.kind in "fiuMb":
        return array
    return np.asarray(["" if value is None else str(value) for value in array.tolist()])


def _as_rows(where: str, contents: Contents, selection: Selection) -> None:
    """Give the observations their shape: (rows, columns), images, or trials as sessions."""
    if contents.faults:
        return
    x = _as_array(where, contents.x, selection)
    if x.ndim == 3 and not selection.images:
        if contents.x_pos is not None or contents.session is not None or contents.times is not None:
            raise ValueError(
                f"{where}: must have shape (rows, columns) with x_pos, sessions or times, got "
                f"shape {x.shape}"
            )
        trials, length, width = x.shape
        contents.session = np.repeat(np.arange(trials), length)
        contents.notes.append(f"{trials} trials of {length} rows are a session each")
        x = x.reshape(trials * length, width)
        contents.x = x
        select_columns(contents, selection)
        x = contents.x
    contents.x = x


def _as_array(where: str, x: Array, selection: Selection) -> Array:
    """Return an array of real numbers, as floats unless it is memory-mapped."""
    from isolatent.pairs.readers.text_tables import float_of

    if x.dtype.kind not in "fiub":
        raise ValueError(f"{where}: must hold real numbers, got dtype {x.dtype}")
    allowed = (3, 4) if selection.images else (2, 3)
    if x.ndim not in allowed or 0 in x.shape[1:]:
        expected = "(rows, columns)"
        if selection.images:
            expected = "(rows, height, width) or (rows, channels, height, width)"
        raise ValueError(f"{where}: must have shape {expected}, got shape {x.shape}")
    if x.dtype.kind == "b":
        x = x.view(np.uint8)
    if not isinstance(x, np.memmap):
        x = x.astype(float_of(x.dtype), copy=False)
    return x


def _scan_columns(contents: Contents, x: Array) -> tuple[npt.NDArray[np.bool_], ...]:
    """Return in one pass which rows are finite, and which columns never vary."""
    finite = np.ones(len(x), dtype=bool)
    constant: npt.NDArray[np.bool_] = np.ones(x.shape[1:], dtype=bool)
    if not len(x) or contents.faults:
        return finite, np.zeros(x.shape[1:], dtype=bool)
    first = np.array(x[0])
    for rows in chunks_of_rows(x):
        check_not_truncated(x)
        chunk = np.asarray(x[rows])
        same = chunk == first
        if chunk.dtype.kind == "f":
            valid = np.isfinite(chunk)
            if not valid.all():
                finite[rows] = valid.reshape(len(chunk), -1).all(axis=1)
                gaps = np.isnan(chunk)
                # The first value that is there is compared with, and missing ones do not vary.
                unset = np.isnan(first)
                if unset.any():
                    where_valid = np.argmax(~gaps, axis=0)
                    found = np.take_along_axis(chunk, where_valid[None], axis=0)[0]
                    first = np.where(unset, found, first)
                same = (chunk == first) | gaps
            elif np.isnan(first).any():
                first = np.where(np.isnan(first), chunk[0], first)
                same = chunk == first
        constant &= same.all(axis=0)
    if x.ndim > 2:  # pixels need not vary
        constant = np.zeros(1, dtype=bool)
    return finite, constant


def _infinite(contents: Contents, x: Array, finite: Array) -> str:
    """Return a message about values that are not finite and not missing; empty if none is."""
    for row in np.flatnonzero(~finite).tolist():
        values = np.asarray(x[row])
        if np.isinf(values).any():
            column = np.argwhere(np.isinf(values))[0]
            label = _label(contents.names, int(column[0])) if x.ndim == 2 else tuple(column)
            return (
                f"must be finite, got {values[tuple(column)]} in "
                f"{describe_rows([row], contents.line_of)}, column {label}"
            )
    return ""


def _not_finite(contents: Contents, x: Array, finite: Array) -> str:
    row = int(np.flatnonzero(~finite)[0])
    column = int(np.flatnonzero(~np.isfinite(np.asarray(x[row])))[0])
    value = x[row, column]
    missing = " or no value" if contents.names and np.isnan(value) else ""
    return (
        f"must be finite, got {value}{missing} in {describe_rows([row], contents.line_of)}, "
        f"column {_label(contents.names, column)}"
    )


def _check_same_shape(name: str, x: Array, name_pos: str, x_pos: Array) -> None:
    for axis, what in enumerate(("rows", "columns")):
        if x.shape[axis] != x_pos.shape[axis]:
            raise ValueError(
                f"x and x_pos must have the same shape, but {name} has {x.shape[axis]} {what} and "
                f"{name_pos} has {x_pos.shape[axis]}"
            )


def _columns(names: tuple[str, ...] | None, constant: Array) -> str:
    labels = [_label(names, k) for k in np.flatnonzero(constant).tolist()]
    return f"columns {joined(labels)} are" if len(labels) > 1 else f"column {labels[0]} is"


def _label(names: tuple[str, ...] | None, column: int) -> str:
    return str(column) if names is None else repr(names[column])
