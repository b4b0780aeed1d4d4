"""SAP: both solvers against a loop over scikit-learn's, and gaps by hand."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group
from sklearn.svm import LinearSVC

from isolatent.evaluation import sap
from isolatent.evaluation.disentanglement.samples import as_split

SOLVER = pytest.mark.parametrize("solver", ["sklearn", "exact"])


def noisy(seed, rows=900, values=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(values, size=(rows, 2))
    return y, y @ rng.normal(size=(2, 3)) + rng.normal(size=(rows, 3))


def loop_over_svms(y, c, **options):
    """SAP by one LinearSVC for each code and each factor."""
    points = as_split(y, c, None, 0)
    accuracy = np.array(
        [
            [
                LinearSVC(C=0.01, class_weight="balanced", dual=False, **options)
                .fit(a[:, None], own)
                .score(b[:, None], truth)
                for own, truth in zip(points.train.classes.T, points.test.classes.T, strict=True)
            ]
            for a, b in zip(points.train.codes.T, points.test.codes.T, strict=True)
        ]
    )
    ordered = np.sort(accuracy, axis=0)
    return np.mean(ordered[-1] - ordered[-2])


@pytest.mark.parametrize(
    ("solver", "options"), [("sklearn", {}), ("exact", {"tol": 1e-10, "max_iter": 100_000})]
)
@pytest.mark.parametrize("values", [2, 4])
def test_sap_is_that_of_a_loop_over_linear_svcs(solver, options, values):
    y, c = noisy(0, values=values)
    expected = loop_over_svms(y, c, **options)
    assert sap(y, c, solver=solver) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_solvers_agree_but_for_points_between_their_boundaries(seed):
    y, c = noisy(seed, rows=3000)
    exact = sap(y, c, solver="exact")
    assert sap(y, c) == sap(y, c, solver="sklearn") == pytest.approx(exact, abs=3 / 1000)


@SOLVER
def test_a_perfect_code_is_ahead_of_chance(solver):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(3000, 2))
    points = as_split(y, y, None, 0)
    for codes in (y * 4.0, -4.0 * y[:, ::-1], np.hstack([4.0 * y, np.ones((3000, 2))])):
        # a code of the other factor predicts one class for each of its values
        assert sap(y, codes, solver=solver) == pytest.approx(0.5, abs=0.04)
    one = sap(
        y[:, 0], 4.0 * y[:, 0], solver=solver
    )  # one code: ahead of a dead one, which predicts the frequent
    frequent = np.bincount(points.train.classes[:, 0]).argmax()
    assert one == pytest.approx(1 - np.mean(points.test.classes[:, 0] == frequent))


@SOLVER
def test_noise_dead_codes_and_rotations_have_no_gap(solver):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(6000, 2))
    assert 0 <= sap(y, rng.normal(size=(6000, 3)), solver=solver) < 0.04
    assert sap(y, np.ones((6000, 3)), solver=solver) == 0.0
    turned = (2.0 * y - 1) @ [[1.0, -1.0], [1.0, 1.0]] + rng.normal(size=(6000, 2))
    assert sap(y, turned, solver=solver) < 0.04


@SOLVER
def test_a_class_missing_from_the_training_points_is_never_predicted(solver):
    fitted, scored = np.tile([0, 1], 50), np.full(20, 2)
    assert sap(fitted, fitted, test=(scored, scored), solver=solver) == 0.0
    constant = np.zeros(20)
    with_one_value = sap(
        constant, np.arange(20), test=(np.array([0, 0, 0, 1]), np.arange(4)), solver=solver
    )
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


@SOLVER
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_order_and_sign_of_codes_do_not_matter(solver, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=(150, 2))
    c = y @ rng.normal(size=(2, 3)) + rng.normal(size=(150, 3))
    mapped = (c * rng.choice([-1, 1], size=3))[:, rng.permutation(3)]
    assert sap(y, mapped, solver=solver) == pytest.approx(sap(y, c, solver=solver), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_continuous_gap_of_a_rotation_is_that_of_its_squared_entries(seed):
    grid = np.stack(np.meshgrid(*[np.arange(5) - 2.0] * 3), -1).reshape(-1, 3)
    rotation = ortho_group.rvs(3, random_state=seed)
    ordered = np.sort(rotation**2, axis=1)
    gap = np.mean(ordered[:, -1] - ordered[:, -2])
    assert sap(grid, grid @ rotation, continuous=True) == pytest.approx(gap, abs=1e-12)


def test_the_continuous_gap_of_noise_is_that_of_a_squared_normal():
    # one code: r² against that of a dead one, with mean 1/N and deviation √2/N
    rng, rows = np.random.default_rng(0), 20_000
    y, code = rng.integers(50, size=(rows, 40)), rng.normal(size=rows)
    found = sap(y, code, continuous=True)
    assert found == pytest.approx(1 / rows, abs=4 * sqrt(2 / 40) / rows)


def test_an_unknown_solver_is_rejected():
    with pytest.raises(ValueError, match="solver must be one of 'sklearn', 'exact', got 'newton'"):
        sap(np.arange(9) % 3, np.arange(9), solver="newton")
