"""Modularity: closed forms, counts by loops, and what noise scores."""

from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from counted_information import counted_information, mixture
from isolatent.evaluation import modularity

GRID = np.array(list(product(range(3), range(4), range(5))))
EVEN = np.array(list(product(np.arange(4) - 1.5, repeat=3)))  # no value on the edge of a bin
LOOSE = {"deadline": None, "max_examples": 25}
seeds = st.integers(0, 2**32 - 1)


def counted_modularity(y, codes):
    squares = counted_information(y, codes)[0] ** 2
    further = max(y.shape[1] - 1, 1)
    return np.mean([1 - (sum(row) - max(row)) / (max(row) * further) for row in squares])


@settings(**LOOSE)
@given(seeds, st.integers(1, 4), st.integers(1, 4))
def test_modularity_is_that_of_counts(seed, factors, codes):
    _, y, c = mixture(seed, factors, codes)
    assert modularity(y, c) == pytest.approx(counted_modularity(y, c), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_modularity_of_a_rotation_is_that_of_counts(seed):
    codes = EVEN @ ortho_group.rvs(3, random_state=seed)
    assert modularity(EVEN, codes) == pytest.approx(counted_modularity(EVEN, codes), abs=1e-12)


@pytest.mark.parametrize("codes", [GRID, -7.0 * GRID[:, ::-1] + 3.0, np.sqrt(GRID[:, [1, 2, 0]])])
def test_modularity_is_1_if_each_code_is_a_factor(codes):
    assert modularity(GRID, codes) == pytest.approx(1.0)


def test_modularity_is_1_for_one_factor():
    assert modularity(GRID[:, 0], GRID[:, :1]) == 1.0


def test_sums_and_differences_of_two_factors_score_0():
    plane = np.array(list(product(range(4), repeat=2))) - 1.5
    assert modularity(plane, plane.sum(axis=1)) == pytest.approx(0.0, abs=1e-12)
    rotated = plane @ [[1.0, 1.0], [1.0, -1.0]]
    assert modularity(plane, rotated) == pytest.approx(0.0, abs=1e-12)


def test_dead_codes_count_0():
    dead = np.hstack([GRID, np.full((len(GRID), 2), 0.3)])
    assert modularity(GRID, dead) == pytest.approx(3 / 5)
    assert modularity(GRID, dead[:, 3:]) == 0.0


@pytest.mark.parametrize("sizes", [(5, 5, 5), (2, 5, 10)])
def test_modularity_of_noise_is_that_of_independent_chi_squares(sizes):
    rng = np.random.default_rng(0)
    y = np.stack([rng.integers(n, size=20_000) for n in sizes], axis=1)
    freedom = (20 - 1) * (np.array(sizes) - 1)
    squares = rng.chisquare(freedom, size=(100_000, len(sizes))) ** 2
    top = squares.max(axis=1)
    each = 1 - (squares.sum(axis=1) - top) / (top * (len(sizes) - 1))
    found = modularity(y, rng.uniform(size=(20_000, 30)))
    assert found == pytest.approx(each.mean(), abs=4 * each.std() / sqrt(30))


def test_the_number_of_bins_is_checked():
    with pytest.raises(ValueError, match="n_bins must be an integer >= 1, got 0"):
        modularity(GRID, GRID, n_bins=0)
