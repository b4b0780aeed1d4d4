"""Codes of rows as figures: the explorer, time courses, and what a decoder makes of each code."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from isolatent.experiments.latent_traversal import encode_png
from isolatent.figure_data import (
    EncodedRows,
    OverTimeData,
    TraversalData,
    codes_data,
    over_time_data,
)
from isolatent.report import figures
from isolatent.report.content import Block, Explorer, Figures, Strip, Strips, clean
from isolatent.report.page import Section

__all__ = ["codes_blocks", "factor_lines_blocks", "over_time_blocks"]

MAX_EXPLORED = 4000  # of the explorer: more hide each other, and slow a selection down
MAX_IN_SPACE = 2000  # where the nearest points hide those behind them
MAX_COLUMNS = 40  # to colour by
MAX_CURVES = 10  # over time
MAX_CHANGED = 60  # columns in the matrix of what each code changes
TRUSTED = 0.5  # share of variance, from which on a decoder says much
CONTRAST = (0.5, 99.5)  # percentiles of pixels that are black and white
MISSING = 255  # in place of a missing value among 255 levels


def codes_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the explorer of codes, and the distribution of each."""
    rows = section.rows
    if rows is None or not np.isfinite(rows.codes).all(axis=1).any():
        return
    shown = codes_data(rows, max_points=MAX_EXPLORED)
    colourings = [_colouring(*one, shown.rows) for one in _colour_columns(rows, section.columns)]
    data: dict[str, Any] = {
        "kind": "explorer",
        "names": [clean(name) for name in rows.names],
        "points": [figures.packed(column) for column in shown.points.T],
        "rows": figures.packed(shown.rows),
        "colourings": colourings,
    }
    if rows.times is not None:
        data["times"] = [_plain(time) for time in rows.times[shown.rows]]
    caption = f"{len(shown.rows):,} rows."
    if shown.thinning:
        data["all"] = _levels(rows.codes)
        caption = f"{shown.thinning}; the shading is the density of all {shown.n_rows:,} rows."
    if len(shown.rows) > MAX_IN_SPACE and len(rows.names) > 2:
        data["most_in_space"] = MAX_IN_SPACE
        caption += f" In space at most {MAX_IN_SPACE:,} of them are drawn."
    caption += (
        " Choose axes and colour above. Select with the box or the lasso of the toolbar: the other "
        "views show the same rows."
    )
    count = len(rows.names)
    description = (
        f"Scatter plot of {len(shown.rows)} rows with {count} recovered "
        f"factor{'s' * (count > 1)}. {_describe_ranges(rows.codes)}"
    )
    yield Explorer(f"{anchor}-codes", caption, description, data)


def _describe_ranges(codes: Any) -> str:
    low, high = np.nanmin(codes, axis=0), np.nanmax(codes, axis=0)
    listed = (
        f"code {k} from {low[k]:.3g} to {high[k]:.3g}" for k in range(min(len(low), MAX_CURVES))
    )
    return f"Ranges: {', '.join(listed)}."


def _colour_columns(
    rows: EncodedRows, columns: Mapping[str, Any]
) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Yield name, values and categories of everything that codes can be coloured by."""
    choices: list[tuple[str, Any]] = [("row" if rows.times is None else "time", "time")]
    choices += [("session", "session")] if rows.sessions is not None else []
    choices += [("relatedness", "relatedness")] if rows.relatedness is not None else []
    choices += [*columns.items()][:MAX_COLUMNS]
    for name, colour in choices:
        found = codes_data(rows, colour=colour, colour_name=name, max_points=len(rows.codes))
        values = np.full(len(rows.codes), np.nan)
        values[found.rows] = _numbers(found.colour)
        yield name, values, found.categories
    for k, name in enumerate(rows.names):
        yield name, rows.codes[:, k], ()


def _numbers(values: Any) -> Any:
    """Return numbers; times as seconds since the first."""
    array = np.asarray(values)
    if array.dtype.kind == "M":
        return (array - np.nanmin(array)) / np.timedelta64(1, "s")
    return array.astype(np.float64)


def _colouring(name: str, values: Any, categories: tuple[str, ...], shown: Any) -> dict[str, Any]:
    """Return the colours of the shown rows, in 255 levels between the extremes."""
    chosen = np.asarray(values, dtype=np.float64)[shown]
    if 0 < len(categories) < MISSING:
        coded, low, high = np.where(np.isfinite(chosen), chosen, MISSING), 0.0, 1.0
    else:
        coded, low, high = _quantised(chosen)
    return {
        "name": clean(name),
        "labels": [clean(label) for label in categories] if len(categories) < MISSING else [],
        "values": _bytes(coded),
        "low": low,
        "high": high,
    }


def _levels(codes: Any) -> dict[str, Any]:
    """Return all codes in 255 levels, for their density."""
    known = codes[np.isfinite(codes).all(axis=1)]
    columns = [_quantised(column) for column in known.T]
    return {
        "codes": [_bytes(coded) for coded, _, _ in columns],
        "low": [low for _, low, _ in columns],
        "high": [high for _, _, high in columns],
    }


def _quantised(values: Any) -> tuple[Any, float, float]:
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    span = (high - low) or 1.0
    levels = np.rint((MISSING - 1) * (np.nan_to_num(values, nan=low) - low) / span)
    return np.where(np.isfinite(values), levels, MISSING), low, high


def _bytes(values: Any) -> dict[str, str]:
    data = np.ascontiguousarray(values, dtype=np.uint8).tobytes()
    return {"dtype": "u1", "bdata": base64.b64encode(data).decode()}


def over_time_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the codes of a recording over time, with breaks between sessions."""
    rows = section.rows
    if rows is None or not section.is_recording:
        return
    count = min(len(rows.names), MAX_CURVES)
    data = over_time_data(rows, components=[*range(count)])
    x, values, sessions = _with_gaps(data)
    figure = figures.curves_over(
        f"{anchor}-time",
        "Factors over time",
        x,
        [(name, figures.finite(column)) for name, column in zip(data.names, values, strict=True)],
        data.time_name,
        sessions if len(sessions) > 1 else (),
        f"{anchor}-codes",
    )
    caption = "Each recovered factor over time."
    if data.session_names:
        caption += f" {len(data.session_names)} sessions; lines break between them."
    if len(rows.names) > count:
        caption += f" The first {count} of {len(rows.names)} factors."
    if data.thinning:
        caption += f" Drawn are {data.thinning}."
    caption += " Rows that are selected above are marked; drag here to select a stretch of time."
    yield Figures(figure.key, caption, (figure,), "single")


