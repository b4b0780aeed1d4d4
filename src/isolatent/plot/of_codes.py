"""Figures of codes: as points, over time, against factors, and along each code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isolatent.checks import check_integer
from isolatent.figure_data.codes import (
    MAX_POINTS,
    MAX_TIMES,
    CodesData,
    OverTimeData,
    codes_data,
    over_time_data,
)
from isolatent.figure_data.factors import against_factors_data
from isolatent.figure_data.rows import EncodedRows, choose_components, encode_rows, is_model
from isolatent.figure_data.traversal import TraversalData, traversal_data
from isolatent.plot.axes import as_drawn, has_third_axis, import_matplotlib, prepare_axes, remark
from isolatent.training.recording_inputs import resolve_roles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["against_factors", "codes", "over_time", "traversal"]

CYCLE = 10  # colours of matplotlib's default cycle
MAX_LEGEND = 12  # categories with a name; more are numbered on a colour bar
UNKNOWN = "0.75"  # grey of points whose colour is NaN
MAX_NUMBERS = 12  # rows and columns of a matrix with numbers in its cells
ROOM = 1.15  # between codes below each other, in units of the widest
MOST_COLUMNS = 8  # lines of a traversal
TITLE = "small"


def codes(
    model: Any,
    X: Any = None,
    *,
    colour: Any = None,
    colour_name: str | None = None,
    components: Sequence[int] | None = None,
    X_pos: Any = None,
    groups: Any = None,
    times: Any = None,
    max_gap: int = 0,
    recording: int | None = None,
    max_points: int = MAX_POINTS,
    random_state: int = 0,
    ax: Any = None,
    **style: Any,
) -> Axes:
    """Draw codes as points, in two or three dimensions.

    Args:
        model: A fitted model, codes (N, n), or the result of
            :func:`isolatent.figure_data.encode_rows`.
        X: Observations, a recording or a list of recordings; None for codes.
        colour: ``"time"`` (row numbers without times), ``"session"``, ``"relatedness"``, or one
            value for each row: numbers or times, with a colour bar, or labels, with a legend.
        colour_name: What the values mean.
        components: Two or three numbers of codes, from 0; by default the first two, or the first
            three for axes in three dimensions.
        X_pos: The positive of each row of X, for ``colour="relatedness"``.
        groups: One session id for each row.
        times: Time of each row.
        max_gap: For recordings: longest run of rows with NaN that is interpolated.
        recording: For a model with an encoder for each recording: the number of X.
        max_points: Of more rows, this many are drawn at random, and a remark says so.
        random_state: Seed of that.
        ax: Axes of matplotlib, with ``projection="3d"`` for three components; None for a new
            figure.
        **style: Passed to ``scatter``, such as ``s``, ``alpha`` or ``cmap``.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> z = np.random.default_rng(0).normal(size=(100, 2))
        >>> ax = codes(z, colour=z[:, 0], colour_name="speed", ax=Figure().subplots())
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('code 0', 'code 1')

    .. image:: gallery/codes.png
    """
    rows = encode_rows(
        model, X, X_pos=X_pos, groups=groups, times=times, max_gap=max_gap, recording=recording
    )
    n = rows.codes.shape[1]
    if components is None:
        wanted = 3 if ax is not None and has_third_axis(ax) else 2
        if n < wanted:
            hint = "; isolatent.plot.over_time draws a single code" if n == 1 else ""
            raise ValueError(f"codes must have at least {wanted} columns, got {n}{hint}")
        components = range(wanted)
    data = codes_data(
        rows,
        components=choose_components(components, n, allowed=(2, 3)),
        colour=colour,
        colour_name=colour_name,
        max_points=max_points,
        random_state=random_state,
    )
    ax = prepare_axes(ax, is_3d=len(data.components) == 3)
    _draw_points(ax, data, {"s": _size(len(data.points)), "linewidths": 0} | style)
    ax.set_xlabel(data.names[0])
    ax.set_ylabel(data.names[1])
    if len(data.names) == 3:
        ax.set_zlabel(data.names[2])
    remark(ax, data.thinning)
    drawn: Axes = ax
    return drawn


def _size(count: int) -> float:
    """Return the area of a point: smaller, the more there are."""
    return float(np.clip(4000 / count, 1.5, 16))


def _draw_points(ax: Any, data: CodesData, style: dict[str, Any]) -> None:
    style = {"rasterized": len(data.points) > 2000} | style
    if data.colour is None:
        ax.scatter(*data.points.T, **style)
        return
    if data.categories and len(data.categories) <= MAX_LEGEND:
        colours = _categorical(len(data.categories), style.pop("cmap", None))
        for k, name in enumerate(data.categories):
            own = data.points[data.colour == k]
            ax.scatter(*own.T, **({"color": [colours[k]]} | style), label=name)
        ax.legend(title=data.colour_name or None)
        return
    values = as_drawn(data.colour).astype(np.float64)
    known = np.isfinite(values)
    if not known.all():
        grey = {name: value for name, value in style.items() if name != "cmap"}
        ax.scatter(*data.points[~known].T, **grey, color=UNKNOWN, label="unknown")
        ax.legend()
    drawn = ax.scatter(*data.points[known].T, c=values[known], **style)
    bar = ax.figure.colorbar(drawn, ax=ax, label=data.colour_name)
    if data.colour.dtype.kind == "M":
        _as_dates(bar.ax.yaxis)


def _categorical(count: int, cmap: Any) -> list[Any]:
    """Return a colour for each category: those of the user's cycle, as far as they differ."""
    if cmap is None and count <= CYCLE:
        return [f"C{k}" for k in range(count)]
    colours = import_matplotlib("pyplot").get_cmap(cmap)
    return [colours(k / max(1, count - 1)) for k in range(count)]


