"""Figures as SVG, each with a title and a description for screen readers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from isolatent.report.axes import Frame, format_number, is_drawable, span, tick
from isolatent.report.colours import heat_level
from isolatent.report.elements import Markup, element, join, number

__all__ = [
    "Line",
    "bars",
    "evenly_spaced",
    "heat_map",
    "histogram",
    "lines",
    "points",
    "thinned",
]

Point: TypeAlias = tuple[float, float]

PANEL = (340.0, 220.0)  # width and height in pixels
SMALL = (190.0, 180.0)
MAX_POINTS = 300  # in a scatter plot, against overplotting
MAX_LINE_POINTS = 240  # on a line; a panel is not much wider in pixels
BINS = 32  # of a histogram
MAX_LABELLED = 16  # rows and columns of a heat map with numbers; more would be illegible


@dataclass(frozen=True)
class Line:
    """A named line; ``style`` is ``"first"`` or ``"second"``."""

    name: str
    points: Sequence[Point]
    style: str = "first"


def _picture(
    key: str, size: tuple[float, float], title: str, description: str, *content: Markup | None
) -> Markup:
    """Return an SVG image with an accessible name; its ids begin with ``key``."""
    width, height = size
    return element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", description, id=f"{key}-desc"),
        *content,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{key}-title",
        aria_describedby=f"{key}-desc",
    )


def thinned(points: Iterable[Point], most: int = MAX_LINE_POINTS) -> list[Point]:
    """Average neighbouring points until at most ``most`` remain; non-finite points are dropped.

    Example:
        >>> thinned([(1, 1.0), (2, 3.0), (3, 5.0), (4, 7.0)], most=2)
        [(1.5, 2.0), (3.5, 6.0)]
    """
    finite = _drawable(points)
    parts = np.array_split(np.asarray(finite, dtype=float), min(most, len(finite)) or 1)
    return [(float(x), float(y)) for x, y in (part.mean(axis=0) for part in parts if len(part))]


def _drawable(points: Iterable[Point]) -> list[Point]:
    return [(x, y) for x, y in points if is_drawable(x) and is_drawable(y)]


def lines(
    key: str,
    title: str,
    drawn: Sequence[Line],
    labels: tuple[str, str],
    *,
    level: tuple[str, float] | None = None,
) -> Markup:
    """Draw lines on common axes; ``level`` is a named reference value."""
    most = max(60, MAX_LINE_POINTS // max(1, len(drawn)))
    thin = [(line, found) for line in drawn if (found := thinned(line.points, most))]
    levels = [] if level is None else [level[1]]
    x_range = span([x for _, found in thin for x, _ in found], room=0.0)
    y_range = span([*levels, *(y for _, found in thin for _, y in found)])
    frame = Frame.around(PANEL, x_range, y_range, labels)
    paths = [
        element("path", d=_polyline(frame, found), class_=f"line {line.style}")
        for line, found in thin
    ]
    # A line with a single point has no length and would be invisible.
    dots = [
        element("path", d=_dots(frame, found), class_=f"dots large {line.style}")
        for line, found in thin
        if len(found) == 1
    ]
    named = {line.style: line.name for line, _ in thin}
    ends = "; ".join(
        f"{line.name} from {format_number(found[0][1])} to {format_number(found[-1][1])}"
        for line, found in thin[:6]
    )
    content = [frame.draw(), *paths, *dots]
    if level is not None:
        y = number(frame.y.at(level[1]))
        content.append(
            element("path", d=f"M{number(frame.x.start)} {y}H{number(frame.x.end)}", class_="level")
        )
        named["level"] = f"{level[0]} {format_number(level[1])}"
        ends += f"; {named['level']}"
    content.append(_heading(title))
    if len(named) > 1:
        content.append(_legend(named))
    return _picture(key, PANEL, title, f"{labels[1]} against {labels[0]}: {ends}.", *content)


def points(
    key: str,
    title: str,
    xs: Sequence[float],
    ys: Sequence[float],
    labels: tuple[str, str],
    description: str,
    *,
    diagonal: bool = False,
) -> Markup:
    """Draw a scatter plot of at most MAX_POINTS points, evenly spaced in their order."""
    chosen = _drawable(zip(xs, ys, strict=True))
    chosen = [chosen[k] for k in evenly_spaced(len(chosen), MAX_POINTS)]
    x_range, y_range = span(x for x, _ in chosen), span(y for _, y in chosen)
    if diagonal:
        x_range = y_range = min(x_range[0], y_range[0]), max(x_range[1], y_range[1])
    size = PANEL if diagonal else SMALL
    frame = Frame.around(size, x_range, y_range, labels, marks=3)
    line = None
    if diagonal:
        low, high = x_range
        line = element("path", d=_polyline(frame, [(low, low), (high, high)]), class_="level")
    style = "dots first large" if len(chosen) <= 50 else "dots first"
    dots = element("path", d=_dots(frame, chosen), class_=style) if chosen else None
    return _picture(key, size, title, description, frame.draw(), line, dots, _heading(title))


def histogram(key: str, title: str, values: Sequence[float], label: str) -> Markup:
    """Draw a histogram of values, in per cent of their number."""
    finite = [value for value in values if is_drawable(value)]
    low, high = span(finite, room=0.0)
    counts, edges = np.histogram(finite, bins=BINS, range=(low, high))
    shares = 100 * counts / max(1, len(finite))
    y_range = (0.0, 1.08 * float(shares.max()) or 1.0)
    frame = Frame.around(SMALL, (low, high), y_range, (label, "share (%)"), marks=3)
    floor = frame.y.at(0)
    path = "".join(
        _bar(frame.x.at(left), frame.x.at(right), floor, frame.y.at(share))
        for left, right, share in zip(edges[:-1], edges[1:], shares, strict=True)
        if share > 0
    )
    described = "no values"
    if finite:
        statistics = (min(finite), max(finite), float(np.mean(finite)), float(np.std(finite)))
        least, most, mean, deviation = map(format_number, statistics)
        described = (
            f"{len(finite)} values from {least} to {most}, "
            f"mean {mean}, standard deviation {deviation}"
        )
    return _picture(
        key,
        SMALL,
        title,
        f"Histogram of {label}: {described}.",
        frame.draw(),
        element("path", d=path, class_="bars") if path else None,
        _heading(title),
    )


def bars(key: str, title: str, values: Sequence[float], labels: tuple[str, str]) -> Markup:
    """Draw one bar for each value."""
    low, high = span([0.0, *values])
    y_range = (low if min(values) < 0 else 0.0, high)
    frame = Frame.around(PANEL, (0.0, float(len(values))), y_range, labels)
    frame = replace(frame, x_ticks=[])
    floor = frame.y.at(0)
    path = "".join(
        _bar(frame.x.at(k), frame.x.at(k + 1), floor, frame.y.at(value))
        for k, value in enumerate(values)
    )
    every = max(1, math.ceil(len(values) / 12))
    names = [
        tick(str(k + 1), frame.x.at(k + 0.5), frame.y.start + 15)
        for k in range(0, len(values), every)
    ]
    described = ", ".join(format_number(value) for value in values[:40])
    return _picture(
        key,
        PANEL,
        title,
        f"{labels[1]} of {labels[0]}s 1 to {len(values)}: {described}.",
        frame.draw(),
        *names,
        element("path", d=path, class_="bars"),
        _heading(title),
    )


def heat_map(
    key: str,
    title: str,
    values: Sequence[Sequence[float]],
    labels: tuple[str, str],
    names: Sequence[str] = (),
) -> Markup:
    """Draw a matrix of values from 0 to 1 as coloured squares, each with its value.

    Rows are labelled with ``names`` if there are any, otherwise with numbers.
    """
    rows, columns = len(values), max(map(len, values))
    labelled = max(rows, columns) <= MAX_LABELLED
    side = 34.0 if labelled else max(4.0, 500 / max(rows, columns))
    left, top = 46.0 + 6 * max(map(len, names), default=0), 46.0
    size = (left + columns * side + 4, top + rows * side + 4)
    every = 1 if labelled else math.ceil(max(rows, columns) / 12)
    squares = [
        _square(left + j * side, top + i * side, side, value, labelled)
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
        element("text", labels[1], x=left, y=14, class_="label"),
        element(
            "text",
            labels[0],
            class_="label mid",
            transform=f"translate(12 {number(top + rows * side / 2)}) rotate(-90)",
        ),
    ]
    return _picture(key, size, title, _describe_matrix(values), *axes, *marks, *squares)


def _square(x: float, y: float, side: float, value: float, labelled: bool) -> Markup:
    if not math.isfinite(value):
        return tick("–", x + side / 2, y + side / 2 + 4)
    level = f"h{heat_level(value)}"
    rectangle = element("rect", x=x, y=y, width=side - 1, height=side - 1, class_=level)
    if not labelled:
        return rectangle
    place = {"x": x + (side - 1) / 2, "y": y + side / 2 + 4}
    return join(rectangle, element("text", f"{value:.2f}", **place, class_=f"value mid {level}"))


def _describe_matrix(values: Sequence[Sequence[float]]) -> str:
    diagonal = [row[i] for i, row in enumerate(values) if i < len(row) and math.isfinite(row[i])]
    others = [
        v for i, row in enumerate(values) for j, v in enumerate(row) if i != j and math.isfinite(v)
    ]
    text = f"{len(values)} by {max(map(len, values))} values."
    if diagonal:
        mean = sum(diagonal) / len(diagonal)
        text += (
            f" On the diagonal from {min(diagonal):.2f} to {max(diagonal):.2f}, mean {mean:.2f}."
        )
    return text + (f" Elsewhere at most {max(others):.2f}." if others else "")


def evenly_spaced(count: int, most: int) -> list[int]:
    """Return at most ``most`` evenly spaced indices below ``count``.

    Example:
        >>> evenly_spaced(3, 5), evenly_spaced(9, 3)
        ([0, 1, 2], [0, 3, 6])
    """
    return [k * count // most for k in range(most)] if count > most else list(range(count))


def _bar(left: float, right: float, floor: float, height: float) -> str:
    gap = min(2.0, (right - left) / 8)
    sides = (number(value) for value in (left + gap, right - gap, floor, height))
    first, last, low, high = sides
    return f"M{first} {low}V{high}H{last}V{low}Z"


def _places(frame: Frame, points: Iterable[Point]) -> list[str]:
    return [f"{number(frame.x.at(x))} {number(frame.y.at(y))}" for x, y in points]


def _polyline(frame: Frame, points: Iterable[Point]) -> str:
    return "M" + "L".join(_places(frame, points))


def _dots(frame: Frame, points: Iterable[Point]) -> str:
    # Lines of zero length with round caps: a single path for all points keeps the page small.
    return "".join(f"M{place}h0" for place in _places(frame, points))


def _heading(title: str) -> Markup:
    return element("text", title, x=4, y=14, class_="heading", aria_hidden="true")


def _legend(named: dict[str, str]) -> Markup:
    """Draw the legend, right-aligned in the line of the title."""
    parts, right = [], PANEL[0] - 10
    for style, name in reversed(named.items()):
        parts.append(tick(name, right, 14, "end"))
        right -= 6.2 * len(name) + 6
        swatch = f"M{number(right - 16)} 10H{number(right)}"
        parts.append(
            element("path", d=swatch, class_="level" if style == "level" else f"line {style}")
        )
        right -= 28
    return element("g", *parts, aria_hidden="true")
