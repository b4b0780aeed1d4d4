"""Worlds on a finite grid of factors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.datasets.packed_images import PackedImages
from isolatent.worlds.sampling import draw_uniform

__all__ = ["FactorArray", "FactorWorld", "check_factors"]

LARGEST_GRID = 2**62  # cells, so that an index fits in 64 bits
CHANNELS = (1, 3, 4)  # numbers of channels by which a channels-last layout is recognised
SCANNED_VALUES = 2**22  # numbers read at a time


def check_factors(name: str, value: Tensor | ArrayLike, sizes: Sequence[int]) -> Tensor:
    """Return factors (N, F) as int64 on the CPU, each from 0 to its size - 1.

    Example:
        >>> check_factors("factors", [[0, 3]], (2, 3))
        Traceback (most recent call last):
        ValueError: factors[:, 1] must be from 0 to 2, got 3 in row 0
    """
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.ndim != 2 or array.shape[1] != len(sizes):
        raise ValueError(f"{name} must have shape (N, {len(sizes)}), got {array.shape}")
    array = array.astype(np.int64)
    outside = (array < 0) | (array >= np.asarray(sizes))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise ValueError(
            f"{name}[:, {column}] must be from 0 to {sizes[column] - 1}, got "
            f"{array[row, column]} in row {row}"
        )
    return torch.from_numpy(array)


class FactorWorld(ABC):
    r"""A world :math:`x = g(y)` on the grid :math:`y \in \prod_f \{0, \dots, n_f - 1\}`.

    Factors are given as indices, and ``values`` maps each index to its value. Cells of the grid are
    numbered with the last factor fastest, as in the dSprites file.

    Args:
        sizes: Number of values of each factor.
        names: Name of each factor; by default ``factor_0``, ``factor_1``, …
        categorical: Whether each factor is unordered, such as a shape; by default none is.
        values: The values of each factor, one per index; by default the indices.

    Attributes:
        observation_shape: The shape of one observation, (channels, height, width) for images.

    Example:
        >>> class Bars(FactorWorld):  # the factor is the number of white pixels
        ...     observation_shape = (1, 1, 3)
        ...     def _observe(self, factors):
        ...         return (torch.arange(3) < factors[:, :, None, None]).float()
        >>> Bars(sizes=[4], names=["length"]).observe([[0], [2]]).tolist()
        [[[[0.0, 0.0, 0.0]]], [[[1.0, 1.0, 0.0]]]]
    """

    observation_shape: tuple[int, ...]

    def __init__(
        self,
        sizes: Sequence[int] | NDArray[Any] | Tensor,
        names: Sequence[str] | None = None,
        categorical: Sequence[bool] | None = None,
        values: Sequence[ArrayLike] | None = None,
    ) -> None:
        if isinstance(sizes, np.ndarray | Tensor):
            sizes = sizes.tolist()
        if not isinstance(sizes, list | tuple) or not sizes:
            raise TypeError(f"sizes must be one integer for each factor, got {sizes!r}")
        self.sizes = tuple(check_integer(f"sizes[{k}]", n, at_least=1) for k, n in enumerate(sizes))
        if math.prod(self.sizes) > LARGEST_GRID:
            raise ValueError(f"sizes must have a product of at most 2^62, got {self.sizes}")
        count = len(self.sizes)
        self.names = tuple(
            map(str, self._each("names", names, [f"factor_{k}" for k in range(count)]))
        )
        if len(set(self.names)) < count:
            raise ValueError(f"names must differ, got {self.names}")
        flags = self._each("categorical", categorical, [False] * count)
        for flag in flags:
            if not isinstance(flag, bool | np.bool_):
                raise TypeError(f"categorical must hold booleans, got {flag!r}")
        self.categorical = tuple(map(bool, flags))
        given = self._each("values", values, [np.arange(n) for n in self.sizes])
        self.values: tuple[NDArray[np.float64], ...] = tuple(
            _finite(f"values of {name}", known, n)
            for name, known, n in zip(self.names, given, self.sizes, strict=True)
        )

    @property
    def n_factors(self) -> int:
        """Number of factors F."""
        return len(self.sizes)

    def __len__(self) -> int:
        """Return the number of cells of the grid."""
        return math.prod(self.sizes)

    def sample_factors(self, count: int, generator: Generator) -> Tensor:
        """Draw factors (count, F), uniformly and independently."""
        check_integer("count", count, at_least=0)
        check_generator("generator", generator)
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        return (draw_uniform((count, self.n_factors), generator, sizes) * sizes).long()

    def index_of(self, factors: Tensor | ArrayLike) -> Tensor:
        r"""Return the cell :math:`\sum_f y_f \prod_{g > f} n_g` of each row of factors (N, F)."""
        columns = check_factors("factors", factors, self.sizes).numpy().T
        return torch.from_numpy(np.ravel_multi_index(tuple(columns), self.sizes).astype(np.int64))

    def factors_at(self, index: Tensor | ArrayLike) -> Tensor:
        """Return the factors (N, F) of each cell (N,), the inverse of :meth:`index_of`."""
        given = np.asarray(index)
        if given.ndim != 1:
            raise ValueError(f"index must have shape (N,), got {given.shape}")
        cells = check_factors("index", given[:, None], (len(self),))[:, 0]
        columns = np.unravel_index(cells.numpy(), self.sizes)
        return torch.from_numpy(np.stack(columns, axis=1).astype(np.int64))

    def values_of(self, factors: Tensor | ArrayLike) -> Tensor:
        """Return the values (N, F), float64, of the indices in factors (N, F)."""
        columns = check_factors("factors", factors, self.sizes).numpy().T
        found = [known[column] for known, column in zip(self.values, columns, strict=True)]
        return torch.from_numpy(np.stack(found, axis=1))

    def observe(self, factors: Tensor | ArrayLike) -> Tensor:
        """Map factors (N, F) to observations (N, *observation_shape), float32 in [0, 1]."""
        return self._observe(check_factors("factors", factors, self.sizes))

    @abstractmethod
    def _observe(self, factors: Tensor) -> Tensor: ...

    def _each(
        self, name: str, given: Sequence[Any] | None, default: Sequence[Any]
    ) -> Sequence[Any]:
        """Return ``given``, checked to have one entry per factor, or the default."""
        if given is None:
            return default
        if isinstance(given, str) or len(given) != len(self.sizes):
            raise ValueError(f"{name} must have {len(self.sizes)} entries, got {given!r}")
        return given

    def __repr__(self) -> str:
        parts = zip(self.names, self.sizes, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}: {n}' for name, n in parts)})"


class FactorArray(FactorWorld):
    r"""A dataset with one image for each cell of a grid of factors.

    Args:
        images: One observation per cell, in the order of the grid (last factor fastest):
            (N, height, width), (N, channels, height, width) or any other (N, ...). A NumPy array, a
            tensor, a memory map, of which only requested rows are read, or packed bits.
        sizes: Number of values of each factor; their product is N.
        names: Name of each factor.
        categorical: Whether each factor is unordered.
        values: The values of each factor, one per index.
        largest: The stored number that is shown as 1: by default 1 for booleans and floats, and for
            integers if none is above 1, else 255. Integers are read until one is above 1, so a
            memory map of zeros and ones is read once in full, in chunks, unless ``largest`` is
            given.

    Example:
        >>> images = np.arange(6, dtype=np.uint8).reshape(6, 1, 1) * 51
        >>> world = FactorArray(images, sizes=(2, 3), names=("shape", "x"))
        >>> world.observe([[1, 2]]).shape, float(world.observe([[1, 2]]))
        (torch.Size([1, 1, 1, 1]), 1.0)
        >>> world
        FactorArray(shape: 2, x: 3)
    """

    def __init__(
        self,
        images: NDArray[Any] | Tensor | PackedImages,
        sizes: Sequence[int] | NDArray[Any] | Tensor,
        names: Sequence[str] | None = None,
        categorical: Sequence[bool] | None = None,
        values: Sequence[ArrayLike] | None = None,
        *,
        largest: float | None = None,
    ) -> None:
        super().__init__(sizes, names, categorical, values)
        if isinstance(images, Tensor):
            images = images.detach().cpu().numpy()
        elif not isinstance(images, PackedImages):
            images = np.asanyarray(images)
        if images.dtype.kind not in "biuf":
            raise TypeError(f"images must be real numbers, got dtype {images.dtype}")
        if len(images.shape) < 2 or images.shape[0] != len(self):
            raise ValueError(
                f"images must have shape ({len(self)}, ...), one for each cell of {self.sizes}, "
                f"got {images.shape}"
            )
        shape = tuple(images.shape[1:])
        if len(shape) == 3 and shape[2] in CHANNELS and shape[0] not in CHANNELS:
            raise ValueError(
                f"images must have their channels first, (N, channels, height, width), got "
                f"{images.shape}; use np.moveaxis(images, -1, 1)"
            )
        if largest is None:
            self.largest = 255.0 if _above_one(images) else 1.0
        else:
            self.largest = check_real("largest", largest, above=0)
        self.images = images
        self.observation_shape = (1, *shape) if len(shape) == 2 else shape

    def _observe(self, factors: Tensor) -> Tensor:
        cells = self.index_of(factors).numpy()
        shown = np.asarray(self.images[cells], np.float32).reshape(-1, *self.observation_shape)
        if self.largest != 1:
            shown = shown / np.float32(self.largest)
        # Written so that NaN fails; checked here, since a memory map is not read in full.
        if shown.size and not (shown.min() >= 0 and shown.max() <= 1):
            raise ValueError(
                f"images must lie in [0, {self.largest:g}] (largest={self.largest:g}), got values "
                f"from {shown.min() * self.largest:g} to {shown.max() * self.largest:g}"
            )
        return torch.from_numpy(shown)


def _finite(name: str, given: ArrayLike, size: int) -> NDArray[np.float64]:
    """Return the values of a factor as a finite array (size,)."""
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {given!r}") from None
    if values.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got {values}")
    return values


def _above_one(images: NDArray[Any] | PackedImages) -> bool:
    """Return whether images are integers with a value above 1."""
    if images.dtype.kind not in "iu" or isinstance(images, PackedImages) or not images.size:
        return False
    rows = max(1, SCANNED_VALUES // math.prod(images.shape[1:]))
    starts = range(0, len(images), rows)
    return any(images[start : start + rows].max() > 1 for start in starts)
