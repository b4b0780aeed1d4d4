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


def test_too_few_pairs(model):
    with pytest.raises(TooFewPairsError, match="799 pairs"):
        hold_pairs_out(model, source_of(model, *WORLD.sample_pairs(799)), seed=0)
