"""Problems of a file: several in one error, near misses of names, and damaged files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from isolatent.files import INTERPRETATION_ERRORS, DamagedFileError

__all__ = [
    "LineOf",
    "damaged_as",
    "describe_rows",
    "joined",
    "listed",
    "nearest_name",
    "raise_faults",
    "unexpected_as_damaged",
    "unknown_name",
]

LineOf: TypeAlias = Callable[[Sequence[int]], list[int]]  # from rows to lines of a text file

MAX_LISTED = 8  # names listed in a message
MAX_ROWS_LISTED = 5


@contextmanager
def damaged_as(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any error of a library that reads a file into one line that names the file.

    Errors of the system, such as a file that does not exist, and those that name a damaged file
    already pass, as do lack of memory and interruption.

    Example:
        >>> with damaged_as("folder/model.json"):
        ...     {}["format"]
        Traceback (most recent call last):
        isolatent.files.DamagedFileError: model.json is damaged: it lacks 'format'
    """
    try:
        yield
    except (DamagedFileError, MemoryError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = f"{error}".strip().splitlines() or [type(error).__name__]
        if isinstance(error, KeyError):
            reason = [f"it lacks {error}"]
        elif isinstance(error, RecursionError):
            reason = ["it is nested too deeply"]
        raise DamagedFileError(Path(path).name, reason[0]) from error


@contextmanager
def unexpected_as_damaged(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors that no check foresaw, such as a KeyError, into one line that names the file.

    Example:
        >>> with unexpected_as_damaged("folder/x.mat"):
        ...     [].pop()
        Traceback (most recent call last):
        isolatent.files.DamagedFileError: x.mat is damaged: pop from empty list
    """
    try:
        yield
    except INTERPRETATION_ERRORS as error:
        if isinstance(error, ValueError | MemoryError | FloatingPointError):
            raise  # of a check, or of the machine
        with damaged_as(path):
            raise


def raise_faults(where: str, faults: Sequence[str]) -> None:
    """Raise one ValueError with all problems of a file, if there are any.

    Example:
        >>> raise_faults("a.csv", ["column 'u' is text", "no column 'v'"])
        Traceback (most recent call last):
        ValueError: a.csv has 2 problems:
          - column 'u' is text
          - no column 'v'
    """
    if len(faults) == 1:
        raise ValueError(f"{where}: {faults[0]}")
    if faults:
        lines = "".join(f"\n  - {fault}" for fault in faults)
        raise ValueError(f"{where} has {len(faults)} problems:{lines}")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a given one, up to case; None if none is.

    Example:
        >>> nearest_name("Trial", ["left", "trial"]), nearest_name("week", ["left", "right"])
        ('trial', None)
    """
    by_lower = {one.lower(): one for one in reversed([*known])}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None


def unknown_name(what: str, name: str, option: str, known: Sequence[str]) -> str:
    """Return the message about a name that a file does not have.

    Example:
        >>> unknown_name("column", "Trial", "--session", ["left", "trial"])
        "has no column 'Trial' for --session; did you mean 'trial'? it has 'left', 'trial'"
    """
    close = nearest_name(name, known)
    hint = "" if close is None else f"did you mean {close!r}? "
    return f"has no {what} {name!r} for {option}; {hint}it has {listed(known)}"


def describe_rows(rows: Sequence[int], line_of: LineOf | None) -> str:
    """Return numbers of rows, counted from 0, and their lines in a text file.

    Example:
        >>> describe_rows([1756], lambda rows: [row + 2 for row in rows])
        'row 1756 (line 1758)'
        >>> describe_rows([3, 5], None)
        'rows 3, 5'
    """
    rows = [int(row) for row in rows]
    text = f"row{'s' * (len(rows) > 1)} {_some(rows)}"
    if line_of is not None:
        lines = line_of(rows[:MAX_ROWS_LISTED])
        text += f" (line{'s' * (len(rows) > 1)} {_some(lines, len(rows))})"
    return text


def listed(names: Sequence[str]) -> str:
    """Return quoted names, the first of them if there are many."""
    return joined([*map(repr, names[: MAX_LISTED + 1])], len(names)) if names else "none"


def joined(labels: Sequence[str], count: int | None = None) -> str:
    """Return labels, the first of them if there are many, and how many more there are."""
    count = len(labels) if count is None else count
    more = f" and {count - MAX_LISTED} more" if count > MAX_LISTED else ""
    return ", ".join(labels[:MAX_LISTED]) + more


def _some(numbers: Sequence[int], count: int | None = None) -> str:
    count = len(numbers) if count is None else count
    more = f" and {count - MAX_ROWS_LISTED} more" if count > MAX_ROWS_LISTED else ""
    return ", ".join(map(str, numbers[:MAX_ROWS_LISTED])) + more
