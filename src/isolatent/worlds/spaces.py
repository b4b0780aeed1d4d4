"""Spaces of latents."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real, check_tensor, set_fields
from isolatent.worlds.sampling import draw_normal, draw_uniform, unit_rows

__all__ = [
    "Box",
    "CubeGrid",
    "Euclidean",
    "HollowBall",
    "Product",
    "SeparableSpace",
    "Space",
    "Sphere",
]


class Space(ABC):
    r"""A subset :math:`\mathcal Z \subseteq \mathbb R^n` with a uniform distribution.

    Every space implements uniform sampling (:meth:`sample`), membership (:meth:`contains`),
    projection to the nearest point (:meth:`project`) and its volume (:attr:`log_volume`).

    Attributes:
        n: Number of coordinates.
    """

    n: int

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """Logarithm of the volume (surface area for a sphere); infinite if unbounded."""

    @property
    def bounded(self) -> bool:
        """Whether the volume is finite, so that a uniform distribution exists."""
        return math.isfinite(self.log_volume)

    @abstractmethod
    def center(self) -> Tensor:
        """Return the point, in float64, around which marginals are centred."""

    @abstractmethod
    def _sample(self, size: int, generator: Generator, like: Tensor) -> Tensor: ...

    @abstractmethod
    def _excess(self, z: Tensor) -> Tensor:
        """Return the distance of each row from the space, relative to its size; zero inside."""

    @abstractmethod
    def _project(self, z: Tensor) -> Tensor: ...

    def sample(
        self,
        size: int,
        generator: Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Draw ``size`` points uniformly, as a tensor (size, n)."""
        check_integer("size", size, at_least=0)
        check_generator("generator", generator)
        if not self.bounded:
            raise ValueError(f"{self!r} is unbounded and has no uniform distribution")
        return self._sample(size, generator, torch.empty(0, dtype=dtype, device=device))

    def contains(self, z: Tensor | ArrayLike, tolerance: float | None = None) -> Tensor:
        """Return for each row of z (N, n) whether it lies in the space.

        Args:
            z: Points, one per row.
            tolerance: Distance up to which a point counts as inside, relative to the size of the
                space (the largest norm of its points; per factor for a product). By default 100
                times the machine epsilon of z's dtype.
        """
        z = check_tensor("z", z)
        self._check_columns("z", z)
        if tolerance is None:
            tolerance = 100 * torch.finfo(z.dtype).eps
        return z.isfinite().all(-1) & (self._excess(z) <= tolerance)

    def project(self, z: Tensor | ArrayLike) -> Tensor:
        """Map each row of z (N, n) to the nearest point of the space."""
        z = check_tensor("z", z)
        self._check_columns("z", z)
        return self._project(z)

    def _check_columns(self, name: str, z: Tensor) -> None:
        if z.ndim != 2 or z.shape[-1] != self.n:
            raise ValueError(
                f"{name} must have shape (N, {self.n}) for {self!r}, got {tuple(z.shape)}"
            )


@dataclass(frozen=True)
class Sphere(Space):
    r"""The sphere :math:`\{z \in \mathbb R^n : \|z\|_2 = r\}`.

    Args:
        n: Number of coordinates; the sphere has n - 1 dimensions.
        radius: The radius r.

    Example:
        >>> z = Sphere(3).sample(4, torch.Generator().manual_seed(0))
        >>> z.norm(dim=-1).round(decimals=5)
        tensor([1., 1., 1., 1.])
    """

    n: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            n=check_integer("n", self.n, at_least=2),
            radius=check_real("radius", self.radius, above=0),
        )

    @property
    def log_volume(self) -> float:
        half = self.n / 2
        unit = math.log(2) + half * math.log(math.pi) - math.lgamma(half)
        return unit + (self.n - 1) * math.log(self.radius)

    def center(self) -> Tensor:
        """Return the pole (r, 0, …, 0), by convention."""
        pole = torch.zeros(self.n, dtype=torch.float64)
        pole[0] = self.radius
        return pole

    def _sample(self, size: int, generator: Generator, like: Tensor) -> Tensor:
        return self._project(draw_normal((size, self.n), generator, like))

    def _excess(self, z: Tensor) -> Tensor:
        return ((z / self.radius).norm(dim=-1) - 1).abs()

    def _project(self, z: Tensor) -> Tensor:
        # All points of the sphere are equally near the origin, which is mapped to the pole.
        return unit_rows(z) * self.radius


