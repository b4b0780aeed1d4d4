"""Disentanglement, completeness and informativeness, from importances in boosted classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_one_of
from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.boosting import BOOSTERS, boost
from isolatent.evaluation.disentanglement.samples import Split, split
from isolatent.evaluation.intervals import Resampled
from isolatent.parallel import max_threads
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["DCI", "completeness", "dci", "dci_of", "disentanglement"]


@dataclass(frozen=True)
class DCI:
    """The three scores, and what they were computed from.

    Attributes:
        disentanglement: Does each code serve one factor only?
        completeness: Is each factor served by one code only?
        informativeness: Accuracy of the classifiers on held-out points, mean over factors.
        importance: How much each code serves each factor, (C, F); columns sum to 1, or to 0.
        booster: Which booster was used.

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
    seed: int = 0,
    guarantee: Guarantee | None = None,
) -> DCI:
    r"""Disentanglement, completeness and informativeness.

    .. math::
        D = \sum_c \frac{\sum_f R_{cf}}{\sum R} \Bigl(1 - H_F\bigl(R_{c\cdot}\bigr)\Bigr), \qquad
        C = \sum_f \frac{\sum_c R_{cf}}{\sum R} \Bigl(1 - H_C\bigl(R_{\cdot f}\bigr)\Bigr)

    where R are the importances of the codes in one gradient-boosted classifier for each factor,
    H_F is the entropy of a normalised row to base F, H_C that of a column to base C; the accuracy
    of the classifiers on held-out points is I. With one factor every code serves it alone, so D is
    1, and with one code C is 1; if no code has any importance, as when all are dead, both are 0. A
    factor with one value among the fitted points counts as such a case: that value is predicted.

    Invariant to the order, the sign, the scale and the offset of codes and, but for the accuracy at
    points between two fitted ones, to strictly monotone maps of each; not to rotations.
    The booster ``"sklearn"`` is the reference. ``"presorted"``, the default, is the same algorithm,
    compiled and many times faster; it differs where splits tie, as two seeds of the reference do.

    References:
        Eastwood & Williams (2018), A Framework for the Quantitative Evaluation of Disentangled
        Representations, ICLR. The booster is that of Locatello et al. (2019).

    Args:
        factors: True factors, (N, F) or (N,); each distinct value is a class.
        codes: Codes, (N, C) or (N,). The protocol fits 10 000 points and scores 5 000.
        test: Factors and codes of the points to score; by default a random third of the others.
        booster: ``"presorted"`` or ``"sklearn"``.
        seed: Chooses the third, and between splits that tie.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Example:
        >>> factors = np.random.default_rng(0).integers(3, size=(300, 2))
        >>> print(dci(factors, -factors[:, ::-1]))
        D 1.000, C 1.000, I 1.000 (booster 'presorted')
    """
    check_one_of("booster", booster, BOOSTERS)
    check_guarantee("dci", guarantee)
    return dci_of(split(factors, codes, test, seed), booster, seed)[0]


def dci_of(points: Split, booster: str, seed: int) -> tuple[DCI, dict[str, Resampled]]:
    """Return the scores, and each of them resampled with the fit as it is.

    Importance is a sum over the fitted points: of how much the splits on a code lower the squared
    error there. So D and C resample those points, and I the held-out ones.
    """
    fits = boost(points, booster, seed, max_threads())
    credit = np.stack([fit.credit for fit in fits])  # (F, C, N)
    hits = np.stack(
        [fit.predicted == test for fit, test in zip(fits, points.test.classes.T, strict=True)]
    )
    importance = normalised(credit.sum(axis=2).T)

    def of_counts(score: partial[float], counts: Array) -> float:
        return score(normalised(np.maximum(credit @ counts, 0.0).T))

    fitted = len(points.train)
    scores = {
        name: Resampled(of(importance), fitted, partial(of_counts, partial(of)))
        for name, of in (("disentanglement", disentanglement), ("completeness", completeness))
    }
    scores["informativeness"] = Resampled(
        float(hits.mean()), len(points.test), lambda n: float((hits @ n).mean() / n.sum())
    )
    values = {name: score.value for name, score in scores.items()}
    return DCI(**values, importance=importance, booster=booster), scores


def normalised(importance: Array) -> Array:
    """Return the importances with columns that sum to 1; those without any stay zero."""
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
    surprise = -np.log(np.where(share > 0, share, 1.0))  # so that 0 log 0 = 0
    entropy = (share * surprise).sum(axis=1) / np.log(max(importance.shape[1], 2))
    return float(weight @ (1.0 - entropy) / total)


def completeness(importance: Array) -> float:
    """Return C of an importance matrix (C, F): its transpose's D.

    Example:
        >>> completeness(np.array([[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]])) < 1.0
        True
    """
    return disentanglement(importance.T)
