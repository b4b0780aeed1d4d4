"""The BetaVAE and FactorVAE scores: predict which factor the points of a batch share."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_integer, check_real
from isolatent.evaluation.columns import Array, Indices, binary_exponents
from isolatent.evaluation.disentanglement.grid import EncodedGrid
from isolatent.evaluation.disentanglement.samples import Sample, as_sample
from isolatent.evaluation.intervals import Statistic, mean_statistic
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = [
    "beta_vae_score",
    "beta_vae_statistic",
    "factor_vae_score",
    "factor_vae_statistic",
    "sample_examples",
]

BATCHES_AT_A_TIME = 1000  # batches whose codes are gathered at a time

Points: TypeAlias = "StoredPoints | EncodedGrid"


def beta_vae_score(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    batch_size: int = 64,
    n_train: int = 10_000,
    n_test: int = 5_000,
    random_state: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""Return the BetaVAE score: the accuracy of a linear classifier of the shared factor.

    .. math::
        u = \frac1B \sum_{b=1}^{B} |c_b - c'_b|, \qquad
        \mathrm{score} = P\bigl(\hat k(u) = k\bigr)

    where a factor k is chosen at random, the two points of each of B pairs have the same value of
    it and are independent otherwise, c and c' are their codes, and k̂ is a logistic regression
    (scikit-learn's, to convergence). The accuracy is that of new examples. Chance is 1/F, which
    dead codes score; with one factor the score is 1.

    Pairs of different points are drawn from the given points; a value that occurs once is never
    drawn. To draw points from a world use :func:`evaluate_disentanglement`.

    Invariant to the order, the sign and the offset of the codes. The classifier is penalised in
    units of the codes, so the score changes with their scale; it is not invariant to monotone maps
    or rotations. The score is lenient: codes that mix factors can score 1.

    References:
        Higgins et al. (2017), beta-VAE, ICLR.

    Args:
        factors: True factors, (N, F) or (N,); points share a factor if its values are equal.
        codes: Codes, (N, C) or (N,).
        batch_size: Number of pairs B in an example.
        n_train: Number of examples to fit.
        n_test: Number of examples to score.
        random_state: Seed of the drawn factors and points, an integer >= 0.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Example:
        >>> factors = np.random.default_rng(0).integers(4, size=(1000, 2))
        >>> beta_vae_score(factors, factors[:, ::-1], n_train=100, n_test=50)
        1.0
    """
    _check_counts(batch_size, n_train, n_test, random_state)
    check_guarantee("beta_vae", guarantee)
    points = StoredPoints(as_sample(factors, codes), random_state)
    train, test = (sample_examples(points, n, batch_size, pairs=True) for n in (n_train, n_test))
    return beta_vae_statistic(points, train, test).value


