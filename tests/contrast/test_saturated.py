"""The saturated form of InfoNCE: its kernel is balanced, its optimum uniform, its engines agree."""

import math

import numpy as np
import pytest
import torch

from isolatent.contrast.saturated import (
    RESOLUTIONS,
    SaturatedInfoNCE,
    WallPotential,
    _interval_kernel,
    _sphere_kernel,
)

N, B = 3, 48


def kernel_by_hand(width, p, points=1025):
    """Factors that balance exp(-ω |t - t'|^p) on the unit interval, found anew on a finer grid.

    Sinkhorn's algorithm on Gauss-Legendre points, which integrate otherwise than the code does.
    """
    t, measure = np.polynomial.legendre.leggauss(points)
    t, measure = torch.tensor((t + 1) / 2), torch.tensor(measure / 2)
    kernel = torch.exp(-width * (t[:, None] - t).abs() ** p)
    factors = torch.ones(points, dtype=torch.float64)
    for _ in range(500):
        factors = (factors / (kernel @ (factors * measure))).sqrt()
    return t, measure, kernel, factors


def codes(geometry, rows=B, n=N, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    h = torch.rand(rows, n, generator=generator, dtype=dtype)
    step = 0.02 * torch.randn(rows, n, generator=generator, dtype=dtype)
    if geometry == "sphere":
        h, step = h - 0.5, step + h - 0.5
        return tuple(x / x.norm(dim=1, keepdim=True) for x in (h, step))
    if geometry == "free":
        return 7 * h - 3, 7 * (h + step) - 3
    return h, (h + step).clamp(0, 1)


def by_hand(loss, h, h_pos, potential=None):
    """The formula of the docstring with all pairs written out; the second term of both ways.

    The value of the alignment, whose pull is weakened where codes do not fill their space.
    """
    p, width = loss.p, loss.similarity.weights.item()
    if loss.geometry == "free":
        both = torch.cat([h, h_pos])
        spread = (both - both.mean(0)).square().mean().sqrt()
        h, h_pos = (x / (math.sqrt(12) * spread) for x in (h, h_pos))
    distance = ((h - h_pos).abs() ** p).sum(1).mean()
    apart = ((h - h_pos.roll(1, 0)).abs() ** p).sum(1).mean()
    scores = -width * ((h[:, None] - h_pos).abs() ** p).sum(-1)
    if potential is not None:
        scores = scores + potential(h)[:, None] + potential(h_pos)
    scores = scores.masked_fill(torch.eye(len(h), dtype=torch.bool), -torch.inf)
    ways = [scores.logsumexp(way) - math.log(len(h) - 1) for way in (0, 1)]
    return loss.alignment * (distance / apart).log() + 0.5 * (ways[0] + ways[1]).mean()


@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
@pytest.mark.parametrize(
    ("geometry", "p"), [("sphere", 2), ("box", 1), ("box", 2), ("box", 3), ("free", 2)]
)
def test_every_engine_equals_the_formula(engine, geometry, p):
    loss = SaturatedInfoNCE(N, p, geometry, batch_size=B, engine=engine)
    h, h_pos = codes(geometry)
    potential = None
    if geometry == "box":
        t, _, _, factors = kernel_by_hand(loss.similarity.weights.item(), p)

        def potential(x):
            values = np.interp(x.numpy(), t.numpy(), factors.log().numpy())
            return torch.from_numpy(values).sum(1)

    # The code's table has 257 points, which is what the tolerance is for.
    expected = by_hand(loss, h, h_pos, potential).item()
    assert loss(h, h_pos).item() == pytest.approx(expected, abs=2e-3 if geometry == "box" else 1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("geometry", RESOLUTIONS)
def test_engines_agree_to_the_last_digits(geometry, dtype):
    results = []
    for engine in ("dense", "blockwise", "numba"):
        h, h_pos = (x.requires_grad_() for x in codes(geometry, dtype=dtype))
        loss = SaturatedInfoNCE(N, geometry=geometry, batch_size=B, engine=engine)
        value = loss(h, h_pos)
        results.append((value, *torch.autograd.grad(value, (h, h_pos))))
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for other in results[1:]:
        for ours, expected in zip(other, results[0], strict=True):
            worst = tolerance * expected.abs().max().clamp(min=1.0).item()
            torch.testing.assert_close(ours, expected, rtol=0, atol=worst)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("nats", [0.2, 1.0, 2.5])
def test_the_balanced_kernel_has_rows_of_mean_one_and_holds_its_nats(nats, p):
    """Integrated on points that its table was not made for."""
    width, table = _interval_kernel(nats, p)
    t, measure, kernel, _ = kernel_by_hand(width, p, 801)
    factors = (-WallPotential(table)(t[:, None])).exp()
    balanced = factors[:, None] * kernel * factors
    rows = balanced @ measure
    assert (rows - 1).abs().max() < 0.01
    held = float(measure @ torch.special.xlogy(balanced, balanced) @ measure)
    assert held == pytest.approx(nats, abs=0.02)
    # Left alone, the walls would take away up to half of a row.
    plain = kernel @ measure
    assert plain.min() < 0.75 * plain.max()


@pytest.mark.parametrize("n", [2, 3, 10])
def test_the_kernel_of_the_sphere_holds_its_nats(n):
    """By Monte Carlo over uniform directions."""
    nats = 2.0
    width = _sphere_kernel(n, nats)
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(400_000, n, generator=generator, dtype=torch.float64)
    squared = 2 - 2 * (u / u.norm(dim=1, keepdim=True))[:, 0]
    kernel = torch.exp(-width * squared)
    kernel /= kernel.mean()
    assert torch.special.xlogy(kernel, kernel).mean().item() == pytest.approx(nats, abs=0.05)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_uniform_codes_in_a_box_are_not_pushed_anywhere(p):
    """The mean gradient of the uniformity over each twentieth of the box, for even codes."""
    balanced = SaturatedInfoNCE(1, p, "box", batch_size=256, resolution=0.4)
    plain = SaturatedInfoNCE(1, p, "box", batch_size=256, resolution=0.4)
    plain.potential = plain.potential_pos = None
    even = ((torch.arange(1500, dtype=torch.float64) + 0.5) / 1500).unsqueeze(1)
    push = []
    for loss in (balanced, plain):
        h = even.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss._uniformity(h, even.roll(700, 0)), h)
        push.append(1500 * gradient.view(20, -1).mean(1))
    assert push[1][0] > 5  # without balance codes are pushed against the walls ...
    assert push[1][-1] < -5
    assert push[0].abs().max() < 0.05  # ... with it nowhere


@pytest.mark.parametrize("geometry", ["box", "sphere"])
def test_uniform_codes_are_the_least(geometry):
    """Among warps of them, whose pairs are warped along."""
    loss = SaturatedInfoNCE(2, geometry=geometry, batch_size=1024)
    generator = torch.Generator().manual_seed(0)
    values = {}
    if geometry == "box":
        z = torch.rand(4000, 2, generator=generator)
        z_pos = (z + 0.01 * torch.randn(4000, 2, generator=generator)).clamp(0, 1)
        for power in (1.0, 0.5, 2.0, 3.0):
            values[power] = loss(z**power, z_pos**power).item()
    else:
        angle = 2 * math.pi * torch.rand(4000, generator=generator)
        near = angle + 0.01 * torch.randn(4000, generator=generator)
        for strength in (1.0, 0.0, 0.5, 0.9):  # 1 is no warp
            warped = [a + (1 - strength) * a.sin() for a in (angle, near)]
            values[strength] = loss(*(torch.stack([a.cos(), a.sin()], 1) for a in warped)).item()
    assert min(values, key=values.get) == 1.0


@pytest.mark.parametrize(
    ("geometry", "p"), [("sphere", 2), ("box", 1), ("box", 2), ("box", 3), ("free", 2), ("free", 3)]
)
def test_gradients_of_the_uniformity(geometry, p):
    loss = SaturatedInfoNCE(N, p, geometry, batch_size=B, engine="dense").double()
    h, h_pos = (x.requires_grad_() for x in codes(geometry, rows=7))
    assert torch.autograd.gradcheck(loss._uniformity, (h, h_pos))
    fused = SaturatedInfoNCE(N, p, geometry, batch_size=B, engine="numba").double()
    assert torch.autograd.gradcheck(fused._uniformity, (h, h_pos))


def test_gradients_where_codes_fill_their_space():
    """Where nothing is weakened, the pull is the gradient of A log E d and that of uniformity."""
    loss = SaturatedInfoNCE(N, 2, "box", batch_size=B)
    h, h_pos = codes("box")
    h = torch.where(h > 0.5, 0.99 * h, 0.01 + 0.2 * h)  # farther apart than uniform
    h.requires_grad_()
    value = loss(h, h_pos)
    (gradient,) = torch.autograd.grad(value, h)
    expected = loss.alignment * ((h - h_pos) ** 2).sum(1).mean().log() + loss._uniformity(h, h_pos)
    apart = ((h - h_pos.roll(1, 0)) ** 2).sum(1).mean()
    assert apart > loss._uniform_distance()
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, h)[0])


