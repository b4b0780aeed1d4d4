"""Whitening, the first and linear layer of an encoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = ["Whitening"]


class Whitening(nn.Module):
    r"""The map :math:`x \mapsto C^{-1/2} (x - \mu)` with the mean μ and covariance C of the data.

    Before :meth:`fit` the map is the identity. :meth:`fit` estimates mean and covariance in one
    pass over batches, so the data may be larger than memory. Directions whose variance is below
    ``tolerance`` times the largest variance are divided by the square root of that floor, not by
    their own standard deviation.

    Args:
        n_features: Observed dimensions m.
        tolerance: Floor of the variances, relative to the largest.

    Example:
        >>> x = torch.randn(1000, 3) @ torch.randn(3, 3) + 5
        >>> whitening = Whitening(3).fit(x.split(100))
        >>> torch.allclose(torch.cov(whitening(x).T), torch.eye(3), atol=1e-3)
        True
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, n_features: int, tolerance: float = 1e-8) -> None:
        super().__init__()
        self.n_features = check_integer("n_features", n_features, at_least=1)
        self.tolerance = check_real("tolerance", tolerance, above=0, below=1)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("matrix", torch.eye(n_features))

    def fit(self, batches: Iterable[Tensor]) -> Self:
        """Estimate mean and covariance from batches (N_b, m), in float64 on the CPU."""
        count, n = 0, self.n_features
        mean = torch.zeros(n, dtype=torch.float64, device="cpu")
        scatter = torch.zeros(n, n, dtype=torch.float64, device="cpu")
        for batch in batches:
            if batch.ndim != 2 or batch.shape[1] != self.n_features:
                raise ValueError(
                    f"batches must have shape (N, {self.n_features}), got {tuple(batch.shape)}"
                )
            rows = batch.detach().cpu().double()
            total = count + len(rows)
            step = rows.mean(0) - mean
            centred = rows - rows.mean(0)
            # Chan's update: the scatter of both groups plus the scatter between their means.
            scatter += centred.mT @ centred + torch.outer(step, step) * count * len(rows) / total
            mean += step * len(rows) / total
            count = total
        if count < 2:
            raise ValueError(f"batches must hold at least 2 rows in all, got {count}")
        if not bool(scatter.isfinite().all()):
            raise ValueError("batches must hold numbers whose squares are finite")
        variances, axes = torch.linalg.eigh(scatter / (count - 1))
        floor = self.tolerance * float(variances.max())
        if floor <= 0:
            raise ValueError("batches must vary, but every column is constant")
        matrix = (axes * variances.clamp(min=floor).rsqrt()) @ axes.mT
        self.mean.copy_(mean.to(self.mean.dtype))
        self.matrix.copy_(matrix.to(self.matrix.dtype))
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Whiten observations (N, m)."""
        with torch.autocast(x.device.type, enabled=False):  # half precision is not enough
            return (x - self.mean) @ self.matrix
