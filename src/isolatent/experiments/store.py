"""The results directory: one JSON file for each run, written atomically."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from isolatent.checks import IsolatentWarning
from isolatent.experiments.experiment import Experiment, Run, hashed_fields
from isolatent.files import DamagedFileError, file_name, read_json, reading, write_json
from isolatent.theory import Guarantee

__all__ = ["RunRecord", "Store", "StoredExperiment"]

Table: TypeAlias = dict[str, Any]
Scores: TypeAlias = dict[str, float | list[float | None] | None]
PER_FACTOR = ("_per_factor", "_of_blocks")  # ends the names of scores that are lists
FINISHED = ("done", "diverged")  # a failed run is repeated


class RunRecord(BaseModel):
    """What the file of a run holds, as far as tables and pages rely on it.

    Only the first three fields are needed: older records have fewer fields, newer ones more.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    cell: str
    seed: int = Field(ge=0)
    started: str
    status: Literal["done", "diverged", "failed"] = "done"
    error: str | None = None
    experiment: str | None = None
    hash: str | None = None
    program: str | None = None
    command: str | None = None
    objective: str | None = None
    alignment: str | None = None
    spec: Table | None = None
    scores: dict[str, Scores | None] | None = None
    intervals: Table | None = None
    seconds: dict[str, float | None] | None = None
    measures: Table | None = None
    versions: Table | None = None
    guarantee: Table | None = None
    scale: Table | None = None
    factors: list[Any] | None = None
    categories: list[Any] | None = None
    warnings: list[Any] | None = None

    @field_validator("scores")
    @classmethod
    def _check_lists(cls, scores: dict[str, Scores | None] | None) -> Any:
        for approach, found in (scores or {}).items():
            for name, value in (found or {}).items():
                if isinstance(value, list) and not name.endswith(PER_FACTOR):
                    raise ValueError(f"{approach}.{name} must be a number")
        return scores


class StoredScore(BaseModel):
    """A published score."""

    model_config = ConfigDict(extra="allow", strict=True)

    value: float | None = None
    spread: float | None = None


class StoredCell(BaseModel):
    """A cell of a stored experiment, as far as tables and pages rely on it."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    approaches: list[str] = Field(["unsupervised"], min_length=1)
    metrics: list[str] = Field(["linear_r2"], min_length=1)
    published: dict[str, dict[str, StoredScore]] = {}
    centre: Literal["mean", "median"] = "mean"
    comparable: bool = True
    limits: list[str] = []
    note: str = ""
    world: Table = {}
    model: Table = {}
    recipe: Table = {}


class StoredExperiment(BaseModel):
    """What the file of an experiment holds."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str = Field(min_length=1)
    title: str = ""
    note: str = ""
    source: str = ""
    cells: list[StoredCell]


class Store:
    """A directory of results.

    ``runs/<experiment>/<cell>-seed<seed>-<hash>.json`` holds the record of a run, and
    ``experiments/<experiment>.json`` the experiment itself, so that missing runs are known.

    Args:
        directory: The directory; it is created when something is written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def finished(self, run: Run) -> dict[str, Any] | None:
        """Return the record of a finished run with the same hash, which includes the version.

        It may be stale, that is, made by another program (:func:`is_stale`).
        """
        record = _read(self.directory / run.file)
        return record if record is not None and record.get("status") in FINISHED else None

    def write(self, run: Run, record: dict[str, Any]) -> None:
        """Write the record of a run."""
        _write(self.directory / run.file, record, indent=None)

    def write_experiment(self, experiment: Experiment) -> None:
        """Write an experiment; cells that were stored earlier and are not in it are kept."""
        path = self._experiment_path(experiment.name)
        data = experiment.to_dict()
        new = {cell["name"]: cell for cell in data["cells"]}
        stored = _checked(path, StoredExperiment) or {"cells": []}
        old = {cell["name"]: cell for cell in stored["cells"]}
        # Keep the order of the longer list: the other one was a selection of cells.
        cells = {**old, **new} if len(old) > len(new) else {**new, **(old | new)}
        data["cells"] = [*cells.values()]
        _write(path, data, indent=1)

    def experiments(self) -> list[dict[str, Any]]:
        """Return the stored experiments as plain data, sorted by name; warn of damaged files."""
        found = sorted((self.directory / "experiments").glob("*.json"))
        return [spec for path in found if (spec := _checked(path, StoredExperiment)) is not None]

    def records(self, experiment: str) -> list[dict[str, Any]]:
        """Return the latest record of each cell and seed of a stored experiment.

        Files that are not records are left out, which a warning says, and so are records of cells
        that have changed since.
        """
        folder = self.directory / "runs" / file_name(experiment)
        stored = _checked(self._experiment_path(experiment), StoredExperiment) or {"cells": []}
        cells = {cell["name"]: hashed_fields(cell) for cell in stored["cells"]}
        latest: dict[tuple[str, int], dict[str, Any]] = {}
        for path in sorted(folder.glob("*.json")):
            record = _checked(path, RunRecord)
            if record is None:
                continue
            name = record["cell"]
            if name in cells and hashed_fields(record.get("spec") or cells[name]) != cells[name]:
                continue
            key = name, record["seed"]
            if key not in latest or latest[key]["started"] <= record["started"]:
                latest[key] = record
        return [latest[key] for key in sorted(latest)]

    def _experiment_path(self, experiment: str) -> Path:
        return self.directory / "experiments" / f"{file_name(experiment)}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """Return a JSON object; None if the file is missing or damaged."""
    try:
        data = read_json(path)
    except (OSError, DamagedFileError):
        return None
    return data if isinstance(data, dict) else None


def _checked(path: Path, schema: type[BaseModel]) -> dict[str, Any] | None:
    """Return what a file holds if it is intact, else warn; None if there is no such file."""
    try:
        data = read_json(path)
        schema.model_validate(data)
        if isinstance(data.get("guarantee"), dict):
            with reading(path):
                Guarantee.from_dict(data["guarantee"])
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}"
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{path} is damaged: {where + ': ' if where else ''}{first['msg']}"
    except DamagedFileError as error:
        reason = str(error)
    else:
        return dict(data)
    warnings.warn(f"{reason}; it is left out", IsolatentWarning, stacklevel=3)
    return None


def _write(path: Path, data: dict[str, Any], indent: int | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, data, indent)
