"""Read tables: text with separators, in whatever dialect it was written, and Parquet."""

from __future__ import annotations

import codecs
import csv
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from isolatent.files import DamagedFileError
from isolatent.pairs.readers.faults import (
    MAX_LISTED,
    LineOf,
    damaged_as,
    describe_rows,
    joined,
    listed,
    unknown_name,
)
from isolatent.pairs.readers.selection import (
    Contents,
    Selection,
    check_memory,
    column_numbers,
    ids_of,
    name_faults,
)

__all__ = ["TABLE_SUFFIXES", "Dialect", "float_of", "read_table", "sniff_dialect"]

Array: TypeAlias = npt.NDArray[Any]
Advise: TypeAlias = Callable[[str, str], str]  # what to do about a column of text

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
TABLE_SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
SEPARATORS = (",", ";", "\t", "|")
SPACE_SEPARATOR = " "  # any number of them, in .txt files
COMMENT = "#"  # begins lines before the table
SAMPLE_BYTES = 2**16  # from which the dialect is recognised
SAMPLE_RECORDS = 50
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
MISSING_TEXT = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "#N/A", "-NaN", "-nan")
# Names of columns that are hardly ever observations.
SUSPECT = {
    "time": ("time", "times", "timestamp", "timestamps", "date", "datetime"),
    "session": ("session", "session_id", "trial", "trial_id", "subject", "subject_id"),
    "drop": ("id", "index", "row", "frame", "sample"),
}


@dataclass(frozen=True)
class Dialect:
    """How a text file writes a table.

    Args:
        separator: The character between columns.
        decimal: The character between the digits of a fraction.
        encoding: The encoding of the text.
        comments: Number of lines before the table, which are comments or blank.
        names: Names of the columns, if the last comment holds them; else the first line does.
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    comments: int = 0
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return what differs from commas, decimal points and UTF-8; empty if nothing does."""
        parts = []
        if self.separator != ",":
            parts.append(f"columns separated by {SEPARATOR_NAMES[self.separator]}")
        if self.decimal != ".":
            parts.append("decimal commas")
        if self.encoding not in ("utf-8", "utf-8-sig"):
            parts.append(f"encoding {self.encoding}")
        if self.comments:
            lines = f"{self.comments} line{'s' * (self.comments > 1)} of comments"
            parts.append(f"{lines} at the start{', the names of columns' * bool(self.names)}")
        return ", ".join(parts)


def sniff_dialect(sample: bytes, spaces: bool = False) -> Dialect:
    r"""Return the dialect of a table, from the start of its file.

    Args:
        sample: The start of the file.
        spaces: Whether columns may be separated by spaces.

    Example:
        >>> sniff_dialect(b"\xef\xbb\xbfa;b\n1,5;2\n").separator
        ';'
        >>> found = sniff_dialect(b"# of Monday\n# left right\n1.5  2\n3.0  4\n", spaces=True)
        >>> found.comments, found.names
        (2, ('left', 'right'))
    """
    encoding = _sniff_encoding(sample)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
    whole = text if len(sample) < SAMPLE_BYTES else text[: text.rfind("\n") + 1]
    every = whole.splitlines(keepends=True)
    is_before = [not line.strip() or line.lstrip().startswith(COMMENT) for line in every]
    comments = is_before.index(False) if False in is_before else 0
    records: dict[str, list[list[str]]] = {}
    for separator in (*SEPARATORS, *([SPACE_SEPARATOR] if spaces else [])):
        lines = _split(every[comments:], separator)
        try:
            found = itertools.islice((record for record in lines if record), SAMPLE_RECORDS)
            records[separator] = [*found]
        except csv.Error:
            continue

    def quality(separator: str) -> tuple[bool, float, int]:
        rows = records[separator]
        width = len(rows[0]) if rows else 0
        equal = sum(len(row) == width for row in rows) / max(1, len(rows))
        return width > 1, equal, width

    # The first separator wins a tie.
    separator = max(records, key=quality, default=",")
    cells = [cell for row in records.get(separator, [])[1:] for cell in row]
    commas = sum(_is_number(cell.replace(",", ".")) for cell in cells if cell.count(",") == 1)
    points = sum(_is_number(cell) for cell in cells if "." in cell)
    decimal = "," if separator != "," and commas > points else "."
    names = _names_in_comment(every[:comments], records.get(separator, []), separator, decimal)
    return Dialect(separator, decimal, encoding, comments, names)


