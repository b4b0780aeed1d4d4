"""The BetaVAE and FactorVAE scores: which factor did all points of a batch share?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.checks import check_integer, check_real
from isolatent.evaluation.assignment import Indices
from isolatent.evaluation.columns import Array, binary_exponents
from isolatent.evaluation.disentanglement.batches import (
    Groups,
    Pairs,
    Points,
    StoredPoints,
    draw_groups,
    draw_pairs,
)
from isolatent.evaluation.disentanglement.samples import sample
from isolatent.evaluation.intervals import Resampled
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["beta_vae_of", "beta_vae_score", "factor_vae_of", "factor_vae_score"]

CHUNK = 1000  # examples whose codes are gathered at a time


def beta_vae_score(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    batch: int = 64,
    train: int = 10_000,
    held_out: int = 5_000,
    seed: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""BetaVAE score: can a linear classifier tell which factor was shared?

    .. math::
        u = \frac1B \sum_{b=1}^{B} |c_b - c'_b|, \qquad
        \mathrm{score} = P\bigl(\hat k(u) = k\bigr)

    where a factor k is chosen at random, the points of each of B pairs share its value and are else
    independent, and k̂ is a logistic regression (scikit-learn's, to convergence). The accuracy is
    of new examples. Chance is 1/F, which dead codes score; with one factor the score is 1.

    Pairs are found among the given points, two different ones each; a value that occurs once is
    never drawn. For a world that can be asked for any point use :func:`evaluate_disentanglement`.

    Invariant to the order, the sign and the offset of the codes. The classifier is penalised in
    their units, so that it changes with the scale, and not invariant to monotone maps or rotations.
    It is lenient: codes that mix factors can score 1.

    References:
        Higgins et al. (2017), beta-VAE, ICLR.

    Args:
        factors: True factors, (N, F) or (N,); points share a factor if its value is the same.
        codes: Codes, (N, C) or (N,).
        batch: Pairs B in an example.
        train: Examples to fit.
        held_out: Examples to score.
        seed: Chooses factors and points.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Example:
        >>> factors = np.random.default_rng(0).integers(4, size=(1000, 2))
        >>> beta_vae_score(factors, factors[:, ::-1], train=100, held_out=50)
        1.0
    """
    _check_counts(batch, train, held_out, seed)
    check_guarantee("beta_vae", guarantee)
    points = StoredPoints(sample(factors, codes), seed)
    learnt, scored = (draw_pairs(points, count, batch) for count in (train, held_out))
    return beta_vae_of(points, learnt, scored).value


