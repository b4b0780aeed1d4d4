"""The explorer of codes as one figure of plotly, for notebooks: no widgets, no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isolatent.figure_data import CodesData, EncodedRows, codes_data, encode_rows
from isolatent.figure_data.rows import Array, choose_components

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["explore"]

MAX_EXPLORED_POINTS = 10_000
POINT_SIZE = 4  # pixels
FIGURE_HEIGHT = 480
# Menus stand side by side above the figure.
MENU: dict[str, Any] = {"type": "dropdown", "y": 1.0, "yanchor": "bottom", "xanchor": "left"}
MENU_WIDTH = 0.22  # of the figure


def explore(
    model: Any,
    X: Any = None,
    *,
    components: Sequence[int] | None = None,
    columns: Mapping[str, Any] | None = None,
    X_pos: Any = None,
    groups: Any = None,
    times: Any = None,
    max_gap: int = 0,
    recording: int | None = None,
    max_points: int = MAX_EXPLORED_POINTS,
    random_state: int = 0,
) -> Figure:
    """Return codes as a figure that can be zoomed, rotated and coloured in a notebook.

    Menus choose the codes on the axes and the colour: time, session, relatedness, each of the given
    columns, and each code. It needs neither widgets nor a server, and stays in a saved notebook.

    Args:
        model: A fitted model, codes (N, n), or the result of
            :func:`isolatent.figure_data.encode_rows`.
        X: Observations, a recording or a list of recordings; None for codes.
        components: Three numbers of codes, from 0, for a figure in three dimensions; two or None
            for one in two dimensions, which starts with these codes.
        columns: Further values to colour by, one for each row, by name: numbers, times or labels.
        X_pos: The positive of each row of X, for the relatedness of pairs.
        groups: One session id for each row.
        times: Time of each row.
        max_gap: For recordings: longest run of rows with NaN that is interpolated.
        recording: For a model with an encoder for each recording: the number of X.
        max_points: Of more rows, this many are drawn at random, and the title says so.
        random_state: Seed of that.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(50, 3))
        >>> figure = explore(z, columns={"speed": z[:, 0]})
        >>> [button.label for button in figure.layout.updatemenus[0].buttons]
        ['row', 'speed', 'code 0', 'code 1', 'code 2']
    """
    from plotly import graph_objects  # a second to import

    rows = encode_rows(
        model, X, X_pos=X_pos, groups=groups, times=times, max_gap=max_gap, recording=recording
    )
    n = rows.codes.shape[1]
    if n < 2:
        raise ValueError(f"codes must have at least 2 columns to be explored, got {n}")
    chosen = choose_components((0, 1) if components is None else components, n, allowed=(2, 3))
    sample = {"max_points": max_points, "random_state": random_state}
    coloured = [
        codes_data(rows, colour=colour, colour_name=name, **sample)
        for name, colour in _colourings(rows, columns or {})
    ]
    first = coloured[0]
    codes = [_short(column) for column in first.points.T]
    points = dict(zip("xyz", (codes[k] for k in chosen), strict=False))
    kind = graph_objects.Scatter3d if len(chosen) == 3 else graph_objects.Scattergl
    start = _marker(first)
    marker = {"size": POINT_SIZE / (2 if len(chosen) == 3 else 1), "opacity": 0.8}
    trace = kind(
        **points, mode="markers", marker=marker, customdata=_hover(rows, first),
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    figure = graph_objects.Figure(trace)
    figure.update_traces({f"marker_{key}": value[0] for key, value in start.items()})
    menus = [_menu("colour", [(one.colour_name, "restyle", [_restyled(one)]) for one in coloured])]
    if len(chosen) == 2:
        axes: dict[str, Any] = {}
        for axis, k in zip("xy", chosen, strict=True):
            axes[f"{axis}axis"] = {"title": {"text": rows.names[k]}}
            buttons = [
                (
                    f"{axis}: {name}",
                    "update",
                    [{axis: [codes[j]]}, {f"{axis}axis.title.text": name}],
                )
                for j, name in enumerate(rows.names)
            ]
            menus.append(_menu(axis, buttons, active=k))
    else:
        names = (rows.names[k] for k in chosen)
        axes = {
            "scene": {f"{a}axis": {"title": {"text": t}} for a, t in zip("xyz", names, strict=True)}
        }
    for place, menu in enumerate(menus):
        menu["x"] = place * MENU_WIDTH
    title = {"text": first.thinning, "font": {"size": 12}, "x": 1.0, "xanchor": "right"}
    figure.update_layout(**axes, updatemenus=menus, height=FIGURE_HEIGHT, title=title)
    return figure


def _colourings(rows: EncodedRows, columns: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "row" if rows.times is None else "time", "time"
    if rows.sessions is not None:
        yield "session", "session"
    if rows.relatedness is not None:
        yield "relatedness", "relatedness"
    yield from columns.items()
    yield from zip(rows.names, rows.codes.T, strict=True)


def _marker(data: CodesData) -> dict[str, list[Any]]:
    """Return what a colour changes of the only trace, as a list with one value for it."""
    assert data.colour is not None
    values, labels = data.colour, [*data.categories]
    if values.dtype.kind == "M":
        since = values.min()
        values = (values - since) / np.timedelta64(1, "s")
        shown = f"{data.colour_name} [s since {since}]"
    else:
        shown = data.colour_name
    places = [*range(len(labels))] if labels else None
    return {
        "color": [_short(values)],
        "showscale": [True],
        "colorscale": [_steps(len(labels)) if labels else "Viridis"],
        "cmin": [-0.5 if labels else None],
        "cmax": [len(labels) - 0.5 if labels else None],
        "colorbar": [
            {"title": {"text": _plain_text(shown)}}
            | ({"tickvals": places, "ticktext": [*map(_plain_text, labels)]} if labels else {})
        ],
    }


def _steps(count: int) -> str | list[list[Any]]:
    """Return a scale with one colour for each category, as far as there are enough."""
    from plotly.colors import qualitative

    if count > len(qualitative.D3):
        return "Viridis"
    ends = [(k / count, (k + 1) / count, qualitative.D3[k]) for k in range(count)]
    return [[end, colour] for low, high, colour in ends for end in (low, high)]


def _restyled(data: CodesData) -> dict[str, list[Any]]:
    return {f"marker.{key}": value for key, value in _marker(data).items()}


def _menu(name: str, buttons: list[tuple[str, str, list[Any]]], active: int = 0) -> dict[str, Any]:
    shown = [
        {"label": _plain_text(label), "method": method, "args": args}
        for label, method, args in buttons
    ]
    return MENU | {"name": name, "buttons": shown, "active": active, "showactive": True}


def _hover(rows: EncodedRows, data: CodesData) -> list[str]:
    """Return what the pointer shows at each point: row, session and time."""
    texts = []
    for row in data.rows:
        parts = [f"row {row}"]
        if rows.sessions is not None:
            parts.append(f"session {rows.session_names[rows.sessions[row]]}")
        if rows.times is not None:
            parts.append(f"time {rows.times[row]}")
        texts.append(_plain_text(", ".join(parts)))
    return texts


def _short(values: Array) -> list[float | None]:
    """Return numbers with five digits, which keep a notebook small; None for NaN."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values.astype(np.float64)]


def _plain_text(text: str) -> str:
    """Return a text without the elements of HTML that plotly would draw."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
