"""Separated attribute predictability (SAP): the gap between the two most predictive codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.checks import check_one_of
from isolatent.evaluation.columns import Array, as_factors_and_codes, standardise
from isolatent.evaluation.disentanglement.mig import top_two
from isolatent.evaluation.disentanglement.samples import Classes, Split, as_split
from isolatent.evaluation.intervals import Statistic, mean_statistic, weighted_correlations
from isolatent.parallel import max_threads
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["SOLVERS", "sap", "sap_statistic"]

C = 0.01  # of the support vector machines


def sap(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    continuous: bool = False,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    solver: str = "sklearn",
    random_state: int = 0,
    guarantee: Guarantee | None = None,
) -> float:
    r"""Return separated attribute predictability: is each factor predicted by one code only?

    .. math::
        \mathrm{SAP} = \frac1F \sum_f \bigl( S_{(1)f} - S_{(2)f} \bigr)

    where S_cf is how well code c alone predicts factor f, and the codes are sorted by it. For
    factors that are classes S is the test accuracy of a linear support vector machine,
    scikit-learn's ``LinearSVC(C=0.01, class_weight="balanced")``; for continuous factors it is the
    squared correlation over all points. A dead code predicts the most frequent class, or has
    correlation 0; a single code is compared with a dead one. A class that is missing from the
    training points is never predicted.

    Even a perfect code scores below 1 - chance: a linear classifier of one code separates the
    extreme classes of a factor from the rest, but not those in between. Invariant to the order and
    the sign of the codes, and for continuous factors to their scale and offset. The support vector
    machine is penalised in units of the code, so for classes the score changes with the scale. Not
    invariant to monotone maps, nor to rotations.

    References:
        Kumar et al. (2018), Variational Inference of Disentangled Latent Concepts from Unlabeled
        Observations, ICLR. The constants are those of Locatello et al. (2019).

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The published protocol fits 10 000 points and scores 5 000.
        continuous: Whether factors are numbers rather than classes.
        test: Factors and codes of the points to score; by default a random third of the points.
        solver: Solver of the support vector machines: ``"sklearn"`` is ``LinearSVC`` with its
            default tolerance, ``"exact"`` finds the minimum of the same objective by Newton's
            method on the sorted code, many times faster. They differ for the few points between
            the two decision boundaries. Ignored for continuous factors.
        random_state: Seed of the random third, an integer >= 0.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> factors = rng.integers(2, size=(3000, 2))
        >>> round(sap(factors, 3.0 * factors[:, ::-1]), 1)  # accuracy 1 against one half
        0.5
        >>> z = rng.normal(size=(3000, 2))
        >>> round(sap(z, z[:, ::-1], continuous=True), 2)
        1.0
    """
    check_one_of("solver", solver, SOLVERS)
    check_guarantee("sap_continuous" if continuous else "sap", guarantee)
    if not continuous:
        return sap_statistic(as_split(factors, codes, test, random_state), solver).value
    if test is not None:
        raise ValueError("test must be left out with continuous=True, which scores all points")
    return _continuous_statistic(*as_factors_and_codes(factors, codes)).value


def sap_statistic(points: Split, solver: str) -> Statistic:
    """Return the gap between the codes' test accuracies as a function of test point weights."""
    from joblib import Parallel, delayed

    codes = [*points.train.codes.T, np.zeros(len(points.train))]  # a dead code comes last
    new_codes = [*points.test.codes.T, np.zeros(len(points.test))]

    def hits(c: int) -> list[npt.NDArray[np.bool_]]:
        order = np.argsort(codes[c], kind="stable")
        return [
            predict(codes[c][order], own[order], new_codes[c], solver) == truth
            for own, truth in zip(points.train.classes.T, points.test.classes.T, strict=True)
        ]

    tasks = (delayed(hits)(c) for c in range(len(codes)))
    return _gap(np.array(Parallel(n_jobs=max_threads(), prefer="threads")(tasks)))


def predict(values: Array, classes: Classes, new_values: Array, solver: str) -> Classes:
    """Return the classes predicted at new values of a code, fitted to its ascending values."""
    present, labels = np.unique(classes, return_inverse=True)
    if len(present) == 1 or values[0] == values[-1]:
        # The balanced machines of a dead code tie; rounding must not decide between classes.
        return np.full(len(new_values), present[np.bincount(labels).argmax()])
    coefficients = SOLVERS[solver](values, labels, len(present))
    score = coefficients[:, :1] * new_values + coefficients[:, 1:]
    best = score[0] > 0 if len(present) == 2 else score.argmax(axis=0)
    return np.asarray(present[best.astype(np.int64)])


def _fit_sklearn(values: Array, labels: Classes, n_classes: int) -> Array:
    """Return weight and intercept of scikit-learn's machine of each class against the rest."""
    from sklearn.svm import LinearSVC

    # The primal problem: one feature and many points, and nothing random in its solver.
    model = LinearSVC(C=C, class_weight="balanced", dual=False).fit(values[:, None], labels)
    return np.hstack([model.coef_, model.intercept_[:, None]])


def _fit_exact(values: Array, labels: Classes, n_classes: int) -> Array:
    """Return the exact weight and intercept of the machine of each class against the rest."""
    from isolatent.evaluation.disentanglement.linear_svm import fit_linear_svms

    return np.asarray(fit_linear_svms(values, labels, n_classes, C))


SOLVERS: dict[str, Callable[[Array, Classes, int], Array]] = {
    "sklearn": _fit_sklearn,
    "exact": _fit_exact,
}


def _gap(hits: npt.NDArray[np.bool_]) -> Statistic:
    """Return the mean gap of accuracies from hits (C + 1, F, N), the last code being dead."""
    codes = len(hits) - 1 if len(hits) > 2 else 2
    first, second = top_two(hits[:codes].mean(axis=2))
    factors = np.arange(hits.shape[1])
    return mean_statistic(hits[first, factors].astype(np.float64) - hits[second, factors])


def _continuous_statistic(factors: Array, codes: Array) -> Statistic:
    """Return the mean gap of squared correlations as a function of point weights."""
    codes = np.hstack([codes, np.zeros((len(codes), 1))])
    z, h = standardise(factors), standardise(codes)
    first, second = top_two(np.square(h.T @ z / len(z)))

    def weighted(counts: Array) -> float:
        best, next_best = (weighted_correlations(z, h[:, c], counts) ** 2 for c in (first, second))
        return float(np.nanmean(best - next_best))

    return Statistic(weighted(np.ones(len(z))), len(z), weighted)
