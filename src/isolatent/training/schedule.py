"""How fast to go, and when to stop."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, variance
from typing import Any

from isolatent.training.recipe import Recipe

__all__ = ["Pace"]

QUARTER = 0.25  # of a run, which must be better than the one before for it to go on
FEWEST = 8  # measurements before a plateau is believed
WARM = 5  # times the warm-up, in steps, before that
CHANCE = 3.0  # standard deviations: the least of many losses is already two below their mean
PATIENCE = 4  # measurements, and a quarter of a cool-down, with none to keep end it early


class Pace:
    """The learning rate of each step, and the plateau at which it starts to fall.

    After ``patience`` steps the rate falls with the square root of the step: whoever needs many
    steps is held up by noise, and a lower rate lessens that. Once the held-out loss no longer
    falls, or only the cool-down is left of the steps allowed, it falls to zero along a half cosine
    that takes its share of the whole run. So nobody has to choose a number of steps.

    Args:
        recipe: The settings.

    Attributes:
        cooling_from: The step after which the rate falls, once that is known.
        total: Steps in all, as far as is known.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.total = recipe.max_steps
        self.cooling_from = round(recipe.max_steps * (1 - recipe.cooldown))
        self._measured: list[tuple[int, float]] = []
        self._kept = 0  # the step whose weights are the ones to keep

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
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
        """The least held-out loss so far."""
        return min((loss for _, loss in self._measured), default=math.inf)

    def measured(self, step: int, loss: float) -> bool:
        """Take in a held-out loss, and say whether these weights are the ones to keep.

        Before the cool-down those with the least loss are. In the cool-down later weights are
        kept unless their loss is worse by more than chance: they have less noise, which a loss
        that hardly depends on the codes does not show. It starts and ends here as losses ask.
        """
        keep = loss < self.best + (self._noise() if step > self.cooling_from else 0.0)
        self._measured.append((step, loss))
        if keep:
            self._kept = step
        if step > self.cooling_from:
            # While the rate is still high the best may be a lucky one from before.
            since = max(self.cooling_from, self._kept)
            worse = sum(known > since for known, _ in self._measured)
            length = QUARTER * (self.total - self.cooling_from)
            if worse >= PATIENCE and step - since >= length:
                self.total = step
        elif self._on_plateau(step):
            self.cooling_from = step
            share = self.recipe.cooldown
            self.total = min(self.recipe.max_steps, math.ceil(step / (1 - share)))
        return keep

    def forget(self) -> None:
        """Start measuring anew, with another loss."""
        self.__init__(self.recipe)  # type: ignore[misc]

    def _on_plateau(self, step: int) -> bool:
        first, best = self._measured[0], self.best
        before, last = self._quarters(step)
        if len(self._measured) < FEWEST or min(len(before), len(last)) < 2:
            return False
        if step < WARM * self.recipe.warmup:  # averaged weights lag behind ones that rise
            return False
        # Means, since a least value among noisy ones is least by chance; and a standard error,
        # since a gain that drowns in noise may still be one.
        gained = fmean(before) - fmean(last)
        error = math.sqrt(variance(before) / len(before) + variance(last) / len(last))
        return gained + error < self.recipe.tolerance * (first[1] - best)

    def _noise(self) -> float:
        """How much worse than the best a loss may be by chance, as those at the full rate were."""
        if not self._measured:
            return 0.0
        _, last = self._quarters(self.cooling_from)
        jumps = [(later - earlier) ** 2 / 2 for earlier, later in pairwise(last)]
        return CHANCE * math.sqrt(fmean(jumps)) if jumps else 0.0

    def _quarters(self, step: int) -> tuple[list[float], list[float]]:
        """Losses of the run's last but one quarter up to a step, and of its last."""
        length = QUARTER * (step - self._measured[0][0])
        return (
            [loss for s, loss in self._measured if step - 2 * length < s <= step - length],
            [loss for s, loss in self._measured if step - length < s <= step],
        )

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            "total": self.total,
            "cooling_from": self.cooling_from,
            "kept": self._kept,
            "measured": self._measured,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state that :meth:`to_dict` gave."""
        self.total, self.cooling_from = state["total"], state["cooling_from"]
        self._kept = state["kept"]
        self._measured = [(int(step), float(loss)) for step, loss in state["measured"]]
