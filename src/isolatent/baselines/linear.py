"""Linear baselines: principal components, independent components and slow features."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import PCA, FastICA
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.checks import IsolatentWarning, check_integer
from isolatent.pairs import ArrayPairs, Batch, PairSource, SeriesPairs, check_rows_finite
from isolatent.pairs.readers import chunks_of_rows
from isolatent.training.observations import ObservationsMixin, is_source
from isolatent.training.storage import Stored
from isolatent.worlds import World

__all__ = ["LinearEstimator", "LinearICA", "LinearPCA", "SlowFeatures"]

N_DRAWN_PAIRS = 16_384  # pairs drawn from an infinite source
MAX_VALUES = 2**26  # values in the matrix to decompose: 512 MB, or 16 384 images of 64 x 64 pixels
WIDE = 500  # columns above which scikit-learn's PCA no longer decomposes the whole matrix
# Relative to the largest variance: below RANK_TOLERANCE a direction holds rounding errors only,
# below WHITENING_TOLERANCE dividing by its standard deviation would amplify them.
RANK_TOLERANCE = 1e-13
WHITENING_TOLERANCE = 1e-10
Array = np.ndarray[Any, Any]


@dataclass(eq=False, repr=False, kw_only=True)
class LinearEstimator(
    Stored, ObservationsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Base class of the linear baselines: codes W (x - μ). Images are flattened.

    Attributes:
        mean_: Mean μ of the observations (m,).
        components_: Matrix W (n_components, m).
    """

    n_components: int = field(default=10, kw_only=False)
    random_state: int | np.random.RandomState | None = None
    mean_: Array = field(init=False)
    components_: Array = field(init=False)
    _fitted_names: ClassVar[tuple[str, ...]] = ("mean_", "components_")
    _rows_per_pair: ClassVar[int] = 1  # rows of the matrix to decompose that a pair takes up

    def fit(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to pairs.

        The arguments are those of :meth:`isolatent.ContrastiveICA.fit`. Arrays are used completely;
        from a world or another infinite source 16 384 pairs are drawn. At most 2^26 values are
        decomposed, that is 16 384 observations of 64 × 64 pixels (for :class:`SlowFeatures`: pairs
        of them); if there are more, a random subset is used.
        """
        check_integer("n_components", self.n_components, at_least=1)
        seed = self._draw_seed()
        x, x_pos = self._read(X, X_pos, groups, Generator().manual_seed(seed))
        if self.n_components > min(x.shape):
            raise ValueError(
                f"n_components must be at most {min(x.shape)}, the smaller of n_samples and "
                f"n_features, got {self.n_components}"
            )
        # Checked here, since the rounding error of the mean would count as variance below.
        if all((part == x[0]).all() for part in (x, x_pos) if part is not None):
            _check_rank(self.n_components, 0)
        self._solve(x, x_pos, seed)
        # The memory layout of a loaded model, so that its codes have the same bits.
        self.components_ = np.ascontiguousarray(self.components_)
        return self

    def transform(self, X: ArrayLike | Tensor) -> Array:
        """Return the codes (N, n_components) of observations, in the precision of X."""
        check_is_fitted(self, "components_")
        array = self._as_array(X, reset=False)
        dtype = array.dtype if array.dtype.kind == "f" else np.float64
        codes = np.empty((len(array), len(self.components_)), dtype)
        x = _flatten(array)
        for rows in chunks_of_rows(x):
            chunk = np.asarray(x[rows], np.float64)
            check_rows_finite("X", chunk, np.arange(rows.start, rows.stop))
            codes[rows] = (chunk - self.mean_) @ self.components_.T
        return codes

    def code_module(self) -> nn.Module:
        """Return the torch module that computes :meth:`transform`."""
        tensors = self._fitted()
        return _LinearProjection(tensors["mean_"], tensors["components_"])

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "components_")
        return {
            name: torch.from_numpy(np.array(getattr(self, name))) for name in self._fitted_names
        }

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        for name in self._fitted_names:
            setattr(self, name, tensors[name].numpy())

    @abstractmethod
    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        """Set ``mean_`` and ``components_`` from observations (N, m)."""

    def _read(
        self, X: Any, X_pos: Any, groups: Any, generator: Generator
    ) -> tuple[Array, Array | None]:
        """Return observations (N, m), and their positives if the method uses pairs.

        At most ``MAX_VALUES`` numbers are returned.
        """
        source = self._as_source(X, X_pos, groups, reset=True)
        if isinstance(source, ArrayPairs | SeriesPairs):
            shape = tuple(source.x.shape[1:])
            rows = _subset(len(source), _max_rows(shape, self._rows_per_pair), generator)
            if isinstance(source, SeriesPairs) and source.longest > source.shortest:
                count = len(source) if rows is None else len(rows)
                pair = source.sample(count, generator)  # all() returns the shortest lag only
            else:
                pair = source.all(rows)
        else:
            first = Batch.of(source.sample(1, Generator().manual_seed(0)))
            shape = tuple(first.x.shape[1:])
            count = min(N_DRAWN_PAIRS, _max_rows(shape, self._rows_per_pair))
            pair = source.sample(count, generator)
        batch = Batch.of(pair)
        if not isinstance(source, ArrayPairs | SeriesPairs):  # which have checked their arrays
            for part in (batch.x, batch.x_pos):
                check_rows_finite("pairs drawn from X", part.numpy())
        self._set_shape(tuple(batch.x.shape[1:]))
        return _flatten(batch.x.numpy()), _flatten(batch.x_pos.numpy())


class _UnpairedEstimator(LinearEstimator):
    """A method that ignores pairing: both members of a pair are observations."""

    _rows_per_pair = 2

    def _read(
        self, X: Any, X_pos: Any, groups: Any, generator: Generator
    ) -> tuple[Array, Array | None]:
        if is_source(X) or X_pos is not None:
            x, x_pos = super()._read(X, X_pos, groups, generator)
            assert x_pos is not None
            return np.concatenate([x, x_pos], dtype=np.float64), None
        if groups is not None:
            raise ValueError(f"groups must be None: {type(self).__name__} takes no recordings")
        array = self._as_array(X, True)
        rows = _subset(len(array), _max_rows(array.shape[1:], 1), generator)
        x = array if rows is None else array[rows]
        check_rows_finite("X", x, rows)
        return _flatten(x).astype(np.float64, copy=False), None


class LinearPCA(_UnpairedEstimator):
    """Principal components, by scikit-learn's :class:`~sklearn.decomposition.PCA`.

    Args:
        n_components: Number of codes n.
        random_state: Seed for drawing from worlds, and for the randomised solver that scikit-learn
            uses for many columns.

    Attributes:
        mean_: Mean of the observations (m,).
        components_: Directions of largest variance (n, m).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4))
        >>> LinearPCA(2).fit(x).transform(x).shape
        (100, 2)
    """

    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        pca = PCA(self.n_components, random_state=seed).fit(x)
        _check_rank(self.n_components, _above(RANK_TOLERANCE, pca.explained_variance_).sum())
        self.mean_, self.components_ = pca.mean_, pca.components_


class LinearICA(_UnpairedEstimator):
    """Independent components, by scikit-learn's :class:`~sklearn.decomposition.FastICA`.

    Recovers independent factors, at most one of them normal, behind a linear mixing, up to order,
    sign and scale.

    Args:
        n_components: Number of codes n.
        random_state: Seed for drawing from worlds, and for the initial unmixing matrix.

    Attributes:
        mean_: Mean of the observations (m,).
        components_: Unmixing matrix (n, m).

    Example:
        >>> z = np.random.default_rng(0).uniform(size=(1000, 2))
        >>> x = z @ [[1.0, 0.5], [-0.5, 1.0]]
        >>> codes = LinearICA(2, random_state=0).fit(x).transform(x)
        >>> np.abs(np.corrcoef(z.T, codes.T)[:2, 2:]).max(1).round(1)
        array([1., 1.])
    """

    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        pca = None
        if x.shape[1] > WIDE:
            # FastICA would whiten by a full decomposition, of which it keeps n_components.
            pca = PCA(self.n_components, random_state=seed).fit(x)
            variances = pca.explained_variance_
            x = pca.transform(x)
        else:
            variances = eigh(_scatter(x.mean(0), x), eigvals_only=True)
        _check_rank(self.n_components, _above(RANK_TOLERANCE, variances).sum())
        ica = FastICA(self.n_components, whiten="unit-variance", random_state=seed).fit(x)
        self.mean_, self.components_ = ica.mean_, ica.components_
        if pca is not None:
            self.mean_, self.components_ = pca.mean_, ica.components_ @ pca.components_


@dataclass(eq=False, repr=False, kw_only=True)
class SlowFeatures(LinearEstimator):
    r"""Linear slow feature analysis: the directions that change least within pairs.

    .. math:: w_k = \arg\min_w E (w \cdot (x' - x))^2 \quad\text{with}\quad
        \mathrm{Var}(w \cdot x) = 1,\; \mathrm{Cov}(w \cdot x, w_j \cdot x) = 0 \;(j < k)

    The solutions are the generalised eigenvectors of the covariance of the differences and the
    covariance of the observations (of both members of the pairs), slowest first. Directions of
    negligible variance are left out. Recovers factors behind a linear mixing if they are
    uncorrelated and differ in slowness.

    Args:
        n_components: Number of codes n.
        lag: For recordings: the largest number of rows from an observation to its positive, or the
            smallest and the largest. Each observation is paired once, at a random lag in that
            range; ``(20, 20)`` pairs all observations that are 20 rows apart.
        random_state: Seed for drawing from worlds, and for drawing lags.

    Attributes:
        mean_: Mean of the observations (m,).
        components_: Directions (n, m).
        slowness_: Mean squared change of each code within pairs (n,), smallest first.

    Example:
        >>> fast, slow = np.random.default_rng(0).normal(size=(2, 1000))
        >>> slow = slow.cumsum() / 20
        >>> x = np.stack([fast + slow, fast - slow], axis=1)
        >>> codes = SlowFeatures(1).fit(x).transform(x)
        >>> bool(abs(np.corrcoef(codes[:, 0], slow)[0, 1]) > 0.99)
        True
    """

    lag: int | Sequence[int] = 1
    slowness_: Array = field(init=False)
    _fitted_names = ("mean_", "components_", "slowness_")

    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        assert x_pos is not None  # _read returns both
        self.mean_ = np.mean([part.mean(0, dtype=np.float64) for part in (x, x_pos)], axis=0)
        variances, axes = eigh(_scatter(self.mean_, x, x_pos) / (2 * len(x) - 1))
        kept = _above(WHITENING_TOLERANCE, variances)
        _check_rank(self.n_components, kept.sum())
        whitening = axes[:, kept] / np.sqrt(variances[kept])
        change = np.zeros((kept.sum(), kept.sum()))
        for before, after in zip(_chunks(x), _chunks(x_pos), strict=True):
            difference = (after - before) @ whitening
            change += difference.T @ difference
        slowness, rotation = eigh(change / len(x))
        self.slowness_ = slowness[: self.n_components]
        self.components_ = (whitening @ rotation[:, : self.n_components]).T


class _LinearProjection(nn.Module):
    """W (x - μ) in the precision of W."""

    mean: Tensor
    components: Tensor

    def __init__(self, mean: Tensor, components: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("components", components)

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - self.mean) @ self.components.T


def _flatten(array: Array) -> Array:
    return array.reshape(len(array), -1)


def _chunks(x: Array) -> Iterator[Array]:
    """Yield the rows (N, m) in chunks, in float64."""
    return (np.asarray(x[rows], np.float64) for rows in chunks_of_rows(x))


def _max_rows(shape: Sequence[int], rows_per_pair: int) -> int:
    """Return the largest number of observations (or pairs) of that shape to decompose."""
    return max(2, MAX_VALUES // (rows_per_pair * math.prod(shape)))


def _subset(count: int, at_most: int, generator: Generator) -> Array | None:
    """Return a random subset of row numbers, sorted, or None if all rows can be used."""
    if count <= at_most:
        return None
    warnings.warn(
        f"using a random subset of {at_most} of {count} rows, to limit the use of memory",
        IsolatentWarning,
        stacklevel=2,
    )
    return np.sort(torch.randperm(count, generator=generator)[:at_most].numpy())


def _above(tolerance: float, variances: Array) -> NDArray[np.bool_]:
    """Return a mask of the variances that exceed ``tolerance`` times the largest."""
    return np.asarray(variances > tolerance * variances.max())


def _check_rank(n_components: int, rank: int) -> None:
    if n_components > rank:
        raise ValueError(
            f"n_components must be at most {rank}, the number of directions in which X varies, "
            f"got {n_components}"
        )


def _scatter(mean: Array, *observations: Array) -> Array:
    """Return the scatter matrix (m, m): the sum of (x - μ)(x - μ)ᵀ over all rows (N, m)."""
    total = np.zeros((len(mean), len(mean)))
    for x in observations:
        for chunk in _chunks(x):
            total += (chunk - mean).T @ (chunk - mean)
    return total
