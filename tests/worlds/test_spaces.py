"""Laws of all spaces: uniform samples, membership, projection, volume."""

import math

import numpy as np
import pytest
import torch

from isolatent.worlds import Box, CubeGrid, Euclidean, HollowBall, Product, Space, Sphere

BOUNDED = [
    Sphere(2),
    Sphere(10, radius=3.0),
    Sphere(40),
    Box(1),
    Box(10, -1.0, 2.0),
    HollowBall(2, 0.5, 1.0),
    HollowBall(10, 0.0, 2.0),
    CubeGrid(2, 2, 0.5),
    CubeGrid(10, 3, 0.1),
    Product(Sphere(3), Box(2)),
    Product(CubeGrid(2), HollowBall(3), Sphere(2, 0.5)),
]
SPACES: list[Space] = [*BOUNDED, Euclidean(3), Product(Euclidean(2), Sphere(3))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("space", BOUNDED, ids=repr)
def test_uniform_samples_lie_in_the_space(space, dtype, generator):
    z = space.sample(2000, generator, dtype)
    assert z.shape == (2000, space.n)
    assert z.dtype == dtype
    assert space.contains(z).all()
    torch.testing.assert_close(space.project(z), z)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_projection_lands_inside_and_is_idempotent(space, generator):
    far = 3 * torch.randn(500, space.n, generator=generator, dtype=torch.float64)
    far[0], far[1:5], far[5:9] = 0, far[1:5] * 1e-200, far[5:9] * 1e200
    projected = space.project(far)
    assert space.contains(projected).all()
    torch.testing.assert_close(space.project(projected), projected)


@pytest.mark.parametrize("space", BOUNDED, ids=repr)
def test_projection_is_the_nearest_point(space, generator):
    far = 2 * torch.randn(50, space.n, generator=generator, dtype=torch.float64)
    others = space.sample(2000, generator, torch.float64)
    ours = (space.project(far) - far).norm(dim=-1)
    assert (ours <= torch.cdist(far, others).amin(1) + 1e-12).all()


@pytest.mark.parametrize(
    ("space", "volume"),
    [
        (Sphere(2, 3.0), 6 * math.pi),
        (Sphere(3), 4 * math.pi),
        (Box(3, -1.0, 1.0), 8.0),
        (HollowBall(2, 1.0, 2.0), 3 * math.pi),
        (HollowBall(3, 0.0, 1.0), 4 / 3 * math.pi),
        (CubeGrid(2, 2, 0.5), 0.25),
        (Product(Sphere(2), Box(1, 0.0, 2.0)), 4 * math.pi),
        (Euclidean(2), math.inf),
    ],
    ids=repr,
)
def test_volumes(space, volume):
    assert math.exp(space.log_volume) == pytest.approx(volume)


@pytest.mark.parametrize(
    ("space", "second_moment"),  # E z_0² of a uniform point, centred on the origin
    [
        (Sphere(10, 2.0), 4 / 10),
        (Box(5, -1.0, 1.0), 1 / 3),
        # E r²/n with r^n uniform between inner^n and outer^n
        (HollowBall(3, 0.5, 1.0), (3 / 5) * (1 - 0.5**5) / (1 - 0.5**3) / 3),
        (HollowBall(40, 0.5, 1.0), (40 / 42) / 40),
    ],
    ids=repr,
)
def test_uniform_second_moments(space, second_moment, generator):
    z = space.sample(100_000, generator, torch.float64)
    squares = z.square()
    error = squares.std(0) / math.sqrt(len(z))
    assert ((squares.mean(0) - second_moment).abs() < 4.5 * error).all()  # p < 1e-3 in all


def test_cube_grid_cells_are_equally_likely(generator):
    z = CubeGrid(1, 3, 0.2).sample(30_000, generator)
    counts = torch.histc(z, bins=3, min=-0.1, max=1.1)
    assert (counts - 10_000).abs().max() < 4.5 * math.sqrt(10_000)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_points_outside_are_not_contained(space, generator):
    inside = space.center().expand(2, -1)
    assert not space.contains(inside * math.nan).any()
    assert not space.contains(inside + math.inf).any()
    if space.bounded:
        assert not space.contains(inside + 100).any()


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_contains_is_relative_to_the_size_of_the_space(size):
    for space in (Sphere(2, size), HollowBall(2, size / 2, size)):
        edge = torch.tensor([[size, 0.0]], dtype=torch.float64)
        assert space.contains(edge * (1 + 1e-15)).all()
        assert not space.contains(edge * (1 + 1e-4)).any()
        assert space.contains(edge * (1 + 1e-4), tolerance=1e-3).all()
        assert not space.contains(0 * edge).any()
    assert not Box(2, 0.0, size).contains(torch.full((1, 2), 5 * size)).any()
    assert Box(2, 0.0, size).contains(torch.full((1, 2), size)).all()
    assert not Product(Sphere(2, 1e6), Box(2, 0, size)).contains([[1e6, 0, 5 * size, 0]]).any()


def test_points_are_accepted_in_any_container():
    points = [[0, 1], [1, 3]]
    foreign = (">f8", np.longdouble, np.float16, np.int32)
    for z in (
        points,
        torch.tensor(points),
        torch.tensor(points).bfloat16(),
        *(np.array(points, dtype) for dtype in foreign),
    ):
        assert Box(2).contains(z).tolist() == [True, False]
        assert Box(2).project(z).tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Sphere(1), ValueError, "n must be an integer >= 2, got 1"),
        (lambda: Sphere(2.5), TypeError, "n must be an integer >= 2, got 2.5"),
        (lambda: Sphere(3, radius=0), ValueError, "radius must be a finite number > 0, got 0"),
        (lambda: Box(0), ValueError, "n must be an integer >= 1, got 0"),
        (lambda: Box(2, 1.0, 1.0), ValueError, "high must be a finite number > 1, got 1.0"),
        (lambda: Box(2, math.nan), ValueError, "low must be finite"),
        (lambda: Euclidean(-1), ValueError, "n must be an integer >= 1, got -1"),
        (lambda: HollowBall(3, 2.0, 1.0), ValueError, "outer must be a finite number > 2"),
        (lambda: CubeGrid(3, 1), ValueError, "cells must be an integer >= 2, got 1"),
        (lambda: CubeGrid(3, 3, 0.5), ValueError, "gap must be a finite number > 0 and < 0.5"),
        (lambda: Product(), TypeError, "spaces must be one or more Space objects"),
        (lambda: Product(3), TypeError, "spaces must be one or more Space objects"),
        (lambda: Euclidean(2).sample(3, torch.Generator()), ValueError, "unbounded"),
        (lambda: Box(2).contains(None), TypeError, "z must be an array of real numbers, got None"),
        (lambda: Box(2).contains("abc"), TypeError, "z must be an array of real numbers"),
        (lambda: Box(2).contains([[1, 2], [3]]), ValueError, "z must be a rectangular array"),
        (lambda: Box(2).project(torch.zeros(1, 2).cfloat()), TypeError, "z must be real"),
        (lambda: Box(2).sample(3, 0), TypeError, "generator must be a torch.Generator, got 0"),
        (lambda: Box(2).contains(torch.zeros(3, 4)), ValueError, r"shape \(N, 2\)"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
