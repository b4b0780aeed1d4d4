"""Generalised normal distributions, truncated to bounded spaces and projected to spheres."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Generator, Tensor

from isolatent.checks import check_real, check_scale, set_fields
from isolatent.worlds.distributions import Elementary, per_dimension
from isolatent.worlds.sampling import draw_uniform, rejection_sample, sample_truncated_normal
from isolatent.worlds.spaces import Euclidean, HollowBall, SeparableSpace, Space, Sphere

__all__ = ["GeneralizedNormal", "Laplace", "Normal"]


@dataclass(frozen=True)
class GeneralizedNormal(Elementary):
    r"""Independent coordinates with :math:`p(z' | c) \propto \exp(-\sum_k |z'_k - c_k|^p / s_k^p)`.

    On a box or a cube grid it is truncated exactly, by inverse CDF on each axis; on a sphere it is
    sampled in :math:`\mathbb R^n` and projected, as in `zimmermann2021`. The standard deviation for
    p = 2 is :math:`s / \sqrt 2`; :class:`Normal` takes the standard deviation.

    On a hollow ball it is truncated exactly as well, efficiently for every n and scale if p = 2 and
    there is one scale. Otherwise the sampler is rejection, alternating between untruncated draws,
    efficient for :math:`\sqrt n\, s` up to about the thickness of the shell, and uniform points,
    efficient for s above about :math:`n^{1/p}` times the outer radius. In between, in many
    dimensions, and for centres deep in the hole, it raises an error.

    The density is normalised on every space but a hollow ball. On a sphere the radius is integrated
    out numerically.

    Args:
        p: The exponent, at least 1.
        scale: The scale s, one number or one per dimension.

    Example:
        >>> from isolatent.worlds.spaces import Box
        >>> around = torch.full((3, 2), 0.99)
        >>> Box(2).contains(
        ...     GeneralizedNormal(3, 0.5).sample(Box(2), around, torch.Generator().manual_seed(0))
        ... )
        tensor([True, True, True])
    """

    p: float
    scale: float | tuple[float, ...]
    _scale_name: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        set_fields(
            self, p=check_real("p", self.p, at_least=1), scale=check_scale("scale", self.scale)
        )

    def _check_on(self, space: Space) -> None:
        if not isinstance(space, SeparableSpace | Sphere | HollowBall):
            raise TypeError(f"{type(self).__name__} is not defined on {space!r}")
        per_dimension(self._scale_name, self.scale, space.n, torch.empty(0))

    def _normalised(self, space: Space) -> bool:
        return not isinstance(space, HollowBall)

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        if isinstance(space, Euclidean):
            return self._sample_free(center, generator).to(center.dtype)
        if isinstance(space, SeparableSpace):
            return self._sample_truncated(space.intervals, center, generator).to(center.dtype)
        if isinstance(space, Sphere):
            return space.project(self._sample_free(center, generator)).to(center.dtype)
        assert isinstance(space, HollowBall)
        if self.p == 2 and not isinstance(self.scale, tuple):
            return sample_truncated_normal(space, center, self.scale / math.sqrt(2), generator)
        return self._sample_in_shell(space, center, generator)

    def _sample_free(self, center: Tensor, generator: Generator) -> Tensor:
        """Sample by inverse CDF on each axis without bounds, in float64."""
        scale = per_dimension("scale", self.scale, center.shape[-1], center)
        level = 2 * draw_uniform((*center.shape,), generator, center) - 1
        distance = _upper_tail(self.p).inverse(1 - level.abs())
        return center.double() + scale * distance.copysign(level)

    def _sample_truncated(
        self, intervals: tuple[tuple[float, float], ...], center: Tensor, generator: Generator
    ) -> Tensor:
        """Sample by inverse CDF on each axis, truncated to a union of intervals, in float64."""
        tail = _upper_tail(self.p)
        scale = per_dimension("scale", self.scale, center.shape[-1], center)
        sides = _sides(intervals, center.double(), scale, tail)
        masses = [side.mass for side in sides]
        total = torch.stack(masses).sum(0)
        if not bool((total > 0).all()):
            raise ValueError(
                f"{self!r} has no mass that float64 can represent on the intervals {intervals}: "
                "the scale is too small for the distance between the centre and the space"
            )
        # One uniform number per coordinate selects a piece by its mass, and a point within it.
        left = draw_uniform((*center.shape,), generator, center) * total
        signed = torch.zeros_like(left)
        tail_value = torch.ones_like(left)
        chosen = torch.zeros_like(left, dtype=torch.bool)
        near_end, far_end = torch.zeros_like(left), torch.full_like(left, math.inf)
        for side in sides:
            here = ~chosen & (side.mass > 0) & (left <= side.mass)
            tail_value = torch.where(here, side.tail_near - left, tail_value)
            signed = torch.where(here, side.sign, signed)
            near_end = torch.where(here, side.near, near_end)
            far_end = torch.where(here, side.far, far_end)
            chosen |= here
            left = torch.where(chosen, left, left - side.mass)
        distance = tail.inverse(tail_value).clamp(near_end, far_end)
        return center.double() + signed * scale * distance

    def _sample_in_shell(self, space: HollowBall, center: Tensor, generator: Generator) -> Tensor:
        """Sample the truncated distribution by rejection, alternating between two proposals.

        Untruncated draws are efficient for small scales, uniform points of the shell for large
        ones. Accepted points of both proposals have the same distribution.
        """
        scale = per_dimension("scale", self.scale, space.n, center)
        least = _least_exponent(space, center.double(), scale, self.p)

        def propose(rows: Tensor, round_number: int) -> tuple[Tensor, Tensor]:
            here = center[rows].double()
            if round_number % 2 == 0:
                draws = self._sample_free(here, generator)
                return draws, space.contains(draws, tolerance=0.0)
            draws = space.sample(len(rows), generator, torch.float64, center.device)
            exponent = ((draws - here).abs() / scale).pow(self.p).sum(-1)
            level = draw_uniform((len(rows),), generator, center)
            return draws, level.log() <= least[rows] - exponent

        return rejection_sample(center, propose, f"{self!r} on {space!r}")[0]

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        scale = per_dimension("scale", self.scale, space.n, value)
        value64, center64 = value.double(), center.double()
        per_axis = math.log(self.p / 2) - math.lgamma(1 / self.p) - scale.log()
        if isinstance(space, Sphere):
            rows = max(1, 2**22 // (128 * space.n))  # the quadrature evaluates 128 nodes per row
            density = torch.cat(
                [
                    _log_projected(some, around, scale, self.p, space.radius)
                    for some, around in zip(value64.split(rows), center64.split(rows), strict=True)
                ]
            )
            return (density + per_axis.sum()).to(value.dtype)
        exponent = ((value64 - center64).abs() / scale).pow(self.p).sum(-1)
        if isinstance(space, HollowBall):
            return (-exponent).to(value.dtype)
        assert isinstance(space, SeparableSpace)
        tail = _upper_tail(self.p)
        sides = _sides(space.intervals, center64, scale, tail)
        mass = torch.stack([side.mass for side in sides]).sum(0) / 2
        return (-exponent + (per_axis - mass.log()).sum(-1)).to(value.dtype)


@dataclass(frozen=True)
class Normal(GeneralizedNormal):
    r"""The normal distribution: p = 2 with scale :math:`\sqrt 2\,\sigma`.

    Args:
        std: The standard deviation σ before truncation, one number or one per dimension.

    Example:
        >>> center = torch.zeros(10_000, 2)
        >>> z = Normal((0.1, 2.0)).sample(Euclidean(2), center, torch.Generator().manual_seed(0))
        >>> [round(std, 1) for std in z.std(0).tolist()]
        [0.1, 2.0]
    """

    p: float = field(init=False, repr=False, default=2.0)
    scale: float | tuple[float, ...] = field(init=False, repr=False)
    std: float | tuple[float, ...]
    _scale_name: ClassVar[str] = "std"

    def __post_init__(self) -> None:
        std = check_scale("std", self.std)
        scale = (
            tuple(math.sqrt(2) * s for s in std) if isinstance(std, tuple) else math.sqrt(2) * std
        )
        set_fields(self, std=std, scale=scale)


@dataclass(frozen=True)
class Laplace(GeneralizedNormal):
    r"""The Laplace distribution: p = 1, :math:`\propto \exp(-\sum_k |z'_k - c_k| / s_k)`.

    Args:
        scale: The scale s, one number or one per dimension; the standard deviation is √2 s.

    Example:
        >>> z, center = torch.tensor([[0.0], [1.0]]), torch.zeros(2, 1)
        >>> Laplace(0.5).log_prob(Euclidean(1), z, center)  # -|z - c| / s - log(2 s)
        tensor([ 0., -2.])
    """

    p: float = field(init=False, repr=False, default=1.0)


class _UpperTail:
    r"""The tail :math:`Q(t) = P(|x| > t) = \Gamma(1/p, t^p)/\Gamma(1/p)` at unit scale; inverse.

    Closed forms for p = 1 and 2. Otherwise cubic Hermite interpolation in :math:`x \propto \sqrt t`
    with exact values and slopes at the nodes, within 1e-9 of Q: SciPy's inverse takes microseconds
    per value, the table tens of nanoseconds, on any device.
    """

    def __init__(self, p: float, cells: int = 16384) -> None:
        self.p = p
        if p in (1.0, 2.0):
            return
        # Beyond t^p = 50 the tail is below 1e-21, less than the smallest uniform number. The square
        # root makes the cells small near 0, where Q has only p + 1 derivatives.
        self.unit = 50.0 ** (1 / p) / cells**2
        x = np.arange(cells + 1)
        t = self.unit * x**2
        power = t**p  # underflows for large p, where Q is linear
        values = np.where(
            power > 1e-30, special.gammaincc(1 / p, power), 1 - t / math.gamma(1 + 1 / p)
        )
        slopes = -math.exp(math.log(p) - math.lgamma(1 / p)) * np.exp(-power) * 2 * self.unit * x
        rise, m0, m1 = np.diff(values), slopes[:-1], slopes[1:]
        # The cubic of each cell in x, constant term first.
        self.cells = torch.from_numpy(
            np.stack([values[:-1], m0, 3 * rise - 2 * m0 - m1, m0 + m1 - 2 * rise], axis=-1)
        )

    def at(self, t: Tensor) -> Tensor:
        """Return Q(t) for t >= 0."""
        if self.p == 1.0:
            return torch.exp(-t)
        if self.p == 2.0:
            return torch.special.erfc(t)
        cells = self.cells.to(t.device)
        position = (t / self.unit).sqrt().clamp(max=float(len(cells)))
        index = position.long().clamp(max=len(cells) - 1)
        x = position - index
        a, b, c, d = cells[index].unbind(-1)
        return a + x * (b + x * (c + x * d))

    def inverse(self, q: Tensor) -> Tensor:
        """Return the t >= 0 with Q(t) = q, for q in (0, 1]."""
        if self.p == 1.0:
            return -torch.log(q)
        if self.p == 2.0:
            return -torch.special.ndtri(q / 2) / math.sqrt(2)
        cells = self.cells.to(q.device)
        index = torch.searchsorted(-cells[:, 0].contiguous(), -q, right=True) - 1
        a, b, c, d = cells[index.clamp(min=0)].unbind(-1)
        x = ((q - a) / (b + c + d)).clamp(0, 1)  # the chord
        for _ in range(3):  # Newton's method; the cubics are nearly linear but in the first cell
            slope = (b + x * (2 * c + x * 3 * d)).clamp(max=-1e-300)
            x = (x - (a - q + x * (b + x * (c + x * d))) / slope).clamp(0, 1)
        return (index + x).square() * self.unit


@lru_cache(maxsize=32)
def _upper_tail(p: float) -> _UpperTail:
    return _UpperTail(float(p))


class _Side(NamedTuple):
    """The part of an interval on one side of the centre, in distances from it over the scale."""

    sign: float  # +1 above the centre, -1 below
    near: Tensor
    far: Tensor
    tail_near: Tensor  # Q(near)
    mass: Tensor  # Q(near) - Q(far)


def _sides(
    intervals: tuple[tuple[float, float], ...], center: Tensor, scale: Tensor, tail: _UpperTail
) -> list[_Side]:
    """Split each interval at the centre, which keeps full precision in both tails."""
    sides = []
    for low, high in intervals:
        to_low, to_high = (low - center) / scale, (high - center) / scale
        tail_low, tail_high = tail.at(to_low.abs()), tail.at(to_high.abs())
        for sign, near, far, tail_near, tail_far in (
            (-1.0, -to_high, -to_low, tail_high, tail_low),
            (1.0, to_low, to_high, tail_low, tail_high),
        ):
            # An end beyond the centre is replaced by the centre, where Q is one.
            start = torch.where(near > 0, tail_near, 1.0)
            end = torch.where(far > 0, tail_far, 1.0)
            mass = (start - end).clamp(min=0)
            sides.append(_Side(sign, near.clamp(min=0), far.clamp(min=0), start, mass))
    return sides


def _least_exponent(space: HollowBall, center: Tensor, scale: Tensor, p: float) -> Tensor:
    r"""Return a lower bound of :math:`\sum_k |z_k - c_k|^p / s_k^p` over the shell per centre.

    Zero where the centre lies in the shell; from inside the hole the distance to the shell is at
    least :math:`r = inner - \|c\|_2`, and :math:`\|x\|_p^p \ge r^p \min(1, n^{1 - p/2})`.
    """
    gap = (space.inner - center.norm(dim=-1)).clamp(min=0)
    return (gap / scale.max()) ** p * min(1.0, space.n ** (1 - p / 2))


def _log_projected(value: Tensor, center: Tensor, scale: Tensor, p: float, radius: float) -> Tensor:
    r"""Return the log-density, without its constant, of a point projected to the sphere.

    .. math:: \log \int_0^\infty r^{n-1} e^{-\sum_k |r u_k - c_k|^p / s_k^p} dr / radius^{n-1}

    u is the direction of ``value``. The integrand is log-concave, so bisection finds its mode and
    the points where it is e^-45 of its maximum, and Gauss–Legendre quadrature runs on both sides.
    """
    n = value.shape[-1]
    direction = torch.nn.functional.normalize(value, dim=-1).unsqueeze(-2)

    def log_integrand(r: Tensor) -> Tensor:  # r: (N, nodes)
        exponent = ((r.unsqueeze(-1) * direction - center.unsqueeze(-2)).abs() / scale).pow(p)
        return (n - 1) * r.log() - exponent.sum(-1)

    reach = 4 * (center.norm(dim=-1, keepdim=True) + float(scale.max()) * n) + 1e-300
    low, high = torch.zeros_like(reach), reach
    for _ in range(64):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        rising = log_integrand(a) < log_integrand(b)
        low, high = torch.where(rising, a, low), torch.where(rising, high, b)
    mode = (low + high) / 2
    peak = log_integrand(mode)

    def edge(far: Tensor) -> Tensor:
        inner, outer = mode, far
        for _ in range(40):
            middle = (inner + outer) / 2
            inside = log_integrand(middle) > peak - 45
            inner, outer = torch.where(inside, middle, inner), torch.where(inside, outer, middle)
        return outer

    nodes, weights = (
        torch.from_numpy(array).to(value.device) for array in np.polynomial.legendre.leggauss(128)
    )
    total = torch.zeros_like(peak)
    for far in (edge(torch.zeros_like(mode)), edge(8 * reach)):
        half = (far - mode) / 2
        at = mode + half * (nodes + 1)
        total = total + ((log_integrand(at) - peak).exp() * weights).sum(-1, True) * half.abs()
    return (peak + total.log()).squeeze(-1) - (n - 1) * math.log(radius)
