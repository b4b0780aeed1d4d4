"""Laws of the block scores and of the assignment of codes to blocks."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.evaluation import assign_codes, block_mcc, block_r2, linear_r2, mcc

seeds = st.integers(0, 2**32 - 1)
BLOCKS = [[0, 3, 4], [1], [2, 5]]


def rotation(rng, size):
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


def block_map(rng, draw):
    """A 6 x 6 matrix that maps each block to itself by ``draw(rng, size)``."""
    matrix = np.zeros((6, 6))
    for block in BLOCKS:
        matrix[np.ix_(block, block)] = draw(rng, len(block))
    return matrix


def recovery(seed, noise=0.2, rows=400):
    """Codes that recover six factors up to a rotation in each block, and noise."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 6))
    return rng, z, z @ block_map(rng, rotation) + noise * rng.normal(size=(rows, 6))


def canonical_correlations(z, h):
    """Square roots of the eigenvalues of Szz⁻¹ Szh Shh⁻¹ Shz."""
    joint = np.atleast_2d(np.cov(z.T, h.T))
    k = z.shape[1]
    szz, szh, shh = joint[:k, :k], joint[:k, k:], joint[k:, k:]
    squares = np.linalg.eigvals(np.linalg.solve(szz, szh) @ np.linalg.solve(shh, szh.T))
    return np.sqrt(squares.real.clip(0, 1))


def brute_force_block_mcc(z, h, blocks):
    sizes = [len(b) for b in blocks]
    ends = np.cumsum(sizes)
    return max(
        sum(
            canonical_correlations(z[:, b], h[:, order[end - len(b) : end]]).sum()
            for b, end in zip(blocks, ends, strict=True)
        )
        for order in map(list, permutations(range(h.shape[1]), sum(sizes)))
    ) / sum(sizes)


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_block_mcc_is_invariant_to_order_sign_and_scale_of_codes_and_to_maps_inside_blocks(seed):
    rng, z, h = recovery(seed)
    expected = block_mcc(z, h, BLOCKS)
    order, signs = rng.permutation(6), rng.choice([-1, 1], size=6)
    scaled = (h * signs * 10 ** rng.uniform(-3, 3, size=6) + rng.normal(size=6))[:, order]
    assert block_mcc(z, scaled, BLOCKS) == pytest.approx(expected, abs=1e-9)
    rotated = (h @ block_map(rng, rotation))[:, order]
    assert block_mcc(z, rotated, BLOCKS) == pytest.approx(expected, abs=1e-9)
    of_factors = z @ block_map(rng, lambda rng, k: rotation(rng, k) * rng.uniform(0.1, 10, size=k))
    assert block_mcc(of_factors, h, BLOCKS) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(seeds, st.booleans())
def test_block_r2_is_invariant_to_order_and_to_maps_inside_blocks_of_codes(seed, held_out):
    rng, z, h = recovery(seed)
    expected = block_r2(z, h, BLOCKS, held_out=held_out)
    mapped = (h @ block_map(rng, rotation) * 10 ** rng.uniform(-3, 3, size=6) + 1.0)[
        :, rng.permutation(6)
    ]
    assert block_r2(z, mapped, BLOCKS, held_out=held_out) == pytest.approx(expected, abs=1e-9)


def test_a_block_orthogonal_recovery_is_perfect_by_blocks_and_by_nothing_finer():
    _, z, h = recovery(0, noise=0.0)
    assert block_mcc(z, h, BLOCKS) == pytest.approx(1.0, abs=1e-12)
    assert block_r2(z, h, BLOCKS) == pytest.approx(1.0, abs=1e-12)
    singletons = [[f] for f in range(6)]
    assert block_mcc(z, h, singletons) < 0.9
    assert block_r2(z, h, singletons) < 0.9


