"""Laws of mcc: its invariances, and the best of all assignments; aligned codes have its score."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.stats import ortho_group, spearmanr

from isolatent.evaluation import align_codes, correlation_matrix, linear_r2, mcc
from recoveries import random_recovery

METHODS = ["pearson", "spearman"]
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)


@settings(deadline=None, max_examples=60)
@given(seeds, sizes, sizes, st.sampled_from(METHODS))
def test_mcc_is_the_best_of_all_assignments(seed, factors, codes, method):
    _, z, h = random_recovery(seed, factors, codes)
    if method == "spearman":
        z, h = z.round(1), h.round(1)  # ties
        correlation = [[abs(spearmanr(u, v).statistic) for v in h.T] for u in z.T]
    else:
        correlation = [[abs(np.corrcoef(u, v)[0, 1]) for v in h.T] for u in z.T]
    places = list(range(codes)) + [None] * factors  # None: a factor without a code
    best = max(
        sum(correlation[f][c] for f, c in enumerate(order) if c is not None)
        for order in set(permutations(places, factors))
    )
    assert mcc(z, h, method=method) == pytest.approx(best / factors, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(seeds, sizes, sizes, st.sampled_from(METHODS))
def test_mcc_is_invariant_to_order_sign_scale_and_offset_of_codes(seed, factors, codes, method):
    rng, z, h = random_recovery(seed, factors, codes)
    scale = rng.choice([-1, 1], size=codes) * 10 ** rng.uniform(-3, 3, size=codes)
    mapped = (h * scale + rng.normal(size=codes))[:, rng.permutation(codes)]
    assert mcc(z, mapped, method=method) == pytest.approx(mcc(z, h, method=method), abs=1e-9)


def test_only_spearman_is_invariant_to_monotone_maps():
    _, z, h = random_recovery(0, 3, 3)
    bent = np.exp(np.column_stack([9 * h[:, 0], -300 * h[:, 1], h[:, 2] ** 3]).clip(-700, 700))
    bent[:, 1] = h[:, 1] ** 5
    assert mcc(z, bent, method="spearman") == pytest.approx(mcc(z, h, method="spearman"), abs=1e-12)
    assert mcc(z, bent) < mcc(z, h) - 0.1


def test_spearman_ranks_values_of_every_size():
    z = np.arange(40.0)
    assert mcc(z, 10.0 ** (-7 * z), method="spearman") == pytest.approx(1.0, abs=1e-12)


def test_factors_without_a_code_count_0_and_surplus_codes_cost_nothing():
    z = np.random.default_rng(0).normal(size=(50, 3))
    assert mcc(z, z[:, :1], per_factor=True) == pytest.approx([1, 0, 0])
    assert mcc(z[:, :1], z) == pytest.approx(1.0)


def test_a_dead_code_has_correlation_0():
    z = np.random.default_rng(0).normal(size=(50, 2))
    dead = np.column_stack([np.full(50, 0.1), z[:, 0]])
    assert mcc(z, dead, per_factor=True) == pytest.approx([1, 0])
    assert mcc(z, dead, per_factor=True, method="spearman") == pytest.approx([1, 0])


def test_mcc_never_exceeds_1():
    for seed in range(50):
        z = np.random.default_rng(seed).normal(size=(7, 1))
        assert mcc(z, -3 * z) <= 1.0


def test_mcc_rejects_an_unknown_method():
    with pytest.raises(ValueError, match="method must be one of 'pearson', 'spearman', got"):
        mcc([1, 2], [1, 2], method="kendall")


@pytest.mark.parametrize("seed", range(5))
def test_correlations_of_a_rotation_are_its_entries(seed):
    grid = np.array(list(product(range(5), repeat=3))) - 2.0  # uncorrelated, of equal variance
    rotation = ortho_group.rvs(3, random_state=seed)
    codes = grid @ rotation
    np.testing.assert_allclose(correlation_matrix(grid, codes), np.abs(rotation), atol=1e-12)
    matched = linear_sum_assignment(-np.abs(rotation))
    assert mcc(grid, codes) == pytest.approx(np.abs(rotation)[matched].mean(), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_correlations_of_noise_are_normal(method):
    rng, rows = np.random.default_rng(0), 20_000
    y, codes = rng.integers(50, size=(rows, 3)), rng.normal(size=(rows, 4))
    draws = np.abs(rng.normal(size=(2000, 3, 4))) / np.sqrt(rows)
    means = [draw[linear_sum_assignment(-draw)].mean() for draw in draws]
    assert mcc(y, codes, method=method) == pytest.approx(np.mean(means), abs=4 * np.std(means))


rng = np.random.default_rng(0)
Z = rng.normal(size=(500, 4))
NOISY = Z[:, [2, 0, 3, 1]] * [1, -2, 3, -4] + 0.3 * rng.normal(size=Z.shape)


def test_one_by_one_the_diagonal_is_the_mcc_and_signs_agree():
    factors, codes = align_codes(Z, NOISY, one_by_one=True)
    assert np.diag(correlation_matrix(factors, codes)).mean() == pytest.approx(mcc(Z, NOISY))
    assert ((factors * codes).sum(axis=0) > 0).all()


def test_linear_the_residuals_are_those_of_r2():
    mixed = NOISY @ rng.normal(size=(4, 6))
    factors, codes = align_codes(Z, mixed, one_by_one=False, random_state=3)
    r2 = 1 - ((factors - codes) ** 2).sum(0) / ((factors - factors.mean(0)) ** 2).sum(0)
    assert r2.mean() == pytest.approx(linear_r2(Z, mixed, random_state=3))


def test_a_factor_without_a_code_gets_zeros():
    _, codes = align_codes(Z, Z[:, 1], one_by_one=True)
    assert codes.shape == Z.shape
    assert (codes[:, [0, 2, 3]] == 0).all()
    assert (correlation_matrix(Z, codes)[:, 0] == 0).all()
