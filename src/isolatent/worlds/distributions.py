"""The base class of distributions, and distributions independent of the geometry."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real, set_fields
from isolatent.worlds.sampling import draw_normal
from isolatent.worlds.spaces import Box, Product, Space

__all__ = [
    "Distribution",
    "Elementary",
    "GaussianCopula",
    "Independent",
    "Uniform",
    "per_dimension",
]


def per_dimension(name: str, value: float | tuple[float, ...], n: int, like: Tensor) -> Tensor:
    """Expand one or n values to n values, in float64 on ``like``'s device."""
    if isinstance(value, tuple) and len(value) != n:
        raise ValueError(
            f"{name} must have one value or one per dimension ({n}), got {len(value)} values"
        )
    return torch.as_tensor(value, dtype=torch.float64, device=like.device).expand(n)


class Distribution(ABC):
    r"""Base class of densities :math:`p(z' \mid c)` around a centre c on a given space.

    The same object serves as a conditional, where c is the anchor z, and as a marginal, where c is
    the centre of the space. On a :class:`Product` it applies to each factor independently.
    """

    @abstractmethod
    def _factors(self, space: Space) -> list[tuple[Elementary, Space]]:
        """Return the elementary factors of ``space``, each with its distribution."""

    def check(self, space: Space) -> None:
        """Raise ValueError or TypeError if this distribution is not defined on ``space``."""
        for part, factor in self._factors(space):
            try:
                part._check_on(factor)
            except ValueError as error:
                if part is self and isinstance(space, Product):
                    raise ValueError(
                        f"{error}. On a Product the same distribution applies to every factor: use "
                        "Independent(...) for one distribution per factor"
                    ) from error
                raise

    def normalised(self, space: Space) -> bool:
        """Return whether :meth:`log_prob` on ``space`` includes the normalising constant."""
        self.check(space)
        return all(part._normalised(factor) for part, factor in self._factors(space))

    def sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        """Draw one point for each row of ``center`` (N, n), with its dtype and device."""
        self.check(space)
        check_generator("generator", generator)
        _check_points("center", center, space)
        if not bool(center.isfinite().all()):
            raise ValueError("center must be finite, got NaN or inf")
        dealt = self._factors(space)
        around = center.split([factor.n for _, factor in dealt], dim=-1)
        draws = [
            part._sample(factor, some, generator)
            for (part, factor), some in zip(dealt, around, strict=True)
        ]
        return draws[0] if len(draws) == 1 else torch.cat(draws, dim=-1)

    def log_prob(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        """Return the log-density (N,) of each row of ``value`` around the same row of ``center``.

        The density is with respect to volume (area on a sphere) and zero outside the space.
        :meth:`normalised` returns whether it integrates to one.
        """
        self.check(space)
        _check_points("value", value, space)
        _check_points("center", center, space)
        if len(value) != len(center):
            raise ValueError(
                f"value and center must have as many rows, got {len(value)} and {len(center)}"
            )
        dealt = self._factors(space)
        sizes = [factor.n for _, factor in dealt]
        terms = [
            torch.where(factor.contains(some), part._log_density(factor, some, around), -math.inf)
            for (part, factor), some, around in zip(
                dealt, value.split(sizes, dim=-1), center.split(sizes, dim=-1), strict=True
            )
        ]
        return torch.stack(terms).sum(0)


class Elementary(Distribution):
    """Base class of distributions defined on spaces that are not products."""

    @abstractmethod
    def _check_on(self, space: Space) -> None:
        """Raise ValueError or TypeError if this distribution is not defined on ``space``."""

    @abstractmethod
    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor: ...

    @abstractmethod
    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor: ...

    def _normalised(self, space: Space) -> bool:
        return True

    def _factors(self, space: Space) -> list[tuple[Elementary, Space]]:
        if not isinstance(space, Product):
            return [(self, space)]
        return [part for factor in space.spaces for part in self._factors(factor)]


def _check_points(name: str, value: Tensor, space: Space) -> None:
    if not isinstance(value, Tensor) or value.dtype not in (torch.float32, torch.float64):
        got = value.dtype if isinstance(value, Tensor) else repr(value)
        raise TypeError(f"{name} must be a tensor of float32 or float64, got {got}")
    space._check_columns(name, value)


@dataclass(frozen=True)
class Uniform(Elementary):
    r"""The uniform density :math:`p(z) = |\mathcal Z|^{-1}`, independent of the centre.

    Example:
        >>> z = torch.tensor([[0.5, 0.5], [0.5, 3.0]])
        >>> Uniform().log_prob(Box(2, high=2.0), z, center=z).exp()  # one over the area; 0 outside
        tensor([0.2500, 0.0000])
    """

    def _check_on(self, space: Space) -> None:
        if not space.bounded:
            raise ValueError(f"Uniform needs a bounded space, got {space!r}")

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        return space.sample(len(center), generator, center.dtype, center.device)

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        return torch.full((len(value),), -space.log_volume, dtype=value.dtype, device=value.device)


@dataclass(frozen=True)
class GaussianCopula(Elementary):
    r"""Uniform marginals on a box, correlated within blocks: :math:`z = F^{-1}(\Phi(g))`.

    g is Gaussian with unit variances and, within each block of consecutive coordinates, a common
    correlation; different blocks are independent (`matthes2023`).

    Args:
        block_size: Coordinates per block; must divide n.
        correlation: Correlation of the Gaussian variables within a block.

    Example:
        >>> copula, center = GaussianCopula(block_size=2, correlation=0.9), torch.zeros(10_000, 4)
        >>> z = copula.sample(Box(4), center, Generator().manual_seed(0))
        >>> [round(r, 1) for r in z.T.corrcoef()[0].abs().tolist()]
        [1.0, 0.9, 0.0, 0.0]
    """

    block_size: int
    correlation: float

    def __post_init__(self) -> None:
        set_fields(self, block_size=check_integer("block_size", self.block_size, at_least=1))
        lowest = -1 / (self.block_size - 1) if self.block_size > 1 else -1.0
        set_fields(
            self, correlation=check_real("correlation", self.correlation, above=lowest, below=1)
        )

    def _check_on(self, space: Space) -> None:
        if not isinstance(space, Box):
            raise TypeError(f"GaussianCopula needs a Box, got {space!r}")
        if space.n % self.block_size:
            raise ValueError(f"block_size must divide n = {space.n}, got {self.block_size}")

    def _covariance(self, like: Tensor) -> Tensor:
        covariance = torch.full((self.block_size,) * 2, self.correlation, dtype=torch.float64)
        return covariance.fill_diagonal_(1.0).to(like.device)

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        assert isinstance(space, Box)
        root = torch.linalg.cholesky(self._covariance(center))
        independent = draw_normal((*center.shape,), generator, center).double()
        gaussians = independent.unflatten(-1, (-1, self.block_size)) @ root.mT
        shares = torch.special.ndtr(gaussians.flatten(-2))
        return (space.low + (space.high - space.low) * shares).to(center.dtype)

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        assert isinstance(space, Box)
        tiny = torch.finfo(torch.float64).tiny
        share = ((value.double() - space.low) / (space.high - space.low)).clamp(tiny, 1 - 1e-16)
        blocks = torch.special.ndtri(share).unflatten(-1, (-1, self.block_size))
        covariance = self._covariance(value)
        identity = torch.eye(self.block_size, dtype=torch.float64, device=value.device)
        precision = torch.linalg.inv(covariance) - identity
        quadratic = torch.einsum("...i,ij,...j->...", blocks, precision, blocks).sum(-1)
        log_determinant = torch.linalg.slogdet(covariance).logabsdet * blocks.shape[-2]
        return (-0.5 * (quadratic + log_determinant) - space.log_volume).to(value.dtype)


@dataclass(frozen=True, init=False)
class Independent(Distribution):
    r"""One distribution for each factor of a product space: :math:`p = \prod_i p_i(z'_i | c_i)`.

    Args:
        *parts: The distributions, in the order of the product's spaces.

    Example:
        >>> from isolatent.worlds import Normal, Sphere, VonMisesFisher
        >>> space = Product(Box(2), Sphere(3))
        >>> center = space.sample(4, Generator().manual_seed(0))
        >>> steps = Independent(Normal(0.1), VonMisesFisher(kappa=10.0))
        >>> space.contains(steps.sample(space, center, Generator().manual_seed(1)))
        tensor([True, True, True, True])
    """

    parts: tuple[Distribution, ...]

    def __init__(self, *parts: Distribution) -> None:
        if not parts or not all(isinstance(part, Distribution) for part in parts):
            raise TypeError(f"parts must be one or more Distribution objects, got {parts!r}")
        set_fields(self, parts=parts)

    def __repr__(self) -> str:
        return f"Independent({', '.join(map(repr, self.parts))})"

    def _factors(self, space: Space) -> list[tuple[Elementary, Space]]:
        if not isinstance(space, Product):
            raise TypeError(f"Independent needs a Product space, got {space!r}")
        if len(self.parts) != len(space.spaces):
            raise ValueError(
                f"Independent has {len(self.parts)} parts but the product has "
                f"{len(space.spaces)} spaces: {space!r}"
            )
        return [
            dealt
            for part, factor in zip(self.parts, space.spaces, strict=True)
            for dealt in part._factors(factor)
        ]