def factor_vae_score(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    batch_size: int = 64,
    n_train: int = 10_000,
    n_test: int = 5_000,
    threshold: float = 0.05,
    random_state: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""Return the FactorVAE score: the accuracy of a majority vote of the least varying code.

    .. math::
        d = \arg\min_c \frac{\mathrm{Var}_B(c)}{\mathrm{Var}(c)}, \qquad
        \mathrm{score} = P\bigl(\hat k(d) = k\bigr)

    where a factor k is chosen at random, all B points of a batch have the same value of it, and
    k̂(d) is the factor that code d voted for most often. The accuracy is that of new batches. Codes
    whose standard deviation is below ``threshold`` do not vote: a dead code has the ratio 0/0. If
    no code votes, the score is 0; with one factor and any live code it is 1.

    Batches are drawn from the given points; a value that occurs once is never drawn. The variance
    (with N - 1 degrees of freedom) is that of all points.

    Invariant to the order, the sign, the offset and, as long as no code crosses the threshold, the
    scale of the codes; not to monotone maps, nor to rotations.

    References:
        Kim & Mnih (2018), Disentangling by Factorising, ICML. The threshold is that of Locatello et
        al. (2019).

    Args:
        factors: True factors, (N, F) or (N,); points share a factor if its values are equal.
        codes: Codes, (N, C) or (N,).
        batch_size: Number of points B in a batch, at least 2.
        n_train: Number of votes to learn from.
        n_test: Number of votes to score.
        threshold: Minimum standard deviation of a code that votes.
        random_state: Seed of the drawn factors and points, an integer >= 0.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Example:
        >>> factors = np.random.default_rng(0).integers(4, size=(1000, 2))
        >>> factor_vae_score(factors, factors[:, ::-1], n_train=100, n_test=50)
        1.0
    """
    _check_counts(batch_size, n_train, n_test, random_state)
    check_integer("batch_size", batch_size, at_least=2)
    check_real("threshold", threshold, at_least=0)
    check_guarantee("factor_vae", guarantee)
    sample = as_sample(factors, codes)
    points = StoredPoints(sample, random_state)
    train, test = (sample_examples(points, n, batch_size, pairs=False) for n in (n_train, n_test))
    return factor_vae_statistic(points, sample.codes, train, test, threshold=threshold).value


def _check_counts(batch_size: int, n_train: int, n_test: int, random_state: int) -> None:
    for name, count in (("batch_size", batch_size), ("n_train", n_train), ("n_test", n_test)):
        check_integer(name, count, at_least=1)
    check_integer("random_state", random_state, at_least=0)


class Examples(NamedTuple):
    """For each of P examples a factor (P,), and points (P, B) with one value of it.

    For the BetaVAE score the points are (2, P, B): the first and the second points of pairs.
    """

    factor: Indices
    points: Indices


def sample_examples(points: Points, count: int, batch_size: int, *, pairs: bool) -> Examples:
    """Draw ``count`` examples: pairs for the BetaVAE score, or points for the FactorVAE score."""
    factor = points.sample_factor_indices(count)
    draw = points.sample_pairs if pairs else points.sample_batches
    members = np.empty((2 if pairs else 1, count, batch_size), dtype=np.intp)
    for f in range(points.n_factors):
        rows = np.flatnonzero(factor == f)
        members[:, rows] = draw(f, len(rows), batch_size)
    return Examples(factor, members if pairs else members[0])


class StoredPoints:
    """The points of a sample; points that share a value are drawn from them.

    A pair consists of two different points, since a point paired with itself shares every factor.
    So a value that occurs once is never drawn, and each factor needs a value that occurs twice.
    """

    def __init__(self, sample: Sample, random_state: int) -> None:
        self._codes = sample.codes
        self._rng = np.random.default_rng(random_state)
        self._by_value = [_RowsByValue(column) for column in sample.classes.T]
        for f, rows in enumerate(self._by_value):
            if not len(rows.repeated):
                raise ValueError(
                    "factors must have a value that occurs at least twice in every column, got "
                    f"none in column {f}: no two points share it"
                )

    @property
    def n_factors(self) -> int:
        return len(self._by_value)

    def sample_factor_indices(self, count: int) -> Indices:
        return self._rng.integers(self.n_factors, size=count)

    def sample_pairs(self, factor: int, count: int, batch_size: int) -> Indices:
        rows = self._by_value[factor]
        place = self._rng.choice(rows.repeated, size=(count, batch_size))
        start, size = rows.start[place], rows.size[place]
        other = start + self._rng.integers(size - 1)
        other += other >= place  # skip the point itself
        return rows.order[np.stack([place, other])]

    def sample_batches(self, factor: int, count: int, batch_size: int) -> Indices:
        rows = self._by_value[factor]
        place = self._rng.choice(rows.repeated, size=(count, 1))
        start, size = rows.start[place], rows.size[place]
        return rows.order[start + self._rng.integers(size, size=(count, batch_size))]

    def codes_at(self, index: Indices) -> Array:
        return self._codes[index]


class _RowsByValue:
    """Rows sorted by the value of a factor.

    Attributes:
        order: The rows in ascending order of their value.
        start: For each position in ``order``, the first position with the same value.
        size: For each position, the number of rows with the same value.
        repeated: Positions whose value occurs more than once.
    """

    def __init__(self, classes: Indices) -> None:
        self.order = np.argsort(classes, kind="stable")
        sizes = np.bincount(classes)
        starts = np.cumsum(sizes) - sizes
        ordered = classes[self.order]
        self.start, self.size = starts[ordered], sizes[ordered]
        self.repeated = np.flatnonzero(self.size > 1)


def beta_vae_statistic(points: Points, train: Examples, test: Examples) -> Statistic:
    """Return the accuracy as a function of the weights of the test examples."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(train.factor)) == 1:
        predicted = np.full(len(test.factor), train.factor[0])
    else:
        model = LogisticRegression(max_iter=1000)
        model.fit(mean_differences(points, train.points), train.factor)
        predicted = model.predict(mean_differences(points, test.points))
    return mean_statistic(predicted == test.factor)


def mean_differences(points: Points, pairs: Indices) -> Array:
    """Return the mean absolute difference (P, C) of the codes of pairs (2, P, B) in each batch."""
    parts = np.array_split(pairs, -(-pairs.shape[1] // BATCHES_AT_A_TIME), axis=1)
    return np.concatenate(
        [np.abs(points.codes_at(a) - points.codes_at(b)).mean(axis=1) for a, b in parts]
    )


def factor_vae_statistic(
    points: Points, codes: Array, train: Examples, test: Examples, *, threshold: float
) -> Statistic:
    """Return the accuracy as a function of the weights of the test examples.

    The variances that normalise those of the batches are the variances of ``codes``.
    """
    # Squares of 1e200 overflow float64; scaling by powers of two rounds nothing.
    scale = np.ldexp(1.0, -np.clip(binary_exponents(codes), -1000, 1000))
    variance = (codes * scale).var(axis=0, ddof=1)
    live = np.flatnonzero(np.sqrt(variance) >= max(threshold, 1e-12) * scale)
    if not len(live):
        return mean_statistic(np.zeros(len(test.factor)))
    votes = np.zeros((len(live), points.n_factors), dtype=np.int64)
    train_codes, test_codes = (
        least_varying_codes(points, part.points, scale, variance, live) for part in (train, test)
    )
    np.add.at(votes, (train_codes, train.factor), 1)
    return mean_statistic(votes.argmax(axis=1)[test_codes] == test.factor)


def least_varying_codes(
    points: Points, batches: Indices, scale: Array, variance: Array, live: Indices
) -> Indices:
    """Return for each batch the code with the smallest variance ratio, as a position in ``live``.

    Codes are multiplied by ``scale`` first; ``variance`` is the variance of scaled codes.
    """
    parts = np.array_split(batches, -(-len(batches) // BATCHES_AT_A_TIME))
    local = np.concatenate([(points.codes_at(part) * scale).var(axis=1, ddof=1) for part in parts])
    return np.asarray((local[:, live] / variance[live]).argmin(axis=1))
