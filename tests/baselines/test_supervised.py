"""A supervised encoder recovers the factors that its observations determine."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from isolatent import inference
from isolatent.baselines import SupervisedEncoder, supervised
from isolatent.datasets import FactorArray, LaplaceTransitions, render_sprites
from isolatent.evaluation import linear_r2, mcc
from isolatent.pairs import FactorPairs, WorldPairs
from isolatent.worlds import Box, Euclidean, InvertibleMLP, Laplace, Normal, Sphere, Uniform, World

SHORT = {"max_steps": 300, "batch_size": 128}
WORLDS = {
    "sphere": (Sphere(3, radius=2.0), Uniform()),
    "box": (Box(3, low=-2.0, high=5.0), Uniform()),
    "euclidean": (Euclidean(3), Laplace(1.0)),
}


@pytest.mark.parametrize("space", WORLDS)
def test_factors_are_recovered_better_than_by_the_observations(space, generator):
    world = World(*WORLDS[space], Normal(0.1), InvertibleMLP(layers=2), seed=0)
    model = SupervisedEncoder(3, space=space, **SHORT).fit(world)
    z = world.sample_anchors(2000, generator)
    x = world.observe(z)
    assert linear_r2(z, model.transform(x)) > 0.98 > linear_r2(z, x)
    assert mcc(z, model.transform(x)) > 0.98


def test_arrays_do_as_well_as_a_world_and_a_seed_determines_the_model(generator):
    world = World(Box(2), Uniform(), Normal(0.1), InvertibleMLP(layers=2), seed=0)
    z = world.sample_anchors(3000, generator)
    x = world.observe(z)
    model = SupervisedEncoder(2, space="box", **SHORT)
    codes = model.fit(x, z).transform(x)
    assert linear_r2(z, codes) > 0.98
    assert (clone(model).fit(x, z).transform(x) == codes).all()


def test_factors_must_be_given():
    with pytest.raises(ValueError, match="Z must hold the true factors"):
        SupervisedEncoder(2).fit([[0.0, 1.0]])
    with pytest.raises(ValueError, match="as many rows"):
        SupervisedEncoder(2).fit([[0.0, 1.0], [1.0, 0.0]], [[0.0]])
    with pytest.raises(ValueError, match=r"Z must have shape \(N, 1\), got \(2,\)"):
        SupervisedEncoder(1).fit([[0.0, 1.0], [1.0, 0.0]], [0.0, 1.0])


@pytest.mark.parametrize("shape", [(50, 3), (50, 1, 16, 16)])
def test_values_that_are_not_finite_are_refused_before_training(shape, generator):
    x, z = torch.randn(shape, generator=generator), torch.randn(50, 2, generator=generator)
    model = SupervisedEncoder(2, encoder="mlp" if len(shape) == 2 else "pooled", max_steps=2)
    model.fit(x, z)
    bad_x, bad_z = x.clone(), z.clone()
    bad_x[7], bad_z[9] = math.nan, math.inf
    with pytest.raises(ValueError, match=r"X must be finite|X contains NaN"):
        model.fit(bad_x, z)
    with pytest.raises(ValueError, match="Z must be finite, but row 9 holds"):
        model.fit(x, bad_z)
    with pytest.raises(ValueError, match=r"X must be finite|X contains NaN"):
        model.transform(bad_x)
    with pytest.raises(ValueError, match=r"expecting 3 features|X must have shape \(N, 1, 16"):
        model.transform(x[..., :2])


def test_training_that_diverges_is_an_error(generator):
    x, z = torch.randn(50, 3, generator=generator), torch.randn(50, 2, generator=generator)
    model = SupervisedEncoder(2, learning_rate=1e30, max_steps=20)
    with pytest.raises(FloatingPointError, match=r"the loss became .* smaller learning_rate than"):
        model.fit(x, z)


def test_the_error_is_measured_on_held_out_rows(generator):
    """Factors that are independent of the observations can only be overfitted."""
    x, z = torch.randn(2, 300, 3, generator=generator)
    model = SupervisedEncoder(3, **SHORT).fit(x, z)
    assert model.error_ > 0.6  # their variance is 1
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        SupervisedEncoder(3).fit(x[:1], z[:1])
    with pytest.raises(ValueError, match="at least 3 rows"):  # images
        SupervisedEncoder(3).fit(x[:1, None, None], z[:1])


def sprites(places=6):
    """Return hearts at places x places, 64 x 64 pixels, and a shape with a single value."""
    x, y = np.linspace(0, 1, places)[np.indices((places, places)).reshape(2, -1)]
    images = render_sprites(2, 1.0, 0.0, x, y)
    return FactorArray(images, (1, places, places), names=("shape", "x", "y"))


def test_images_with_a_grid_of_factors_are_learned_from_pairs(monkeypatch):
    """Codes without information have R² = 0; after 100 small batches it is above 0.8."""
    monkeypatch.setattr(supervised, "HELD_OUT_POINTS", 128)
    monkeypatch.setattr(inference, "CHUNK_NUMBERS", 50 * 64 * 64)  # several chunks per encoding
    pairs = FactorPairs(sprites(), LaplaceTransitions())
    model = SupervisedEncoder(
        3, space="box", encoder="conv", max_steps=100, batch_size=33, learning_rate=2e-3
    )
    known = pairs.sample_known(200, torch.Generator().manual_seed(5))
    codes = model.fit(pairs).transform(known.x)
    assert codes.shape == (200, 3)
    assert linear_r2(known.y[:, 1:], codes) > 0.8
    spread = np.square((known.y[:, 1:] / 5).numpy().std(0)).sum() / 3
    assert model.error_ < spread / 3  # the error of the best constant


def test_sources_must_know_the_factors(generator):
    world = World(Box(2), Uniform(), Normal(0.1), InvertibleMLP(layers=2), seed=0)
    message = r"X must be a World, .* FactorPairs\(world, .*, got FactorArray"
    with pytest.raises(TypeError, match=message):
        SupervisedEncoder(2).fit(sprites(2))
    few = {"max_steps": 2, "batch_size": 8}
    of_pairs, of_world = (SupervisedEncoder(2, **few).fit(s) for s in (WorldPairs(world), world))
    assert of_pairs.error_ == of_world.error_  # pairs of a world are observed with its factors
    with pytest.raises(ValueError, match="Z must be None when X is a world or a pair source"):
        SupervisedEncoder(2).fit(world, world.sample_anchors(5, generator))
    with pytest.raises(ValueError, match="n_components must be the number of factors, 2, got 3"):
        SupervisedEncoder(3).fit(world)
    pairs = FactorPairs(sprites(2), LaplaceTransitions())
    with pytest.raises(ValueError, match=r"X must have shape \(N, features\) for encoder='mlp'"):
        SupervisedEncoder(3).fit(pairs)
