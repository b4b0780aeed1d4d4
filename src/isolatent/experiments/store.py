"""Results on disk: one file for each run, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from isolatent.experiments.settings import plain, what_matters
from isolatent.experiments.spec import Experiment, Run
from isolatent.files import file_name, write_json

__all__ = ["Store"]

FINISHED = ("done", "diverged")  # a failed run is tried again


class Store:
    """A directory of results.

    ``runs/<experiment>/<cell>-seed<seed>-<hash>.json`` holds one run each, and
    ``experiments/<experiment>.json`` what was asked for, so that what is missing can be told.

    Args:
        directory: Made when something is written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def has(self, run: Run) -> bool:
        """Whether this very run, of this version, is finished."""
        record = _read(self.directory / run.file)
        return record is not None and record.get("status") in FINISHED

    def write(self, run: Run, record: dict[str, Any]) -> None:
        """Keep a record."""
        _write(self.directory / run.file, record, indent=None)

    def write_experiment(self, experiment: Experiment) -> None:
        """Keep what was asked for, beside cells that were asked for earlier."""
        path = self._asked(experiment.name)
        now = plain(experiment)
        new = {cell["name"]: cell for cell in now["cells"]}
        old = {cell["name"]: cell for cell in (_read(path) or {}).get("cells", [])}
        # The longer list has the order of the file.
        cells = {**old, **new} if len(old) > len(new) else {**new, **(old | new)}
        now["cells"] = [*cells.values()]
        _write(path, now, indent=1)

    def experiments(self) -> list[dict[str, Any]]:
        """What was asked for, by name."""
        found = sorted((self.directory / "experiments").glob("*.json"))
        return [spec for path in found if (spec := _read(path)) is not None]

    def records(self, experiment: str) -> list[dict[str, Any]]:
        """The latest record of each cell and seed, of cells as they are asked for now.

        A file that is no record is passed over, and so is the record of a cell that has changed.
        """
        folder = self.directory / "runs" / file_name(experiment)
        asked = _read(self._asked(experiment)) or {"cells": []}
        cells = {cell["name"]: what_matters(cell) for cell in asked["cells"]}
        latest: dict[tuple[str, int], dict[str, Any]] = {}
        for path in sorted(folder.glob("*.json")):
            record = _read(path)
            if record is None or not {"cell", "seed", "started"} <= record.keys():
                continue
            name = record["cell"]
            if name in cells and what_matters(record.get("spec") or cells[name]) != cells[name]:
                continue
            key = name, record["seed"]
            if key not in latest or latest[key]["started"] <= record["started"]:
                latest[key] = record
        return [latest[key] for key in sorted(latest)]

    def _asked(self, experiment: str) -> Path:
        return self.directory / "experiments" / f"{file_name(experiment)}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if it is not there or was damaged."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _write(path: Path, data: dict[str, Any], indent: int | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, data, indent)
