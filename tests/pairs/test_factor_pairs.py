"""Pairs of observations from a grid of factors."""

import re

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.datasets import FactorArray, Sprites
from isolatent.pairs import FactorPairs, PairSource

SMALL = FactorArray(np.arange(24).reshape(24, 1) / 24, (2, 3, 4), categorical=(True, False, False))
MOVES = iso.datasets.synthetic_transitions(2000, seed=0)
SOURCES = [
    FactorPairs(SMALL, iso.datasets.UniformFactorChange()),
    FactorPairs(SMALL, iso.datasets.LaplaceTransitions()),
    FactorPairs(Sprites(), iso.datasets.UniformFactorChange(1)),
    FactorPairs(Sprites(), MOVES),
    FactorPairs(Sprites(), MOVES, continuous=True),
]


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_contract(source):
    assert isinstance(source, PairSource)
    a, b = (source.sample(50, torch.Generator().manual_seed(1)) for _ in range(2))
    assert a[0].shape == a[1].shape == (50, *source.world.observation_shape)
    assert a[0].dtype == torch.float32
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])
    known = source.sample_known(50, torch.Generator().manual_seed(1))
    assert torch.equal(known.x, a[0])
    assert torch.equal(known.x_pos, a[1])
    observe = source.world.observe_values if source.continuous else source.world.observe
    assert torch.equal(observe(known.y), known.x)
    assert torch.equal(observe(known.y_pos), known.x_pos)
    changes = (known.y != known.y_pos).any(1)
    # A recorded step may stay within a bin of the grid.
    may_stay = source.transitions is MOVES and not source.continuous
    assert bool(changes.any() if may_stay else changes.all())


@pytest.mark.parametrize(
    ("world", "encoder"),
    [(SMALL, "mlp"), pytest.param(Sprites(), "conv", marks=pytest.mark.slow)],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:pairs were found to share only")  # after two steps
def test_the_estimator_accepts_factor_pairs(world, encoder):
    recipe = iso.Recipe(max_steps=2, batch_size=32)
    model = iso.ContrastiveICA(2, space="sphere", encoder=encoder, recipe=recipe, random_state=0)
    model.fit(FactorPairs(world, iso.datasets.LaplaceTransitions()))
    assert model.transform(world.observe(world.factors_at([5]))).shape == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("sprites", iso.datasets.UniformFactorChange()),
            "world must be a FactorWorld, got 'sprites'",
        ),
        ((Sprites(), 3), "transitions must have check and sample_factors"),
        (
            (Sprites(), iso.datasets.LaplaceTransitions),
            "transitions must have check and sample_factors",
        ),
        (
            (Sprites(), iso.datasets.UniformFactorChange(), True),
            "must be RecordedTransitions where",
        ),
        ((SMALL, MOVES, True), "world must have observe_values"),
    ],
)
def test_wrong_arguments(arguments, message):
    world, transitions, *continuous = arguments
    with pytest.raises(TypeError, match=re.escape(message)):
        FactorPairs(world, transitions, continuous=bool(continuous))


def test_transitions_that_need_more_factors_are_refused():
    with pytest.raises(ValueError, match="at least 4 factors"):
        FactorPairs(SMALL, iso.datasets.UniformFactorChange(4))


def test_transitions_around_the_anchor_have_no_order():
    symmetric = (iso.datasets.UniformFactorChange, iso.datasets.LaplaceTransitions)
    for source in SOURCES:
        assert source.ordered == (not isinstance(source.transitions, symmetric)), source


def test_transitions_of_a_user_may_say_that_they_have_no_order():
    class Mine(iso.datasets.LaplaceTransitions):
        ordered = True

    class Shuffled:
        ordered = False
        check, sample_factors = MOVES.check, MOVES.sample_factors

    assert FactorPairs(SMALL, Mine()).ordered
    assert not FactorPairs(Sprites(), Shuffled()).ordered
    del Shuffled.ordered
    assert FactorPairs(Sprites(), Shuffled()).ordered
