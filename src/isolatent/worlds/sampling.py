"""Samplers: draws from an explicit generator, rejection, Wood's proposals, truncated normals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

if TYPE_CHECKING:
    from isolatent.worlds.spaces import HollowBall

__all__ = [
    "draw_normal",
    "draw_uniform",
    "propose_directions",
    "rejection_sample",
    "sample_truncated_normal",
    "unit_rows",
]

MAX_ROUNDS = 2000  # after which a sampler gives up
MAX_EMPTY_ROUNDS = 200  # the same, without a single acceptance


def draw_uniform(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Draw from U[0, 1) in float64, on the generator's device, moved to ``like``'s device."""
    draw = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
    return draw.to(like.device)


def draw_normal(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Draw from N(0, 1) on the generator's device, with ``like``'s dtype and device."""
    draw = torch.randn(shape, generator=generator, device=generator.device, dtype=like.dtype)
    return draw.to(like.device)


def unit_rows(z: Tensor) -> Tensor:
    """Divide each row of z (N, n) by its norm; zero rows become the pole (1, 0, …, 0)."""
    largest = z.abs().amax(-1, keepdim=True)  # divided out: squares of small numbers underflow
    pole = torch.zeros(z.shape[-1], dtype=z.dtype, device=z.device)
    pole[0] = 1
    scaled = torch.where(largest > 0, z / largest, pole)
    return scaled / scaled.norm(dim=-1, keepdim=True)


def rejection_sample(
    like: Tensor, propose: Callable[[Tensor, int], tuple[Tensor, Tensor]], name: str
) -> tuple[Tensor, float]:
    """Return one accepted candidate per row, and the acceptance rate.

    Args:
        like: Tensor (N, n) whose shape, dtype and device the accepted candidates get.
        propose: Called with the indices of the rows without an accepted candidate and the number of
            the round; returns one candidate for each of these rows and a boolean mask of those
            accepted.
        name: The distribution, for the error message.
    """
    out = torch.empty_like(like)
    open_rows = torch.arange(len(out), device=out.device)
    proposals = 0
    for round_number in range(MAX_ROUNDS + 1):
        if len(open_rows) == 0:
            return out, (len(out) / proposals if proposals else 1.0)
        if round_number == MAX_EMPTY_ROUNDS and len(open_rows) == len(out):
            break
        candidates, accepted = propose(open_rows, round_number)
        proposals += len(open_rows)
        out[open_rows[accepted]] = candidates[accepted].to(out.dtype)
        open_rows = open_rows[~accepted]
    raise RuntimeError(
        f"{name}: {len(open_rows)} of {len(out)} rows had no accepted draw after {round_number} "
        "rounds; the proposals of this sampler hardly overlap the density. Try another scale (or "
        "weights), or another space"
    )


def propose_directions(axis: Tensor, kappa: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    r"""Propose von Mises–Fisher directions, one for each row of ``axis`` and ``kappa``.

    The density is :math:`\propto e^{\kappa w}` in the cosine w with the axis.

    References:
        | Simulation of the von Mises Fisher distribution (Wood 1994)

    Args:
        axis: Unit vectors (N, n); the proposals have their dtype.
        kappa: Concentrations (N, 1) >= 0, float64.
        generator: The source of random numbers.

    Returns:
        The proposals (N, n), and the log of the acceptance probability (N, 1) of each.
    """
    n = axis.shape[-1]
    b = _spread(n, kappa)
    # A uniform direction gives both variables of Wood's algorithm: its cosine with the axis is a
    # shifted Beta((n-1)/2, (n-1)/2), and its tangential part is independent and uniform.
    noise = draw_normal((*axis.shape,), generator, axis)
    along = (noise * axis).sum(-1, keepdim=True)
    tangent = torch.nn.functional.normalize(noise - along * axis, dim=-1)
    beta = 0.5 * (1 + (along / noise.norm(dim=-1, keepdim=True)).double())
    # Computed as differences from one, to avoid cancellation for large κ.
    denominator = 1 - (1 - b) * beta
    one_minus_cosine = 2 * b * beta / denominator
    sine = 2 * (b * beta * (1 - beta)).clamp(min=0).sqrt() / denominator
    one_minus_x0 = 2 * b / (1 + b)
    one_minus_x0_cosine = one_minus_cosine + (1 - one_minus_cosine) * one_minus_x0
    one_minus_x0_square = 4 * b / (1 + b).square()
    log_ratio = (
        -kappa * (one_minus_cosine - one_minus_x0)
        + (n - 1) * (one_minus_x0_cosine / one_minus_x0_square).log()
    )
    cosine, sine = (1 - one_minus_cosine).to(axis.dtype), sine.to(axis.dtype)
    return cosine * axis + sine * tangent, log_ratio


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
        return (n - 1) * r.log() - bend + _log_envelope_mass(n, r * concentration[rows])

    mode, slope = _radial_mode(space, distance, std)
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

    return rejection_sample(center, propose, f"a normal with std {std:g} on {space!r}")[0]


def _radial_mode(space: HollowBall, distance: Tensor, std: float) -> tuple[Tensor, Tensor]:
    """Return the mode of q on [inner, outer] and the slope of log q there, zero if interior."""
    n, concentration = space.n, distance / std**2

    def slope_at(r: Tensor) -> Tensor:
        pull = (distance - r) / std**2
        return (n - 1) / r + pull + concentration * _log_envelope_slope(n, r * concentration)

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


def _log_envelope_mass(n: int, kappa: Tensor) -> Tensor:
    r"""Return the log-mass of Wood's envelope of :math:`e^{-\kappa(1 - w)}` over the unit sphere.

    :math:`-\kappa (1-x_0) + \tfrac{n-1}2 \log(1 - x_0^2)`, up to a constant independent of κ.
    """
    b = _spread(n, kappa)
    return -kappa * 2 * b / (1 + b) + 0.5 * (n - 1) * (4 * b / (1 + b).square()).log()


def _log_envelope_slope(n: int, kappa: Tensor) -> Tensor:
    r"""Return the derivative :math:`x_0 - 1` of :func:`_log_envelope_mass` with respect to κ."""
    return -2 * (n - 1) / (2 * kappa + (4 * kappa.square() + (n - 1) ** 2).sqrt() + (n - 1))


def _spread(n: int, kappa: Tensor) -> Tensor:
    """Return Wood's b: one for κ = 0, and about (n - 1)/(4κ) for large κ."""
    return (n - 1) / (2 * kappa + (4 * kappa.square() + (n - 1) ** 2).sqrt())
