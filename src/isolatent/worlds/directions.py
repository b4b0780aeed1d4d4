"""Wood's rejection sampler for von Mises–Fisher directions, with one concentration per row."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from isolatent.worlds.draws import normals

__all__ = ["log_envelope", "propose_directions", "slope_of_log_envelope"]


def log_envelope(n: int, kappa: Tensor) -> Tensor:
    r"""Log of the mass of Wood's envelope of :math:`e^{-\kappa(1 - w)}` over the unit sphere.

    :math:`-\kappa (1-x_0) + \tfrac{n-1}2 \log(1 - x_0^2)`, up to a constant that κ does not touch.
    """
    b = _spread(n, kappa)
    return -kappa * 2 * b / (1 + b) + 0.5 * (n - 1) * (4 * b / (1 + b).square()).log()


def slope_of_log_envelope(n: int, kappa: Tensor) -> Tensor:
    r"""Its derivative in κ, :math:`x_0 - 1`."""
    return -2 * (n - 1) / (2 * kappa + (4 * kappa.square() + (n - 1) ** 2).sqrt() + (n - 1))


def propose_directions(axis: Tensor, kappa: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    r"""Propose one unit vector for each row of ``axis``, density :math:`\propto e^{\kappa w}`.

    References:
        | Simulation of the von Mises Fisher distribution (Wood 1994)

    Args:
        axis: Unit vectors (N, n); the proposals have their dtype.
        kappa: Concentrations (N, 1) >= 0, float64.
        generator: Where the random numbers come from.

    Returns:
        The proposals (N, n), and the log of the probability (N, 1) with which each is accepted.
    """
    n = axis.shape[-1]
    b = _spread(n, kappa)
    # A uniform direction gives both of Wood's ingredients: its cosine with the axis is a shifted
    # Beta((n-1)/2, (n-1)/2), and its tangent part points anywhere, independently.
    noise = normals((*axis.shape,), generator, axis)
    along = (noise * axis).sum(-1, keepdim=True)
    tangent = torch.nn.functional.normalize(noise - along * axis, dim=-1)
    beta = 0.5 * (1 + (along / noise.norm(dim=-1, keepdim=True)).double())
    # Differences from one, so that nothing cancels when κ is large.
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
    """Wood's b, one for κ = 0 and about (n - 1)/(4κ) for large κ."""
    return (n - 1) / (2 * kappa + (4 * kappa.square() + (n - 1) ** 2).sqrt())
