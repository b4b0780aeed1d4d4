"""Which parts of a file are observations, and which are sessions, times or left out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from isolatent.pairs.readers.faults import LineOf, describe_rows, listed, unknown_name

__all__ = [
    "Contents",
    "Selection",
    "check_memory",
    "column_numbers",
    "default_memory",
    "format_bytes",
    "ids_of",
    "name_faults",
    "select_columns",
]

Array: TypeAlias = npt.NDArray[Any]

MEMORY_SHARE = 0.8  # of the machine's memory, which a file may take by default
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class Selection:
    """What to read from a file, as the options of ``isolatent fit`` say.

    Args:
        session: Name of the column, or of the array, with session ids.
        time: Name of the column, or of the array, with the time of each row.
        columns: Names or patterns of the columns that are observations; empty for all.
        drop: Names or patterns of columns that are left out.
        wanted: Names of the columns that are required, in this order: those of a fit.
        positive_suffix: Columns ``name + positive_suffix`` hold the positives of ``name``.
        array: Name of the array with the observations.
        transpose: Whether rows of an array are dimensions, and its columns observations.
        optional: Names of ``session``, ``time`` and ``array`` that are used where a file has them.
        anchors_only: Whether positives of a file are ignored.
        images: Whether arrays with three or four dimensions are images, and not trials.
        factors: Whether the columns are true factors; of the options, only ``columns`` is for them.
        max_memory: Bytes that the values may take.
    """

    session: str | None = None
    time: str | None = None
    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    wanted: Sequence[str] | None = None
    positive_suffix: str | None = None
    array: str | None = None
    transpose: bool = False
    optional: Mapping[str, str] = field(default_factory=dict)
    anchors_only: bool = False
    images: bool = False
    factors: bool = False
    max_memory: float | None = None

    def resolve(self, known: Container[str]) -> Selection:
        """Return the selection with the optional names that a file has."""
        found: dict[str, Any] = {r: name for r, name in self.optional.items() if name in known}
        return replace(self, optional={}, **found)

    @property
    def columns_option(self) -> str:
        """The option of the command line that chooses columns."""
        return "--truth-columns" if self.factors else "--columns"

    @property
    def memory(self) -> float:
        """Bytes that the values may take."""
        return default_memory() if self.max_memory is None else self.max_memory


@dataclass
class Contents:
    """What a file holds, before values are checked.

    Args:
        x: Observations.
        x_pos: Their positives, or None.
        names: Names of the columns, or None.
        session: Session ids, or None.
        times: Times of the rows, or None.
        row_ids: Names of the rows, or None.
        faults: Problems found so far.
        notes: What was done about peculiarities of the file, for the user.
        line_of: Maps rows to lines of a text file.
        others: Further columns of a table, by name.
    """

    x: Array
    x_pos: Array | None = None
    names: tuple[str, ...] | None = None
    session: Array | None = None
    times: Array | None = None
    row_ids: Array | None = None
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    line_of: LineOf | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


def column_numbers(
    names: Sequence[str] | None, n_columns: int, selection: Selection, faults: list[str]
) -> tuple[list[int], list[int] | None]:
    """Return the positions of the observed columns, and of their positives.

    Args:
        names: Names of the columns; None for an array, whose columns are numbered from 0.
        n_columns: Number of columns.
        selection: Which columns are asked for; its session and time are no observations.
        faults: Takes messages about names that are missing.

    Example:
        >>> names, faults = ["t", "u", "v", "note"], []
        >>> column_numbers(names, 4, Selection(time="t", drop=["note"]), faults)
        ([1, 2], None)
        >>> column_numbers(names, 4, Selection(columns=["U"]), faults)[0]
        []
        >>> faults
        ["has no column 'U' for --columns; did you mean 'u'? it has 't', 'u', 'v', 'note'"]
    """
    known = [str(k) for k in range(n_columns)] if names is None else list(names)
    place = {name: k for k, name in reversed([*enumerate(known)])}
    if selection.wanted is not None:
        found = _wanted(known, place, selection.wanted, faults)
        suffix = None if selection.anchors_only else selection.positive_suffix
        partners = [name + suffix for name in selection.wanted] if suffix is not None else []
        has_all = bool(partners) and all(name in place for name in partners)
        return found, [place[name] for name in partners] if has_all else None
    numbered = names is None
    used = set(range(n_columns))
    order = list(range(n_columns))
    if selection.columns:
        option = selection.columns_option
        order = _find(known, place, selection.columns, option, numbered, faults)
        used = set(order)
    if selection.drop:
        used -= set(_find(known, place, selection.drop, "--drop", numbered, faults))
    if names is not None:
        used -= {place[name] for name in (selection.session, selection.time) if name in place}
    order = [k for k in dict.fromkeys(order) if k in used]
    if selection.positive_suffix is None:
        return order, None
    return _by_suffix(known, place, order, selection.positive_suffix, faults)


def select_columns(contents: Contents, selection: Selection) -> None:
    """Keep the observed columns of arrays (rows, columns)."""
    if selection.wanted is not None and contents.names is None:
        numbers = all(name.isdecimal() for name in selection.wanted)
        if not numbers or contents.x.shape[1] == len(selection.wanted):
            return  # columns without names cannot be matched; their number is checked later
    found, found_pos = column_numbers(
        contents.names, contents.x.shape[1], selection, contents.faults
    )
    n_columns = contents.x.shape[1]
    if contents.faults or (found == [*range(n_columns)] and found_pos is None):
        return
    names = contents.names or tuple(map(str, range(n_columns)))
    both = contents.x
    if isinstance(both, np.memmap):  # a selection of columns cannot stay on disk
        size = len(both) * len(found) * both.dtype.itemsize
        check_memory("the selected columns", size * (1 + (found_pos is not None)), selection)
    contents.x, contents.names = both[:, found], tuple(names[k] for k in found)
    if found_pos is not None:
        contents.x_pos = both[:, found_pos]
    elif contents.x_pos is not None:
        contents.x_pos = contents.x_pos[:, found]


def _wanted(
    known: list[str], place: dict[str, int], wanted: Sequence[str], faults: list[str]
) -> list[int]:
    missing = [name for name in wanted if name not in place]
    if len(missing) == 1:
        faults.append(unknown_name("column", missing[0], "the model", known))
    elif missing:
        faults.append(
            f"must have the columns of the fit, {listed(wanted)}; lacks {listed(missing)}, has "
            f"{listed(known)}"
        )
    return [place[name] for name in wanted if name in place]


def _find(
    known: list[str],
    place: dict[str, int],
    asked: Sequence[str],
    option: str,
    numbered: bool,
    faults: list[str],
) -> list[int]:
    """Return positions of names, patterns such as ``cell_*``, and ranges of numbers."""
    found: list[int] = []
    for name in asked:
        span = re.fullmatch(r"(\d+)-(\d+)", name) if numbered else None
        if name in place:
            found.append(place[name])
        elif span is not None and int(span[1]) <= int(span[2]) < len(known):
            found += range(int(span[1]), int(span[2]) + 1)
        elif any(sign in name for sign in "*?[") and (
            matches := [k for k, one in enumerate(known) if fnmatchcase(one, name)]
        ):
            found += matches
        else:
            faults.append(unknown_name("column", name, option, known))
    return found


def _by_suffix(
    known: list[str], place: dict[str, int], order: list[int], suffix: str, faults: list[str]
) -> tuple[list[int], list[int] | None]:
    positives = [k for k in order if known[k].endswith(suffix) and known[k] != suffix]
    anchors = [k for k in order if k not in set(positives)]
    if not positives:
        faults.append(f"has no column that ends in --positive-suffix {suffix!r}; it has ")
        faults[-1] += listed(known)
        return order, None
    bare = {known[k].removesuffix(suffix) for k in positives}
    alone = [known[k] for k in anchors if known[k] not in bare]
    alone += [known[k] for k in positives if known[k].removesuffix(suffix) not in place]
    if alone:
        faults.append(
            f"columns must be pairs, such as 'u' and {'u' + suffix!r}, with --positive-suffix; "
            f"without a partner: {listed(alone)}; leave them out with --drop"
        )
        return order, None
    return anchors, [place[known[k] + suffix] for k in anchors]


def name_faults(names: Sequence[str]) -> list[str]:
    """Return the message about names that occur more than once, none if all are distinct."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    return [f"has more than one column {repeated[0]!r}"] if repeated else []


