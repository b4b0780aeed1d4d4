"""Exact sampler of an isotropic normal truncated to a hollow ball, for every scale."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from isolatent.worlds.sampling import (
    draw_uniform,
    log_envelope_mass,
    log_envelope_slope,
    propose_directions,
    rejection_sample,
)
from isolatent.worlds.spaces import HollowBall, unit_rows

__all__ = ["sample_truncated_normal"]


def sample_truncated_normal(
    space: HollowBall, center: Tensor, std: float, generator: Generator
) -> Tensor:
    r"""Draw :math:`y \sim N(c, \sigma^2)` given :math:`inner \le \|y\| \le outer`.

    In polar coordinates y = r u the density is :math:`r^{n-1} e^{-(r - |c|)^2/2\sigma^2}
    e^{-\kappa(1 - \cos)}` with :math:`\kappa = r|c|/\sigma^2`. Wood's envelope of the last factor
    has a mass M(κ) in closed form, so r is proposed from

    .. math:: q(r) \propto r^{n-1} e^{-(r - |c|)^2/2\sigma^2} M(r|c|/\sigma^2)

    and u from Wood's envelope. The second derivative of log q is at most -1/σ², so q lies under a
    normal or exponential that touches it at its mode. The acceptance rate is about one half or
    more, for every n, σ and c.
    """
    n = space.n
    at = center.double()
    axis, distance = unit_rows(at), at.norm(dim=-1, keepdim=True)
    concentration = distance / std**2  # κ / r

    def log_q(r: Tensor, rows: Tensor) -> Tensor:
        bend = ((r - distance[rows]) / std).square() / 2
        return (n - 1) * r.log() - bend + log_envelope_mass(n, r * concentration[rows])

    mode, slope = _mode(space, distance, std)
    all_rows = torch.arange(len(at), device=at.device)
    peak = log_q(mode, all_rows)
    # Where the mode is at a bound and q is steep there, an exponential is the tighter envelope.
    steep = slope.abs() * std > 0.8
    width = math.sqrt(2) * std
    erf_low, erf_high = (
        torch.special.erf((bound - mode) / width) for bound in (space.inner, space.outer)
    )
    rate = torch.where(steep, slope, 1.0)
    reach = torch.where(slope > 0, mode - space.inner, space.outer - mode)

    def propose(rows: Tensor, _: int) -> tuple[Tensor, Tensor]:
        level = draw_uniform((len(rows), 1), generator, at)
        low, high, here = erf_low[rows], erf_high[rows], rate[rows]
        normal = width * torch.special.erfinv(low + (high - low) * level)
        size = torch.log1p(level * torch.expm1(-here.abs() * reach[rows]))
        offset = torch.where(steep[rows], size / here, normal)
        r = (mode[rows] + offset).clamp(space.inner, space.outer)
        offset = r - mode[rows]
        log_bound = torch.where(steep[rows], here * offset, -(offset / width).square())
        direction, log_ratio = propose_directions(axis[rows], r * concentration[rows], generator)
        log_ratio = log_ratio + log_q(r, rows) - peak[rows] - log_bound
        accepted = draw_uniform((len(rows), 1), generator, at).log() <= log_ratio
        return r * direction, accepted.squeeze(-1)

    out = torch.empty_like(center)
    rejection_sample(out, propose, f"a normal with std {std:g} on {space!r}")
    return out


def _mode(space: HollowBall, distance: Tensor, std: float) -> tuple[Tensor, Tensor]:
    """Return the mode of q on [inner, outer] and the slope of log q there, zero if interior."""
    n, concentration = space.n, distance / std**2

    def slope_at(r: Tensor) -> Tensor:
        pull = (distance - r) / std**2
        return (n - 1) / r + pull + concentration * log_envelope_slope(n, r * concentration)

    low, high = (torch.full_like(distance, bound) for bound in (space.inner, space.outer))
    slope_low, slope_high = slope_at(low), slope_at(high)
    left, right = low, high
    for _ in range(60):
        middle = 0.5 * (left + right)
        rising = slope_at(middle) > 0
        left, right = torch.where(rising, middle, left), torch.where(rising, right, middle)
    mode = torch.where(slope_low <= 0, low, torch.where(slope_high >= 0, high, left))
    slope = torch.where(slope_low <= 0, slope_low, slope_high.clamp(min=0))
    return mode, slope
