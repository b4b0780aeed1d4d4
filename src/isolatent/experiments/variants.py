"""Ways of making pairs that a single world does not have, and the losses that go with them.

Both are `rusak2025`'s: positives that are made in several ways, and negatives drawn around their
anchor. A pair source gives the rows in a fixed order, and the loss takes the codes apart again, so
that training itself knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from isolatent.contrast import AnInfoNCE, Ensemble
from isolatent.worlds import Distribution, World

__all__ = ["EnsembleByRow", "NegativesOfAnchors", "OwnNegatives", "SeveralWays"]


class SeveralWays:
    """Pairs whose positives are made in several ways: row i in the way ``i % len(worlds)``.

    Args:
        worlds: Worlds that differ in their conditional alone.
    """

    def __init__(self, worlds: Sequence[World]) -> None:
        self.worlds = list(worlds)

    def sample(self, batch: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch`` pairs of observations."""
        first = self.worlds[0]
        z = first.sample_anchors(batch, generator)
        z_pos = torch.empty_like(z)
        for way, world in enumerate(self.worlds):
            own = z[way :: len(self.worlds)]
            if len(own):
                z_pos[way :: len(self.worlds)] = world.sample_positives(own, generator)
        return first.mixing(z), first.mixing(z_pos)


class EnsembleByRow(nn.Module):
    """One AnInfoNCE for each way of :class:`SeveralWays`, on one encoder's codes.

    Args:
        n: Number of codes.
        ways: Number of ways.
    """

    def __init__(self, n: int, ways: int) -> None:
        super().__init__()
        self.ensemble = Ensemble([AnInfoNCE(n) for _ in range(ways)])

    @property
    def weights(self) -> Tensor:
        """The learned weights (ways, n)."""
        losses = [loss for loss in self.ensemble.losses if isinstance(loss, AnInfoNCE)]
        return torch.stack([loss.weights for loss in losses])

    def forward(self, h: Tensor, h_pos: Tensor) -> Tensor:
        """The summed loss of codes (B, n)."""
        tags = torch.arange(len(h), device=h.device) % len(self.ensemble.losses)
        value: Tensor = self.ensemble(h, h_pos, tags=tags)
        return value


class OwnNegatives:
    """Pairs, and beside each K negatives drawn around its anchor.

    Args:
        world: The world of anchors and positives.
        negatives: The distribution of negatives around their anchor.
        count: K.
    """

    def __init__(self, world: World, negatives: Distribution, count: int) -> None:
        self.world, self.negatives, self.count = world, negatives, count

    def sample(self, batch: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Observations (B, m), and those of positives, then negatives: (B + B·K, m)."""
        world = self.world
        z, z_pos = world.sample_latents(batch, generator)
        around = z.repeat_interleave(self.count, dim=0)
        z_neg = self.negatives.sample(world.space, around, generator)
        return world.mixing(z), world.mixing(torch.cat([z_pos, z_neg]))


class NegativesOfAnchors(nn.Module):
    r"""AnInfoNCE whose negatives are those of :class:`OwnNegatives` alone.

    With positives from Λ⁺ and negatives from Λ⁻ the optimum is
    :math:`\hat\Lambda = \Lambda^+ - \Lambda^-` (`rusak2025`, Corollary 3.1).

    Args:
        n: Number of codes.
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self.loss = AnInfoNCE(n, symmetric=False, negatives_from="given")

    @property
    def weights(self) -> Tensor:
        """The learned weights (n,)."""
        return self.loss.weights

    def forward(self, h: Tensor, h_pos: Tensor) -> Tensor:
        """The loss of anchors (B, n) and what :class:`OwnNegatives` gives beside them."""
        positive, negative = h_pos[: len(h)], h_pos[len(h) :]
        value: Tensor = self.loss(h, positive, negatives=negative.view(len(h), -1, h.shape[1]))
        return value
