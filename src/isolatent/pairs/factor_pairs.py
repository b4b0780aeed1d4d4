"""Pairs of observations from a world with a grid of factors."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Generator, Tensor

from isolatent.datasets import (
    FactorWorld,
    LaplaceTransitions,
    RecordedTransitions,
    Transitions,
    UniformFactorChange,
)

__all__ = ["FactorPairs", "KnownPairs"]


@runtime_checkable
class _Continuous(Protocol):
    def observe_values(self, values: Tensor) -> Tensor: ...


class KnownPairs(NamedTuple):
    """Observations of pairs, and the factors behind them (values, where they are continuous).

    Example:
        >>> import torch, isolatent as iso
        >>> pairs = FactorPairs(iso.datasets.Sprites(), iso.datasets.UniformFactorChange(k=1))
        >>> known = pairs.sample_known(8, torch.Generator().manual_seed(0))
        >>> known.x.shape, (known.y != known.y_pos).sum(1).tolist()
        (torch.Size([8, 1, 64, 64]), [1, 1, 1, 1, 1, 1, 1, 1])
    """

    x: Tensor
    x_pos: Tensor
    y: Tensor
    y_pos: Tensor


class FactorPairs:
    """Endless fresh pairs from a world with a grid of factors: a pair source.

    Args:
        world: The world to observe.
        transitions: How factors change between the two observations of a pair.
        continuous: Whether factors take values between those of the grid. The transitions must be
            :class:`RecordedTransitions`, and the world must have ``observe_values``, as
            :class:`Sprites` has.

    Example:
        >>> import torch, isolatent as iso
        >>> pairs = FactorPairs(iso.datasets.Sprites(), iso.datasets.LaplaceTransitions())
        >>> x, x_pos = pairs.sample(8, torch.Generator().manual_seed(0))
        >>> x.shape, bool((x != x_pos).flatten(1).any(1).all())
        (torch.Size([8, 1, 64, 64]), True)
    """

    def __init__(
        self, world: FactorWorld, transitions: Transitions, *, continuous: bool = False
    ) -> None:
        if not isinstance(world, FactorWorld):
            raise TypeError(f"world must be a FactorWorld, got {world!r}")
        # A class has these methods, too.
        if isinstance(transitions, type) or not isinstance(transitions, Transitions):
            raise TypeError(
                f"transitions must have check and sample_factors, as UniformFactorChange() has, "
                f"got {transitions!r}"
            )
        if not continuous:
            transitions.check(world)
        elif not isinstance(transitions, RecordedTransitions):
            raise TypeError(
                f"transitions must be RecordedTransitions where continuous=True, got "
                f"{transitions!r}"
            )
        elif not isinstance(world, _Continuous):
            raise TypeError(f"world must have observe_values where continuous=True, got {world!r}")
        else:
            transitions.check_names(world)
        self.world, self.transitions, self.continuous = world, transitions, bool(continuous)

    @property
    def ordered(self) -> bool:
        """Whether positives follow their anchors, as in a recording.

        UNI and LAP change factors around the anchor, in either direction alike; transitions of a
        user's own are ordered unless they say otherwise by an attribute ``ordered``.
        """
        symmetric = isinstance(self.transitions, UniformFactorChange | LaplaceTransitions)
        return bool(getattr(self.transitions, "ordered", not symmetric))

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs of observations."""
        known = self.sample_known(batch_size, generator)
        return known.x, known.x_pos

    def sample_known(self, batch_size: int, generator: Generator) -> KnownPairs:
        """Draw the pairs that ``sample`` draws, with their factors."""
        if self.continuous:
            assert isinstance(self.transitions, RecordedTransitions)
            y, y_pos = self.transitions.sample_values(self.world, batch_size, generator)
        else:
            y, y_pos = self.transitions.sample_factors(self.world, batch_size, generator)
        return KnownPairs(self.observe(y), self.observe(y_pos), y, y_pos)

    def observe(self, factors: Tensor) -> Tensor:
        """Return observations of factors (N, F): indices, or values where they are continuous."""
        if not self.continuous:
            return self.world.observe(factors)
        assert isinstance(self.world, _Continuous)
        return self.world.observe_values(factors)

    def __repr__(self) -> str:
        more = ", continuous=True" if self.continuous else ""
        return f"FactorPairs({self.world!r}, {self.transitions!r}{more})"
