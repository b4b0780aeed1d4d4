"""Pairs with further observations that are in no pair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from isolatent.pairs.arrays import ArrayPairs, as_observations, draw_distinct, read_rows
from isolatent.pairs.source import Batch

__all__ = ["UnpairedPairs"]

LEAST_UNPAIRED = 256  # of a batch: codes of small batches are a poor sample of their marginal
HELD_OUT_UNPAIRED = 2048


class UnpairedPairs(ArrayPairs):
    """Pairs from two arrays, with observations that have no partner.

    Each batch also holds unpaired observations, as many as pairs but at least 256, drawn without
    replacement. They must be distributed as the observations in pairs: InfoNCE compares each
    positive with a sample of all observations, which a few pairs are a poor sample of.

    Args:
        x: Observations (N, ...), NumPy or torch; a memory-mapped array is read row by row.
        x_pos: Their positives, of the same shape.
        unpaired: Further observations (M, ...).

    Example:
        >>> pairs = UnpairedPairs(np.zeros((5, 2)), np.ones((5, 2)), np.full((9, 2), 2.0))
        >>> pairs.sample(4, Generator().manual_seed(0)).unpaired.shape
        torch.Size([9, 2])
    """

    def __init__(
        self, x: ArrayLike | Tensor, x_pos: ArrayLike | Tensor, unpaired: ArrayLike | Tensor
    ) -> None:
        super().__init__(x, x_pos)
        self.unpaired = as_observations("unpaired", unpaired)
        if self.unpaired.shape[1:] != self.x.shape[1:]:
            raise ValueError(
                "unpaired must have observations of the same shape as x, "
                f"{self.x.shape[1:]}, got {self.unpaired.shape[1:]}"
            )
        self._unpaired_rows = np.arange(len(self.unpaired))

    def sample(self, batch_size: int, generator: Generator) -> Any:
        """Draw ``batch_size`` pairs, and unpaired observations, at least 256 if there are."""
        pairs = Batch.of(super().sample(batch_size, generator))
        rows = self._unpaired_rows
        count = min(max(batch_size, LEAST_UNPAIRED), len(rows))
        drawn = rows[draw_distinct(len(rows), count, generator)]
        return Batch(pairs.x, pairs.x_pos, unpaired=self._read(drawn))

    def all(self, positions: np.ndarray[Any, Any] | None = None) -> Any:
        """Return every pair once, or those at the given positions, and at most 2 048 unpaired."""
        pairs = Batch.of(super().all(positions))
        unpaired = self._read(self._unpaired_rows[:HELD_OUT_UNPAIRED])
        return Batch(pairs.x, pairs.x_pos, unpaired=unpaired)

    def split(self, share: float, generator: Generator) -> tuple[Any, Any]:
        """Split the pairs at random, and the unpaired observations, of which few are held out."""
        parts: tuple[Any, Any] = super().split(share, generator)
        most, rest = parts
        rows = self._unpaired_rows
        order = torch.randperm(len(rows), generator=generator, device=generator.device)
        count = min(HELD_OUT_UNPAIRED, max(1, round(share * len(rows))))
        rest._unpaired_rows = np.sort(rows[order[:count].cpu().numpy()])
        most._unpaired_rows = np.sort(rows[order[count:].cpu().numpy()])
        return most, rest

    def unpaired_batches(self, batch_size: int, most: int) -> Iterator[Tensor]:
        """Yield the unpaired observations in order, at most ``most`` of them."""
        rows = self._unpaired_rows[:most]
        for start in range(0, len(rows), batch_size):
            yield self._read(rows[start : start + batch_size])

    def _read(self, rows: np.ndarray[Any, Any]) -> Tensor:
        return read_rows("unpaired", self.unpaired, rows)

    def __repr__(self) -> str:
        return f"UnpairedPairs({len(self)} of x: {self.x.shape}, unpaired: {self.unpaired.shape})"
