"""Ordinary pairs never look preprocessed differently; scaled ones do, where it is visible."""

import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

import isolatent as iso
from isolatent.pairs import find_mismatch

WORLDS = [
    (iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(10.0)),
    (iso.Sphere(5), iso.Uniform(), iso.VonMisesFisher(1.0)),
    (iso.Box(4), iso.Uniform(), iso.Normal(0.05)),
    (iso.Box(3), iso.Uniform(), iso.Laplace(0.2)),
    (iso.Box(3), iso.Uniform(), iso.Normal(1.0)),
    (iso.Euclidean(3), iso.Normal(1.0), iso.Normal(0.3)),
    (iso.Euclidean(3), iso.Normal(1.0), iso.Normal(1.0)),
    (iso.Euclidean(2), iso.Normal(1.0), iso.Laplace(0.5)),
    (iso.HollowBall(3), iso.Uniform(), iso.Normal(0.2)),
]
MIXINGS = (iso.InvertibleMLP(layers=3), iso.FlowMixing(), iso.Identity())


def pairs_of_worlds(seeds, sizes):
    for seed in seeds:
        for space, marginal, conditional in WORLDS:
            for mixing in MIXINGS:
                world = iso.World(space, marginal, conditional, mixing, seed=seed)
                for size in sizes:
                    z, z_pos = world.sample_latents(size)
                    yield tuple(np.asarray(world.observe(part), float) for part in (z, z_pos))


def ordinary(x, x_pos, seed=0):
    """Yield pairs as they are, scaled as one, and with noise on one side."""
    rng = np.random.default_rng(seed)
    scaler = StandardScaler().fit(x)
    yield x, x_pos
    yield scaler.transform(x), scaler.transform(x_pos)
    yield x + 0.3 * x.std(0) * rng.normal(size=x.shape), x_pos
    yield x, x_pos + x.std(0) * rng.normal(size=x.shape)


def recordings(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rows = int(rng.choice([100, 500, 3000]))
        keep, z = rng.uniform(0.3, 0.999, size=4), np.zeros((rows, 4))
        noise = rng.laplace(size=z.shape) if seed % 2 else rng.standard_t(2.5, size=z.shape)
        for t in range(1, rows):
            z[t] = keep * z[t - 1] + noise[t]
        x = z @ rng.normal(size=(4, 5))
        walk = np.cumsum(rng.normal(size=(rows, 5)), 0)
        trend = x + np.linspace(0, 5 * x.std(), rows)[:, None]
        for recording in (x, walk, trend, x**3):
            for lag in (1, 5):
                yield recording[:-lag], recording[lag:]


def count(pairs):
    found = [find_mismatch(*pair) is not None for pair in pairs]
    return sum(found), len(found)


def test_ordinary_pairs_never_look_preprocessed_differently():
    worlds = (case for pair in pairs_of_worlds([0], [50, 500]) for case in ordinary(*pair))
    assert count(worlds) == (0, 216)
    assert count(recordings(range(6))) == (0, 48)


@pytest.mark.slow
def test_among_many_ordinary_pairs_none_look_preprocessed_differently():
    worlds = (
        case for pair in pairs_of_worlds(range(25), [50, 300, 3000]) for case in ordinary(*pair)
    )
    assert count(worlds) == (0, 8100)
    assert count(recordings(range(100))) == (0, 800)


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), RobustScaler()])
@pytest.mark.parametrize("side", [0, 1])
def test_a_scaler_on_one_side_is_seen(scaler, side):
    seen = 0
    for pair in pairs_of_worlds([0], [500]):
        rng = np.random.default_rng(0)
        units = np.exp(rng.normal(size=pair[0].shape[1]))
        sides = [units * (part + rng.normal(size=part.shape[1]) * 0 + 1) for part in pair]
        sides[side] = scaler.fit_transform(sides[side])
        found = find_mismatch(*sides)
        seen += found is not None
        exact = None if isinstance(scaler, RobustScaler) else ("X", "X_pos")[side]
        assert found is None or found.standardized == exact
    assert seen >= 24  # of 27; steps as wide as the marginal hide the scale


@pytest.mark.parametrize(
    ("name", "change"),
    [("scale", lambda x: 255 * x), ("shift", lambda x: x - 0.5)],
)
def test_images_are_compared_by_channels(name, change):
    rng = np.random.default_rng(0)
    x = rng.random((200, 1, 1, 1)) * rng.random((1, 3, 8, 8))
    x_pos = x + 0.01 * rng.normal(size=x.shape)
    assert find_mismatch(x, x_pos) is None
    assert find_mismatch(x, change(x_pos)) is not None


def test_few_pairs_and_missing_values_say_nothing():
    x = np.random.default_rng(0).normal(size=(60, 2))
    assert find_mismatch(x, 9 * x) is not None
    assert find_mismatch(x[:49], 9 * x[:49]) is None
    x_pos = 9 * x
    x_pos[3, 0] = np.nan
    assert find_mismatch(x, x_pos) is None
    assert find_mismatch(np.ones((60, 2)), np.ones((60, 2))) is None
