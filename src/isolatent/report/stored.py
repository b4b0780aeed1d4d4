"""Runs from the JSON files in a directory."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isolatent.checks import IsolatentWarning

__all__ = ["read_runs"]


def read_runs(directory: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every run below a directory, in the order of the files' names.

    A .json file holds a run, a list of runs, or a dictionary whose ``"runs"`` is such a list; a
    .jsonl file holds a run a line. Other JSON is passed over. A file that is cut short is left out
    with a warning that names it.
    """
    root = Path(directory)
    files = sorted(p for p in root.rglob("*") if p.suffix in (".json", ".jsonl") and p.is_file())
    runs: list[dict[str, Any]] = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
            parts = text.splitlines() if path.suffix == ".jsonl" else [text]
            found = [run for part in parts if part.strip() for run in _runs(json.loads(part))]
        except ValueError as error:  # neither UTF-8 nor JSON
            warnings.warn(f"{path} was left out: {error}", IsolatentWarning, stacklevel=2)
            continue
        runs += found
    return runs


def _runs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _runs(item)
    elif isinstance(value, dict):
        if "experiment" in value and "cell" in value:
            yield value
        elif isinstance(value.get("runs"), list):
            yield from _runs(value["runs"])
