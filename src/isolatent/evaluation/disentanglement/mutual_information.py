"""Mutual information of binned codes with factors, from one table of counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isolatent.checks import check_integer
from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.samples import Classes, Sample

__all__ = ["Information", "discretise", "information"]

NOTHING = 1e-12  # nats; mutual information below this is the rounding of a zero


@dataclass(frozen=True)
class Information:
    r"""What each code tells of each factor, in nats.

    .. math::
        I_{cf} = \frac1N \sum_i \log \frac{p(b_{ic}, y_{if})}{p(b_{ic})\, p(y_{if})}, \qquad
        H_f = \frac1N \sum_i -\log p(y_{if})

    Both are means over the points; keeping their terms lets a bootstrap weigh the points anew with
    the probabilities as they were. That is right to first order, and unlike counting the resample
    again it is not biased upwards by points that occur twice.

    Attributes:
        mutual: I, (C, F).
        entropy: H, (F,).
        terms: The logarithms in I, (N, C, F).
        surprise: The terms of H, (N, F).
    """

    mutual: Array
    entropy: Array
    terms: Array
    surprise: Array


def discretise(codes: Array, bins: int = 20) -> Classes:
    """Return the bin of each code: column by column, equal widths from the least to the largest.

    A constant code is in one bin; where floats are too coarse for the bins, each value is its own.

    Example:
        >>> discretise(np.array([[0.0], [0.4], [0.6], [1.0]]), bins=2).ravel()
        array([0, 0, 1, 1])
    """
    check_integer("bins", bins, at_least=1)
    binned = np.empty(codes.shape, dtype=np.int64)
    for column, values in zip(binned.T, codes.T, strict=True):
        try:
            edges = np.histogram(values, bins)[1]
            column[:] = np.digitize(values, edges[:-1]) - 1
        except ValueError:  # fewer floats between the least and the largest than bins
            column[:] = np.unique(values, return_inverse=True)[1]
    return binned


def information(points: Sample, bins: int = 20) -> Information:
    """Count all pairs (code, factor) at once and return their mutual information."""
    binned = discretise(points.codes, bins)
    classes, sizes = points.classes, points.sizes
    rows, codes, factors = len(points), binned.shape[1], classes.shape[1]
    width, height = int(binned.max()) + 1, max(sizes)
    pair = np.arange(codes)[:, None] * factors + np.arange(factors)
    cell = (pair * width + binned[:, :, None]) * height + classes[:, None, :]
    counts = np.bincount(cell.ravel(), minlength=codes * factors * width * height)
    joint = counts.reshape(codes, factors, width, height) / rows
    of_code, of_factor = joint[:, 0].sum(axis=-1), joint[0].sum(axis=-2)  # (C, bins), (F, values)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(joint) - np.log(of_code)[:, None, :, None] - np.log(of_factor)[None, :, None]
        surprise = -np.log(of_factor)
    terms = ratio.ravel()[cell]
    mutual = terms.mean(axis=0)
    surprise = np.stack([surprise[f, classes[:, f]] for f in range(factors)], axis=1)
    mutual = np.where(mutual > NOTHING, mutual, 0.0)
    return Information(mutual, surprise.mean(axis=0), terms, surprise)
