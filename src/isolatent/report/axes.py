"""Axes of a figure: scales, ticks and number formats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isolatent.report.elements import Markup, element, join, number

__all__ = ["Axis", "Frame", "format_number", "is_drawable", "span", "tick", "ticks"]

LARGEST, SMALLEST = 1e100, 1e-100  # differences and quotients stay finite in between


def format_number(value: float) -> str:
    """Format a number to four digits, with narrow spaces between thousands.

    Example:
        >>> format_number(0.25), format_number(12500.0), format_number(0.30000000000000004)
        ('0.25', '12\u202f500', '0.3')
    """
    if 1e4 <= abs(value) < 1e9 and value == round(value):
        return f"{value:,.0f}".replace(",", "\u202f").replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def is_drawable(value: float) -> bool:
    """Return whether a value is finite and can be drawn on an axis."""
    return math.isfinite(value) and abs(value) < LARGEST


def tick(text: str, x: float, y: float, anchor: str = "mid") -> Markup:
    """Return a tick label, centred at a position or, with ``"end"``, to the left of it."""
    return element("text", text, x=x, y=y, class_=f"tick {anchor}")


def span(values: Iterable[float], *, room: float = 0.05) -> tuple[float, float]:
    """Return the range of the finite values, with some room on both sides."""
    finite = [value for value in values if is_drawable(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, SMALLEST):  # a constant
        around = 0.5 * size if size > SMALLEST else 0.5
        return low - around, high + around
    return low - room * (high - low), high + room * (high - low)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about ``count`` round numbers within an interval.

    Example:
        >>> ticks(0.0, 1.0), ticks(-3.0, 1870.0, 4)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 500.0, 1000.0, 1500.0])
    """
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next((m for m in (1, 2, 5) if m * power >= rough * 0.99), 10)
    marks = _multiples(low, high, step)
    # A single tick would leave the scale unknown.
    return marks if len(marks) > 1 else _multiples(low, high, step / 2)


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(k * step, digits) + 0.0 for k in range(first, last + 1)]


@dataclass(frozen=True)
class Axis:
    """A linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value, in pixels."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True)
class Frame:
    """The two axes of a figure, their ticks and labels."""

    x: Axis
    y: Axis
    x_label: str
    y_label: str
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    @classmethod
    def around(
        cls,
        size: tuple[float, float],
        x: tuple[float, float],
        y: tuple[float, float],
        labels: tuple[str, str],
        marks: int = 4,
    ) -> Frame:
        """Make axes for the ranges ``x`` and ``y`` in a picture of a given size."""
        width, height = size
        return cls(
            Axis(*x, 58, width - 10),
            Axis(*y, height - 40, 28),
            *labels,
            ticks(*x, marks),
            ticks(*y, marks),
        )

    def draw(self) -> Markup:
        """Draw grid, ticks and labels."""
        left, right, low, high = self.x.start, self.x.end, self.y.start, self.y.end
        grid = "".join(
            f"M{number(left)} {number(self.y.at(t))}H{number(right)}" for t in self.y_ticks
        )
        return join(
            element("path", d=grid, class_="grid") if grid else None,
            element("path", d=f"M{number(left)} {number(low)}H{number(right)}", class_="axis"),
            *(tick(format_number(t), self.x.at(t), low + 15) for t in self.x_ticks),
            *(tick(format_number(t), left - 6, self.y.at(t) + 4, "end") for t in self.y_ticks),
            element("text", self.x_label, x=(left + right) / 2, y=low + 33, class_="label mid"),
            element(
                *("text", self.y_label),
                transform=f"translate(11 {number((low + high) / 2)}) rotate(-90)",
                class_="label mid",
            ),
        )