def test_mixing_blocks_lowers_both_scores_while_the_linear_r2_stays_1():
    rng, z, _ = recovery(0)
    scores = []
    for angle in (0.0, 0.2, 0.4, np.pi / 4):
        mixing = np.eye(6)  # turns factor 0 of the first block into the block of factor 1
        mixing[:2, :2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        h = z @ mixing
        scores.append((block_mcc(z, h, BLOCKS), block_r2(z, h, BLOCKS)))
        assert linear_r2(z, h) == pytest.approx(1.0, abs=1e-10)
    assert (np.diff(scores, axis=0) < -0.003).all()
    everything = z @ rotation(rng, 6)
    assert block_mcc(z, everything, BLOCKS) < 0.85
    assert block_r2(z, everything, BLOCKS) < 0.75


def test_noise_scores_about_0():
    rng = np.random.default_rng(0)
    z, h = rng.normal(size=(5000, 6)), rng.normal(size=(5000, 6))
    assert block_mcc(z, h, BLOCKS) < 0.05
    assert abs(block_r2(z, h, BLOCKS)) < 0.01


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 5), st.integers(1, 7))
def test_singleton_blocks_give_mcc(seed, factors, codes):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(40, factors))
    h = z @ rng.normal(size=(factors, codes)) + rng.normal(size=(40, codes))
    singletons = [[f] for f in rng.permutation(factors).tolist()]
    assert block_mcc(z, h, singletons) == pytest.approx(mcc(z, h), abs=1e-12)
    each = mcc(z, h, per_factor=True)[np.concatenate(singletons)]
    assert block_mcc(z, h, singletons, per_block=True) == pytest.approx(each, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(seeds, st.integers(1, 6), st.booleans())
def test_one_block_of_all_factors_gives_linear_r2(seed, codes, held_out):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, 6))
    h = z @ rng.normal(size=(6, codes)) + rng.normal(size=(60, codes))
    one = [list(range(6))]
    for per_factor in (False, True):
        options = {"held_out": held_out, "per_factor": per_factor, "random_state": 3}
        assert block_r2(z, h, one, **options) == pytest.approx(linear_r2(z, h, **options), abs=1e-9)


def test_one_block_gives_the_mean_canonical_correlation():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 3))
    h = z @ rng.normal(size=(3, 3)) + rng.normal(size=(100, 3))
    expected = canonical_correlations(z, h).mean()
    assert block_mcc(z, h, [[0, 1, 2]]) == pytest.approx(expected, abs=1e-10)


@settings(deadline=None, max_examples=12)
@given(seeds, st.sampled_from([0.1, 0.5]))
def test_the_assignment_is_the_best_of_all_near_a_block_recovery(seed, noise):
    rng = np.random.default_rng(seed)
    blocks = [[0, 2], [1, 3]]
    z = rng.normal(size=(200, 4))
    h = np.empty((200, 5))  # one code of the first block twice
    h[:, [1, 2]] = z[:, [0, 2]] @ rotation(rng, 2)
    h[:, [0, 4]] = z[:, [1, 3]] @ rotation(rng, 2)
    h[:, 3] = h[:, 1]
    h += noise * rng.normal(size=h.shape)
    expected = brute_force_block_mcc(z, h, blocks)
    assert block_mcc(z, h, blocks) == pytest.approx(expected, abs=1e-9)


def test_the_assignment_is_rarely_below_the_best_of_all_even_for_arbitrary_mixtures():
    gaps = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(100, 4))
        h = z @ rng.normal(size=(4, 4)) + 0.5 * rng.normal(size=(100, 4))
        gaps.append(
            brute_force_block_mcc(z, h, [[0, 1], [2, 3]]) - block_mcc(z, h, [[0, 1], [2, 3]])
        )
    assert min(gaps) > -1e-9
    assert np.mean(np.array(gaps) > 1e-9) < 0.1
    assert max(gaps) < 0.05


def test_codes_are_assigned_to_the_block_they_recover():
    _, z, h = recovery(0)
    assert assign_codes(z, h, BLOCKS) == ((0, 3, 4), (1,), (2, 5))
    assert assign_codes(z, h[:, ::-1], BLOCKS) == ((1, 2, 5), (4,), (0, 3))


def test_repeated_and_dead_codes_are_passed_over():
    _, z, h = recovery(0, noise=0.0)
    repeated = np.column_stack([h[:, 0], h[:, 0], np.ones(400), h[:, 0], h])
    assert block_mcc(z, repeated, BLOCKS) == pytest.approx(1.0, abs=1e-9)
    assert block_r2(z, repeated, BLOCKS) == pytest.approx(1.0, abs=1e-9)


