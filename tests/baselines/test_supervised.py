"""An encoder that is told the truth inverts what it can invert."""

import pytest
import torch
from sklearn.base import clone

from isolatent.baselines import SupervisedEncoder
from isolatent.evaluation import linear_r2, mcc
from isolatent.worlds import Box, Euclidean, InvertibleMLP, Laplace, Normal, Sphere, Uniform, World

SHORT = {"steps": 300, "batch": 128}
WORLDS = {
    "sphere": (Sphere(3, radius=2.0), Uniform()),
    "box": (Box(3, low=-2.0, high=5.0), Uniform()),
    "euclidean": (Euclidean(3), Laplace(1.0)),
}


@pytest.mark.parametrize("space", WORLDS)
def test_it_beats_the_observations(space, generator):
    world = World(*WORLDS[space], Normal(0.1), InvertibleMLP(layers=2), seed=0)
    model = SupervisedEncoder(3, space=space, **SHORT).fit(world)
    z = world.sample_anchors(2000, generator)
    x = world.observe(z)
    assert linear_r2(z, model.transform(x)) > 0.98 > linear_r2(z, x)
    assert mcc(z, model.transform(x)) > 0.98


def test_arrays_do_as_well_as_a_world_and_a_seed_fixes_all(generator):
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
        SupervisedEncoder(2).fit([[0.0, 1.0]], [[0.0], [1.0]])


def test_the_error_is_that_of_rows_it_was_not_trained_on(generator):
    """Factors that have nothing to do with the observations can only be learned by heart."""
    x, z = torch.randn(2, 300, 3, generator=generator)
    model = SupervisedEncoder(3, **SHORT).fit(x, z)
    assert model.error_ > 0.6  # their variance is 1
    with pytest.raises(ValueError, match="at least 2 rows"):
        SupervisedEncoder(3).fit(x[:1], z[:1])
