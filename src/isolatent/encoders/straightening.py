"""Undoing what training does to each coordinate by itself."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = ["Straightening"]


class Straightening(nn.Module):
    r"""A monotone map of each coordinate under which pairs are equally far apart everywhere.

    If pairs come from one conditional :math:`\propto e^{-\lambda \sum_k |z'_k - z_k|^p}`, codes
    that are the factors up to a warp :math:`h_k = w_k(z_k)` of each have pairs at a local distance
    proportional to :math:`w_k'`. So the map with slope :math:`(E[|h'_k - h_k|^p \mid h_k])^{-1/p}`
    undoes it. It starts as the identity; :meth:`fit` estimates it piecewise linear, over parts that
    hold equally many middles of pairs, from the range of the codes onto that from 0 to 1.

    Args:
        n: Number of codes.
        p: Power of the distance.
        pieces: Linear pieces of each map.

    Example:
        >>> z = torch.rand(20_000, 1)
        >>> z_pos = (z + 0.02 * torch.randn(20_000, 1)).clamp(0, 1)
        >>> straight = Straightening(1).fit(z**2, z_pos**2)
        >>> bool((straight(z**2) - z).abs().max() < 0.05)
        True
    """

    knots: Tensor
    values: Tensor

    def __init__(self, n: int, p: float = 2.0, pieces: int = 16) -> None:
        super().__init__()
        check_integer("n", n, at_least=1)
        self.p = check_real("p", p, at_least=1)
        self.pieces = check_integer("pieces", pieces, at_least=1)
        even = torch.linspace(0, 1, pieces + 1).repeat(n, 1)
        self.register_buffer("knots", even)
        self.register_buffer("values", even.clone())

    def fit(self, h: Tensor, h_pos: Tensor) -> Self:
        """Estimate the maps from codes (N, n) of pairs."""
        if h.shape != h_pos.shape or h.ndim != 2 or h.shape[1] != len(self.knots):
            raise ValueError(
                f"h and h_pos must have the same shape (N, {len(self.knots)}), "
                f"got {tuple(h.shape)} and {tuple(h_pos.shape)}"
            )
        if len(h) < 10 * self.pieces:
            raise ValueError(
                f"h must have at least 10 rows for each of the {self.pieces} pieces, got {len(h)}"
            )
        middle = (0.5 * (h + h_pos)).double()
        distance = (h - h_pos).double().abs() ** self.p
        order = middle.argsort(0)
        parts = order.tensor_split(self.pieces)
        local = torch.stack([distance.gather(0, part).mean(0) for part in parts], 1)
        ends = [middle.gather(0, part[:1]) for part in parts] + [middle.gather(0, order[-1:])]
        knots = torch.cat(ends).T
        if bool((local <= 0).any()) or bool((knots.diff(dim=1) <= 0).any()):
            raise ValueError("h and h_pos must differ, and vary, in every coordinate")
        rise = local ** (-1 / self.p) * knots.diff(dim=1)
        self.knots.copy_(knots)
        self.values.copy_(nn.functional.pad(rise.cumsum(1), (1, 0)) / rise.sum(1, keepdim=True))
        return self

    def forward(self, h: Tensor) -> Tensor:
        """Map codes (N, n); beyond the last knots along the last pieces."""
        columns = h.T.contiguous()
        inner = self.knots[:, 1:-1].contiguous()
        piece = torch.searchsorted(inner, columns)
        low, high = self.knots.gather(1, piece), self.knots.gather(1, piece + 1)
        start, end = self.values.gather(1, piece), self.values.gather(1, piece + 1)
        return (start + (columns - low) / (high - low) * (end - start)).T
