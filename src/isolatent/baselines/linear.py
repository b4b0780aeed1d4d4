"""Linear methods: principal components, independent components, slow features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.decomposition import PCA, FastICA

from isolatent.baselines.projections import (
    LinearEstimator,
    LinearSingles,
    in_parts,
    too_many_components,
)

__all__ = ["LinearICA", "LinearPCA", "SlowFeatures"]

WIDE = 500  # columns above which scikit-learn's PCA no longer decomposes the whole matrix
FLOOR = 1e-10  # of the largest variance, below which a direction is too flat to be rescaled
ROUNDING = 1e-13  # of the largest variance, below which a direction has nothing but rounding errors
Array = np.ndarray[Any, Any]


class LinearPCA(LinearSingles):
    """scikit-learn's :class:`~sklearn.decomposition.PCA`: the directions of greatest variance.

    Args:
        n_components: Codes n.
        random_state: For drawing from worlds, and for the solver of many columns.

    Attributes:
        mean_: The mean of the observations (m,).
        components_: The directions (n, m).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4))
        >>> LinearPCA(2).fit(x).transform(x).shape
        (100, 2)
    """

    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        solved = PCA(self.n_components, random_state=seed).fit(x)
        _varying(solved.explained_variance_, ROUNDING, self.n_components)
        self.mean_, self.components_ = solved.mean_, solved.components_


class LinearICA(LinearSingles):
    """scikit-learn's :class:`~sklearn.decomposition.FastICA`: directions that are least normal.

    It finds independent factors, at most one of them normal, behind a linear mixing, up to order,
    sign and scale.

    Args:
        n_components: Codes n.
        random_state: For drawing from worlds, and for the solver's start.

    Attributes:
        mean_: The mean of the observations (m,).
        components_: The unmixing matrix (n, m).

    Example:
        >>> z = np.random.default_rng(0).uniform(size=(1000, 2))
        >>> x = z @ [[1.0, 0.5], [-0.5, 1.0]]
        >>> codes = LinearICA(2, random_state=0).fit(x).transform(x)
        >>> np.abs(np.corrcoef(z.T, codes.T)[:2, 2:]).max(1).round(1)
        array([1., 1.])
    """

    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        first = None
        if x.shape[1] > WIDE:
            # FastICA would whiten by decomposing the whole matrix, of which it keeps these.
            first = PCA(self.n_components, random_state=seed).fit(x)
            variances = first.explained_variance_
            x = first.transform(x)
        else:
            variances = eigh(_scatter(x.mean(0), x), eigvals_only=True)
        _varying(variances, ROUNDING, self.n_components)
        solved = FastICA(self.n_components, whiten="unit-variance", random_state=seed).fit(x)
        self.mean_, self.components_ = solved.mean_, solved.components_
        if first is not None:
            self.mean_, self.components_ = first.mean_, solved.components_ @ first.components_


class SlowFeatures(LinearEstimator):
    r"""Linear slow-feature analysis: the directions that change least within pairs.

    .. math:: w_k = \arg\min_w E (w \cdot (x' - x))^2 \quad\text{with}\quad
        \mathrm{Var}(w \cdot x) = 1,\; \mathrm{Cov}(w \cdot x, w_j \cdot x) = 0 \;(j < k)

    which are the eigenvectors of the covariance of the differences against that of the
    observations, both frames together, slowest first. Directions with next to no variance are left
    out. It finds factors behind a linear mixing if they are uncorrelated and differ in slowness.

    Args:
        n_components: Codes n.
        lag: For recordings: how many rows apart a moment and its positive may be at most, or the
            shortest and the longest. Each moment is paired once, at a lag drawn from those;
            ``(20, 20)`` pairs all moments that are 20 rows apart.
        random_state: For drawing from worlds, and for drawing lags.

    Attributes:
        mean_: The mean of the observations (m,).
        components_: The directions (n, m).
        slowness_: The mean square change of each code (n,), smallest first.

    Example:
        >>> fast, slow = np.random.default_rng(0).normal(size=(2, 1000))
        >>> slow = slow.cumsum() / 20
        >>> x = np.stack([fast + slow, fast - slow], axis=1)
        >>> codes = SlowFeatures(1).fit(x).transform(x)
        >>> bool(abs(np.corrcoef(codes[:, 0], slow)[0, 1]) > 0.99)
        True
    """

    slowness_: Array
    _results = ("mean_", "components_", "slowness_")

    def __init__(
        self,
        n_components: int = 10,
        *,
        lag: int | Sequence[int] = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.lag = lag
        self.random_state = random_state

    def _solve(self, x: Array, x_pos: Array | None, seed: int) -> None:
        assert x_pos is not None  # _as_source gives pairs
        self.mean_ = np.mean([part.mean(0, dtype=np.float64) for part in (x, x_pos)], axis=0)
        variances, axes = eigh(_scatter(self.mean_, x, x_pos) / (2 * len(x) - 1))
        varying = _varying(variances, FLOOR, self.n_components)
        whitening = axes[:, varying] / np.sqrt(variances[varying])
        change = np.zeros((varying.sum(), varying.sum()))
        for before, after in zip(in_parts(x), in_parts(x_pos), strict=True):
            moved = (after - before) @ whitening
            change += moved.T @ moved
        slowness, turns = eigh(change / len(x))
        self.slowness_ = slowness[: self.n_components]
        self.components_ = (whitening @ turns[:, : self.n_components]).T


def _varying(variances: Array, floor: float, asked: int) -> NDArray[np.bool_]:
    """Which directions have more than a share ``floor`` of the largest variance: enough of them."""
    varying = np.asarray(variances > floor * variances.max())
    if asked > varying.sum():
        raise too_many_components(asked, int(varying.sum()))
    return varying


def _scatter(mean: Array, *observations: Array) -> Array:
    """The sum of (x - μ)(x - μ)ᵀ over all rows (N, m): (m, m)."""
    total = np.zeros((len(mean), len(mean)))
    for x in observations:
        for part in in_parts(x):
            total += (part - mean).T @ (part - mean)
    return total
