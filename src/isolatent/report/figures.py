"""Figures in plotly's JSON schema, from plain numbers; colours are variables of the style sheet."""

from __future__ import annotations

import base64
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
MAX_LABEL = 24  # characters
MAX_SESSIONS = 16  # with colours and entries of the legend of their own
LARGEST_DRAWN = 1e15  # beyond which differences are lost
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
    return math.isfinite(value) and abs(value) < LARGEST_DRAWN


def finite(values: Iterable[float]) -> list[float | None]:
    """Return numbers of six digits, and None for those that cannot be drawn.

    Example:
        >>> finite([1.23456, float("nan")])
        [1.23456, None]
    """
    return [float(f"{value:.6g}") if is_drawable(value) else None for value in values]


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
    traces, names = [], [line.name for line in drawn]
    for k, line in enumerate(drawn):
        thin = thinned([p for p in line.points if all(map(is_drawable, p))], MAX_LINE_POINTS)
        style, name = STYLES[line.style], plain_text(line.name)
        more: dict[str, Any] = {
            "line": style | ({"width": 1.1} if line.thin else {}),
            "marker": {"color": style["color"]},
            "opacity": 0.75 if line.thin else 1.0,
            "showlegend": line.name not in names[:k],
        }
        mode = "lines" if len(thin) > 1 else "markers"
        xy = [x for x, _ in thin], [y for _, y in thin]
        traces.append(_trace(mode, *xy, name=name, legendgroup=name, **more))
    if level is not None and is_drawable(level[1]):
        known = [x for line in drawn for x, _ in line.points if is_drawable(x)] or [0.0, 1.0]
        xy = [min(known), max(known)], [level[1]] * 2
        traces.append(_trace("lines", *xy, name=plain_text(level[0]), line=STYLES["level"]))
        names.append(level[0])
    described = "; ".join(map(_describe_line, drawn[:8]))
    layout = _layout(title, labels, showlegend=len(set(names)) > 1)
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
    traces = []
    if diagonal:
        known = [v for v in (*xs, *ys) if is_drawable(v)] or [0.0, 1.0]
        ends = [min(known), max(known)]
        traces.append(_trace("lines", ends, ends, line=STYLES["level"], hoverinfo="skip"))
    marker = {"color": "var(--first)", "size": 9 if diagonal else 4, "opacity": 0.6}
    traces.append(_trace("markers", xs, ys, marker=marker))
    return Figure(key, title, description, (*traces,), _layout(title, labels), 220)


def bars(key: str, title: str, values: Sequence[float], labels: tuple[str, str]) -> Figure:
    """Draw a bar for each value, by its number from 0."""
    described = ", ".join(f"{value:.3g}" for value in values[:40])
    names = [str(k) for k in range(len(values))]
    trace = {"type": "bar", "x": names, "y": finite(values), "marker": {"color": "var(--first)"}}
    layout = _layout(title, labels)
    layout["xaxis"]["type"] = "category"
    description = f"{labels[1]} of {labels[0]}s 0 to {len(values) - 1}: {described}."
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
    trace = {
        **{"type": "heatmap", "z": [finite(row) for row in values], "zmin": 0, "zmax": 1},
        **{"colorscale": "scale(heat)", "xgap": 1, "ygap": 1, "showscale": not labelled},
        **({"texttemplate": "%{z:.2f}"} if labelled else {}),
        "hovertemplate": "%{y}, %{x}: %{z:.3f}<extra></extra>",
    }
    layout = _layout(title, (labels[1], labels[0]))
    most = MAX_LABELLED if labelled else 12
    _name_ticks(layout["xaxis"], columns or [str(k) for k in range(width)], most)
    _name_ticks(layout["yaxis"], names or [str(k) for k in range(rows)], most)
    layout["yaxis"]["autorange"] = "reversed"
    height = round(90 + min(34 * rows, 460))
    return Figure(key, title, _describe_matrix(values), (trace,), layout, height)


