"""Recordings: sessions, missing rows, time stamps and windows of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from torch import Tensor

from isolatent.checks import check_integer
from isolatent.pairs.arrays import read_rows

__all__ = ["Recording", "check_window", "rows_between", "runs_of", "stack_recordings"]

Array: TypeAlias = npt.NDArray[Any]

TOLERANCE = 0.5  # of the median interval, by which the time between two rows may differ
TIME_ROUNDING = 1e-6  # of the median interval: differences of time stamps are rounded
NANOSECONDS = {"days": 86_400e9, "hours": 3_600e9, "minutes": 60e9, "seconds": 1e9}


class Recording:
    """Rows in their order, and which of them belong together.

    A session is an unbroken run of one value in ``groups``, without an interval of more than 1.5
    times the median interval. A row with NaN is missing, unless it is interpolated. An array in
    memory is searched for NaN; of a memory map no row is read before it is needed.

    Args:
        x: The rows (T, ...).
        groups: One session id for each row; by default all are one session.
        times: Time of each row, numbers or ``datetime64``, increasing within each session.
        max_gap: Longest run of missing rows that is interpolated linearly, in time or in rows.

    Attributes:
        x: The rows, with those interpolated that could be.
        starts: First row of each session.
        ends: End of each session, exclusive.
        usable: Which rows are not missing (T,), or None for all.
        n_missing: Number of rows that are missing.
        n_interpolated: Number of rows that were interpolated.
        times: Times (T,) as floats, from 0, or None.
        origin: The time at which they are 0; of ``datetime64``, in nanoseconds.
        interval: Median interval between rows, or None without times.
        has_dates: Whether times were ``datetime64``.

    Example:
        >>> x = np.array([[0.0], [np.nan], [2.0], [np.nan], [np.nan], [5.0]])
        >>> recording = Recording(x, max_gap=1)
        >>> recording.x[:, 0].tolist(), recording.usable.tolist()
        ([0.0, 1.0, 2.0, nan, nan, 5.0], [True, True, True, False, False, True])
        >>> Recording(x, times=[0, 1, 2, 7, 8, 9]).starts.tolist()
        [0, 3]
    """

    def __init__(
        self,
        x: Array,
        *,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
    ) -> None:
        check_integer("max_gap", max_gap, at_least=0)
        self.x = x
        self._breaks = np.zeros(len(x) - 1, dtype=bool)  # between a row and the next one
        if groups is not None:
            ids = np.asarray(groups)
            if ids.shape != (len(x),):
                raise ValueError(
                    f"groups must have one id per row of x, shape ({len(x)},), got {ids.shape}"
                )
            self._breaks |= ids[1:] != ids[:-1]
        self.times, self.interval, self.origin = None, None, 0.0
        self.has_dates = times is not None and np.asarray(times).dtype.kind == "M"
        if times is not None:
            self.times, self.origin = _check_times(times, len(x), self._breaks)
            steps = np.diff(self.times)
            inside = steps[~self._breaks]
            self.interval = float(np.median(inside)) if len(inside) else 1.0
            self._breaks |= steps > (1 + TOLERANCE + TIME_ROUNDING) * self.interval
        self.starts, self.ends = runs_of(np.ones(len(x), dtype=bool), self._breaks)
        self.usable: Array | None = None
        self.n_missing = self.n_interpolated = 0
        self._run_starts, self._run_ends = self.starts, self.ends
        if x.dtype.kind == "f" and not isinstance(x, np.memmap):
            missing = np.any(np.isnan(x.reshape(len(x), -1)), axis=1, keepdims=True)[:, 0]
            if missing.any():
                self._set_missing(missing, max_gap)

    def _set_missing(self, missing: Array, max_gap: int) -> None:
        first, end = runs_of(missing, self._breaks)
        if max_gap > 0:
            before, after = (np.r_[True, self._breaks], np.r_[self._breaks, True])
            short = (end - first <= max_gap) & ~before[first] & ~after[end - 1]
            self._interpolate(first[short], end[short])
            filled = rows_between(first[short], end[short])
            missing[filled] = False
            self.n_interpolated = len(filled)
        self.n_missing = int(missing.sum())
        if self.n_missing:
            self.usable = ~missing
            self._run_starts, self._run_ends = runs_of(self.usable, self._breaks)

    def _interpolate(self, first: Array, end: Array) -> None:
        """Replace NaN in runs of rows by the line between the rows before and after."""
        rows = rows_between(first, end)
        left, right = (np.repeat(side, end - first) for side in (first - 1, end))
        at = np.arange(len(self.x)) if self.times is None else self.times
        weight = (at[rows] - at[left]) / (at[right] - at[left])
        weight = weight.reshape(-1, *[1] * (self.x.ndim - 1)).astype(self.x.dtype)
        line = (1 - weight) * self.x[left] + weight * self.x[right]
        self.x = np.array(self.x)  # the array of the caller stays as it is
        self.x[rows] = np.where(np.isnan(self.x[rows]), line, self.x[rows])

    @property
    def spacing(self) -> tuple[float, str]:
        """The time from a row to the next, and its unit: rows, where there are no time stamps.

        That of dates is the longest unit, from days to seconds, which the time is not shorter than.

        Example:
            >>> hourly = np.arange("2026-01-01", "2026-01-02", dtype="datetime64[h]")
            >>> Recording(np.zeros((24, 1)), times=hourly).spacing
            (1.0, 'hours')
            >>> Recording(np.zeros((3, 1)), times=[0.0, 0.5, 1.0]).spacing
            (0.5, 'units of time')
        """
        if self.interval is None:
            return 1.0, "rows"
        if not self.has_dates:
            return self.interval, "units of time"
        unit = next((u for u, size in NANOSECONDS.items() if self.interval >= size), "seconds")
        return self.interval / NANOSECONDS[unit], unit

    @property
    def is_regular(self) -> bool:
        """Whether any two rows of a session may be a pair: none is missing, and no times differ."""
        return self.usable is None and self.times is None

    def may_pair(self, anchor: Array, positive: Array) -> Array:
        """Return which rows of a session may be pairs: none is missing, and the times fit.

        The time between the rows of a pair is their number of rows apart times the median interval,
        up to half of that interval.
        """
        anchor, positive = np.broadcast_arrays(anchor, positive)
        fits = np.ones(anchor.shape, dtype=bool)
        if self.usable is not None:
            fits &= self.usable[anchor] & self.usable[positive]
        if self.times is not None and self.interval is not None:
            passed = (self.times[positive] - self.times[anchor]) / self.interval
            fits &= np.abs(passed - (positive - anchor)) <= TOLERANCE + TIME_ROUNDING
        return fits

    def describe_missing(self) -> str:
        """Return how many rows were left out and interpolated, in words; empty if none was."""
        parts = []
        if self.n_missing:
            parts.append(f"{self.n_missing} of {len(self.x)} rows hold NaN and are left out")
        if self.n_interpolated:
            parts.append(f"{self.n_interpolated} rows with NaN were interpolated")
        return "; ".join(parts)

    def read(
        self,
        rows: Array,
        window: int = 1,
        starts: Array | None = None,
        ends: Array | None = None,
    ) -> Tensor:
        """Return rows as a tensor, or the stacked rows (N, window · m) of windows around them.

        A window ends where its session does, and at missing rows; its outermost row is repeated.

        Args:
            rows: Row numbers (N,); none of them is missing.
            window: Odd number of rows in a window.
            starts: First rows of spans that windows must not leave either.
            ends: Ends of these spans, each of ``rows`` being in one of them.

        Example:
            >>> recording = Recording(np.arange(5.0)[:, None], groups=[0, 0, 1, 1, 1])
            >>> recording.read(np.array([1, 3]), window=3)
            tensor([[0., 1., 1.],
                    [2., 3., 4.]], dtype=torch.float64)
        """
        if window == 1:
            return read_rows("x", self.x, rows)
        run = np.searchsorted(self._run_starts, rows, side="right") - 1
        first, last = self._run_starts[run], self._run_ends[run] - 1
        if starts is not None and ends is not None:
            span = np.searchsorted(starts, rows, side="right") - 1
            first, last = np.maximum(first, starts[span]), np.minimum(last, ends[span] - 1)
        around = rows[:, None] + np.arange(-(window // 2), window // 2 + 1)
        index = np.clip(around, first[:, None], last[:, None])
        return read_rows("x", self.x, index.ravel()).reshape(len(rows), -1)


def check_window(window: Any) -> int:
    """Return ``window`` if it is an odd number of rows.

    Example:
        >>> check_window(4)
        Traceback (most recent call last):
        ValueError: window must be an odd number of rows, centred on one of them, got 4
    """
    window = check_integer("window", window, at_least=1)
    if window % 2 == 0:
        raise ValueError(
            f"window must be an odd number of rows, centred on one of them, got {window}"
        )
    return window


def runs_of(flags: Array, breaks: Array) -> tuple[Array, Array]:
    """Return the first rows and the ends of unbroken runs of True.

    Args:
        flags: Booleans (T,).
        breaks: Whether there is a break between a row and the next one (T - 1,).

    Example:
        >>> runs_of(np.array([True, True, True, False]), np.array([True, False, False]))
        (array([0, 1]), array([1, 3]))
    """
    goes_on = flags[1:] & flags[:-1] & ~breaks
    starts = np.flatnonzero(flags & ~np.r_[False, goes_on])
    return starts, np.flatnonzero(flags & ~np.r_[goes_on, False]) + 1


def rows_between(starts: Array, ends: Array) -> Array:
    """Return all rows of spans, in order.

    Example:
        >>> rows_between(np.array([0, 5]), np.array([2, 8]))
        array([0, 1, 5, 6, 7])
    """
    lengths = ends - starts
    return np.repeat(ends - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def stack_recordings(
    recordings: Sequence[Any], times: Any = None
) -> tuple[Array, Array, Array | None]:
    """Return recordings with the same columns as one array, with their numbers and their times.

    Args:
        recordings: Arrays (T_k, ...).
        times: None, or the times of each recording.

    Example:
        >>> x, groups, _ = stack_recordings([np.zeros((2, 3)), np.ones((1, 3))])
        >>> x.shape, groups.tolist()
        ((3, 3), [0, 0, 1])
    """
    arrays = [one.detach().cpu().numpy() if isinstance(one, Tensor) else one for one in recordings]
    arrays = [np.asarray(one) for one in arrays]
    for k, array in enumerate(arrays):
        if array.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                f"X must be recordings with the same columns, but recording 0 has "
                f"{_columns(arrays[0])} and recording {k} has {_columns(array)}; "
                "separate=None or True gives each an encoder, if rows are vectors"
            )
    groups = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    if times is not None:
        if not isinstance(times, list | tuple) or len(times) != len(arrays):
            raise ValueError(
                f"times must be a list of {len(arrays)} arrays, one for each recording, got "
                f"{type(times).__name__} of length {len(times)}"
            )
        for k, (one, array) in enumerate(zip(times, arrays, strict=True)):
            if np.shape(one) != (len(array),):
                raise ValueError(
                    f"times must have one time per row, but recording {k} has {len(array)} rows "
                    f"and times of shape {np.shape(one)}"
                )
        times = np.concatenate([np.asarray(one) for one in times])
    return np.concatenate(arrays), groups, times


def _columns(array: Array) -> str:
    return f"{array.shape[1]}" if array.ndim == 2 else f"shape {array.shape[1:]}"


def _check_times(times: ArrayLike, n_rows: int, breaks: Array) -> tuple[Array, int | float]:
    """Return times (T,) as floats, the smallest of which is 0, and the smallest as given."""
    values = np.asarray(times)
    if values.dtype.kind not in "fiuM":
        raise TypeError(f"times must be numbers or datetime64, got dtype {values.dtype}")
    if values.shape != (n_rows,):
        raise ValueError(
            f"times must have one time per row of x, shape ({n_rows},), got {values.shape}"
        )
    invalid = np.flatnonzero(~np.isfinite(values))
    if len(invalid):
        row = invalid[0]
        raise ValueError(f"times must be finite, got {values[row]} in row {row}")
    if values.dtype.kind == "M":
        values = values.astype("datetime64[ns]").astype(np.int64)
    if values.dtype.kind in "iu":
        values = values.astype(np.int64)
    later = (values - values.min()).astype(np.float64)  # exact before it is rounded
    wrong = np.flatnonzero((np.diff(values) <= 0) & ~breaks)
    if len(wrong):
        row = wrong[0] + 1
        given = np.asarray(times)
        raise ValueError(
            f"times must increase within each session, got {given[row]} in row {row} after "
            f"{given[row - 1]}"
        )
    return later, values.min().item()
