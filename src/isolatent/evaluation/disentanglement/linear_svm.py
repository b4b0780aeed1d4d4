"""Linear support vector machines on one feature, solved exactly by Newton's method.

A machine separates a class from the rest with the objective of scikit-learn's `LinearSVC`,

    ½ (w² + b²) + Σ_i C_i max(0, 1 - s_i (w x_i + b))²,    s_i = ±1,

whose intercept is penalised like the weight. The objective is strictly convex and piecewise
quadratic in (w, b), so Newton's method converges in a few steps. On sorted values the points inside
the margin lie on one side of a threshold, so prefix sums of 1, x and x² give the objective, its
gradient and its Hessian without a pass over the points.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["fit_linear_svms"]

MAX_STEPS = 200


@njit(cache=True, nogil=True)
def _prefix_sums(values, sums):
    """Write the sums of 1, x and x² over the first n values, for every n."""
    for n in range(len(values)):
        x = values[n]
        sums[n + 1, 0] = sums[n, 0] + 1.0
        sums[n + 1, 1] = sums[n, 1] + x
        sums[n + 1, 2] = sums[n, 2] + x * x


@njit(cache=True, nogil=True)
def _add_loss(sums, n, from_start, sign, cost, w, b, out):
    """Add the loss of the points of one sign in the margin: the first n, or all after them."""
    last = len(sums) - 1
    if from_start:
        m0, m1, m2 = sums[n, 0], sums[n, 1], sums[n, 2]
    else:
        m0, m1, m2 = (
            sums[last, 0] - sums[n, 0],
            sums[last, 1] - sums[n, 1],
            sums[last, 2] - sums[n, 2],
        )
    # Σ (1 - s (w x + b))² and its derivatives; s² = 1
    out[0] += cost * (
        m0 - 2.0 * sign * (w * m1 + b * m0) + w * w * m2 + 2.0 * w * b * m1 + b * b * m0
    )
    out[1] += cost * 2.0 * (w * m2 + b * m1 - sign * m1)
    out[2] += cost * 2.0 * (w * m1 + b * m0 - sign * m0)
    out[3] += cost * 2.0 * m2
    out[4] += cost * 2.0 * m1
    out[5] += cost * 2.0 * m0


@njit(cache=True, nogil=True)
def _in_margin(values, w, b, sign):
    """Return (n, from_start): the first n sorted values, or those after, have s (w x + b) < 1."""
    if w == 0.0:
        return (len(values) if sign * b < 1.0 else 0), True
    edge = (sign - b) / w  # where w x + b = s
    return np.searchsorted(values, edge), sign * w > 0


@njit(cache=True, nogil=True)
def _objective(own, own_sums, rest, rest_sums, cost_own, cost_rest, w, b, out):
    """Write the objective, its gradient (2) and its Hessian (ww, wb, bb) at (w, b)."""
    out[0], out[1], out[2] = 0.5 * (w * w + b * b), w, b
    out[3], out[4], out[5] = 1.0, 0.0, 1.0
    n, start = _in_margin(own, w, b, 1.0)
    _add_loss(own_sums, n, start, 1.0, cost_own, w, b, out)
    n, start = _in_margin(rest, w, b, -1.0)
    _add_loss(rest_sums, n, start, -1.0, cost_rest, w, b, out)


@njit(cache=True, nogil=True)
def _minimise(own, own_sums, rest, rest_sums, cost_own, cost_rest):
    """Return the minimum (w, b), by Newton's method with backtracking."""
    w = b = 0.0
    out, trial = np.empty(6), np.empty(6)
    _objective(own, own_sums, rest, rest_sums, cost_own, cost_rest, w, b, out)
    for _ in range(MAX_STEPS):
        size = out[3] * out[5] - out[4] * out[4]
        step_w = -(out[5] * out[1] - out[4] * out[2]) / size
        step_b = -(out[3] * out[2] - out[4] * out[1]) / size
        descent = out[1] * step_w + out[2] * step_b
        if descent > -1e-14 * (1.0 + abs(out[0])):
            # The objective is exact up to rounding, (w, b) up to its square root: step once more.
            return w + step_w, b + step_b
        scale = 1.0
        while scale > 1e-10:
            new_w, new_b = w + scale * step_w, b + scale * step_b
            _objective(own, own_sums, rest, rest_sums, cost_own, cost_rest, new_w, new_b, trial)
            if trial[0] <= out[0] + 1e-4 * scale * descent:
                break
            scale *= 0.5
        if scale <= 1e-10:
            break
        w, b = new_w, new_b
        out[:] = trial
    return w, b


@njit(cache=True, nogil=True)
def fit_linear_svms(values, labels, n_classes, cost):
    """Return weight and intercept (K, 2) of the machine of each class against the rest.

    For two classes there is one machine, of the second. ``values`` are in ascending order and each
    of ``n_classes`` occurs in their ``labels``. As in `LinearSVC(class_weight="balanced")` a class
    with n of N points has the cost C N / (K n); for three or more classes the rest has the cost C.
    """
    rows = len(values)
    coefficients = np.empty((1 if n_classes == 2 else n_classes, 2))
    count = np.zeros(n_classes, dtype=np.int64)
    for label in labels:
        count[label] += 1
    for k in range(len(coefficients)):
        target = 1 if n_classes == 2 else k
        own, rest = np.empty(count[target]), np.empty(rows - count[target])
        i = j = 0
        for n in range(rows):
            if labels[n] == target:
                own[i] = values[n]
                i += 1
            else:
                rest[j] = values[n]
                j += 1
        own_sums, rest_sums = np.zeros((len(own) + 1, 3)), np.zeros((len(rest) + 1, 3))
        _prefix_sums(own, own_sums)
        _prefix_sums(rest, rest_sums)
        cost_own = cost * rows / (n_classes * count[target])
        cost_rest = cost * rows / (n_classes * count[0]) if n_classes == 2 else cost
        coefficients[k] = _minimise(own, own_sums, rest, rest_sums, cost_own, cost_rest)
    return coefficients
