"""MIG and its mutual information: closed forms, counts by loops, and the bias of noise."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from counted_information import counted_information, mixture
from isolatent.evaluation import mig
from isolatent.evaluation.disentanglement.mig import (
    discretise,
    mig_statistic,
    mutual_information,
)
from isolatent.evaluation.disentanglement.samples import as_sample

GRID = np.array(list(product(range(3), range(4), range(5))))
EVEN = np.array(list(product(np.arange(4) - 1.5, repeat=3)))  # no value on the edge of a bin
LOOSE = {"deadline": None, "max_examples": 25}
seeds = st.integers(0, 2**32 - 1)


def counted_mig(y, codes):
    mutual, entropy = counted_information(y, codes)
    gaps = []
    for column, h in zip(mutual.T, entropy, strict=True):
        first, second = sorted([*column, 0.0], reverse=True)[:2]
        gaps.append((first - second) / h)
    return np.mean(gaps)


@settings(**LOOSE)
@given(seeds, st.integers(1, 4), st.integers(1, 4))
def test_information_and_mig_are_those_of_counts(seed, factors, codes):
    _, y, c = mixture(seed, factors, codes)
    mutual, entropy = counted_information(y, c)
    info = mutual_information(as_sample(y, c))
    np.testing.assert_allclose(info.mutual, mutual, atol=1e-12)
    np.testing.assert_allclose(info.entropy, entropy, atol=1e-12)
    assert mig(y, c) == pytest.approx(counted_mig(y, c), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_mig_of_a_rotation_is_that_of_counts(seed):
    codes = EVEN @ ortho_group.rvs(3, random_state=seed)
    assert mig(EVEN, codes) == pytest.approx(counted_mig(EVEN, codes), abs=1e-12)
    assert 0 < mig(EVEN, codes) < 1  # each code is informative, none determines a factor


def test_on_the_diagonal_two_codes_have_equal_information():
    plane = np.array(list(product(range(8), repeat=2))) - 3.5
    codes = plane @ [[1.0, 1.0], [1.0, -1.0]]
    # I(y₁ + y₂; y₁) = H(y₁ + y₂) - H(y₂), and y₁ - y₂ has the same distribution
    assert mig(plane, codes) == pytest.approx(0.0, abs=1e-12)
    sums = np.convolve(np.ones(8), np.ones(8)) / 64
    one = (-(sums * np.log(sums)).sum() - math.log(8)) / math.log(8)
    assert mig(plane, codes[:, 0]) == pytest.approx(one, abs=1e-12)


@pytest.mark.parametrize("codes", [GRID, -7.0 * GRID[:, ::-1] + 3.0, np.sqrt(GRID[:, [1, 2, 0]])])
def test_mig_is_1_if_each_factor_is_a_code(codes):
    assert mig(GRID, codes) == pytest.approx(1.0)


def test_a_factor_with_more_values_than_bins_has_the_gap_of_its_bins():
    y = np.array(list(product(range(40), range(2))))
    # 40 values in 20 bins of two each: a code has log 20 of log 40
    expected = (math.log(20) / math.log(40) + 1) / 2
    assert mig(y, y) == pytest.approx(expected)


def test_dead_codes_do_not_change_mig_and_alone_score_0():
    dead = np.hstack([GRID, np.full((len(GRID), 2), 0.3)])
    assert mig(GRID, dead) == pytest.approx(1.0)
    assert mig(GRID, dead[:, 3:]) == 0.0


def test_one_code_has_the_gap_to_a_dead_one():
    both = np.hstack([GRID[:, :1], np.zeros((len(GRID), 1))])
    assert mig(GRID, GRID[:, 0]) == pytest.approx(mig(GRID, both)) == pytest.approx(1 / 3)


def test_the_bins_are_the_published_ones():
    rng = np.random.default_rng(0)
    c = rng.normal(size=(500, 3))
    expected = np.stack([np.digitize(v, np.histogram(v, 20)[1][:-1]) for v in c.T], axis=1)
    np.testing.assert_array_equal(discretise(c) + 1, expected)
    close = np.nextafter(np.ones((4, 1)), [[0], [2], [2], [2]])
    assert discretise(close).ravel().tolist() == [0, 1, 1, 1]  # too near for 20 bins


def test_reweighting_is_right_to_first_order():
    _, y, c = mixture(1, rows=3000)
    score = mig_statistic(mutual_information(as_sample(y, c)))
    rng = np.random.default_rng(0)
    counts = np.where(rng.uniform(size=3000) < 0.02, 2, 1)
    repeated = mig(np.repeat(y, counts, axis=0), np.repeat(c, counts, axis=0))
    assert repeated - score.value == pytest.approx(
        score.weighted(counts.astype(float)) - score.value, abs=0.1 * 0.02
    )


def test_mig_of_noise_is_the_bias_of_its_estimate():
    """2 N I is χ² with (bins - 1)(values - 1) degrees of freedom; codes fill their bins evenly."""
    rng, rows = np.random.default_rng(0), 20_000
    y = rng.integers(5, size=(rows, 12))
    freedom = (20 - 1) * (5 - 1)
    deviation = math.sqrt(2 * freedom) / (2 * rows) / math.log(5)
    one = mig(y, rng.uniform(size=rows))
    bias = freedom / (2 * rows) / math.log(5)
    assert one == pytest.approx(bias, abs=4 * deviation / math.sqrt(12))
    # the gap of two is |x - x'|, for a normal x: 2 σ / √π, with a deviation of 0.853 σ
    two = mig(y, rng.uniform(size=(rows, 2)))
    expected = 2 / math.sqrt(math.pi) * deviation
    assert two == pytest.approx(expected, abs=4 * 0.853 * deviation / math.sqrt(12))


def test_the_number_of_bins_is_checked():
    with pytest.raises(ValueError, match="n_bins must be an integer >= 1, got 0"):
        mig(GRID, GRID, n_bins=0)