def _as_dates(axis: Any) -> None:
    dates = import_matplotlib("dates")
    locator = dates.AutoDateLocator()
    axis.set_major_locator(locator)
    axis.set_major_formatter(dates.ConciseDateFormatter(locator))


def over_time(
    model: Any,
    X: Any = None,
    *,
    components: Sequence[int] | None = None,
    groups: Any = None,
    times: Any = None,
    max_gap: int = 0,
    recording: int | None = None,
    max_points: int = MAX_TIMES,
    ax: Any = None,
    **style: Any,
) -> Axes:
    """Draw codes over time, one below the other, with a colour for each session.

    Lines break between sessions, at jumps of time, and where rows have no codes. A single code is
    drawn in its own unit.

    Args:
        model: A fitted model, codes (N, n), or the result of
            :func:`isolatent.figure_data.encode_rows`.
        X: A recording or a list of recordings; None for codes.
        components: Numbers of the codes, from 0; all by default.
        groups: One session id for each row.
        times: Time of each row; row numbers by default.
        max_gap: Longest run of rows with NaN that is interpolated.
        recording: For a model with an encoder for each recording: the number of X.
        max_points: Of more rows, about this many with extreme values are drawn, and a remark says
            so.
        ax: Axes of matplotlib; None for a new figure.
        **style: Passed to ``plot``, such as ``linewidth``.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> t = np.arange(100) / 10
        >>> ax = over_time(np.stack([np.sin(t), np.cos(t)], 1), times=t, ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_yticklabels()], len(ax.lines)
        (['code 0', 'code 1'], 2)

    .. image:: gallery/over_time.png
    """
    rows = encode_rows(model, X, groups=groups, times=times, max_gap=max_gap, recording=recording)
    data = over_time_data(rows, components=components, max_points=max_points)
    ax = prepare_axes(ax)
    places, middles = _places(data)
    several = len(data.session_names) > 1
    named: set[int] = set()
    for start, end, session in zip(data.starts, data.ends, data.stretch_sessions, strict=True):
        colour = {"color": f"C{session % CYCLE}" if several else "C0"}
        for k, place in enumerate(places):
            (line,) = ax.plot(
                data.times[start:end],
                data.values[start:end, k] - middles[k] + place,
                **({"linewidth": 1.0} | colour | style),
            )
            if several and session not in named and len(named) < MAX_LEGEND:
                line.set_label(data.session_names[session])
                named.add(int(session))
    if several:
        left = len(data.session_names) - len(named)
        # Above the lines: there is no free place among them.
        ax.legend(
            title=f"session ({left} more)" if left else None,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.06 if data.thinning else 1.0),
            ncols=min(4, len(named)),
            frameon=False,
        )
    if len(places) > 1:
        ax.set_yticks(places, data.names)
    else:
        ax.set_ylabel(data.names[0])
    ax.set_xlabel(data.time_name)
    remark(ax, data.thinning)
    return ax


