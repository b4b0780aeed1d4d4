"""Settings of a training run, and the schedule that follows from them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean, variance
from typing import Any

from isolatent.checks import check_integer, check_real

__all__ = ["Recipe", "Schedule"]

QUARTER = 0.25  # share of a run that must improve on the share before it for the run to go on
MIN_MEASUREMENTS = 8  # held-out losses before a plateau is accepted
MIN_WARMUPS = 5  # no plateau is accepted before this multiple of the warm-up
NOISE_SIGMAS = 3.0  # the least of many noisy losses is already two deviations below their mean
COOLDOWN_PATIENCE = 4  # measurements without one to keep, over a quarter of a cool-down, end it


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

    Example:
        >>> recipe = Recipe(max_steps=1000)
        >>> recipe.to_dict()["batch_size"], Recipe(**recipe.to_dict()) == recipe
        (1024, True)
        >>> Recipe(cooldown=1.0)
        Traceback (most recent call last):
        ValueError: cooldown must be a finite number >= 0 and < 1, got 1.0
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


class Schedule:
    """Learning rate and early stopping.

    The rate rises linearly over ``warmup`` steps. After ``patience`` steps it decays as 1/√t to
    average out gradient noise. Once the held-out loss no longer falls, or only the cool-down is
    left of the steps allowed, the rate falls to zero along a half cosine over the last ``cooldown``
    of the run. So the number of steps need not be chosen.

    Args:
        recipe: The settings.
        early_stopping: Whether the held-out loss ends the run; if not, it takes all steps, and its
            last weights are kept.

    Attributes:
        cooling_from: Step after which the rate falls to zero, as far as is known.
        total: Steps in all, as far as is known.
    """

    def __init__(self, recipe: Recipe, early_stopping: bool = True) -> None:
        self.recipe, self.early_stopping = recipe, early_stopping
        self.total = recipe.max_steps
        self.cooling_from = round(recipe.max_steps * (1 - recipe.cooldown))
        self._measured: list[tuple[int, float]] = []
        self._kept = 0  # the step whose weights are the ones to keep
        self._fall = 0.0  # of the held-out loss before a relaxation was added

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 1."""
        recipe = self.recipe
        warmup = min(recipe.warmup, self.cooling_from)
        rate = recipe.learning_rate * (min(1.0, step / warmup) if warmup else 1.0)
        rate *= min(1.0, math.sqrt(recipe.patience / step))
        if step <= self.cooling_from:
            return rate
        done = (step - self.cooling_from) / (self.total - self.cooling_from + 1)
        return rate * 0.5 * (1 + math.cos(math.pi * done))

    @property
    def best(self) -> float:
        """Least held-out loss so far."""
        return min((loss for _, loss in self._measured), default=math.inf)

    def measured(self, step: int, loss: float) -> bool:
        """Record a held-out loss, and return whether the current weights are the ones to keep.

        Before the cool-down the weights with the least loss are kept. In the cool-down later
        weights are kept unless their loss is worse by more than noise: a lower rate has averaged
        out gradient noise, which a loss that hardly depends on the codes does not show. The
        cool-down starts and ends here, as the losses indicate.
        """
        keep = loss < self.best + (self._noise() if step > self.cooling_from else 0.0)
        keep = keep or (not self.early_stopping and step > self.cooling_from)
        self._measured.append((step, loss))
        if keep:
            self._kept = step
        if step > self.cooling_from:
            # While the rate is still high, the best loss may be a lucky one from before.
            since = max(self.cooling_from, self._kept)
            worse = sum(known > since for known, _ in self._measured)
            length = QUARTER * (self.total - self.cooling_from)
            if worse >= COOLDOWN_PATIENCE and step - since >= length:
                self.total = step
        elif self.early_stopping and self._on_plateau(step):
            self.cooling_from = step
            share = self.recipe.cooldown
            self.total = min(self.recipe.max_steps, math.ceil(step / (1 - share)))
        return keep

    def restart(self, step: int | None = None, *, continues: bool = False) -> None:
        """Restart, because another loss is minimised from now on.

        Args:
            step: The step at which the loss before had levelled off, if it had: a fit that starts
                from its result gets at most as many steps again.
            continues: Whether the new loss starts where the one before had fallen to, so that its
                fall counts too where the size of a gain is judged.
        """
        fall = 0.0
        if continues and self._measured:
            fall = self._fall + self._measured[0][1] - self.best
        self.__init__(self.recipe, self.early_stopping)  # type: ignore[misc]
        self._fall = fall
        if step is not None:
            self.total = min(2 * step, self.recipe.max_steps)
            self.cooling_from = self.total - round(self.recipe.cooldown * (self.total - step))

    def _on_plateau(self, step: int) -> bool:
        first, best = self._measured[0], self.best
        before, last = self._quarters(step)
        if len(self._measured) < MIN_MEASUREMENTS or min(len(before), len(last)) < 2:
            return False
        if step < MIN_WARMUPS * self.recipe.warmup:  # averaged weights lag behind
            return False
        # Compare means, since the least of noisy values is least by chance, and allow for their
        # standard error, since a gain smaller than the noise may still be one.
        gained = fmean(before) - fmean(last)
        error = math.sqrt(variance(before) / len(before) + variance(last) / len(last))
        return gained + error < self.recipe.tolerance * (self._fall + first[1] - best)

    def _noise(self) -> float:
        """Return how far losses at the full rate scattered, in multiples of their deviation."""
        if not self._measured:
            return 0.0
        _, last = self._quarters(self.cooling_from)
        jumps = [(later - earlier) ** 2 / 2 for earlier, later in pairwise(last)]
        return NOISE_SIGMAS * math.sqrt(fmean(jumps)) if jumps else 0.0

    def _quarters(self, step: int) -> tuple[list[float], list[float]]:
        """Return the losses of the last quarter but one up to a step, and of the last quarter."""
        length = QUARTER * (step - self._measured[0][0])
        return (
            [loss for s, loss in self._measured if step - 2 * length < s <= step - length],
            [loss for s, loss in self._measured if step - length < s <= step],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "total": self.total,
            "cooling_from": self.cooling_from,
            "kept": self._kept,
            "fall": self._fall,
            "measured": self._measured,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`to_dict` returned."""
        self.total, self.cooling_from = state["total"], state["cooling_from"]
        self._kept, self._fall = state["kept"], state["fall"]
        self._measured = [(int(step), float(loss)) for step, loss in state["measured"]]
