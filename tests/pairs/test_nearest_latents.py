"""Nearest stored latents equal a search by brute force, and no image is its own positive."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.datasets import RenderedScenes, Scene3D, load_3dident
from isolatent.pairs import FinitePairSource, NearestLatentPairs, SplitError
from published_layouts import write_3dident


def world(conditional=None, size=16):
    conditional = iso.Normal(0.1) if conditional is None else conditional
    return iso.World(iso.Box(10, -1, 1), iso.Uniform(), conditional, Scene3D(size), seed=0)


STORED = RenderedScenes.of(world(), 300)


def generator():
    return torch.Generator().manual_seed(1)


def test_rows_are_the_nearest():
    pairs = NearestLatentPairs(STORED, world())
    anchors, positives = pairs.sample_rows(50, generator())
    same = generator()
    z = world().sample_anchors(50, same).numpy()
    distance = np.linalg.norm(z[:, None] - STORED.latents, axis=2)
    assert np.array_equal(anchors, distance.argmin(1))
    around = torch.from_numpy(STORED.latents[anchors])
    z_pos = world().conditional.sample(world().space, around, same).numpy()
    distance = np.linalg.norm(z_pos[:, None] - STORED.latents, axis=2)
    distance[np.arange(50), anchors] = np.inf
    assert np.array_equal(positives, distance.argmin(1))


def test_images_are_those_of_the_rows():
    pairs = NearestLatentPairs(STORED, world())
    known = pairs.sample_known(20, generator())
    x, x_pos = pairs.sample(20, generator())
    anchors, positives = pairs.sample_rows(20, generator())
    assert (anchors != positives).all()
    assert torch.equal(x, known.x)
    assert torch.equal(x_pos, STORED.observe(positives))
    assert np.array_equal(known.y, STORED.latents[anchors])
    shown = world().observe(known.y_pos.float())
    assert (shown - x_pos).abs().max() <= 0.5 / 255 + 1e-6


def test_narrow_conditionals_have_the_second_nearest_image():
    pairs = NearestLatentPairs(STORED, world(iso.Normal(1e-6)))
    anchors, positives = pairs.sample_rows(30, generator())
    distance = np.linalg.norm(STORED.latents[anchors][:, None] - STORED.latents, axis=2)
    assert np.array_equal(positives, distance.argsort(1)[:, 1])


def test_parts_share_no_image():
    pairs = NearestLatentPairs(STORED, world())
    assert isinstance(pairs, FinitePairSource)
    most, rest = pairs.split(0.2, generator())
    assert (len(most), len(rest)) == (240, 60)
    rows = [set(np.concatenate(part.sample_rows(200, generator()))) for part in (most, rest)]
    assert not rows[0] & rows[1]
    assert len(rows[1]) <= 60
    with pytest.raises(SplitError, match="at least 2 of the 60 images"):
        rest.split(0.01, generator())


def test_the_published_folder_is_a_source_too(tmp_path):
    latents, _ = write_3dident(tmp_path, 12)
    pairs = NearestLatentPairs(load_3dident(tmp_path, size=64), world())
    known = pairs.sample_known(3, generator())
    assert known.x.shape == (3, 3, 64, 64)
    assert all((row == latents).all(1).any() for row in known.y_pos.numpy())


def test_beliefs_are_those_of_the_world():
    pairs = NearestLatentPairs(STORED, world(iso.Laplace(0.1)))
    assert iso.Beliefs.of(pairs) == iso.Beliefs("box", "uniform", "laplace")


def test_a_supervised_encoder_takes_the_pairs():
    pairs = NearestLatentPairs(STORED, world())
    supervised = iso.SupervisedEncoder(10, encoder="pooled", max_steps=2, random_state=0)
    assert supervised.fit(pairs).transform(STORED.observe([0, 1])).shape == (2, 10)


@pytest.mark.slow
def test_a_contrastive_encoder_takes_the_pairs():
    pairs = NearestLatentPairs(STORED, world())
    recipe = iso.Recipe(max_steps=2, batch_size=16)
    model = iso.ContrastiveICA(
        10, space="box", conditional="normal", encoder="pooled", recipe=recipe, random_state=0
    )
    assert model.fit(pairs).transform(STORED.observe([0, 1])).shape == (2, 10)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="stored must have latents and observe"):
        NearestLatentPairs([1], world())
    with pytest.raises(TypeError, match="world must be a World"):
        NearestLatentPairs(STORED, 3)
    small = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Identity(), seed=0)
    with pytest.raises(ValueError, match=r"2 latents, as many as the world has, got \(300, 10\)"):
        NearestLatentPairs(STORED, small)
