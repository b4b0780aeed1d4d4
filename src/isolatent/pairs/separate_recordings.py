"""Pairs from recordings whose columns differ, within each of them and across them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer
from isolatent.pairs.arrays import draw_distinct
from isolatent.pairs.recordings import TIME_ROUNDING, TOLERANCE, rows_between
from isolatent.pairs.series import SeriesPairs
from isolatent.pairs.source import Batch, SplitError

__all__ = ["SeparateRecordings", "lay_out"]

Array: TypeAlias = npt.NDArray[Any]


class SeparateRecordings:
    """Pairs from recordings that each have columns, and an encoder, of their own.

    An observation is the number of its recording and its columns, filled up with zeros:
    :func:`lay_out`. Pairs within a recording are those of :class:`SeriesPairs`.

    With ``common``, recordings share moments: a row of one and a row of another show the same
    factors. A pair across two recordings is a pair within one of them whose positive is replaced by
    the row of the other that shows the same moment. So all pairs have one conditional
    :math:`p(z'|z)`, and one loss fits them all.

    A batch has a block for each recording, whose anchors are all of this recording, and whose
    positives are all of one recording, which is drawn anew for each batch. Pairs of different
    blocks are no negatives of each other: which recording an observation is of would tell them
    apart, and the encoders would learn that instead of the factors.

    Args:
        series: The pairs within each recording, with rows (T_k, m_k).
        common: ``"times"`` if rows of two recordings at the same time, up to half of the median
            interval, show the same moment; or for each recording a label for each of its rows,
            where rows with the same label do, such as the number of the frame of a film, and NaN
            is no label; or None.

    Attributes:
        widths: Columns of each recording, with those of its windows.
        ordered: Whether there is one lag only.

    Example:
        >>> x, y = np.arange(20.0)[:, None], np.arange(40.0).reshape(20, 2)
        >>> frames = np.arange(20)
        >>> pairs = SeparateRecordings([SeriesPairs(x), SeriesPairs(y)], [frames, frames])
        >>> batch = pairs.sample(8, torch.Generator().manual_seed(0))
        >>> batch.x.shape, batch.blocks.tolist()
        (torch.Size([8, 3]), [0, 0, 0, 0, 1, 1, 1, 1])
    """

    def __init__(
        self, series: Sequence[SeriesPairs], common: str | Sequence[Array] | None = None
    ) -> None:
        self.series = tuple(series)
        self.widths = tuple(s.window * s.x.shape[1] for s in self.series)
        self.common = common
        self.dtype = torch.float32
        if any(s.x.dtype.kind == "f" and s.x.dtype.itemsize >= 8 for s in self.series):
            self.dtype = torch.float64
        self._set_pairs()
        if common is not None:
            alone = [k for k in range(len(self.series)) if len(self._partners(k)) == 1]
            if alone:
                raise ValueError(
                    f"common must give every recording pairs with another one, but no pair of "
                    f"recording {alone[0]} has a positive at a moment that another recording shows"
                )

    def _set_pairs(self) -> None:
        """Set for each two recordings the pairs within the first that have a partner there."""
        count = len(self.series)
        self._within = [_pairs_of(series) for series in self.series]
        # For recordings k and l: pairs of k, and the span of rows of l for each in _rows[k, l].
        self._pairs: dict[tuple[int, int], Array] = {}
        self._spans: dict[tuple[int, int], tuple[Array, Array]] = {}
        self._rows: dict[tuple[int, int], Array] = {}
        if self.common is None:
            return
        for k in range(count):
            for other in range(count):
                if k == other:
                    continue
                rows, low, high = self._match(k, other)
                positives = self._within[k][1]
                found = np.flatnonzero(high[positives] > low[positives])
                if len(found):
                    positives = positives[found]
                    self._pairs[k, other] = found
                    self._spans[k, other] = low[positives], high[positives]
                    self._rows[k, other] = rows

    def _match(self, k: int, other: int) -> tuple[Array, Array, Array]:
        """Return rows of another recording, and for each row of k a span of them."""
        series = self.series[other]
        rows = rows_between(series._starts, series._ends)
        if series.recording.usable is not None:
            rows = rows[series.recording.usable[rows]]
        if isinstance(self.common, str):
            mine, theirs = self.series[k].recording, series.recording
            assert mine.times is not None
            assert theirs.times is not None
            # The difference of origins is exact, where nanoseconds since 1970 would be rounded.
            at, times = mine.times, theirs.times[rows] + (theirs.origin - mine.origin)
            order = np.argsort(times, kind="stable")
            rows, times = rows[order], times[order]
            nearest = np.clip(np.searchsorted(times, at), 1, max(1, len(times) - 1))
            if len(times) > 1:
                nearest = nearest - (at - times[nearest - 1] <= times[nearest] - at)
            else:
                nearest = np.zeros(len(at), dtype=np.int64)
            most = (TOLERANCE + TIME_ROUNDING) * float(theirs.interval or 1.0)
            near = np.abs(times[nearest] - at) <= most if len(times) else np.zeros(len(at), bool)
            return rows, nearest, nearest + near
        assert self.common is not None
        labels, mine_labels = np.asarray(self.common[other])[rows], np.asarray(self.common[k])
        known, mine_known = _is_label(labels), _is_label(mine_labels)
        rows, labels = rows[known], labels[known]
        order = np.argsort(labels, kind="stable")
        rows, labels = rows[order], labels[order]
        low = np.searchsorted(labels, mine_labels, side="left")
        high = np.where(mine_known, np.searchsorted(labels, mine_labels, side="right"), low)
        return rows, low, high

    def _partners(self, k: int) -> list[int]:
        """Return the recordings that positives of anchors of a recording can be of."""
        return [
            other for other in range(len(self.series)) if other == k or (k, other) in self._pairs
        ]

    @property
    def ordered(self) -> bool:
        """Whether there is one lag only, so that positives can follow one dynamics."""
        return all(series.ordered for series in self.series)

    @property
    def is_shared(self) -> bool:
        """Whether pairs connect all recordings, directly or by way of others."""
        reached, left = {0}, [0]
        while left:
            k = left.pop()
            new = {o for o in range(len(self.series)) if (k, o) in self._pairs} - reached
            new |= {o for o in range(len(self.series)) if (o, k) in self._pairs} - reached
            reached |= new
            left += new
        return len(reached) == len(self.series)

    def __len__(self) -> int:
        """Return the number of anchors of all recordings."""
        return sum(len(series) for series in self.series)

    def sample(self, batch_size: int, generator: Generator) -> Batch:
        """Draw ``batch_size`` pairs, as many of each recording as of any other."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        count = len(self.series)
        order = torch.randperm(count, generator=generator, device=generator.device).tolist()
        parts = []
        for k, other in enumerate(order):
            size = batch_size // count + (k < batch_size % count)
            if size:
                parts.append(self._draw(k, other, size, generator))
        x, x_pos = (torch.cat(side) for side in zip(*parts, strict=True))
        return Batch(x, x_pos, blocks=x[:, 0].long())

    def all(self) -> Batch:
        """Return every anchor once with its nearest positive, and all pairs across recordings."""
        parts, blocks = [], []
        count = len(self.series)
        for k, series in enumerate(self.series):
            x, x_pos = series.all()
            parts.append((self._lay_out(x, k), self._lay_out(x_pos, k)))
            blocks.append(torch.full((len(x),), k * count + k))
        for k, other in self._pairs:
            pairs = np.arange(len(self._pairs[k, other]))
            parts.append(self._read(k, other, pairs, np.zeros(len(pairs))))
            blocks.append(torch.full((len(pairs),), k * count + other))
        x, x_pos = (torch.cat(side) for side in zip(*parts, strict=True))
        return Batch(x, x_pos, blocks=torch.cat(blocks))

    def split(
        self, share: float, generator: Generator
    ) -> tuple[SeparateRecordings, SeparateRecordings]:
        """Split each recording as :meth:`SeriesPairs.split`; pairs never cross the parts."""
        most, rest = copy.copy(self), copy.copy(self)
        halves = [series.split(share, generator) for series in self.series]
        most.series, rest.series = (tuple(part) for part in zip(*halves, strict=True))
        for part in (most, rest):
            part._set_pairs()
        if self.is_shared and not most.is_shared:
            raise SplitError("share must leave pairs across recordings on the side of training")
        return most, rest

    def _draw(self, k: int, other: int, size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        if (k, other) not in self._pairs:
            x, x_pos = self.series[k].sample(size, generator)
            return self._lay_out(x, k), self._lay_out(x_pos, k)
        drawn = draw_distinct(len(self._pairs[k, other]), size, generator)
        share = torch.rand(size, generator=generator, device=generator.device, dtype=torch.float64)
        return self._read(k, other, drawn, share.cpu().numpy())

    def _read(self, k: int, other: int, drawn: Array, share: Array) -> tuple[Tensor, Tensor]:
        """Return pairs across recordings, from their positions and uniform numbers."""
        low, high = (end[drawn] for end in self._spans[k, other])
        positives = self._rows[k, other][low + (share * (high - low)).astype(np.int64)]
        anchors = self._within[k][0][self._pairs[k, other][drawn]]
        x, x_pos = self.series[k]._read(anchors), self.series[other]._read(positives)
        return self._lay_out(x, k), self._lay_out(x_pos, other)

    def _lay_out(self, x: Tensor, k: int) -> Tensor:
        return lay_out(x.to(self.dtype), k, max(self.widths))

    def __repr__(self) -> str:
        common = "times" if isinstance(self.common, str) else "labels"
        shared = "" if self.common is None else f", common={common}"
        return f"SeparateRecordings({', '.join(map(repr, self.series))}{shared})"


def lay_out(x: Tensor, recording: int, width: int) -> Tensor:
    """Return rows (N, m) of a recording as observations (N, 1 + width): its number, rows, zeros.

    Example:
        >>> lay_out(torch.ones(1, 2), recording=3, width=4)
        tensor([[3., 1., 1., 0., 0.]])
    """
    laid_out = x.new_zeros(len(x), 1 + width)
    laid_out[:, 0] = recording
    laid_out[:, 1 : 1 + x.shape[1]] = x
    return laid_out


def _pairs_of(series: SeriesPairs) -> tuple[Array, Array]:
    """Return anchors and positives of all pairs, with every lag."""
    anchors, positives = [], []
    for lag in range(series.shortest, series.longest + 1):
        rows = rows_between(series._starts, np.maximum(series._ends - lag, series._starts))
        fits = series.recording.may_pair(rows, rows + lag)
        anchors.append(rows[fits])
        positives.append(rows[fits] + lag)
    return np.concatenate(anchors), np.concatenate(positives)


def _is_label(labels: Array) -> Array:
    """Return which labels (N,) are labels, and not NaN."""
    if labels.dtype.kind == "M":
        return ~np.isnat(labels)
    return ~np.isnan(labels) if labels.dtype.kind == "f" else np.ones(len(labels), dtype=bool)
