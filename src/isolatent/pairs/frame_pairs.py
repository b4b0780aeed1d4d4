"""Pairs of nearby frames of stored sequences with measured factors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.datasets import KittiMasks
from isolatent.pairs.arrays import draw_distinct
from isolatent.pairs.factor_pairs import KnownPairs
from isolatent.pairs.source import SplitError

__all__ = ["FramePairs"]


class FramePairs:
    r"""Pairs of frames of KITTI Masks, as the papers draw them.

    The anchor is any frame but the last of its sequence. With t its number, T that of the last
    frame and d uniform on 1, …, Δt, the positive is frame :math:`\min(t + d, T)`. So steps near the
    end of a sequence are shorter, where :class:`isolatent.SeriesPairs` draws lags among those that
    fit.

    Args:
        frames: The sequences.
        max_lag: Δt, the largest step in frames; the papers have 1 and 5.

    Attributes:
        ordered: Whether there is one lag only.

    Example:
        >>> import isolatent as iso
        >>> pairs = FramePairs(iso.datasets.synthetic_kitti_masks(5, seed=0), max_lag=5)
        >>> x, x_pos = pairs.sample(8, torch.Generator().manual_seed(0))
        >>> x.shape, pairs
        (torch.Size([8, 1, 64, 64]), FramePairs(86 of 5 sequences, max_lag=5, synthetic stand-in))
    """

    def __init__(self, frames: KittiMasks, max_lag: int = 1) -> None:
        if not isinstance(frames, KittiMasks):
            raise TypeError(f"frames must be KittiMasks, got {frames!r}")
        self.frames = frames
        self.max_lag = check_integer("max_lag", max_lag, at_least=1)
        self._set_sequences(np.arange(frames.n_sequences))
        if len(self) == 0:
            raise ValueError("frames must have a sequence of at least 2 frames, got none")

    def _set_sequences(self, sequences: NDArray[np.int64]) -> None:
        self._sequences = sequences
        starts, ends = self.frames.starts[:-1][sequences], self.frames.starts[1:][sequences]
        anchors = [np.arange(a, b - 1) for a, b in zip(starts, ends, strict=True)]
        lasts = [np.full(b - a - 1, b - 1) for a, b in zip(starts, ends, strict=True)]
        self._anchors = np.concatenate([np.empty(0, np.int64), *anchors])
        self._lasts = np.concatenate([np.empty(0, np.int64), *lasts])

    @property
    def ordered(self) -> bool:
        """Whether every positive follows its anchor by one lag."""
        return self.max_lag == 1

    def __len__(self) -> int:
        """Return the number of frames that can be anchors."""
        return len(self._anchors)

    def split(self, share: float, generator: Generator) -> tuple[FramePairs, FramePairs]:
        """Split the sequences at random: those with most of the pairs, and about ``share`` of them.

        Sequences stay whole, since neighbouring frames are alike.
        """
        check_real("share", share, above=0, below=1)
        check_generator("generator", generator)
        lengths = np.diff(self.frames.starts)[self._sequences] - 1
        order = torch.randperm(len(lengths), generator=generator, device=generator.device)
        drawn = order.cpu().numpy()
        before = np.cumsum(lengths[drawn]) - lengths[drawn]
        held_out = np.zeros(len(lengths), bool)
        held_out[drawn[before < share * len(self)]] = True
        most, rest = copy.copy(self), copy.copy(self)
        most._set_sequences(self._sequences[~held_out])
        rest._set_sequences(self._sequences[held_out])
        if len(most) < 2 or len(rest) < 2:
            raise SplitError(
                f"share must leave at least 2 of the {len(self)} pairs on either side, in whole "
                f"sequences, got {share}"
            )
        return most, rest

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs of images."""
        known = self.sample_known(batch_size, generator)
        return known.x, known.x_pos

    def sample_known(self, batch_size: int, generator: Generator) -> KnownPairs:
        """Draw the pairs that ``sample`` draws, with their factors."""
        anchors, positives = self.sample_frames(batch_size, generator)
        y, y_pos = (torch.from_numpy(self.frames.latents[k]) for k in (anchors, positives))
        return KnownPairs(self.observe(anchors), self.observe(positives), y, y_pos)

    def sample_frames(
        self, batch_size: int, generator: Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw the numbers of anchors, each at most once, and of their positives."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        drawn = draw_distinct(len(self), batch_size, generator)
        steps = torch.randint(
            1, self.max_lag + 1, (batch_size,), generator=generator, device=generator.device
        )
        anchors: NDArray[Any] = self._anchors[drawn]
        return anchors, np.minimum(anchors + steps.cpu().numpy(), self._lasts[drawn])

    def observe(self, frames: ArrayLike | Tensor) -> Tensor:
        """Return frames (N,) as images (N, 1, 64, 64), float32."""
        return self.frames.observe(frames)

    def __repr__(self) -> str:
        return (
            f"FramePairs({len(self)} of {len(self._sequences)} sequences, "
            f"max_lag={self.max_lag}, {self.frames.source})"
        )
