"""Rendered sprites equal their closed forms at every position, size and angle."""

import math

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.datasets import SpriteMixing, Sprites, render_sprites
from isolatent.datasets.sprite_raster import AREA
from isolatent.datasets.sprites import SHAPES, SYMMETRY

WORLD = Sprites()


def inside(shape, u, v):
    """Evaluate the shapes in closed form, x right and y up around the centroid, area AREA."""
    if shape == "square":
        return np.maximum(abs(u), abs(v)) <= math.sqrt(AREA) / 2
    if shape == "ellipse":
        short = math.sqrt(AREA / (1.5 * math.pi))
        return (u / (1.5 * short)) ** 2 + (v / short) ** 2 <= 1
    # A square of side 2 on a corner, and discs of radius 1 around the midpoints of its upper edges.
    unit = math.sqrt(AREA / (4 + math.pi))
    # Half-discs have area π/2 each, and centroids 4/(3π) beyond the edges.
    raised = math.pi * (1 + 4 / (3 * math.pi)) * math.sqrt(0.5) / (4 + math.pi)
    u, v = u / unit, v / unit + raised
    middle = math.sqrt(0.5)
    discs = (abs(u) - middle) ** 2 + (v - middle) ** 2 <= 1
    return (abs(u) + abs(v) <= math.sqrt(2)) | discs


def oracle(shape, scale, angle, x, y, per_pixel, size=64):
    """Return the share of per_pixel² points of each pixel that are inside."""
    at = (np.arange(size * per_pixel) + 0.5) / per_pixel * 64 / size
    right, up = at[None, :] - (16.5 + 31 * x), (16.5 + 31 * y) - at[:, None]
    u = (math.cos(angle) * right + math.sin(angle) * up) / scale
    v = (-math.sin(angle) * right + math.cos(angle) * up) / scale
    points = inside(shape, u, v).reshape(size, per_pixel, size, per_pixel)
    return points.mean(axis=(1, 3))


def cases(count, seed=0):
    random = np.random.default_rng(seed)
    for k in range(count):
        yield SHAPES[k % 3], random.uniform(0.4, 1), random.uniform(-7, 7), *random.random(2)


@pytest.mark.parametrize("case", [*cases(9)], ids=lambda case: case[0])
@pytest.mark.parametrize("size", [64, 24])
def test_pixels_are_shares_of_area(case, size):
    image = render_sprites(*case, size=size)[0, 0].numpy()
    assert image.shape == (size, size)
    assert (
        abs(image - oracle(*case, per_pixel=24, size=size)).max() < 0.05
    )  # the oracle's own error
    assert image.sum() == pytest.approx(AREA * case[1] ** 2 * (size / 64) ** 2, rel=1e-6)


@pytest.mark.parametrize("case", [*cases(60, seed=1)], ids=lambda case: case[0])
def test_bits_are_evaluated_at_the_pixel_centres(case):
    shape, scale, *others = case
    image = render_sprites(*case, antialias=False)[0, 0].numpy()
    assert set(np.unique(image)) == {0, 1}
    # Polygons approximate arcs to 0.01 of 15 pixels, so scaling by 0.1 % bounds them.
    assert (image >= oracle(shape, scale * 0.999, *others, per_pixel=1)).all()
    assert (image <= oracle(shape, scale * 1.001, *others, per_pixel=1)).all()


def test_bits_are_rounded_shares_but_for_a_few_pixels(generator):
    values = WORLD.values_of(WORLD.sample_factors(300, generator))
    binary = render_sprites(*values.T, antialias=False)
    shares = render_sprites(*values.T)
    differ = (shares > 0.5) != (binary > 0)
    assert 0 < differ.float().mean() < 3e-4
    assert (shares[differ] - 0.5).abs().max() < 0.25


def test_a_coarse_image_is_the_average_of_a_fine_one():
    factors = [np.array(column) for column in zip(*cases(12, seed=2), strict=True)]
    fine, coarse = (render_sprites(*factors, size=size) for size in (192, 64))
    assert torch.allclose(torch.nn.functional.avg_pool2d(fine, 3), coarse, atol=1e-6)


