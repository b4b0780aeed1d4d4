"""Readers of CSV files with recorded transitions of x, y and scale."""

from __future__ import annotations

import ast
import csv
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isolatent.datasets.transitions import MOVING, RecordedTransitions

__all__ = ["read_transitions"]

SUFFIXES = (("_t", "_t0", "_before"), ("_t+1", "_t1", "_after"))  # of column names
EXTENTS = ("scale", "area")
MAX_CELL = 2**31 - 1  # characters; the default limit of the csv module is 131 072
SIDE = 64  # pixels of a crop window
QUANTILES = (0.05, 0.95)  # of the area, beyond which Natural Sprites drops transitions

Array = NDArray[np.float64]
Frame = tuple[float, float, float]  # y, x, area


def read_transitions(path: str | os.PathLike[str], *, rescale: bool = True) -> RecordedTransitions:
    r"""Read transitions from a CSV file in one of two layouts, recognised by the header.

    **One transition in each row**, with the columns ``x_t``, ``y_t`` and ``area_t`` (or
    ``scale_t``), and ``x_t+1``, ``y_t+1`` and ``area_t+1`` (or ``scale_t+1``); ``_before`` and
    ``_after``, or ``_t0`` and ``_t1``, are also accepted. The scale is the square root of the area.

    **One object in each row**, as in the file of Natural Sprites (zenodo 3948069), with the columns
    ``t_0``, ``t_1``, … up to the last, one for each frame. A cell is empty or a Python list with
    one entry for each crop window of 64 × 64 pixels: ``(y, x, area)``, or ``None`` where the object
    is not visible in the window. Adjacent frames of an object in one window are a transition.
    Transitions with an area below the 5 % or above the 95 % quantile, before or after, are dropped;
    the scale is :math:`\sqrt{area / 64^2}`, and x and y are divided by 64.

    Other columns, such as an index or ``id`` and ``cat_id``, are ignored.

    References:
        Klindt et al., 2021.

    Args:
        path: The CSV file.
        rescale: Whether x, y and scale are each mapped linearly from their range in the file to
            [0, 1]; if not, they must lie in [0, 1].

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "moves.csv")
        >>> _ = path.write_text("x_t,y_t,area_t,x_t+1,y_t+1,area_t+1\n0,2,4,8,4,16\n2,3,9,2,3,4\n")
        >>> read_transitions(path).table[0].tolist()
        [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
        >>> cells = '"[None, (32.0, 16.0, 1024)]","[(1.0, 2.0, 9), (48.0, 16.0, 256)]"'
        >>> _ = path.write_text(f"id,cat_id,t_0,t_1\n1,7,{cells}\n")
        >>> read_transitions(path, rescale=False).table.tolist()
        [[0.25, 0.5, 0.5, 0.25, 0.75, 0.25]]
        >>> folder.cleanup()
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: does not exist")
    table = _read_table(path)
    if rescale:
        for k, name in enumerate(MOVING):
            both = table[:, [k, 3 + k]]
            low, high = both.min(), both.max()
            if low == high:
                raise ValueError(f"{path.name}: {name} must vary to be rescaled, got only {low:g}")
            table[:, [k, 3 + k]] = (both - low) / (high - low)
    return RecordedTransitions(table, source=path.name)


def _read_table(path: Path) -> Array:
    """Return rows (T, 6) of x, y, scale before and x, y, scale after from either layout."""
    # Bytes that are not UTF-8 are replaced, so that the error names the cell that holds them.
    with _long_cells(), path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        lines = csv.reader(file)
        try:
            header = [name.strip().lower() for name in next(lines, [])]
            if "t_0" in header:
                return _scaled(path, _steps(path, header, lines))
        except csv.Error as error:
            raise ValueError(f"{path.name}: line {lines.line_num}: {error}") from error
    return _read_rows(path)


@contextmanager
def _long_cells() -> Iterator[None]:
    """Raise the process-wide limit of the csv module on the length of cells."""
    before = csv.field_size_limit(MAX_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _steps(path: Path, header: list[str], lines: Any) -> list[tuple[Frame, Frame]]:
    """Return adjacent frames of one object in one crop window, from one row per object."""
    first = header.index("t_0")
    names = header[first:]
    if len(names) < 2 or names != [f"t_{k}" for k in range(len(names))]:
        raise ValueError(
            f"{path.name}: the columns from t_0 to the last must be t_0, t_1, …, got {names}"
        )
    steps: list[tuple[Frame, Frame]] = []
    for cells in lines:
        line = f"{path.name}: line {lines.line_num}"
        if len(cells) > len(header):
            raise ValueError(f"{line} must have at most {len(header)} cells, got {len(cells)}")
        where = [f"{line}, column {name!r}" for name in names]
        # A row may end before the last column.
        frames = [_windows(w, cell) for w, cell in zip(where, cells[first:], strict=False)]
        for next_where, (before, after) in zip(where[1:], pairwise(frames), strict=False):
            if before and after and len(before) != len(after):
                raise ValueError(
                    f"{next_where} must have as many crop windows as the column before, "
                    f"{len(before)}, got {len(after)}"
                )
            steps += [(a, b) for a, b in zip(before, after, strict=False) if a and b]
    if not steps:
        raise ValueError(
            f"{path.name}: has no transition: no crop window shows an object in adjacent columns"
        )
    return steps


def _windows(where: str, cell: str) -> list[Frame | None]:
    """Parse a cell: the frame in each crop window, or an empty list."""
    if not cell.strip():
        return []
    try:
        windows = ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        windows = None
    if not isinstance(windows, list):
        raise ValueError(
            f"{where} must be empty or a list of (y, x, area) or None, got {_short(cell)}"
        )
    for window in windows:
        if window is None:
            continue
        if not isinstance(window, tuple) or len(window) != 3:
            raise ValueError(f"{where} must hold tuples (y, x, area) or None, got {_short(window)}")
        # An integer may be too large for a float.
        finite = all(type(n) in (int, float) and abs(n) <= sys.float_info.max for n in window)
        if not finite or window[2] < 0:
            raise ValueError(
                f"{where} must hold finite numbers (y, x, area) with area >= 0, got "
                f"{_short(window)}"
            )
    return windows


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _scaled(path: Path, steps: list[tuple[Frame, Frame]]) -> Array:
    """Drop extreme areas, and express positions and scale relative to the crop window."""
    y, x, area = np.moveaxis(np.array(steps, np.float64), 2, 0)  # (T, 2) each
    low, high = np.quantile(area, QUANTILES, axis=0)  # before and after separately
    kept = ((area >= low) & (area <= high)).all(axis=1)
    if not kept.any():
        raise ValueError(
            f"{path.name}: must have a transition with both areas from the 5 % to the 95 % "
            f"quantile, got {len(steps)} transitions without one"
        )
    table = np.stack([x / SIDE, y / SIDE, np.sqrt(area / SIDE**2)], axis=2)
    return table[kept].reshape(-1, 6)


def _read_rows(path: Path) -> Array:
    """Read the layout with one transition in each row."""
    import pyarrow as arrow
    from pyarrow import csv as arrow_csv

    try:
        read = arrow_csv.read_csv(path)
        there = _names(path, read.column_names)
    except (arrow.ArrowInvalid, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: not a CSV file ({str(error).splitlines()[0]})") from error
    if not read.num_rows:
        raise ValueError(f"{path.name}: has no rows")
    known = [{e for e in EXTENTS if any(e + s in there for s in each)} for each in SUFFIXES]
    if all(known) and not known[0] & known[1]:
        raise ValueError(
            f"{path.name}: must have either scale or area both before and after; it has "
            f"{read.column_names}"
        )
    extents = tuple(e for e in EXTENTS if e in known[0] & known[1]) or EXTENTS
    columns: list[Array] = []
    for suffixes in SUFFIXES:
        wanted = (("x",), ("y",), extents)
        columns += [_column(path, read, there, names, suffixes) for names in wanted]
    return np.stack(columns, axis=1)


def _names(path: Path, columns: list[str]) -> dict[str, int]:
    """Return the index of each column by its name, without case and surrounding spaces."""
    names = [name.strip().lower() for name in columns]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        raise ValueError(f"{path.name}: must have each column once, got several {doubled}")
    return {name: k for k, name in enumerate(names)}


def _column(
    path: Path, read: Any, there: dict[str, int], names: tuple[str, ...], suffixes: tuple[str, ...]
) -> Array:
    """Return the numbers of the first of these columns that exists."""
    wanted = [name + suffix for name in names for suffix in suffixes]
    found = next((name for name in wanted if name in there), None)
    if found is None:
        raise ValueError(
            f"{path.name}: must have one of the columns {wanted}; it has {read.column_names}"
        )
    values = read.column(there[found]).to_numpy()
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{path.name}: column {found!r} must hold numbers, got {values[:1]}")
    numbers = np.asarray(values, np.float64)
    area = found.startswith("area")
    bad = ~np.isfinite(numbers) | (area & (numbers < 0))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"{path.name}: column {found!r} must be finite{' and not negative' * area}, got "
            f"{numbers[row]} in row {row}"
        )
    return np.sqrt(numbers) if area else numbers
