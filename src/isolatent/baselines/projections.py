"""What linear methods share: reading observations, codes and storage."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.baselines.storage import Stored
from isolatent.checks import IsolatentWarning, check_integer
from isolatent.pairs import ArrayPairs, PairSource, SeriesPairs, check_rows_finite
from isolatent.training.observations import TakesObservations, is_source
from isolatent.worlds import World

__all__ = ["LinearEstimator", "LinearSingles", "in_parts", "too_many_components"]

SAMPLES = 16_384  # pairs that are drawn from an endless source
MOST = 2**26  # numbers that are solved for: half a gigabyte, 16 384 images of 64 x 64 pixels
PART = 2**22  # numbers that are worked on at a time
Array = np.ndarray[Any, Any]


class LinearEstimator(
    Stored, TakesObservations, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Codes W (x - μ) of observations, flattened if they are images."""

    n_components: int
    random_state: int | np.random.RandomState | None
    mean_: Array
    components_: Array
    _results: tuple[str, ...] = ("mean_", "components_")
    _counted = 1  # members of a pair that count among the observations solved for

    def fit(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to pairs, given as for :class:`isolatent.ContrastiveICA`.

        Of a world or another endless source 16 384 pairs are drawn; arrays are used as a whole.
        Of images, and of very long arrays, fewer are: as many observations (of slow features:
        pairs) as hold 2^26 numbers, drawn at random. For 64 × 64 pixels these are 16 384.
        """
        check_integer("n_components", self.n_components, at_least=1)
        seed = self._draw_seed()
        x, x_pos = self._read(X, X_pos, groups, Generator().manual_seed(seed))
        if self.n_components > min(x.shape):
            raise ValueError(
                f"n_components must be at most {min(x.shape)}, the least of rows and columns, "
                f"got {self.n_components}"
            )
        if all((part == x[0]).all() for part in (x, x_pos) if part is not None):
            raise too_many_components(
                self.n_components, 0
            )  # else rounding errors of the mean would count
        self._solve(x, x_pos, seed)
        # In the order in which they are stored, so that a loaded model has the same codes.
        self.components_ = np.ascontiguousarray(self.components_)
        return self

    def transform(self, X: ArrayLike | Tensor) -> Array:
        """Codes (N, n_components) of observations, in their precision."""
        check_is_fitted(self, "components_")
        array = self._as_array(X, reset=False)
        done, found = 0, []
        for part in in_parts(_flat(array)):
            check_rows_finite("X", part, np.arange(done, done + len(part)))
            found.append((part - self.mean_) @ self.components_.T)
            done += len(part)
        codes = np.concatenate(found)
        return codes.astype(array.dtype) if array.dtype.kind == "f" else codes

    def code_module(self) -> nn.Module:
        """The module that computes :meth:`transform`: observations as tensors to codes."""
        tensors = self._fitted()
        return _Projection(tensors["mean_"], tensors["components_"])

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "components_")
        return {name: torch.from_numpy(np.array(getattr(self, name))) for name in self._results}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        for name in self._results:
            setattr(self, name, tensors[name].numpy())

    @abstractmethod
    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        """Set ``mean_`` and ``components_`` from observations (N, m)."""

    def _read(
        self, X: Any, X_pos: Any, groups: Any, generator: Generator
    ) -> tuple[Array, Array | None]:
        return self._pairs(X, X_pos, groups, generator)

    def _pairs(self, X: Any, X_pos: Any, groups: Any, generator: Generator) -> tuple[Array, Array]:
        """Observations (N, m) and their positives, no more than may be solved for."""
        source = self._as_source(X, X_pos, groups, reset=True)
        if isinstance(source, ArrayPairs | SeriesPairs):
            shape = tuple(source.x.shape[1:])
            chosen = _some(len(source), _most(shape, self._counted), generator)
            if isinstance(source, SeriesPairs) and source.longest > source.shortest:
                count = len(source) if chosen is None else len(chosen)
                pair = source.sample(count, generator)  # all() has the shortest lag alone
            else:
                pair = source.all(chosen)
        else:
            shape = tuple(source.sample(1, Generator().manual_seed(0))[0].shape[1:])
            pair = source.sample(min(SAMPLES, _most(shape, self._counted)), generator)
            for part in pair:  # arrays were checked by their source
                check_rows_finite("what is drawn from X", part.numpy())
        self._set_shape(shape)
        return _flat(pair[0].numpy()), _flat(pair[1].numpy())


class LinearSingles(LinearEstimator):
    """A method that takes both members of pairs as observations, and arrays without an order."""

    _counted = 2

    def __init__(
        self,
        n_components: int = 10,
        *,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _read(
        self, X: Any, X_pos: Any, groups: Any, generator: Generator
    ) -> tuple[Array, Array | None]:
        if not is_source(X) and X_pos is None:
            if groups is not None:
                raise ValueError(f"groups must be None: {type(self).__name__} takes no recordings")
            array = self._as_array(X, True)
            rows = _some(len(array), _most(array.shape[1:], 1), generator)
            chosen = array if rows is None else array[rows]
            check_rows_finite("X", chosen, rows)
            return _flat(chosen).astype(np.float64, copy=False), None
        pair = self._pairs(X, X_pos, groups, generator)
        return np.concatenate(pair, dtype=np.float64), None


class _Projection(nn.Module):
    """W (x - μ) in the precision of W."""

    mean: Tensor
    components: Tensor

    def __init__(self, mean: Tensor, components: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("components", components)

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - self.mean) @ self.components.T


def too_many_components(asked: int, most: int) -> ValueError:
    """The error to raise if X varies in fewer directions than are asked for."""
    return ValueError(
        f"n_components must be at most {most}, the directions in which X varies, got {asked}"
    )


def _flat(array: Array) -> Array:
    return array.reshape(len(array), -1)


def in_parts(x: Array) -> Iterator[Array]:
    """Rows (N, m) one after another, some at a time, in float64."""
    rows = max(1, PART // max(1, x.shape[1]))
    for start in range(0, max(1, len(x)), rows):
        yield np.asarray(x[start : start + rows], np.float64)


def _most(shape: Sequence[int], counted: int) -> int:
    """How many observations of that shape, or pairs of them, may be solved for."""
    return max(2, MOST // (counted * math.prod(shape)))


def _some(count: int, most: int, generator: Generator) -> Array | None:
    """Which rows to take, in order, if there are too many of them."""
    if count <= most:
        return None
    warnings.warn(
        f"{most} of {count} rows are used, drawn at random: all would take too much memory",
        IsolatentWarning,
        stacklevel=2,
    )
    return np.sort(torch.randperm(count, generator=generator)[:most].numpy())
