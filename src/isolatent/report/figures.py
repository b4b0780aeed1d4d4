"""Figures in plotly's JSON schema, from plain numbers; colours are variables of the style sheet."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from isolatent.report.content import Figure, clean

__all__ = [
    "Line",
    "bars",
    "checked",
    "curves_over",
    "evenly_spaced",
    "finite",
    "heat_map",
    "histogram",
    "intervals",
    "is_drawable",
    "lines",
    "named_lines",
    "packed",
    "plain_text",
    "points",
    "seed_points",
    "signed_map",
    "thinned",
]

MAX_LINE_POINTS = 400  # of a line
MAX_LABELLED = 12  # rows or columns of a matrix that shows its values
LARGEST = 1e15  # beyond which differences are lost
STYLES: dict[str, dict[str, Any]] = {
    "first": {"color": "var(--first)", "width": 2},
    "second": {"color": "var(--second)", "width": 2, "dash": "dash"},
    "level": {"color": "var(--ink)", "width": 1.2, "dash": "dot"},
}


@dataclass(frozen=True)
class Line:
    """A line with its name for the legend; lines of one name share their entry."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "first"
    thin: bool = False


def plain_text(text: str) -> str:
    """Return a text that plotly shows as it is: it reads some HTML in labels.

    Example:
        >>> plain_text("<b>1 & 2</b>")
        '&lt;b&gt;1 &amp; 2&lt;/b&gt;'
    """
    escaped = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("\n", " ")


def is_drawable(value: float) -> bool:
    """Return whether a value is finite and small enough for floating-point coordinates."""
    return math.isfinite(value) and abs(value) < LARGEST


def finite(values: Iterable[float]) -> list[float | None]:
    """Return numbers of four digits, and None for those that cannot be drawn.

    Example:
        >>> finite([1.23456, float("nan")])
        [1.235, None]
    """
    return [float(f"{value:.4g}") if is_drawable(value) else None for value in values]


def packed(values: npt.ArrayLike) -> dict[str, str]:
    """Return numbers as float32 in base64, as plotly.js reads arrays.

    Example:
        >>> packed([1.0, 2.0])
        {'dtype': 'f4', 'bdata': 'AACAPwAAAEA='}
    """
    data = np.ascontiguousarray(np.asarray(values, dtype="<f4")).tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(data).decode()}


def lines(
    key: str,
    title: str,
    drawn: Sequence[Line],
    labels: tuple[str, str],
    level: tuple[str, float] | None = None,
) -> Figure:
    """Draw lines over a common axis; each is thinned to at most ``MAX_LINE_POINTS`` means.

    Args:
        key: The id of the figure.
        title: Its title.
        drawn: The lines.
        labels: Labels of both axes.
        level: Name and height of a horizontal line.
    """
    traces, seen = [], set()
    for line in drawn:
        thin = thinned([p for p in line.points if all(map(is_drawable, p))], MAX_LINE_POINTS)
        style = dict(STYLES[line.style])
        if line.thin:
            style["width"] = 1.1
        traces.append(
            {
                "type": "scatter",
                "mode": "lines" if len(thin) > 1 else "markers",
                "x": finite(x for x, _ in thin),
                "y": finite(y for _, y in thin),
                "name": plain_text(line.name),
                "legendgroup": plain_text(line.name),
                "showlegend": line.name not in seen,
                "line": style,
                "marker": {"color": style["color"]},
                "opacity": 0.75 if line.thin else 1.0,
            }
        )
        seen.add(line.name)
    shapes: list[Any] = []
    if level is not None and is_drawable(level[1]):
        ends = [p[0] for line in drawn for p in line.points if is_drawable(p[0])]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [min(ends, default=0), max(ends, default=1)],
                "y": [level[1]] * 2,
                "name": plain_text(level[0]),
                "line": STYLES["level"],
            }
        )
        seen.add(level[0])
    described = "; ".join(_describe_line(line) for line in drawn[:8])
    layout = _layout(title, labels, shapes=shapes, showlegend=len(seen) > 1)
    return Figure(key, title, f"{labels[1]} against {labels[0]}: {described}.", (*traces,), layout)


def _describe_line(line: Line) -> str:
    ys = [y for _, y in line.points if is_drawable(y)]
    if not ys:
        return f"{line.name} without a value"
    return f"{line.name} from {ys[0]:.4g} to {ys[-1]:.4g}, lowest {min(ys):.4g}"


