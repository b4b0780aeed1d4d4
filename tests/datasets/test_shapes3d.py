"""Images agree with the geometry of the scene, and each factor changes its own part."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from isolatent.datasets import Shapes3D
from isolatent.datasets.shapes3d import CAMERA, HEIGHT, OBJECT_RADIUS, camera_rays

BODIES = ("cube", "cylinder", "sphere", "capsule")

WORLD = Shapes3D()
FLOOR, WALL, OBJECT = 0, 1, 2


def surfaces(**factors):
    """Return the surface at each pixel of an image with red floor, green wall, blue object."""
    row = {"floor_hue": 0, "wall_hue": 3, "object_hue": 7, "scale": 4, "shape": 0, "orientation": 7}
    return WORLD.observe([[*(row | factors).values()]])[0].argmax(0).numpy()


def inside(shape, radius, height, x, y, z):
    """Return whether points lie in a body on the floor."""
    around = np.hypot(x, z)
    if shape == "cube":
        return (abs(x) <= radius) & (abs(z) <= radius) & (y >= 0) & (y <= height)
    if shape == "cylinder":
        return (around <= radius) & (y >= 0) & (y <= height)
    nearest = np.clip(y, radius, height - radius)  # of the axis; one point for a sphere
    return around**2 + (y - nearest) ** 2 <= radius**2


@pytest.mark.parametrize("orientation", [0, 9])
@pytest.mark.parametrize("kind", range(4), ids=BODIES)
def test_surfaces_equal_those_found_by_ray_marching(kind, orientation):
    scale, azimuth = WORLD.values[3][4], WORLD.values[5][orientation]
    c, s = np.cos(azimuth), np.sin(azimuth)
    turn = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    origin, rays = turn @ CAMERA, camera_rays() @ turn.T
    t = np.linspace(2.5, 7, 800)[:, None, None]
    x, y, z = (origin[k] + t * rays[None, :, :, k] for k in range(3))
    met = inside(BODIES[kind], scale * OBJECT_RADIUS[kind], scale * HEIGHT[kind], x, y, z).any(
        axis=0
    )
    down = np.where(rays[..., 1] < 0, -origin[1] / rays[..., 1], 1e6)
    at_x, at_z = origin[0] + down * rays[..., 0], origin[2] + down * rays[..., 2]
    floor = np.maximum(abs(at_x + at_z), abs(at_x - at_z)) <= 5 * np.sqrt(2)
    expected = np.where(met, OBJECT, np.where(floor, FLOOR, WALL))
    shown = surfaces(shape=kind, orientation=orientation)
    assert (shown != expected).sum() <= 4  # tangent rays are missed by the steps
    assert {*np.unique(shown)} == {FLOOR, WALL, OBJECT}


@pytest.mark.parametrize("kind", range(4), ids=BODIES)
def test_objects_stay_inside_the_image_and_grow_with_their_scale(kind):
    masks = [surfaces(shape=kind, scale=k) == OBJECT for k in range(8)]
    for small, large in pairwise(masks):
        assert (small <= large).all()
        assert small.sum() < large.sum()
    for orientation in (0, 7, 14):
        largest = surfaces(shape=kind, scale=7, orientation=orientation) == OBJECT
        assert not largest[[0, -1]].any()
        assert not largest[:, [0, -1]].any()


def test_each_hue_colours_its_own_surface():
    shown = surfaces()
    start = [0, 3, 7, 4, 0, 7]
    for surface in (FLOOR, WALL, OBJECT):
        other = start.copy()
        other[surface] += 1
        a, b = WORLD.observe([start, other])
        assert np.array_equal((a != b).any(0).numpy(), shown == surface)


def test_opposite_azimuths_give_mirrored_rooms():
    for kind in range(4):
        left, right = (surfaces(shape=kind, orientation=o) for o in (3, 11))
        assert (left != right[:, ::-1]).sum() <= 4  # rays along an edge


def test_bodies_of_revolution_look_the_same_from_all_azimuths():
    for kind in (1, 2, 3):
        first, last = WORLD.observe([[0, 3, 7, 4, kind, 0], [0, 3, 7, 4, kind, 14]])
        mask = torch.from_numpy(surfaces(shape=kind, orientation=0) == OBJECT)
        assert torch.allclose(first[:, mask], last[:, mask], atol=1e-4)


def test_the_grid_equals_that_of_shapes3d(generator):
    assert WORLD.sizes == (10, 10, 10, 8, 4, 15)
    assert len(WORLD) == 480_000
    assert "Shapes3D-like" in repr(WORLD)
    factors = WORLD.sample_factors(600, generator)
    images = WORLD.observe(factors)
    assert images.shape == (600, 3, 64, 64)
    assert 0 <= images.min() <= images.max() <= 1
    assert len(images.flatten(1).unique(dim=0)) == len(factors.unique(dim=0))
    torch.set_num_threads(2)
    assert torch.equal(WORLD.observe(factors), images)
    assert torch.equal(WORLD.observe(factors[5:6]), images[5:6])  # independent of the batch
