"""Distributions on the sphere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import optimize, special
from torch import Generator, Tensor

from isolatent.checks import check_real, check_scale, set_fields
from isolatent.worlds.distributions import Distribution, Elementary, per_dimension
from isolatent.worlds.generalized_normal import Normal
from isolatent.worlds.sampling import (
    draw_normal,
    draw_uniform,
    propose_directions,
    rejection_sample,
    unit_rows,
)
from isolatent.worlds.spaces import SeparableSpace, Space, Sphere

__all__ = ["AnisotropicNormal", "ShellNormal", "VonMisesFisher"]


@dataclass(frozen=True)
class VonMisesFisher(Elementary):
    r"""The von Mises–Fisher density :math:`p(z' | c) = C_n(\kappa)\, e^{\kappa \cos\angle(z', c)}`.

    κ refers to directions, so its meaning does not depend on the radius. The density is normalised.

    References:
        | Simulation of the von Mises Fisher distribution (Wood 1994)

    Args:
        kappa: The concentration κ > 0.

    Example:
        >>> pole = torch.tensor([[1.0, 0.0, 0.0]]).expand(20_000, 3)
        >>> z = VonMisesFisher(10.0).sample(Sphere(3), pole, torch.Generator().manual_seed(0))
        >>> round(z.mean(0)[0].item(), 2)  # coth 10 - 1/10
        0.9
    """

    kappa: float

    def __post_init__(self) -> None:
        set_fields(self, kappa=check_real("kappa", self.kappa, above=0))

    def _check_on(self, space: Space) -> None:
        _check_sphere(self, space)

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        assert isinstance(space, Sphere)
        axis = _axis(self, center)
        kappa = torch.full_like(axis[:, :1], self.kappa)
        axis = axis.to(center.dtype)

        def propose(rows: Tensor, _: int) -> tuple[Tensor, Tensor]:
            draws, log_ratio = propose_directions(axis[rows], kappa[rows], generator)
            level = draw_uniform((len(rows), 1), generator, axis)
            return draws, (level.log() <= log_ratio).squeeze(-1)

        return space.project(rejection_sample(center, propose, repr(self))[0])

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        assert isinstance(space, Sphere)
        # κ cos = κ - κ|u - v|²/2, and the first κ is in the scaled Bessel function.
        apart = (unit_rows(value.double()) - _axis(self, center)).square().sum(-1)
        order = space.n / 2 - 1
        log_constant = (
            order * math.log(self.kappa)
            - space.n / 2 * math.log(2 * math.pi)
            - _log_scaled_bessel(order, self.kappa)
            - (space.n - 1) * math.log(space.radius)
        )
        return (log_constant - 0.5 * self.kappa * apart).to(value.dtype)


@dataclass(frozen=True)
class AnisotropicNormal(Elementary):
    r"""The density :math:`p(z'|c) \propto \exp(-\tfrac12\sum_k \lambda_k (z'_k - c_k)^2)`.

    On the sphere this is a Fisher–Bingham density (`rusak2025`), sampled exactly, with an unknown
    normalising constant; on boxes, cube grids and :math:`\mathbb R^n` it is :class:`Normal` with
    :math:`\sigma_k = \lambda_k^{-1/2}`, normalised.

    The sampler on the sphere is rejection with a *projected normal* envelope. On the unit sphere
    the density is invariant to adding β to every λ, so with :math:`D = \Lambda + \beta`,
    :math:`w = \Lambda c` the target is :math:`e^{-a/2 + h}` with :math:`a = x^\top D x`,
    :math:`h = w^\top x`. The direction x of :math:`y \sim N(D^{-1}w, D^{-1})` has density
    :math:`\propto e^{-a/2+h} I(a, h)`,

    .. math:: I(a, h) = \int_0^\infty r^{n-1} e^{-\frac a2 (r^2 - 1) + h (r - 1)} dr,

    so x is accepted with probability :math:`I^*/I(a, h)`. I is convex in h, and at its minimum in h
    the mean of r is one, so the minimum :math:`I^*(a)` decreases in a: the envelope constant is
    :math:`I^*(\max_k\lambda_k + \beta)`, without approximation. Every β is valid;
    :math:`E\|y\|^2 \approx 1` gives the highest acceptance rate. With equal weights the rate is
    near one; around an anchor on the axis of the least weight it is about
    :math:`\sqrt{\min\lambda / \max\lambda}`, so a ratio of weights beyond 1e5 raises an error.

    Args:
        weights: The weights λ > 0, one number or one per dimension.

    Example:
        >>> center = torch.tensor([[0.0, 0.0, 1.0]]).expand(10_000, 3)
        >>> steps = AnisotropicNormal((400.0, 100.0, 100.0))
        >>> z = steps.sample(Sphere(3), center, torch.Generator().manual_seed(0))
        >>> [round(std, 2) for std in z.std(0)[:2].tolist()]  # near the anchor about λ^-½
        [0.05, 0.1]
    """

    weights: float | tuple[float, ...]

    def __post_init__(self) -> None:
        set_fields(self, weights=check_scale("weights", self.weights))

    def _check_on(self, space: Space) -> None:
        if not isinstance(space, Sphere | SeparableSpace):
            raise TypeError(f"AnisotropicNormal is not defined on {space!r}")
        per_dimension("weights", self.weights, space.n, torch.empty(0))

    def _normalised(self, space: Space) -> bool:
        return isinstance(space, SeparableSpace)

    def _as_normal(self) -> Normal:
        if isinstance(self.weights, tuple):
            return Normal(tuple(weight**-0.5 for weight in self.weights))
        return Normal(self.weights**-0.5)

    def acceptance_rate(self, space: Sphere, center: Tensor, generator: Generator) -> float:
        """Return the share of proposals that the sampler accepts around these centres."""
        self.check(space)
        return self._accepted(space, center, generator)[1]

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        if not isinstance(space, Sphere):
            return self._as_normal()._sample(space, center, generator)
        return space.project(self._accepted(space, center, generator)[0])

    def _accepted(
        self, space: Sphere, center: Tensor, generator: Generator
    ) -> tuple[Tensor, float]:
        n = space.n
        weights = per_dimension("weights", self.weights, n, center) * space.radius**2
        linear = weights * _axis(self, center)
        shift = _saddle_shift(weights, linear)
        largest = float(weights.max() + shift.max()) if len(shift) else 1.0
        log_least = _log_least_radial_integral(n, largest)

        def propose(rows: Tensor, _: int) -> tuple[Tensor, Tensor]:
            precision = weights + shift[rows]
            noise = draw_normal((len(rows), n), generator, weights)
            direction = torch.nn.functional.normalize(
                linear[rows] / precision + noise / precision.sqrt(), dim=-1
            )
            a = (precision * direction.square()).sum(-1)
            h = (linear[rows] * direction).sum(-1)
            level = draw_uniform((len(rows),), generator, center)
            accepted = level.log() <= log_least - _log_radial_integral(n, a, h)
            return direction * space.radius, accepted

        return rejection_sample(center, propose, repr(self))

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        if not isinstance(space, Sphere):
            return self._as_normal()._log_density(space, value, center)
        weights = per_dimension("weights", self.weights, space.n, value)
        return (-0.5 * (weights * (value - center).double().square()).sum(-1)).to(value.dtype)


@dataclass(frozen=True)
class ShellNormal(Elementary):
    r"""The approximate sampler of `rusak2025`: a normal truncated to a shell, then projected.

    Draws :math:`y \sim N(c, \Lambda^{-1})`, keeps those with :math:`|\|y\| - r| < width \cdot r`,
    and projects them. It converges to :class:`AnisotropicNormal` as the width goes to zero, and
    raises an error where the normal is much wider than the sphere. It serves to reproduce published
    numbers. Its density is that of the thin-shell limit, not normalised.

    Args:
        weights: The weights λ > 0, one number or one per dimension.
        width: Half-width of the shell, relative to the radius.

    Example:
        >>> center = torch.tensor([[0.0, 1.0]]).expand(4, 2)
        >>> steps = ShellNormal((50.0, 10.0))
        >>> z = steps.sample(Sphere(2), center, torch.Generator().manual_seed(0))
        >>> Sphere(2).contains(z)
        tensor([True, True, True, True])
    """

    weights: float | tuple[float, ...]
    width: float = 0.1

    def __post_init__(self) -> None:
        set_fields(
            self,
            weights=check_scale("weights", self.weights),
            width=check_real("width", self.width, above=0),
        )

    def _check_on(self, space: Space) -> None:
        _check_sphere(self, space)
        per_dimension("weights", self.weights, space.n, torch.empty(0))

    def _normalised(self, space: Space) -> bool:
        return False

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        assert isinstance(space, Sphere)
        std = per_dimension("weights", self.weights, space.n, center).rsqrt().to(center.dtype)

        def propose(rows: Tensor, _: int) -> tuple[Tensor, Tensor]:
            noise = draw_normal((len(rows), space.n), generator, center)
            draws = center[rows] + std * noise
            return draws, (draws.norm(dim=-1) / space.radius - 1).abs() < self.width

        return space.project(rejection_sample(center, propose, f"{self!r} on {space!r}")[0])

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        return AnisotropicNormal(self.weights)._log_density(space, value, center)


def _check_sphere(distribution: Distribution, space: Space) -> None:
    if not isinstance(space, Sphere):
        raise TypeError(f"{type(distribution).__name__} needs a Sphere, got {space!r}")


def _axis(distribution: Distribution, center: Tensor) -> Tensor:
    """Return the direction of each centre, in float64."""
    if bool((center == 0).all(-1).any()):
        raise ValueError(f"center must have nonzero rows for {distribution!r}, got a row of zeros")
    return unit_rows(center.double())


def _log_scaled_bessel(order: float, kappa: float) -> float:
    r"""Return the log of :math:`e^{-\kappa} I_\nu(\kappa)`, also where its value underflows.

    Uses SciPy where its result is finite and above 1e-300. Beyond, uses the uniform expansion
    (Abramowitz & Stegun 9.7.7) with :math:`s = \sqrt{\nu^2 + \kappa^2}` for large κ, whose error
    is below 1/s², and the power series, whose terms are all positive, for small κ.
    """
    value = float(special.ive(order, kappa))
    if math.isfinite(value) and value > 1e-300:
        return math.log(value)
    if kappa > 1e6:
        s = math.hypot(order, kappa)
        correction = (3 / s - 5 * order**2 / s**3) / 24
        exponent = order**2 / (s + kappa) - order * math.asinh(order / kappa)
        return exponent - 0.5 * math.log(2 * math.pi * s) + math.log1p(correction)
    k = np.arange(100 + 2 * math.ceil(kappa))
    log_terms = 2 * k * math.log(kappa / 2) - special.gammaln(k + 1)
    log_terms -= special.gammaln(order + 1 + k)
    return float(special.logsumexp(log_terms)) + order * math.log(kappa / 2) - kappa


def _saddle_shift(weights: Tensor, linear: Tensor) -> Tensor:
    r"""Solve :math:`\sum_k w_k^2/(\lambda_k+\beta)^2 + 1/(\lambda_k+\beta) \approx 1` for β (N, 1).

    The left side to the power -1/2 is concave and increasing in β, so Newton's method from below
    converges monotonically. It starts where the largest of the n terms alone is one.
    """
    square = linear.square()
    shift = (0.5 * (1 + (1 + 4 * square).sqrt()) - weights).amax(-1, keepdim=True)
    for _ in range(20):
        inverse = 1 / (weights + shift)
        value = torch.addcmul(inverse, square, inverse.square())
        slope = torch.addcmul(inverse, square, inverse.square(), value=2).mul_(inverse)
        value, slope = value.sum(-1, keepdim=True), slope.sum(-1, keepdim=True)
        if bool((value < 1.01).all()):
            break
        shift = shift + 2 * value * (value.sqrt() - 1) / slope
    return shift


def _log_radial_integral(n: int, a: Tensor, h: Tensor) -> Tensor:
    r"""Return log I(a, h) by the trapezoid rule in :math:`\rho = \log r`.

    The integrand is analytic and decays at least exponentially on both sides, so the error of the
    rule decays exponentially in the number of nodes; truncating the left tail, which decays as
    e^(n ρ), costs 1e-9.
    """
    mode = (h + (h.square() + 4 * a * n).sqrt()) / (2 * a)
    width = (a * mode.square() + n).rsqrt()
    step = 0.6 if n >= 10 else 0.4
    left, right = math.ceil((6 + 70 / n) / step), math.ceil(7 / step)
    offsets = step * torch.arange(-left, right + 1, dtype=torch.float64, device=a.device)
    rho = mode.log().unsqueeze(-1) + width.unsqueeze(-1) * offsets
    r = rho.exp()
    a, h = a.unsqueeze(-1), h.unsqueeze(-1)
    exponent = n * rho - 0.5 * a * (r.square() - 1) + h * (r - 1)
    return exponent.logsumexp(-1) + (step * width).log()


def _log_least_radial_integral(n: int, a: float) -> float:
    """Return the log of the minimum of I(a, h) over h; I is convex in h, its minimum near a - n."""
    spread = 4 * math.sqrt(a + n) + 4
    a_tensor = torch.tensor(a, dtype=torch.float64)

    def objective(h: float) -> float:
        return float(_log_radial_integral(n, a_tensor, torch.tensor(h, dtype=torch.float64)))

    found = optimize.minimize_scalar(
        objective,
        bounds=(a - n - spread, a - n + spread),
        options={"xatol": 1e-6},
        method="bounded",
    )
    return float(found.fun) - 1e-9  # below the rounding error of the search
