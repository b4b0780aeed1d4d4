"""Pairs with observations that are in no pair."""

import numpy as np
import pytest
import torch

from isolatent.pairs import Batch, UnpairedPairs, digest_source

X = np.random.default_rng(0).normal(size=(50, 3))
U = np.arange(900.0).reshape(300, 3)


def generator():
    return torch.Generator().manual_seed(0)


def test_batches_hold_distinct_unpaired_rows():
    pairs = UnpairedPairs(X, X + 1, U)
    batch = pairs.sample(20, generator())
    assert torch.equal(batch.x_pos, batch.x + 1)
    rows = batch.unpaired[:, 0]
    assert len(rows) == len(rows.unique()) == 256
    assert len(UnpairedPairs(X, X, U[:9]).sample(20, generator()).unpaired) == 9


def test_parts_of_a_split_share_no_unpaired_row():
    most, rest = UnpairedPairs(X, X + 1, U).split(0.2, generator())
    kept = torch.cat([*most.unpaired_batches(100, 10_000)])
    held_out = rest.all().unpaired
    assert (len(kept), len(held_out), len(most), len(rest)) == (240, 60, 40, 10)
    assert torch.equal(torch.cat([kept, held_out]).sort(0).values, torch.from_numpy(U))


def test_the_digest_sees_every_end():
    shorter, changed = U[:-1], U.copy()
    changed[-1] += 1
    digests = {digest_source(UnpairedPairs(X, X, one)) for one in (U, shorter, changed)}
    assert len(digests) == 3


def test_unpaired_observations_are_candidates():
    batch = Batch(torch.zeros(4, 2), torch.zeros(4, 2), unpaired=torch.zeros(6, 2))
    assert batch.n_candidates == 10
    blocks = Batch(torch.zeros(6, 2), torch.zeros(6, 2), blocks=torch.tensor([0, 0, 1, 1, 1, 1]))
    assert blocks.n_candidates == pytest.approx((2**2 * 4**4) ** (1 / 6))
    assert [len(block) for block in blocks.split_blocks()] == [2, 4]


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"unpaired must have observations of the same shape as x"):
        UnpairedPairs(X, X, U[:, :2])
    with pytest.raises(ValueError, match="unpaired must be finite, but row 0"):
        UnpairedPairs(X, X, U * np.nan)