def _name_ticks(axis: dict[str, Any], names: Sequence[str], most: int) -> None:
    """Name positions 0, 1, ... of an axis; equal names of categories would fall together."""
    every = max(1, math.ceil(len(names) / most))
    places = [*range(0, len(names), every)]
    axis |= {"tickvals": places, "ticktext": [_short(plain_text(names[k])) for k in places]}
    axis |= {"showgrid": False, "ticks": ""}


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
    layout = _layout(title, labels)
    _name_ticks(layout["xaxis"], columns, 30)
    _name_ticks(layout["yaxis"], names, 30)
    layout["yaxis"]["autorange"] = "reversed"
    tops = [max(range(len(row)), key=[*map(abs, row)].__getitem__) for row in values]
    strongest = "; ".join(
        f"{name}: most {columns[top]} ({row[top]:+.2g})"
        for name, row, top in zip(names, values, tops, strict=True)
    )
    height = 150 + min(30 * len(names), 400)
    return Figure(key, title, f"{unit.capitalize()}. {strongest}.", (trace,), layout, height)


def named_lines(
    key: str,
    title: str,
    drawn: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    labels: tuple[str, str],
) -> Figure:
    """Draw lines that differ by colour and are named below the figure."""
    traces = tuple(
        _trace(
            "lines",
            [x for x, _ in line],
            [y for _, y in line],
            name=_short(plain_text(name)),
            line={"color": f"var(--c{k % 8 + 1})", "width": 2},
        )
        for k, (name, line) in enumerate(drawn)
    )
    layout = _layout(title, labels, showlegend=True)
    layout["legend"] = {"y": -0.35, "yanchor": "top", "x": 0, "xanchor": "left"}
    described = "; ".join(
        f"{name} from {line[0][1]:.3g} to {line[-1][1]:.3g}" for name, line in drawn if line
    )
    return Figure(key, title, f"{described}.", traces, layout, 320)


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
    ours = [(v, k) for k, (_, scores, *_) in enumerate(rows) for v in scores if is_drawable(v)]
    paper = [
        (value, k, spread or 0.0)
        for k, (*_, value, spread) in enumerate(rows)
        if value is not None and is_drawable(value)
    ]
    traces = []
    if paper:
        xs, ys, spreads = zip(*paper, strict=True)
        bars_of = {"type": "data", "array": finite(spreads), "color": "var(--muted)"}
        marker = {"symbol": "diamond-open", "size": 11, "color": "var(--second)"}
        traces.append(_trace("markers", xs, ys, name="paper", error_x=bars_of, marker=marker))
    marker = {"size": 7, "color": "var(--first)", "opacity": 0.7}
    xy = [v for v, _ in ours], [k for _, k in ours]
    traces.append(_trace("markers", *xy, name="ours, each seed", marker=marker))
    layout = _rows_layout(title, label, [name for name, *_ in rows])
    layout["showlegend"] = True
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
        rows: Name, estimate, and ends of the interval; an infinite end is an arrow.
        label: What is estimated, with its unit.
        log: Whether the axis is logarithmic.
    """
    known = [v for _, value, ends in rows for v in (value, *ends) if is_drawable(v)]
    known = [v for v in known if v > 0] if log else known
    near, far = min(known, default=1.0) / 3, 3 * max(known, default=1.0)
    traces = []
    for k, (_, value, (low, high)) in enumerate(rows):
        is_open = not is_drawable(high)
        ends = [max(low, near) if log else low, far if is_open else high]
        style = {"color": "var(--first)", "width": 3}
        traces.append(_trace("lines", ends, [k, k], line=style, hoverinfo="skip"))
        count = 1 + is_open
        symbols = ["circle", "triangle-right"][:count]
        marker = {"color": "var(--first)", "size": 9, "symbol": symbols}
        traces.append(_trace("markers", [value, far][:count], [k] * count, marker=marker))
    layout = _rows_layout(title, label, [name for name, *_ in rows])
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
    colours: Sequence[str],
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
        colours: Colours of the values.
    """
    doubled = {"type": "data", "array": finite(2 * e for e in errors), "color": "var(--ink)"}
    marker = {"size": 11, "color": [*colours]}
    traces = [_trace("markers", values, range(len(values)), marker=marker, error_x=doubled)]
    layout = _rows_layout(title, label, names)
    layout["xaxis"]["rangemode"] = "tozero"
    described = "; ".join(
        f"{name} {value:.3g}" + (f" ± {error:.2g}" if is_drawable(error) else "")
        for name, value, error in zip(names, values, errors, strict=True)
    )
    if limit is not None:
        text = f"{'at least' if limit[1] else 'at most'} {limit[0]:.3g}"
        described += f"; it should be {text}"
        xy = [limit[0]] * 2, [-0.5, len(values) - 0.5]
        hover = f"limit: {text}<extra></extra>"
        traces.append(_trace("lines", *xy, line=STYLES["level"], hovertemplate=hover))
    height = 120 + 26 * len(values)
    return Figure(key, title, f"{label}: {described}.", (*traces,), layout, height)


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
        sessions: Name, first and last position of each part, to be told apart by colour, or, if
            they are many, by their names under the pointer.
        links: The id of the explorer whose selection is shown; a part of the axis is selected.
    """
    several = 1 < len(sessions) <= MAX_SESSIONS
    count, parts = len(curves), sessions if several else [("", 0, len(x))]
    told: dict[str, Any] = {}
    if len(sessions) > MAX_SESSIONS:
        names = [_short(plain_text(name)) for name, _, _ in sessions]
        pieces = zip(names, sessions, strict=True)
        told["text"] = [name for name, (_, start, end) in pieces for _ in range(start, end)]
        told["hovertemplate"] = "%{text}: %{x}, %{y:.3g}<extra></extra>"
    share, gap = 1 / count, 0.12 / count
    layout = _layout(title, (label, ""), showlegend=several)
    layout["xaxis"] |= {"anchor": "y" if count == 1 else f"y{count}", "showgrid": False}
    layout["legend"] = {"y": -0.2 / count - 0.08, "yanchor": "top", "x": 0, "xanchor": "left"}
    layout |= {"dragmode": "select", "selectdirection": "h"} if links else {}
    traces = []
    for k, (name, values) in enumerate(curves):
        number = "" if k == 0 else str(k + 1)
        layout[f"yaxis{number}"] = {
            "domain": [1 - (k + 1) * share + gap, 1 - k * share],
            "title": {"text": plain_text(name)},
            "nticks": 4,
        }
        traces += [
            {
                **{"type": "scatter", "mode": "lines", "yaxis": f"y{number}", "meta": k},
                **{"x": x[start:end], "y": values[start:end], "connectgaps": False},
                **{"name": _short(plain_text(session)), "legendgroup": str(part)},
                "line": {"color": f"var(--c{part % 8 + 1})", "width": 1.2},
                "showlegend": k == 0 and several,
                **told,
            }
            for part, (session, start, end) in enumerate(parts)
        ]
    listed = ", ".join(name for name, _ in curves)
    split = f", in {len(sessions)} sessions" if len(sessions) > 1 else ""
    height = 80 + 95 * count + 40 * several
    return Figure(
        key, title, f"{listed} against {label}{split}.", (*traces,), layout, height, links
    )


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


def _trace(mode: str, x: Iterable[float], y: Iterable[float], **more: Any) -> dict[str, Any]:
    """Return lines or markers in the plane."""
    return {"type": "scatter", "mode": mode, "x": finite(x), "y": finite(y), **more}


def _layout(title: str, labels: tuple[str, str], showlegend: bool = False) -> dict[str, Any]:
    x, y = ({"title": {"text": plain_text(label)}} for label in labels)
    return {
        **{"title": {"text": plain_text(title)}, "xaxis": x, "yaxis": y},
        "showlegend": showlegend,
    }


def _rows_layout(title: str, label: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a layout with a row for each name, the first one above."""
    layout = _layout(title, (label, ""))
    texts = [_in_two_lines(name) for name in names]
    places = {"tickvals": [*range(len(names))], "ticktext": texts}
    layout["yaxis"] |= {**places, "range": [len(names) - 0.5, -0.5]}
    return layout


def _in_two_lines(name: str) -> str:
    """Return a name that fits beside a figure on a phone."""
    parts = textwrap.wrap(clean(name), MAX_LABEL, max_lines=2, placeholder="…")
    return "<br>".join(map(plain_text, parts))


def _short(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"
