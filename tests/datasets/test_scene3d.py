"""The 3-D scene: equal to a plain version, continuous and injective in all ten factors."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.datasets import SCENE_LATENTS, Scene3D, scene3d, scene_raster

GENERATOR = torch.Generator().manual_seed(0)
MIXING = Scene3D().build(10, GENERATOR)
LATENTS = 2 * torch.rand(40, 10, generator=GENERATOR, dtype=torch.float64) - 1


def plain_renderer():
    path = Path(__file__).parents[2] / "benchmarks/plain_scene.py"
    spec = importlib.util.spec_from_file_location("plain_scene", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.render_plainly


def world(size=64, **options):
    mixing = Scene3D(size)
    return iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(0.1), mixing, seed=0, **options)


@pytest.mark.parametrize("size", [16, 64, 128])
def test_images_equal_those_of_a_plain_renderer(size):
    z = LATENTS[:10].clone()
    z[:2] = torch.tensor([[-1.0], [1.0]])
    images = Scene3D(size).build(10, GENERATOR)(z)
    assert images.shape == (10, 3, size, size)
    assert np.abs(images.numpy() - plain_renderer()(z.numpy(), size)).max() < 2e-6


def test_images_use_most_of_the_range():
    images = MIXING(LATENTS)
    assert 0 <= images.min() < 0.05
    assert 0.9 < images.max() <= 1


@pytest.mark.parametrize("factor", range(10), ids=SCENE_LATENTS)
def test_images_are_continuous(factor):
    step = torch.zeros(10, dtype=torch.float64)
    slopes = []
    for size in (1e-2, 1e-4):
        step[factor] = size
        changed = MIXING(0.98 * LATENTS + step) - MIXING(0.98 * LATENTS)
        slopes.append(float(changed.abs().max()) / size)
    # An edge that jumps by a pixel would change one by about 0.5 in whatever small a step.
    assert slopes[1] < 40
    assert slopes[1] < 1.5 * slopes[0]
    assert slopes[0] > 0.1  # and each factor shows


def test_a_hard_edge_is_not_continuous(monkeypatch):
    monkeypatch.setattr(scene_raster, "PENUMBRA", 1e-9)
    shown = plain_renderer()
    step = np.zeros(10)
    step[0] = 1e-3
    z = 0.98 * LATENTS[:20].numpy()
    assert np.abs(shown(z + step) - shown(z)).max() / 1e-3 > 100


def test_images_determine_all_factors_nearby():
    step = 1e-3 * torch.eye(10, dtype=torch.float64)
    z = 0.98 * LATENTS
    slopes = torch.stack([(MIXING(z + e) - MIXING(z - e)).flatten(1) / 2e-3 for e in step], dim=1)
    values = torch.linalg.svdvals(slopes)
    assert values[:, -1].min() > 1
    assert (values[:, 0] / values[:, -1]).max() < 50


def test_different_latents_give_different_images():
    # The ends of each factor, in pairs of factors, and random latents.
    ends = [torch.zeros(10, dtype=torch.float64)]
    for a in range(10):
        for b in range(a):
            for first in (-1, 1):
                for second in (-1, 1):
                    ends.append(torch.zeros(10, dtype=torch.float64))
                    ends[-1][[a, b]] = torch.tensor([first, second], dtype=torch.float64)
    images = MIXING(torch.cat([torch.stack(ends), LATENTS])).flatten(1)
    distance = torch.cdist(images, images).fill_diagonal_(torch.inf)
    assert distance.min() > 2


def test_the_object_has_no_symmetry():
    parts = scene3d.OBJECT_PARTS
    surface = np.random.default_rng(0).normal(size=(400, 3))
    surface /= np.linalg.norm(surface, axis=1, keepdims=True)

    def inside(points):
        unit = (points[:, None] - parts[:, :3]) / parts[:, 3:6]
        return ((unit**2).sum(2) < 1).any(1)

    points = (parts[:, None, :3] + 0.97 * parts[:, None, 3:6] * surface).reshape(-1, 3)
    signs = [np.array([a, b, c]) for a in (1, -1) for b in (1, -1) for c in (1, -1)]
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]):
        for sign in signs:
            if order == [0, 1, 2] and sign.sum() == 3:
                assert inside(points).all()
            else:
                assert inside((points * sign)[:, order]).mean() < 0.95


def test_the_object_stays_inside_the_ball_and_above_the_floor():
    parts = scene3d.OBJECT_PARTS
    reach = np.linalg.norm(parts[:, :3], axis=1) + parts[:, 3:6].max(1)
    assert reach.max() < scene_raster.REACH + 0.02
    assert scene3d.PLACE[0, 2] - scene3d.PLACE[1, 2] > reach.max()


def test_threads_and_batches_do_not_change_the_images():
    torch.set_num_threads(2)
    try:
        together = MIXING(LATENTS.repeat(4, 1))
    finally:
        torch.set_num_threads(1)
    assert torch.equal(together[:40], MIXING(LATENTS))
    assert torch.equal(together[57:58], MIXING(LATENTS[17:18]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_mixing_of_an_ordinary_world(dtype):
    x, x_pos = world(32, dtype=dtype).sample_pairs(5)
    assert x.shape == x_pos.shape == (5, 3, 32, 32)
    assert x.dtype == dtype
    assert world().n_observed == 3 * 64 * 64
    assert iso.World.from_dict(world(128).to_dict()) == world(128)
    assert torch.equal(world(32).sample_pairs(3)[0], world(32).sample_pairs(3)[0])


def test_flat_images_are_rows():
    mixing = Scene3D(16, flat=True)
    flat = iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(0.1), mixing, seed=0)
    assert torch.equal(flat.sample_pairs(3)[0].view(3, 3, 16, 16), world(16).sample_pairs(3)[0])
    assert flat.n_observed == flat.sample_pairs(1)[0].shape[1]
    assert iso.World.from_dict(flat.to_dict()) == flat


def test_wrong_arguments():
    with pytest.raises(TypeError, match="flat must be a boolean, got 1"):
        Scene3D(16, flat=1)
    with pytest.raises(ValueError, match="size must be an integer >= 16"):
        Scene3D(8)
    with pytest.raises(ValueError, match="n must be 10"):
        iso.World(iso.Box(4, -1, 1), iso.Uniform(), iso.Normal(0.1), Scene3D())
    wide = iso.World(iso.Box(10, -2, 2), iso.Uniform(), iso.Normal(0.1), Scene3D(16))
    with pytest.raises(ValueError, match=r"z must lie in \[-1, 1\]"):
        wide.sample_pairs(100)
    with pytest.raises(NotImplementedError, match="no inverse"):
        MIXING.inverse(torch.zeros(1, 3, 64, 64))
