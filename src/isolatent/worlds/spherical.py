"""Distributions that belong to the sphere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import optimize, special
from torch import Generator, Tensor

from isolatent.checks import check_real, check_scale
from isolatent.worlds.distributions import Distribution, columns
from isolatent.worlds.draws import accept_reject, normals, uniforms
from isolatent.worlds.generalized_normal import Normal
from isolatent.worlds.spaces import SeparableSpace, Space, Sphere

__all__ = ["AnisotropicNormal", "ShellNormal", "VonMisesFisher"]


@dataclass(frozen=True)
class VonMisesFisher(Distribution):
    r"""The von Mises–Fisher density :math:`p(z' | c) = C_n(\kappa)\, e^{\kappa \cos\angle(z', c)}`.

    κ acts on directions, so it means the same on a sphere of any radius. The density is normalised.

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
        check_real("kappa", self.kappa, above=0)

    def check(self, space: Space) -> None:
        _check_sphere(self, space)

    def _normalised(self, space: Space) -> bool:
        return True

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        assert isinstance(space, Sphere)
        n, kappa = space.n, self.kappa
        pole = torch.nn.functional.normalize(center, dim=-1)
        b = (n - 1) / (2 * kappa + math.sqrt(4 * kappa**2 + (n - 1) ** 2))
        x0 = (1 - b) / (1 + b)
        log_top = kappa * x0 + (n - 1) * math.log(4 * b / (1 + b) ** 2)

        def propose(rows: Tensor, _: int) -> tuple[Tensor, Tensor]:
            # A uniform direction gives both of Wood's ingredients: its cosine with the pole is a
            # shifted Beta((n-1)/2, (n-1)/2), and its tangent part points anywhere, independently.
            axis = pole[rows]
            noise = normals((len(rows), n), generator, center)
            along = (noise * axis).sum(-1, keepdim=True)
            tangent = torch.nn.functional.normalize(noise - along * axis, dim=-1)
            beta = 0.5 * (1 + (along / noise.norm(dim=-1, keepdim=True)).double())
            # Differences from one, so that nothing cancels when κ is large.
            denominator = 1 - (1 - b) * beta
            one_minus_cosine = 2 * b * beta / denominator
            sine = 2 * (b * beta * (1 - beta)).clamp(min=0).sqrt() / denominator
            cosine = 1 - one_minus_cosine
            one_minus_x0_cosine = one_minus_cosine + cosine * 2 * b / (1 + b)
            log_ratio = kappa * cosine + (n - 1) * one_minus_x0_cosine.log() - log_top
            level = uniforms((len(rows), 1), generator, center)
            draws = cosine.to(axis.dtype) * axis + sine.to(axis.dtype) * tangent
            return draws, (level.log() <= log_ratio).squeeze(-1)

        out = torch.empty_like(center)
        accept_reject(out, propose, repr(self))
        return space.project(out)

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        assert isinstance(space, Sphere)
        cosine = torch.nn.functional.cosine_similarity(value, center, dim=-1)
        order = space.n / 2 - 1
        log_bessel = math.log(special.ive(order, self.kappa)) + self.kappa
        log_constant = (
            order * math.log(self.kappa) - space.n / 2 * math.log(2 * math.pi) - log_bessel
        )
        return self.kappa * cosine + log_constant - (space.n - 1) * math.log(space.radius)


@dataclass(frozen=True)
class AnisotropicNormal(Distribution):
    r"""The density :math:`p(z'|c) \propto \exp(-\tfrac12\sum_k \lambda_k (z'_k - c_k)^2)`.

    On the sphere this is a Fisher–Bingham density (`rusak2025`), drawn exactly, its constant
    unknown; on boxes, cube grids and :math:`\mathbb R^n` it is :class:`Normal` with
    :math:`\sigma_k = \lambda_k^{-1/2}`, normalised.

    The sampler on the sphere is rejection with a *projected normal* envelope. On the unit sphere
    adding β to every λ changes nothing, so with :math:`D = \Lambda + \beta`, :math:`w = \Lambda c`
    the target is :math:`e^{-a/2 + h}` with :math:`a = x^\top D x`, :math:`h = w^\top x`. The
    direction x of :math:`y \sim N(D^{-1}w, D^{-1})` has density :math:`\propto e^{-a/2+h} I(a, h)`,

    .. math:: I(a, h) = \int_0^\infty r^{n-1} e^{-\frac a2 (r^2 - 1) + h (r - 1)} dr,

    so x is accepted with probability :math:`I^*/I(a, h)`. I is convex in h, and where it is least
    in h the mean of r is one, so its minimum :math:`I^*(a)` falls with a: the envelope constant is
    :math:`I^*(\max_k\lambda_k + \beta)`, without approximation. β is chosen such that
    :math:`E\|y\|^2 \approx 1`; any value is valid, this one accepts most.

    Args:
        weights: The weights λ > 0, one number or one per dimension.
    """

    weights: float | tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", check_scale("weights", self.weights))

    def check(self, space: Space) -> None:
        if not isinstance(space, Sphere | SeparableSpace):
            raise TypeError(f"AnisotropicNormal is not defined on {space!r}")
        columns("weights", self.weights, space.n, torch.empty(0))

    def _normalised(self, space: Space) -> bool:
        return isinstance(space, SeparableSpace)

    def _as_normal(self) -> Normal:
        if isinstance(self.weights, tuple):
            return Normal(tuple(weight**-0.5 for weight in self.weights))
        return Normal(self.weights**-0.5)

    def acceptance_rate(self, space: Sphere, center: Tensor, generator: Generator) -> float:
        """Share of the proposals that the sampler accepts around these centres."""
        self._check(space)
        out = torch.empty_like(center)
        return accept_reject(out, self._proposals(space, center, generator), repr(self))

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        if not isinstance(space, Sphere):
            return self._as_normal()._sample(space, center, generator)
        out = torch.empty_like(center)
        accept_reject(out, self._proposals(space, center, generator), repr(self))
        return space.project(out)

    def _proposals(
        self, space: Sphere, center: Tensor, generator: Generator
    ) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
        n = space.n
        weights = columns("weights", self.weights, n, center) * space.radius**2
        linear = weights * torch.nn.functional.normalize(center.double(), dim=-1)
        shift = _saddle_shift(weights, linear)
        largest = float(weights.max() + shift.max()) if len(shift) else 1.0
        log_least = _log_least_radial_integral(n, largest)

        def propose(rows: Tensor, _: int) -> tuple[Tensor, Tensor]:
            precision = weights + shift[rows]
            noise = normals((len(rows), n), generator, weights)
            direction = torch.nn.functional.normalize(
                linear[rows] / precision + noise / precision.sqrt(), dim=-1
            )
            a = (precision * direction.square()).sum(-1)
            h = (linear[rows] * direction).sum(-1)
            level = uniforms((len(rows),), generator, center)
            accepted = level.log() <= log_least - _log_radial_integral(n, a, h)
            return direction * space.radius, accepted

        return propose

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        if not isinstance(space, Sphere):
            return self._as_normal()._log_density(space, value, center)
        weights = columns("weights", self.weights, space.n, value)
        return (-0.5 * (weights * (value - center).double().square()).sum(-1)).to(value.dtype)


