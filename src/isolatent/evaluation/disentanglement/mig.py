"""The mutual information gap: how far the most informative code is ahead of the second."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.assignment import Indices
from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.mutual_information import Information, information
from isolatent.evaluation.disentanglement.samples import sample
from isolatent.evaluation.intervals import Resampled
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["mig", "mig_of", "top_two"]


def mig(
    factors: ArrayLike, codes: ArrayLike, *, bins: int = 20, guarantee: Guarantee | None = None
) -> float:
    r"""Mutual information gap: is each factor in one code only?

    .. math::
        \mathrm{MIG} = \frac1F \sum_f \frac{I(c_{(1)}; y_f) - I(c_{(2)}; y_f)}{H(y_f)}

    with the codes in order of their information about the factor, in nats, each code in ``bins``
    bins of equal width and factors as they are. 1 means that one code determines the factor
    through its bins and no other code knows of it; so a factor with more values than bins cannot
    reach 1. If there is one code, its gap is to no information, as if there were a dead one.

    Invariant to the order, the sign (but for values on the edge of a bin), the scale and the offset
    of the codes; not to monotone maps, nor to rotations.

    References:
        Chen et al. (2018), Isolating Sources of Disentanglement in VAEs, NeurIPS.

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The protocol takes 10 000 points.
        bins: Bins of each code.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Example:
        >>> factors = np.stack(np.meshgrid(range(4), range(5)), -1).reshape(-1, 2)
        >>> round(mig(factors, -2.0 * factors[:, ::-1]), 6)
        1.0
        >>> mig(factors, factors.sum(axis=1)) < 0.4
        True
    """
    check_guarantee("mig", guarantee)
    return mig_of(information(sample(factors, codes), bins)).value


def mig_of(info: Information) -> Resampled:
    """Return the gap, with the first and second code of each factor kept when resampled."""
    padded = np.vstack([info.mutual, np.zeros((1, info.mutual.shape[1]))])
    first, second = top_two(padded)
    factors = np.arange(padded.shape[1])
    gaps = (padded[first, factors] - padded[second, factors]) / info.entropy
    terms = np.concatenate([info.terms, np.zeros_like(info.terms[:, :1])], axis=1)
    ahead = terms[:, first, factors] - terms[:, second, factors]

    def of_counts(counts: Array) -> float:
        entropy = counts @ info.surprise
        return float(np.mean(counts @ ahead / np.where(entropy > 0, entropy, np.inf)))

    return Resampled(float(gaps.mean()), len(ahead), of_counts)


def top_two(scores: Array) -> tuple[Indices, Indices]:
    """Return, for each column, the rows of the largest and of the second largest score."""
    order = np.argsort(-scores, axis=0, kind="stable")
    return order[0], order[1]
