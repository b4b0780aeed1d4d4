"""Draws from an explicit generator, rejection sampling, and Wood's proposals on the sphere."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

__all__ = [
    "draw_normal",
    "draw_uniform",
    "log_envelope_mass",
    "log_envelope_slope",
    "propose_directions",
    "rejection_sample",
]

MAX_EMPTY_ROUNDS = 200  # without a single acceptance, after which a sampler gives up


def draw_uniform(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Draw from U[0, 1) in float64, on the generator's device, moved to ``like``'s device."""
    draw = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
    return draw.to(like.device)


def draw_normal(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Draw from N(0, 1) on the generator's device, with ``like``'s dtype and device."""
    draw = torch.randn(shape, generator=generator, device=generator.device, dtype=like.dtype)
    return draw.to(like.device)


def rejection_sample(
    out: Tensor,
    propose: Callable[[Tensor, int], tuple[Tensor, Tensor]],
    name: str,
    max_rounds: int = 2000,
) -> float:
    """Fill the rows of ``out`` with accepted candidates; return the acceptance rate.

    Args:
        out: Tensor (N, n) that is written in place.
        propose: Called with the indices of the rows without an accepted candidate and the number of
            the round; returns one candidate for each of these rows and a boolean mask of those
            accepted.
        name: The distribution, for the error message.
        max_rounds: Rounds after which a RuntimeError is raised if rows remain.
    """
    open_rows = torch.arange(len(out), device=out.device)
    proposals = 0
    for round_number in range(max_rounds + 1):
        if len(open_rows) == 0:
            return len(out) / proposals if proposals else 1.0
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


def log_envelope_mass(n: int, kappa: Tensor) -> Tensor:
    r"""Return the log-mass of Wood's envelope of :math:`e^{-\kappa(1 - w)}` over the unit sphere.

    :math:`-\kappa (1-x_0) + \tfrac{n-1}2 \log(1 - x_0^2)`, up to a constant independent of κ.
    """
    b = _spread(n, kappa)
    return -kappa * 2 * b / (1 + b) + 0.5 * (n - 1) * (4 * b / (1 + b).square()).log()


def log_envelope_slope(n: int, kappa: Tensor) -> Tensor:
    r"""Return the derivative :math:`x_0 - 1` of :func:`log_envelope_mass` with respect to κ."""
    return -2 * (n - 1) / (2 * kappa + (4 * kappa.square() + (n - 1) ** 2).sqrt() + (n - 1))


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


def _spread(n: int, kappa: Tensor) -> Tensor:
    """Return Wood's b: one for κ = 0, and about (n - 1)/(4κ) for large κ."""
    return (n - 1) / (2 * kappa + (4 * kappa.square() + (n - 1) ** 2).sqrt())
