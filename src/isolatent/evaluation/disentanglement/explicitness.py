"""Explicitness: can the factors be read from the codes by a linear classifier?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.assignment import Indices
from isolatent.evaluation.columns import Array, binary_exponents, dense_ranks, mid_ranks
from isolatent.evaluation.disentanglement.samples import Classes, Split, split
from isolatent.evaluation.intervals import Resampled
from isolatent.parallel import max_threads
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["explicitness", "explicitness_of"]


def explicitness(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    seed: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""Explicitness: how well a linear classifier ranks the points of each class first.

    .. math::
        \mathrm{explicitness} = \frac1F \sum_f \frac1{K_f} \sum_k \mathrm{AUC}_{fk}, \qquad
        \mathrm{AUC}_{fk} = P(s_k > s'_k) + \tfrac12 P(s_k = s'_k)

    where s_k is the probability of class k that a logistic regression (scikit-learn's, to
    convergence) on standardised codes gives to a held-out point of that class, and s' to one of any
    other. 1 is perfect and ½ is chance, which is what dead codes score. A class that is missing
    from the fitted or from the held-out points has no AUC and is left out.

    Nearly invariant to all invertible affine maps of the codes, rotations included: but for the
    small penalty a linear classifier undoes them. So it says nothing about disentanglement in the
    sense of one code per factor.

    References:
        Ridgeway & Mozer (2018), Learning Deep Disentangled Embeddings with the F-Statistic Loss.

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The protocol fits 10 000 points and scores 5 000.
        test: Factors and codes of the points to score; by default a random third of the others.
        seed: Chooses the third.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> factors = rng.integers(2, size=(900, 2))
        >>> explicitness(factors, factors @ [[1.0, 2.0], [-2.0, 1.0]])
        1.0
    """
    check_guarantee("explicitness", guarantee)
    return explicitness_of(split(factors, codes, test, seed)).value


def explicitness_of(points: Split) -> Resampled:
    """Return the explicitness, resampled over the held-out points with the classifiers as fitted.

    AUC is resampled to first order: by the mean placement of the points of a class among the
    others, and of the others among them (DeLong et al. 1988).
    """
    from joblib import Parallel, delayed

    exponent = binary_exponents(points.train.codes)  # squares of 1e200 would not fit in a float64
    fitted, scored = (np.ldexp(s.codes, -exponent) for s in (points.train, points.test))
    mean, spread = fitted.mean(axis=0), fitted.std(axis=0)
    spread = np.where(spread > 1e-12, spread, np.inf)  # a dead code's is that of rounding
    fitted, scored = ((codes - mean) / spread for codes in (fitted, scored))
    columns = zip(points.train.classes.T, points.test.classes.T, strict=True)
    placed = [
        placement
        for placement in Parallel(n_jobs=max_threads(), prefer="threads")(
            delayed(_placements)(fitted, own, scored, truth) for own, truth in columns
        )
        if placement is not None
    ]
    if not placed:
        raise ValueError("factors must have a class both fitted and held out, got none")

    def of_counts(counts: Array) -> float:
        return float(np.nanmean([np.nanmean(_auc_of(p, counts)) for p in placed]))

    return Resampled(of_counts(np.ones(len(scored))), len(scored), of_counts)


def _placements(
    fitted: Array, own: Classes, scored: Array, truth: Classes
) -> tuple[Array, Array, Array] | None:
    """Return membership and placements (N, K) of the held-out points, and the K AUCs."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(own)
    if len(present) == 1:
        return None
    model = LogisticRegression(max_iter=1000).fit(fitted, own)
    score = model.decision_function(scored)
    # Of two classes the probabilities mirror each other; of more they are not the raw scores.
    score = score[:, None] * [-1.0, 1.0] if score.ndim == 1 else model.predict_proba(scored)
    member = (truth[:, None] == present).astype(np.float64)
    size = member.sum(axis=0)
    ranked = (size > 0) & (size < len(truth))
    if not ranked.any():
        return None
    member, score, size = member[:, ranked], score[:, ranked], size[ranked]
    dense, everyone = dense_ranks(score), np.ones(len(truth))
    rank = mid_ranks(dense, everyone)
    below_own = np.stack(  # how many points of the class are below (a tie is half a point)
        [_ranks_among(dense[:, [k]], member[:, k]) for k in range(len(size))], axis=1
    )
    others_below = (rank - 0.5 - below_own) / (len(truth) - size)
    placement = np.where(member > 0, others_below, 1.0 - below_own / size)
    auc = (member * placement).sum(axis=0) / size
    return member, placement, auc


def _ranks_among(dense: Indices, member: Array) -> Array:
    """Return how much of ``member`` is below each point: Σ of the smaller, half of the equal."""
    weight = np.bincount(dense[:, 0], weights=member)
    return np.asarray((np.cumsum(weight) - weight / 2)[dense[:, 0]])


def _auc_of(placed: tuple[Array, Array, Array], counts: Array) -> Array:
    """Return the AUCs when point i occurs ``counts[i]`` times, nan if undefined."""
    member, placement, auc = placed
    inside, outside = counts @ member, counts @ (1.0 - member)
    own = counts @ (member * placement) / np.where(inside > 0, inside, np.nan)
    rest = counts @ ((1.0 - member) * placement) / np.where(outside > 0, outside, np.nan)
    return np.asarray(own + rest - auc)
