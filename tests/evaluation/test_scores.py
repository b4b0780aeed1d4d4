"""Laws of linear_r2 and mcc: what they do not change with, and brute-force oracles."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.linear_model import LinearRegression

from isolatent.evaluation import linear_r2, mcc

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)


def random_recovery(seed, factors, codes, rows=60):
    """Factors, and codes that are noisy mixtures of them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, factors))
    h = z @ rng.normal(size=(factors, codes)) + 0.3 * rng.normal(size=(rows, codes))
    return rng, z, h


# --- linear R² ---


@settings(deadline=None, max_examples=40)
@given(seeds, sizes, sizes, st.booleans())
def test_r2_is_invariant_to_invertible_affine_maps_of_codes_and_to_units_of_factors(
    seed, factors, codes, held_out
):
    rng, z, h = random_recovery(seed, factors, codes)
    rotation = np.linalg.qr(rng.normal(size=(codes, codes)))[0]
    mapped = h @ (rotation * rng.uniform(0.1, 10, size=codes)) + rng.normal(size=codes)
    rescaled = z * rng.uniform(0.1, 10, size=factors) + rng.normal(size=factors)
    expected = linear_r2(z, h, held_out=held_out)
    assert linear_r2(rescaled, mapped, held_out=held_out) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=20)
@given(seeds, sizes, sizes)
def test_r2_in_sample_is_that_of_scikit_learn(seed, factors, codes):
    _, z, h = random_recovery(seed, factors, codes)
    expected = LinearRegression().fit(h, z).score(h, z)
    assert linear_r2(z, h, held_out=False) == pytest.approx(expected, abs=1e-10)


def test_r2_held_out_is_that_of_scikit_learn_on_some_halves_that_the_seed_chooses():
    _, z, h = random_recovery(0, 3, 3, rows=41)
    fit = np.sort(np.random.default_rng(5).permutation(41)[:20])
    rest = np.setdiff1d(np.arange(41), fit)
    expected = LinearRegression().fit(h[fit], z[fit]).score(h[rest], z[rest])
    assert linear_r2(z, h, seed=5) == pytest.approx(expected, abs=1e-10)
    assert linear_r2(z, h, seed=5) != linear_r2(z, h, seed=6)


def test_a_random_rotation_has_r2_of_1_but_a_low_mcc():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 10))
    h = z @ np.linalg.qr(rng.normal(size=(10, 10)))[0]
    assert linear_r2(z, h) == pytest.approx(1.0, abs=1e-10)
    assert mcc(z, h) < 0.7


def test_noise_has_r2_of_about_0_held_out_though_not_in_sample():
    rng = np.random.default_rng(0)
    z, h = rng.normal(size=(400, 5)), rng.normal(size=(400, 40))
    assert -0.4 < linear_r2(z, h) < 0.0
    assert linear_r2(z, h, held_out=False) > 0.05


def test_r2_does_not_change_with_collinear_or_dead_codes():
    _, z, h = random_recovery(0, 3, 3)
    redundant = np.hstack([h, h[:, :1] - 2 * h[:, 1:2] + 1, h[:, :1], np.full((60, 1), 0.1)])
    for held_out in (True, False):
        expected = linear_r2(z, h, held_out=held_out)
        assert linear_r2(z, redundant, held_out=held_out) == pytest.approx(expected, abs=1e-9)


def test_r2_of_dead_codes_in_sample_is_0():
    assert linear_r2(np.arange(9.0), np.zeros((9, 2)), held_out=False) == pytest.approx(0.0)


@pytest.mark.parametrize(("held_out", "needed"), [(True, 10), (False, 5)])
def test_r2_says_how_many_rows_it_needs(held_out, needed):
    rng = np.random.default_rng(0)
    z, h = rng.normal(size=(needed, 2)), rng.normal(size=(needed, 3))
    linear_r2(z, h, held_out=held_out)
    with pytest.raises(ValueError, match=f"at least {needed} rows .* got {needed - 1}"):
        linear_r2(z[1:], h[1:], held_out=held_out)


def test_r2_refuses_a_factor_that_is_constant_in_the_scored_half():
    z = np.zeros((40, 1))
    z[np.random.default_rng(0).permutation(40)[0]] = 1.0  # in the fitted half
    with pytest.raises(ValueError, match="column 0 constant there"):
        linear_r2(z, np.arange(40.0), seed=0)
    assert 0 <= linear_r2(z, np.arange(40.0), held_out=False) < 0.2


def test_r2_is_a_number_or_an_error_whatever_the_outliers():
    _, z, h = random_recovery(0, 1, 1)
    fitted = np.random.default_rng(0).permutation(60)[0]
    z[fitted] = 1e9
    assert np.isfinite(linear_r2(z, h, seed=0))
    z[fitted] = 1e18  # next to it, the rest is constant to the last digit
    with pytest.raises(ValueError, match="column 0 constant there"):
        linear_r2(z, h, seed=0)


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_r2_refuses_a_bad_seed(seed):
    with pytest.raises((ValueError, TypeError), match="seed must be an integer >= 0"):
        linear_r2(np.arange(20.0), np.arange(20.0), seed=seed)


# --- MCC ---


@settings(deadline=None, max_examples=60)
@given(seeds, sizes, sizes, st.sampled_from(["pearson", "spearman"]))
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
@given(seeds, sizes, sizes, st.sampled_from(["pearson", "spearman"]))
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


def test_mcc_refuses_an_unknown_method():
    with pytest.raises(ValueError, match="method must be one of 'pearson', 'spearman', got"):
        mcc([1, 2], [1, 2], method="kendall")


# --- both ---


@pytest.mark.parametrize("score", [linear_r2, mcc])
@pytest.mark.parametrize("scale", [1e-310, 1e300])
def test_scores_do_not_depend_on_units_even_extreme_ones(score, scale):
    _, z, h = random_recovery(0, 3, 3)
    assert score(z * scale, h * scale) == pytest.approx(score(z, h), abs=1e-6)


@pytest.mark.parametrize("score", [linear_r2, mcc])
def test_scores_are_floats_or_one_value_per_factor(score):
    _, z, h = random_recovery(0, 3, 3)
    each = score(z, h, per_factor=True)
    assert each.shape == (3,)
    assert type(score(z, h)) is float
    assert score(z, h) == pytest.approx(each.mean())


@pytest.mark.parametrize("score", [linear_r2, mcc])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_and_arrays_score_the_same(score, dtype):
    _, z, h = random_recovery(0, 3, 3)
    z, h = torch.tensor(z, dtype=dtype, requires_grad=True), torch.tensor(h, dtype=dtype)
    assert score(z, h) == score(z.detach().numpy(), h.numpy())


@pytest.mark.parametrize("score", [linear_r2, mcc])
def test_scores_leave_their_arguments_alone(score):
    _, z, h = random_recovery(0, 3, 3)
    before = z.copy(), h.copy()
    score(z, h)
    np.testing.assert_array_equal(z, before[0])
    np.testing.assert_array_equal(h, before[1])
