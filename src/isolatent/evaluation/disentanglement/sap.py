"""Separated attribute predictability: how far the best single code is ahead of the second."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.evaluation.columns import Array, as_factors_and_codes, standardise
from isolatent.evaluation.disentanglement.mig import top_two
from isolatent.evaluation.disentanglement.samples import Classes, Split, split
from isolatent.evaluation.intervals import Resampled, correlations
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["sap", "sap_of"]

COST = 0.01


def sap(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    continuous: bool = False,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    seed: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""Separated attribute predictability: is each factor predicted by one code only?

    .. math::
        \mathrm{SAP} = \frac1F \sum_f \bigl( S_{(1)f} - S_{(2)f} \bigr)

    where S_cf is how well code c alone predicts factor f, and the codes are in order of that. For
    factors that are classes S is the held-out accuracy of a linear support vector machine, that of
    scikit-learn's ``LinearSVC(C=0.01, class_weight="balanced")`` solved exactly; for continuous
    ones the squared correlation over all points. A dead code predicts the most frequent class, or
    has correlation 0; if there is one code, its gap is to a dead one. A class that is missing among
    the fitted points is never predicted.

    A perfect code need not have a gap of 1 - chance: lines separate the extreme classes of a factor
    from the rest, but not those in between. Invariant to the order and the sign of the codes, and
    for continuous factors to their scale and offset. The machine is penalised in the units of the
    code, so that for classes it does change with the scale. Not invariant to monotone maps, nor to
    rotations.

    References:
        Kumar et al. (2018), Variational Inference of Disentangled Latent Concepts from Unlabeled
        Observations, ICLR. The constants are those of Locatello et al. (2019).

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The protocol fits 10 000 points and scores 5 000.
        continuous: Whether factors are numbers rather than classes.
        test: Factors and codes of the points to score; by default a random third of the others.
        seed: Chooses the third.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> factors = rng.integers(2, size=(3000, 2))
        >>> round(sap(factors, 3.0 * factors[:, ::-1]), 1)  # accuracy 1 against one half
        0.5
        >>> z = rng.normal(size=(3000, 2))
        >>> round(sap(z, z[:, ::-1], continuous=True), 2)
        1.0
    """
    check_guarantee("sap_continuous" if continuous else "sap", guarantee)
    if not continuous:
        return sap_of(split(factors, codes, test, seed)).value
    if test is not None:
        raise ValueError("test must be left out with continuous=True, which scores all points")
    return _continuous(*as_factors_and_codes(factors, codes, ("factors", "codes"))).value


def sap_of(points: Split) -> Resampled:
    """Return the gap between the codes' held-out accuracies, resampled over the held-out points."""
    columns = [*points.train.codes.T, np.zeros(len(points.train))]  # a dead code comes last
    new_columns = [*points.test.codes.T, np.zeros(len(points.test))]
    hits = np.empty((len(columns), points.train.classes.shape[1], len(points.test)), dtype=bool)
    for c, (column, new_column) in enumerate(zip(columns, new_columns, strict=True)):
        order = np.argsort(column, kind="stable")
        for f, (own, truth) in enumerate(
            zip(points.train.classes.T, points.test.classes.T, strict=True)
        ):
            hits[c, f] = predict(column[order], own[order], new_column) == truth
    return _gap(hits)


def predict(values: Array, classes: Classes, new_values: Array) -> Classes:
    """Return the classes predicted at new values of a code, fitted to its ascending values."""
    from isolatent.evaluation.disentanglement.linear_svm import separate_classes

    present, labels = np.unique(classes, return_inverse=True)
    if len(present) == 1 or values[0] == values[-1]:
        # On a dead code balanced machines for two classes know neither; rounding must not decide.
        return np.full(len(new_values), present[np.bincount(labels).argmax()])
    machines = np.empty((1 if len(present) == 2 else len(present), 2))
    separate_classes(values, labels, len(present), COST, machines)
    score = machines[:, :1] * new_values + machines[:, 1:]
    best = score[0] > 0 if len(present) == 2 else score.argmax(axis=0)
    return np.asarray(present[best.astype(np.int64)])


def _gap(hits: npt.NDArray[np.bool_]) -> Resampled:
    """Return the mean gap of the accuracies of hits (C + 1, F, N), the last code being dead."""
    codes = len(hits) - 1 if len(hits) > 2 else 2
    first, second = top_two(hits[:codes].mean(axis=2))
    factors = np.arange(hits.shape[1])
    ahead = hits[first, factors].astype(np.float64) - hits[second, factors]
    return Resampled(
        float(ahead.mean()), hits.shape[2], lambda n: float((ahead @ n).mean() / n.sum())
    )


def _continuous(factors: Array, codes: Array) -> Resampled:
    """Return the mean gap of the squared correlations."""
    codes = np.hstack([codes, np.zeros((len(codes), 1))])
    z, h = standardise(factors), standardise(codes)
    first, second = top_two(np.square(h.T @ z / len(z)))

    def of_counts(counts: Array) -> float:
        best, next_best = (correlations(z, h[:, c], counts) ** 2 for c in (first, second))
        return float(np.nanmean(best - next_best))

    return Resampled(of_counts(np.ones(len(z))), len(z), of_counts)
