"""The results directory: one JSON file for each run, written atomically."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from isolatent.experiments.experiment import Experiment, Run, hashed_fields
from isolatent.files import file_name, write_json

__all__ = ["Store"]

FINISHED = ("done", "diverged")  # a failed run is repeated


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
        old = {cell["name"]: cell for cell in (_read(path) or {}).get("cells", [])}
        # Keep the order of the longer list: the other one was a selection of cells.
        cells = {**old, **new} if len(old) > len(new) else {**new, **(old | new)}
        data["cells"] = [*cells.values()]
        _write(path, data, indent=1)

    def experiments(self) -> list[dict[str, Any]]:
        """Return the stored experiments as plain data, sorted by name."""
        found = sorted((self.directory / "experiments").glob("*.json"))
        return [spec for path in found if (spec := _read(path)) is not None]

    def records(self, experiment: str) -> list[dict[str, Any]]:
        """Return the latest record of each cell and seed of a stored experiment.

        Files that are not records are ignored, and so are records of cells that have changed since.
        """
        folder = self.directory / "runs" / file_name(experiment)
        stored = _read(self._experiment_path(experiment)) or {"cells": []}
        cells = {cell["name"]: hashed_fields(cell) for cell in stored["cells"]}
        latest: dict[tuple[str, int], dict[str, Any]] = {}
        for path in sorted(folder.glob("*.json")):
            record = _read(path)
            if record is None or not {"cell", "seed", "started"} <= record.keys():
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
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _write(path: Path, data: dict[str, Any], indent: int | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, data, indent)
