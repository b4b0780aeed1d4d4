"""How factors of a grid change from one observation to the next: UNI and LAP of the papers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.datasets import FactorWorld
from isolatent.worlds.draws import uniforms

__all__ = ["LaplaceTransitions", "Transitions", "UniformFactorChange"]

CPU = torch.empty(0)


@runtime_checkable
class Transitions(Protocol):
    """Anything that draws pairs of factors on the grid of a world.

    All randomness comes from the generator, so its state, the world and the transitions fix the
    pairs. Anchors are uniform on the grid unless a class says otherwise.
    """

    def check(self, world: FactorWorld) -> None:
        """Raise ValueError if the world has no room for these transitions."""
        ...

    def sample_factors(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw factors y and y' (batch_size, F), int64, of ``batch_size`` pairs."""
        ...


@dataclass(frozen=True)
class UniformFactorChange:
    r"""UNI: :math:`k` factors change, :math:`k \sim \mathcal U\{1, \dots, F - 1\}`.

    Which ones is uniform, and each takes one of its *other* values, uniformly; so exactly k factors
    differ, and no pair is without a change. (If the old value could come again, fewer would
    differ, and now and then none.) Factors with one value are not counted and never chosen.

    References:
        Locatello et al.: Weakly-supervised disentanglement without compromises, 2020;
        `zimmermann2020`, A.6.

    Args:
        k: How many factors change, at most all F; by default drawn anew for each pair.

    Example:
        >>> from isolatent.datasets import Sprites
        >>> change = UniformFactorChange(k=2)
        >>> y, y_pos = change.sample_factors(Sprites(), 4, torch.Generator().manual_seed(0))
        >>> (y != y_pos).sum(1)
        tensor([2, 2, 2, 2])
    """

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            object.__setattr__(self, "k", check_integer("k", self.k, at_least=1))

    def check(self, world: FactorWorld) -> None:
        varying = sum(n > 1 for n in world.sizes)
        needed = 2 if self.k is None else self.k
        if varying < needed:
            raise ValueError(
                f"world must have at least {needed} factors with more than one value for {self!r}, "
                f"got {varying} in {world!r}"
            )

    def sample_factors(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw factors y and y' (batch_size, F) of ``batch_size`` pairs."""
        y = _anchors(self, world, batch_size, generator)
        sizes = torch.tensor(world.sizes)
        varying = int((sizes > 1).sum())
        if self.k is None:
            count = 1 + (uniforms((batch_size, 1), generator, CPU) * (varying - 1)).long()
        else:
            count = torch.full((batch_size, 1), self.k)
        # The first k factors in a random order, in which those that cannot change come last.
        order = uniforms(y.shape, generator, CPU) + (sizes <= 1)
        changes = order.argsort(dim=1).argsort(dim=1) < count
        others = (uniforms(y.shape, generator, CPU) * (sizes - 1)).long()
        others = others + (others >= y)  # the old value is left out
        return y, torch.where(changes, others, y)


@dataclass(frozen=True)
class LaplaceTransitions:
    r"""LAP: :math:`p(y_f' = j \mid y_f = i) \propto \exp(-|i - j|\, r / \log n_f)`.

    Every factor that has an order moves, independently, by Laplace weights over its
    :math:`n_f` indices; categorical ones never do. Distances do not go round: an angle at its last
    value is far from its first one. A pair in which nothing moved gets one forced change: one of
    the ordered factors, chosen uniformly, takes a new value by its weights without the old value.

    References:
        Klindt et al.: Towards nonlinear disentanglement in natural data with temporal sparse
        coding, 2021; `zimmermann2020`, A.6.

    Args:
        rate: The rate r; a larger one moves factors less far.

    Example:
        >>> from isolatent.datasets import Sprites
        >>> laplace = LaplaceTransitions(rate=1.0)
        >>> y, y_pos = laplace.sample_factors(Sprites(), 1000, torch.Generator().manual_seed(0))
        >>> bool((y != y_pos).any(1).all()), int((y != y_pos)[:, 0].sum())
        (True, 0)
    """

    rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_real("rate", self.rate, above=0))

    def check(self, world: FactorWorld) -> None:
        if not _ordered(world):
            raise ValueError(
                f"world must have an ordered factor with more than one value for {self!r}, got "
                f"{world!r}"
            )

    def probabilities(self, n: int) -> Tensor:
        """The matrix (n, n), float64, of p(j | i) of a factor with n values, before any force."""
        check_integer("n", n, at_least=2)
        index = torch.arange(n, dtype=torch.float64)
        distance = (index[:, None] - index).abs()
        return (-distance * self.rate / math.log(n)).softmax(dim=1)

    def sample_factors(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw factors y and y' (batch_size, F) of ``batch_size`` pairs."""
        y = _anchors(self, world, batch_size, generator)
        ordered = _ordered(world)
        y_pos = y.clone()
        for f in ordered:
            free, _ = _tables(self, world.sizes[f])
            y_pos[:, f] = _draw(free, y[:, f], generator)
        still = (y == y_pos).all(dim=1).nonzero()[:, 0]
        which = (uniforms((len(still),), generator, CPU) * len(ordered)).long()
        for position, f in enumerate(ordered):
            rows = still[which == position]
            _, forced = _tables(self, world.sizes[f])
            y_pos[rows, f] = _draw(forced, y[rows, f], generator)
        return y, y_pos


@lru_cache(maxsize=64)
def _tables(transitions: LaplaceTransitions, n: int) -> tuple[Tensor, Tensor]:
    """Cumulated probabilities (n, n) of the next index, and those without the old one."""
    free = transitions.probabilities(n)
    # From the exponents, not from free: a large rate leaves nothing there but the diagonal.
    index = torch.arange(n, dtype=torch.float64)
    logits = -(index[:, None] - index).abs() * transitions.rate / math.log(n)
    forced = logits.fill_diagonal_(-math.inf).softmax(dim=1)
    return tuple(table.cumsum(dim=1) for table in (free, forced))  # type: ignore[return-value]


def _draw(cumulated: Tensor, index: Tensor, generator: Generator) -> Tensor:
    """The first entry of each row's cumulated probabilities above a uniform number."""
    rows = cumulated[index]
    # Below the last sum, which rounding may leave under 1; so a value without weight never comes.
    level = uniforms((len(index), 1), generator, CPU) * rows[:, -1:]
    level = level.minimum(torch.nextafter(rows[:, -1:], torch.zeros(1, dtype=rows.dtype)))
    return torch.searchsorted(rows, level, right=True)[:, 0]


def _ordered(world: FactorWorld) -> list[int]:
    return [f for f, n in enumerate(world.sizes) if n > 1 and not world.categorical[f]]


def _anchors(
    transitions: Transitions, world: FactorWorld, batch_size: int, generator: Generator
) -> Tensor:
    if not isinstance(world, FactorWorld):
        raise TypeError(f"world must be a FactorWorld, got {world!r}")
    transitions.check(world)
    check_integer("batch_size", batch_size, at_least=1)
    check_generator("generator", generator)
    return world.sample_factors(batch_size, generator)
