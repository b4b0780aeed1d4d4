"""Frequencies of cycles are found from codes that hold a part of their harmonics."""

import math

import numpy as np
import pytest
from scipy import signal

from isolatent.encoders import find_dynamic_axes
from isolatent.encoders.cycles import measure_cycle


def relaxation(modulus, rows, rng):
    noise = rng.normal(size=rows + 500) * math.sqrt(1 - modulus**2)
    return signal.lfilter([1], [1, -modulus], noise)[500:]


def noisy_cycle(period, rows, seed):
    """Codes of a cycle that is not a sine wave: light by day alone, and warmth that lags behind.

    The strength of the light changes slowly. Two further factors relax, and all codes are mixed.
    """
    rng = np.random.default_rng(seed)
    phase = 2 * np.pi * (np.arange(rows) / period + rng.uniform())
    strength = 1 + 0.3 * relaxation(0.99, rows, rng)
    light = strength * np.cos(phase).clip(0)
    warmth = signal.lfilter([0.3], [1, -0.7], light) + 0.2 * relaxation(0.8, rows, rng)
    factors = [light, warmth, relaxation(0.99, rows, rng), relaxation(0.9, rows, rng)]
    return np.stack(factors, 1) @ rng.normal(size=(4, 4)), rng


def oscillation(modulus, angle, rows, rng):
    noise = rng.normal(size=(rows + 1000, 2)) @ [1, 1j]
    return signal.lfilter([1], [1, -modulus * np.exp(1j * angle)], noise)[1000:]


def cycle_of(dynamics, period):
    """Return period and interval of the mode that is nearest in frequency."""
    nearest = np.abs(np.log(np.array(dynamics.periods) / period)).argmin()
    return dynamics.periods[nearest], dynamics.periods_intervals[nearest]


@pytest.mark.parametrize("period", [24.0, 17.3])
def test_intervals_cover_the_period_of_a_noisy_cycle(period):
    """Of 40 intervals 95 % or more; one-lag regression is off by more than its interval."""
    covered, pairs = [], []
    for seed in range(40):
        h, _ = noisy_cycle(period, 4000, seed)
        found, (low, high) = cycle_of(find_dynamic_axes(h, lag=2).dynamics, period)
        assert found == pytest.approx(period, rel=0.01)
        covered.append(low <= period <= high)
        one_lag = find_dynamic_axes(h[:-2], h_pos=h[2:]).dynamics
        low, high = cycle_of(one_lag, period / 2)[1]
        pairs.append(low <= period / 2 <= high)
    assert np.mean(covered) >= 0.95
    assert np.mean(pairs) < 0.5


@pytest.mark.parametrize("modulus", [0.95, 0.99])
def test_intervals_cover_the_angle_of_a_damped_oscillator(modulus):
    covered, errors = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = oscillation(modulus, 0.5, 5000, rng)
        h = np.stack([z.real, z.imag, z.real + relaxation(0.6, 5000, rng)], 1)
        dynamics = find_dynamic_axes(h).dynamics
        nearest = np.abs(np.array(dynamics.angles) - 0.5).argmin()
        low, high = dynamics.angles_intervals[nearest]
        covered.append(low <= 0.5 <= high)
        errors.append(dynamics.angles[nearest] - 0.5)
    assert np.mean(covered) >= 0.88
    # The least error of any estimate has the standard deviation sqrt((1 - r^2) / 2T).
    assert np.std(errors) < 2 * math.sqrt((1 - modulus**2) / 10_000)


def test_a_cycle_is_found_in_sessions_of_any_order_and_phase():
    h, rng = noisy_cycle(24.0, 6000, 0)
    parts = np.split(h, 12)
    order = rng.permutation(12)
    shuffled = np.concatenate([parts[k][k:] for k in order])
    groups = np.concatenate([np.full(500 - k, k) for k in order])
    axes = find_dynamic_axes(shuffled, lag=2, groups=groups)
    period, (low, high) = cycle_of(axes.dynamics, 24.0)
    assert period == pytest.approx(24, rel=0.005)
    assert low <= 24 <= high
    assert "frequencies of cycles" in axes.reason


def test_the_matrix_has_the_frequencies():
    h, _ = noisy_cycle(24.0, 4000, 1)
    dynamics = find_dynamic_axes(h, lag=2).dynamics
    values = np.linalg.eigvals(np.array(dynamics.matrix))
    np.testing.assert_allclose(sorted(np.abs(np.angle(values))), sorted(dynamics.angles), atol=1e-8)
    np.testing.assert_allclose(sorted(np.abs(values)), sorted(dynamics.moduli), atol=1e-8)


def measure(y, angle):
    count = len(y)
    return measure_cycle(
        y,
        angle,
        runs=np.zeros(count, dtype=np.int64),
        lag=1,
        length=100,
        weights=np.ones((3, -(-count // 100))),
    )


def test_codes_that_forget_within_a_period_have_no_cycle():
    rng = np.random.default_rng(0)
    assert measure(oscillation(0.8, 0.3, 5000, rng), 0.3) is None
    assert measure(rng.normal(size=5000) + 0j, 0.3) is None


def test_a_harmonic_is_not_taken_for_the_cycle():
    t = np.arange(3000)
    y = np.exp(0.3j * t) + 2 * np.exp(0.6j * t)
    assert measure(y, 0.28).angle == pytest.approx(0.3, abs=1e-3)
    assert measure(np.exp(0.6j * t), 0.3) is None


def test_even_weights_do_not_change_the_frequency():
    found = measure(oscillation(0.99, 0.4, 5000, np.random.default_rng(1)), 0.38)
    np.testing.assert_allclose(found.resampled, found.angle, atol=1e-9)
