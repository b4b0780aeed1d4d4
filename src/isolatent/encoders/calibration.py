"""Calibrate a trained encoder: maps of its codes that are estimated from pairs after training."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = ["PrincipalAxes", "Straightening"]


def _check_pairs(h: Tensor, h_pos: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return codes (N, n) of pairs on the CPU: not every device has float64."""
    if h.shape != h_pos.shape or h.ndim != 2 or h.shape[1] != n:
        raise ValueError(
            f"h and h_pos must have the same shape (N, {n}), "
            f"got {tuple(h.shape)} and {tuple(h_pos.shape)}"
        )
    return h.detach().cpu(), h_pos.detach().cpu()


class Straightening(nn.Module):
    r"""A monotone map of each coordinate that makes pairs equally distant everywhere.

    Let pairs come from a conditional :math:`\propto e^{-\lambda \sum_k |z'_k - z_k|^p}`, and let
    codes be the factors up to a warp :math:`h_k = w_k(z_k)` of each. Then the local distance of
    pairs is proportional to :math:`w_k'`, and the map with slope
    :math:`(E[|h'_k - h_k|^p \mid h_k])^{-1/p}` inverts the warp. Before :meth:`fit` the map is the
    identity. :meth:`fit` estimates it as piecewise linear, from the range of the codes onto
    [0, 1], with equally many midpoints of pairs in each piece.

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
        """Estimate the maps from codes (N, n) of pairs, in float64 on the CPU."""
        h, h_pos = _check_pairs(h, h_pos, len(self.knots))
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
        values = nn.functional.pad(rise.cumsum(1), (1, 0)) / rise.sum(1, keepdim=True)
        self.knots.copy_(knots.to(self.knots.dtype))
        self.values.copy_(values.to(self.values.dtype))
        return self

    def forward(self, h: Tensor) -> Tensor:
        """Map codes (N, n); the first and last pieces extend beyond the range of the fit."""
        columns = h.T.contiguous()
        inner = self.knots[:, 1:-1].contiguous()
        piece = torch.searchsorted(inner, columns)
        low, high = self.knots.gather(1, piece), self.knots.gather(1, piece + 1)
        start, end = self.values.gather(1, piece), self.values.gather(1, piece + 1)
        return (start + (columns - low) / (high - low) * (end - start)).T


class PrincipalAxes(nn.Module):
    r"""A rotation of codes on a sphere that makes their differences within pairs uncorrelated.

    For :math:`p(z' | z) \propto e^{-\frac12 \sum_k \lambda_k (z'_k - z_k)^2}` on a sphere with
    a uniform marginal, flipping the sign of a factor changes nothing, so
    :math:`E[(z' - z)(z' - z)^\top]` is diagonal, and its entries fall with λ. If codes are a
    rotation of the factors, the eigenvectors of :math:`E[(h' - h)(h' - h)^\top]` rotate them back,
    up to signs and up to rotations among factors of equal λ. Trained codes are a rotation up to an
    error, which would mix factors of similar λ. So they are whitened first, as uniform codes are
    already, and normalised to the sphere in the end.

    Before :meth:`fit` the map is the identity; afterwards codes are sorted by λ, the largest first.

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
        """Estimate the axes from codes (N, n) of pairs, N at least n, in float64 on the CPU."""
        n = len(self.matrix)
        h, h_pos = _check_pairs(h, h_pos, n)
        if len(h) < n:
            raise ValueError(f"h must have at least {n} rows, got {len(h)}")
        both = torch.cat([h, h_pos]).double()
        variances, directions = torch.linalg.eigh(both.mT @ both / len(both))
        if float(variances.min()) <= 0:
            raise ValueError("h and h_pos must vary in every direction")
        whiten = (directions * variances.rsqrt()) @ directions.mT
        differences = (h_pos - h).double() @ whiten
        _, axes = torch.linalg.eigh(differences.mT @ differences)
        self.matrix.copy_((whiten @ axes).to(self.matrix.dtype))
        return self

    def forward(self, h: Tensor) -> Tensor:
        """Rotate codes (N, n) and normalise them to the unit sphere."""
        return nn.functional.normalize(h @ self.matrix, dim=-1)
