"""BetaVAE and FactorVAE scores: loops, chance, dead codes, and rotations of factors on a grid.

If a metric draws examples, its oracle draws its own, and both are shares of hits: they may differ
by four standard deviations, exceeded once in 15 000 comparisons.
"""

from itertools import product
from math import cos, sin, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group
from sklearn.linear_model import LogisticRegression

from isolatent.evaluation import beta_vae_score, factor_vae_score
from isolatent.evaluation.disentanglement.betavae_factorvae import (
    StoredPoints,
    factor_vae_statistic,
    least_varying_codes,
    mean_differences,
    sample_examples,
)
from isolatent.evaluation.disentanglement.samples import as_sample

GRID = np.array(list(product(range(4), range(5), range(3))), dtype=float)
VALUES = np.arange(4) - 1.5
CUBE = np.array(list(product(VALUES, repeat=3)))  # uncorrelated factors of equal variance
PLANE = np.array(list(product(range(8), repeat=2))) - 3.5
FEW = {"n_train": 300, "n_test": 200}
MANY = {"n_train": 2000, "n_test": 2000}
seeds = st.integers(0, 2**32 - 1)


def rotation(seed):
    return ortho_group.rvs(3, random_state=seed)


def chance(p, n):
    """A share p of n independent hits, within four standard deviations."""
    return pytest.approx(p, abs=4 * sqrt(p * (1 - p) / n))


def same_share(p, mine, theirs):
    """A share of ``theirs`` hits beside p, that of ``mine``, within four standard deviations."""
    return pytest.approx(p, abs=4 * sqrt(p * (1 - p) * (1 / mine + 1 / theirs)))


def test_drawn_points_share_the_factor_and_no_point_is_paired_with_itself():
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=(200, 3))
    points = StoredPoints(as_sample(y, rng.normal(size=(200, 2))), 0)
    pairs = sample_examples(points, 50, 16, pairs=True)
    groups = sample_examples(points, 50, 16, pairs=False)
    assert set(pairs.factor) == set(groups.factor) == {0, 1, 2}
    for k, a, b in zip(pairs.factor, *pairs.points, strict=True):
        assert (y[a, k] == y[b, k]).all()
        assert (a != b).all()
    for k, members in zip(groups.factor, groups.points, strict=True):
        assert len(set(y[members, k])) == 1


def test_partners_are_drawn_uniformly_from_the_others():
    y = np.array([0, 0, 0, 0, 1, 1, 2])
    points = StoredPoints(as_sample(y, np.arange(7.0)), 0)
    first, second = points.sample_pairs(0, 600, 100)
    table = np.zeros((7, 7))
    np.add.at(table, (first, second), 1)
    assert table[6].sum() == table[:, 6].sum() == 0  # a value that occurs once
    np.testing.assert_allclose(table[:4, :4], 60_000 / 6 / 3 * (1 - np.eye(4)), rtol=0.1)
    np.testing.assert_allclose(table[4:6, 4:6], 60_000 / 6 * (1 - np.eye(2)), rtol=0.1)


def test_votes_and_differences_are_those_of_naive_loops():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(90, 2))
    c = y @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(90, 4))
    c[:, 2] = 0.01 * c[:, 2]  # below the threshold
    sample = as_sample(y, c)
    points = StoredPoints(sample, 0)
    pairs, groups, scored = (
        sample_examples(points, 20, 8, pairs=True),
        sample_examples(points, 60, 8, pairs=False),
        sample_examples(points, 40, 8, pairs=False),
    )
    expected = [
        np.mean([abs(c[i] - c[j]) for i, j in zip(a, b, strict=True)], axis=0)
        for a, b in zip(*pairs.points, strict=True)
    ]
    np.testing.assert_allclose(mean_differences(points, pairs.points), expected, atol=1e-12)

    def naive_vote(members):
        best, winner = np.inf, None
        for j in (0, 1, 3):
            ratio = np.var(c[members, j], ddof=1) / np.var(c[:, j], ddof=1)
            if ratio < best:
                best, winner = ratio, j
        return winner

    tally = {}
    for k, members in zip(groups.factor, groups.points, strict=True):
        tally.setdefault(naive_vote(members), []).append(k)
    winner = {j: min(range(2), key=lambda k, v=v: (-v.count(k), k)) for j, v in tally.items()}
    hits = [
        winner.get(naive_vote(members), 0) == k
        for k, members in zip(scored.factor, scored.points, strict=True)
    ]
    assert factor_vae_statistic(points, c, groups, scored, threshold=0.05).value == pytest.approx(
        np.mean(hits)
    )
    live = np.array([0, 1, 3])
    variance = c.var(axis=0, ddof=1)
    chosen = live[least_varying_codes(points, groups.points, np.ones(4), variance, live)]
    assert chosen.tolist() == [naive_vote(members) for members in groups.points]


