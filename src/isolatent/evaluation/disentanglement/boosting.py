"""Which code a boosted classifier looks at: one fit for each factor, by either of two boosters."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from isolatent.evaluation.columns import Array, binary_exponents
from isolatent.evaluation.disentanglement.samples import Classes, Split
from isolatent.parallel import map_ranges

__all__ = ["BOOSTERS", "Boosted", "boost"]


class Boosted(NamedTuple):
    """A classifier of one factor after its fit.

    Attributes:
        credit: How much the splits on each code lowered the squared error at each fitted point,
            (C, N); its sums over the points, normalised, are the importances.
        predicted: The class of each held-out point.
    """

    credit: Array
    predicted: Classes


def boost(points: Split, booster: str, seed: int, threads: int) -> list[Boosted]:
    """Fit one classifier for each factor.

    A factor with one value among the points to fit needs no classifier: that value is predicted,
    and no code has any importance.
    """
    fit = BOOSTERS[booster]
    return fit(_readable(points), seed, threads)


def _readable(points: Split) -> Split:
    """Rescale the codes that trees could not read, of either booster.

    They hold codes in float32 and do not separate values nearer than 1e-7. Where the largest value
    is between 2⁻¹⁰ and 2⁶⁴ codes are left as they are, else it is brought between 1 and 2; by a
    power of two, which rounds nothing. The scale is that of the fitted points; held-out ones beyond
    float32 are moved to its end, which is on the same side of every split.
    """
    exponent = binary_exponents(points.train.codes)
    shift = np.where((exponent >= -10) & (exponent <= 64), 0, 1 - exponent)
    end = float(np.finfo(np.float32).max)
    with np.errstate(over="ignore"):
        fitted, scored = (np.ldexp(part.codes, shift) for part in (points.train, points.test))
    return Split(
        replace(points.train, codes=fitted),
        replace(points.test, codes=np.clip(scored, -end, end)),
    )


def _present(classes: Classes) -> tuple[Classes, Classes]:
    """Return the classes that occur and the index of each point's among them."""
    values, labels = np.unique(classes, return_inverse=True)
    return values, labels


def _constant(points: Split, value: int) -> Boosted:
    nothing = np.zeros(points.train.codes.T.shape)
    return Boosted(nothing, np.full(len(points.test), value))


def _by_presorting(points: Split, seed: int, threads: int) -> list[Boosted]:
    """Share the trees of each stage among threads; there is nothing random, so no seed is used."""
    columns = np.ascontiguousarray(points.train.codes.T, dtype=np.float32)
    new_columns = np.ascontiguousarray(points.test.codes.T, dtype=np.float32)
    order = np.argsort(columns, axis=1, kind="stable").astype(np.int32)
    ranked = np.take_along_axis(columns, order, axis=1)
    fitted = []
    with ThreadPoolExecutor(max(1, threads - 1)) as pool:
        for classes in points.train.classes.T:
            values, labels = _present(classes)
            if len(values) == 1:
                fitted.append(_constant(points, int(values[0])))
                continue
            codes = order, ranked, columns, new_columns
            credit, new_raw = _fit_presorted(codes, labels, pool, threads)
            fitted.append(Boosted(credit, values[_decide(new_raw)]))
    return fitted


def _fit_presorted(
    codes: tuple[Any, Any, Any, Any], labels: Classes, pool: ThreadPoolExecutor, threads: int
) -> tuple[Array, Array]:
    """Return the credit (C, N) and the raw predictions of the held-out points, (K, N')."""
    from isolatent.evaluation.disentanglement.presorted import STAGES, grow_stage, probabilities

    order, ranked, columns, new_columns = codes
    start, rows = _start(labels), len(labels)
    raw = np.repeat(start[:, None], rows, axis=1)
    new_raw = np.repeat(start[:, None], new_columns.shape[1], axis=1)
    prob = np.empty_like(raw)
    inverse = 1.0 / np.maximum(np.arange(rows + 1), 1)
    shares = min(threads, len(raw))
    credit = np.zeros((shares, *columns.shape))

    def grow(t: int, first: int, last: int) -> None:
        now = labels, prob, raw, new_columns, new_raw, credit[t]
        grow_stage(first, last, order, ranked, columns, inverse, *now)

    for _ in range(STAGES):
        probabilities(raw, prob)
        map_ranges(grow, len(raw), shares, pool)
    return credit.sum(axis=0), new_raw


def _start(labels: Classes) -> Array:
    """The raw prediction of the class frequencies: centred logarithms, or one log-odds."""
    share = np.bincount(labels) / len(labels)
    log = np.log(share)
    return np.asarray(log[1:] - log[:1] if len(log) == 2 else log - log.mean())


def _decide(raw: Array) -> Classes:
    """Return the most probable class of each column of raw predictions."""
    return np.asarray(raw[0] >= 0 if len(raw) == 1 else raw.argmax(axis=0), dtype=np.int64)


def _by_scikit_learn(points: Split, seed: int, threads: int) -> list[Boosted]:
    """Fit scikit-learn's booster, factors with most classes first so that no thread idles long."""
    from joblib import Parallel, delayed

    order = np.argsort([-size for size in points.train.sizes], kind="stable")
    fits = Parallel(n_jobs=threads, prefer="threads")(
        delayed(_fit_scikit_learn)(points, int(f), seed) for f in order
    )
    return [fits[place] for place in np.argsort(order)]


def _fit_scikit_learn(points: Split, factor: int, seed: int) -> Boosted:
    from sklearn.ensemble import GradientBoostingClassifier

    values, labels = _present(points.train.classes[:, factor])
    if len(values) == 1:
        return _constant(points, int(values[0]))
    model = GradientBoostingClassifier(random_state=seed).fit(points.train.codes, labels)
    return Boosted(
        _credit(model, points.train.codes, labels), values[model.predict(points.test.codes)]
    )


def _credit(model: Any, codes: Array, labels: Classes) -> Array:
    """Return the credit of each code at each fitted point, stage by stage as it was fitted."""
    from isolatent.evaluation.disentanglement.credits import credit_tree
    from isolatent.evaluation.disentanglement.presorted import probabilities

    columns = np.ascontiguousarray(codes.T, dtype=np.float32)
    credit = np.zeros(columns.shape)
    raw = np.repeat(_start(labels)[:, None], len(labels), axis=1)
    prob = np.empty_like(raw)
    place = np.empty(len(labels), dtype=np.int64)
    for stage in model.estimators_:
        probabilities(raw, prob)
        for k, fitted in enumerate(stage):
            tree = fitted.tree_
            residual = (labels == (1 if len(raw) == 1 else k)) - prob[k]
            nodes = tree.children_left, tree.children_right, tree.feature, tree.threshold
            credit_tree(*nodes, columns, residual, credit, place)
            raw[k] += model.learning_rate * tree.value[place, 0, 0]
    return credit


BOOSTERS: dict[str, Callable[[Split, int, int], list[Boosted]]] = {
    "sklearn": _by_scikit_learn,
    "presorted": _by_presorting,
}
