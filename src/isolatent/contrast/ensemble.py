"""Sum several losses on the codes of one encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isolatent.contrast.contrastive_loss import ContrastiveLoss
from isolatent.contrast.distributed import check_processes
from isolatent.contrast.losses import AnInfoNCE

__all__ = ["Ensemble"]


class Ensemble(nn.Module):
    r"""The sum :math:`\sum_t L_t` of several losses on the codes of one encoder (`rusak2025`).

    Each conditional distribution has a loss with parameters of its own. Each pair carries the tag t
    of the conditional that its positive was drawn from, and its negatives are taken from the pairs
    with the same tag. A loss without pairs in the batch adds nothing.

    Args:
        losses: One loss for each tag 0, 1, ...; either all of them gather or none does.

    Example:
        >>> from isolatent.contrast.losses import AnInfoNCE
        >>> h, h_pos = torch.randn(2, 6, 3)
        >>> loss = Ensemble([AnInfoNCE(3), AnInfoNCE(3)])
        >>> loss(h, h_pos, tags=torch.tensor([0, 1, 0, 1, 0, 1])).shape
        torch.Size([])
        >>> loss.weights.shape
        torch.Size([2, 3])
    """

    def __init__(self, losses: Sequence[ContrastiveLoss]) -> None:
        super().__init__()
        if not losses or not all(isinstance(loss, ContrastiveLoss) for loss in losses):
            raise TypeError(f"losses must be one or more contrastive losses, got {losses!r}")
        gathers = [loss.gather for loss in losses]
        if len(set(gathers)) > 1:
            raise ValueError(f"losses must have the same gather, got {gathers}")
        self.losses = nn.ModuleList(losses)

    @property
    def gather(self) -> bool:
        """Whether each loss takes its candidates from all processes; settable."""
        return any(loss.gather for loss in self.losses)

    @gather.setter
    def gather(self, value: bool) -> None:
        for loss in self.losses:
            loss.gather = value  # type: ignore[assignment]  # a plain attribute of the loss

    @property
    def weights(self) -> Tensor:
        """The learned weights (number of losses, n); only where every loss is an AnInfoNCE."""
        losses = [loss for loss in self.losses if isinstance(loss, AnInfoNCE)]
        if len(losses) < len(self.losses):
            raise AttributeError("weights exist only where every loss is an AnInfoNCE")
        return torch.stack([loss.weights for loss in losses])

    def forward(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None = None, *, tags: Tensor
    ) -> Tensor:
        """Return the summed loss, a scalar.

        Args:
            h: Codes of the anchors (B, n).
            h_pos: Codes of their positives (B, n).
            negatives: Further negatives: (K, n) for all anchors, or (B, K, n), K for each anchor.
            tags: The index of the loss of each pair (B,), int64. With ``gather=True`` the number
                of pairs with a tag may differ between processes and may be 0.
        """
        count = len(self.losses)
        if not isinstance(tags, Tensor) or tags.dtype != torch.int64 or tags.shape != h.shape[:1]:
            raise ValueError(f"tags must be a tensor of {len(h)} int64 numbers, got {tags!r}")
        if not bool(((tags >= 0) & (tags < count)).all()):
            raise ValueError(f"tags must be from 0 to {count - 1}, got {tags.unique().tolist()}")
        pairs = tags.bincount(minlength=count)  # of each tag
        if self.gather:
            check_processes()
            dist.all_reduce(pairs)
        total = h.new_zeros(())
        for tag, (loss, present) in enumerate(zip(self.losses, pairs.tolist(), strict=True)):
            if present:
                chosen = tags == tag
                given = negatives
                if negatives is not None and negatives.ndim == 3:
                    given = negatives[chosen]
                total = total + loss(h[chosen], h_pos[chosen], negatives=given)
        return total