def test_missing_and_dead_codes_count_0():
    z = np.random.default_rng(0).normal(size=(5000, 4))
    blocks = [[0, 1], [2, 3]]
    only = z[:, [2]]
    assert assign_codes(z, only, blocks) == ((), (0,))
    for codes in (only, np.column_stack([only, np.zeros((5000, 5))])):
        assert block_mcc(z, codes, blocks, per_block=True) == pytest.approx([0, 0.5], abs=0.02)
        assert block_r2(z, codes, blocks, per_factor=True) == pytest.approx([0, 0, 1, 0], abs=0.01)
    assert block_mcc(z, np.zeros(5000), blocks) == 0.0


def test_a_code_that_repeats_another_is_given_to_the_block_it_adds_to():
    z = np.random.default_rng(0).normal(size=(1000, 4))
    codes = np.column_stack([z[:, 0], z[:, 0] + 0.5 * z[:, 2]])  # the second is nearer to block 0
    assert assign_codes(z, codes, [[0, 1], [2, 3]]) == ((0,), (1,))
    first = canonical_correlations(codes[:, :1], z[:, :2]).item()
    second = canonical_correlations(codes[:, 1:], z[:, 2:]).item()
    score = block_mcc(z, codes, [[0, 1], [2, 3]])
    assert score == pytest.approx((first + second) / 4, abs=1e-9)


def test_block_mcc_never_exceeds_1():
    for seed in range(30):
        _, z, h = recovery(seed, noise=0.0, rows=20)
        assert block_mcc(z, h, BLOCKS) <= 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_collinear_factors_are_recovered_by_codes_of_their_span(dtype):
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), size=500).astype(dtype)  # three factors, rank two
    other = rng.normal(size=(500, 1)).astype(dtype)
    z = np.hstack([shares, other])
    h = np.hstack([other, shares @ rng.normal(size=(3, 3)).astype(dtype)])
    assert block_mcc(z, h, [[0, 1, 2], [3]]) == pytest.approx(1.0, abs=1e-6)


def test_weights_are_the_block_sizes():
    _, z, h = recovery(0)
    each = block_mcc(z, h, BLOCKS, per_block=True)
    assert block_mcc(z, h, BLOCKS) == pytest.approx(each @ [3, 1, 2] / 6)
    assert type(block_mcc(z, h, BLOCKS)) is type(block_r2(z, h, BLOCKS)) is float
    assert block_r2(z, h, BLOCKS, per_factor=True).mean() == pytest.approx(block_r2(z, h, BLOCKS))


@pytest.mark.filterwarnings("error")
def test_a_factor_that_is_constant_in_the_fitted_half_is_scored():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(40, 2))
    z[:, 1] = 0
    z[np.random.default_rng(0).permutation(40)[-1], 1] = 1  # only in the scored half
    assert block_r2(z, z, [[0], [1]], per_factor=True)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("score", [block_r2, block_mcc, assign_codes])
@pytest.mark.parametrize(
    ("blocks", "error", "message"),
    [
        ([[0, 1, 2], [3, 4]], ValueError, "each factor from 0 to 5 exactly once"),
        ([[0, 1, 2], [2, 3, 4, 5]], ValueError, "exactly once"),
        ([[0, 1, 2], [3, 4, 6]], ValueError, "exactly once"),
        ([[0, 1, 2, 3, 4, 5], []], ValueError, r"blocks\[1\] must hold at least one factor"),
        ([[0, 1, 2], [3, 4, -1]], ValueError, r"blocks\[1\]\[2\] must be an integer >= 0, got -1"),
        ([[0, 1, 2], [3, 4, 5.0]], TypeError, r"blocks\[1\]\[2\] must be an integer >= 0"),
        ([0, 1, 2], TypeError, r"blocks\[0\] must be a sequence of factor indices, got 0"),
        ([], TypeError, "blocks must be a sequence of sequences"),
        (None, TypeError, "blocks must be a sequence of sequences"),
        ("012345", TypeError, "blocks must be a sequence of sequences"),
    ],
)
def test_blocks_must_partition_the_factors(score, blocks, error, message):
    _, z, h = recovery(0)
    with pytest.raises(error, match=message):
        score(z, h, blocks)


def test_block_scores_state_the_rows_they_need():
    _, z, h = recovery(0)
    block_mcc(z[:7], h[:7], BLOCKS)
    for score in (block_mcc, assign_codes):
        with pytest.raises(ValueError, match=r"at least 7 rows for blocks of up to 3 .* got 6"):
            score(z[:6], h[:6], BLOCKS)
    with pytest.raises(ValueError, match=r"at least 14 rows .* got 13"):
        block_r2(z[:13], h[:13], BLOCKS)