@pytest.mark.parametrize(
    "codes", [GRID, -3.0 * GRID[:, ::-1], np.hstack([GRID, np.full((60, 2), 0.2)])]
)
def test_factors_permuted_rescaled_or_with_dead_codes_score_1(codes):
    assert factor_vae_score(GRID, codes, **FEW) == 1.0
    assert beta_vae_score(GRID, codes, **FEW) == 1.0


def test_without_a_threshold_a_dead_code_does_not_win_either():
    dead = np.hstack([GRID, np.zeros((60, 1))])
    assert factor_vae_score(GRID, dead, threshold=0.0, **FEW) == 1.0


def test_one_code_and_one_factor():
    y = np.tile(np.arange(4), 30)
    assert beta_vae_score(y, y, **FEW) == factor_vae_score(y, y, **FEW) == 1.0


@settings(deadline=None, max_examples=15)
@given(seeds)
def test_order_sign_scale_and_offset_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=(120, 2))
    c = y @ rng.normal(size=(2, 3)) + rng.normal(size=(120, 3))
    order, sign = rng.permutation(3), rng.choice([-1, 1], size=3)
    few = {"n_train": 60, "n_test": 40, "batch_size": 8, "random_state": 3}
    scaled = (4.0 * sign * c)[:, order]
    assert factor_vae_score(y, scaled, **few) == factor_vae_score(y, c, **few)
    mirrored = (sign * c)[:, order] + 1.0
    assert beta_vae_score(y, mirrored, **few) == pytest.approx(
        beta_vae_score(y, c, **few), abs=0.05
    )


def test_the_random_state_decides():
    rng = np.random.default_rng(0)
    y, c = rng.integers(3, size=(300, 2)), rng.normal(size=(300, 2))
    assert factor_vae_score(y, c, random_state=1, **FEW) == factor_vae_score(
        y, c, random_state=1, **FEW
    )
    assert factor_vae_score(y, c, random_state=1, **FEW) != factor_vae_score(
        y, c, random_state=2, **FEW
    )


def sharing(rng, factor):
    """The rows of the grid with one value of a factor, which is drawn."""
    return np.flatnonzero(CUBE[:, factor] == rng.choice(VALUES))


def pair_examples(codes, rng, count, batch_size):
    """Factors, and for each the mean |c - c'| of pairs of different points that share its value."""
    factors, features = rng.integers(3, size=count), np.zeros((count, 3))
    for factor, feature in zip(factors, features, strict=True):
        for _ in range(batch_size):
            first, second = rng.choice(sharing(rng, factor), size=2, replace=False)
            feature += abs(codes[first] - codes[second]) / batch_size
    return features, factors


@pytest.mark.parametrize("seed", range(4))
def test_beta_vae_of_a_rotation_is_that_of_loops(seed):
    codes = CUBE @ rotation(seed)
    rng = np.random.default_rng(seed)
    model = LogisticRegression(max_iter=1000)
    model.fit(*pair_examples(codes, rng, 1500, batch_size=3))
    share = model.score(*pair_examples(codes, rng, 3000, batch_size=3))
    found = beta_vae_score(CUBE, codes, batch_size=3, n_train=3000, n_test=6000)
    assert found == same_share(share, 3000, 6000)
    # With more pairs the mean tells more; were the codes a signed permutation, it would be 1.
    assert 1 / 3 < share < beta_vae_score(CUBE, codes, batch_size=64, n_train=500, n_test=500)