@pytest.mark.parametrize("antialias", [False, True])
def test_no_sprite_reaches_the_border(antialias):
    shape, angle, x, y = np.meshgrid(range(3), np.linspace(0, 7, 200), (0, 1), (0, 1))
    factors = [column.ravel() for column in (shape, angle, x, y)]
    images = render_sprites(factors[0], 1.0, *factors[1:], antialias=antialias)[:, 0]
    border = torch.ones(64, 64, dtype=bool)
    border[1:-1, 1:-1] = False
    assert not images[:, border].any()


def test_a_step_on_the_grid_shifts_the_image_by_one_pixel(generator):
    factors = WORLD.sample_factors(200, generator)
    factors[:, 3:] = torch.randint(0, 28, (200, 2), generator=generator)
    right, down = factors.clone(), factors.clone()
    right[:, 3] += 4
    down[:, 4] += 4
    images = WORLD.observe(factors)
    assert torch.equal(WORLD.observe(right), images.roll(4, dims=3))
    assert torch.equal(WORLD.observe(down), images.roll(4, dims=2))


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_invariant_to_rotation_by_their_symmetry(shape):
    angles = torch.linspace(-1, 5, 40)
    images, turned, between = (
        render_sprites(shape, 0.8, angles + turn * SYMMETRY[shape], 0.3, 0.6)
        for turn in (0, 1, 0.5)
    )
    assert torch.allclose(images, turned, atol=1e-4)
    assert (images - between).abs().amax((1, 2, 3)).min() > 0.3


@pytest.mark.parametrize("shape", SHAPES)
def test_a_rotation_by_90_degrees_rotates_the_image_counter_clockwise(shape):
    angles = np.linspace(-1, 5, 40)
    images, turned = (render_sprites(shape, 0.8, angles + t, 0.5, 0.5) for t in (0, np.pi / 2))
    assert torch.allclose(images.rot90(1, (2, 3)), turned, atol=1e-5)


def test_images_are_continuous_in_every_factor():
    start = np.array([0.7, 0.4, 0.3, 0.6])
    for shape in SHAPES:
        for f in range(4):
            moved = start.copy()
            moved[f] += 1e-4
            near, far = (render_sprites(shape, *values) for values in (start, moved))
            assert 0 < (near - far).abs().max() < 5e-3


def test_the_grid_equals_that_of_dsprites():
    assert WORLD.sizes == (3, 6, 40, 32, 32)
    assert len(WORLD) == 737_280
    assert WORLD.categorical == (True, False, False, False, False)
    assert WORLD.values[2][-1] == pytest.approx(2 * math.pi)
    first, last = WORLD.observe([[2, 3, 0, 4, 5], [2, 3, 39, 4, 5]])
    assert torch.equal(first, last)
    assert "dSprites-like" in repr(WORLD)


def test_packed_images_equal_observed_ones(generator, tmp_path, monkeypatch):
    monkeypatch.setenv("ISOLATENT_CACHE", str(tmp_path))
    factors = WORLD.sample_factors(3000, generator)
    cells = WORLD.index_of(factors)
    images = WORLD.observe(factors)[:, 0].bool().numpy()
    built, fresh = WORLD.grid(), WORLD.grid(cache=False)
    monkeypatch.setattr(Sprites, "_windows", lambda self: pytest.fail("the grid is cached"))
    for grid in (built, fresh, WORLD.grid()):
        assert grid.shape == (len(WORLD), 64, 64)
        assert grid.nbytes < 120_000
        assert np.array_equal(grid[cells], images)


def test_threads_do_not_change_the_images(generator):
    factors = WORLD.sample_factors(1500, generator)
    alone = WORLD.observe(factors)
    torch.set_num_threads(2)
    assert torch.equal(WORLD.observe(factors), alone)