class SeparableSpace(Space):
    """Base class of n-fold products of a union of intervals.

    Truncation to such a space keeps independent coordinates independent.
    """

    @property
    @abstractmethod
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """The intervals on each axis, in ascending order."""

    @property
    def log_volume(self) -> float:
        return self.n * math.log(sum(high - low for low, high in self.intervals))

    def center(self) -> Tensor:
        middle = (self.intervals[0][0] + self.intervals[-1][1]) / 2
        return torch.full((self.n,), middle, dtype=torch.float64)

    def _sample(self, size: int, generator: Generator, like: Tensor) -> Tensor:
        lows, highs = torch.tensor(self.intervals, dtype=torch.float64, device=like.device).T
        lengths = highs - lows
        offset = draw_uniform((size, self.n), generator, like) * lengths.sum()
        ends = lengths.cumsum(0)
        piece = torch.searchsorted(ends[:-1], offset, right=True)
        return (lows[piece] + offset - (ends - lengths)[piece]).to(like.dtype)

    def _project(self, z: Tensor) -> Tensor:
        candidates = torch.stack([z.clamp(low, high) for low, high in self.intervals])
        nearest = (candidates - z).abs().argmin(0, keepdim=True)
        return candidates.gather(0, nearest).squeeze(0)

    def _excess(self, z: Tensor) -> Tensor:
        bound = max(abs(self.intervals[0][0]), abs(self.intervals[-1][1]))
        return ((z - self._project(z)) / bound).norm(dim=-1) / math.sqrt(self.n)


@dataclass(frozen=True)
class Box(SeparableSpace):
    r"""The box :math:`[low, high]^n`.

    Args:
        n: Number of coordinates.
        low: Lower bound of every coordinate.
        high: Upper bound of every coordinate.

    Example:
        >>> Box(2, low=-1.0).project([[-3.0, 0.5]])
        tensor([[-1.0000,  0.5000]], dtype=torch.float64)
    """

    n: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        set_fields(self, n=check_integer("n", self.n, at_least=1), low=check_real("low", self.low))
        set_fields(self, high=check_real("high", self.high, above=self.low))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ((self.low, self.high),)


@dataclass(frozen=True)
class Euclidean(SeparableSpace):
    r"""The Euclidean space :math:`\mathbb R^n`, which has no uniform distribution.

    Args:
        n: Number of coordinates.

    Example:
        >>> Euclidean(3).bounded
        False
    """

    n: int

    def __post_init__(self) -> None:
        set_fields(self, n=check_integer("n", self.n, at_least=1))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ((-math.inf, math.inf),)

    def center(self) -> Tensor:
        """Return the origin."""
        return torch.zeros(self.n, dtype=torch.float64)

    def _excess(self, z: Tensor) -> Tensor:
        return torch.zeros(len(z), dtype=z.dtype, device=z.device)


@dataclass(frozen=True)
class CubeGrid(SeparableSpace):
    r"""A grid of :math:`cells^n` disconnected cubes in :math:`[0, 1]^n` (`matthes2023`).

    Each axis has ``cells`` intervals of equal width, separated by gaps.

    Args:
        n: Number of coordinates.
        cells: Number of intervals on each axis, at least 2.
        gap: Width of each gap, below ``1 / (cells - 1)``.

    Example:
        >>> CubeGrid(2, cells=2, gap=0.5).intervals
        ((0.0, 0.25), (0.75, 1.0))
    """

    n: int
    cells: int = 2
    gap: float = 0.2

    def __post_init__(self) -> None:
        set_fields(
            self,
            n=check_integer("n", self.n, at_least=1),
            cells=check_integer("cells", self.cells, at_least=2),
        )
        set_fields(self, gap=check_real("gap", self.gap, above=0, below=1 / (self.cells - 1)))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        width = (1 - (self.cells - 1) * self.gap) / self.cells
        starts = [cell * (width + self.gap) for cell in range(self.cells)]
        ends = [start + width for start in starts[:-1]] + [1.0]
        return tuple(zip(starts, ends, strict=True))


