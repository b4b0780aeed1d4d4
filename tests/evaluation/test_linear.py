"""Laws of linear_r2: its invariances, and scikit-learn as the oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

from isolatent.evaluation import linear_r2, mcc
from recoveries import random_recovery

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)


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


def test_r2_held_out_is_that_of_scikit_learn_on_random_halves():
    _, z, h = random_recovery(0, 3, 3, rows=41)
    fit = np.sort(np.random.default_rng(5).permutation(41)[:20])
    rest = np.setdiff1d(np.arange(41), fit)
    expected = LinearRegression().fit(h[fit], z[fit]).score(h[rest], z[rest])
    assert linear_r2(z, h, random_state=5) == pytest.approx(expected, abs=1e-10)
    assert linear_r2(z, h, random_state=5) != linear_r2(z, h, random_state=6)


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
def test_r2_states_the_rows_it_needs(held_out, needed):
    rng = np.random.default_rng(0)
    z, h = rng.normal(size=(needed, 2)), rng.normal(size=(needed, 3))
    linear_r2(z, h, held_out=held_out)
    with pytest.raises(ValueError, match=f"at least {needed} rows .* got {needed - 1}"):
        linear_r2(z[1:], h[1:], held_out=held_out)


def test_r2_rejects_a_factor_that_is_constant_in_the_scored_half():
    z = np.zeros((40, 1))
    z[np.random.default_rng(0).permutation(40)[0]] = 1.0  # in the fitted half
    with pytest.raises(ValueError, match="column 0 constant there"):
        linear_r2(z, np.arange(40.0), random_state=0)
    assert 0 <= linear_r2(z, np.arange(40.0), held_out=False) < 0.2


def test_r2_with_outliers_is_finite_or_an_error():
    _, z, h = random_recovery(0, 1, 1)
    fitted = np.random.default_rng(0).permutation(60)[0]
    z[fitted] = 1e9
    assert np.isfinite(linear_r2(z, h, random_state=0))
    z[fitted] = 1e18  # next to it, the rest is constant to the last digit
    with pytest.raises(ValueError, match="column 0 constant there"):
        linear_r2(z, h, random_state=0)


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_r2_rejects_a_bad_random_state(seed):
    with pytest.raises((ValueError, TypeError), match="random_state must be an integer >= 0"):
        linear_r2(np.arange(20.0), np.arange(20.0), random_state=seed)
