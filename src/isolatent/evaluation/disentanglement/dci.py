"""Disentanglement, completeness and informativeness (DCI), from boosted classifiers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_one_of
from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.boosting import BOOSTERS, boost
from isolatent.evaluation.disentanglement.samples import Split, as_split
from isolatent.evaluation.intervals import Statistic, mean_statistic
from isolatent.parallel import max_threads
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["DCI", "completeness", "dci", "dci_statistics", "disentanglement"]


@dataclass(frozen=True)
class DCI:
    """The three scores of :func:`dci` and the importances behind them.

    Attributes:
        disentanglement: Whether each code is important for one factor only, in [0, 1].
        completeness: Whether each factor depends on one code only, in [0, 1].
        informativeness: Accuracy of the classifiers on test points, averaged over factors.
        importance: Importance of each code for each factor, (C, F); columns sum to 1, or to 0.
        booster: The booster that was used.

    Example:
        >>> factors = np.random.default_rng(0).integers(3, size=(300, 2))
        >>> dci(factors, factors[:, ::-1]).importance.round(6).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """

    disentanglement: float
    completeness: float
    informativeness: float
    importance: Array
    booster: str

    def __str__(self) -> str:
        return (
            f"D {self.disentanglement:.3f}, C {self.completeness:.3f}, "
            f"I {self.informativeness:.3f} (booster {self.booster!r})"
        )


def dci(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    booster: str = "presorted",
    random_state: int = 0,
    guarantee: Guarantee | None = None,
) -> DCI:
    r"""Return disentanglement, completeness and informativeness.

    .. math::
        D = \sum_c \frac{\sum_f R_{cf}}{\sum R} \Bigl(1 - H_F\bigl(R_{c\cdot}\bigr)\Bigr), \qquad
        C = \sum_f \frac{\sum_c R_{cf}}{\sum R} \Bigl(1 - H_C\bigl(R_{\cdot f}\bigr)\Bigr)

    where R are the importances of the codes in one gradient-boosted classifier per factor, H_F is
    the entropy of a normalised row to base F, and H_C that of a column to base C; I is the accuracy
    of the classifiers on test points. With one factor D is 1, and with one code C is 1; if no code
    has any importance, as when all are dead, both are 0. A factor with one value among the training
    points has no importances: that value is predicted.

    Invariant to the order, the sign, the scale and the offset of codes and, except for the accuracy
    at points between two training points, to strictly monotone maps of each; not to rotations. The
    booster ``"sklearn"`` is the reference. ``"presorted"``, the default, is the same algorithm,
    compiled and many times faster; it differs where splits tie, as two seeds of the reference do.

    References:
        Eastwood & Williams (2018), A Framework for the Quantitative Evaluation of Disentangled
        Representations, ICLR. The booster is that of Locatello et al. (2019).

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The published protocol fits 10 000 points and scores 5 000.
        test: Factors and codes of the points to score; by default a random third of the points.
        booster: ``"presorted"`` or ``"sklearn"``.
        random_state: Seed of that third, and of scikit-learn's booster; an integer >= 0.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Example:
        >>> factors = np.random.default_rng(0).integers(3, size=(300, 2))
        >>> print(dci(factors, -factors[:, ::-1]))
        D 1.000, C 1.000, I 1.000 (booster 'presorted')
    """
    check_one_of("booster", booster, BOOSTERS)
    check_guarantee("dci", guarantee)
    return dci_statistics(as_split(factors, codes, test, random_state), booster, random_state)[0]


def dci_statistics(
    points: Split, booster: str, random_state: int
) -> tuple[DCI, dict[str, Statistic]]:
    """Return the scores, and each as a function of point weights with the classifiers as fitted.

    Importance is a sum over the training points of the decrease in squared error by the splits on
    a code. So D and C depend on weights of the training points, and I on weights of test points.
    """
    fits = boost(points, booster, random_state, max_threads())
    decrease = np.stack([fit.impurity_decrease for fit in fits])  # (F, C, N)
    hits = np.stack(
        [fit.predicted == test for fit, test in zip(fits, points.test.classes.T, strict=True)]
    )
    importance = normalised(decrease.sum(axis=2).T)

    def weighted(score: Callable[[Array], float], counts: Array) -> float:
        return score(normalised(np.maximum(decrease @ counts, 0.0).T))

    statistics = {
        name: Statistic(score(importance), len(points.train), partial(weighted, score))
        for name, score in (("disentanglement", disentanglement), ("completeness", completeness))
    }
    statistics["informativeness"] = mean_statistic(hits)
    values = {name: statistic.value for name, statistic in statistics.items()}
    return DCI(**values, importance=importance, booster=booster), statistics


def normalised(importance: Array) -> Array:
    """Return the importances with columns that sum to 1; columns of zeros stay zero."""
    total = importance.sum(axis=0)
    return np.asarray(importance / np.where(total > 0, total, 1.0))


def disentanglement(importance: Array) -> float:
    """Return D of an importance matrix (C, F).

    Example:
        >>> disentanglement(np.array([[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]]))
        1.0
    """
    total = importance.sum()
    if total == 0:
        return 0.0
    weight = importance.sum(axis=1)
    share = importance / np.where(weight > 0, weight, 1.0)[:, None]
    surprisal = -np.log(np.where(share > 0, share, 1.0))  # 0 log 0 = 0
    entropy = (share * surprisal).sum(axis=1) / np.log(max(importance.shape[1], 2))
    return float(weight @ (1.0 - entropy) / total)


def completeness(importance: Array) -> float:
    """Return C of an importance matrix (C, F): D of its transpose.

    Example:
        >>> completeness(np.array([[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]])) < 1.0
        True
    """
    return disentanglement(importance.T)
