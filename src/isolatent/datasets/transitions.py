"""Transitions of factors on a grid: UNI, LAP and NAT of the papers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real, set_fields
from isolatent.datasets.factor_grid import FactorWorld
from isolatent.worlds.sampling import draw_uniform

__all__ = [
    "LaplaceTransitions",
    "RecordedTransitions",
    "Transitions",
    "UniformFactorChange",
    "synthetic_transitions",
]

MOVING = ("x", "y", "scale")  # factors that change in a recording
FRAMES = 25  # of a synthetic trajectory
CPU = torch.empty(0)


@runtime_checkable
class Transitions(Protocol):
    """Interface of distributions of factor pairs on the grid of a world.

    All randomness comes from the generator, so its state, the world and the transitions determine
    the pairs. Anchors are uniform on the grid unless documented otherwise.
    """

    def check(self, world: FactorWorld) -> None:
        """Raise ValueError if these transitions are not defined on the world."""
        ...

    def sample_factors(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw factors y and y' (batch_size, F), int64, of ``batch_size`` pairs."""
        ...


@dataclass(frozen=True)
class UniformFactorChange:
    r"""UNI: :math:`k` factors change, :math:`k \sim \mathcal U\{1, \dots, F - 1\}`.

    The k factors are chosen uniformly, and each takes one of its *other* values uniformly, so that
    exactly k factors differ. (If the old value could be drawn again, fewer would differ, and
    sometimes none.) Factors with a single value are not counted and never chosen.

    References:
        Locatello et al.: Weakly-supervised disentanglement without compromises, 2020;
        `zimmermann2020`, A.6.

    Args:
        k: Number of factors that change, at most F; by default drawn for each pair.

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
            set_fields(self, k=check_integer("k", self.k, at_least=1))

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
        y = _sample_anchors(world, batch_size, generator, self.check)
        sizes = torch.tensor(world.sizes)
        varying = int((sizes > 1).sum())
        if self.k is None:
            count = 1 + (draw_uniform((batch_size, 1), generator, CPU) * (varying - 1)).long()
        else:
            count = torch.full((batch_size, 1), self.k)
        # The first k factors in a random order, in which factors with one value come last.
        order = draw_uniform(y.shape, generator, CPU) + (sizes <= 1)
        changes = order.argsort(dim=1).argsort(dim=1) < count
        others = (draw_uniform(y.shape, generator, CPU) * (sizes - 1)).long()
        others = others + (others >= y)  # skips the old value
        return y, torch.where(changes, others, y)


@dataclass(frozen=True)
class LaplaceTransitions:
    r"""LAP: :math:`p(y_f' = j \mid y_f = i) \propto \exp(-|i - j|\, r / \log n_f)`.

    Every ordered factor changes independently, with Laplace weights over its :math:`n_f` indices;
    categorical factors never change. Distances are not periodic: the last value of an angle is far
    from its first. A pair without any change gets a forced change: one of the ordered factors,
    chosen uniformly, takes another value, with the same weights but without the old value.

    References:
        Klindt et al.: Towards nonlinear disentanglement in natural data with temporal sparse
        coding, 2021; `zimmermann2020`, A.6.

    Args:
        rate: The rate r; larger rates give smaller changes.

    Example:
        >>> from isolatent.datasets import Sprites
        >>> laplace = LaplaceTransitions(rate=1.0)
        >>> y, y_pos = laplace.sample_factors(Sprites(), 1000, torch.Generator().manual_seed(0))
        >>> bool((y != y_pos).any(1).all()), int((y != y_pos)[:, 0].sum())
        (True, 0)
    """

    rate: float = 1.0

    def __post_init__(self) -> None:
        set_fields(self, rate=check_real("rate", self.rate, above=0))

    def check(self, world: FactorWorld) -> None:
        if not _ordered(world):
            raise ValueError(
                f"world must have an ordered factor with more than one value for {self!r}, got "
                f"{world!r}"
            )

    def sample_factors(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw factors y and y' (batch_size, F) of ``batch_size`` pairs."""
        y = _sample_anchors(world, batch_size, generator, self.check)
        ordered = _ordered(world)
        y_pos = y.clone()
        for f in ordered:
            free, _ = _tables(self, world.sizes[f])
            y_pos[:, f] = _draw(free, y[:, f], generator)
        still = (y == y_pos).all(dim=1).nonzero()[:, 0]
        which = (draw_uniform((len(still),), generator, CPU) * len(ordered)).long()
        for position, f in enumerate(ordered):
            rows = still[which == position]
            _, forced = _tables(self, world.sizes[f])
            y_pos[rows, f] = _draw(forced, y[rows, f], generator)
        return y, y_pos


