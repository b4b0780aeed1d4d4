"""Options that say how files are read, and the record of them that a model keeps."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from isolatent.files import DamagedFileError, read_json, write_json

if TYPE_CHECKING:
    from isolatent.pairs.readers import Observations, Selection
    from isolatent.training import ContrastiveICA

__all__ = [
    "DATA_RECORD",
    "ArrayName",
    "Columns",
    "Drop",
    "MaxGap",
    "MaxMemory",
    "ModelColumns",
    "PositiveSuffix",
    "Session",
    "Time",
    "Transpose",
    "TruthColumns",
    "Window",
    "data_selection",
    "fit_command",
    "model_selection",
    "notes_are_said",
    "parse_memory",
    "read_data",
    "recording_options",
    "truth_selection",
    "write_data_record",
]

DATA_RECORD = "data.json"  # in the directory of a model: how the data of the fit were read
RECORD_FORMAT = 1
ROLES = ("session", "time", "array")  # and positive_suffix, which needs no name in the file

Columns: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns that are observations, separated by commas: names, patterns such as "
        "'cell_*', or, for arrays without names, numbers and ranges such as 0-4.  [default: all]"
    ),
]
Drop: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="Columns to leave out, as for --columns.")
]
Time: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Column (array, in files of arrays) with the time of each row, numbers or dates: rows "
        "are pairs only if the time between them fits the lag."
    ),
]
Session: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Column (array, in files of arrays) with session ids; pairs stay within a session."
    ),
]
ModelColumns: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns that are observations, in the order of the fit, as for fit.  [default: those "
        "with the names of the fit; all if it knew no names]"
    ),
]
TruthColumns: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns of --truth that are factors, as for --columns.  [default: all but times, "
        "sessions and row numbers]"
    ),
]
PositiveSuffix: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Suffix of the columns with the positives, such as _pos for u and u_pos."),
]
ArrayName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Array with the observations, in files of several arrays.  [default: x, or the only "
        "one]"
    ),
]
Window: TypeAlias = Annotated[
    int,
    typer.Option(
        help="For a time series: odd number of consecutive rows, centred on a row, that the "
        "encoder sees."
    ),
]
MaxGap: TypeAlias = Annotated[
    int,
    typer.Option(
        min=0,
        help="For a time series: longest run of rows with missing values that is interpolated.",
    ),
]
Transpose: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--transpose", help="For files of arrays: rows are dimensions, and columns observations."
    ),
]
MaxMemory: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Memory that the data may take, such as 2GB; further images are kept in a temporary "
        "file.  [default: 80 % of the machine's, 1 GB for images]"
    ),
]


def parse_memory(text: str) -> float:
    """Return a number of bytes.

    Example:
        >>> parse_memory("1.5GB"), parse_memory("300 MB")
        (1500000000.0, 300000000.0)
        >>> parse_memory("much")
        Traceback (most recent call last):
        ValueError: --max-memory must be a size such as 500MB or 2GB, got 'much'
    """
    powers = {"kb": 1, "mb": 2, "gb": 3, "tb": 4}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]b)", text.strip().lower())
    if found is None or float(found[1]) == 0:
        raise ValueError(f"--max-memory must be a size such as 500MB or 2GB, got {text!r}")
    return float(found[1]) * 1000.0 ** powers[found[2]]


def data_selection(options: dict[str, Any], *, images: bool = False) -> Selection:
    """Return what the options of a command say about a file.

    Args:
        options: Values of the options by name; those that a command lacks are not needed.
        images: Whether the observations are images.
    """
    from isolatent.pairs.readers import Selection

    memory = options.get("max_memory")
    return Selection(
        session=options.get("session"),
        time=options.get("time"),
        columns=_split(options.get("columns")),
        drop=_split(options.get("drop")),
        positive_suffix=options.get("positive_suffix"),
        array=options.get("array"),
        transpose=bool(options.get("transpose")),
        images=images,
        max_memory=None if memory is None else parse_memory(memory),
    )


def _split(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of a repeated option, each of which may hold several."""
    names = [name.strip() for text in given or () for name in text.split(",")]
    return tuple(names)


