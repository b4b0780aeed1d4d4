"""Settings of a training run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from isolatent.checks import check_integer, check_real

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    r"""Settings of the training of an encoder. The defaults serve all worlds of the papers.

    AdamW with a linear warm-up, a high rate while the held-out loss falls, and a cool-down to zero
    once the loss levels off; the weights are averaged. ``docs/recipe.md`` has the effect of each
    choice.

    Args:
        max_steps: Largest number of optimiser steps; early stopping may end a run sooner.
        batch_size: Pairs per step; the negatives of a pair are the other pairs of its batch.
        learning_rate: Peak learning rate η.
        scale_rate: Learning rate of scales, weights, radii and bounds, which are stored as
            logarithms, as a multiple of η.
        warmup: Steps over which the rate rises linearly from 0.
        patience: Steps at the peak rate; afterwards the rate is η √(patience / step).
        cooldown: Share of a run over which the rate falls to 0.
        averaging: Share of the steps so far over which the weights are averaged, exponentially;
            at least 50 steps.
        weight_decay: AdamW's decoupled decay of the encoder's weights.
        saturation: InfoNCE below this share of log B counts as saturated: positives are nearer
            than nearly all negatives, and there is next to no gradient. Training then goes on with
            :class:`isolatent.contrast.SaturatedInfoNCE`, if the estimator chose the loss.
        tolerance: A run has reached its plateau when its last quarter improved on the quarter
            before by less than this share of the whole improvement.
        chunk_size: Observations, two a pair, that the encoder takes at a time, to save memory: the
            gradients are those of the whole batch with all its negatives. None for all at once.
    """

    max_steps: int = 50_000
    batch_size: int = 1024
    learning_rate: float = 2e-2
    scale_rate: float = 5.0
    warmup: int = 100
    patience: int = 1000
    cooldown: float = 0.3
    averaging: float = 0.05
    weight_decay: float = 1e-2
    saturation: float = 0.15
    tolerance: float = 5e-3
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        check_integer("max_steps", self.max_steps, at_least=1)
        check_integer("batch_size", self.batch_size, at_least=2)
        check_real("learning_rate", self.learning_rate, above=0)
        check_real("scale_rate", self.scale_rate, above=0)
        check_integer("warmup", self.warmup, at_least=0)
        check_real("cooldown", self.cooldown, at_least=0, below=1)
        check_real("averaging", self.averaging, at_least=0, below=1)
        check_integer("patience", self.patience, at_least=1)
        check_real("weight_decay", self.weight_decay, at_least=0)
        check_real("saturation", self.saturation, at_least=0, below=1)
        check_real("tolerance", self.tolerance, at_least=0)
        if self.chunk_size is not None:
            check_integer("chunk_size", self.chunk_size, at_least=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data; ``Recipe(**recipe.to_dict()) == recipe``."""
        return asdict(self)