@dataclass(frozen=True)
class ShellNormal(Distribution):
    r"""The approximate sampler of `rusak2025`: a normal kept near the sphere, then projected.

    Draws :math:`y \sim N(c, \Lambda^{-1})`, keeps those with :math:`|\|y\| - r| < width \cdot r`,
    and projects them. It tends to :class:`AnisotropicNormal` for a thin shell only, and finds
    nothing where the normal is much wider than the sphere; it is here to compare with published
    numbers. Its density is that of the thin-shell limit, not normalised.

    Args:
        weights: The weights λ > 0, one number or one per dimension.
        width: Half-width of the shell, relative to the radius.
    """

    weights: float | tuple[float, ...]
    width: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", check_scale("weights", self.weights))
        check_real("width", self.width, above=0)

    def check(self, space: Space) -> None:
        _check_sphere(self, space)
        columns("weights", self.weights, space.n, torch.empty(0))

    def _normalised(self, space: Space) -> bool:
        return False

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        assert isinstance(space, Sphere)
        std = columns("weights", self.weights, space.n, center).rsqrt().to(center.dtype)

        def propose(rows: Tensor, _: int) -> tuple[Tensor, Tensor]:
            noise = normals((len(rows), space.n), generator, center)
            draws = center[rows] + std * noise
            return draws, (draws.norm(dim=-1) / space.radius - 1).abs() < self.width

        out = torch.empty_like(center)
        accept_reject(out, propose, repr(self))
        return space.project(out)

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        return AnisotropicNormal(self.weights)._log_density(space, value, center)


def _check_sphere(distribution: Distribution, space: Space) -> None:
    if not isinstance(space, Sphere):
        raise TypeError(f"{type(distribution).__name__} needs a Sphere, got {space!r}")


def _saddle_shift(weights: Tensor, linear: Tensor) -> Tensor:
    r"""β (N, 1) with :math:`\sum_k w_k^2/(\lambda_k+\beta)^2 + 1/(\lambda_k+\beta) \approx 1`.

    Newton on the reciprocal of the left side, which bends little in β, kept between the solutions
    for one weight and for equal weights, which bracket the root.
    """
    smallest, n = weights.min(), len(weights)
    square = linear.square()
    low = (1 - smallest).expand(len(linear), 1)
    high = 0.5 * (n + (n**2 + 4 * square.sum(-1, keepdim=True)).sqrt()) - smallest
    shift = low
    for _ in range(6):
        inverse = 1 / (weights + shift)
        value = torch.addcmul(inverse, square, inverse.square())
        slope = torch.addcmul(inverse, square, inverse.square(), value=2).mul_(inverse)
        value, slope = value.sum(-1, keepdim=True), slope.sum(-1, keepdim=True)
        shift = (shift + value * (value - 1) / slope).clamp(low, high)
    return shift


def _log_radial_integral(n: int, a: Tensor, h: Tensor) -> Tensor:
    r"""Log of I(a, h), by the trapezoid rule in :math:`\rho = \log r`.

    The integrand is analytic and falls at least exponentially on both sides, so the rule's error
    falls exponentially in the step; cutting the left tail, which falls as e^(n ρ), costs 1e-9.
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
    """Log of the minimum of I(a, h) over h: convex in h, and least near h = a - n."""
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
    return float(found.fun) - 1e-9  # the search may stop a rounding above the minimum