def ids_of(what: str, values: Array, faults: list[str], line_of: LineOf | None = None) -> Array:
    """Return ids as integers or text, and note those that are missing."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind == "O":
        texts = [_as_text(value) for value in values.tolist()]
        missing = [row for row, text in enumerate(texts) if text in (None, "")]
        values = np.asarray(["" if text is None else text for text in texts])
    elif values.dtype.kind == "f":
        missing = np.flatnonzero(np.isnan(values)).tolist()
    else:
        missing = np.flatnonzero(values == "").tolist() if values.dtype.kind == "U" else []
    if missing:
        faults.append(f"{what} has no value in {describe_rows(missing, line_of)}")
    return values


def _as_text(value: object) -> str | None:
    if value is None or value != value:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def check_memory(where: str, n_bytes: float, selection: Selection, advice: str = "") -> None:
    """Raise an error, before anything is read, if values would take more memory than allowed.

    Example:
        >>> check_memory("a.npz: x", 6e9, Selection(max_memory=1e9))
        Traceback (most recent call last):
        ValueError: a.npz: x would take 6.0 GB of memory, more than --max-memory 1.0 GB
    """
    if n_bytes > selection.memory:
        raise ValueError(
            f"{where} would take {format_bytes(n_bytes)} of memory, more than --max-memory "
            f"{format_bytes(selection.memory)}{advice}"
        )


def default_memory() -> float:
    """Return how many bytes a file may take by default: most of the machine's memory."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return float("inf")
    return MEMORY_SHARE * pages * size


def format_bytes(n_bytes: float) -> str:
    """Return a number of bytes with its unit.

    Example:
        >>> format_bytes(6e9)
        '6.0 GB'
    """
    for unit in UNITS:
        if n_bytes < 1000 or unit == UNITS[-1]:
            break
        n_bytes /= 1000
    return f"{n_bytes:.1f} {unit}"
