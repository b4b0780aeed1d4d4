"""The contract of pair sources, batches, and pairs from a world."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.pairs import (
    ArrayPairs,
    Batch,
    FactorPairs,
    FinitePairSource,
    PairSource,
    SeriesPairs,
    SplitError,
    WorldPairs,
)
from isolatent.worlds import Box, Identity, Laplace, Normal, Sphere, Uniform, World

WORLD = World(Box(2), Uniform(), Normal(0.01), Identity())
X = np.arange(40.0).reshape(20, 2)
CONDITIONALS = [Normal(0.01), Laplace(0.01), Normal(0.2)]
ENDLESS = [
    WorldPairs(WORLD),
    WorldPairs(WORLD, conditionals=CONDITIONALS),
    WorldPairs(WORLD, negatives=Normal(0.1), n_negatives=3),
    WorldPairs(WORLD, conditionals=CONDITIONALS, negatives=Normal(0.1), n_negatives=3),
]
FINITE = [
    ArrayPairs(X, -X),
    ArrayPairs(X, -X, negatives=np.ones((20, 3, 2)), tags=np.arange(20) % 2),
    SeriesPairs(X, lag=3),
]


def parts_of(batch):
    parts = (batch.x, batch.x_pos, batch.negatives, batch.tags)
    return [part for part in parts if part is not None]


@pytest.mark.parametrize("source", [*ENDLESS, *FINITE], ids=repr)
def test_contract(source):
    assert isinstance(source, PairSource)
    a, b = (Batch.of(source.sample(50, torch.Generator().manual_seed(1))) for _ in range(2))
    assert len(a) == 50
    assert a.x.shape == a.x_pos.shape == (50, 2)
    assert all(map(torch.equal, parts_of(a), parts_of(b)))
    if a.negatives is not None:
        assert a.negatives.shape == (50, 3, 2)
    if a.tags is not None:
        assert (a.tags.shape, a.tags.dtype) == ((50,), torch.int64)


@pytest.mark.parametrize("source", FINITE, ids=repr)
def test_finite_sources_can_be_split(source):
    assert isinstance(source, FinitePairSource)
    most, rest = source.split(0.25, torch.Generator().manual_seed(0))
    assert len(most) > len(rest) >= 1
    assert len(most) + len(rest) <= len(source)
    for part in (most, rest):
        assert isinstance(part, FinitePairSource)
        assert len(Batch.of(part.sample(5, torch.Generator().manual_seed(0)))) == 5
    with pytest.raises(SplitError, match="share must leave"):
        source.split(0.001, torch.Generator())


def test_endless_sources_are_not_finite():
    sprites = FactorPairs(iso.datasets.Sprites(), iso.datasets.LaplaceTransitions())
    for source in (*ENDLESS, sprites):
        assert not isinstance(source, FinitePairSource)


@pytest.mark.parametrize("source", FINITE, ids=repr)
def test_pairs_at_positions_are_those_of_all(source):
    positions = np.array([1, 4, 9])
    every, some = Batch.of(source.all()), Batch.of(source.all(positions))
    for whole, part in zip(parts_of(every), parts_of(some), strict=True):
        assert torch.equal(whole[positions], part)


def test_a_batch_is_made_of_a_tuple_or_of_itself():
    x = torch.ones(3, 2)
    batch = Batch.of((x, -x))
    assert batch.x is x
    assert (batch.negatives, batch.tags) == (None, None)
    assert Batch.of(batch) is batch


@pytest.mark.parametrize("shared", [False, True])
def test_rows_of_a_batch_keep_their_negatives_and_tags(shared):
    x = torch.arange(12.0).view(6, 2)
    negatives = torch.arange(8.0).view(4, 2) if shared else torch.arange(36.0).view(6, 3, 2)
    part = Batch(x, -x, negatives, torch.arange(6)).rows(slice(2, 5))
    assert len(part) == 3
    assert torch.equal(part.x, x[2:5])
    assert torch.equal(part.x_pos, -x[2:5])
    assert torch.equal(part.negatives, negatives if shared else negatives[2:5])
    assert part.tags.tolist() == [2, 3, 4]


def test_all_parts_of_a_batch_are_moved():
    x = torch.ones(3, 2)
    full = Batch(x, x, torch.ones(3, 4, 2), torch.arange(3)).to(torch.device("meta"))
    assert all(part.is_meta for part in parts_of(full))
    plain = Batch(x, x).to(torch.device("meta"))
    assert (plain.negatives, plain.tags) == (None, None)


# --- Pairs from a world.


def test_world_pairs_are_those_of_the_world():
    x, x_pos = WorldPairs(WORLD).sample(500, torch.Generator().manual_seed(0))
    expected = WORLD.sample_pairs(500, torch.Generator().manual_seed(0))
    assert torch.equal(x, expected[0])
    assert torch.equal(x_pos, expected[1])
    assert (x - x_pos).abs().max() < 0.1


def test_tags_name_the_conditional_of_each_pair():
    """Rows take the conditionals in turn; the third one is twenty times as wide."""
    source = WorldPairs(WORLD, conditionals=CONDITIONALS)
    batch = source.sample(3000, torch.Generator().manual_seed(0))
    assert torch.equal(batch.tags, torch.arange(3000) % 3)
    widths = [(batch.x - batch.x_pos)[batch.tags == way].std().item() for way in range(3)]
    assert widths[0] == pytest.approx(0.01, rel=0.1)
    assert widths[1] == pytest.approx(0.01 * 2**0.5, rel=0.1)
    assert widths[2] > 0.1
    assert source.sample(2, torch.Generator()).tags.tolist() == [0, 1]  # fewer than conditionals


def test_negatives_are_drawn_around_their_anchors():
    source = WorldPairs(WORLD, negatives=Normal(0.02), n_negatives=200)
    batch = source.sample(50, torch.Generator().manual_seed(0))
    inside = ((batch.x > 0.1) & (batch.x < 0.9)).all(1)  # away from the walls of the box
    steps = (batch.negatives - batch.x[:, None])[inside]
    assert steps.std().item() == pytest.approx(0.02, rel=0.05)
    assert steps.mean().abs() < 0.002
    assert (batch.x - batch.x_pos).abs().max() < 0.1  # positives are the world's


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: WorldPairs(X), TypeError, "world must be a World"),
        (lambda: WorldPairs(WORLD).sample(3, None), TypeError, "generator must be a torch.Gen"),
        (lambda: WorldPairs(WORLD, conditionals=[]), ValueError, "conditionals must be one or mor"),
        (
            lambda: WorldPairs(WORLD, conditionals=["normal"]),
            TypeError,
            "conditionals must be a Distribution, got 'normal'",
        ),
        (lambda: WorldPairs(WORLD, negatives=3), TypeError, "negatives must be a Distribution"),
        (
            lambda: WorldPairs(WORLD, negatives=Normal(0.1), n_negatives=0),
            ValueError,
            "n_negatives must be an integer >= 1, got 0",
        ),
        (
            lambda: WorldPairs(WORLD, negatives=iso.VonMisesFisher(5.0)),
            (TypeError, ValueError),
            "VonMisesFisher",
        ),
        (
            lambda: WorldPairs(
                World(Sphere(3), Uniform(), iso.VonMisesFisher(5.0), Identity()),
                conditionals=[iso.AnisotropicNormal((1.0, 2.0))],
            ),
            ValueError,
            "weights",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("drawn", "error", "message"),
    [
        (torch.ones(3, 2), TypeError, "must return two tensors, or a Batch, got Tensor"),
        ((torch.ones(3, 2),) * 3, TypeError, "must return two tensors"),
        ((np.ones((3, 2)), np.ones((3, 2))), TypeError, "must return two tensors"),
        ((torch.ones(3, 2), torch.ones(4, 2)), ValueError, r"same shape, got \(3, 2\) and \(4, 2"),
    ],
)
def test_other_things_than_pairs_are_refused(drawn, error, message):
    with pytest.raises(error, match=message):
        iso.Batch.of(drawn)


def test_pairs_say_whether_positives_follow_their_anchors():
    """A recording has an order at one lag; transitions in both directions alike have none."""
    expected = {
        **dict.fromkeys([*ENDLESS, *FINITE[:2], SeriesPairs(X), SeriesPairs(X, lag=(3, 3))], True),
        **dict.fromkeys([SeriesPairs(X, lag=2), SeriesPairs(X, lag=(2, 3))], False),
    }
    assert {source: source.ordered for source in expected} == expected


@pytest.mark.parametrize("lag", [(2, 2), (1, 2)])
def test_both_parts_of_a_recording_have_its_order(lag, generator):
    pairs = SeriesPairs(X, lag=lag)
    parts = pairs.split(0.3, generator)
    assert [part.ordered for part in parts] == [pairs.ordered] * 2
