"""Stored records of runs, and their fields as parts of a page.

A field that is missing or malformed is left out of the page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from isolatent.experiments.store import Store
from isolatent.figure_data.rows import read_number
from isolatent.report.page import Curve, LatentTraversal, Matrix

__all__ = [
    "Record",
    "Results",
    "read_absolute",
    "read_curve",
    "read_number",
    "read_results",
    "read_scatter",
    "read_traversal",
    "read_weights",
]

Record: TypeAlias = Mapping[str, Any]
Results: TypeAlias = tuple[Mapping[str, Any], Sequence[Record]]  # an experiment and its records

TRAVERSAL = TypeAdapter(LatentTraversal)


def read_results(directory: str | os.PathLike[str]) -> list[Results]:
    """Read every experiment below a directory with its records, as ``reproduce`` wrote them.

    Subdirectories are searched too, so that ``results/`` may hold one directory for each of many
    experiments.
    """
    found = Path(directory).rglob("experiments/*.json")
    roots = sorted({path.parent.parent for path in found})
    return [
        (experiment, store.records(experiment["name"]))
        for store in map(Store, roots)
        for experiment in store.experiments()
        if "name" in experiment and experiment.get("cells")
    ]


def read_curve(record: Record) -> Curve:
    """Return the training steps of a run."""
    steps = record.get("curve")
    return tuple(
        step
        for step in (steps if isinstance(steps, Sequence) else ())
        if isinstance(step, Mapping) and read_number(step.get("number")) is not None
    )


def read_scatter(value: Any) -> tuple[Matrix, Matrix] | None:
    """Return true factors and aligned codes."""
    if not isinstance(value, Mapping):
        return None
    true, codes = _matrix(value.get("true")), _matrix(value.get("recovered"))
    return (true, codes) if true and len(true) == len(codes) else None


def read_traversal(record: Record) -> LatentTraversal | None:
    """Return the images along each code, which a record holds under ``"strips"``."""
    try:
        return TRAVERSAL.validate_python(record.get("strips"))
    except ValidationError:
        return None


def read_weights(scale: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the learned and true scale or weights, concatenated for several conditionals."""
    if not isinstance(scale, Mapping):
        return (), ()
    learned, truth = (_flat(scale.get(key)) for key in ("learned", "true"))
    return learned, truth if len(truth) in (1, len(learned)) else ()


def _flat(value: Any) -> tuple[float, ...]:
    """Flatten nested lists of numbers; return nothing if any item is not a number."""
    if isinstance(value, list | tuple):
        parts = [_flat(item) for item in value]
        return tuple(v for part in parts for v in part) if all(parts) else ()
    return () if (single := read_number(value)) is None else (single,)


def read_absolute(value: Any) -> Matrix:
    """Return a matrix of absolute values."""
    return tuple(tuple(map(abs, row)) for row in _matrix(value))


def _matrix(value: Any) -> Matrix:
    """Return rows of equal length; nothing if the value is not a matrix."""
    rows = tuple(
        tuple(math.nan if (v := read_number(item)) is None else v for item in row)
        for row in (value if isinstance(value, list | tuple) else ())
        if isinstance(row, list | tuple)
    )
    return rows if len({len(row) for row in rows}) == 1 and rows[0] else ()
