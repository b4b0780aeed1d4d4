"""The settings of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isolatent.checks import check_integer, check_real

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    r"""How an encoder is trained: AdamW, warm-up, cosine decay, averaged weights.

    Args:
        steps: Optimiser steps.
        batch: Pairs per step; each pair's negatives are the others.
        learning_rate: Peak learning rate :math:`\eta`.
        warmup: Share of the steps over which the rate rises linearly from 0.
        averaging: Decay of the exponential average of the weights that is kept.
        weight_decay: AdamW's decoupled decay.
    """

    steps: int = 2000
    batch: int = 512
    learning_rate: float = 2e-2
    warmup: float = 0.05
    averaging: float = 0.98
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, at_least=1)
        check_integer("batch", self.batch, at_least=2)
        check_real("learning_rate", self.learning_rate, above=0)
        check_real("warmup", self.warmup, at_least=0, below=1)
        check_real("averaging", self.averaging, at_least=0, below=1)
        check_real("weight_decay", self.weight_decay, at_least=0)

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rise = min(1.0, (step + 1) / (self.warmup * self.steps)) if self.warmup else 1.0
        fall = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.learning_rate * rise * fall
