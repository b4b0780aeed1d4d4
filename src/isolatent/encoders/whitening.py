"""Whitening: the linear step that makes every later one easier."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Whitening"]


class Whitening(nn.Module):
    r"""The map :math:`x \mapsto C^{-1/2} (x - \mu)` with mean and covariance of the data.

    Directions whose variance is below ``tolerance`` times the largest are not blown up: they are
    divided by the square root of that floor instead.

    Args:
        x: Observations (N, m) from which mean and covariance are estimated.
        tolerance: Relative floor of the variances.

    Example:
        >>> x = torch.randn(1000, 3) @ torch.randn(3, 3) + 5
        >>> torch.allclose(torch.cov(Whitening(x)(x).T), torch.eye(3), atol=1e-3)
        True
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, x: Tensor, tolerance: float = 1e-8) -> None:
        super().__init__()
        if x.ndim != 2 or len(x) < 2:
            raise ValueError(f"x must have shape (N, m) with N >= 2, got {tuple(x.shape)}")
        double = x.double()
        mean = double.mean(0)
        variances, axes = torch.linalg.eigh(torch.cov(double.T).reshape(x.shape[1], x.shape[1]))
        floor = tolerance * float(variances.max())
        if floor <= 0:
            raise ValueError("x must vary, but every column is constant")
        matrix = (axes * variances.clamp(min=floor).rsqrt()) @ axes.mT
        self.register_buffer("mean", mean.to(x.dtype))
        self.register_buffer("matrix", matrix.to(x.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Whiten observations (N, m)."""
        return (x - self.mean) @ self.matrix
