"""Encode the points of a world on a grid of factors, each point once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isolatent.checks import check_integer
from isolatent.evaluation.columns import Array, Indices, as_columns

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

__all__ = ["EncodedGrid", "GridWorld"]

BATCH_SIZE = 64  # observations at a time: activations between layers stay in the cache

REQUIRED = ("names", "sizes", "categorical", "__len__", "factors_at", "observe")

MASK_LIMIT = 2**27  # points up to which distinct points are found by a mask of the whole grid


class GridWorld(Protocol):
    """A world on a grid: factors with finitely many values, and an observation of each point.

    A world may also have a method ``encode_grid(module)`` that returns the codes (N, C) of all its
    points, in the order of the grid, or None if it has no faster way than observing and encoding
    point by point; :class:`~isolatent.datasets.Sprites` has one. It is called with a module of
    torch's and this library's layers if at least half of the grid is to be encoded.
    """

    @property
    def names(self) -> Sequence[str]:
        """Names of the factors."""

    @property
    def sizes(self) -> Sequence[int]:
        """Number of values of each factor."""

    @property
    def categorical(self) -> Sequence[bool]:
        """Which factors have no order."""

    def __len__(self) -> int: ...

    def sample_factors(self, count: int, generator: Generator) -> Tensor:
        """Draw factors (count, F)."""

    def index_of(self, factors: Tensor) -> Tensor:
        """Return the index in the grid of factors (count, F)."""

    def factors_at(self, index: Tensor) -> Tensor:
        """Return the factors (count, F) at indices in the grid."""

    def observe(self, factors: Tensor) -> Tensor:
        """Return the observations of factors (count, F)."""


class EncodedGrid:
    """Codes of a world's grid points, computed on first use and stored.

    The BetaVAE and FactorVAE scores use about three million points of a grid that has fewer:
    dSprites has 737 280. Only points that are used are encoded.

    Args:
        encoder: Anything with ``transform(x)``, or a callable (a module is called in evaluation
            mode), from observations to codes (N, C). If the encoder has a method ``code_module()``,
            as estimators with a network do, the module it returns is called instead of
            ``transform``.
        world: A world on a grid; see :class:`GridWorld`. Its ``observe`` is called by one thread at
            a time, since user-defined worlds may not be thread-safe.
        random_state: Seed of all draws, an integer >= 0.

    Attributes:
        n_encoded: Number of points that have been encoded.

    Example:
        >>> import torch
        >>> class Square:  # or a world of `isolatent.datasets`
        ...     names, sizes, categorical = ("row", "column"), (4, 4), (False, False)
        ...     def __len__(self): return 16
        ...     def factors_at(self, index): return torch.stack([index // 4, index % 4], 1)
        ...     def observe(self, factors): return factors.float()
        >>> grid = EncodedGrid(lambda x: 10 * x, Square(), random_state=0)
        >>> grid.codes_at(np.array([5, 5, 14])), grid.n_encoded
        (array([[10., 10.],
               [10., 10.],
               [30., 20.]]), 2)
    """

    def __init__(self, encoder: Any, world: GridWorld, random_state: int) -> None:
        from torch import Generator  # not at the top: scores of arrays do not need torch

        if isinstance(world, type):  # a class has the required attributes, too
            raise TypeError(f"world must be an instance, such as Sprites(), got {world!r}")
        missing = [name for name in REQUIRED if not hasattr(world, name)]
        if missing:
            raise TypeError(
                f"world must have a grid of factors, as Sprites() has, got {type(world).__name__} "
                f"without {missing[0]}"
            )
        self._module, self._encode = _as_function(encoder)
        single = [n for n, size in zip(world.names, world.sizes, strict=True) if size < 2]
        if single:
            raise ValueError(
                f"world must have factors of at least 2 values, got {single[0]!r} with one; a "
                "constant factor cannot be scored"
            )
        self.world = world
        check_integer("random_state", random_state, at_least=0)
        self._generator = Generator().manual_seed(random_state)
        self._index = np.empty(0, dtype=np.int64)  # of the encoded points, ascending
        self._codes: Array | None = None

    @property
    def n_encoded(self) -> int:
        return len(self._index)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.world.sizes)

    def sample_factor_indices(self, count: int) -> Indices:
        """Draw ``count`` factors uniformly, each by its index."""
        import torch

        return torch.randint(self.n_factors, (count,), generator=self._generator).numpy()

    def sample_points(self, count: int) -> Indices:
        """Draw points from the world."""
        return self._index_of(self.world.sample_factors(count, self._generator))

    def sample_pairs(self, factor: int, count: int, batch_size: int) -> Indices:
        """Draw batches of pairs, (2, count, batch_size), that share one value of a factor."""
        n = count * batch_size
        first, second = (self.world.sample_factors(n, self._generator) for _ in range(2))
        second[:, factor] = first[:, factor]
        drawn = np.stack([self._index_of(first), self._index_of(second)])
        return drawn.reshape(2, count, batch_size)

    def sample_batches(self, factor: int, count: int, batch_size: int) -> Indices:
        """Draw batches of points, (count, batch_size), each with one value of a factor."""
        drawn = self.world.sample_factors(count * batch_size, self._generator)
        column = drawn[:, factor].view(count, batch_size)
        drawn[:, factor] = column[:, :1].expand(count, batch_size).reshape(-1)
        return self._index_of(drawn).reshape(count, batch_size)

    def factors_at(self, index: Indices) -> Indices:
        """Return the factors (N, F) of points."""
        import torch

        return self.world.factors_at(torch.from_numpy(index)).numpy()

    def encode(self, *indices: Indices) -> None:
        """Encode the points that have not been encoded yet."""
        missing = np.setdiff1d(self._distinct(indices), self._index, assume_unique=True)
        if not len(missing):
            return
        codes = self._encode_whole_grid(missing)
        if codes is None:
            codes = self._encode_observations(missing)
        if self._codes is not None:
            codes = np.concatenate([self._codes, codes])
        index = np.concatenate([self._index, missing])
        order = np.argsort(index)
        self._index, self._codes = index[order], codes[order]

    def _encode_observations(self, points: Indices) -> Array:
        """Return the codes of points, batch by batch."""
        import torch

        from isolatent.parallel import map_threads

        lock = Lock()

        def encode(batch: Indices) -> Array:
            with lock:
                x = self.world.observe(self.world.factors_at(torch.from_numpy(batch)))
            return self._encode(x)

        batches = np.array_split(points, -(-len(points) // BATCH_SIZE))
        if self._module is None:
            return np.concatenate([encode(batch) for batch in batches])
        return np.concatenate(map_threads(encode, batches))

    def _encode_whole_grid(self, points: Indices) -> Array | None:
        """Return the codes of points by the world's ``encode_grid``, if it has one that applies."""
        encode_grid = getattr(self.world, "encode_grid", None)
        # It encodes every point, which does not pay for less than half of them.
        if encode_grid is None or self._module is None or 2 * len(points) < len(self.world):
            return None
        codes = encode_grid(self._module)
        if codes is None:
            return None
        codes = as_columns("codes of encode_grid", codes)
        if len(codes) != len(self.world):
            raise ValueError(
                f"encode_grid must return one code per point ({len(self.world)}), got {len(codes)}"
            )
        return codes[points]

    def _distinct(self, indices: Sequence[Indices]) -> Indices:
        """Return the distinct points among the indices in ascending order."""
        if len(self.world) > MASK_LIMIT:
            return np.unique(np.concatenate([np.unique(index) for index in indices]))
        used = np.zeros(len(self.world), dtype=bool)  # much faster than sorting millions
        for index in indices:
            used[index] = True
        return np.flatnonzero(used)

    def codes_at(self, index: Indices) -> Array:
        """Return the codes of points: the shape of ``index``, followed by the axis of codes."""
        if self.n_encoded == len(self.world):  # codes are stored in the order of the grid
            position = index
        else:
            if not self._has_encoded(index):
                self.encode(index)
            position = np.searchsorted(self._index, index)
        if self._codes is None:
            raise ValueError("index must hold at least one point, got none")
        return self._codes[position]

    def _has_encoded(self, index: Indices) -> bool:
        if not self.n_encoded:
            return False
        position = np.minimum(np.searchsorted(self._index, index), self.n_encoded - 1)
        return np.array_equal(self._index[position], index)

    def _index_of(self, factors: Tensor) -> Indices:
        return np.asarray(self.world.index_of(factors).numpy(), dtype=np.int64)


def _as_function(encoder: Any) -> tuple[nn.Module | None, Callable[[Tensor], Array]]:
    """Return the encoder's module if it has known layers, and a function from x to codes (N, C)."""
    from torch import nn

    from isolatent.inference import has_known_layers

    encode: Callable[[Tensor], Any]
    module = None
    if isinstance(encoder, type):  # a class has the methods and is callable, too
        raise TypeError(f"model must be an instance, fitted if it is an estimator, got {encoder!r}")
    if isinstance(encoder, nn.Module):
        module, encode = encoder, _in_own_precision(encoder)
    elif hasattr(encoder, "code_module"):
        module = encoder.code_module()
        encode = _in_own_precision(module)
    elif hasattr(encoder, "transform"):
        encode = encoder.transform
    elif callable(encoder):
        encode = encoder
    else:
        raise TypeError(
            f"model must have a method transform or be callable, got {type(encoder).__name__}"
        )

    def checked(x: Tensor) -> Array:
        codes = encode(x)
        if isinstance(codes, tuple) or not hasattr(codes, "__len__"):
            raise TypeError(f"model must return codes (N, C), got a {type(codes).__name__}")
        if len(codes) != len(x):
            raise ValueError(f"model must return one code per point ({len(x)}), got {len(codes)}")
        return as_columns("codes", codes, min_rows=1)

    # User-defined modules may not be thread-safe.
    return (module if module is not None and has_known_layers(module) else None), checked


def _in_own_precision(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the compiled module, called with observations of its dtype and on its device."""
    from isolatent.inference import compile_for_inference

    call, weight = compile_for_inference(module), next(module.parameters(), None)
    return call if weight is None else lambda x: call(x.to(weight))
