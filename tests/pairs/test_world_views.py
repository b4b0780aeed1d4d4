"""Views of a world: each image augmented on its own, and no theorem covers them."""

import pytest
import torch

import isolatent as iso
from isolatent.datasets import Scene3D
from isolatent.pairs import Augmentations, FinitePairSource, WorldViews, augment

WORLD = iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(1e-9), Scene3D(16), seed=0)


def generator():
    return torch.Generator().manual_seed(0)


def test_views_are_augmented_pairs_of_the_world():
    views = WorldViews(WORLD, Augmentations(crop=0.5))
    assert not isinstance(views, FinitePairSource)
    known = views.sample_known(6, generator())
    same = generator()
    z, z_pos = WORLD.sample_latents(6, same)
    first, second = (Augmentations(crop=0.5).draw(6, same) for _ in range(2))
    assert torch.equal(known.x, augment(WORLD.observe(z), first))
    assert torch.equal(known.x_pos, augment(WORLD.observe(z_pos), second))
    assert torch.equal(known.y, z)
    assert (z - z_pos).abs().max() < 1e-6  # two views of one scene
    assert torch.equal(views.sample(6, generator())[1], known.x_pos)


def test_no_theorem_covers_them():
    beliefs = iso.Beliefs.of(WorldViews(WORLD))
    assert (beliefs.space, beliefs.marginal) == ("box", "uniform")
    assert "augmented views" in beliefs.conditional
    model = iso.ContrastiveICA(10, space="box", conditional="normal")
    assert model.guarantee_for(WORLD).equivalence
    card = model.guarantee_for(WorldViews(WORLD))
    assert card.equivalence is None
    assert "no theorem covers" in card.gap


def test_wrong_arguments():
    with pytest.raises(TypeError, match="world must be a World"):
        WorldViews(3)
    plane = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Identity(), seed=0)
    with pytest.raises(ValueError, match=r"world must show images .*, got .* shape \(2,\)"):
        WorldViews(plane)
    with pytest.raises(TypeError, match="augmentations must be Augmentations, got 'crop'"):
        WorldViews(WORLD, "crop")
