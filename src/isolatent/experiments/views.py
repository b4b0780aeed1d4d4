"""Which factors a model is measured on, and shown with, after training."""

from __future__ import annotations

from typing import Any

from torch import Generator, Tensor

from isolatent.pairs import FactorPairs

__all__ = ["sample_factors"]


def sample_factors(pairs: FactorPairs, count: int, generator: Generator) -> Tensor:
    """Factors of ``count`` images: values as pairs have them if continuous, else uniform indices.

    Example:
        >>> import torch, isolatent as iso
        >>> moves = iso.datasets.synthetic_transitions()
        >>> pairs = FactorPairs(iso.datasets.Sprites(), moves, continuous=True)
        >>> y = sample_factors(pairs, 4, torch.Generator().manual_seed(0))
        >>> y.dtype, pairs.observe(y).shape
        (torch.float64, torch.Size([4, 1, 64, 64]))
    """
    if not pairs.continuous:
        return pairs.world.sample_factors(count, generator)
    transitions: Any = pairs.transitions  # recorded ones, as FactorPairs has checked
    values: Tensor = transitions.sample_values(pairs.world, count, generator)[0]
    return values
