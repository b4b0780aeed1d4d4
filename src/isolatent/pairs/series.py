"""Pairs from recordings."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from isolatent.checks import IsolatentWarning, check_generator, check_integer, check_real
from isolatent.pairs.arrays import as_observations, draw_distinct
from isolatent.pairs.recordings import Recording, check_window, rows_between
from isolatent.pairs.source import SplitError

__all__ = ["SeriesPairs"]


class SeriesPairs:
    """Pairs from a recording: a row and one a little later, within the same session.

    Anchors are uniform over all rows that have a positive, and distinct within a batch unless there
    are fewer than the batch holds; the lag is uniform over the lags of the window that stay inside
    the session. A session is an unbroken run of one value in ``groups``.

    Rows with NaN are in no pair; a warning says how many are left out. With ``times``, the time
    between the rows of a pair is its lag times the median interval, up to half of that interval.

    Args:
        x: The recording (T, ...), NumPy or torch; memory-mapped arrays may exceed the memory, as
            only the rows of each batch are read. Rows of a memory map must not hold NaN.
        lag: The longest lag in steps, or the shortest and the longest. A session that is too short
            for the longest lag takes part with the lags that fit into it; if all are, a warning
            says so.
        groups: One session id for each of the T rows; by default all are one session.
        times: Time of each row, which increases within each session. An interval of more than 1.5
            times the median ends a session.
        max_gap: Longest run of rows with NaN that is interpolated linearly.
        window: Odd number w of rows that make up an observation, centred on its row. Observations
            are the stacked rows (w · m,). Windows end with their session and at rows left out,
            where the outermost row is repeated.

    Attributes:
        shortest: The shortest lag.
        longest: The longest lag.
        recording: The :class:`isolatent.pairs.Recording`.

    Example:
        >>> recording = np.arange(10.0)[:, None]
        >>> pairs = SeriesPairs(recording, lag=2, groups=[0] * 5 + [1] * 5)
        >>> x, x_pos = pairs.sample(100, torch.Generator().manual_seed(0))
        >>> sorted({int(lag) for lag in x_pos - x}), bool(((x < 5) == (x_pos < 5)).all())
        ([1, 2], True)
        >>> pairs = SeriesPairs(recording, times=[0, 1, 2, 3, 4, 7, 8, 9, 10, 11], window=3)
        >>> pairs.all()[1][3:5].tolist()
        [[3.0, 4.0, 4.0], [5.0, 6.0, 7.0]]
    """

    def __init__(
        self,
        x: ArrayLike | Tensor,
        lag: int | Sequence[int] = 1,
        groups: ArrayLike | None = None,
        *,
        times: ArrayLike | None = None,
        max_gap: int = 0,
        window: int = 1,
    ) -> None:
        x = as_observations("x", x, missing=True)
        lags = lag if isinstance(lag, list | tuple) else (1, lag)
        if len(lags) != 2:
            raise ValueError(
                f"lag must be an integer, or the shortest and the longest lag, got {lag!r}"
            )
        self.shortest = check_integer("lag", lags[0], at_least=1)
        self.longest = check_integer("lag", lags[1], at_least=self.shortest)
        self.window = check_window(window)
        if self.window > 1 and x.ndim != 2:
            raise ValueError(f"window must be 1 for x that is not (T, m), got x of shape {x.shape}")
        self.recording = Recording(x, groups=groups, times=times, max_gap=max_gap)
        self.x = self.recording.x
        starts, ends = self.recording.starts, self.recording.ends
        if self.recording.is_regular and (ends - starts).max() <= self.shortest:
            raise ValueError(
                f"lag must be shorter than some session; the shortest lag is {self.shortest}, the "
                f"longest session has {int((ends - starts).max())} rows"
            )
        self._set_sessions(starts, ends)
        if len(self) == 0:
            raise ValueError(
                f"x must have a pair of rows {self._lags} apart, in one session, without NaN and "
                f"with fitting times, but none is left: {self.recording.n_missing} of {len(x)} "
                f"rows hold NaN, the longest session has {int((ends - starts).max())} rows"
            )
        if self.longest > self.shortest and (ends - starts).max() <= self.longest:
            most = int((ends - starts).max())
            warnings.warn(
                f"lag: the longest lag is {self.longest} rows, but the longest session has {most}, "
                f"so no pair is more than {most - 1} rows apart",
                IsolatentWarning,
                stacklevel=2,
            )
        if message := self.recording.describe_missing():
            warnings.warn(f"x: {message}", IsolatentWarning, stacklevel=2)

    @property
    def _lags(self) -> str:
        return f"{self.shortest}" if self.ordered else f"{self.shortest} to {self.longest}"

    def _set_sessions(self, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        anchors = np.maximum(ends - starts - self.shortest, 0)
        keep = anchors > 0
        self._starts, self._ends = starts[keep], ends[keep]
        self._anchors_up_to = np.cumsum(anchors[keep])
        if not self.recording.is_regular:
            self._set_anchors()

    def _set_anchors(self) -> None:
        """Set the rows that have a positive, and the lag of the nearest one."""
        anchors = rows_between(self._starts, self._ends - self.shortest)
        ends = np.repeat(self._ends, self._ends - self._starts - self.shortest)
        nearest = np.zeros(len(anchors), dtype=np.int64)
        for lag in range(self.shortest, self.longest + 1):
            left = np.flatnonzero((nearest == 0) & (anchors + lag < ends))
            if len(left) == 0:
                break
            rows = anchors[left]
            nearest[left[self.recording.may_pair(rows, rows + lag)]] = lag
        self._anchors, self._nearest = anchors[nearest > 0], nearest[nearest > 0]

    @property
    def ordered(self) -> bool:
        """Whether there is one lag only, so that positives can follow one dynamics."""
        return self.shortest == self.longest

    def __len__(self) -> int:
        """Return how many rows have a positive."""
        if not self.recording.is_regular:
            return len(self._anchors)
        return int(self._anchors_up_to[-1]) if len(self._anchors_up_to) else 0

    def split(self, share: float, generator: Generator) -> tuple[SeriesPairs, SeriesPairs]:
        """Split the recording: most of it, and about ``share`` of it.

        The end of each session is held out, since neighbouring rows are alike and a random choice
        of rows would hold nothing out; of sessions too short for that, the last ones as a whole.
        Both parts share the array. ``generator`` is not used: nothing is random.
        """
        check_real("share", share, above=0, below=1)
        lengths = self._ends - self._starts
        cut = self._ends - np.round(share * lengths).astype(np.int64)
        fits = (self._ends - cut > self.shortest) & (cut - self._starts > self.shortest)
        whole = np.where(fits, 0, lengths)
        ended = ~fits & (np.cumsum(whole) > (1 - share) * whole.sum())
        cut = np.where(fits, cut, np.where(ended, self._starts, self._ends))
        most, rest = copy.copy(self), copy.copy(self)
        most._set_sessions(self._starts, cut)
        rest._set_sessions(cut, self._ends)
        if len(most) == 0 or len(rest) == 0:
            raise SplitError(
                f"share must leave a pair on either side of {len(self)} anchors, got {share}"
            )
        return most, rest

    def all(self, positions: np.ndarray[Any, Any] | None = None) -> tuple[Tensor, Tensor]:
        """Return every anchor once, in order, with its nearest positive; or some by position."""
        if self.recording.is_regular:
            anchors = rows_between(self._starts, self._ends - self.shortest)
            nearest = np.full(len(anchors), self.shortest)
        else:
            anchors, nearest = self._anchors, self._nearest
        if positions is not None:
            anchors, nearest = anchors[positions], nearest[positions]
        return self._read(anchors), self._read(anchors + nearest)

    def sessions(self) -> np.ndarray[Any, Any]:
        """Return the number of the session of each anchor, in the order of :meth:`all`.

        Example:
            >>> SeriesPairs(np.zeros((7, 1)), groups=[1, 1, 1, 1, 2, 2, 2]).sessions().tolist()
            [0, 0, 0, 1, 1]
        """
        if self.recording.is_regular:
            anchors = self._ends - self._starts - self.shortest
            return np.repeat(np.arange(len(self._starts)), anchors)
        return np.searchsorted(self._starts, self._anchors, side="right") - 1

    def _read(self, rows: np.ndarray[Any, Any]) -> Tensor:
        # The parts of a split share no row, so windows stay within the sessions of a part.
        return self.recording.read(rows, self.window, self._starts, self._ends)

    def rows(self, most: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
        """Return the rows of the recording in their order, and a session number for each.

        Rows before and after one that is left out have different numbers.

        Args:
            most: Largest number of rows; a longer recording is cut at its end.
        """
        index = rows_between(self._starts, self._ends)
        session = np.repeat(np.arange(len(self._starts)), self._ends - self._starts)
        if self.recording.usable is not None:
            usable = self.recording.usable[index]
            index, session = index[usable], session[usable]
            new = (np.diff(index) > 1) | (np.diff(session) > 0)
            session = np.cumsum(np.r_[False, new])
        return self._read(index[:most]), session[:most]

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        drawn = draw_distinct(len(self), batch_size, generator)
        share = torch.rand(
            batch_size, generator=generator, device=generator.device, dtype=torch.float64
        )
        anchor, positive = self._draw(drawn, share.cpu().numpy())
        return self._read(anchor), self._read(positive)

    def _draw(
        self, drawn: np.ndarray[Any, Any], share: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return rows of anchors and positives, from positions of anchors and uniform numbers."""
        if self.recording.is_regular:
            session = np.searchsorted(self._anchors_up_to, drawn, side="right")
            before = np.where(session > 0, self._anchors_up_to[session - 1], 0)
            anchor = self._starts[session] + drawn - before
            longest = np.minimum(self.longest, self._ends[session] - 1 - anchor)
            lags = self.shortest + (share * (longest - self.shortest + 1)).astype(np.int64)
            return anchor, anchor + lags
        anchor = self._anchors[drawn]
        end = self._ends[np.searchsorted(self._starts, anchor, side="right") - 1, None]
        positive = anchor[:, None] + np.arange(self.shortest, self.longest + 1)
        fits = self.recording.may_pair(anchor[:, None], np.minimum(positive, end - 1))
        fits &= positive < end
        number = (share * fits.sum(axis=1)).astype(np.int64)  # of the lags that fit
        chosen = (np.cumsum(fits, axis=1) > number[:, None]).argmax(axis=1)
        return anchor, positive[np.arange(len(anchor)), chosen]

    def __repr__(self) -> str:
        window = f"lag=({self.shortest}, {self.longest})"
        return f"SeriesPairs(x: {self.x.shape}, {window}, sessions={len(self._starts)})"
