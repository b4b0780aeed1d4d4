"""SAP: exact support vector machines against LinearSVC, and gaps by hand."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from isolatent.evaluation import sap
from isolatent.evaluation.disentanglement.linear_svm import separate_classes
from isolatent.evaluation.disentanglement.samples import split
from isolatent.evaluation.disentanglement.sap import predict, sap_of


def machine(x, y, **options):
    return LinearSVC(C=0.01, class_weight="balanced", **options).fit(x[:, None], y)


def slopes(x, y, classes, machines):
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
    ours = np.empty((1 if k == 2 else k, 2))
    separate_classes(x[order], y[order], k, 0.01, ours)
    theirs = machine(x, y, tol=1e-12, max_iter=100_000)
    # liblinear stops once the objective is right to 1e-12, so its numbers are right to 1e-6.
    np.testing.assert_allclose(ours[:, 0], theirs.coef_[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[:, 1], theirs.intercept_, rtol=1e-5, atol=1e-6)
    for slope in slopes(x, y, k, ours):
        np.testing.assert_allclose(slope, 0.0, atol=1e-11 * max(scale, 1.0))
    new = scale * rng.normal(size=50)
    assert np.mean(predict(x[order], y[order], new) == theirs.predict(new[:, None])) > 0.97


def test_sap_is_that_of_a_loop_over_linear_svcs():
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=(900, 2))
    c = y @ rng.normal(size=(2, 3)) + rng.normal(size=(900, 3))
    points = split(y, c, None, 0)
    accuracy = np.array(
        [
            [
                machine(a, own, tol=1e-10, max_iter=100_000).score(b[:, None], truth)
                for own, truth in zip(points.train.classes.T, points.test.classes.T, strict=True)
            ]
            for a, b in zip(points.train.codes.T, points.test.codes.T, strict=True)
        ]
    )
    ordered = np.sort(accuracy, axis=0)
    assert sap(y, c) == pytest.approx(np.mean(ordered[-1] - ordered[-2]), abs=1e-12)


def test_a_perfect_code_is_ahead_of_chance():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(3000, 2))
    points = split(y, y, None, 0)
    for codes in (y * 4.0, -4.0 * y[:, ::-1], np.hstack([4.0 * y, np.ones((3000, 2))])):
        # a code of the other factor predicts one class for each of its values
        assert sap(y, codes) == pytest.approx(0.5, abs=0.04)
    one = sap(y[:, 0], 4.0 * y[:, 0])  # one code: ahead of a dead one, which predicts the frequent
    frequent = np.bincount(points.train.classes[:, 0]).argmax()
    assert one == pytest.approx(1 - np.mean(points.test.classes[:, 0] == frequent))


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
    # of one code, ahead of a dead one that always predicts the same class
    assert sap(y, y, test=(y_test, y_test)) == pytest.approx((right - 1) / classes, abs=1e-12)
    assert (right == classes) == (classes <= 3), right


def test_noise_dead_codes_and_rotations_have_no_gap():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(6000, 2))
    assert 0 <= sap(y, rng.normal(size=(6000, 3))) < 0.04
    assert sap(y, np.ones((6000, 3))) == 0.0
    turned = (2.0 * y - 1) @ [[1.0, -1.0], [1.0, 1.0]] + rng.normal(size=(6000, 2))
    assert sap(y, turned) < 0.04


def test_a_class_missing_among_the_fitted_points_is_never_predicted():
    fitted, scored = np.tile([0, 1], 50), np.full(20, 2)
    assert sap(fitted, fitted, test=(scored, scored)) == 0.0
    constant = np.zeros(20)
    with_one_value = sap(constant, np.arange(20), test=(np.array([0, 0, 0, 1]), np.arange(4)))
    assert with_one_value == 0.0  # right three times of four, as a dead code is


def test_continuous_factors_have_squared_correlations_by_hand():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2))
    h = z @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(400, 3))
    squares = np.square(np.corrcoef(z.T, h.T)[:2, 2:])
    ordered = np.sort(squares, axis=1)
    expected = np.mean(ordered[:, -1] - ordered[:, -2])
    assert sap(z, h, continuous=True) == pytest.approx(expected, abs=1e-12)
    assert sap(z, -9.0 * h[:, ::-1] + 4, continuous=True) == pytest.approx(expected, abs=1e-12)
    assert sap(z[:, 0], h[:, 0], continuous=True) == pytest.approx(squares[0, 0], abs=1e-12)
    with pytest.raises(ValueError, match="test must be left out with continuous=True"):
        sap(z, h, continuous=True, test=(z, h))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_order_and_sign_of_codes_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=(150, 2))
    c = y @ rng.normal(size=(2, 3)) + rng.normal(size=(150, 3))
    mapped = (c * rng.choice([-1, 1], size=3))[:, rng.permutation(3)]
    assert sap(y, mapped) == pytest.approx(sap(y, c), abs=1e-12)


def test_resampling_every_point_once_gives_the_score():
    y = np.random.default_rng(0).integers(3, size=(90, 2))
    score = sap_of(split(y, y + 0.1, None, 0))
    assert score.of_counts(np.ones(score.rows)) == pytest.approx(score.value, abs=1e-12)
