"""Alignment and entropy, for the regime where InfoNCE is saturated and has no gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_one_of, check_real
from isolatent.contrast.contrastive_loss import (
    ContrastiveLoss,
    Direction,
    count_negatives,
    mean_of,
)
from isolatent.contrast.distributed import Counts, average_value, count_rows, gather_rows
from isolatent.contrast.kernels import both_logsumexp
from isolatent.contrast.similarities import Lp, constant_like, register_constant
from isolatent.encoders.calibration import log_sphere_density

__all__ = [
    "RESOLUTIONS",
    "PairMixture",
    "SaturatedAnInfoNCE",
    "SaturatedInfoNCE",
    "SphereMoments",
    "WallPotential",
    "fit_mixture",
    "resolved_scale",
]

RESOLUTIONS = {"sphere": 0.6, "box": 0.6, "free": 0.9}  # of each geometry
ALIGNMENT = 4.0  # A p; that of InfoNCE is n, but would outweigh an entropy of few nats
ALIGNMENT_PER_CODE = 2.0  # A p with a weight for each code; more folds factors that vary widely
GRID = 257  # points of the unit interval on which a kernel is balanced
MOST_NATS = 4.0  # largest information of a kernel on that grid, well below log(GRID)
FLOAT64: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}  # other devices may lack it
SWEEPS = 200  # iterations of the balancing; each at least halves the error


class SaturatedInfoNCE(ContrastiveLoss):
    r"""Alignment plus an entropy estimated with a wide kernel, for a narrow conditional.

    Where all positives are nearer than all negatives, InfoNCE and its gradient are zero. Its
    optimum is still well defined: with a conditional :math:`\propto e^{-\lambda d}` of unknown λ
    it minimises :math:`\tfrac np \log E\, d(h, h') - H(h)`. B points cannot resolve the entropy H
    at the width of the conditional, but they can at a larger width:

    .. math::
        A \big[\log E\, d(h, h') + f - \log f\big]
        + E_i \log E_j\, e^{-\omega d(h_i, h'_j) + b(h_i) + b(h'_j)}

    The last term estimates -H. ω is chosen so that its kernel holds a share ``resolution`` of the
    log B nats. Codes near the walls of a box have fewer neighbours, which would push codes against
    the walls. The potential b balances the kernel: each of its rows and columns has mean one over
    uniform codes. Then uniform codes are a stationary point of the last term for every ω, and a
    minimum where the kernel is positive definite (p ≤ 2). A sphere has no walls.

    A wide kernel hardly sees codes that have contracted, while log E d falls without bound.
    :math:`f = (s / s_0)^p`, s the standard deviation of the codes and :math:`s_0` that of uniform
    codes, prevents a collapse: f - log f is least at f = 1, and codes that contract as a whole gain
    A nats at most. Free codes are divided by :math:`s / s_0`, so the loss ignores their scale.

    This is not InfoNCE, and **its optimum on a box is not that of InfoNCE**. Let
    :math:`h_k = z_k + \varepsilon v(z_k)` for one k, with z uniform on the unit box. For pairs at a
    distance σ → 0 and B → ∞ the expected loss changes by

    .. math:: \varepsilon \frac{A p}{n} \big[v(1) - v(0)\big] + O(\varepsilon^2)

    The exact entropy would change by as much, at A = n / p, and cancel it; its estimate with a
    balanced kernel does not. So codes are drawn away from the walls, which contracts and warps each
    coordinate. To first order the drift acts on each coordinate by itself and mixes none, and
    :class:`isolatent.encoders.Straightening` corrects it. On a sphere there is no drift: log E d
    changes by the mean divergence of v, which is zero.

    References:
        | Understanding Contrastive Representation Learning through Alignment and Uniformity on the
          Hypersphere (Wang & Isola 2020)

    Args:
        n: Number of codes.
        p: Power of the distance; 2 on a sphere.
        geometry: ``"sphere"`` of radius 1, ``"box"`` between 0 and 1, or ``"free"``.
        batch_size: B, the number of pairs that the kernel's width is chosen for.
        alignment: A, in nats; by default 4 / p, which has the same drift for all p.
        resolution: Share of log B; by default 0.6, and 0.9 for free codes, which need no balancing
            and gain from a narrower kernel.
        unrelated: Share of the pairs that are unrelated. So many pairs, the farthest of a batch,
            are left out of E d. (A mixture with a share of its own would be unbounded: codes in
            few clusters have pairs at distance zero, and the others would count as unrelated.)
        engine: As in :class:`ContrastiveLoss`.
        gather: As in :class:`ContrastiveLoss`.

    Example:
        >>> z = torch.rand(512, 3, generator=torch.Generator().manual_seed(0))
        >>> loss = SaturatedInfoNCE(3, geometry="box")
        >>> bool(loss(z, z + 0.01) < loss(z**3, (z + 0.01) ** 3))  # uniform codes are better
        True
    """

    undefined = ("pairing", "anchor_scale", "factor_scale", "dynamics")

    def __init__(
        self,
        n: int,
        p: float = 2.0,
        geometry: str = "sphere",
        batch_size: int = 1024,
        *,
        alignment: float | None = None,
        resolution: float | None = None,
        unrelated: float = 0.0,
        engine: str = "auto",
        gather: bool = False,
    ) -> None:
        check_one_of("geometry", geometry, RESOLUTIONS)
        check_integer("n", n, at_least=2 if geometry == "sphere" else 1)
        share = RESOLUTIONS[geometry] if resolution is None else resolution
        check_real("resolution", share, above=0, below=1)
        if geometry == "sphere" and p != 2:
            raise ValueError(f"p must be 2 on a sphere, got {p}")
        nats = share * math.log(check_integer("batch_size", batch_size, at_least=3))
        walls = None
        if geometry == "sphere":
            width = _sphere_kernel(n, nats)
        else:
            held = min(nats / n, MOST_NATS)  # a kernel narrower than the grid cannot be balanced
            width, table = _interval_kernel(held, check_real("p", p, at_least=1))
            walls = WallPotential(table) if geometry == "box" else None
        super().__init__(
            Lp(p=p, weights=width),
            potential=walls,
            potential_pos=walls,
            engine=engine,
            gather=gather,
        )
        self.n, self.p, self.geometry = n, float(p), geometry
        weight = ALIGNMENT / p if alignment is None else alignment
        self.alignment = check_real("alignment", weight, above=0)
        self.unrelated = check_real("unrelated", unrelated, at_least=0, below=1)

    def _value(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> Tensor:
        every, every_pos = h, h_pos  # whose spread and entropy count
        if negatives is not None:
            every, every_pos = self._with_unpaired(h, h_pos, negatives, counts)
        spread = self._spread(every, every_pos, counts)
        if self.geometry == "free":
            h, h_pos, every, every_pos = (part / spread for part in (h, h_pos, every, every_pos))
            spread = torch.ones_like(spread)
        near = self._alignment(h, h_pos, spread, counts)
        return near + self._uniformity(every, every_pos, counts)

    @staticmethod
    def _with_unpaired(
        h: Tensor, h_pos: Tensor, unpaired: Tensor, counts: Counts | None
    ) -> tuple[Tensor, Tensor]:
        """Return both sides of the entropy's estimate, each with half of the unpaired codes."""
        if unpaired.ndim != 2 or counts is not None:
            raise ValueError(
                "negatives must be codes (K, n) of one process, distributed as those of pairs, "
                f"for SaturatedInfoNCE, got {tuple(unpaired.shape)}"
            )
        half = len(unpaired) // 2
        return torch.cat([h, unpaired[:half]]), torch.cat([h_pos, unpaired[half : 2 * half]])

    def _spread(self, h: Tensor, h_pos: Tensor, counts: Counts | None = None) -> Tensor:
        """Return the standard deviation of all codes, divided by that of uniform ones."""
        both = torch.cat([gather_rows(h, counts), gather_rows(h_pos, counts)])
        variance = (both - both.mean(0)).square().mean()
        return (variance * (self.n if self.geometry == "sphere" else 12)).sqrt()

    def _alignment(
        self, h: Tensor, h_pos: Tensor, spread: Tensor, counts: Counts | None = None
    ) -> Tensor:
        distances = gather_rows((h - h_pos).abs().pow(self.p).sum(1), counts)
        filled = spread.pow(self.p)
        near = self._nearest(distances).mean()
        return self.alignment * (near.log() + filled - filled.log())

    def _nearest(self, distances: Tensor) -> Tensor:
        """Return the distances of all pairs but the share that is unrelated."""
        if not self.unrelated:
            return distances
        count = max(1, round((1 - self.unrelated) * len(distances)))
        return distances.topk(count, largest=False).values

    def information(self, h: Tensor, h_pos: Tensor) -> float:
        """Return the information that related pairs share, in nats.

        It is that of a conditional as narrow as differences within related pairs, in a space
        without walls. InfoNCE with B candidates is saturated where it exceeds log B.

        Args:
            h: Codes of anchors (B, n).
            h_pos: Codes of their positives.
        """
        spread = self._spread(h, h_pos)  # codes may fill a small part of their space
        distances = ((h - h_pos) / spread).abs().pow(self.p).sum(1)
        dimensions = self.n - (self.geometry == "sphere")
        scale = dimensions / (self.p * max(float(self._nearest(distances).mean()), 1e-30))
        size = math.log(scale) / self.p - math.log(2 * math.gamma(1 + 1 / self.p))
        return dimensions * (size - 1 / self.p) - self._log_uniform()

    def _log_uniform(self) -> float:
        """Return the logarithm of the density of unrelated positives, the same everywhere.

        Free codes have the standard deviation of uniform ones in a unit box here; the density is
        that of independent normal codes, at the mean of its logarithm.
        """
        if self.geometry == "sphere":
            return log_sphere_density(self.n)
        if self.geometry == "box":
            return 0.0
        return -0.5 * self.n * (math.log(2 * math.pi / 12) + 1)

    def _uniformity(self, h: Tensor, h_pos: Tensor, counts: Counts | None = None) -> Tensor:
        if counts is not None:
            return super()._value(h, h_pos, None, counts)
        sums = both_logsumexp(self._scores_across(h, h_pos, skip=True), self.engine)
        return mean_of(sums).mean() - math.log(len(h) - 1)

    def _one_way(self, direction: Direction) -> Tensor:
        parts = torch.stack(self._logsumexps(direction))
        return (parts.logsumexp(0) - math.log(count_negatives(direction))).mean()


class PairMixture(NamedTuple):
    """Distances within pairs, some of which are unrelated: see :func:`fit_mixture`.

    Attributes:
        scale: λ of the related pairs.
        share: ε, the share of unrelated pairs.
        p: Power of the distance.
        dimensions: Number m of dimensions that a conditional has.
        log_uniform: Logarithm of the density of unrelated positives.
    """

    scale: float
    share: float
    p: float
    dimensions: int
    log_uniform: float

    def log_parts(self, distances: Tensor) -> tuple[Tensor, float]:
        """Return log-densities of related pairs at these distances, and of unrelated ones."""
        size = math.log(self.scale) / self.p - math.log(2 * math.gamma(1 + 1 / self.p))
        related = math.log1p(-self.share) + self.dimensions * size - self.scale * distances
        return related, math.log(self.share) + self.log_uniform


def fit_mixture(
    distances: Tensor, p: float, dimensions: int, log_uniform: float, sweeps: int = 12
) -> PairMixture:
    r"""Estimate the scale of related pairs and the share of unrelated ones, from distances.

    Positives have the density :math:`(1 - \varepsilon) c \lambda^{m/p} e^{-\lambda d}
    + \varepsilon v`. By expectation maximisation, which starts from the nearest tenth of the pairs.

    Args:
        distances: Distances d (N,) within pairs.
        p: Their power.
        dimensions: Number m of dimensions.
        log_uniform: log v.
        sweeps: Number of iterations.

    Example:
        >>> near, far = torch.rand(900) * 1e-3, torch.ones(100)
        >>> round(fit_mixture(torch.cat([near, far]), 2.0, 3, 0.0).share, 2)
        0.1
    """
    d = distances.double()
    nearest = float(d.sort().values[len(d) // 10].clamp(min=1e-30))
    fit = PairMixture(dimensions / (p * nearest), 0.5, p, dimensions, log_uniform)
    for _ in range(sweeps):
        related, unrelated = fit.log_parts(d)
        weights = torch.sigmoid(related - unrelated)
        total = float(weights.sum())
        if total <= 0:
            break
        scale = total * dimensions / (p * max(float(weights @ d), 1e-30))
        fit = fit._replace(scale=scale, share=min(max(1 - total / len(d), 1e-6), 1 - 1e-6))
    return fit


class SaturatedAnInfoNCE(SaturatedInfoNCE):
    r"""Alignment of each code plus entropy, for a narrow conditional with a weight for each code.

    With a conditional :math:`\propto e^{-\sum_k \lambda_k |h'_k - h_k|^p}` of unknown λ, InfoNCE
    minimises :math:`\tfrac1p \sum_k \log E |h'_k - h_k|^p - H(h)`. As in
    :class:`SaturatedInfoNCE`, the entropy is estimated with a wide kernel, the same for all codes:

    .. math::
        \frac An \sum_k \big[\log E |h_k - h'_k|^p + f_k - \log f_k\big]
        + E_i \log E_j\, e^{-\omega d(h_i, h'_j) + b(h_i) + b(h'_j)}

    :math:`f_k` is :math:`(s_k / s_0)^p`, with :math:`s_k` the standard deviation of code k; it is 1
    for uniform codes. For p = 2 the first term is least, among all rotations of codes, where
    differences within pairs are uncorrelated (Hadamard's inequality).

    The first term is a good model of factors that vary little within a pair. A factor that varies
    widely gains more from being folded, :math:`|z_k|` instead of :math:`z_k`, than a wide kernel
    takes: with twice the default A, weights from 5 to 120 on a sphere lose a factor.

    Args:
        n: Number of codes.
        p: Power of the distance; 2 on a sphere.
        geometry: ``"sphere"`` or ``"box"``. The weights of free codes are part of their scales.
        batch_size: B, the number of pairs that the kernel's width is chosen for.
        alignment: A, in nats; by default 2 / p.
        **options: ``resolution``, ``unrelated``, ``engine`` and ``gather`` of
            :class:`SaturatedInfoNCE`.

    Example:
        >>> z = nn.functional.normalize(torch.randn(512, 3))
        >>> step = torch.tensor([0.1, 0.01, 0.01]) * torch.randn(512, 3)
        >>> z_pos = nn.functional.normalize(z + step)
        >>> turn = torch.tensor([[0.8, 0.6, 0.0], [-0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
        >>> loss = SaturatedAnInfoNCE(3)
        >>> bool(loss(z, z_pos) < loss(z @ turn, z_pos @ turn))  # the axes of the conditional
        True
    """

    def __init__(
        self,
        n: int,
        p: float = 2.0,
        geometry: str = "sphere",
        batch_size: int = 1024,
        *,
        alignment: float | None = None,
        **options: Any,
    ) -> None:
        check_one_of("geometry", geometry, ("sphere", "box"))
        weight = ALIGNMENT_PER_CODE / check_real("p", p, at_least=1)
        if alignment is not None:
            weight = alignment
        super().__init__(n, p, geometry, batch_size, alignment=weight, **options)

    def _spread(self, h: Tensor, h_pos: Tensor, counts: Counts | None = None) -> Tensor:
        """Return the standard deviation (n,) of each code, divided by that of uniform ones."""
        both = torch.cat([gather_rows(h, counts), gather_rows(h_pos, counts)])
        variance = (both - both.mean(0)).square().mean(0)
        return (variance * (self.n if self.geometry == "sphere" else 12)).sqrt()

    def _alignment(
        self, h: Tensor, h_pos: Tensor, spread: Tensor, counts: Counts | None = None
    ) -> Tensor:
        distances = gather_rows((h - h_pos).abs().pow(self.p), counts)
        if self.unrelated:
            relative = (distances / distances.detach().median(0).values).sum(1)
            count = max(1, round((1 - self.unrelated) * len(distances)))
            distances = distances[relative.topk(count, largest=False).indices]
        filled = spread.pow(self.p)
        return self.alignment * (distances.mean(0).log() + filled - filled.log()).mean()


class SphereMoments(nn.Module):
    r"""A penalty on first and second moments of codes that differ from those of uniform codes.

    .. math:: n\, |m|^2 + \| n C - I \|_F^2

    m is the mean and C the covariance of the codes of a batch on the unit sphere in n dimensions.
    The codes that identify uniform factors have the penalty zero, up to the noise of a batch, so it
    does not move their optimum. It excludes another one: a factor k with a small weight carries
    little information, and the n - 1 others fit into a cap of the sphere, with larger weights. The
    codes of both hemispheres of factor k are then the same, and no small change of the encoder
    separates them again.

    Args:
        gather: Whether to compute moments of the codes of all processes of ``torch.distributed``.

    Example:
        >>> h = torch.cat([torch.eye(2), -torch.eye(2)])  # uniform on four points of a circle
        >>> SphereMoments()(h, h), SphereMoments()(h[:1], h[:1])
        (tensor(0.), tensor(4.))
    """

    def __init__(self, *, gather: bool = False) -> None:
        super().__init__()
        self.gather = gather

    def forward(self, h: Tensor, h_pos: Tensor) -> Tensor:
        """Return the penalty of codes (B, n) of anchors and positives, a scalar."""
        counts = count_rows(h) if self.gather else None
        both = torch.cat([gather_rows(h, counts), gather_rows(h_pos, counts)])
        n, mean = both.shape[1], both.mean(0)
        covariance = (both - mean).mT @ (both - mean) / len(both)
        excess = n * covariance - torch.eye(n, dtype=both.dtype, device=both.device)
        penalty = n * mean.square().sum() + excess.square().sum()
        return penalty if counts is None else average_value(penalty, counts)


class WallPotential(nn.Module):
    """The potential that balances a kernel on the unit box: the sum of a table per coordinate.

    Args:
        table: Logarithms of the balancing factors on an even grid of the unit interval.
    """

    def __init__(self, table: Sequence[float]) -> None:
        super().__init__()
        register_constant(self, "table", tuple(table))

    def forward(self, h: Tensor) -> Tensor:
        """Return the potential (B,) of codes h (B, n), differentiable in h."""
        table = constant_like(self, "table", h)
        place = h.clamp(0, 1) * (len(table) - 1)
        left = place.detach().floor().clamp(max=len(table) - 2).long()
        share = place - left
        return -(table[left] * (1 - share) + table[left + 1] * share).sum(-1)


@lru_cache(maxsize=64)
def _interval_kernel(nats: float, p: float) -> tuple[float, tuple[float, ...]]:
    """Return ω and the table b of the kernel exp(-ω |t - t'|^p) that holds so many nats."""
    low, high = 1e-3, 1e3
    while _balanced(high, p)[1] < nats:
        high *= 4
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _balanced(middle, p)[1] < nats else (low, middle)
    return high, tuple(_balanced(high, p)[0].tolist())


def _balanced(width: float, p: float) -> tuple[Tensor, float]:
    """Return the logarithms b of the factors that balance a kernel, and the nats it holds."""
    t = torch.linspace(0, 1, GRID, **FLOAT64)
    measure = torch.full((GRID,), 1 / (GRID - 1), **FLOAT64)
    measure[[0, -1]] /= 2
    kernel = torch.exp(-width * (t[:, None] - t).abs() ** p)
    factors = torch.ones(GRID, **FLOAT64)
    for _ in range(SWEEPS):
        factors = (factors / (kernel @ (factors * measure))).sqrt()
    kernel = factors[:, None] * kernel * factors
    return factors.log(), float(measure @ torch.special.xlogy(kernel, kernel) @ measure)


@lru_cache(maxsize=64)
def resolved_scale(n: int, batch_size: int) -> float:
    """Return the largest κ of a vMF on a sphere that a batch resolves: it holds 0.6 log B nats.

    Args:
        n: Number of codes.
        batch_size: B.
    """
    return 2 * _sphere_kernel(n, RESOLUTIONS["sphere"] * math.log(batch_size))


def _sphere_kernel(n: int, nats: float) -> float:
    """Return the ω for which exp(-ω |u - v|²) on a sphere, a vMF density, holds so many nats."""
    angle = (torch.arange(20_000, **FLOAT64) + 0.5) * (math.pi / 20_000)
    area = angle.sin() ** (n - 2)
    area /= area.sum()
    low, high = 1e-3, 1e6
    for _ in range(50):
        middle = math.sqrt(low * high)
        ratio = torch.exp(2 * middle * (angle.cos() - 1))
        ratio /= (ratio * area).sum()
        held = float((torch.special.xlogy(ratio, ratio) * area).sum())
        low, high = (middle, high) if held < nats else (low, middle)
    return high
