"""Results of experiments from a directory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from isolatent.experiments.store import Store

__all__ = ["Results", "read_results"]

Results: TypeAlias = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]


def read_results(directory: str | os.PathLike[str]) -> list[Results]:
    """Every experiment below a directory with its records, as ``isolatent reproduce`` wrote them.

    So ``results/`` may hold one directory of results for each of many experiments.
    """
    found = Path(directory).rglob("experiments/*.json")
    roots = sorted({path.parent.parent for path in found})
    return [
        (experiment, store.records(experiment["name"]))
        for store in map(Store, roots)
        for experiment in store.experiments()
        if "name" in experiment and experiment.get("cells")
    ]
