"""MIG and modularity: closed forms, and mutual information against naive loops."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.evaluation import mig, modularity
from isolatent.evaluation.disentanglement.mig import mig_of
from isolatent.evaluation.disentanglement.modularity import modularity_of
from isolatent.evaluation.disentanglement.mutual_information import discretise, information
from isolatent.evaluation.disentanglement.samples import sample

GRID = np.array(list(product(range(3), range(4), range(5))))
LOOSE = {"deadline": None, "max_examples": 25}
seeds = st.integers(0, 2**32 - 1)


def mixture(seed, factors=3, codes=4, rows=200):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, 6, size=(rows, factors))
    return rng, y, y @ rng.normal(size=(factors, codes)) + 0.5 * rng.normal(size=(rows, codes))


def naive_information(y, c, bins=20):
    """I(code; factor) and H(factor) from dictionaries of counts."""
    n = len(y)
    mutual = np.zeros((c.shape[1], y.shape[1]))
    for j, f in product(range(c.shape[1]), range(y.shape[1])):
        binned = np.digitize(c[:, j], np.histogram(c[:, j], bins)[1][:-1])
        both, left, right = {}, {}, {}
        for b, v in zip(binned, y[:, f], strict=True):
            both[b, v] = both.get((b, v), 0) + 1
            left[b] = left.get(b, 0) + 1
            right[v] = right.get(v, 0) + 1
        mutual[j, f] = sum(
            m / n * math.log(m * n / (left[b] * right[v])) for (b, v), m in both.items()
        )
    entropy = [
        -sum(m / n * math.log(m / n) for m in np.unique(col, return_counts=True)[1]) for col in y.T
    ]
    return mutual, np.array(entropy)


@settings(**LOOSE)
@given(seeds, st.integers(1, 4), st.integers(1, 4))
def test_information_mig_and_modularity_are_those_of_naive_loops(seed, factors, codes):
    _, y, c = mixture(seed, factors, codes)
    mutual, entropy = naive_information(y, c)
    info = information(sample(y, c))
    np.testing.assert_allclose(info.mutual, mutual, atol=1e-12)
    np.testing.assert_allclose(info.entropy, entropy, atol=1e-12)
    gaps = []
    for column, h in zip(mutual.T, entropy, strict=True):
        first, second = sorted([*column, 0.0], reverse=True)[:2]
        gaps.append((first - second) / h)
    assert mig(y, c) == pytest.approx(np.mean(gaps), abs=1e-12)
    each = []
    for row in mutual**2:
        others = sum(row) - max(row)
        each.append(1 - others / (max(row) * (factors - 1)) if factors > 1 else 1.0)
    assert modularity(y, c) == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("codes", [GRID, -7.0 * GRID[:, ::-1] + 3.0, np.sqrt(GRID[:, [1, 2, 0]])])
def test_codes_that_are_factors_in_other_bins_score_1(codes):
    assert mig(GRID, codes) == pytest.approx(1.0)
    assert modularity(GRID, codes) == pytest.approx(1.0)


def test_a_factor_with_more_values_than_bins_has_the_gap_of_its_bins():
    y = np.array(list(product(range(40), range(2))))
    # 40 values in 20 bins of two each: the code knows log 20 of log 40
    expected = (math.log(20) / math.log(40) + 1) / 2
    assert mig(y, y) == pytest.approx(expected)


def test_a_sum_of_two_factors_is_as_much_about_one_as_about_the_other():
    y = GRID[:, :1] + np.zeros((1, 1))
    pair = np.array(list(product(range(4), range(4))))
    total = pair.sum(axis=1)
    assert modularity(pair, total) == pytest.approx(0.0, abs=1e-12)
    assert modularity(y, y) == 1.0  # one factor: nothing else to know


def test_dead_codes_leave_mig_and_dilute_modularity():
    dead = np.hstack([GRID, np.full((len(GRID), 2), 0.3)])
    assert mig(GRID, dead) == pytest.approx(1.0)
    assert modularity(GRID, dead) == pytest.approx(3 / 5)
    assert mig(GRID, dead[:, 3:]) == modularity(GRID, dead[:, 3:]) == 0.0


def test_one_code_has_the_gap_to_a_dead_one():
    both = np.hstack([GRID[:, :1], np.zeros((len(GRID), 1))])
    assert mig(GRID, GRID[:, 0]) == pytest.approx(mig(GRID, both)) == pytest.approx(1 / 3)


@settings(**LOOSE)
@given(seeds)
def test_order_sign_scale_and_offset_of_codes_do_not_matter(seed):
    rng, y, c = mixture(seed)
    # Powers of two scale without rounding, so no value changes its bin.
    scale = rng.choice([-1, 1], size=4) * 2.0 ** rng.integers(-9, 9, size=4)
    mapped = (c * scale)[:, rng.permutation(4)]
    # Mirrored, a value on the edge of two bins would fall into the other one; only extremes do.
    assert mig(y, np.abs(scale) * c) == pytest.approx(mig(y, c), abs=1e-12)
    assert mig(y, mapped) == pytest.approx(mig(y, c), abs=0.05)
    assert modularity(y, mapped) == pytest.approx(modularity(y, c), abs=0.1)


def test_the_discretiser_is_the_published_one():
    rng = np.random.default_rng(0)
    c = rng.normal(size=(500, 3))
    expected = np.stack([np.digitize(v, np.histogram(v, 20)[1][:-1]) for v in c.T], axis=1)
    np.testing.assert_array_equal(discretise(c) + 1, expected)
    close = np.nextafter(np.ones((4, 1)), [[0], [2], [2], [2]])
    assert discretise(close).ravel().tolist() == [0, 1, 1, 1]  # too near for 20 bins


@pytest.mark.parametrize("of", [mig_of, modularity_of])
def test_resampling_every_point_once_gives_the_score_and_twice_does_not_change_it(of):
    _, y, c = mixture(0)
    score = of(information(sample(y, c)))
    assert score.of_counts(np.ones(200)) == pytest.approx(score.value, abs=1e-12)
    assert score.of_counts(np.full(200, 2.0)) == pytest.approx(score.value, abs=1e-12)


def test_resampling_is_right_to_first_order():
    _, y, c = mixture(1, rows=3000)
    score = mig_of(information(sample(y, c)))
    rng = np.random.default_rng(0)
    counts = np.where(rng.uniform(size=3000) < 0.02, 2, 1)
    repeated = mig(np.repeat(y, counts, axis=0), np.repeat(c, counts, axis=0))
    assert repeated - score.value == pytest.approx(
        score.of_counts(counts.astype(float)) - score.value, abs=0.1 * 0.02
    )


def test_a_continuous_factor_is_warned_of_and_a_constant_one_refused():
    z = np.random.default_rng(0).normal(size=(100, 1))
    with pytest.warns(UserWarning, match="factor 0 has 100 values at 100 points"):
        mig(z, z)
    with pytest.raises(ValueError, match=r"factors must vary .* got constant column 0"):
        mig(np.ones(9), np.arange(9))
    with pytest.raises(ValueError, match="bins must be an integer >= 1, got 0"):
        modularity(GRID, GRID, bins=0)