@dataclass(frozen=True)
class HollowBall(Space):
    r"""The non-convex shell :math:`\{z \in \mathbb R^n : inner \le \|z\|_2 \le outer\}`.

    Isotropic normals truncated to it are sampled efficiently for every scale, other distributions
    only where rejection sampling is efficient: see :class:`GeneralizedNormal`.

    Args:
        n: Number of coordinates.
        inner: Radius of the hole, at least 0.
        outer: Outer radius.

    Example:
        >>> z = HollowBall(3).sample(1000, torch.Generator().manual_seed(0))
        >>> radius = z.norm(dim=-1)
        >>> bool((radius >= 0.5).all() and (radius <= 1.0).all())
        True
    """

    n: int
    inner: float = 0.5
    outer: float = 1.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            n=check_integer("n", self.n, at_least=2),
            inner=check_real("inner", self.inner, at_least=0),
        )
        set_fields(self, outer=check_real("outer", self.outer, above=self.inner))

    @property
    def log_volume(self) -> float:
        half = self.n / 2
        unit_ball = half * math.log(math.pi) - math.lgamma(half + 1)
        hole = (self.inner / self.outer) ** self.n
        return unit_ball + self.n * math.log(self.outer) + math.log1p(-hole)

    def center(self) -> Tensor:
        """Return the origin, which lies outside the space unless ``inner`` is 0."""
        return torch.zeros(self.n, dtype=torch.float64)

    def _sample(self, size: int, generator: Generator, like: Tensor) -> Tensor:
        direction = Sphere(self.n)._sample(size, generator, like)
        hole = (self.inner / self.outer) ** self.n
        share = hole + (1 - hole) * draw_uniform((size, 1), generator, like)
        return direction * (self.outer * share ** (1 / self.n)).to(like.dtype)

    def _excess(self, z: Tensor) -> Tensor:
        radius = (z / self.outer).norm(dim=-1)
        return (radius - radius.clamp(self.inner / self.outer, 1.0)).abs()

    def _project(self, z: Tensor) -> Tensor:
        # All points of the inner sphere are equally near the origin, which is mapped to the pole.
        return unit_rows(z) * z.norm(dim=-1, keepdim=True).clamp(self.inner, self.outer)


@dataclass(frozen=True, init=False)
class Product(Space):
    r"""The product :math:`\mathcal Z_1 \times \dots \times \mathcal Z_m`, coordinates concatenated.

    Args:
        *spaces: The factors.

    Example:
        >>> Product(Sphere(3), Box(2)).n
        5
    """

    spaces: tuple[Space, ...]

    def __init__(self, *spaces: Space) -> None:
        if not spaces or not all(isinstance(space, Space) for space in spaces):
            raise TypeError(f"spaces must be one or more Space objects, got {spaces!r}")
        set_fields(self, spaces=spaces, n=sum(space.n for space in spaces))

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.spaces))})"

    def split(self, z: Tensor) -> Iterator[tuple[Space, Tensor]]:
        """Yield each factor with its columns of z (N, n)."""
        self._check_columns("z", z)
        parts = z.split([space.n for space in self.spaces], dim=-1)
        return zip(self.spaces, parts, strict=True)

    @property
    def log_volume(self) -> float:
        return sum(space.log_volume for space in self.spaces)

    def center(self) -> Tensor:
        return torch.cat([space.center() for space in self.spaces])

    def _sample(self, size: int, generator: Generator, like: Tensor) -> Tensor:
        return torch.cat([space._sample(size, generator, like) for space in self.spaces], dim=-1)

    def _excess(self, z: Tensor) -> Tensor:
        parts = [space._excess(part) for space, part in self.split(z)]
        return torch.stack(parts).amax(0)

    def _project(self, z: Tensor) -> Tensor:
        return torch.cat([space._project(part) for space, part in self.split(z)], dim=-1)
