"""Gradient-boosted classifiers of the factors, with importances of the codes at each point."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from isolatent.evaluation.columns import Array, binary_exponents
from isolatent.evaluation.disentanglement.samples import Classes, Split
from isolatent.parallel import map_ranges

__all__ = ["BOOSTERS", "FittedBooster", "boost"]


class FittedBooster(NamedTuple):
    """A fitted classifier of one factor.

    Attributes:
        impurity_decrease: Decrease in squared error by the splits on each code at each training
            point, (C, N); its sums over the points, normalised, are the importances.
        predicted: Predicted class of each test point.
    """

    impurity_decrease: Array
    predicted: Classes


def boost(points: Split, booster: str, random_state: int, threads: int) -> list[FittedBooster]:
    """Fit one classifier for each factor.

    A factor with one value among the training points needs no classifier: that value is predicted,
    and no code has any importance.
    """
    return BOOSTERS[booster](_rescale(points), random_state, threads)


def _rescale(points: Split) -> Split:
    """Rescale codes outside of the range that trees can represent.

    Both boosters store codes in float32 and do not separate values nearer than 1e-7. Codes whose
    largest value is between 2⁻¹⁰ and 2⁶⁴ stay as they are; others are scaled by a power of two,
    which rounds nothing, to a largest value between 1 and 2. The scale is that of the training
    points; test points beyond the range of float32 are clipped, which keeps the side of each split.
    """
    exponent = binary_exponents(points.train.codes)
    shift = np.where((exponent >= -10) & (exponent <= 64), 0, 1 - exponent)
    end = float(np.finfo(np.float32).max)
    with np.errstate(over="ignore"):
        train, test = (np.ldexp(part.codes, shift) for part in (points.train, points.test))
    return Split(
        replace(points.train, codes=train),
        replace(points.test, codes=np.clip(test, -end, end)),
    )


def _constant(points: Split, value: int) -> FittedBooster:
    """Return the classifier of a factor with one value among the training points."""
    zeros = np.zeros(points.train.codes.T.shape)
    return FittedBooster(zeros, np.full(len(points.test), value))


def _boost_presorted(points: Split, random_state: int, threads: int) -> list[FittedBooster]:
    """Grow the trees of each stage on several threads; nothing is random, so no seed is used."""
    columns = np.ascontiguousarray(points.train.codes.T, dtype=np.float32)
    new_columns = np.ascontiguousarray(points.test.codes.T, dtype=np.float32)
    order = np.argsort(columns, axis=1, kind="stable").astype(np.int32)
    ranked = np.take_along_axis(columns, order, axis=1)
    fitted = []
    with ThreadPoolExecutor(max(1, threads - 1)) as pool:
        for classes in points.train.classes.T:
            values, labels = np.unique(classes, return_inverse=True)
            if len(values) == 1:
                fitted.append(_constant(points, int(values[0])))
                continue
            codes = order, ranked, columns, new_columns
            decrease, new_raw = _fit_presorted(codes, labels, pool, threads)
            fitted.append(FittedBooster(decrease, values[_most_probable(new_raw)]))
    return fitted


def _fit_presorted(
    codes: tuple[Any, Any, Any, Any], labels: Classes, pool: ThreadPoolExecutor, threads: int
) -> tuple[Array, Array]:
    """Return the impurity decrease (C, N) and the raw predictions of the test points, (K, N')."""
    from isolatent.evaluation.disentanglement.presorted import STAGES, grow_stage, probabilities

    order, ranked, columns, new_columns = codes
    start, rows = _initial_prediction(labels), len(labels)
    raw = np.repeat(start[:, None], rows, axis=1)
    new_raw = np.repeat(start[:, None], new_columns.shape[1], axis=1)
    prob = np.empty_like(raw)
    inverse = 1.0 / np.maximum(np.arange(rows + 1), 1)
    shares = min(threads, len(raw))
    decrease = np.zeros((shares, *columns.shape))

    def grow(t: int, first: int, last: int) -> None:
        now = labels, prob, raw, new_columns, new_raw, decrease[t]
        grow_stage(first, last, order, ranked, columns, inverse, *now)

    for _ in range(STAGES):
        probabilities(raw, prob)
        map_ranges(grow, len(raw), shares, pool)
    return decrease.sum(axis=0), new_raw


def _initial_prediction(labels: Classes) -> Array:
    """Return the raw prediction of the class frequencies: centred logarithms, or one log-odds."""
    share = np.bincount(labels) / len(labels)
    log = np.log(share)
    return np.asarray(log[1:] - log[:1] if len(log) == 2 else log - log.mean())


def _most_probable(raw: Array) -> Classes:
    """Return the most probable class of each column of raw predictions."""
    return np.asarray(raw[0] >= 0 if len(raw) == 1 else raw.argmax(axis=0), dtype=np.int64)


def _boost_sklearn(points: Split, random_state: int, threads: int) -> list[FittedBooster]:
    from joblib import Parallel, delayed

    factors = range(points.train.classes.shape[1])
    tasks = (delayed(_fit_sklearn)(points, f, random_state) for f in factors)
    return list(Parallel(n_jobs=threads, prefer="threads")(tasks))


def _fit_sklearn(points: Split, factor: int, random_state: int) -> FittedBooster:
    from sklearn.ensemble import GradientBoostingClassifier

    values, labels = np.unique(points.train.classes[:, factor], return_inverse=True)
    if len(values) == 1:
        return _constant(points, int(values[0]))
    model = GradientBoostingClassifier(random_state=random_state).fit(points.train.codes, labels)
    return FittedBooster(
        _impurity_decrease(model, points.train.codes, labels),
        values[model.predict(points.test.codes)],
    )


def _impurity_decrease(model: Any, codes: Array, labels: Classes) -> Array:
    """Return the impurity decrease (C, N) of scikit-learn's booster, stage by stage as fitted."""
    from isolatent.evaluation.disentanglement.presorted import add_impurity_decrease, probabilities

    columns = np.ascontiguousarray(codes.T, dtype=np.float32)
    decrease = np.zeros(columns.shape)
    raw = np.repeat(_initial_prediction(labels)[:, None], len(labels), axis=1)
    prob = np.empty_like(raw)
    leaf = np.empty(len(labels), dtype=np.int64)
    for stage in model.estimators_:
        probabilities(raw, prob)
        for k, fitted in enumerate(stage):
            tree = fitted.tree_
            residual = (labels == (1 if len(raw) == 1 else k)) - prob[k]
            nodes = tree.children_left, tree.children_right, tree.feature, tree.threshold
            add_impurity_decrease(*nodes, columns, residual, decrease, leaf)
            raw[k] += model.learning_rate * tree.value[leaf, 0, 0]
    return decrease


BOOSTERS: dict[str, Callable[[Split, int, int], list[FittedBooster]]] = {
    "sklearn": _boost_sklearn,
    "presorted": _boost_presorted,
}