def factor_vae_score(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    batch: int = 64,
    train: int = 10_000,
    held_out: int = 5_000,
    threshold: float = 0.05,
    seed: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""FactorVAE score: does the code that varies least tell which factor was held fixed?

    .. math::
        d = \arg\min_c \frac{\mathrm{Var}_B(c)}{\mathrm{Var}(c)}, \qquad
        \mathrm{score} = P\bigl(\hat k(d) = k\bigr)

    where a factor k is chosen at random, all B points of a batch have one value of it, and k̂(d) is
    the factor that code d voted for most often. The accuracy is of new votes. Codes whose standard
    deviation is below ``threshold`` do not vote: a dead code has the ratio 0/0. If no code votes,
    the score is 0; with one factor and any live code it is 1.

    Batches are found among the given points; a value that occurs once is never drawn. The
    variance (of N - 1 degrees of freedom) is that of all points.

    Invariant to the order, the sign, the offset and, as long as no code crosses the threshold, the
    scale of the codes; not to monotone maps, nor to rotations.

    References:
        Kim & Mnih (2018), Disentangling by Factorising, ICML. The threshold is that of Locatello et
        al. (2019).

    Args:
        factors: True factors, (N, F) or (N,); points share a factor if its value is the same.
        codes: Codes, (N, C) or (N,).
        batch: Points B in a batch, at least 2.
        train: Votes to learn from.
        held_out: Votes to score.
        threshold: Least standard deviation of a code that votes.
        seed: Chooses factors and points.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Example:
        >>> factors = np.random.default_rng(0).integers(4, size=(1000, 2))
        >>> factor_vae_score(factors, factors[:, ::-1], train=100, held_out=50)
        1.0
    """
    _check_counts(batch, train, held_out, seed)
    check_integer("batch", batch, at_least=2)
    check_real("threshold", threshold, at_least=0)
    check_guarantee("factor_vae", guarantee)
    read = sample(factors, codes)
    points = StoredPoints(read, seed)
    learnt, scored = (draw_groups(points, count, batch) for count in (train, held_out))
    return factor_vae_of(points, read.codes, learnt, scored, threshold).value


def _check_counts(batch: int, train: int, held_out: int, seed: int) -> None:
    for name, count in (("batch", batch), ("train", train), ("held_out", held_out)):
        check_integer(name, count, at_least=1)
    check_integer("seed", seed, at_least=0)


def beta_vae_of(points: Points, train: Pairs, held_out: Pairs) -> Resampled:
    """Return the accuracy, resampled over the examples to score."""
    from sklearn.linear_model import LogisticRegression

    features = differences(points, train)
    if len(np.unique(train.factor)) == 1:
        predicted = np.full(len(held_out.factor), train.factor[0])
    else:
        model = LogisticRegression(max_iter=1000).fit(features, train.factor)
        predicted = model.predict(differences(points, held_out))
    return accuracy(predicted == held_out.factor)


def differences(points: Points, pairs: Pairs) -> Array:
    """Return the mean absolute difference of each code within each batch of pairs, (P, C)."""
    return np.concatenate(
        [
            np.abs(points.codes_at(a) - points.codes_at(b)).mean(axis=1)
            for a, b in zip(_chunks(pairs.first), _chunks(pairs.second), strict=True)
        ]
    )


def factor_vae_of(
    points: Points, codes: Array, train: Groups, held_out: Groups, threshold: float
) -> Resampled:
    """Return the accuracy, resampled over the votes to score; ``codes`` give the variance."""
    # Squares of 1e200 would not fit in a float64; powers of two round nothing.
    scale = np.ldexp(1.0, -np.clip(binary_exponents(codes), -1000, 1000))
    variance = (codes * scale).var(axis=0, ddof=1)
    live = np.flatnonzero(np.sqrt(variance) >= max(threshold, 1e-12) * scale)
    if not len(live):
        return accuracy(np.zeros(len(held_out.factor), dtype=bool))
    votes = np.zeros((len(live), points.factor_count), dtype=np.int64)
    learnt, scored = (vote(points, g, scale, variance, live) for g in (train, held_out))
    np.add.at(votes, (learnt, train.factor), 1)
    predicted = votes.argmax(axis=1)[scored]
    return accuracy(predicted == held_out.factor)


def vote(points: Points, groups: Groups, scale: Array, variance: Array, live: Indices) -> Indices:
    """Return for each batch the place among ``live`` of the code that varies least in it.

    Codes are multiplied by ``scale``, and ``variance`` is of such.
    """
    local = np.concatenate(
        [
            (points.codes_at(members) * scale).var(axis=1, ddof=1)
            for members in _chunks(groups.members)
        ]
    )
    return np.asarray((local[:, live] / variance[live]).argmin(axis=1))


def accuracy(hits: npt.NDArray[np.bool_]) -> Resampled:
    """Return the share of hits, which a resample weighs."""
    right = hits.astype(np.float64)
    return Resampled(float(right.mean()), len(right), lambda n: float(n @ right / n.sum()))


def _chunks(index: Indices) -> list[Indices]:
    """The rows in parts whose codes fit comfortably in memory."""
    return [index[start : start + CHUNK] for start in range(0, len(index), CHUNK)]