def test_codes_that_contract_are_pulled_less():
    """By as much as they have contracted, so that they cannot collapse."""
    loss = SaturatedInfoNCE(N, 2, "box", batch_size=B)
    h, h_pos = codes("box")
    pulls = []
    for size in (1.0, 0.1, 0.01):
        a, b = ((size * (x - 0.5) + 0.5).requires_grad_() for x in (h, h_pos))
        gradient = torch.autograd.grad(loss._alignment(a, b), a)[0]
        pulls.append((gradient * (a - 0.5)).sum().item())  # towards a common point
    assert pulls[1] == pytest.approx(0.01 * pulls[0], rel=0.1)
    assert pulls[2] == pytest.approx(1e-4 * pulls[0], rel=0.1)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("factor", [1e-3, 5.0, 1e3])
def test_free_codes_have_no_scale_and_no_origin(p, factor):
    loss = SaturatedInfoNCE(N, p, "free", batch_size=B)
    h, h_pos = codes("free")
    value = loss(h, h_pos)
    moved = loss(factor * h + 3, factor * h_pos + 3)
    assert moved.item() == pytest.approx(value.item(), abs=1e-9)


def test_the_walls_of_a_box_are_flat_beyond_them():
    """Codes may leave the box by rounding."""
    walls = WallPotential(_interval_kernel(1.0, 2.0)[1])
    t = torch.tensor([[-0.1], [0.0], [1.0], [1.1]], dtype=torch.float64)
    values = walls(t)
    assert values[0] == values[1]
    assert values[2] == values[3]
    assert values[1].item() == pytest.approx(values[2].item())


