"""Invertible activations for mixings, each with its exact inverse."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["ACTIVATIONS"]

Map = Callable[[Tensor, float], Tensor]


def _leaky_relu(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, slope * x)


def _leaky_relu_inverse(y: Tensor, slope: float) -> Tensor:
    return torch.where(y > 0, y, y / slope)


def _smooth_leaky_relu(x: Tensor, slope: float) -> Tensor:
    return slope * x + (1 - slope) * softplus(x)


def _smooth_leaky_relu_inverse(y: Tensor, slope: float) -> Tensor:
    def slope_at(x: Tensor) -> Tensor:
        return slope + (1 - slope) * torch.sigmoid(x)

    # y = f(x) >= s x and y >= x for every x, so the root lies left of both.
    start = torch.where(y > 0, y, y / slope)
    return _newton(y, start, lambda x: _smooth_leaky_relu(x, slope), slope_at)


def _elu(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))


def _elu_inverse(y: Tensor, slope: float) -> Tensor:
    if bool((y <= -1).any()):
        raise ValueError(
            f"x was rounded beyond what elu can invert (its values lie above -1, {y.min():.9g} was "
            "reached); use float64 or leaky_elu"
        )
    return torch.where(y > 0, y, torch.log1p(y.clamp(max=0)))


def _leaky_elu(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, slope * x + (1 - slope) * torch.expm1(x.clamp(max=0)))


def _leaky_elu_inverse(y: Tensor, slope: float) -> Tensor:
    def slope_at(x: Tensor) -> Tensor:
        return slope + (1 - slope) * torch.exp(x)

    below = y.clamp(max=0)
    root = _newton(below, torch.zeros_like(y), lambda x: _leaky_elu(x, slope), slope_at)
    return torch.where(y > 0, y, root)


def _newton(
    y: Tensor, start: Tensor, f: Callable[[Tensor], Tensor], slope_at: Callable[[Tensor], Tensor]
) -> Tensor:
    """Solve f(x) = y for convex increasing f, where Newton converges from every start."""
    x = start
    for _ in range(60):
        step = (f(x) - y) / slope_at(x)
        x = x - step
        if bool((step.abs() <= 4 * torch.finfo(y.dtype).eps * (1 + x.abs())).all()):
            break
    return x


ACTIVATIONS: dict[str, tuple[Map, Map]] = {
    "leaky_relu": (_leaky_relu, _leaky_relu_inverse),
    "smooth_leaky_relu": (_smooth_leaky_relu, _smooth_leaky_relu_inverse),
    "elu": (_elu, _elu_inverse),
    "leaky_elu": (_leaky_elu, _leaky_elu_inverse),
}
"""Name -> (activation, inverse); both take the leak's slope, which ``elu`` does not use."""
