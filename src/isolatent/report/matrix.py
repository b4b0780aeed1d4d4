"""A matrix as a heat map."""

from __future__ import annotations

import math
from collections.abc import Sequence

from isolatent.report.axes import number, tick
from isolatent.report.colours import heat_level
from isolatent.report.elements import Markup, element, join
from isolatent.report.figures import picture

__all__ = ["heat_map"]

WRITTEN_UP_TO = 16  # rows and columns; beyond, figures would be too small to read


def heat_map(
    key: str,
    title: str,
    values: Sequence[Sequence[float]],
    labels: tuple[str, str],
    names: Sequence[str] = (),
) -> Markup:
    """A matrix of values from 0 to 1, rows by columns, each a coloured square with its value.

    Rows have ``names``, if there are any, or numbers.
    """
    rows, columns = len(values), max(map(len, values))
    figures = max(rows, columns) <= WRITTEN_UP_TO
    side = 34.0 if figures else max(4.0, 500 / max(rows, columns))
    left, top = 46.0 + 6 * max(map(len, names), default=0), 46.0
    size = (left + columns * side + 4, top + rows * side + 4)
    every = 1 if figures else math.ceil(max(rows, columns) / 12)
    squares = [
        _square(left + j * side, top + i * side, side, value, figures)
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    ]
    marks = [
        tick(str(j + 1), left + (j + 0.5) * side, top - 6) for j in range(0, columns, every)
    ] + [
        tick(names[i] if names else str(i + 1), left - 6, top + (i + 0.5) * side + 4, "end")
        for i in range(0, rows, every)
    ]
    axes = [
        element("text", labels[1], x=number(left), y="14", class_="label"),
        element(
            "text",
            labels[0],
            class_="label mid",
            transform=f"translate(12 {number(top + rows * side / 2)}) rotate(-90)",
        ),
    ]
    return picture(key, size, title, _described(values), *axes, *marks, *squares)


def _square(x: float, y: float, side: float, value: float, figures: bool) -> Markup:
    if not math.isfinite(value):
        return tick("–", x + side / 2, y + side / 2 + 4)
    level = f"h{heat_level(value)}"
    rectangle = element(
        "rect",
        x=number(x),
        y=number(y),
        width=number(side - 1),
        height=number(side - 1),
        class_=level,
    )
    if not figures:
        return rectangle
    text = element(
        "text",
        f"{value:.2f}",
        x=number(x + (side - 1) / 2),
        y=number(y + side / 2 + 4),
        class_=f"value mid {level}",
    )
    return join(rectangle, text)


def _described(values: Sequence[Sequence[float]]) -> str:
    own = [row[i] for i, row in enumerate(values) if i < len(row) and math.isfinite(row[i])]
    others = [
        v for i, row in enumerate(values) for j, v in enumerate(row) if i != j and math.isfinite(v)
    ]
    text = f"{len(values)} by {max(map(len, values))} values."
    if own:
        mean = sum(own) / len(own)
        text += f" On the diagonal from {min(own):.2f} to {max(own):.2f}, mean {mean:.2f}."
    return text + (f" Elsewhere at most {max(others):.2f}." if others else "")