def _places(data: OverTimeData) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return where each code is drawn, and which of its values is drawn there; 0 for one code."""
    count = data.values.shape[1]
    if count == 1:
        return np.zeros(1), np.zeros(1)
    known = data.values[np.isfinite(data.values).all(axis=1)]
    if not len(known):
        raise ValueError("codes must have at least one row without NaN")
    middles = (known.min(axis=0) + known.max(axis=0)) / 2
    widest = float(np.ptp(known, axis=0).max()) or 1.0
    return -ROOM * widest * np.arange(count), middles


def against_factors(
    model: Any,
    X: Any = None,
    *,
    factors: Any,
    factor_names: Sequence[str] | None = None,
    method: str = "pearson",
    groups: Any = None,
    times: Any = None,
    max_gap: int = 0,
    recording: int | None = None,
    ax: Any = None,
    **style: Any,
) -> Axes:
    """Draw the absolute correlation of each known factor with each code.

    Codes are in the order of the factors that the best one-to-one assignment gives them. Each label
    of a factor has the share of its variance that a linear map of all codes predicts.

    Args:
        model: A fitted model, codes (N, n), or the result of
            :func:`isolatent.figure_data.encode_rows`.
        X: Observations; None for codes.
        factors: Factors (N, F); rows with NaN are left out.
        factor_names: Their names; by default the columns of a data frame, or numbers.
        method: ``"pearson"``, or ``"spearman"`` for ranks.
        groups: One session id for each row.
        times: Time of each row.
        max_gap: For recordings: longest run of rows with NaN that is interpolated.
        recording: For a model with an encoder for each recording: the number of X.
        ax: Axes of matplotlib; None for a new figure.
        **style: Passed to ``imshow``, such as ``cmap``.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> z = np.random.default_rng(0).normal(size=(100, 2))
        >>> ax = against_factors(-z[:, ::-1], factors=z, ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_xticklabels()]
        ['code 1', 'code 0']

    .. image:: gallery/against_factors.png
    """
    rows = encode_rows(model, X, groups=groups, times=times, max_gap=max_gap, recording=recording)
    data = against_factors_data(rows, factors, factor_names=factor_names, method=method)
    ax = prepare_axes(ax)
    shown = np.abs(data.correlations)[:, data.order]
    image = ax.imshow(shown, **({"vmin": 0.0, "vmax": 1.0, "aspect": "equal"} | style))
    if max(shown.shape) <= MAX_NUMBERS:
        _write_numbers(ax, image, shown)
    labels = [
        name if np.isnan(r2) else f"{name} (R² {r2:.2f})"
        for name, r2 in zip(data.factor_names, data.r2, strict=True)
    ]
    ax.set_yticks(range(len(labels)), labels)
    names = [data.code_names[k] for k in data.order]
    ax.set_xticks(range(len(names)), names, rotation=90 if len(names) > 4 else 0)
    known = "" if np.isnan(data.linear_r2) else f", R² {data.linear_r2:.3f}"
    rank = "rank " if method == "spearman" else ""
    ax.set_title(f"MCC {data.mcc:.3f}{known}", fontsize=TITLE)
    ax.figure.colorbar(image, ax=ax, label=f"|{rank}correlation|")
    return ax


def _write_numbers(ax: Any, image: Any, shown: np.ndarray[Any, Any]) -> None:
    """Write the number into each cell, dark on light or light on dark."""
    for (row, column), value in np.ndenumerate(shown):
        red, green, blue, _ = image.cmap(image.norm(value))
        light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        colour = "black" if light else "white"
        text = f"{value:.2f}"
        ax.text(column, row, text, ha="center", va="center", color=colour, fontsize="small")


def traversal(
    model: Any,
    X: Any,
    *,
    component: int | None = None,
    column_names: Sequence[str] | None = None,
    groups: Any = None,
    times: Any = None,
    max_gap: int = 0,
    recording: int | None = None,
    random_state: int = 0,
    ax: Any = None,
    **style: Any,
) -> Axes:
    """Draw what moving along codes does to the observations, through a decoder.

    Of columns, all codes are drawn as a matrix of the changes from the 5th to the 95th percentile
    of a code, and one ``component`` as a line for each of the columns that change most. Of images,
    a row of images is drawn for each code. The title has the share of the variance of held-out
    observations that the decoder explains: where it is low, the figure says little.

    Args:
        model: A fitted model, or the result of :func:`isolatent.figure_data.encode_rows`, or codes
            (N, n). The decoder of a model that has one is used; else a small perceptron is fitted.
        X: Observations (N, ...), a recording or a list of recordings.
        component: Number of the code to move, from 0; None for all.
        column_names: Names of the columns; by default those of a data frame, or numbers.
        groups: One session id for each row.
        times: Time of each row.
        max_gap: For recordings: longest run of rows with NaN that is interpolated.
        recording: For a model with an encoder for each recording: the number of X.
        random_state: Seed of the decoder.
        ax: Axes of matplotlib; None for a new figure.
        **style: Passed to ``imshow``, or to ``plot`` for lines.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> z = np.random.default_rng(0).normal(size=(400, 2))
        >>> x = np.stack([z[:, 0], z[:, 0] + z[:, 1], z[:, 1]], axis=1)
        >>> ax = traversal(z, x, component=0, ax=Figure().subplots())
        >>> [line.get_label() for line in ax.lines]
        ['column 0', 'column 1', 'column 2']

    .. image:: gallery/traversal.png
    """
    X, groups, times = resolve_roles(X, groups, times, getattr(model, "_roles", {}))
    rows = model
    if not isinstance(model, EncodedRows):
        rows = encode_rows(
            model,
            X if is_model(model) else None,
            groups=groups,
            times=times,
            max_gap=max_gap,
            recording=recording,
        )
    chosen = None if component is None else [check_integer("component", component, at_least=0)]
    data = traversal_data(
        rows,
        X,
        components=chosen,
        column_names=column_names,
        decode=getattr(model, "decode", None),
        random_state=random_state,
    )
    ax = prepare_axes(ax)
    if data.is_image:
        _draw_strips(ax, data, style)
    elif component is None:
        _draw_effects(ax, data, style)
    else:
        _draw_lines(ax, data, style)
    ax.set_title(f"decoder explains {data.explained:.0%} of the variance", fontsize=TITLE)
    return ax


def _draw_lines(ax: Any, data: TraversalData, style: dict[str, Any]) -> None:
    """Draw the columns that change most, as deviations from the middle of the code."""
    along = data.observations[0]
    deviations = (along - along[len(along) // 2]) / data.spread
    most = np.argsort(-np.abs(data.effects[0]), kind="stable")[:MOST_COLUMNS]
    for k in np.sort(most):
        ax.plot(data.values[0], deviations[:, k], **({"label": data.column_names[k]} | style))
    ax.set_xlabel(data.names[0])
    ax.set_ylabel("change [standard deviations]")
    left = along.shape[1] - len(most)
    ax.legend(
        title=f"{len(most)} of {along.shape[1]} columns" if left else None,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
    )


def _draw_effects(ax: Any, data: TraversalData, style: dict[str, Any]) -> None:
    """Draw the change of each column along each code."""
    largest = float(np.abs(data.effects).max()) or 1.0
    usual = {"vmin": -largest, "vmax": largest, "cmap": "RdBu_r", "aspect": "auto"}
    image = ax.imshow(data.effects, **(usual | style))
    ax.set_yticks(range(len(data.names)), data.names)
    count = len(data.column_names)
    if count <= 2 * MAX_NUMBERS:
        ax.set_xticks(range(count), data.column_names, rotation=90 if count > 4 else 0)
    else:
        ax.set_xlabel("column")
    ax.figure.colorbar(image, ax=ax, label="change [standard deviations]")


def _draw_strips(ax: Any, data: TraversalData, style: dict[str, Any]) -> None:
    """Draw a row of images for each code."""
    images = data.observations
    if images.ndim == 5:  # channels come first
        images = np.moveaxis(images, 2, -1)
    if images.ndim == 5 and images.shape[-1] not in (3, 4):
        images = images.mean(axis=-1)
    height, width = images.shape[2:4]
    rows = [np.concatenate(list(row), axis=1) for row in images]
    picture = np.concatenate(rows, axis=0)
    low, high = float(picture.min()), float(picture.max())
    if picture.ndim == 3:
        top = 255.0 if high > 2 else 1.0
        ax.imshow(np.clip(picture / top, 0, 1), **style)
    else:
        ax.imshow(picture, **({"cmap": "gray", "vmin": low, "vmax": high} | style))
    ax.set_yticks((np.arange(len(rows)) + 0.5) * height - 0.5, data.names)
    ends = [0.5 * width - 0.5, (images.shape[1] - 0.5) * width - 0.5]
    ax.set_xticks(ends, ["5 %", "95 %"])
    ax.set_xlabel("percentile of the code")
