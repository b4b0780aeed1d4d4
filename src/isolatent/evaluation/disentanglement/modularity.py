"""Modularity: whether each code is informative about one factor only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.mig import MutualInformation, mutual_information
from isolatent.evaluation.disentanglement.samples import as_sample
from isolatent.evaluation.intervals import Statistic
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["modularity", "modularity_statistic"]


def modularity(
    factors: ArrayLike, codes: ArrayLike, *, n_bins: int = 20, guarantee: Guarantee | None = None
) -> float:
    r"""Return modularity: how little squared information codes have about further factors.

    .. math::
        \mathrm{modularity} = \frac1C \sum_c
            \left( 1 - \frac{\sum_f I_{cf}^2 - \max_f I_{cf}^2}{(F - 1) \max_f I_{cf}^2} \right)

    where I is the mutual information of :func:`mig`. A code without information counts 0, so dead
    codes lower the mean. With one factor, a code with any information counts 1. Several codes may
    be informative about the same factor at no cost.

    Invariant to the order, the sign (up to values on the edge of a bin), the scale and the offset
    of the codes; not to monotone maps, nor to rotations. In a finite sample the estimated
    information of pure noise is positive, most for factors with many values, so codes of pure noise
    do not score 0.

    References:
        Ridgeway & Mozer (2018), Learning Deep Disentangled Embeddings with the F-Statistic Loss.

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The published protocol uses 10 000 points.
        n_bins: Number of bins of each code.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Example:
        >>> factors = np.stack(np.meshgrid(range(4), range(4)), -1).reshape(-1, 2)
        >>> round(modularity(factors, factors[:, ::-1]), 6)
        1.0
        >>> round(modularity(factors, factors.sum(axis=1)), 6)  # equally about both factors
        0.0
    """
    check_guarantee("modularity", guarantee)
    return modularity_statistic(mutual_information(as_sample(factors, codes), n_bins)).value


def modularity_statistic(info: MutualInformation) -> Statistic:
    """Return modularity as a function of point weights; codes without information count 0."""
    informative = info.mutual.max(axis=1) > 0

    def weighted(counts: Array) -> float:
        mutual = np.tensordot(counts, info.terms, axes=1) / counts.sum()
        return mean_modularity(np.where(informative[:, None], np.maximum(mutual, 0.0), 0.0))

    return Statistic(mean_modularity(info.mutual), len(info.terms), weighted)


def mean_modularity(mutual: Array) -> float:
    """Return the mean over codes of the modularity of a matrix of mutual information (C, F)."""
    squares = np.square(mutual)
    largest = squares.max(axis=1)
    others = (squares.sum(axis=1) - largest) / max(mutual.shape[1] - 1, 1)
    share = others / np.where(largest > 0, largest, 1.0)
    return float(np.where(largest > 0, 1.0 - share, 0.0).mean())