def points(
    key: str,
    title: str,
    xs: Sequence[float],
    ys: Sequence[float],
    labels: tuple[str, str],
    description: str,
    diagonal: bool = False,
) -> Figure:
    """Draw points, and the line on which both coordinates agree."""
    traces: list[dict[str, Any]] = []
    if diagonal:
        known = [v for v in (*xs, *ys) if is_drawable(v)]
        ends = [min(known, default=0.0), max(known, default=1.0)]
        traces.append(
            {
                **{"type": "scatter", "mode": "lines", "x": ends, "y": ends},
                **{"line": STYLES["level"], "hoverinfo": "skip"},
            }
        )
    marker = {"color": "var(--first)", "size": 9 if diagonal else 4, "opacity": 0.6}
    traces.append(
        {
            **{"type": "scatter", "mode": "markers", "x": finite(xs), "y": finite(ys)},
            "marker": marker,
        }
    )
    return Figure(key, title, description, (*traces,), _layout(title, labels), 220)


def histogram(key: str, title: str, values: Sequence[float], label: str) -> Figure:
    """Draw the distribution of values."""
    known = np.asarray([v for v in values if is_drawable(v)])
    counts: list[int] = []
    edges: list[float] = []
    if len(known):
        counts, edges = (part.tolist() for part in np.histogram(known, bins=24))
    centres = [(a + b) / 2 for a, b in pairwise(edges)]
    text = "no value"
    if len(known):
        text = (
            f"{len(known)} values from {known.min():.3g} to {known.max():.3g}, mean "
            f"{known.mean():.3g}, standard deviation {known.std():.3g}"
        )
    trace = {
        **{"type": "bar", "x": finite(centres), "y": counts},
        **{"marker": {"color": "var(--first)"}},
    }
    layout = _layout(title, (label, "count"), bargap=0.05)
    return Figure(key, title, f"Distribution of {label}: {text}.", (trace,), layout, 200)


def bars(
    key: str,
    title: str,
    values: Sequence[float],
    labels: tuple[str, str],
    names: Sequence[str] = (),
    intervals: Sequence[tuple[float, float] | None] = (),
) -> Figure:
    """Draw a bar for each value, with the ends of its interval where there is one."""
    names = list(names) or [str(k + 1) for k in range(len(values))]
    described = ", ".join(f"{value:.3g}" for value in values[:40])
    trace: dict[str, Any] = {
        **{"type": "bar", "x": [*map(plain_text, names)], "y": finite(values)},
        **{"marker": {"color": "var(--first)"}},
    }
    if intervals:
        ends = [bounds or (v, v) for v, bounds in zip(values, intervals, strict=True)]
        trace["error_y"] = {
            **{"type": "data", "symmetric": False, "color": "var(--ink)"},
            "array": finite(high - v for v, (_, high) in zip(values, ends, strict=True)),
            "arrayminus": finite(v - low for v, (low, _) in zip(values, ends, strict=True)),
        }
    layout = _layout(title, labels)
    layout["xaxis"]["type"] = "category"
    description = f"{labels[1]} of {labels[0]}s 1 to {len(values)}: {described}."
    return Figure(key, title, description, (trace,), layout)


