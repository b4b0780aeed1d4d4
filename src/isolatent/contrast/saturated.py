"""InfoNCE where the batch is too small to feel its negatives."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_one_of, check_real
from isolatent.contrast.contrastive_loss import ContrastiveLoss, Direction, count_negatives
from isolatent.contrast.distributed import Counts, gather_rows
from isolatent.contrast.kernels import both_logsumexp
from isolatent.contrast.similarities import Lp

__all__ = ["GEOMETRIES", "SaturatedInfoNCE", "WallPotential"]

GEOMETRIES = ("sphere", "box", "free")
RESOLUTIONS = {"sphere": 0.6, "box": 0.6, "free": 0.9}
GRID = 257  # points of the unit interval on which a kernel is balanced
MOST_NATS = 4.0  # that a kernel on that grid may hold, below log(GRID) by a good deal
SWEEPS = 200  # of the balancing, which converges by a factor of two or more each


class SaturatedInfoNCE(ContrastiveLoss):
    r"""Alignment and balanced uniformity, which InfoNCE becomes for a narrow conditional.

    Where positives are nearer than all negatives, InfoNCE is zero and so is its gradient. Its
    optimum is still well defined: with a conditional :math:`\propto e^{-\lambda d}` of unknown λ
    it minimises :math:`\tfrac np \log E\, d(h, h') - H(h)`. The entropy H cannot be measured at
    the width of the conditional with B points, but it can at a width that B points resolve:

    .. math::
        A \log E\, d(h, h') + E_i \log E_j\, e^{-\omega d(h_i, h'_j) + b(h_i) + b(h'_j)}

    ω is such that the kernel holds a share ``resolution`` of the log B nats. The walls of a box
    take away neighbours, which would push codes against them; b balances that: with it each row
    and each column of the kernel has mean one over uniform codes, which makes uniform codes a
    stationary point whatever ω, and a minimum where the kernel is positive definite (p ≤ 2). A
    sphere has no walls. Free codes are first divided by their root mean square.

    Alignment is worth A nats whatever the data's scale; codes that contract make it weaker, so they
    cannot collapse. What is left of its pull is a warp of each coordinate that
    :class:`isolatent.encoders.Straightening` removes.

    References:
        | Understanding Contrastive Representation Learning through Alignment and Uniformity on the
          Hypersphere (Wang & Isola 2020)

    Args:
        n: Number of codes.
        p: Power of the distance; 2 on a sphere.
        geometry: ``"sphere"`` of radius 1, ``"box"`` between 0 and 1, or ``"free"``.
        batch_size: B, the number of pairs that the kernel is for.
        alignment: A, in nats.
        resolution: Share of log B; by default 0.6, and 0.9 for free codes, which have no walls to
            be balanced and gain from a narrower kernel.
        engine: As in :class:`ContrastiveLoss`.
        gather: As in :class:`ContrastiveLoss`.

    Example:
        >>> z = torch.rand(512, 3, generator=torch.Generator().manual_seed(0))
        >>> loss = SaturatedInfoNCE(3, geometry="box")
        >>> bool(loss(z, z + 0.01) < loss(z**3, (z + 0.01) ** 3))  # uniform codes are better
        True
    """

    def __init__(
        self,
        n: int,
        p: float = 2.0,
        geometry: str = "sphere",
        batch_size: int = 1024,
        *,
        alignment: float = 2.0,
        resolution: float | None = None,
        engine: str = "auto",
        gather: bool = False,
    ) -> None:
        check_one_of("geometry", geometry, GEOMETRIES)
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
            most = MOST_NATS  # a kernel narrower than the grid cannot be balanced on it
            width, table = _interval_kernel(min(nats / n, most), check_real("p", p, at_least=1))
            walls = WallPotential(table) if geometry == "box" else None
        super().__init__(
            Lp(p=p, weights=width),
            potential=walls,
            potential_pos=walls,
            engine=engine,
            gather=gather,
        )
        self.n, self.p, self.geometry = n, float(p), geometry
        self.alignment = check_real("alignment", alignment, above=0)

    def _value(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> Tensor:
        if negatives is not None:
            raise ValueError("negatives must be None: SaturatedInfoNCE takes those of the batch")
        if self.geometry == "free":
            both = torch.cat([_everyone(h, counts), _everyone(h_pos, counts)])
            spread = (both - both.mean(0)).square().mean().sqrt()
            h, h_pos = h / (math.sqrt(12) * spread), h_pos / (math.sqrt(12) * spread)
        return self._alignment(h, h_pos, counts) + self._uniformity(h, h_pos, counts)

    def _alignment(self, h: Tensor, h_pos: Tensor, counts: Counts | None = None) -> Tensor:
        distances = (h - h_pos).abs().pow(self.p).sum(1)
        distance = distances.mean() if len(h) else distances.sum()
        with torch.no_grad():
            everyone, others = _everyone(h, counts), _everyone(h_pos, counts).roll(1, 0)
            apart = (everyone - others).abs().pow(self.p).sum(1).mean()
            filled = (apart / self._uniform_distance()).clamp(max=1.0)
            # All processes weight the distance of their own pairs by that of all pairs.
            overall = _everyone(distances.detach(), counts).mean()
            value = (overall / apart).log()
        pull = (distance - distance.detach()) / overall
        return self.alignment * (filled * pull + value)

    def _uniform_distance(self) -> float:
        """E d of two independent uniform codes."""
        if self.geometry == "sphere":
            return 2.0
        return 2.0 * self.n / ((self.p + 1) * (self.p + 2))

    def _uniformity(self, h: Tensor, h_pos: Tensor, counts: Counts | None = None) -> Tensor:
        if counts is not None:
            return super()._value(h, h_pos, None, counts)
        forth, back = self._directions(h, h_pos, None)
        rows, columns = both_logsumexp(
            h,
            h_pos,
            p=self.p,
            weights=self.similarity.coordinate_weights(self.n).to(h.dtype),
            row_potential=forth.row_potential,
            column_potential=back.row_potential,
            skip=forth.negatives[0].skip,
            engine=self.engine,
        )
        return 0.5 * (rows + columns).mean() - math.log(len(h) - 1)

    def _one_way(self, direction: Direction) -> Tensor:
        parts = torch.stack(self._logsumexps(direction))
        return (parts.logsumexp(0) - math.log(count_negatives(direction))).mean()


def _everyone(rows: Tensor, counts: Counts | None) -> Tensor:
    """Rows from all processes, unless ``counts`` is None."""
    return rows if counts is None else gather_rows(rows, counts)


class WallPotential(nn.Module):
    """The potential that balances a kernel on the unit box: a table for each coordinate.

    Args:
        table: Logarithms of the factors on an even grid of the unit interval.
    """

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, h: Tensor) -> Tensor:
        """The potential of each row of h (B, n), differentiable in h."""
        table = self.table.to(h)
        place = h.clamp(0, 1) * (len(table) - 1)
        left = place.detach().floor().clamp(max=len(table) - 2).long()
        share = place - left
        return -(table[left] * (1 - share) + table[left + 1] * share).sum(-1)


@lru_cache(maxsize=64)
def _interval_kernel(nats: float, p: float) -> tuple[float, Tensor]:
    """The kernel exp(-ω |t - t'|^p) on the unit interval that holds so many nats, balanced."""
    low, high = 1e-3, 1e3
    while _balanced(high, p)[1] < nats:
        high *= 4
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _balanced(middle, p)[1] < nats else (low, middle)
    return high, _balanced(high, p)[0]


def _balanced(width: float, p: float) -> tuple[Tensor, float]:
    """Logarithms b of the factors that give each row and column mean one, and the nats it holds."""
    t = torch.linspace(0, 1, GRID, dtype=torch.float64)
    measure = torch.full((GRID,), 1 / (GRID - 1), dtype=torch.float64)
    measure[[0, -1]] /= 2
    kernel = torch.exp(-width * (t[:, None] - t).abs() ** p)
    factors = torch.ones(GRID, dtype=torch.float64)
    for _ in range(SWEEPS):
        factors = (factors / (kernel @ (factors * measure))).sqrt()
    kernel = factors[:, None] * kernel * factors
    return factors.log(), float(measure @ torch.special.xlogy(kernel, kernel) @ measure)


@lru_cache(maxsize=64)
def _sphere_kernel(n: int, nats: float) -> float:
    """The ω for which exp(-ω |u - v|²) on a sphere, a vMF density, holds so many nats."""
    angle = (torch.arange(20_000, dtype=torch.float64) + 0.5) * (math.pi / 20_000)
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
