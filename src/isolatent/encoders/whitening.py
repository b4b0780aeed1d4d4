"""Whitening, the first and linear layer of an encoder, and a transformation of counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = ["Anscombe", "Whitening"]

Pairs = Iterable[tuple[Tensor, Tensor]]

ROUNDING_ERRORS = 4  # multiples of the rounding error below which nothing is taken to vary
PAIRS_PER_DIRECTION = 10  # at least so many pairs for each direction that is examined
MIN_DIRECTIONS, DIRECTIONS_PER_CODE = 20, 5  # largest number of directions that are kept by pairs


class Anscombe(nn.Module):
    r"""Anscombe's transformation of counts, :math:`x \mapsto 2 \sqrt{x + 3/8}`.

    The variance of a Poisson count is its mean; that of a transformed one is about 1 for means
    above 4, so that noise is equally large everywhere.

    Example:
        >>> rates = torch.tensor([5.0, 50.0, 500.0])
        >>> counts = torch.poisson(rates.expand(20_000, 3))
        >>> torch.allclose(Anscombe()(counts).var(0), torch.ones(3), atol=0.1)
        True
    """

    def forward(self, x: Tensor) -> Tensor:
        """Transform counts of any shape."""
        # Reading values from another device would wait for it.
        if x.device.type == "cpu" and bool((x < 0).any()):
            raise ValueError(f"counts must not be negative, got {float(x.min()):g}")
        return 2 * (x + 0.375).sqrt()

    @staticmethod
    def inverse(x: Tensor) -> Tensor:
        """Return what transforms to x; values that no count has become 0."""
        return ((x.clamp(min=0) / 2).square() - 0.375).clamp(min=0)


class Whitening(nn.Module):
    r"""The map :math:`x \mapsto R^{-1/2} D^{-1} (x - \mu)` to uncorrelated coordinates.

    μ is the mean of the data, D the diagonal matrix of their standard deviations and R their
    correlation matrix, so that the units of the columns do not matter. Before :meth:`fit` or
    :meth:`fit_pairs` the map is the identity. Both need one pass over batches, so the data may be
    larger than memory.

    Directions that vary by no more than rounding errors are dropped, and :meth:`fit_pairs` also
    drops those that pairs do not share. Then the whitened data have fewer columns, coordinates in
    the space of the ``n_kept`` directions that are left. Directions whose variance is below
    ``tolerance`` times the largest are divided by the square root of that floor, not by their own
    standard deviation.

    Args:
        n_features: Observed dimensions m.
        tolerance: Floor of the variances of directions, relative to the largest.
        n_kept: Number of directions, to load a state into; by default m.

    Attributes:
        n_kept: Number of directions that are kept, the number of columns of whitened data.

    Example:
        >>> x = torch.randn(1000, 3) @ torch.randn(3, 3) + 5
        >>> whitening = Whitening(3).fit(x.split(100))
        >>> torch.allclose(torch.cov(whitening(x).T), torch.eye(3), atol=1e-3)
        True
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, n_features: int, tolerance: float = 1e-8, n_kept: int | None = None) -> None:
        super().__init__()
        self.n_features = check_integer("n_features", n_features, at_least=1)
        self.tolerance = check_real("tolerance", tolerance, above=0, below=1)
        kept = n_features if n_kept is None else check_integer("n_kept", n_kept, at_least=1)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("matrix", torch.eye(n_features, kept))

    @property
    def n_kept(self) -> int:
        return self.matrix.shape[1]

    def fit(self, batches: Iterable[Tensor]) -> Self:
        """Estimate mean and covariance from batches (N_b, m), in float64 on the CPU."""
        moments = _Moments(self.n_features)
        for batch in batches:
            moments.add(batch, batch)
        scale, variances, axes = self._principal_directions([moments])
        return self._set(moments.mean, scale, axes, variances)

    def fit_pairs(
        self,
        first: Pairs,
        second: Pairs,
        n_components: int,
        n_pairs: int,
        unpaired: Iterable[Tensor] = (),
    ) -> Self:
        r"""Estimate mean and covariance from pairs, and keep directions that the pairs share.

        Let :math:`C_1` and :math:`C_2` be the cross-covariances of whitened pairs (x, x') in two
        disjoint sets of pairs. Their errors are independent, so the diagonal of

        .. math:: (C_1 C_2^T + C_1^T C_2) / 2

        is an unbiased estimate of the share of each principal direction that the other member of
        the pair predicts linearly. It is zero for noise that is independent in the two members, and
        errors of the estimate are as often negative as positive. So directions are kept whose share
        exceeds the magnitude of the most negative one. Of these, few are enough: the 5 for each
        code, but at least 20, that have the largest shared variance, which is the share times the
        variance in units of the columns. Directions beyond would be inflated to the same size, and
        each brings weights to overfit.

        If fewer than ``n_components`` directions pass, the pairs are too few or too weak to choose
        by, and the directions with the largest variances are kept. With no more columns than
        ``n_components`` nothing is dropped but rounding errors. At most one direction is examined
        for every ten pairs, those with the largest variances.

        Args:
            first: Batches (x, x_pos) of one set of pairs, of shapes (N_b, m).
            second: Batches of another set of pairs.
            n_components: Number of codes.
            n_pairs: Number of distinct pairs in both sets.
            unpaired: Batches of further observations, for mean and covariance.
        """
        sets = []
        for batches in (first, second):
            x, x_pos, cross = (_Moments(self.n_features) for _ in range(3))
            for anchors, positives in batches:
                x.add(anchors, anchors)
                x_pos.add(positives, positives)
                cross.add(anchors, positives)
            sets.append((x, x_pos, cross))
        every = [moments for x, x_pos, _ in sets for moments in (x, x_pos)]
        counts = torch.full((len(every),), n_pairs / 2, dtype=torch.float64, device="cpu")
        further = _Moments(self.n_features)
        for batch in unpaired:
            further.add(batch, batch)
        if further.count > 1:
            every.append(further)
            counts = torch.cat([counts, counts.new_tensor([further.count])])
        scale, variances, axes = self._principal_directions(every, counts)
        mean = torch.stack([moments.mean for moments in every]).mT @ (counts / counts.sum())
        if self.n_features <= n_components:
            return self._set(mean, scale, axes, variances)
        examined = max(n_components, n_pairs // PAIRS_PER_DIRECTION)
        variances, axes = variances[:examined], axes[:, :examined]
        whiten = scale[:, None] * axes * variances.rsqrt()
        c1, c2 = (whiten.mT @ cross.covariance @ whiten for *_, cross in sets)
        shares = ((c1 * c2).sum(0) + (c1 * c2).sum(1)) / 2
        passed = shares > max(0.0, -float(shares.min()))
        size, most = variances * shares * passed, int(passed.sum())
        if most < n_components:
            size, most = variances, len(variances)
        most = min(most, max(MIN_DIRECTIONS, DIRECTIONS_PER_CODE * n_components))
        kept = size.argsort(descending=True, stable=True)[:most]
        return self._set(mean, scale, axes[:, kept], variances[kept])

    def forward(self, x: Tensor) -> Tensor:
        """Whiten observations (N, m)."""
        with torch.autocast(x.device.type, enabled=False):  # half precision is not enough
            return (x - self.mean) @ self.matrix

    def _principal_directions(
        self, sets: list[_Moments], counts: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return 1 / standard deviation of each column, and variances and axes of directions.

        Directions are those of the correlation matrix, by descending variance, without those that
        vary by no more than rounding errors. A column that varies by no more than that has the
        scale 0. Variances have their floor.
        """
        if (count := min(moments.count for moments in sets)) < 2:
            raise ValueError(f"batches must hold at least 2 rows in all, got {count}")
        if counts is None:
            counts = torch.ones(len(sets), dtype=torch.float64, device="cpu")
        every = torch.stack([moments.covariance for moments in sets])
        covariance = (every * (counts / counts.sum())[:, None, None]).sum(0)
        if not bool(covariance.isfinite().all()):
            raise ValueError("batches must hold numbers whose squares are finite")
        deviation = covariance.diagonal().sqrt()
        rounding = torch.stack([moments.rounding for moments in sets]).amax(0)
        varies = deviation > ROUNDING_ERRORS * rounding
        if not bool(varies.any()):
            raise ValueError("batches must vary, but every column is constant")
        scale = torch.where(varies, 1 / deviation.clamp(min=deviation[varies].min()), 0.0)
        variances, axes = torch.linalg.eigh(scale[:, None] * covariance * scale)
        variances, axes = variances.flip(0), axes.flip(1)
        largest = float(variances[0])
        exact = self.n_features * torch.finfo(torch.float64).eps * largest
        observed = axes.mT.square() @ (rounding * scale).square()  # of each direction
        kept = variances > ROUNDING_ERRORS**2 * observed.clamp(min=exact)
        return scale, variances[kept].clamp(min=self.tolerance * largest), axes[:, kept]

    def _set(self, mean: Tensor, scale: Tensor, axes: Tensor, variances: Tensor) -> Self:
        matrix = scale[:, None] * axes * variances.rsqrt()
        if len(variances) == self.n_features:
            matrix = matrix @ axes.mT  # the whitened data that are closest to the data
        else:
            # Along principal directions themselves training was seen to lose factors (R² of .67
            # instead of .99 with 60 channels at 20 dB); a fixed rotation cures it.
            largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
            matrix = matrix * largest.sign() @ _rotation(len(variances))
        self.mean.copy_(mean)
        self.matrix = matrix.to(self.matrix.device, self.matrix.dtype)
        return self


def _rotation(n: int) -> Tensor:
    """Return a fixed orthogonal matrix without a preferred direction."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(n, n, generator=generator, dtype=torch.float64, device="cpu")
    return torch.linalg.qr(normal)[0]


class _Moments:
    """Means and covariance of two sets of n columns, in one pass over batches of rows."""

    def __init__(self, n: int) -> None:
        self.count, self.n = 0, n
        self.mean, self.mean_b, self.rounding = torch.zeros(3, n, dtype=torch.float64, device="cpu")
        self.scatter = torch.zeros(n, n, dtype=torch.float64, device="cpu")

    def add(self, a: Tensor, b: Tensor) -> None:
        """Add rows of both sets."""
        for batch in (a, b):
            if batch.ndim != 2 or batch.shape[1] != self.n:
                raise ValueError(f"batches must have shape (N, {self.n}), got {tuple(batch.shape)}")
        a64, b64 = a.detach().cpu().double(), b.detach().cpu().double()
        total = self.count + len(a)
        means = a64.mean(0), b64.mean(0)
        steps = means[0] - self.mean, means[1] - self.mean_b
        # Chan's update: the scatter of both groups plus the scatter between their means.
        self.scatter += (a64 - means[0]).mT @ (b64 - means[1])
        self.scatter += torch.outer(*steps) * (self.count * len(a) / total)
        self.mean += steps[0] * (len(a) / total)
        self.mean_b += steps[1] * (len(a) / total)
        self.count = total
        if a.is_floating_point():
            error = torch.finfo(a.dtype).eps / 2 * a64.abs().amax(0)
            self.rounding = torch.maximum(self.rounding, error)

    @property
    def covariance(self) -> Tensor:
        return self.scatter / max(1, self.count - 1)
