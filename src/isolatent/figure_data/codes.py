"""Codes as points, and codes over time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from isolatent.checks import check_integer
from isolatent.figure_data.rows import (
    Array,
    EncodedRows,
    choose_components,
    number_labels,
    sentence_of_thinning,
)
from isolatent.pairs.recordings import Recording

__all__ = ["CodesData", "OverTimeData", "codes_data", "over_time_data"]

MAX_POINTS = 20_000  # of a scatter plot
MAX_TIMES = 4_000  # rows of a time course
COLOUR_CHOICES = ("time", "session", "relatedness")


@dataclass(frozen=True)
class CodesData:
    """Codes as points, with a colour for each.

    Attributes:
        points: Codes (N, d) of the chosen components.
        names: Names of the d components.
        components: Their numbers, from 0.
        rows: Number of each point's row in the data (N,).
        colour: One value for each point: numbers, ``datetime64``, or numbers of ``categories``;
            None for no colour. Numbers may be NaN.
        colour_name: What the colour means.
        categories: Names of the categories; empty if the colour is a number or a time.
        n_rows: Number of rows that have codes, of which the points are all or some.
        thinning: What was left out, in words; empty if nothing was.
    """

    points: Array
    names: tuple[str, ...]
    components: tuple[int, ...]
    rows: Array
    colour: Array | None
    colour_name: str
    categories: tuple[str, ...]
    n_rows: int
    thinning: str


def codes_data(
    rows: EncodedRows,
    *,
    components: Any = None,
    colour: Any = None,
    colour_name: str | None = None,
    max_points: int = MAX_POINTS,
    random_state: int = 0,
) -> CodesData:
    """Return codes as points; rows without codes are left out.

    Args:
        rows: The result of :func:`encode_rows`.
        components: Numbers of the codes, from 0; None for all.
        colour: ``"time"`` (row numbers if there are no times), ``"session"``, ``"relatedness"``, or
            one value for each row: numbers, ``datetime64``, or texts and booleans, which are
            categories.
        colour_name: What the values mean.
        max_points: Of more rows, this many are drawn at random.
        random_state: Seed of that, an integer >= 0.

    Example:
        >>> from isolatent.figure_data import encode_rows
        >>> rows = encode_rows(np.random.default_rng(0).normal(size=(50, 3)))
        >>> data = codes_data(rows, components=(0, 2), colour="time", max_points=20)
        >>> data.points.shape, data.colour_name, data.thinning
        ((20, 2), 'row', '20 of 50 rows, drawn at random with seed 0')
    """
    check_integer("max_points", max_points, at_least=1)
    check_integer("random_state", random_state, at_least=0)
    chosen = choose_components(components, rows.codes.shape[1])
    values, name, categories = _colour(rows, colour, colour_name)
    points = rows.codes[:, chosen]
    usable = np.flatnonzero(np.isfinite(rows.codes).all(axis=1))
    if not len(usable):
        raise ValueError("codes must have at least one row without NaN")
    shown = usable
    if len(usable) > max_points:
        rng = np.random.default_rng(random_state)
        shown = np.sort(rng.choice(usable, max_points, replace=False))
    how = f"drawn at random with seed {random_state}"
    return CodesData(
        points[shown],
        tuple(rows.names[k] for k in chosen),
        tuple(chosen),
        shown,
        None if values is None else values[shown],
        name,
        categories,
        len(usable),
        sentence_of_thinning(len(shown), len(usable), how),
    )


def _colour(
    rows: EncodedRows, colour: Any, name: str | None
) -> tuple[Array | None, str, tuple[str, ...]]:
    """Return values, their name and the names of categories."""
    if colour is None:
        return None, "", ()
    if isinstance(colour, str):
        if colour not in COLOUR_CHOICES:
            names = ", ".join(map(repr, COLOUR_CHOICES))
            raise ValueError(
                f"colour must be {names}, one value for each row, or None, got {colour!r}"
            )
        if colour == "time":
            if rows.times is None:
                return np.arange(len(rows.codes)), name or "row", ()
            return rows.times, name or "time", ()
        if colour == "session":
            if rows.sessions is None:
                raise ValueError("groups must be given with colour='session'")
            return rows.sessions, name or "session", rows.session_names
        if rows.relatedness is None:
            raise ValueError(
                "X_pos must be given with colour='relatedness', and a model with pairing relaxed"
            )
        return rows.relatedness, name or "probability of being related", ()
    values = np.asarray(colour.detach().cpu() if hasattr(colour, "detach") else colour)
    if values.shape != (len(rows.codes),):
        raise ValueError(
            f"colour must have one value per row, shape ({len(rows.codes)},), got {values.shape}"
        )
    if values.dtype.kind in "fiuM":
        return values, name or "", ()
    if values.dtype.kind in "bUSO":
        numbers, categories = number_labels(values)
        return numbers, name or "", categories
    raise TypeError(f"colour must hold numbers, times or labels, got dtype {values.dtype}")


@dataclass(frozen=True)
class OverTimeData:
    """Codes over time, in sessions.

    Attributes:
        times: Time of each row (M,), numbers or ``datetime64``; row numbers if there are none.
        time_name: ``"time"`` or ``"row"``.
        values: Codes (M, d); rows without codes are NaN, so that lines have gaps there.
        names: Names of the d codes.
        components: Their numbers, from 0.
        rows: Number of each row in the data (M,).
        starts: First row of each unbroken stretch, as an index of ``times``.
        ends: End of each stretch, exclusive.
        stretch_sessions: Number of the session of each stretch.
        session_names: Name of each session; empty if there are none.
        n_rows: Number of rows that there were.
        thinning: What was left out, in words; empty if nothing was.
    """

    times: Array
    time_name: str
    values: Array
    names: tuple[str, ...]
    components: tuple[int, ...]
    rows: Array
    starts: Array
    ends: Array
    stretch_sessions: Array
    session_names: tuple[str, ...]
    n_rows: int
    thinning: str


def over_time_data(
    rows: EncodedRows, *, components: Any = None, max_points: int = MAX_TIMES
) -> OverTimeData:
    """Return codes over time; lines break between sessions, at jumps of time, and at NaN.

    Of many rows, those with the smallest and the largest value of each code in short intervals are
    kept, so that peaks and gaps stay.

    Args:
        rows: The result of :func:`encode_rows`.
        components: Numbers of the codes, from 0; None for all.
        max_points: About how many rows to keep.

    Example:
        >>> from isolatent.figure_data import encode_rows
        >>> codes = np.array([[0.0], [1.0], [np.nan], [3.0]])
        >>> data = over_time_data(encode_rows(codes, groups=["a", "a", "a", "b"]))
        >>> data.starts.tolist(), data.ends.tolist(), data.values[:, 0].tolist()
        ([0, 3], [3, 4], [0.0, 1.0, nan, 3.0])
    """
    check_integer("max_points", max_points, at_least=2)
    chosen = choose_components(components, rows.codes.shape[1])
    codes, count = rows.codes[:, chosen], len(rows.codes)
    read = Recording(rows.codes, groups=rows.sessions, times=rows.times)
    kept = np.arange(count)
    if count > max_points:
        kept = _extremes(codes, read.starts, read.ends, max_points)
    times = np.arange(count) if rows.times is None else rows.times
    starts = np.searchsorted(kept, read.starts)
    ends = np.searchsorted(kept, read.ends)
    sessions = np.zeros(len(starts), np.intp)
    if rows.sessions is not None:
        sessions = rows.sessions[read.starts]
    how = "the extremes of short intervals"
    return OverTimeData(
        times[kept],
        "row" if rows.times is None else "time",
        codes[kept],
        tuple(rows.names[k] for k in chosen),
        tuple(chosen),
        kept,
        starts,
        ends,
        sessions,
        rows.session_names,
        count,
        sentence_of_thinning(len(kept), count, how),
    )


def _extremes(codes: Array, starts: Array, ends: Array, most: int) -> Array:
    """Return rows with extreme values in short intervals, ends of stretches, and one NaN a gap."""
    missing = np.any(~np.isfinite(codes), axis=1, keepdims=True)[:, 0]
    gaps = np.flatnonzero(missing & ~np.r_[False, missing[:-1]])
    kept = [starts, ends - 1, gaps]
    share = most / (2 * codes.shape[1] * len(codes))  # intervals per row
    for start, end in zip(starts, ends, strict=True):
        parts = max(1, round(share * (end - start)))
        edges = np.linspace(start, end, parts + 1).astype(int)
        for low, high in pairwise(edges):
            own = np.flatnonzero(~missing[low:high]) + low
            if len(own):
                kept += [own[codes[own].argmin(axis=0)], own[codes[own].argmax(axis=0)]]
    return np.unique(np.concatenate(kept))