def test_values_of_the_grid_give_the_images_of_the_grid(generator):
    factors = WORLD.sample_factors(500, generator)
    values = WORLD.values_of(factors)
    binary = render_sprites(*values.T, antialias=False)
    assert torch.equal(binary, WORLD.observe(factors))
    assert torch.equal(WORLD.observe_values(values), render_sprites(*values.T))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shape": "circle"}, "shape must be one of 'square', 'ellipse', 'heart', got 'circle'"),
        ({"shape": [0, 3]}, "shape must be 0, 1, 2 or one of"),
        ({"scale": 1.5}, "scale must be from 0 to 1, got 1.5"),
        ({"scale": 0.0}, "scale must be above 0"),
        ({"orientation": math.nan}, "orientation must be finite, got nan"),
        ({"x": -0.1}, "x must be from 0 to 1, got -0.1"),
        ({"y": [0.1, 2.0]}, "y must be from 0 to 1, got 2.0"),
        ({"x": [0.1, 0.2], "y": [0.1] * 3}, "factors must be numbers or arrays"),
        ({"size": 4}, "size must be an integer >= 8"),
    ],
    ids=str,
)
def test_wrong_arguments(changed, message):
    factors = {"shape": "heart", "scale": 1.0, "orientation": 0.0, "x": 0.5, "y": 0.5}
    with pytest.raises(ValueError, match=message):
        render_sprites(**(factors | changed))


def mixed_world(shape="heart", **options):
    mixing = SpriteMixing(shape)
    return iso.World(iso.Box(4), iso.Uniform(), iso.Laplace(0.05), mixing, seed=0, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_world_with_the_mixing_observes_images(dtype):
    x, x_pos = mixed_world(dtype=dtype).sample_pairs(20)
    assert x.shape == x_pos.shape == (20, 1, 64, 64)
    assert x.dtype == dtype
    assert x.min() == 0
    assert x.max() == 1
    assert iso.World.from_dict(mixed_world().to_dict()) == mixed_world()
    assert mixed_world().n_observed == 64 * 64


@pytest.mark.parametrize("shape", SHAPES)
def test_different_latents_give_different_images(shape):
    ticks = torch.linspace(0, 1, 5, dtype=torch.float64)
    z = torch.cartesian_prod(ticks, ticks, ticks, ticks)
    images = mixed_world(shape).observe(z).flatten(1).float()
    distance = torch.cdist(images, images).fill_diagonal_(torch.inf)
    assert distance.min() > 1


def test_latents_are_scale_orientation_x_and_y():
    middle = torch.full((1, 4), 0.5)
    turned = torch.tensor([[0.5, 1.0, 0.5, 0.5]])
    expected = render_sprites("heart", 0.75, [torch.pi / 2, torch.pi], 0.5, 0.5)
    shown = mixed_world().observe(torch.cat([middle, turned]))
    assert torch.allclose(shown, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:pairs were found to share only")  # after two steps
def test_an_estimator_fits_the_world():
    recipe = iso.Recipe(max_steps=2, batch_size=32)
    model = iso.ContrastiveICA(
        4, space="box", conditional="laplace", encoder="conv", recipe=recipe, random_state=0
    )
    z, _ = mixed_world().sample_latents(10)
    assert model.fit(mixed_world()).transform(mixed_world().observe(z)).shape == (10, 4)


def test_wrong_arguments_of_the_mixing():
    with pytest.raises(ValueError, match="shape must be one of"):
        SpriteMixing("circle")
    with pytest.raises(ValueError, match="n must be 4"):
        iso.World(iso.Box(3), iso.Uniform(), iso.Laplace(0.05), SpriteMixing())
    wide = iso.World(iso.Box(4, -1, 1), iso.Uniform(), iso.Laplace(0.05), SpriteMixing())
    with pytest.raises(ValueError, match=r"z must lie in \[0, 1\]"):
        wide.sample_pairs(100)
    with pytest.raises(NotImplementedError, match="no inverse"):
        mixed_world().mixing.inverse(torch.zeros(1, 1, 64, 64))
