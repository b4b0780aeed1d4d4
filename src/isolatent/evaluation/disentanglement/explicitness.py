"""Explicitness: whether a linear classifier can read the factors from the codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.columns import Array, Indices, binary_exponents, dense_ranks, mid_ranks
from isolatent.evaluation.disentanglement.samples import Classes, Split, as_split
from isolatent.evaluation.intervals import Statistic
from isolatent.parallel import max_threads
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["explicitness", "explicitness_statistic"]


def explicitness(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    random_state: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""Return explicitness: the mean ROC AUC of linear classifiers of the factors.

    .. math::
        \mathrm{explicitness} = \frac1F \sum_f \frac1{K_f} \sum_k \mathrm{AUC}_{fk}, \qquad
        \mathrm{AUC}_{fk} = P(s_k > s'_k) + \tfrac12 P(s_k = s'_k)

    where s_k is the probability of class k that a logistic regression (scikit-learn's, to
    convergence) on standardised codes predicts for a test point of that class, and s' for a test
    point of any other class. 1 is perfect and ½ is chance, which dead codes score. A class that is
    missing from the training or from the test points has no AUC and is left out.

    Nearly invariant to all invertible affine maps of the codes, rotations included: up to its small
    penalty, a linear classifier undoes them. So explicitness does not measure disentanglement in
    the sense of one code per factor.

    References:
        Ridgeway & Mozer (2018), Learning Deep Disentangled Embeddings with the F-Statistic Loss.

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The published protocol fits 10 000 points and scores 5 000.
        test: Factors and codes of the points to score; by default a random third of the points.
        random_state: Seed of that third, an integer >= 0.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> factors = rng.integers(2, size=(900, 2))
        >>> explicitness(factors, factors @ [[1.0, 2.0], [-2.0, 1.0]])
        1.0
    """
    check_guarantee("explicitness", guarantee)
    return explicitness_statistic(as_split(factors, codes, test, random_state)).value


def explicitness_statistic(points: Split) -> Statistic:
    """Return explicitness as a function of the weights of the test points.

    AUC is reweighted to first order: by the mean placement of the points of a class among the
    others, and of the others among the class (DeLong et al. 1988).
    """
    from joblib import Parallel, delayed

    exponent = binary_exponents(points.train.codes)  # squares of 1e200 overflow float64
    train, test = (np.ldexp(part.codes, -exponent) for part in (points.train, points.test))
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 1e-12, deviation, np.inf)  # a dead code's is rounding
    train, test = ((codes - mean) / deviation for codes in (train, test))
    columns = zip(points.train.classes.T, points.test.classes.T, strict=True)
    placements = [
        placed
        for placed in Parallel(n_jobs=max_threads(), prefer="threads")(
            delayed(_placements)(train, own, test, truth) for own, truth in columns
        )
        if placed is not None
    ]
    if not placements:
        raise ValueError("factors must have a class among both training and test points, got none")

    def weighted(counts: Array) -> float:
        return float(np.nanmean([np.nanmean(_weighted_auc(p, counts)) for p in placements]))

    return Statistic(weighted(np.ones(len(test))), len(test), weighted)


def _placements(
    train: Array, own: Classes, test: Array, truth: Classes
) -> tuple[Array, Array, Array] | None:
    """Return membership and placements (N, K) of the test points, and the K AUCs."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(own)
    if len(present) == 1:
        return None
    model = LogisticRegression(max_iter=1000).fit(train, own)
    score = model.decision_function(test)
    # For two classes the score ranks as the probability does; for more classes it does not.
    score = score[:, None] * [-1.0, 1.0] if score.ndim == 1 else model.predict_proba(test)
    member = (truth[:, None] == present).astype(np.float64)
    size = member.sum(axis=0)
    ranked = (size > 0) & (size < len(truth))
    if not ranked.any():
        return None
    member, score, size = member[:, ranked], score[:, ranked], size[ranked]
    dense, ones = dense_ranks(score), np.ones(len(truth))
    rank = mid_ranks(dense, ones)
    members_below = np.stack(
        [_members_below(dense[:, k], member[:, k]) for k in range(len(size))], axis=1
    )
    others_below = (rank - 0.5 - members_below) / (len(truth) - size)
    placement = np.where(member > 0, others_below, 1.0 - members_below / size)
    auc = (member * placement).sum(axis=0) / size
    return member, placement, auc


def _members_below(dense: Indices, member: Array) -> Array:
    """Return the number of members with a lower score than each point, ties counting one half."""
    weight = np.bincount(dense, weights=member)
    return np.asarray((np.cumsum(weight) - weight / 2)[dense])


def _weighted_auc(placed: tuple[Array, Array, Array], counts: Array) -> Array:
    """Return the AUCs for point weights ``counts``, nan if undefined."""
    member, placement, auc = placed
    inside, outside = counts @ member, counts @ (1.0 - member)
    own = counts @ (member * placement) / np.where(inside > 0, inside, np.nan)
    rest = counts @ ((1.0 - member) * placement) / np.where(outside > 0, outside, np.nan)
    return np.asarray(own + rest - auc)
