"""Turning codes to the axes along which pairs differ independently."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer

__all__ = ["PrincipalAxes"]


class PrincipalAxes(nn.Module):
    r"""Codes on a sphere, turned so that their differences within pairs are uncorrelated.

    For :math:`p(z' | z) \propto e^{-\frac12 \sum_k \lambda_k (z'_k - z_k)^2}` on a sphere with
    a uniform marginal, flipping the sign of a factor changes nothing, so
    :math:`E[(z' - z)(z' - z)^\top]` is diagonal, and its entries fall with λ. Codes that are a
    rotation of the factors are therefore turned to them by the eigenvectors of their own
    :math:`E[(h' - h)(h' - h)^\top]`, up to signs and up to rotations among factors of equal λ.
    Trained codes are a rotation up to an error, which would mix factors of similar λ; so they are
    whitened first, as uniform ones are already, and put back on the sphere in the end.

    It starts as the identity; after :meth:`fit` the codes are sorted by λ, the largest first.

    Args:
        n: Number of codes.

    Example:
        >>> z = nn.functional.normalize(torch.randn(50_000, 3))
        >>> step = torch.randn(50_000, 3) * torch.tensor([0.3, 0.2, 0.1])
        >>> z_pos = nn.functional.normalize(z + step)
        >>> turn = torch.linalg.qr(torch.randn(3, 3))[0]
        >>> turned = PrincipalAxes(3).fit(z @ turn, z_pos @ turn)(z @ turn)
        >>> bool(torch.corrcoef(torch.stack([turned[:, 2], z[:, 0]]))[0, 1].abs() > 0.99)
        True
    """

    matrix: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(check_integer("n", n, at_least=1)))

    def fit(self, h: Tensor, h_pos: Tensor) -> Self:
        """Find the axes from codes (N, n) of pairs."""
        n = len(self.matrix)
        if h.shape != h_pos.shape or h.ndim != 2 or h.shape[1] != n or len(h) < n:
            raise ValueError(
                f"h and h_pos must have the same shape (N, {n}) with N at least {n}, "
                f"got {tuple(h.shape)} and {tuple(h_pos.shape)}"
            )
        both = torch.cat([h, h_pos]).double()
        variances, directions = torch.linalg.eigh(both.mT @ both / len(both))
        if float(variances.min()) <= 0:
            raise ValueError("h and h_pos must vary in every direction")
        whiten = (directions * variances.rsqrt()) @ directions.mT
        differences = (h_pos - h).double() @ whiten
        _, axes = torch.linalg.eigh(differences.mT @ differences)
        self.matrix.copy_(whiten @ axes)
        return self

    def forward(self, h: Tensor) -> Tensor:
        """Turn codes (N, n) on the unit sphere."""
        return nn.functional.normalize(h @ self.matrix, dim=-1)