def _split(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Yield the cells of each line, or record of several lines."""
    if separator == SPACE_SEPARATOR:
        return (line.split() for line in lines)
    return csv.reader(lines, delimiter=separator)


def _names_in_comment(
    comments: Sequence[str], records: Sequence[Sequence[str]], separator: str, decimal: str
) -> tuple[str, ...]:
    """Return names of columns in the last comment, where the table has only numbers below."""
    if not comments or not records:
        return ()
    if not all(_is_number(cell.replace(decimal, ".")) for cell in records[0]):
        return ()
    line = comments[-1].strip().lstrip(COMMENT).strip()
    names = next(_split([line], separator), [])
    is_header = len(names) == len(records[0]) and not any(map(_is_number, names))
    return tuple(name.strip() for name in names) if is_header else ()


def _sniff_encoding(sample: bytes) -> str:
    if sample.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        try:
            decoder = codecs.getincrementaldecoder(encoding)()
            decoder.decode(sample, final=len(sample) < SAMPLE_BYTES)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"  # which any bytes are


def read_table(path: Path, suffix: str, selection: Selection) -> Contents:
    """Return the observed columns of a table as floats, with session ids and times."""
    if selection.array is not None:
        raise ValueError(f"{path.name}: --array is for files of arrays, got {selection.array!r}")
    is_text = suffix in TEXT_SUFFIXES
    dialect: Dialect | None = None
    ragged: list[str] = []
    if is_text:
        table, dialect, ragged = _open_text(path, selection)
    else:
        table = _open_parquet(path, selection)
    names: list[str] = table.column_names
    selection = selection.resolve(set(names))
    line_of = None if dialect is None else _line_finder(path, dialect)
    faults = [*ragged, *_table_faults(names, is_text, selection)]
    notes = []
    if dialect is not None and (described := dialect.describe()):
        notes.append(f"read with {described}")
    found, found_pos = column_numbers(names, len(names), selection, faults)
    if selection.factors and not selection.columns:
        found = _without_suspects(names, found, notes)
    columns, place = table.columns, {name: k for k, name in reversed([*enumerate(names)])}
    roles: dict[str, Array] = {}
    for role in ("session", "time"):
        name = getattr(selection, role)
        if name is None:
            continue
        if name not in place:
            faults.append(unknown_name("column", name, f"--{role}", names))
        elif role == "session":
            values = _session_ids(columns[place[name]])
            wrong = notes if selection.anchors_only else faults
            roles[role] = ids_of(f"session column {name!r}", values, wrong, line_of)
        else:
            wrong = notes if selection.anchors_only else faults
            times = _times(name, columns[place[name]], dialect, wrong, line_of)
            roles |= {} if times is None else {role: times}
    used = [*found, *(found_pos or [])]
    for role, suspects in SUSPECT.items():
        asked = selection.columns or selection.wanted is not None or selection.factors
        for name in [] if asked else [names[k] for k in used if names[k].lower() in suspects]:
            option = f"--{role} {name}"
            does = "leaves it out" if role == "drop" else f"makes it the {role} of rows"
            notes.append(f"column {name!r} is taken as an observation; {option} {does}")
    advise = _advise_factors if selection.factors else _advise
    if selection.wanted is not None or (selection.anchors_only and not selection.factors):
        advise = _advise_use
    floats = {k: _to_floats(names[k], columns[k], dialect, faults, line_of, advise) for k in used}
    size = len(used) * table.num_rows * 8
    check_memory(path.name, size, selection)

    taken = {*used, *(place[n] for n in (selection.session, selection.time) if n in place)}
    others = {name: columns[k] for k, name in enumerate(names) if k not in taken and name}

    def stacked(numbers: Sequence[int]) -> Array:
        if faults or not numbers:  # raised later, with the others
            return np.zeros((table.num_rows, len(numbers)))
        return np.column_stack([floats.pop(k) for k in numbers])

    return Contents(
        stacked(found),
        None if found_pos is None else stacked(found_pos),
        tuple(names[k] for k in found),
        roles.get("session"),
        roles.get("time"),
        faults=faults,
        notes=notes,
        line_of=line_of,
        others=others,
    )


def _without_suspects(names: Sequence[str], found: Sequence[int], notes: list[str]) -> list[int]:
    """Leave out columns of times and ids, which are hardly ever factors, and note which."""
    suspects = {name for group in SUSPECT.values() for name in group}
    kept = [k for k in found if names[k].lower() not in suspects]
    if not kept or len(kept) == len(found):
        return [*found]
    left_out = listed([names[k] for k in found if names[k].lower() in suspects])
    notes.append(f"not taken as factors: {left_out}; --truth-columns chooses the factors")
    return kept


def _open_parquet(path: Path, selection: Selection) -> Any:
    from pyarrow import parquet

    with damaged_as(path):
        about = parquet.read_metadata(path)
        check = about.num_rows * about.num_columns * 8
    check_memory(path.name, check, selection)
    with damaged_as(path):
        return parquet.read_table(path)


def _open_text(path: Path, selection: Selection) -> tuple[Any, Dialect, list[str]]:
    """Return a text file as an Arrow table, its dialect, and problems.

    Of a file with ragged lines the table is empty.
    """
    import pyarrow as arrow

    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    if not sample.strip():
        raise DamagedFileError(path.name, "it is empty")
    check_memory(path.name, path.stat().st_size, selection)
    dialect = sniff_dialect(sample, spaces=path.suffix.lower() == ".txt")
    # Ids are read as text, so that 01 and 1 are different sessions.
    session = selection.session or selection.optional.get("session")
    as_text = {} if session is None else {session: arrow.string()}
    try:
        return _parse(path, dialect, as_text), dialect, []
    except (arrow.ArrowInvalid, UnicodeError) as error:
        if ragged := _ragged_lines(path, dialect):
            with damaged_as(path):
                return _parse(path, dialect, {}, header_only=True), dialect, [ragged]
        if "conversion error" not in str(error) and "UTF8" not in str(error):
            with damaged_as(path):
                raise
    # Types are guessed from the first block, which a later one may contradict.
    with damaged_as(path):
        names = _parse(path, dialect, {}, header_only=True).column_names
        return _parse(path, dialect, {name: arrow.string() for name in names}), dialect, []


def _parse(path: Path, dialect: Dialect, types: dict[str, Any], header_only: bool = False) -> Any:
    from pyarrow import csv as arrow_csv

    encoding = "utf8" if dialect.encoding.startswith("utf-8") else dialect.encoding
    convert = arrow_csv.ConvertOptions(column_types=types, decimal_point=dialect.decimal)
    options: dict[str, Any] = {
        "read_options": arrow_csv.ReadOptions(
            encoding=encoding, skip_rows=dialect.comments, column_names=[*dialect.names] or None
        ),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=dialect.separator, newlines_in_values=True
        ),
        "convert_options": convert,
    }
    if not header_only and dialect.separator != SPACE_SEPARATOR:
        return arrow_csv.read_csv(path, **options)
    import pyarrow as arrow

    with path.open(encoding=dialect.encoding, errors="replace") as file:
        lines: Iterable[str] = file
        if header_only:
            lines = itertools.islice(file, dialect.comments + 1)
        if dialect.separator == SPACE_SEPARATOR:
            lines = (f"{' '.join(line.split())}\n" for line in lines)
        text = "".join(lines).encode()
    options["read_options"].encoding = "utf8"
    table = arrow_csv.read_csv(arrow.BufferReader(text), **options)
    return table.slice(0, 0) if header_only else table


def _records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line, counted from 1, and the cells of each record that is not blank."""
    with path.open(encoding=dialect.encoding, errors="replace", newline="") as file:
        count = 0

        def lines() -> Iterator[str]:
            nonlocal count
            for count, line in enumerate(file, 1):
                if count > dialect.comments:
                    yield line

        before = dialect.comments
        for record in _split(lines(), dialect.separator):
            if record:
                yield before + 1, record
            before = count


def _ragged_lines(path: Path, dialect: Dialect) -> str:
    """Return which lines have other numbers of columns than the header; empty if none has."""
    try:
        records = _records(path, dialect)
        width = len(dialect.names or next(records)[1])
        ragged = [(line, len(record)) for line, record in records if len(record) != width]
    except (csv.Error, StopIteration):
        return ""
    if not ragged:
        return ""
    line, count = ragged[0]
    first = f"the header has {width} columns, but line {line} has {count}"
    others = joined([str(other) for other, _ in ragged[1 : MAX_LISTED + 1]], len(ragged) - 1)
    lines = f"line{'s' * (len(ragged) > 2)} {others}"
    return first if len(ragged) == 1 else f"{first}; nor are there as many in {lines}"


def _line_finder(path: Path, dialect: Dialect) -> LineOf:
    """Return a function from rows to their lines, which reads the file again."""

    def line_of(rows: Sequence[int]) -> list[int]:
        wanted, lines = set(rows), {}
        try:
            start = 0 if dialect.names else -1  # the header
            for row, (line, _) in enumerate(_records(path, dialect), start=start):
                if row in wanted:
                    lines[row] = line
                if len(lines) == len(wanted):
                    break
        except csv.Error:  # a cell longer than Python's reader takes
            lines = {}
        return [lines.get(row, row + 2) for row in rows]

    return line_of


def _table_faults(names: Sequence[str], is_text: bool, selection: Selection) -> list[str]:
    """Return messages about duplicate names, an index written by pandas, or a missing header."""
    faults = name_faults(names)
    for k, name in enumerate(names):
        index = name == "" or name.startswith("__index_level_")
        asked = selection.columns or selection.wanted is not None or name in selection.drop
        if index and not asked:
            faults.append(
                f"column {k} has no name and looks like the index of a pandas DataFrame; write the "
                f"table with index=False, name the column, or leave it out with --drop {name!r}"
            )
    default_names = [str(k) for k in range(len(names))]  # written by pandas for unnamed columns
    if is_text and names and list(names) != default_names and all(map(_is_number, names)):
        faults.append(
            f"the first line must hold the names of the columns, got numbers: {listed(names)}; "
            "add a header line"
        )
    return faults


def _to_floats(
    name: str,
    column: Any,
    dialect: Dialect | None,
    faults: list[str],
    line_of: LineOf | None,
    advise: Advise,
) -> Array:
    """Convert a column of a table to floats, with NaN for missing values."""
    from pyarrow import types

    kind = column.type
    if types.is_boolean(kind):
        column = column.cast("uint8")
    elif types.is_null(kind) or types.is_decimal(kind):
        column = column.cast("float64")
    elif types.is_string(kind) or types.is_large_string(kind):
        return _parse_floats(name, column, dialect, faults, line_of, advise)
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        faults.append(f"column {name!r} holds {_describe(column)}, not numbers; {advise(name, '')}")
        return np.zeros(len(column))
    values = np.asarray(column.to_numpy())  # integers with missing values become float64
    return values.astype(float_of(values.dtype), copy=False)


def _parse_floats(
    name: str,
    column: Any,
    dialect: Dialect | None,
    faults: list[str],
    line_of: LineOf | None,
    advise: Advise,
) -> Array:
    """Convert a column of text, which numbers are in if the first block had none."""
    texts: list[str | None] = column.to_pylist()
    point = "." if dialect is None else dialect.decimal
    values = np.full(len(texts), np.nan)
    wrong = []
    for row, text in enumerate(texts):
        if text is None or text.strip() in MISSING_TEXT:
            continue
        # Python takes "1_000", and a point beside decimal commas may be one of thousands.
        if "_" in text or (point != "." and "." in text):
            wrong.append(row)
            continue
        try:
            values[row] = float(text.replace(point, "."))
        except ValueError:
            wrong.append(row)
    if not wrong:
        return values
    text = repr((texts[wrong[0]] or "")[:20])
    present = len(texts) - sum(text is None or text.strip() in MISSING_TEXT for text in texts)
    where = "" if len(wrong) == present else f" in {describe_rows(wrong, line_of)}"
    correct = f"correct the value{'s' * (len(wrong) > 1)}" if where else ""
    advice = advise(name, correct)
    faults.append(f"column {name!r} holds text ({text}), not numbers{where}; {advice}")
    return values


def _advise(name: str, correct: str) -> str:
    """Return what to do about a column of text; ``correct`` is advice on single values, if any."""
    given = _as_argument(name)
    if correct:
        return f"{correct}, or leave the column out: --drop {given}"
    return (
        f"leave it out with --drop {given}, or pass it as --session {given} if it holds session "
        f"ids, or as --time {given} if times"
    )


def _advise_use(name: str, correct: str) -> str:
    return f"{f'{correct}, or ' if correct else ''}choose other columns with --columns"


def _advise_factors(name: str, correct: str) -> str:
    return f"{f'{correct}, or ' if correct else ''}choose the factors with --truth-columns"


def _as_argument(name: str) -> str:
    return name if name.isidentifier() else repr(name)


def _describe(column: Any) -> str:
    """Describe the contents of a column that is not numeric, for an error message."""
    from pyarrow import types

    if types.is_temporal(column.type):
        return "dates or times"
    if types.is_dictionary(column.type):
        return "categories"
    return str(column.type)


def _session_ids(column: Any) -> Array:
    values = column.to_pylist()
    if all(isinstance(value, int) for value in values):
        return np.asarray(values)
    return np.asarray(values, dtype=object)


def _times(
    name: str, column: Any, dialect: Dialect | None, faults: list[str], line_of: LineOf | None
) -> Array | None:
    """Return the times of rows as floats or as datetime64; None if the column holds none."""
    from pyarrow import types

    kind = column.type
    if types.is_date(kind) or types.is_timestamp(kind):
        values = np.asarray(column.to_numpy()).astype("datetime64[ns]")
    elif types.is_time(kind) or types.is_duration(kind):
        unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[kind.unit]
        integer = "int32" if kind.bit_width == 32 else "int64"
        values = _to_floats(name, column.cast(integer), dialect, faults, line_of, _advise)
        values = values.astype(float) * unit
    else:
        found: list[str] = []
        values = _to_floats(name, column, dialect, found, line_of, _advise)
        if found:
            start = found[0].partition(", not numbers")[0]
            faults.append(
                f"time {start}, which is neither a number nor a time such as 2026-03-31 14:05:00"
            )
            return None
    missing = np.flatnonzero(np.isnat(values) if values.dtype.kind == "M" else np.isnan(values))
    if len(missing):
        faults.append(
            f"time column {name!r} has no value in {describe_rows(missing.tolist(), line_of)}"
        )
    return values


def float_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float32 if it holds all values of ``dtype``, else float64.

    Example:
        >>> float_of(np.dtype("uint8")), float_of(np.dtype("int64"))
        (dtype('float32'), dtype('float64'))
    """
    return np.dtype(np.float32 if np.can_cast(dtype, np.float32) else np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
