"""What theory says each metric is for rotated factors and for codes of noise, within 4 σ."""

from itertools import product
from math import cos, log, pi, sin, sqrt

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import ortho_group

from isolatent.evaluation import (
    beta_vae_score,
    dci,
    explicitness,
    factor_vae_score,
    mcc,
    mig,
    modularity,
    sap,
)

GRID = np.array(list(product(range(5), repeat=3))) - 2.0  # uncorrelated, of equal variance
PLANE = np.array(list(product(range(8), repeat=2))) - 3.5
DIAGONAL = np.array([[1.0, 1.0], [1.0, -1.0]])
VOTES = {"train": 2000, "held_out": 2000}


def chance(p, n):
    """A share p of n independent hits, within four standard deviations."""
    return pytest.approx(p, abs=4 * sqrt(p * (1 - p) / n))


# --- rotations ---


@pytest.mark.parametrize("seed", range(5))
def test_correlations_of_a_rotation_are_its_entries(seed):
    turn = ortho_group.rvs(3, random_state=seed)
    codes = GRID @ turn  # corr(y_f, c_j) is turn_fj
    matched = linear_sum_assignment(-np.abs(turn))
    assert mcc(GRID, codes) == pytest.approx(np.abs(turn)[matched].mean(), abs=1e-12)
    ordered = np.sort(turn**2, axis=1)
    gap = np.mean(ordered[:, -1] - ordered[:, -2])
    assert sap(GRID, codes, continuous=True) == pytest.approx(gap, abs=1e-12)


def test_on_the_diagonal_both_codes_know_as_much_of_both_factors():
    codes = PLANE @ DIAGONAL
    # I(y₁ + y₂; y₁) = H(y₁ + y₂) - H(y₂), and y₁ - y₂ has the same distribution
    assert mig(PLANE, codes) == pytest.approx(0.0, abs=1e-12)
    assert modularity(PLANE, codes) == pytest.approx(0.0, abs=1e-12)
    sums = np.convolve(np.ones(8), np.ones(8)) / 64
    one = (-(sums * np.log(sums)).sum() - log(8)) / log(8)
    assert mig(PLANE, codes[:, 0]) == pytest.approx(one, abs=1e-12)


def test_on_the_diagonal_no_batch_tells_which_factor_it_shares():
    codes = PLANE @ DIAGONAL  # whole numbers, so that variances tie exactly
    assert beta_vae_score(PLANE, codes, **VOTES) == chance(1 / 2, 2000)
    assert factor_vae_score(PLANE, codes, **VOTES) == chance(1 / 2, 2000)


@pytest.mark.parametrize("angle", [0.2, 0.5, 1.2])
def test_short_of_the_diagonal_every_vote_is_right(angle):
    # With y₁ fixed the codes keep sin² and cos² of their variance, which batches of 64 tell apart.
    turn = [[cos(angle), -sin(angle)], [sin(angle), cos(angle)]]
    assert factor_vae_score(PLANE, PLANE @ turn, **VOTES) > 0.999


def test_on_the_diagonal_every_code_serves_both_factors_alike():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(1500, 2))
    turned = dci(y, y @ DIAGONAL + 0.05 * rng.normal(size=y.shape), booster="presorted")
    np.testing.assert_allclose(turned.importance, 0.5, atol=0.1)
    assert turned.disentanglement == pytest.approx(0.0, abs=0.03)  # 1 - H(½ + 0.1) to base 2
    assert turned.completeness == pytest.approx(0.0, abs=0.03)
    assert turned.informativeness > 0.98


# --- noise ---

ROWS, BINS = 20_000, 20


def test_information_of_noise_is_the_bias_of_its_estimate():
    """2 N I is χ² with (bins - 1)(values - 1) degrees of freedom; codes fill their bins evenly."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=(ROWS, 12))
    freedom = (BINS - 1) * (5 - 1)
    deviation = sqrt(2 * freedom) / (2 * ROWS) / log(5)
    one = mig(y, rng.uniform(size=ROWS))
    bias = freedom / (2 * ROWS) / log(5)
    assert one == pytest.approx(bias, abs=4 * deviation / sqrt(12))
    # the gap of two is |x - x'|, for a normal x: 2 σ / √π, with a deviation of 0.853 σ
    two = mig(y, rng.uniform(size=(ROWS, 2)))
    assert two == pytest.approx(2 / sqrt(pi) * deviation, abs=4 * 0.853 * deviation / sqrt(12))


@pytest.mark.parametrize("sizes", [(5, 5, 5), (2, 5, 10)])
def test_modularity_of_noise_is_that_of_independent_chi_squares(sizes):
    rng = np.random.default_rng(0)
    y = np.stack([rng.integers(n, size=ROWS) for n in sizes], axis=1)
    freedom = (BINS - 1) * (np.array(sizes) - 1)
    squares = rng.chisquare(freedom, size=(100_000, len(sizes))) ** 2
    top = squares.max(axis=1)
    each = 1 - (squares.sum(axis=1) - top) / (top * (len(sizes) - 1))
    found = modularity(y, rng.uniform(size=(ROWS, 30)))
    assert found == pytest.approx(each.mean(), abs=4 * each.std() / sqrt(30))


def test_correlations_of_noise_are_normal():
    rng = np.random.default_rng(0)
    y, codes = rng.integers(50, size=(ROWS, 3)), rng.normal(size=(ROWS, 4))
    draws = np.abs(rng.normal(size=(2000, 3, 4))) / sqrt(ROWS)
    means = [draw[linear_sum_assignment(-draw)].mean() for draw in draws]
    for method in ("pearson", "spearman"):
        expected = pytest.approx(np.mean(means), abs=4 * np.std(means))
        assert mcc(y, codes, method=method) == expected
    # one code: r² beside that of a dead one, with mean 1/N and deviation √2/N
    many = rng.integers(50, size=(ROWS, 40))
    single = sap(many, codes[:, 0], continuous=True)
    assert single == pytest.approx(1 / ROWS, abs=4 * sqrt(2 / 40) / ROWS)


def test_votes_of_noise_and_of_dead_codes_are_right_by_chance():
    rng = np.random.default_rng(0)
    y, noise = rng.integers(4, size=(ROWS, 3)), rng.normal(size=(ROWS, 4))
    assert beta_vae_score(y, noise, **VOTES) == chance(1 / 3, 2000)
    assert factor_vae_score(y, noise, **VOTES) == chance(1 / 3, 2000)
    assert beta_vae_score(y, np.zeros((ROWS, 2)), **VOTES) == chance(1 / 3, 2000)
    assert factor_vae_score(y, np.zeros((ROWS, 2)), **VOTES) == 0.0
    # one code always votes for the same factor, whatever it knows
    assert factor_vae_score(y, y[:, 0], **VOTES) == chance(1 / 3, 2000)


def test_classifiers_of_noise_are_right_by_chance():
    rng = np.random.default_rng(0)
    y, noise = rng.integers(3, size=(3000, 2)), rng.normal(size=(3000, 2))
    found = dci(y, noise, booster="presorted")
    assert found.informativeness == chance(1 / 3, 2 * 1000)
    np.testing.assert_allclose(found.importance, 0.5, atol=0.1)
    assert found.disentanglement == pytest.approx(0.0, abs=0.03)
    # AUC: deviation √((n + 1) / 12 n₀ n₁) of each factor, with 500 held-out points of each class
    binary = rng.integers(2, size=(3000, 4))
    deviation = sqrt(1001 / (12 * 500 * 500) / 4)
    assert explicitness(binary, noise) == pytest.approx(0.5, abs=4 * deviation)