def _with_gaps(
    data: OverTimeData,
) -> tuple[list[Any], list[list[float]], list[tuple[str, int, int]]]:
    """Return times and values with a missing one after each stretch, and where sessions are."""
    x: list[Any] = []
    values: list[list[float]] = [[] for _ in data.names]
    sessions: list[tuple[str, int, int]] = []
    last = -1
    for start, end, session in zip(data.starts, data.ends, data.stretch_sessions, strict=True):
        if end <= start:
            continue
        first = len(x)
        x += [*map(_plain, data.times[start:end]), _plain(data.times[end - 1])]
        for column, part in zip(values, data.values[start:end].T, strict=True):
            column += [*part.tolist(), float("nan")]
        if session == last:  # another stretch of the same session
            name, first, _ = sessions.pop()
        else:
            name = data.session_names[session] if data.session_names else ""
        sessions.append((name, first, len(x)))
        last = session
    return x, values, sessions


def _plain(time: Any) -> Any:
    return str(time) if isinstance(time, np.datetime64) else time.item()


def factor_lines_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield what a decoder changes along each code: lines of columns, and a matrix of effects."""
    data = section.changes
    if data is None:
        return
    if data.is_image:
        yield _image_strips(data, anchor)
        return
    largest = np.abs(data.effects).max(axis=0)
    order = np.sort(np.argsort(-largest, kind="stable")[:MAX_CHANGED])
    names = [data.column_names[k] for k in order]
    span = float(largest.max()) or 1.0
    matrix = figures.signed_map(
        f"{anchor}-effects",
        "Change of each column along each factor",
        data.effects[:, order].tolist(),
        ("column", "recovered factor"),
        data.names,
        names,
        span,
        "standard deviations",
    )
    panels = []
    for k, name in enumerate(data.names[:MAX_CURVES]):
        top = np.argsort(-np.abs(data.effects[k]), kind="stable")[:6]
        along = data.values[k]
        panels.append(
            figures.named_lines(
                f"{anchor}-change{k + 1}",
                f"Along {name}",
                [
                    (data.column_names[c], [*zip(along, data.observations[k][:, c], strict=True)])
                    for c in top
                ],
                (name, "decoded value"),
            )
        )
    caption = _describe_decoder(data)
    if len(order) < len(data.column_names):
        caption += f" The {len(order)} columns that change most, of {len(data.column_names)}."
    yield Figures(f"{anchor}-effects", caption, (matrix,), "single")
    caption = "The columns that change most along each factor, up to six."
    if len(data.names) > MAX_CURVES:
        caption += f" The first {MAX_CURVES} of {len(data.names)} factors."
    yield Figures(f"{anchor}-changes", caption, tuple(panels))


def _describe_decoder(data: TraversalData) -> str:
    poor = "" if data.explained >= TRUSTED else ": it says little about what the factors do"
    how, which = f"A decoder fitted to {data.n_rows:,} rows", "held-out"
    if not data.n_rows:  # perhaps trained on the rows that are shown
        how, which = "The model’s own decoder", "these"
    return (
        f"{how} explains {max(0.0, data.explained):.0%} of the variance of {which} "
        f"observations{poor}. Each factor moves from its 5th to its 95th percentile; the others "
        "stay at those of a row in the middle."
    )


def _image_strips(data: TraversalData, anchor: str) -> Strips:
    """Return a row of decoded images for each code, all with the same contrast."""
    images = data.observations
    if images.ndim == 4:  # without channels
        images = images[:, :, None]
    if images.shape[2] not in (1, 3):
        images = images.mean(axis=2, keepdims=True)
    low, high = np.percentile(images, CONTRAST)
    levels = np.clip((images - low) / ((high - low) or 1.0), 0.0, 1.0)
    pixels = np.rint(255 * levels).astype(np.uint8)
    count, steps, channels, height, width = pixels.shape
    # (code, step, channel, row, column) to one image of all steps for each code
    rows = pixels.transpose(0, 3, 1, 4, 2).reshape(count, height, steps * width, channels)
    strips = tuple(
        Strip(name.capitalize(), base64.b64encode(encode_png(row)).decode(), steps * width, height)
        for name, row in zip(data.names, rows, strict=True)
    )
    return Strips(f"{anchor}-effects", _describe_decoder(data), strips, steps)
