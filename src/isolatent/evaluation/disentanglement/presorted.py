"""Compiled gradient-boosted classification trees on presorted codes.

The algorithm is that of scikit-learn's `GradientBoostingClassifier` with its defaults (log-loss,
100 stages, learning rate 0.1, exact trees of depth 3 by squared error, one Newton step per leaf).
scikit-learn sorts the points of every node for every code; here the codes are sorted once, and each
level of a tree is one pass over every code in that order. Trees are not stored: test points are
predicted as each tree is grown.

Of two equally good splits, scikit-learn takes one at random and this implementation the first.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["STAGES", "add_impurity_decrease", "grow_stage", "probabilities"]

STAGES = 100
LEARNING_RATE = 0.1
DEPTH = 3
MIN_VARIANCE = np.finfo(np.float64).eps  # nodes of at most this variance are not split
MIN_DISTANCE = np.float32(1e-7)  # nearer values are not separated


@njit(cache=True, nogil=True)
def probabilities(raw, prob):
    """Write the class probabilities (K, N) of raw predictions; K = 1 stands for two classes."""
    classes, rows = raw.shape
    if classes == 1:
        for i in range(rows):
            prob[0, i] = 1.0 / (1.0 + np.exp(-raw[0, i]))
        return
    top, total = raw[0].copy(), np.zeros(rows)
    for k in range(1, classes):
        for i in range(rows):
            top[i] = max(top[i], raw[k, i])
    for k in range(classes):
        for i in range(rows):
            prob[k, i] = np.exp(raw[k, i] - top[i])
            total[i] += prob[k, i]
    for k in range(classes):
        for i in range(rows):
            prob[k, i] /= total[i]


@njit(cache=True, nogil=True)
def _best_splits(order, ranked, residual, slot, nodes, count, total, inverse, best):
    """Write the best split (gain, code, threshold) of each node of a level to ``best``."""
    codes, rows = order.shape
    seen = np.empty(nodes, dtype=np.int64)
    left = np.empty(nodes)
    last = np.empty(nodes, dtype=np.float32)
    for c in range(codes):
        seen[:] = 0
        left[:] = 0.0
        for s in range(rows):
            i = order[c, s]
            node = slot[i]
            if node < 0:
                continue
            value, n = ranked[c, s], seen[node]
            if n > 0 and value > last[node] + MIN_DISTANCE:
                right = total[node] - left[node]
                gain = left[node] ** 2 * inverse[n] + right**2 * inverse[count[node] - n]
                if gain > best[node, 0]:
                    best[node, 0] = gain
                    best[node, 1] = c
                    best[node, 2] = np.float64(last[node]) / 2.0 + np.float64(value) / 2.0
            seen[node] = n + 1
            left[node] += residual[i]
            last[node] = value


@njit(cache=True, nogil=True)
def _statistics(residual, slot, nodes, count, total, squares):
    """Write the number of points of each node of a level, and sums of residuals and squares."""
    count[:nodes] = 0
    total[:nodes] = 0.0
    squares[:nodes] = 0.0
    for i in range(len(slot)):
        node = slot[i]
        if node >= 0:
            count[node] += 1
            total[node] += residual[i]
            squares[node] += residual[i] ** 2


@njit(cache=True, nogil=True)
def _grow_tree(order, ranked, columns, residual, inverse, code, threshold, leaf_of, decrease):
    """Grow one tree: nodes in heap order, code -1 for a leaf; write the leaf of each point."""
    rows = len(residual)
    slot = np.zeros(rows, dtype=np.int64)  # node within the level, -1 once in a leaf
    widest = 2**DEPTH
    count = np.empty(widest, dtype=np.int64)
    total, squares, best = np.empty(widest), np.empty(widest), np.empty((widest, 3))
    code[:] = -1
    leaf_of[:] = 0
    _statistics(residual, slot, 1, count, total, squares)
    for depth in range(DEPTH):
        nodes = 2**depth
        for node in range(nodes):
            best[node, 0] = -np.inf
            best[node, 1] = -1
        open_nodes = 0
        for node in range(nodes):
            n = count[node]
            if n >= 2 and squares[node] / n - (total[node] / n) ** 2 > MIN_VARIANCE:
                open_nodes += 1
            else:
                count[node] = 0
        if open_nodes == 0:
            return
        for i in range(rows):
            if slot[i] >= 0 and count[slot[i]] == 0:
                slot[i] = -1
        _best_splits(order, ranked, residual, slot, nodes, count, total, inverse, best)
        mean = np.zeros(nodes)
        for node in range(nodes):
            if count[node] > 0:
                mean[node] = total[node] / count[node]
            code[nodes - 1 + node] = int(best[node, 1])
            threshold[nodes - 1 + node] = best[node, 2]
        for i in range(rows):
            node = slot[i]
            if node >= 0:
                c = code[nodes - 1 + node]
                slot[i] = -1 if c < 0 else 2 * node + (columns[c, i] > threshold[nodes - 1 + node])
                if c >= 0:
                    leaf_of[i] = 2 * nodes - 1 + slot[i]
        _statistics(residual, slot, 2 * nodes, count, total, squares)
        for i in range(rows):
            child = slot[i]
            if child >= 0:
                before = residual[i] - mean[child // 2]
                after = residual[i] - total[child] / count[child]
                decrease[code[nodes - 1 + child // 2], i] += before**2 - after**2


@njit(cache=True, nogil=True)
def _leaf_values(residual, prob, leaf_of, shrink, value):
    """Write one Newton step per leaf: shrink · Σ residual / Σ p (1 - p)."""
    slope = np.zeros(len(value))
    value[:] = 0.0
    for i in range(len(leaf_of)):
        value[leaf_of[i]] += residual[i]
        slope[leaf_of[i]] += prob[i] * (1.0 - prob[i])
    for leaf in range(len(value)):
        value[leaf] = shrink * value[leaf] / slope[leaf] if slope[leaf] > 1e-150 else 0.0


@njit(cache=True, nogil=True)
def grow_stage(
    first, last, order, ranked, columns, inverse, labels, prob, raw, new_columns, new_raw, decrease
):
    """Grow the trees of classes ``first`` to ``last - 1`` and add them to the raw predictions.

    The decrease in squared error by the splits on each code at each point is added to ``decrease``
    (C, N); its sum over the points is scikit-learn's importance before normalisation.
    """
    classes, rows = raw.shape
    nodes = 2 ** (DEPTH + 1) - 1
    residual, value, threshold = np.empty(rows), np.empty(nodes), np.empty(nodes)
    code = np.empty(nodes, dtype=np.int64)
    leaf_of = np.empty(rows, dtype=np.int64)
    shrink = 1.0 if classes == 1 else (classes - 1) / classes
    for k in range(first, last):
        own = 1 if classes == 1 else k
        for i in range(rows):
            residual[i] = (1.0 if labels[i] == own else 0.0) - prob[k, i]
        _grow_tree(order, ranked, columns, residual, inverse, code, threshold, leaf_of, decrease)
        _leaf_values(residual, prob[k], leaf_of, shrink, value)
        for i in range(rows):
            raw[k, i] += LEARNING_RATE * value[leaf_of[i]]
        for i in range(new_raw.shape[1]):
            node = 0
            while code[node] >= 0:
                node = 2 * node + 1 + (new_columns[code[node], i] > threshold[node])
            new_raw[k, i] += LEARNING_RATE * value[node]


@njit(cache=True, nogil=True)
def add_impurity_decrease(left, right, code, threshold, columns, residual, decrease, leaf_of):
    """Add the decrease (C, N) of a tree of scikit-learn's and write the leaf of each point.

    A split on code c adds (r - m)² - (r - m')² for each of its points, where r is the residual of
    the point, m the mean residual of the node and m' that of the child. ``left`` is -1 at a leaf.
    """
    count, total = np.zeros(len(left)), np.zeros(len(left))
    for i in range(len(residual)):
        node = 0
        count[0] += 1.0
        total[0] += residual[i]
        while left[node] >= 0:
            node = left[node] if columns[code[node], i] <= threshold[node] else right[node]
            count[node] += 1.0
            total[node] += residual[i]
        leaf_of[i] = node
    for i in range(len(residual)):
        node = 0
        while left[node] >= 0:
            c = code[node]
            child = left[node] if columns[c, i] <= threshold[node] else right[node]
            before = residual[i] - total[node] / count[node]
            after = residual[i] - total[child] / count[child]
            decrease[c, i] += before**2 - after**2
            node = child
