r"""Concentrations, mean lengths and normalisers of the von Mises–Fisher distribution, in torch.

A vMF on the unit sphere of R^n with concentration κ has a mean of length :math:`A_n(\kappa)`. Its
*spread* here is :math:`w = -\log A_n(\kappa)`: for large κ it is (n - 1) / 2κ, half the expected
squared angle. Mean lengths multiply where independent steps follow each other, so spreads add.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special
from scipy.interpolate import CubicSpline
from torch import Tensor

__all__ = ["cap_angle", "concentration", "log_vmf_ratio", "spread_of", "tangent_variances"]

LOG_SPREADS = (-15.0, 5.0)  # between which functions of a spread are tabulated
SPACING = 0.02  # of the table, in the logarithm of the spread: errors are below 1e-8
POWER_SERIES_UP_TO = 100.0  # concentrations; beyond, scaled Bessel functions
ANGLES = 4097  # points of the half circle over which mass is added up


def spread_of(kappa: Any, n: int) -> np.ndarray[Any, Any]:
    r"""Return :math:`-\log A_n(\kappa)`.

    Args:
        kappa: Concentrations.
        n: Dimension of the space around the sphere.

    Example:
        >>> round(float(spread_of(2.0, 3)), 4)  # -log(coth 2 - 1/2)
        0.6212
    """
    kappa = np.asarray(kappa, dtype=np.float64)
    low = np.minimum(kappa, POWER_SERIES_UP_TO)
    square = low**2 / 4
    series = special.hyp0f1(n / 2 + 1, square) / special.hyp0f1(n / 2, square)
    high = np.maximum(kappa, POWER_SERIES_UP_TO)
    bessel = special.ive(n / 2, high) / special.ive(n / 2 - 1, high)
    few = (n - 1) / (2 * high)  # where 1 - A is lost in rounding
    limit = few * (1 - (n - 3) / (4 * high))
    with np.errstate(divide="ignore"):
        large = np.where(high > 1e5 * n, -np.log1p(-limit), -np.log(bessel))
        small = np.log(n) - np.log(low) - np.log(series)
    spread: np.ndarray[Any, Any] = np.where(kappa <= POWER_SERIES_UP_TO, small, large)
    return spread


def _log_height(kappa: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    """Return the log of the density at the mode, against the uniform one."""
    low, high = (f(kappa, POWER_SERIES_UP_TO) for f in (np.minimum, np.maximum))
    small = low - np.log(special.hyp0f1(n / 2, low**2 / 4))
    order = n / 2 - 1
    large = order * np.log(high / 2) - special.gammaln(n / 2) - np.log(special.ive(order, high))
    height: np.ndarray[Any, Any] = np.where(kappa <= POWER_SERIES_UP_TO, small, large)
    return height


class _Table(NamedTuple):
    """Cubic splines over equally spaced logarithms of the spread: coefficients (4, M) each."""

    log_kappa: Tensor
    log_height: Tensor


@lru_cache(maxsize=64)
def _table(n: int, dtype: torch.dtype) -> _Table:
    low, high = LOG_SPREADS
    nodes = low + SPACING * np.arange(round((high - low) / SPACING) + 1)
    log_kappa = np.linspace(-6.0 + np.log(n), 16.0 + np.log(n), 8192)
    log_spread = np.log(spread_of(np.exp(log_kappa), n))
    inverse = CubicSpline(log_spread[::-1], log_kappa[::-1])(nodes)
    splines = (CubicSpline(nodes, values) for values in (inverse, _log_height(np.exp(inverse), n)))
    return _Table(*(torch.from_numpy(spline.c.copy()).to(dtype) for spline in splines))


def _look_up(coefficients: Tensor, log_spread: Tensor) -> Tensor:
    index = ((log_spread.detach() - LOG_SPREADS[0]) / SPACING).long()
    index = index.clamp(0, coefficients.shape[1] - 1)
    offset = log_spread - (LOG_SPREADS[0] + SPACING * index)
    a, b, c, d = (part.to(log_spread.device)[index] for part in coefficients)
    return ((a * offset + b) * offset + c) * offset + d


def _bounded_log(spread: Tensor) -> Tensor:
    low, high = LOG_SPREADS
    return spread.log().clamp(low + SPACING, high - SPACING)


def concentration(spread: Tensor, n: int) -> Tensor:
    r"""Return κ with :math:`-\log A_n(\kappa)` equal to a spread.

    Args:
        spread: Positive numbers, of any shape; those outside of 4e-7 to 145 count as these.
        n: Dimension of the space around the sphere.

    Example:
        >>> round(concentration(torch.tensor(0.62117), 3).item(), 3)
        2.0
    """
    return _look_up(_table(n, spread.dtype).log_kappa, _bounded_log(spread)).exp()


def log_vmf_ratio(cosine: Tensor, spread: Tensor, n: int) -> Tensor:
    """Return the log of a vMF density against the uniform one.

    Args:
        cosine: Cosines of the angles to the mode.
        spread: The spread of the vMF, of the same shape.
        n: Dimension of the space around the sphere.

    Example:
        >>> spread = torch.tensor(float(spread_of(2.0, 3)))
        >>> round(log_vmf_ratio(torch.tensor(1.0), spread, 3).item(), 3)
        1.405
        >>> round(2 + math.log(2 / math.sinh(2)), 3)  # κ + log(κ / sinh κ)
        1.405
    """
    log_spread = _bounded_log(spread)
    table = _table(n, spread.dtype)
    kappa = _look_up(table.log_kappa, log_spread).exp()
    return _look_up(table.log_height, log_spread) + kappa * (cosine - 1)


def tangent_variances(spread: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the variances of a vMF across its mode, in any direction, and along it.

    Args:
        spread: Spreads, of any shape.
        n: Dimension of the space around the sphere.
    """
    kappa, length = concentration(spread, n), (-spread).exp()
    across = length / kappa
    # 1 - A² - (n - 1) A / κ, whose digits cancel where κ is large
    along = -torch.expm1(-2 * spread) - (n - 1) * across
    limit = (n - 1) / (2 * kappa.square())
    return across, torch.where(kappa > 50 * n, limit, along).clamp(min=0)