def heat_map(
    key: str,
    title: str,
    values: Sequence[Sequence[float]],
    labels: tuple[str, str],
    names: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Figure:
    """Draw a matrix of values from 0 to 1 as coloured squares, small ones with their values.

    Rows are labelled with ``names`` if there are any, otherwise with numbers; so are columns.
    """
    rows, width = len(values), max(map(len, values))
    labelled = max(rows, width) <= MAX_LABELLED
    left = [*map(plain_text, names)] or [str(k + 1) for k in range(rows)]
    top = [*map(plain_text, columns)] or [str(k + 1) for k in range(width)]
    trace = {
        **{"type": "heatmap", "z": [finite(row) for row in values], "zmin": 0, "zmax": 1},
        **{"colorscale": "scale(heat)", "xgap": 1, "ygap": 1, "showscale": not labelled},
        **({"texttemplate": "%{z:.2f}"} if labelled else {}),
        "hovertemplate": "%{y}, %{x}: %{z:.3f}<extra></extra>",
    }
    layout = _layout(title, (labels[1], labels[0]))
    # Positions are numbers, since equal names of categories would fall together.
    every = 1 if labelled else math.ceil(max(rows, width) / 12)
    for axis, texts in (("xaxis", top), ("yaxis", left)):
        places = range(0, len(texts), every)
        layout[axis] |= {
            **{"tickvals": [*places], "ticktext": [texts[k] for k in places]},
            **{"showgrid": False, "constrain": "domain", "ticks": ""},
        }
    layout["yaxis"] |= {"autorange": "reversed"}
    layout["xaxis"] |= {"side": "bottom"}
    height = round(90 + min(34 * rows, 460))
    return Figure(key, title, _describe_matrix(values), (trace,), layout, height)


def signed_map(
    key: str,
    title: str,
    values: Sequence[Sequence[float]],
    labels: tuple[str, str],
    names: Sequence[str],
    columns: Sequence[str],
    span: float,
    unit: str,
) -> Figure:
    """Draw a matrix of values of both signs, of at most ``span``, with rows and columns by name."""
    trace = {
        **{"type": "heatmap", "z": [finite(row) for row in values], "zmin": -span, "zmax": span},
        **{"colorscale": "scale(signed)", "xgap": 1, "ygap": 1},
        "colorbar": {"title": {"text": unit, "side": "right"}, "thickness": 12},
        "hovertemplate": "%{z:.3g}<extra></extra>",
    }
    layout = _layout(title, (labels[0], labels[1]))
    for axis, texts in (("xaxis", columns), ("yaxis", names)):
        every = max(1, math.ceil(len(texts) / 30))
        places = range(0, len(texts), every)
        layout[axis] |= {
            **{"tickvals": [*places], "ticktext": [_short(plain_text(texts[k])) for k in places]},
            **{"showgrid": False, "ticks": ""},
        }
    layout["yaxis"] |= {"autorange": "reversed"}
    tops = [max(range(len(row)), key=[*map(abs, row)].__getitem__) for row in values]
    strongest = "; ".join(
        f"{name}: most {columns[top]} ({row[top]:+.2g})"
        for name, row, top in zip(names, values, tops, strict=True)
    )
    height = 150 + min(30 * len(names), 400)
    return Figure(key, title, f"{unit.capitalize()}. {strongest}.", (trace,), layout, height)


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"


def named_lines(
    key: str,
    title: str,
    drawn: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    labels: tuple[str, str],
) -> Figure:
    """Draw lines that differ by colour and are named below the figure."""
    traces = tuple(
        {
            **{"type": "scatter", "mode": "lines", "name": _short(plain_text(name))},
            **{"x": finite(x for x, _ in line), "y": finite(y for _, y in line)},
            "line": {"color": f"var(--c{k % 8 + 1})", "width": 2},
        }
        for k, (name, line) in enumerate(drawn)
    )
    layout = _layout(title, labels, showlegend=True)
    layout["legend"] = {"y": -0.35, "yanchor": "top", "x": 0, "xanchor": "left"}
    described = "; ".join(
        f"{name} from {line[0][1]:.3g} to {line[-1][1]:.3g}" for name, line in drawn if line
    )
    return Figure(key, title, f"{described}.", traces, layout, 320)


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


def seed_points(
    key: str,
    title: str,
    rows: Sequence[tuple[str, Sequence[float], float | None, float | None]],
    label: str,
) -> Figure:
    """Draw the scores of all seeds as points and the published scores as diamonds.

    Args:
        key: The id of the figure.
        title: Its title.
        rows: Name, our scores, and the published score with its spread, both None without one.
        label: What is scored.
    """
    names = [plain_text(name) for name, *_ in rows]
    ours = [(v, k) for k, (_, scores, *_) in enumerate(rows) for v in scores if is_drawable(v)]
    paper = [
        (value, k, spread or 0.0)
        for k, (_, _, value, spread) in enumerate(rows)
        if value is not None and is_drawable(value)
    ]
    traces: list[dict[str, Any]] = []
    if paper:
        traces.append(
            {
                **{"type": "scatter", "mode": "markers", "name": "paper"},
                **{"x": finite(v for v, *_ in paper), "y": [k for _, k, _ in paper]},
                "error_x": {
                    **{"type": "data", "array": finite(s for *_, s in paper)},
                    **{"color": "var(--muted)", "thickness": 1.2},
                },
                "marker": {"symbol": "diamond-open", "size": 11, "color": "var(--second)"},
            }
        )
    traces.append(
        {
            **{"type": "scatter", "mode": "markers", "name": "ours, each seed"},
            **{"x": finite(v for v, _ in ours), "y": [k for _, k in ours]},
            "marker": {"size": 7, "color": "var(--first)", "opacity": 0.7},
        }
    )
    layout = _layout(title, (label, ""), showlegend=True)
    layout["yaxis"] |= {
        **{"tickvals": [*range(len(rows))], "ticktext": names, "showgrid": True},
        "range": [len(rows) - 0.5, -0.5],
    }
    described = "; ".join(
        f"{name}: {', '.join(f'{v:.4g}' for v in scores) or 'no run'}"
        + ("" if value is None else f", paper {value:.4g}")
        for name, scores, value, _ in rows[:40]
    )
    return Figure(key, title, f"{described}.", (*traces,), layout, 110 + 24 * len(rows))


def intervals(
    key: str,
    title: str,
    rows: Sequence[tuple[str, float, tuple[float, float]]],
    label: str,
    log: bool = False,
) -> Figure:
    """Draw estimates as points with their intervals, one in each row.

    Args:
        key: The id of the figure.
        title: Its title.
        rows: Name, estimate, and ends of the interval, which may be infinite.
        label: What is estimated, with its unit.
        log: Whether the axis is logarithmic.
    """
    traces: list[dict[str, Any]] = []
    ends = [v for _, value, bounds in rows for v in (value, *bounds) if is_drawable(v) and v > 0]
    far = 3 * max(ends, default=1.0)
    for k, (_, value, (low, high)) in enumerate(rows):
        shown = [max(low, min(ends, default=0) / 3) if log else low, min(high, far)]
        traces.append(
            {
                **{"type": "scatter", "mode": "lines", "x": finite(shown), "y": [k, k]},
                **{"line": {"color": "var(--first)", "width": 3}, "hoverinfo": "skip"},
            }
        )
        open_end = not is_drawable(high)
        traces.append(
            {
                **{"type": "scatter", "mode": "markers"},
                "x": finite([value, *([far] if open_end else [])]),
                "y": [k, k][: 1 + open_end],
                "marker": {
                    **{"color": "var(--first)", "size": 9},
                    "symbol": ["circle", "triangle-right"][: 1 + open_end],
                },
            }
        )
    layout = _layout(title, (label, ""))
    names = [plain_text(name) for name, *_ in rows]
    layout["yaxis"] |= {
        **{"tickvals": [*range(len(rows))], "ticktext": names},
        "range": [len(rows) - 0.5, -0.5],
    }
    layout["xaxis"] |= {"type": "log"} if log else {}
    described = "; ".join(
        f"{name} {value:.3g} ({low:.3g} to {high:.3g})" for name, value, (low, high) in rows[:40]
    )
    return Figure(key, title, f"{label}: {described}.", (*traces,), layout, 90 + 26 * len(rows))


def checked(
    key: str,
    title: str,
    names: Sequence[str],
    values: Sequence[float],
    errors: Sequence[float],
    limit: tuple[float, bool] | None,
    label: str,
    colour: str,
) -> Figure:
    """Draw what a check observed, and the limit that the first value should not cross.

    Args:
        key: The id of the figure.
        title: Its title.
        names: What the values are of.
        values: The values.
        errors: Their standard errors; NaN where there is none.
        limit: The limit, and whether the first value should be above it; None without one.
        label: The quantity with its unit.
        colour: Colour of the first value.
    """
    rows = [*range(len(values))]
    trace: dict[str, Any] = {
        **{"type": "scatter", "mode": "markers", "x": finite(values), "y": rows},
        "marker": {"size": 11, "color": [colour, *["var(--muted)"] * len(rows)][: len(rows)]},
        "error_x": {
            **{"type": "data", "array": finite(2 * error for error in errors)},
            **{"color": "var(--ink)", "thickness": 1.2},
        },
    }
    layout = _layout(title, (label, ""))
    layout["yaxis"] |= {
        **{"tickvals": rows, "ticktext": [*map(plain_text, names)]},
        "range": [len(rows) - 0.5, -0.5],
    }
    layout["xaxis"] |= {"rangemode": "tozero"}
    described = "; ".join(
        f"{name} {value:.3g}" + (f" ± {error:.2g}" if is_drawable(error) else "")
        for name, value, error in zip(names, values, errors, strict=True)
    )
    traces = [trace]
    if limit is not None:
        side = "at least" if limit[1] else "at most"
        described += f"; it should be {side} {limit[0]:.3g}"
        traces.append(
            {
                **{"type": "scatter", "mode": "lines", "x": [limit[0]] * 2},
                **{"y": [-0.5, len(rows) - 0.5], "line": STYLES["level"]},
                "hovertemplate": f"limit: {side} {limit[0]:.3g}<extra></extra>",
            }
        )
    return Figure(key, title, f"{label}: {described}.", (*traces,), layout, 120 + 26 * len(rows))


def curves_over(
    key: str,
    title: str,
    x: Sequence[Any],
    curves: Sequence[tuple[str, Sequence[float | None]]],
    label: str,
    sessions: Sequence[tuple[str, int, int]] = (),
    links: str = "",
) -> Figure:
    """Draw curves over a common axis, one above the other.

    Args:
        key: The id of the figure.
        title: Its title.
        x: The axis that they share.
        curves: Name and values of each; None leaves a gap.
        label: Label of the common axis.
        sessions: Name, first and last position of each part, to be told apart by colour.
        links: The id of the explorer whose selection is shown.
    """
    count, parts = len(curves), sessions or [("", 0, len(x))]
    share, gap = 1 / count, 0.12 / count
    layout = _layout(title, (label, ""), showlegend=len(parts) > 1)
    # A title inside each panel would hide data, so that names are labels of the axes.
    layout["xaxis"] |= {"anchor": "y" if count == 1 else f"y{count}", "showgrid": False}
    layout["legend"] = {"y": -0.2 / count - 0.08, "yanchor": "top", "x": 0, "xanchor": "left"}
    traces = []
    for k, (name, values) in enumerate(curves):
        axis = "y" if k == 0 else f"y{k + 1}"
        layout["yaxis" if k == 0 else f"yaxis{k + 1}"] = {
            "domain": [1 - (k + 1) * share + gap, 1 - k * share],
            "title": {"text": plain_text(name)},
            "nticks": 4,
        }
        traces += [
            {
                **{"type": "scatter", "mode": "lines", "yaxis": axis, "meta": k},
                **{"x": x[start:end], "y": values[start:end], "connectgaps": False},
                **{"name": _short(plain_text(session)), "legendgroup": str(number)},
                "line": {"color": f"var(--c{number % 8 + 1})", "width": 1.2},
                "showlegend": k == 0 and len(parts) > 1,
            }
            for number, (session, start, end) in enumerate(parts)
        ]
    listed = ", ".join(name for name, _ in curves)
    several = f", in {len(parts)} sessions" if len(parts) > 1 else ""
    height = 80 + 95 * count + (40 if several else 0)
    description = f"{listed} against {label}{several}."
    return Figure(key, title, description, (*traces,), layout, height, links)


def thinned(drawn: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return means of at most ``most`` groups of consecutive points.

    Example:
        >>> thinned([(1, 1), (2, 3), (3, 5), (4, 7)], 2)
        [(1.5, 2.0), (3.5, 6.0)]
    """
    if len(drawn) <= most:
        return list(drawn)
    groups = np.array_split(np.asarray(drawn, dtype=float), most)
    return [(float(x), float(y)) for x, y in (group.mean(axis=0) for group in groups)]


def evenly_spaced(count: int, most: int) -> list[int]:
    """Return at most ``most`` evenly spaced indices below ``count``.

    Example:
        >>> evenly_spaced(3, 5), evenly_spaced(9, 3)
        ([0, 1, 2], [0, 3, 6])
    """
    return [k * count // most for k in range(most)] if count > most else list(range(count))


def _layout(
    title: str,
    labels: tuple[str, str],
    showlegend: bool = False,
    **other: Any,
) -> dict[str, Any]:
    x, y = ({"title": {"text": plain_text(label)}} for label in labels)
    return {
        **{"title": {"text": plain_text(title)}, "xaxis": x, "yaxis": y},
        **{"showlegend": showlegend},
        **{name: value for name, value in other.items() if value},
    }
