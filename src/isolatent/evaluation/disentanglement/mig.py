"""Mutual information of binned codes with factors, and the mutual information gap (MIG)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_integer
from isolatent.evaluation.columns import Array, Indices
from isolatent.evaluation.disentanglement.samples import Classes, Sample, as_sample
from isolatent.evaluation.intervals import Statistic
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["MutualInformation", "mig", "mig_statistic", "mutual_information", "top_two"]

BIN_TOLERANCE = 1e-12  # nats; smaller mutual information is the rounding of a zero


def mig(
    factors: ArrayLike, codes: ArrayLike, *, n_bins: int = 20, guarantee: Guarantee | None = None
) -> float:
    r"""Return the mutual information gap between the two most informative codes of a factor.

    .. math::
        \mathrm{MIG} = \frac1F \sum_f \frac{I(c_{(1)}; y_f) - I(c_{(2)}; y_f)}{H(y_f)}

    where the codes c are sorted by their mutual information with factor y_f, in nats. Each code is
    discretised into ``n_bins`` bins of equal width; each distinct value of a factor is a class. 1
    means that one binned code determines the factor and no other code is informative about it; so a
    factor with more values than bins cannot reach 1. A single code is compared with a dead code,
    whose mutual information is 0.

    Invariant to the order, the sign (up to values on the edge of a bin), the scale and the offset
    of the codes; not to monotone maps, nor to rotations.

    References:
        Chen et al. (2018), Isolating Sources of Disentanglement in VAEs, NeurIPS.

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The published protocol uses 10 000 points.
        n_bins: Number of bins of each code.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Example:
        >>> factors = np.stack(np.meshgrid(range(4), range(5)), -1).reshape(-1, 2)
        >>> round(mig(factors, -2.0 * factors[:, ::-1]), 6)
        1.0
        >>> mig(factors, factors.sum(axis=1)) < 0.4
        True
    """
    check_guarantee("mig", guarantee)
    return mig_statistic(mutual_information(as_sample(factors, codes), n_bins)).value


@dataclass(frozen=True)
class MutualInformation:
    r"""Mutual information of each code with each factor, in nats.

    .. math::
        I_{cf} = \frac1N \sum_i \log \frac{p(b_{ic}, y_{if})}{p(b_{ic})\, p(y_{if})}, \qquad
        H_f = \frac1N \sum_i -\log p(y_{if})

    where b are the bins of the codes. Both are means over the points, so a bootstrap can reweight
    their terms and keep the estimated probabilities. That is right to first order and, unlike new
    counts of a resample, not biased upwards by repeated points.

    Attributes:
        mutual: I, (C, F).
        entropy: H, (F,).
        terms: The logarithms in I, (N, C, F).
        surprisal: The terms of H, (N, F).
    """

    mutual: Array
    entropy: Array
    terms: Array
    surprisal: Array


def discretise(codes: Array, n_bins: int = 20) -> Classes:
    """Return the bin of each value: each column is cut into bins of equal width over its range.

    A constant column has one bin. If its range holds fewer floats than bins, each value is a bin.

    Example:
        >>> discretise(np.array([[0.0], [0.4], [0.6], [1.0]]), n_bins=2).ravel()
        array([0, 0, 1, 1])
    """
    check_integer("n_bins", n_bins, at_least=1)
    binned = np.empty(codes.shape, dtype=np.int64)
    for column, values in zip(binned.T, codes.T, strict=True):
        try:
            edges = np.histogram(values, n_bins)[1]
            column[:] = np.digitize(values, edges[:-1]) - 1
        except ValueError:  # fewer floats in the range than bins
            column[:] = np.unique(values, return_inverse=True)[1]
    return binned


def mutual_information(sample: Sample, n_bins: int = 20) -> MutualInformation:
    """Return the mutual information of all pairs (code, factor), from one table of counts."""
    binned = discretise(sample.codes, n_bins)
    classes, sizes = sample.classes, sample.sizes
    rows, codes, factors = len(sample), binned.shape[1], classes.shape[1]
    width, height = int(binned.max()) + 1, max(sizes)
    pair = np.arange(codes)[:, None] * factors + np.arange(factors)
    cell = (pair * width + binned[:, :, None]) * height + classes[:, None, :]
    counts = np.bincount(cell.ravel(), minlength=codes * factors * width * height)
    joint = counts.reshape(codes, factors, width, height) / rows
    of_code, of_factor = joint[:, 0].sum(axis=-1), joint[0].sum(axis=-2)  # (C, bins), (F, values)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(joint) - np.log(of_code)[:, None, :, None] - np.log(of_factor)[None, :, None]
        surprisal = -np.log(of_factor)
    terms = ratio.ravel()[cell]
    mutual = terms.mean(axis=0)
    surprisal = np.stack([surprisal[f, classes[:, f]] for f in range(factors)], axis=1)
    mutual = np.where(mutual > BIN_TOLERANCE, mutual, 0.0)
    return MutualInformation(mutual, surprisal.mean(axis=0), terms, surprisal)


def mig_statistic(info: MutualInformation) -> Statistic:
    """Return MIG as a function of point weights; the two codes of each factor stay the same."""
    padded = np.vstack([info.mutual, np.zeros((1, info.mutual.shape[1]))])
    first, second = top_two(padded)
    factors = np.arange(padded.shape[1])
    gaps = (padded[first, factors] - padded[second, factors]) / info.entropy
    terms = np.concatenate([info.terms, np.zeros_like(info.terms[:, :1])], axis=1)
    gap_terms = terms[:, first, factors] - terms[:, second, factors]

    def weighted(counts: Array) -> float:
        entropy = counts @ info.surprisal
        return float(np.mean(counts @ gap_terms / np.where(entropy > 0, entropy, np.inf)))

    return Statistic(float(gaps.mean()), len(gap_terms), weighted)


def top_two(scores: Array) -> tuple[Indices, Indices]:
    """Return, for each column, the rows of the largest and of the second largest score."""
    order = np.argsort(-scores, axis=0, kind="stable")
    return order[0], order[1]