def read_data(
    data: Path,
    data_pos: Path | None,
    selection: Selection,
    say: Callable[[str], None],
    *,
    varying: bool = True,
) -> Observations:
    """Read pairs or a recording, and print what was left out and how the files were read.

    Args:
        data: The file of the observations.
        data_pos: The file of their positives, if it is another one.
        selection: What to read.
        say: Prints a line.
        varying: Whether they are for training, as for ``read_observations``.
    """
    from isolatent.pairs.readers import read_observations, read_pairs

    if data_pos is None:
        observed = read_observations(data, selection=selection, varying=varying)
    else:
        observed = read_pairs(data, data_pos, selection=selection, varying=varying)
    for line in observed.notes:
        say(line)
    return observed


@contextmanager
def notes_are_said() -> Iterator[None]:
    """Leave out warnings about what the notes of observations say, and about names of columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        warnings.filterwarnings("ignore", message=".*rows hold NaN and are left out")
        yield


def recording_options(observed: Observations, max_gap: int) -> dict[str, Any]:
    """Return what ``fit``, ``diagnose`` and ``choose`` are told about a recording."""
    if observed.x_pos is not None:
        if max_gap:
            raise ValueError(f"--max-gap is for a time series; these are pairs, got {max_gap}")
        return {}
    return {"groups": observed.groups, "times": observed.times, "max_gap": max_gap}


def write_data_record(
    directory: Path, selection: Selection, names: Sequence[str] | None, command: str
) -> None:
    """Write how the data of a fit were read, so that other data can be read alike.

    Args:
        directory: Directory of the model.
        selection: What was read.
        names: Names of the columns, if they have any.
        command: The command that repeats the fit.
    """
    record: dict[str, Any] = {role: getattr(selection, role) for role in ROLES}
    record |= {"format": RECORD_FORMAT, "images": selection.images, "command": command}
    record["transpose"] = selection.transpose
    record["positive_suffix"] = selection.positive_suffix
    record["columns"] = None if names is None else list(names)
    write_json(directory / DATA_RECORD, record, indent=2)


def model_selection(directory: Path, fitted: ContrastiveICA, options: dict[str, Any]) -> Selection:
    """Return what to read from a file for a fitted model: its columns, times and sessions.

    Times and sessions of the fit are used where a file has them, and may be missing.

    Args:
        directory: Directory of the model.
        fitted: The model.
        options: Options of the command; they come before what the fit used.
    """
    record = _read_record(directory / DATA_RECORD)
    selection = data_selection(options, images=record.images)
    names = getattr(fitted, "feature_names_in_", None)
    if names is not None and not selection.columns:
        selection = replace(selection, wanted=tuple(map(str, names)))
    known = {role: name for role in ROLES if (name := getattr(record, role)) is not None}
    return replace(
        selection,
        positive_suffix=record.positive_suffix,
        transpose=record.transpose,
        optional={role: name for role, name in known.items() if getattr(selection, role) is None},
        anchors_only=True,
    )


def fit_command(directory: Path) -> str | None:
    """Return the command that repeats the fit of a model, if it was fitted by one."""
    return _read_record(directory / DATA_RECORD).command


def truth_selection(selection: Selection, options: dict[str, Any]) -> Selection:
    """Return what to read from a file of true factors.

    Args:
        selection: What is read of the observations, whose times and sessions are no factors.
        options: Options of the command.
    """
    from isolatent.pairs.readers import Selection

    given = {role: name for role in ("session", "time") if (name := getattr(selection, role))}
    roles = {role: name for role, name in selection.optional.items() if role != "array"} | given
    columns = _split(options.get("truth_columns"))
    return Selection(columns=columns, optional=roles, max_memory=selection.max_memory)


@dataclass(frozen=True)
class _DataRecord:
    """The record of a fit's data, as far as it is read again."""

    format: Literal[1] = 1
    images: bool = False
    session: str | None = None
    time: str | None = None
    array: str | None = None
    transpose: bool = False
    positive_suffix: str | None = None
    command: str | None = None


def _read_record(path: Path) -> _DataRecord:
    if not path.exists():  # of a model that Python saved
        return _DataRecord()
    from pydantic import TypeAdapter, ValidationError  # here, since it takes long to import

    content = read_json(path)
    if not isinstance(content, dict) or "format" not in content:
        raise DamagedFileError(path, f"it must be an object of format {RECORD_FORMAT}")
    try:
        return TypeAdapter(_DataRecord).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise DamagedFileError(path, f"{first['loc'][0]}: {first['msg']}") from error
