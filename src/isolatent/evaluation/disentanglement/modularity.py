"""Modularity: does each code know of one factor only?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.mutual_information import Information, information
from isolatent.evaluation.disentanglement.samples import sample
from isolatent.evaluation.intervals import Resampled
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["modularity", "modularity_of"]


def modularity(
    factors: ArrayLike, codes: ArrayLike, *, bins: int = 20, guarantee: Guarantee | None = None
) -> float:
    r"""Modularity: the share of a code's squared information that is about one factor.

    .. math::
        \mathrm{modularity} = \frac1C \sum_c
            \left( 1 - \frac{\sum_f I_{cf}^2 - \max_f I_{cf}^2}{(F - 1) \max_f I_{cf}^2} \right)

    where I is the mutual information of :func:`mig`. A code that knows nothing counts 0, so dead
    codes lower the mean. With one factor there is nothing else to know: a code that knows
    anything counts 1. Several codes may know the same factor at no cost.

    Invariant to the order, the sign (but for values on the edge of a bin), the scale and the offset
    of the codes; not to monotone maps, nor to rotations. In a finite sample noise has some
    information about every factor, most about those with many values, so that codes of pure
    noise do not score 0.

    References:
        Ridgeway & Mozer (2018), Learning Deep Disentangled Embeddings with the F-Statistic Loss.

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The protocol takes 10 000 points.
        bins: Bins of each code.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Example:
        >>> factors = np.stack(np.meshgrid(range(4), range(4)), -1).reshape(-1, 2)
        >>> round(modularity(factors, factors[:, ::-1]), 6)
        1.0
        >>> round(modularity(factors, factors.sum(axis=1)), 6)  # of both factors alike
        0.0
    """
    check_guarantee("modularity", guarantee)
    return modularity_of(information(sample(factors, codes), bins)).value


def modularity_of(info: Information) -> Resampled:
    """Return the modularity; codes without information stay without when resampled."""
    knows = info.mutual.max(axis=1) > 0

    def of_counts(counts: Array) -> float:
        mutual = np.tensordot(counts, info.terms, axes=1) / counts.sum()
        return mean_modularity(np.where(knows[:, None], np.maximum(mutual, 0.0), 0.0))

    return Resampled(mean_modularity(info.mutual), len(info.terms), of_counts)


def mean_modularity(mutual: Array) -> float:
    """Return the mean over codes, given their mutual information (C, F)."""
    squares = np.square(mutual)
    largest = squares.max(axis=1)
    others = (squares.sum(axis=1) - largest) / max(mutual.shape[1] - 1, 1)
    share = others / np.where(largest > 0, largest, 1.0)
    return float(np.where(largest > 0, 1.0 - share, 0.0).mean())