def votes(codes, rng, count, batch_size):
    """A factor, and the code that varies least among points that share its value."""
    overall = [np.var(column, ddof=1) for column in codes.T]
    for factor in rng.integers(3, size=count):
        members = rng.choice(sharing(rng, factor), size=batch_size)
        ratios = [np.var(codes[members, j], ddof=1) / overall[j] for j in range(3)]
        yield factor, ratios.index(min(ratios))


@pytest.mark.parametrize("seed", range(4))
def test_factor_vae_of_a_rotation_is_that_of_loops(seed):
    codes = CUBE @ rotation(seed)
    rng = np.random.default_rng(seed)
    table = np.zeros((3, 3))
    for factor, code in votes(codes, rng, 6000, batch_size=6):
        table[code, factor] += 1
    share = table.max(axis=1).sum() / 6000
    found = factor_vae_score(CUBE, codes, batch_size=6, n_train=6000, n_test=6000)
    assert found == same_share(share, 6000, 6000)


@pytest.mark.parametrize("seed", [2, 5, 327])  # in the last, one code is first for two factors
def test_factor_vae_of_large_batches_counts_the_codes_that_are_first(seed):
    """With y_k fixed, code j keeps 1 - turn_kj² of its variance: the largest entry wins."""
    turn = rotation(seed)
    ordered = np.sort(turn**2, axis=1)
    # A variance of 4000 points is right to √(2 / 4000): no vote is within 3 deviations of a tie.
    assert np.min(ordered[:, -1] - ordered[:, -2]) > 3 * sqrt(2) * sqrt(2 / 4000)
    share = len(set(np.argmax(np.abs(turn), axis=1))) / 3  # of two factors with one code, one wins
    found = factor_vae_score(CUBE, CUBE @ turn, batch_size=4000, n_train=100, n_test=400)
    assert found == pytest.approx(share, abs=4 * sqrt(share * (1 - share) / 400))


def test_on_the_diagonal_no_batch_tells_which_factor_it_shares():
    codes = PLANE @ [[1.0, 1.0], [1.0, -1.0]]  # whole numbers, so that variances tie exactly
    assert beta_vae_score(PLANE, codes, **MANY) == chance(1 / 2, 2000)
    assert factor_vae_score(PLANE, codes, **MANY) == chance(1 / 2, 2000)


@pytest.mark.parametrize("angle", [0.2, 0.5, 1.2])
def test_short_of_the_diagonal_every_vote_is_right(angle):
    # With y₁ fixed the codes keep sin² and cos² of their variance, which batches of 64 tell apart.
    turn = [[cos(angle), -sin(angle)], [sin(angle), cos(angle)]]
    assert factor_vae_score(PLANE, PLANE @ turn, **MANY) > 0.999


def test_votes_of_noise_and_of_dead_codes_are_right_by_chance():
    rng = np.random.default_rng(0)
    y, noise = rng.integers(4, size=(20_000, 3)), rng.normal(size=(20_000, 4))
    assert beta_vae_score(y, noise, **MANY) == chance(1 / 3, 2000)
    assert factor_vae_score(y, noise, **MANY) == chance(1 / 3, 2000)
    assert beta_vae_score(y, np.zeros((20_000, 2)), **MANY) == chance(1 / 3, 2000)
    assert factor_vae_score(y, np.zeros((20_000, 2)), **MANY) == 0.0
    # one code always votes for the same factor, for any code
    assert factor_vae_score(y, y[:, 0], **MANY) == chance(1 / 3, 2000)


@pytest.mark.parametrize(
    ("score", "factors", "options", "message"),
    [
        (beta_vae_score, np.arange(12), {}, r"occurs at least twice .* got none in column 0"),
        (factor_vae_score, np.arange(12) % 3, {"batch_size": 1}, "batch_size must be .* >= 2"),
        (beta_vae_score, np.arange(12) % 3, {"n_train": 0}, "n_train must be .* >= 1, got 0"),
        (beta_vae_score, np.arange(12) % 3, {"n_test": 0}, "n_test must be .* >= 1, got 0"),
        (factor_vae_score, np.arange(12) % 3, {"random_state": -1}, "random_state must be"),
        (factor_vae_score, np.arange(12) % 3, {"threshold": -1.0}, "threshold must be .* >= 0"),
    ],
)
def test_bad_arguments_are_rejected(score, factors, options, message):
    with pytest.raises(ValueError, match=message):
        score(factors, np.arange(12), **options)
