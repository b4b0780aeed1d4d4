"""Contrastive losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isolatent.contrast.similarities import Similarity

__all__ = ["InfoNCE"]


class InfoNCE(nn.Module):
    r"""The loss :math:`E_i[-s(h_i, h'_i) + \log \sum_j e^{s(h_i, h'_j)}]`.

    Negatives of an anchor are the other rows' positives; the positive itself is in the denominator.

    References:
        | Representation Learning with Contrastive Predictive Coding (van den Oord et al. 2018)

    Args:
        similarity: s.
        symmetric: Whether to average with the same loss in the other direction.

    Example:
        >>> from isolatent.contrast.similarities import Dot
        >>> h = torch.eye(2)
        >>> round(InfoNCE(Dot(scale=1.0))(h, h).item(), 4)  # log(1 + e^-1)
        0.3133
    """

    def __init__(self, similarity: Similarity, symmetric: bool = True) -> None:
        super().__init__()
        if not isinstance(similarity, Similarity):
            raise TypeError(f"similarity must be a Similarity such as Dot(), got {similarity!r}")
        self.similarity = similarity
        self.symmetric = symmetric

    def forward(self, h: Tensor, h_pos: Tensor) -> Tensor:
        """The loss of codes h (B, n) and their positives h_pos (B, n)."""
        if h.ndim != 2 or h.shape != h_pos.shape:
            raise ValueError(
                "h and h_pos must have the same shape (B, n), got "
                f"{tuple(h.shape)} and {tuple(h_pos.shape)}"
            )
        s = self.similarity(h, h_pos)
        attraction = s.diagonal().mean()
        repulsion = torch.logsumexp(s, dim=1).mean()
        if self.symmetric:
            repulsion = 0.5 * (repulsion + torch.logsumexp(s, dim=0).mean())
        return repulsion - attraction
