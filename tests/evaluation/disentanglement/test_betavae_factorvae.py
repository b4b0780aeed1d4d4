"""BetaVAE and FactorVAE scores: naive loops, chance, dead codes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.evaluation import beta_vae_score, factor_vae_score
from isolatent.evaluation.disentanglement.batches import StoredPoints, draw_groups, draw_pairs
from isolatent.evaluation.disentanglement.betavae_factorvae import differences, factor_vae_of, vote
from isolatent.evaluation.disentanglement.samples import sample

GRID = np.array(list(product(range(4), range(5), range(3))), dtype=float)
FEW = {"train": 300, "held_out": 200}
seeds = st.integers(0, 2**32 - 1)


def test_drawn_points_share_the_factor_and_no_point_is_beside_itself():
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=(200, 3))
    points = StoredPoints(sample(y, rng.normal(size=(200, 2))), 0)
    pairs = draw_pairs(points, 50, 16)
    groups = draw_groups(points, 50, 16)
    assert set(pairs.factor) == set(groups.factor) == {0, 1, 2}
    for k, a, b in zip(pairs.factor, pairs.first, pairs.second, strict=True):
        assert (y[a, k] == y[b, k]).all()
        assert (a != b).all()
    for k, members in zip(groups.factor, groups.members, strict=True):
        assert len(set(y[members, k])) == 1


def test_partners_are_drawn_uniformly_from_the_others():
    y = np.array([0, 0, 0, 0, 1, 1, 2])
    points = StoredPoints(sample(y, np.arange(7.0)), 0)
    first, second = points.pairs(0, 60_000)
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
    read = sample(y, c)
    points = StoredPoints(read, 0)
    pairs, groups, scored = (
        draw_pairs(points, 20, 8),
        draw_groups(points, 60, 8),
        draw_groups(points, 40, 8),
    )
    expected = [
        np.mean([abs(c[i] - c[j]) for i, j in zip(a, b, strict=True)], axis=0)
        for a, b in zip(pairs.first, pairs.second, strict=True)
    ]
    np.testing.assert_allclose(differences(points, pairs), expected, atol=1e-12)

    def naive_vote(members):
        best, winner = np.inf, None
        for j in (0, 1, 3):
            ratio = np.var(c[members, j], ddof=1) / np.var(c[:, j], ddof=1)
            if ratio < best:
                best, winner = ratio, j
        return winner

    tally = {}
    for k, members in zip(groups.factor, groups.members, strict=True):
        tally.setdefault(naive_vote(members), []).append(k)
    winner = {j: min(range(2), key=lambda k, v=v: (-v.count(k), k)) for j, v in tally.items()}
    hits = [
        winner.get(naive_vote(members), 0) == k
        for k, members in zip(scored.factor, scored.members, strict=True)
    ]
    assert factor_vae_of(points, c, groups, scored, 0.05).value == pytest.approx(np.mean(hits))
    live = np.array([0, 1, 3])
    chosen = live[vote(points, groups, np.ones(4), c.var(axis=0, ddof=1), live)]
    assert chosen.tolist() == [naive_vote(members) for members in groups.members]


@pytest.mark.parametrize(
    "codes", [GRID, -3.0 * GRID[:, ::-1], np.hstack([GRID, np.full((60, 2), 0.2)])]
)
def test_factors_permuted_rescaled_or_beside_dead_codes_score_1(codes):
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
    few = {"train": 60, "held_out": 40, "batch": 8, "seed": 3}
    scaled = (4.0 * sign * c)[:, order]
    assert factor_vae_score(y, scaled, **few) == factor_vae_score(y, c, **few)
    mirrored = (sign * c)[:, order] + 1.0
    assert beta_vae_score(y, mirrored, **few) == pytest.approx(
        beta_vae_score(y, c, **few), abs=0.05
    )


def test_seeds_decide():
    rng = np.random.default_rng(0)
    y, c = rng.integers(3, size=(300, 2)), rng.normal(size=(300, 2))
    assert factor_vae_score(y, c, seed=1, **FEW) == factor_vae_score(y, c, seed=1, **FEW)
    assert factor_vae_score(y, c, seed=1, **FEW) != factor_vae_score(y, c, seed=2, **FEW)


def test_what_cannot_be_drawn_is_refused():
    y = np.arange(12)
    with pytest.raises(ValueError, match=r"occurs at least twice .* got none in column 0"):
        beta_vae_score(y, y)
    with pytest.raises(ValueError, match="batch must be an integer >= 2, got 1"):
        factor_vae_score(y % 3, y, batch=1)
    with pytest.raises(ValueError, match="train must be an integer >= 1, got 0"):
        beta_vae_score(y % 3, y, train=0)
    with pytest.raises(ValueError, match="threshold must be a finite number >= 0"):
        factor_vae_score(y % 3, y, threshold=-1.0)
