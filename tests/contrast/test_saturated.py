"""Alignment and entropy: value, gradient, invariances, bias, and the kernel of the entropy."""

import math

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.contrast.saturated import (
    RESOLUTIONS,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
    SphereMoments,
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
    """The formula of the docstring with all pairs written out; the last term of both ways."""
    p, width = loss.p, loss.similarity.weights.item()
    spread = torch.cat([h, h_pos]).var(0, correction=0).mean().sqrt()
    uniform = 1 / math.sqrt(N) if loss.geometry == "sphere" else 1 / math.sqrt(12)
    if loss.geometry == "free":
        h, h_pos = (x * uniform / spread for x in (h, h_pos))
        spread = torch.tensor(uniform)
    distance = ((h - h_pos).abs() ** p).sum(1).mean()
    filled = (spread / uniform) ** p
    scores = -width * ((h[:, None] - h_pos).abs() ** p).sum(-1)
    if potential is not None:
        scores = scores + potential(h)[:, None] + potential(h_pos)
    scores = scores.masked_fill(torch.eye(len(h), dtype=torch.bool), -torch.inf)
    ways = [scores.logsumexp(way) - math.log(len(h) - 1) for way in (0, 1)]
    aligned = loss.alignment * (distance.log() + filled - filled.log())
    return aligned + 0.5 * (ways[0] + ways[1]).mean()


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


@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
def test_with_a_weight_for_each_code_every_engine_equals_the_formula(engine):
    loss = SaturatedAnInfoNCE(N, batch_size=B, engine=engine)
    h, h_pos = codes("sphere")
    aligned = 0.0
    for k in range(N):
        filled = N * torch.cat([h[:, k], h_pos[:, k]]).var(correction=0)
        aligned += (h[:, k] - h_pos[:, k]).square().mean().log() + filled - filled.log()
    scores = -loss.similarity.weights.item() * (h[:, None] - h_pos).square().sum(-1)
    scores = scores.masked_fill(torch.eye(B, dtype=torch.bool), -torch.inf)
    ways = [scores.logsumexp(way) - math.log(B - 1) for way in (0, 1)]
    expected = loss.alignment / N * aligned + 0.5 * (ways[0] + ways[1]).mean()
    assert loss(h, h_pos).item() == pytest.approx(expected.item(), abs=1e-9)


def anisotropic_pairs(weights, count, seed=0):
    conditional = iso.AnisotropicNormal(weights)
    space = iso.Sphere(len(weights))
    world = iso.World(space, iso.Uniform(), conditional, iso.Identity(), seed=seed)
    return tuple(part.double() for part in world.sample_latents(count))


def test_with_a_weight_for_each_code_the_true_axes_are_best(generator):
    """Every other rotation correlates differences within pairs."""
    h, h_pos = anisotropic_pairs((50.0, 100.0, 200.0, 400.0), 2048)
    loss = SaturatedAnInfoNCE(4, batch_size=2048)
    least = loss(h, h_pos).item()
    for _ in range(20):
        turn = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
        assert loss(h @ turn, h_pos @ turn).item() > least + 0.01


def test_a_lost_factor_is_worse_than_all_factors():
    """A factor that varies widely is neither folded nor replaced by another one's double angle."""
    h, h_pos = anisotropic_pairs(torch.linspace(5, 120, 10).tolist(), 2048)
    folded, doubled = ([x.clone() for x in (h, h_pos)] for _ in range(2))
    for part in folded:
        part[:, 0] = part[:, 0].abs() * part[:, 9].sign()
    for part in doubled:
        part[:, 0] = 10**0.5 * part[:, 8] * part[:, 9]
    loss = SaturatedAnInfoNCE(10, batch_size=2048)
    least = loss(h, h_pos).item()
    for part in (folded, doubled):
        part = [torch.nn.functional.normalize(x) for x in part]
        assert loss(*part).item() > least


def test_moments_by_loops(generator):
    h, h_pos = torch.randn(2, 20, N, generator=generator, dtype=torch.float64)
    rows = [*h, *h_pos]
    mean = [sum(row[k] for row in rows) / 40 for k in range(N)]
    expected = N * sum(m**2 for m in mean)
    for i in range(N):
        for k in range(N):
            shared = sum((row[i] - mean[i]) * (row[k] - mean[k]) for row in rows) / 40
            expected += (N * shared - float(i == k)) ** 2
    assert SphereMoments()(h, h_pos).item() == pytest.approx(expected.item(), abs=1e-10)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_moments_of_uniform_codes_are_zero_and_push_nowhere(n, generator):
    """For codes at the ends of n orthogonal axes, whose moments are those of uniform codes."""
    turn = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
    h = torch.cat([turn, -turn]).requires_grad_()
    penalty = SphereMoments()(h, h)
    assert penalty.item() == pytest.approx(0, abs=1e-12)
    (gradient,) = torch.autograd.grad(penalty, h)
    assert gradient.abs().max() < 1e-12


def test_moments_exclude_a_cap():
    """Codes of all factors but the first, in a cap of the sphere around the first axis."""
    h = anisotropic_pairs((2.0, 20.0, 20.0, 20.0), 4096)[0]
    cap = torch.cat([torch.ones(len(h), 1), 0.3 * h[:, 1:]], 1)
    cap = torch.nn.functional.normalize(cap)
    moments = SphereMoments()
    assert moments(h, h).item() < 0.05
    assert moments(cap, cap).item() > 1


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
def test_uniform_codes_are_better_than_strong_warps(geometry):
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
def test_the_gradient_is_the_derivative_of_the_value(geometry, p):
    """Of the whole loss: early stopping follows what is minimised."""
    h, h_pos = (x.requires_grad_() for x in codes(geometry, rows=7))
    for engine in ("dense", "numba"):
        loss = SaturatedInfoNCE(N, p, geometry, batch_size=B, engine=engine).double()
        assert torch.autograd.gradcheck(loss, (h, h_pos))


def drifts(loss, space, conditional, warps, batches=4, rows=2048):
    """Derivatives of a loss at h = z along warps of the codes, each with its standard error."""
    world = iso.World(space, iso.Uniform(), conditional, iso.Identity(), seed=0)
    found = []
    for _ in range(batches):
        pair = [z.double().requires_grad_() for z in world.sample_latents(rows)]
        gradients = torch.autograd.grad(loss(*pair), pair)
        moved = [[warp(z.detach()) for z in pair] for warp in warps]
        found.append(
            [sum((g * v).sum() for g, v in zip(gradients, vs, strict=True)) for vs in moved]
        )
    values = torch.tensor(found)
    return zip(values.mean(0).tolist(), (values.std(0) / batches**0.5).tolist(), strict=True)


def of_first(v):
    """Return the warp that adds v, a function of the codes, to the first coordinate."""
    return lambda z: torch.cat([v(z).unsqueeze(1), torch.zeros_like(z[:, 1:])], 1)


def along_the_sphere(v):
    """Return the part of a warp that is tangential to the sphere."""
    return lambda z: v(z) - (v(z) * z).sum(1, keepdim=True) * z


@pytest.mark.parametrize(("n", "p"), [(2, 2), (3, 1), (10, 2), (2, 3)])
def test_the_drift_in_a_box_is_as_stated(n, p):
    """Not zero, as that of InfoNCE is, but A p / n [v(1) - v(0)], and none that mixes codes."""
    loss = SaturatedInfoNCE(n, p, "box", batch_size=64)
    stated = [
        (lambda z: z[:, 0] - 0.5, 1.0),  # contraction
        (lambda z: z[:, 0] ** 3, 1.0),
        (lambda z: (z[:, 0] - 0.5).abs(), 0.0),
        (lambda z: torch.ones_like(z[:, 0]), 0.0),  # shift
        (lambda z: z[:, 1], 0.0),  # shear
        (lambda z: (6 * z[:, 1]).sin(), 0.0),
    ]
    warps = [of_first(v) for v, _ in stated]
    found = drifts(loss, iso.Box(n), iso.GeneralizedNormal(p, 0.003), warps)
    unit = loss.alignment * p / n
    for (drift, error), (_, ends) in zip(found, stated, strict=True):
        assert drift == pytest.approx(unit * ends, abs=4 * error + 0.03 * unit)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_there_is_no_drift_on_a_sphere(n):
    """Along tangential fields, such as the one that contracts all codes towards a pole."""
    loss = SaturatedInfoNCE(n, batch_size=64)
    fields = [of_first(lambda z: torch.ones_like(z[:, 0])), of_first(lambda z: z[:, 0])]
    warps = [along_the_sphere(field) for field in fields]
    for drift, error in drifts(loss, iso.Sphere(n), iso.VonMisesFisher(1e5), warps):
        assert abs(drift) < 4 * error + 0.03


def test_infonce_at_the_true_scale_has_no_drift():
    """So the drift above is of this loss, and not of how it is measured."""
    loss = iso.InfoNCE(iso.Lp(p=2, weights=0.5 / 0.1**2))
    warps = [of_first(lambda z: z[:, 0] - 0.5)]
    for drift, error in drifts(loss, iso.Box(2), iso.Normal(0.1), warps):
        assert abs(drift) < 4 * error + 0.05


@pytest.mark.parametrize("geometry", ["sphere", "box"])
@pytest.mark.parametrize("size", [0.3, 0.1, 0.01])
def test_codes_do_not_collapse(geometry, size):
    """Codes that have contracted lower the loss by expanding again."""
    loss = SaturatedInfoNCE(2, 2, geometry, batch_size=1024)
    z, z_pos = codes(geometry, rows=1024, n=2)
    if geometry == "sphere":
        z, z_pos = (torch.atan2(x[:, 1], x[:, 0]) for x in (z, z_pos))

    def contracted(size):
        if geometry == "box":
            return loss(0.5 + size * (z - 0.5), 0.5 + size * (z_pos - 0.5))
        return loss(*(torch.stack([(size * a).cos(), (size * a).sin()], 1) for a in (z, z_pos)))

    assert contracted(size) > contracted(1.1 * size)


@pytest.mark.parametrize(("geometry", "p"), [("sphere", 2), ("box", 1), ("box", 2), ("free", 2)])
def test_what_the_loss_does_not_depend_on(geometry, p):
    """The order of pairs and of codes, which member is the anchor, and symmetries of the space."""
    loss = SaturatedInfoNCE(N, p, geometry, batch_size=B)
    h, h_pos = codes(geometry)
    generator = torch.Generator().manual_seed(1)
    rows, columns = torch.randperm(B, generator=generator), torch.randperm(N, generator=generator)
    same = [(h[rows], h_pos[rows]), (h[:, columns], h_pos[:, columns]), (h_pos, h)]
    if geometry == "box":
        same.append((1 - h, 1 - h_pos))
    else:
        turn, _ = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=torch.float64))
        same.append((h @ turn, h_pos @ turn))
    value = loss(h, h_pos).item()
    for a, b in same:
        assert loss(a, b).item() == pytest.approx(value, abs=1e-9)


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
            lambda: SaturatedInfoNCE(N)(*codes("sphere"), torch.ones(3, N - 1).double()),
            ValueError,
            "negatives must have shape",
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