class RecordedTransitions:
    r"""NAT: x, y and scale change as in a recording.

    Each pair takes a row of the table, drawn uniformly; its other factors, such as shape and
    orientation, are uniform on their grid and equal in both observations. On the grid of a world
    (`ND` in the papers) the n indices of a factor are bins of equal width in [0, 1]; rows without a
    change of bins are kept, since the frequency of rest is part of the recording.
    :meth:`sample_values` returns continuous values (`NC`).

    References:
        Klindt et al., 2021; `zimmermann2020`, A.6.

    Args:
        table: Rows (T, 6) of x, y, scale before and x, y, scale after, each in [0, 1], from the
            least to the greatest value of that factor in the world.
        source: Origin of the table, for display.

    Example:
        >>> from isolatent.datasets import Sprites
        >>> moves = RecordedTransitions([[0.0, 0.5, 0.0, 1.0, 0.5, 0.0]], source="an example")
        >>> y, y_pos = moves.sample_factors(Sprites(), 1, torch.Generator().manual_seed(0))
        >>> (y_pos - y).tolist(), moves
        ([[0, 0, 0, 31, 0]], RecordedTransitions(1 transitions, an example))
    """

    def __init__(self, table: ArrayLike, source: str = "recorded") -> None:
        try:
            rows = np.array(table, dtype=np.float64)
        except (TypeError, ValueError):  # text, or rows of different lengths
            raise TypeError(f"table must be an array of numbers (T, 6), got {table!r}") from None
        if rows.ndim != 2 or rows.shape[1] != 6 or not len(rows):
            raise ValueError(f"table must have shape (T, 6) with T >= 1, got {rows.shape}")
        outside = ~((rows >= 0) & (rows <= 1))
        if outside.any():
            row, column = np.argwhere(outside)[0]
            raise ValueError(
                f"table must lie in [0, 1], got {rows[row, column]} in row {row}, column {column}"
            )
        rows.setflags(write=False)
        self.table = rows
        self.source = source
        self._binned: dict[tuple[int, ...], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.table)

    def check_names(self, world: FactorWorld) -> None:
        """Raise ValueError if the world lacks one of the factors x, y and scale."""
        missing = [name for name in MOVING if name not in world.names]
        if missing:
            raise ValueError(
                f"world must have the factors {MOVING} for {self!r}, got "
                f"{world!r} without {missing}"
            )

    def check(self, world: FactorWorld) -> None:
        self.check_names(world)
        indices = self._indices(world)
        if (indices[:, :3] == indices[:, 3:]).all():
            raise ValueError(
                f"table must hold a transition that changes an index on the grid of {world!r}, got "
                f"{len(self)} without a change"
            )

    def sample_factors(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw factors y and y' (batch_size, F), int64, of ``batch_size`` pairs."""
        y = _sample_anchors(world, batch_size, generator, self.check)
        indices = torch.from_numpy(self._indices(world))
        rows = indices[_integers(len(indices), batch_size, generator)]
        columns = [world.names.index(name) for name in MOVING]
        y_pos = y.clone()
        y[:, columns], y_pos[:, columns] = rows[:, :3], rows[:, 3:]
        return y, y_pos

    def sample_values(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw values (batch_size, F), float64, of pairs, with continuous x, y and scale.

        A world with the method ``observe_values`` can render them.
        """
        factors = _sample_anchors(world, batch_size, generator, self.check_names)
        values = world.values_of(factors)
        values_pos = values.clone()
        moved = self.table[_integers(len(self), batch_size, generator).numpy()]
        for k, name in enumerate(MOVING):
            f = world.names.index(name)
            low, high = world.values[f].min(), world.values[f].max()
            for part, column in ((values, k), (values_pos, 3 + k)):
                part[:, f] = torch.from_numpy(low + moved[:, column] * (high - low))
        return values, values_pos

    def _indices(self, world: FactorWorld) -> NDArray[np.int64]:
        """Return the table as indices of bins; the value 1 is in the last bin."""
        sizes = tuple(world.sizes[world.names.index(name)] for name in MOVING)
        if sizes not in self._binned:
            counts = np.array(sizes * 2)
            self._binned[sizes] = np.minimum(self.table * counts, counts - 1).astype(np.int64)
        return self._binned[sizes]

    def __repr__(self) -> str:
        return f"RecordedTransitions({len(self)} transitions, {self.source})"


def synthetic_transitions(count: int = 100_000, seed: int = 0) -> RecordedTransitions:
    r"""Simulate transitions that resemble natural videos, where no recording is available.

    Objects follow smooth paths of 25 frames. The log-speed and the approach (change of scale over
    speed) of an object are stationary autoregressive processes, its heading is a random walk, and
    paths are reflected at the border. Most steps are small and some are large, with heavier tails
    than a Laplace distribution, as in natural videos; but nothing is measured, and reported results
    must state that the transitions are synthetic. The rows of an object are consecutive.

    Args:
        count: Number of transitions T.
        seed: Integer seed of the simulation.

    Example:
        >>> synthetic_transitions(1000, seed=0)
        RecordedTransitions(1000 transitions, synthetic stand-in)
    """
    check_integer("count", count, at_least=1)
    random = np.random.default_rng(check_integer("seed", seed, at_least=0))
    objects = -(-count // (FRAMES - 1))
    state = random.normal(0.5, [[0.2], [0.2], [0.25]], (3, objects))
    speed, approach = random.normal(size=(2, objects))
    heading = random.uniform(0, 2 * np.pi, objects)
    frames = [state]
    for _ in range(FRAMES - 1):
        speed = 0.9 * speed + np.sqrt(1 - 0.9**2) * random.normal(size=objects)
        approach = 0.9 * approach + np.sqrt(1 - 0.9**2) * random.normal(size=objects)
        heading = heading + random.normal(0, 0.3, objects)
        step = 0.015 * np.exp(speed)
        direction = np.stack([np.cos(heading), np.sin(heading), 0.7 * approach])
        state = state + step * direction
        frames.append(state)
    # Reflect at 0 and 1.
    seen = np.abs((np.stack(frames) + 1) % 2 - 1)
    pairs = np.concatenate([seen[:-1], seen[1:]], axis=1)  # (frame, before and after, object)
    table = pairs.transpose(2, 0, 1).reshape(-1, 6)[:count]
    return RecordedTransitions(table, source="synthetic stand-in")


@lru_cache(maxsize=64)
def _tables(transitions: LaplaceTransitions, n: int) -> tuple[Tensor, Tensor]:
    """Return cumulative probabilities (n, n) of the next index, with and without the old index."""
    index = torch.arange(n, dtype=torch.float64)
    logits = -(index[:, None] - index).abs() * transitions.rate / math.log(n)
    free = logits.softmax(dim=1).cumsum(dim=1)
    # From the exponents: for large rates off-diagonal probabilities underflow.
    return free, logits.fill_diagonal_(-math.inf).softmax(dim=1).cumsum(dim=1)


def _draw(cumulative: Tensor, index: Tensor, generator: Generator) -> Tensor:
    """Sample an index per row by inverse CDF."""
    rows = cumulative[index]
    # Strictly below the last sum, which rounding may leave under 1, so that indices of zero
    # probability are never drawn.
    level = draw_uniform((len(index), 1), generator, CPU) * rows[:, -1:]
    level = level.minimum(torch.nextafter(rows[:, -1:], torch.zeros(1, dtype=rows.dtype)))
    return torch.searchsorted(rows, level, right=True)[:, 0]


def _ordered(world: FactorWorld) -> list[int]:
    return [f for f, n in enumerate(world.sizes) if n > 1 and not world.categorical[f]]


def _sample_anchors(
    world: FactorWorld,
    batch_size: int,
    generator: Generator,
    check: Callable[[FactorWorld], None],
) -> Tensor:
    """Check the arguments, then draw anchors (batch_size, F) uniformly on the grid."""
    if not isinstance(world, FactorWorld):
        raise TypeError(f"world must be a FactorWorld, got {world!r}")
    check(world)
    check_integer("batch_size", batch_size, at_least=1)
    check_generator("generator", generator)
    return world.sample_factors(batch_size, generator)


def _integers(below: int, count: int, generator: Generator) -> Tensor:
    drawn = torch.randint(below, (count,), generator=generator, device=generator.device)
    return drawn.cpu()
