"""The contract of all distributions, and those that need no geometry of their own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from isolatent.checks import check_integer, check_real
from isolatent.worlds.draws import normals
from isolatent.worlds.spaces import Box, Product, Space

__all__ = ["Distribution", "GaussianCopula", "Independent", "Uniform", "columns"]


def columns(name: str, value: float | tuple[float, ...], n: int, like: Tensor) -> Tensor:
    """One value per coordinate, in float64 on ``like``'s device, from one or n given values."""
    if isinstance(value, tuple) and len(value) != n:
        raise ValueError(
            f"{name} must have one value or one per dimension ({n}), got {len(value)} values"
        )
    return torch.as_tensor(value, dtype=torch.float64, device=like.device).expand(n)


class Distribution(ABC):
    r"""A density :math:`p(z' \mid c)` around a centre c, on whatever space it is asked for.

    The same object serves as a conditional, where c is the anchor z, and as a marginal, where c is
    the centre of the space. On a :class:`Product` it applies to every factor on its own.
    """

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise an error that says why, if this distribution cannot live on ``space``."""

    @abstractmethod
    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor: ...

    @abstractmethod
    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor: ...

    @abstractmethod
    def _normalised(self, space: Space) -> bool: ...

    def normalised(self, space: Space) -> bool:
        """Whether :meth:`log_density` on ``space`` integrates to one, or lacks a constant."""
        self._check(space)
        if isinstance(space, Product):
            return all(part.normalised(factor) for part, factor in self._parts(space))
        return self._normalised(space)

    def sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        """Draw one point for each row of ``center`` (N, n), with its dtype and device."""
        self._check(space)
        space._check_columns(center)
        if isinstance(space, Product):
            draws = [
                part.sample(factor, columns, generator)
                for (part, factor), (_, columns) in zip(
                    self._parts(space), space.split(center), strict=True
                )
            ]
            return torch.cat(draws, dim=-1)
        return self._sample(space, center, generator)

    def log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        """Log-density (N,) of each row of ``value`` around the same row of ``center``.

        It is with respect to volume (area on a sphere), minus infinity outside the space, and
        normalised exactly when :meth:`normalised` says so.
        """
        self._check(space)
        space._check_columns(value)
        space._check_columns(center)
        if isinstance(space, Product):
            terms = [
                part.log_density(factor, value_part, center_part)
                for (part, factor), (_, value_part), (_, center_part) in zip(
                    self._parts(space), space.split(value), space.split(center), strict=True
                )
            ]
            return torch.stack(terms).sum(0)
        inside = space.contains(value)
        log_density = self._log_density(space, value, center)
        return torch.where(inside, log_density, -math.inf)

    def _parts(self, space: Product) -> list[tuple[Distribution, Space]]:
        return [(self, factor) for factor in space.spaces]

    def _check(self, space: Space) -> None:
        if isinstance(space, Product):
            for part, factor in self._parts(space):
                part._check(factor)
        else:
            self.check(space)


@dataclass(frozen=True)
class Uniform(Distribution):
    r"""The uniform density :math:`p(z) = |\mathcal Z|^{-1}`; the centre plays no part."""

    def check(self, space: Space) -> None:
        if not space.bounded:
            raise ValueError(f"Uniform needs a bounded space, got {space!r}")

    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        return space.sample(len(center), generator, center.dtype, center.device)

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        return torch.full((len(value),), -space.log_volume, dtype=value.dtype, device=value.device)

    def _normalised(self, space: Space) -> bool:
        return True


@dataclass(frozen=True)
class GaussianCopula(Distribution):
    r"""Uniform margins on a box, correlated within blocks: :math:`z = F^{-1}(\Phi(g))`.

    g is Gaussian with unit variances and, inside each block of consecutive coordinates, one common
    correlation; different blocks are independent (`matthes2023`).

    Args:
        block_size: Coordinates per block; must divide n.
        correlation: Correlation of the Gaussians inside a block.
    """

    block_size: int
    correlation: float

    def __post_init__(self) -> None:
        check_integer("block_size", self.block_size, at_least=1)
        lowest = -1 / (self.block_size - 1) if self.block_size > 1 else -1.0
        check_real("correlation", self.correlation, above=lowest, below=1)

    def check(self, space: Space) -> None:
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
        independent = normals((*center.shape,), generator, center).double()
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

    def _normalised(self, space: Space) -> bool:
        return True


@dataclass(frozen=True, init=False)
class Independent(Distribution):
    r"""One distribution for each factor of a product space: :math:`p = \prod_i p_i(z'_i | c_i)`.

    Args:
        *parts: The distributions, in the order of the product's spaces.
    """

    parts: tuple[Distribution, ...]

    def __init__(self, *parts: Distribution) -> None:
        if not parts or not all(isinstance(part, Distribution) for part in parts):
            raise TypeError(f"parts must be one or more Distribution objects, got {parts!r}")
        object.__setattr__(self, "parts", parts)

    def __repr__(self) -> str:
        return f"Independent({', '.join(map(repr, self.parts))})"

    def check(self, space: Space) -> None:
        raise TypeError(f"Independent needs a Product space, got {space!r}")

    def _parts(self, space: Product) -> list[tuple[Distribution, Space]]:
        if len(self.parts) != len(space.spaces):
            raise ValueError(
                f"Independent has {len(self.parts)} parts but the product has "
                f"{len(space.spaces)} spaces: {space!r}"
            )
        return list(zip(self.parts, space.spaces, strict=True))

    # `check` refuses every space but a Product, and a Product is dealt out to the parts.
    def _sample(self, space: Space, center: Tensor, generator: Generator) -> Tensor:
        raise NotImplementedError

    def _log_density(self, space: Space, value: Tensor, center: Tensor) -> Tensor:
        raise NotImplementedError

    def _normalised(self, space: Space) -> bool:
        raise NotImplementedError
