"""The axis of each code: its block, its stability, and its time scale and period."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["AXES_NOTE", "CodeAxis", "axis_rows", "has_timed_blocks"]

AXES_NOTE = (
    "Time scales and periods in a block of several codes belong to the block, in no order of its "
    "codes."
)


@dataclass(frozen=True)
class CodeAxis:
    """What was found about the axis of one code.

    Attributes:
        code: Number of the code, from 0.
        block: Codes that it is not told apart from, itself included.
        stability: Absolute cosine, from 0 to 1, between its block and the same from other rows.
        time_scale: Time in which the code relaxes by a factor e; infinite if it does not.
        time_scale_interval: 95 % interval; None if no dynamics were estimated.
        period: Time of one oscillation; infinite if it does not oscillate.
        period_interval: 95 % interval; None if no dynamics were estimated.
        unit: Unit of the times: that of the time stamps of a recording, ``"rows"`` of a recording
            without, or ``"steps"`` from an anchor to its positive.

    Example:
        >>> axis = CodeAxis(0, (0,), 0.99, 12.0, (8.0, math.inf), math.inf, (math.inf, math.inf))
        >>> axis.time_scale_text, axis.period_text
        ('12 (8 or more)', 'none')
        >>> axis.to_dict()["time_scale_interval"], CodeAxis.from_dict(axis.to_dict()) == axis
        ([8.0, None], True)
    """

    code: int
    block: tuple[int, ...]
    stability: float
    time_scale: float = math.inf
    time_scale_interval: tuple[float, float] | None = None
    period: float = math.inf
    period_interval: tuple[float, float] | None = None
    unit: str = "rows"

    @property
    def time_scale_text(self) -> str:
        """The time scale with its interval, in words where it is infinite."""
        return _text(self.time_scale, self.time_scale_interval, "no decay")

    @property
    def period_text(self) -> str:
        """The period with its interval; none where the interval has no upper bound."""
        if self.period_interval is None or math.isfinite(self.period_interval[1]):
            return _text(self.period, self.period_interval, "none")
        shortest = self.period_interval[0]
        return "none" if math.isinf(shortest) else f"none, or {shortest:.3g} or more"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in which None stands for infinity."""
        return {
            "code": self.code,
            "block": list(self.block),
            "stability": self.stability,
            "time_scale": _finite(self.time_scale),
            "time_scale_interval": _finite_bounds(self.time_scale_interval),
            "period": _finite(self.period),
            "period_interval": _finite_bounds(self.period_interval),
            "unit": self.unit,
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """Return the axis that :meth:`to_dict` described."""
        bounds = {
            name: None if d[name] is None else tuple(map(_infinite, d[name]))
            for name in ("time_scale_interval", "period_interval")
        }
        times = {name: _infinite(d[name]) for name in ("time_scale", "period")}
        return cls(**{**d, **bounds, **times, "block": tuple(d["block"])})


def axis_rows(axes: Sequence[CodeAxis]) -> list[tuple[str, ...]]:
    """Return the table of axes as text: the headings, then a row for each code.

    Stability says nothing about a block of all codes, and is left out there. Times are shown where
    dynamics were estimated.

    Example:
        >>> axes = [CodeAxis(0, (0,), 0.991), *(CodeAxis(k, (1, 2), 0.97) for k in (1, 2))]
        >>> for row in axis_rows(axes)[:3]:
        ...     print(row)
        ('code', 'block', 'stability')
        ('0', '{0}', '0.99')
        ('1', '{1, 2}', '0.97')
    """
    timed = [axis for axis in axes if axis.time_scale_interval is not None]
    headings: tuple[str, ...] = ("code", "block", "stability")
    if timed:
        headings += tuple(f"{name} [{timed[0].unit}]" for name in ("time scale", "period"))
    rows = [headings]
    for axis in axes:
        whole = len(axis.block) == len(axes) > 1
        row: tuple[str, ...] = (
            str(axis.code),
            f"{{{', '.join(map(str, axis.block))}}}",
            "–" if whole else f"{axis.stability:.2f}",
        )
        rows.append(row + ((axis.time_scale_text, axis.period_text) if timed else ()))
    return rows


def has_timed_blocks(axes: Sequence[CodeAxis]) -> bool:
    """Return whether a block of several codes has time scales and periods."""
    return any(len(axis.block) > 1 and axis.time_scale_interval is not None for axis in axes)


def _text(value: float, bounds: tuple[float, float] | None, infinite: str) -> str:
    if bounds is None:
        return "–"
    low, high = bounds
    text = infinite if math.isinf(value) else f"{value:.3g}"
    if math.isinf(low):
        return text
    return text + (f" ({low:.3g} or more)" if math.isinf(high) else f" ({low:.3g} to {high:.3g})")


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _finite_bounds(bounds: tuple[float, float] | None) -> list[float | None] | None:
    return None if bounds is None else [_finite(bound) for bound in bounds]


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value
