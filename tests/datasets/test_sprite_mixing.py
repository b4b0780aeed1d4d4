"""Sprites as the mixing of a world with continuous latents."""

import pytest
import torch

import isolatent as iso
from isolatent.datasets.outlines import SHAPES


def world(shape="heart", **options):
    mixing = iso.datasets.SpriteMixing(shape)
    return iso.World(iso.Box(4), iso.Uniform(), iso.Laplace(0.05), mixing, seed=0, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_world_shows_images(dtype):
    x, x_pos = world(dtype=dtype).sample_pairs(20)
    assert x.shape == x_pos.shape == (20, 1, 64, 64)
    assert x.dtype == dtype
    assert x.min() == 0
    assert x.max() == 1
    assert iso.World.from_dict(world().to_dict()) == world()
    assert world().n_observed == 64 * 64


@pytest.mark.parametrize("shape", SHAPES)
def test_no_two_latents_look_the_same(shape):
    ticks = torch.linspace(0, 1, 5, dtype=torch.float64)
    z = torch.cartesian_prod(ticks, ticks, ticks, ticks)
    images = world(shape).observe(z).flatten(1).float()
    distance = torch.cdist(images, images).fill_diagonal_(torch.inf)
    assert distance.min() > 1


def test_latents_are_scale_orientation_x_and_y():
    middle = torch.full((1, 4), 0.5)
    turned = torch.tensor([[0.5, 1.0, 0.5, 0.5]])
    expected = iso.datasets.render_sprites("heart", 0.75, [torch.pi / 2, torch.pi], 0.5, 0.5)
    shown = world().observe(torch.cat([middle, turned]))
    assert torch.allclose(shown, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:pairs were found to share only")  # nothing is learned yet
def test_an_estimator_takes_the_world():
    recipe = iso.Recipe(max_steps=2, batch_size=32)
    model = iso.ContrastiveICA(
        4, space="box", conditional="laplace", encoder="conv", recipe=recipe, random_state=0
    )
    z, _ = world().sample_latents(10)
    assert model.fit(world()).transform(world().observe(z)).shape == (10, 4)


def test_errors():
    with pytest.raises(ValueError, match="shape must be one of"):
        iso.datasets.SpriteMixing("circle")
    with pytest.raises(ValueError, match="n must be 4"):
        iso.World(iso.Box(3), iso.Uniform(), iso.Laplace(0.05), iso.datasets.SpriteMixing())
    wide = iso.World(
        iso.Box(4, -1, 1), iso.Uniform(), iso.Laplace(0.05), iso.datasets.SpriteMixing()
    )
    with pytest.raises(ValueError, match=r"z must lie in \[0, 1\]"):
        wide.sample_pairs(100)
    with pytest.raises(NotImplementedError, match="no inverse"):
        world().mixing.inverse(torch.zeros(1, 1, 64, 64))
