"""Pair sources: the contract, batches, and pairs from a world."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer
from isolatent.worlds import Distribution, World

__all__ = ["Batch", "FinitePairSource", "PairSource", "SplitError", "WorldPairs"]


@dataclass(frozen=True)
class Batch:
    """Pairs of observations, with negatives of their own and tags where the source has them.

    Args:
        x: Anchors (B, ...).
        x_pos: Their positives (B, ...).
        negatives: Negatives besides those of the batch: (K, ...) for all anchors, or (B, K, ...),
            K for each anchor.
        tags: For each pair the index of the conditional of its positive, integers (B,);
            :class:`isolatent.Ensemble` has one loss for each tag.
        unpaired: Observations (K, ...) of no pair, distributed as those of pairs: negatives for all
            anchors and all positives.
        blocks: For each pair the block it is in, integers (B,): pairs of different blocks are no
            negatives of each other, and the loss is the mean of those of the blocks.

    Example:
        >>> batch = Batch(torch.zeros(4, 2), torch.ones(4, 2), negatives=torch.zeros(4, 8, 2))
        >>> len(batch), batch.rows(slice(0, 3)).negatives.shape
        (4, torch.Size([3, 8, 2]))
    """

    x: Tensor
    x_pos: Tensor
    negatives: Tensor | None = None
    tags: Tensor | None = None
    unpaired: Tensor | None = None
    blocks: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def n_candidates(self) -> float:
        """Number of candidates for each positive; with blocks, their geometric mean."""
        more = 0 if self.unpaired is None else len(self.unpaired)
        if self.blocks is None:
            return len(self) + more
        sizes = torch.unique(self.blocks, return_counts=True)[1].double()
        return math.exp(float((sizes * (sizes + more).log()).sum()) / len(self))

    @classmethod
    def of(cls, drawn: Batch | tuple[Tensor, Tensor]) -> Batch:
        """Return the sample of a source, a batch or the two halves of its pairs, as a batch."""
        if not isinstance(drawn, Batch):
            two = isinstance(drawn, tuple | list) and len(drawn) == 2
            if not two or not all(isinstance(half, Tensor) for half in drawn):
                raise TypeError(
                    "sample of a pair source must return two tensors, or a Batch, "
                    f"got {type(drawn).__name__}"
                )
            x, x_pos = drawn
            if x.shape != x_pos.shape:
                raise ValueError(
                    "anchors and positives of a pair source must have the same shape, "
                    f"got {tuple(x.shape)} and {tuple(x_pos.shape)}"
                )
            return cls(x, x_pos)
        return drawn

    def to(self, device: torch.device) -> Self:
        """Return the batch on a device."""
        parts = (self.x, self.x_pos, self.negatives, self.tags, self.unpaired, self.blocks)
        return type(self)(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]

    def rows(self, chosen: slice | Tensor) -> Self:
        """Return some of the pairs, with the negatives that belong to them.

        Negatives (K, ...) for all anchors belong to every part, as do unpaired observations.
        """
        negatives = self.negatives
        if negatives is not None and negatives.ndim > self.x.ndim:
            negatives = negatives[chosen]
        tags, blocks = (None if part is None else part[chosen] for part in (self.tags, self.blocks))
        return type(self)(
            self.x[chosen], self.x_pos[chosen], negatives, tags, self.unpaired, blocks
        )

    def split_blocks(self) -> list[Self]:
        """Return the blocks as batches without blocks; one batch if there are none."""
        if self.blocks is None:
            return [self]
        whole = replace(self, blocks=None)
        chosen = [self.blocks == block for block in self.blocks.unique()]
        return [whole.rows(rows) for rows in chosen]


@runtime_checkable
class PairSource(Protocol):
    """Protocol of objects that draw batches of positive pairs.

    ``sample(batch_size, generator)`` returns two tensors (batch_size, ...) whose rows belong
    together, or a :class:`Batch`. All randomness comes from the generator. A source is taken to be
    endless unless it is a :class:`FinitePairSource`.

    A source may have an attribute ``ordered``, True where it is missing: whether every positive
    follows its anchor by one and the same lag, so that one map of the anchor can be the centre of
    its positives (``relax=("dynamics",)``). It is False where lags differ, or where anchor and
    positive could be exchanged.

    Example:
        >>> class NoisyPairs:
        ...     def sample(self, batch_size, generator):
        ...         x = torch.rand(batch_size, 2, generator=generator)
        ...         return x, x + 0.1 * torch.randn(x.shape, generator=generator)
        >>> isinstance(NoisyPairs(), PairSource)
        True
    """

    def sample(self, batch_size: int, generator: Generator) -> Any:
        """Draw ``batch_size`` pairs."""
        ...


@runtime_checkable
class FinitePairSource(PairSource, Protocol):
    """A pair source with finitely many pairs, some of which can be held out.

    A source that has ``__len__`` and ``split`` is finite: training holds some of its pairs out and
    stops when the loss on them no longer falls.
    """

    def __len__(self) -> int:
        """Return the number of pairs."""
        ...

    def split(self, share: float, generator: Generator) -> tuple[Any, Any]:
        """Return two sources: one with most of the pairs, one with ``share`` of them.

        Raises:
            SplitError: If there are too few pairs for that.
        """
        ...


class SplitError(ValueError):
    """Raised where a source has too few pairs to hold some of them out."""


class WorldPairs:
    r"""Endless fresh pairs from a world with known factors.

    Args:
        world: The world to observe.
        conditionals: Several conditionals instead of that of the world. The positive of row i of a
            batch is drawn from number ``i % len(conditionals)``, which is the tag of the pair.
        negatives: Distribution of negatives around their anchor, which each batch then carries.
            With positives of precision Λ⁺ and negatives of precision Λ⁻, AnInfoNCE has its optimum
            at :math:`\hat\Lambda = \Lambda^+ - \Lambda^-` (`rusak2025`, Corollary 3.1).
        n_negatives: Number of these negatives for each anchor.

    Attributes:
        ordered: True; positives are drawn given their anchors.

    Example:
        >>> import isolatent as iso
        >>> world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Identity(), seed=0)
        >>> pairs = WorldPairs(world, conditionals=[iso.Normal(0.1), iso.Laplace(0.1)])
        >>> pairs.sample(4, Generator().manual_seed(0)).tags
        tensor([0, 1, 0, 1])
    """

    ordered = True

    def __init__(
        self,
        world: World,
        *,
        conditionals: Sequence[Distribution] | None = None,
        negatives: Distribution | None = None,
        n_negatives: int = 16,
    ) -> None:
        if not isinstance(world, World):
            raise TypeError(f"world must be a World, got {world!r}")
        if conditionals is not None and len(conditionals) == 0:
            raise ValueError("conditionals must be one or more distributions, got none")
        for name, distribution in (
            *(("conditionals", conditional) for conditional in conditionals or ()),
            *([] if negatives is None else [("negatives", negatives)]),
        ):
            if not isinstance(distribution, Distribution):
                raise TypeError(f"{name} must be a Distribution, got {distribution!r}")
            distribution.check(world.space)
        self.world = world
        self.conditionals = None if conditionals is None else tuple(conditionals)
        self.negatives = negatives
        self.n_negatives = check_integer("n_negatives", n_negatives, at_least=1)

    def sample(self, batch_size: int, generator: Generator) -> Any:
        """Draw ``batch_size`` pairs of observations."""
        check_generator("generator", generator)
        if self.conditionals is None and self.negatives is None:
            return self.world.sample_pairs(batch_size, generator)
        space, mixing = self.world.space, self.world.mixing
        z = self.world.sample_anchors(batch_size, generator)
        tags = None
        if self.conditionals is None:
            z_pos = self.world.conditional.sample(space, z, generator)
        else:
            count = len(self.conditionals)
            tags = torch.arange(batch_size, device=z.device) % count
            z_pos = torch.empty_like(z)
            for tag, conditional in enumerate(self.conditionals[:batch_size]):
                z_pos[tag::count] = conditional.sample(space, z[tag::count], generator)
        if self.negatives is None:
            return Batch(mixing(z), mixing(z_pos), tags=tags)
        around = z.repeat_interleave(self.n_negatives, dim=0)
        z_neg = self.negatives.sample(space, around, generator)
        x_pos, x_neg = mixing(torch.cat([z_pos, z_neg])).split([len(z_pos), len(z_neg)])
        negatives = x_neg.view(batch_size, self.n_negatives, *x_neg.shape[1:])
        return Batch(mixing(z), x_pos, negatives, tags)

    def __repr__(self) -> str:
        options = "".join(
            f", {name}={value!r}"
            for name, value in (("conditionals", self.conditionals), ("negatives", self.negatives))
            if value is not None
        )
        return f"WorldPairs({self.world!r}{options})"
