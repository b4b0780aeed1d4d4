"""Parts of a run's record as what a page shows; what is missing or garbled is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

from isolatent.report.page import Curve, Matrix, Moment, Scatter, Strips

__all__ = [
    "Record",
    "read_absolute",
    "read_curve",
    "read_number",
    "read_scatter",
    "read_strips",
    "read_weights",
]

Record: TypeAlias = Mapping[str, Any]


def read_curve(record: Record) -> Curve:
    """A run's training."""
    steps = record.get("curve")
    moments = tuple(
        Moment(
            int(step["number"]),
            *(
                read_number(step.get(name))
                for name in ("loss", "held_out", "information", "scale", "quality")
            ),
        )
        for step in (steps if isinstance(steps, Sequence) else ())
        if isinstance(step, Mapping) and read_number(step.get("number")) is not None
    )
    return Curve(f"seed {record.get('seed', '?')}", moments)


def read_scatter(value: Any) -> Scatter | None:
    """Factors and codes."""
    if not isinstance(value, Mapping):
        return None
    true, codes = _matrix(value.get("true")), _matrix(value.get("recovered"))
    return Scatter(true, codes) if true and len(true) == len(codes) else None


def read_strips(value: Any) -> Strips | None:
    """Pictures of what codes do."""
    if not isinstance(value, Mapping) or not isinstance(value.get("rows"), list | tuple):
        return None
    columns, size = (read_number(value.get(name)) for name in ("columns", "size"))
    if not value["rows"] or columns is None or size is None:
        return None
    return Strips(
        str(value.get("kind")),
        tuple(map(str, value["rows"])),
        int(columns),
        int(size),
        _flat(value.get("spreads") or []),
    )


def read_weights(scale: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The learned and the true scale or weights; those of several ways one after the other."""
    if not isinstance(scale, Mapping):
        return (), ()
    learned, truth = (_flat(scale.get(key)) for key in ("learned", "true"))
    return learned, truth if len(truth) in (1, len(learned)) else ()


def _flat(value: Any) -> tuple[float, ...]:
    """Numbers, however they are nested; nothing if something else is among them."""
    if isinstance(value, list | tuple):
        parts = [_flat(item) for item in value]
        return tuple(v for part in parts for v in part) if all(parts) else ()
    return () if (single := read_number(value)) is None else (single,)


def read_absolute(value: Any) -> Matrix:
    """A matrix of numbers without their signs."""
    return tuple(tuple(map(abs, row)) for row in _matrix(value))


def _matrix(value: Any) -> Matrix:
    """Rows of equal length; nothing if it is something else."""
    rows = tuple(
        tuple(math.nan if (v := read_number(item)) is None else v for item in row)
        for row in (value if isinstance(value, Sequence) else ())
        if isinstance(row, Sequence)
    )
    return rows if len({len(row) for row in rows}) == 1 and rows[0] else ()


def read_number(value: Any) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None
