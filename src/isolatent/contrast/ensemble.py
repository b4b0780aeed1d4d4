"""Several losses on one encoder's codes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isolatent.contrast.contrastive_loss import ContrastiveLoss

__all__ = ["Ensemble"]


class Ensemble(nn.Module):
    r"""The sum :math:`\sum_i L_i` of several losses on one encoder's codes (`rusak2025`).

    Each way of making positives has a loss of its own, with its own weights; each pair is tagged
    with the way it was made, and its negatives are the pairs with the same tag.

    Args:
        losses: One loss for each tag 0, 1, …

    Example:
        >>> from isolatent.contrast.losses import AnInfoNCE
        >>> h, h_pos = torch.randn(2, 6, 3)
        >>> loss = Ensemble([AnInfoNCE(3), AnInfoNCE(3)])
        >>> loss(h, h_pos, tags=torch.tensor([0, 1, 0, 1, 0, 1])).shape
        torch.Size([])
    """

    def __init__(self, losses: Sequence[ContrastiveLoss]) -> None:
        super().__init__()
        if not losses or not all(isinstance(loss, ContrastiveLoss) for loss in losses):
            raise TypeError(f"losses must be one or more contrastive losses, got {losses!r}")
        if any(loss.gather for loss in losses):
            raise ValueError(
                "losses must have gather=False: processes need not have as many pairs of each tag"
            )
        self.losses = nn.ModuleList(losses)

    def forward(
        self, h: Tensor, h_pos: Tensor, tags: Tensor, negatives: Tensor | None = None
    ) -> Tensor:
        """The summed loss.

        Args:
            h: Codes of the anchors (B, n).
            h_pos: Codes of their positives (B, n).
            tags: For each pair the index of its loss (B,), int64.
            negatives: Further negatives, (K, n) for all anchors or (B, K, n), K for each.
        """
        count = len(self.losses)
        if not isinstance(tags, Tensor) or tags.dtype != torch.int64 or tags.shape != h.shape[:1]:
            raise ValueError(f"tags must be a tensor of {len(h)} int64 numbers, got {tags!r}")
        if not bool(((tags >= 0) & (tags < count)).all()):
            raise ValueError(f"tags must be from 0 to {count - 1}, got {tags.unique().tolist()}")
        total = h.new_zeros(())
        for tag, loss in enumerate(self.losses):
            chosen = tags == tag
            if bool(chosen.any()):
                own = negatives is not None and negatives.ndim == 3
                given = negatives[chosen] if own and negatives is not None else negatives
                total = total + loss(h[chosen], h_pos[chosen], negatives=given)
        return total
