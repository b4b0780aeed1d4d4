"""Pairs for a diagnosis: of every kind, and none to train with among those to test with."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.diagnosis.held_out import TooFewPairsError, hold_pairs_out, source_of

RECIPE = iso.Recipe(max_steps=2, batch_size=32)
WORLD = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)


@pytest.fixture(scope="module")
def model():
    return iso.ContrastiveICA(2, space="box", recipe=RECIPE, random_state=0).fit(WORLD)


def test_no_pair_is_trained_and_tested_with(model):
    x, x_pos = WORLD.sample_pairs(2000)
    pairs = hold_pairs_out(model, source_of(model, x, x_pos), seed=0)
    assert (len(pairs.fitting), len(pairs.testing), pairs.n_pairs) == (1500, 500, 2000)
    both = torch.cat([pairs.fitting.x, pairs.testing.x])
    assert len(both.unique(dim=0)) == 2000


def test_the_end_of_a_recording_is_tested_with(model):
    x = np.arange(4000.0).reshape(2000, 2)
    pairs = hold_pairs_out(model, source_of(model, x, None), seed=0)
    assert pairs.fitting.x_pos.max() < pairs.testing.x.min()


@pytest.mark.parametrize("source", [WORLD, iso.WorldPairs(WORLD)])
def test_endless_pairs_are_drawn_afresh(model, source):
    pairs = hold_pairs_out(model, source_of(model, source, None), seed=0)
    assert pairs.n_pairs is None
    assert len(torch.cat([pairs.fitting.x, pairs.testing.x]).unique(dim=0)) > 20_000


def test_stacked_pairs_are_pairs(model):
    x, x_pos = (part.numpy() for part in WORLD.sample_pairs(1000))
    stacked = hold_pairs_out(model, source_of(model, np.stack([x, x_pos], 1), None), seed=0)
    apart = hold_pairs_out(model, source_of(model, x, x_pos), seed=0)
    assert torch.equal(stacked.testing.x, apart.testing.x)
    assert torch.equal(stacked.testing.x_pos, apart.testing.x_pos)


def test_no_pair_spans_a_pause_or_a_long_gap(model):
    """The pairs of a diagnosis are those of a fit with the same times and gaps."""
    x = np.arange(4000.0).reshape(2000, 2)
    times = np.arange(2000) + 100.0 * (np.arange(2000) >= 700)
    x[[900, 1200, 1201]] = np.nan
    with pytest.warns(iso.checks.IsolatentWarning, match="hold NaN"):
        source = source_of(model, x, None, times=times, max_gap=1)
    seen = source.sample(len(source), torch.Generator().manual_seed(0))[0][:, 0].numpy() / 2
    left_out = {699, 1199, 1200, 1201, 1999}
    assert sorted(seen.round().astype(int)) == sorted({*range(2000)} - left_out)


@pytest.mark.parametrize("read", [iso.diagnose, lambda model, *x: iso.choose(*x)])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((None,), "x must be observations .*, got None"),
        ((np.zeros(300),), r"x must be observations .*, got shape \(300,\)"),
        (([1.0, 2.0, 3.0],), r"x must be observations .*, got shape \(3,\)"),
        ((WORLD.sample_pairs(300)[0],) * 2, "x_pos must differ from x"),
    ],
)
def test_what_holds_no_pairs_is_refused(model, read, data, message):
    with pytest.raises(ValueError, match=message):
        read(model, *data)


def test_too_few_pairs(model):
    with pytest.raises(TooFewPairsError, match="799 pairs"):
        hold_pairs_out(model, source_of(model, *WORLD.sample_pairs(799)), seed=0)
