"""Pairs from recordings."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.pairs.arrays import as_observations, draw_distinct, read_rows
from isolatent.pairs.source import SplitError

__all__ = ["SeriesPairs"]


class SeriesPairs:
    """Pairs from a recording: a row and one a little later, within the same session.

    Anchors are uniform over all rows that have a positive, and distinct within a batch unless there
    are fewer than the batch holds; the lag is uniform over the lags of the window that stay inside
    the session. A session is an unbroken run of one value in ``groups``.

    Args:
        x: The recording (T, ...), NumPy or torch; memory-mapped arrays may exceed the memory, as
            only the rows of each batch are read.
        lag: The longest lag in steps, or the shortest and the longest. A session that is too short
            for the longest lag takes part with the lags that fit into it.
        groups: One session id for each of the T rows; by default all are one session.

    Attributes:
        shortest: The shortest lag.
        longest: The longest lag.

    Example:
        >>> recording = np.arange(10.0)[:, None]
        >>> pairs = SeriesPairs(recording, lag=2, groups=[0] * 5 + [1] * 5)
        >>> x, x_pos = pairs.sample(100, torch.Generator().manual_seed(0))
        >>> sorted({int(lag) for lag in x_pos - x}), bool(((x < 5) == (x_pos < 5)).all())
        ([1, 2], True)
    """

    def __init__(
        self,
        x: ArrayLike | Tensor,
        lag: int | Sequence[int] = 1,
        groups: ArrayLike | None = None,
    ) -> None:
        self.x = as_observations("x", x)
        window = lag if isinstance(lag, list | tuple) else (1, lag)
        if len(window) != 2:
            raise ValueError(
                f"lag must be an integer, or the shortest and the longest lag, got {lag!r}"
            )
        self.shortest = check_integer("lag", window[0], at_least=1)
        self.longest = check_integer("lag", window[1], at_least=self.shortest)
        starts = np.zeros(1, dtype=np.int64)
        if groups is not None:
            ids = np.asarray(groups)
            if ids.shape != (len(self.x),):
                raise ValueError(
                    f"groups must have one id per row of x, shape ({len(self.x)},), got {ids.shape}"
                )
            starts = np.concatenate([starts, np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        ends = np.append(starts[1:], len(self.x))
        if (ends - starts).max() <= self.shortest:
            raise ValueError(
                f"lag must be shorter than some session; the shortest lag is {self.shortest}, the "
                f"longest session has {int((ends - starts).max())} rows"
            )
        self._set_sessions(starts, ends)

    def _set_sessions(self, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        anchors = np.maximum(ends - starts - self.shortest, 0)
        keep = anchors > 0
        self._starts, self._ends = starts[keep], ends[keep]
        self._anchors_up_to = np.cumsum(anchors[keep])

    @property
    def ordered(self) -> bool:
        """Whether there is one lag only, so that positives can follow one dynamics."""
        return self.shortest == self.longest

    def __len__(self) -> int:
        """Return how many rows have a positive."""
        return int(self._anchors_up_to[-1])

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
        if (cut == self._ends).all() or (cut == self._starts).all():
            raise SplitError(
                f"share must leave a pair on either side of {len(self)} anchors, got {share}"
            )
        most, rest = copy.copy(self), copy.copy(self)
        most._set_sessions(self._starts, cut)
        rest._set_sessions(cut, self._ends)
        return most, rest

    def all(self, positions: np.ndarray[Any, Any] | None = None) -> tuple[Tensor, Tensor]:
        """Return every anchor once, in order, with its nearest positive; or some by position."""
        anchors = np.concatenate(
            [
                np.arange(start, end - self.shortest)
                for start, end in zip(self._starts, self._ends, strict=True)
            ]
        )
        if positions is not None:
            anchors = anchors[positions]
        return read_rows("x", self.x, anchors), read_rows("x", self.x, anchors + self.shortest)

    def rows(self, most: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
        """Return the rows of the recording in their order, and a session number for each.

        Args:
            most: Largest number of rows; a longer recording is cut at its end.
        """
        spans = [*zip(self._starts, self._ends, strict=True)]
        index = np.concatenate([np.arange(start, end) for start, end in spans])[:most]
        session = np.repeat(np.arange(len(spans)), self._ends - self._starts)[:most]
        return read_rows("x", self.x, index), session

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        drawn = draw_distinct(len(self), batch_size, generator)
        session = np.searchsorted(self._anchors_up_to, drawn, side="right")
        before = np.where(session > 0, self._anchors_up_to[session - 1], 0)
        anchor = self._starts[session] + drawn - before
        longest = np.minimum(self.longest, self._ends[session] - 1 - anchor)
        share = torch.rand(
            batch_size, generator=generator, device=generator.device, dtype=torch.float64
        )
        lags = self.shortest + (share.cpu().numpy() * (longest - self.shortest + 1)).astype(
            np.int64
        )
        return read_rows("x", self.x, anchor), read_rows("x", self.x, anchor + lags)

    def __repr__(self) -> str:
        window = f"lag=({self.shortest}, {self.longest})"
        return f"SeriesPairs(x: {self.x.shape}, {window}, sessions={len(self._starts)})"
