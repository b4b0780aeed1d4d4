"""Exact support vector machines on one feature: scikit-learn's to convergence, and by hand."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from isolatent.evaluation import sap
from isolatent.evaluation.disentanglement.linear_svm import fit_linear_svms
from isolatent.evaluation.disentanglement.sap import predict


def gradients(x, y, classes, machines):
    """The gradient of each machine's objective, by the formula."""
    weight = len(y) / (classes * np.bincount(y))
    for k, (w, b) in enumerate(machines):
        own = y == (1 if classes == 2 else k)
        rest = weight[0] if classes == 2 else 1.0
        cost = 0.01 * np.where(own, weight[1 if classes == 2 else k], rest)
        sign = np.where(own, 1.0, -1.0)
        inside = 2 * cost * sign * np.maximum(0.0, 1 - sign * (w * x + b))
        yield np.array([w - inside @ x, b - inside.sum()])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.sampled_from([0.01, 1.0, 30.0]))
def test_machines_are_those_of_scikit_learn_run_to_convergence(seed, classes, scale):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(classes, size=300)])
    y[rng.uniform(size=len(y)) < 0.3] = 0  # classes of different sizes
    y = np.unique(y, return_inverse=True)[1]
    x = scale * (rng.normal() * y + rng.normal(size=len(y)) + rng.normal())
    k = int(y.max()) + 1
    order = np.argsort(x, kind="stable")
    ours = fit_linear_svms(x[order], y[order], k, 0.01)
    theirs = LinearSVC(C=0.01, class_weight="balanced", tol=1e-12, max_iter=100_000).fit(
        x[:, None], y
    )
    # liblinear stops once the objective is right to 1e-12, so its numbers are right to 1e-6.
    np.testing.assert_allclose(ours[:, 0], theirs.coef_[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[:, 1], theirs.intercept_, rtol=1e-5, atol=1e-6)
    for gradient in gradients(x, y, k, ours):
        np.testing.assert_allclose(gradient, 0.0, atol=1e-11 * max(scale, 1.0))
    new = scale * rng.normal(size=50)
    assert np.mean(predict(x[order], y[order], new, "exact") == theirs.predict(new[:, None])) > 0.97


def by_margins(own, costs):
    """The machine of one of the codes 0, 1, …, from every guess of which are inside its margin.

    With points S inside it minimises ½ (w² + b²) + Σ_S C_i (1 - s_i (w i + b))², which is a linear
    system; the guess is right if these are the points with s_i (w i + b) < 1.
    """
    points = range(len(costs))
    signs = [1 if i == own else -1 for i in points]
    for inside in chain.from_iterable(combinations(points, n) for n in range(len(costs) + 1)):
        curve, pull = np.eye(2), np.zeros(2)
        for i in inside:
            at = np.array([i, 1.0])
            curve += 2 * costs[i] * np.outer(at, at)
            pull += 2 * costs[i] * signs[i] * at
        w, b = np.linalg.solve(curve, pull)
        if inside == tuple(i for i in points if signs[i] * (w * i + b) < 1):
            return w, b
    raise AssertionError("a convex problem has a minimum")


@pytest.mark.parametrize("classes", [3, 5, 7, 10])
def test_lines_do_not_separate_the_classes_in_between(classes):
    """Of many classes in a row, machines for some of the middle ones are never first."""
    y, y_test = np.tile(np.arange(classes), 400), np.tile(np.arange(classes), 10)
    machines = [by_margins(own, [0.01 * 400] * classes) for own in range(classes)]
    right = 0
    for i in range(classes):
        scores = [w * i + b for w, b in machines]
        right += scores.index(max(scores)) == i
    # the gap of one code to a dead one, which always predicts the same class
    assert sap(y, y, test=(y_test, y_test), solver="exact") == pytest.approx(
        (right - 1) / classes, abs=1e-12
    )
    assert (right == classes) == (classes <= 3), right