def cap_angle(kappa: Any, level: float, n: int) -> np.ndarray[Any, Any]:
    """Return the angle around the mode within which a vMF has a share of its mass.

    Args:
        kappa: Concentrations (N,).
        level: The share.
        n: Dimension of the space around the sphere.

    Example:
        >>> angle = cap_angle([2.0], 0.9, 3)  # in three dimensions the cosine has a closed form
        >>> cosine = 1 + np.log(1 - 0.9 * (1 - np.exp(-4.0))) / 2
        >>> bool(abs(np.cos(angle[0]) - cosine) < 1e-4)
        True
    """
    kappa = np.asarray(kappa, dtype=np.float64)
    inside = kappa[np.isfinite(kappa)]
    if len(inside) == 0:
        return np.full(kappa.shape, np.nan)
    low, high = np.log(max(inside.min(), 1e-6)), np.log(max(inside.max(), 1e-6))
    nodes = np.exp(np.linspace(low, high, 2 + int(20 * (high - low))))
    angles = np.array([_cap_angle(node, level, n) for node in nodes])
    scaled = angles * np.sqrt(nodes + 1)  # nearly constant for large κ
    log = np.log(np.maximum(kappa, 1e-6))
    found: np.ndarray[Any, Any] = np.interp(log, np.log(nodes), scaled) / np.sqrt(kappa + 1)
    return np.where(np.isfinite(kappa), np.minimum(found, np.pi), np.nan)


def _cap_angle(kappa: float, level: float, n: int) -> float:
    widest = min(np.pi, 12 * math.sqrt(n / max(kappa, 1e-6)))  # no mass beyond
    angles = np.linspace(0.0, widest, ANGLES)
    log = -2 * kappa * np.sin(angles / 2) ** 2  # κ (cos - 1)
    density = np.exp(log) * np.sin(np.minimum(angles, np.pi)) ** (n - 2)
    steps = 0.5 * (density[1:] + density[:-1])
    mass = np.concatenate([[0.0], np.cumsum(steps)])
    return float(np.interp(level * mass[-1], mass, angles))