def test_half_precision_is_taken_in_float32():
    h, h_pos = (x.float() for x in codes("box"))
    loss = SaturatedInfoNCE(N, geometry="box", batch_size=B)
    value = loss(h.bfloat16(), h_pos.bfloat16())
    assert value.dtype == torch.float32
    expected = loss(h.bfloat16().float(), h_pos.bfloat16().float())
    assert value.item() == expected.item()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: SaturatedInfoNCE(0, geometry="box"),
            ValueError,
            "n must be an integer >= 1, got 0",
        ),
        (lambda: SaturatedInfoNCE(2, geometry="torus"), ValueError, "geometry must be one of"),
        (lambda: SaturatedInfoNCE(2, 1.0), ValueError, "p must be 2 on a sphere, got 1.0"),
        (lambda: SaturatedInfoNCE(2, 0.5, "box"), ValueError, "p must be a finite number >= 1"),
        (
            lambda: SaturatedInfoNCE(2, batch_size=2),
            ValueError,
            "batch_size must be an integer >= 3, got 2",
        ),
        (lambda: SaturatedInfoNCE(2, resolution=1.0), ValueError, "resolution must be"),
        (lambda: SaturatedInfoNCE(2, resolution=0.0), ValueError, "resolution must be"),
        (lambda: SaturatedInfoNCE(2, alignment=0.0), ValueError, "alignment must be"),
        (lambda: SaturatedInfoNCE(2, engine="fast"), ValueError, "engine must be one of"),
        (
            lambda: SaturatedInfoNCE(N)(*codes("sphere"), torch.ones(3, N).double()),
            ValueError,
            "negatives must be None: SaturatedInfoNCE takes those of the batch",
        ),
        pytest.param(
            lambda: SaturatedInfoNCE(1),
            ValueError,
            "n must be an integer >= 2",
        ),
        (
            lambda: SaturatedInfoNCE(N, geometry="box", gather=True)(*codes("box")),
            RuntimeError,
            "gather=True needs torch.distributed",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
