"""Calibration inverts the warp of each coordinate and the rotation of codes, nothing else."""

import math

import pytest
import torch

import isolatent as iso
from isolatent.encoders import PrincipalAxes, Straightening
from isolatent.encoders.calibration import (
    _compare_densities,
    _fit_swaps,
    _narrow_log_density,
    _neighbours,
    _swap_features,
    box_share,
    fit_narrow_normal,
    implied_range,
)
from isolatent.worlds import Box, GeneralizedNormal, Identity, Laplace, Normal, Uniform, World

WARPS = [
    lambda z: z**2 * 0.7 + 0.3 * z,
    lambda z: torch.sigmoid(5 * (z - 0.4)),
    lambda z: 3 - z - 0.12 * torch.sin(6.28 * z),  # falls, and leaves the unit interval
    lambda z: z,
]
CONDITIONALS = {1.0: Laplace(0.01), 2.0: Normal(0.01), 3.0: GeneralizedNormal(3, 0.02)}


def pairs(p, rows=40_000, seed=0):
    world = World(Box(len(WARPS)), Uniform(), CONDITIONALS[p], Identity(), seed=seed)
    z, z_pos = world.sample_latents(rows)
    warped = (torch.stack([w(c) for w, c in zip(WARPS, x.T, strict=True)], 1) for x in (z, z_pos))
    return z, *warped


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_warps_are_undone(p):
    """To one part in a hundred of the range, up to the direction, which no map can know."""
    z, h, h_pos = pairs(p)
    straight = Straightening(len(WARPS), p).fit(h, h_pos)(h)
    target = torch.where(torch.tensor([1.0, 1.0, -1.0, 1.0]) > 0, z, 1 - z)
    assert (straight - target).abs().max() < 0.03
    assert (straight - target).abs().mean() < 0.01
    # The bound is not idle: before, at least three of the four are off by more.
    plain = (h - h.min(0).values) / (h.max(0).values - h.min(0).values)
    assert ((plain - target).abs().max(0).values > 0.05).sum() == 3


def test_more_pieces_and_pairs_come_nearer():
    """Down to what the walls take from the pairs next to them, here a thousandth of the range."""
    errors = []
    for rows, pieces in ((2000, 4), (20_000, 12), (200_000, 36)):
        z, h, h_pos = pairs(2.0, rows)
        straight = Straightening(len(WARPS), pieces=pieces).fit(h, h_pos)(h)
        errors.append((straight - z)[:, 1].abs().mean().item())
    assert errors[0] > 3 * errors[1]
    assert errors[2] < 2e-3


def test_it_is_the_identity_before_it_is_fitted():
    h = torch.linspace(-1, 2, 301).unsqueeze(1).expand(-1, 3)
    torch.testing.assert_close(Straightening(3)(h), h, atol=1e-6, rtol=0)


def test_each_column_has_its_own_map():
    _, h, h_pos = pairs(2.0, 4000)
    together = Straightening(4).fit(h, h_pos)(h)
    for k in range(4):
        alone = Straightening(1).fit(h[:, k : k + 1], h_pos[:, k : k + 1])(h[:, k : k + 1])
        torch.testing.assert_close(together[:, k : k + 1], alone)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 40.0])
def test_scale_and_offset_of_codes_do_not_matter(scale):
    _, h, h_pos = (x.double() for x in pairs(2.0, 4000))
    straight = Straightening(4).double()
    expected = straight.fit(h, h_pos)(h)
    moved = straight.fit(scale * h + 5, scale * h_pos + 5)(scale * h + 5)
    torch.testing.assert_close(moved, expected, atol=1e-8, rtol=0)


def test_it_rises_without_steps_inside_and_beyond_the_codes():
    _, h, h_pos = pairs(2.0, 4000)
    straight = Straightening(4).double().fit(h, h_pos)
    low, high = h.min(0).values.double(), h.max(0).values.double()
    share = torch.linspace(-0.5, 1.5, 20_001, dtype=torch.float64).unsqueeze(1)
    rises = straight(low + share * (high - low)).diff(dim=0)
    assert (rises > 0).all()
    assert rises.max() < 20 * rises.mean()  # no step: a warp's slope, not a jump
    # The knots themselves: from below and from above to the same value.
    knots = straight.knots.T
    torch.testing.assert_close(straight(knots - 1e-9), straight(knots + 1e-9), atol=1e-6, rtol=0)
    torch.testing.assert_close(straight(knots), straight.values.T, atol=1e-12, rtol=0)


def test_gradients_flow_through():
    _, h, h_pos = pairs(2.0, 4000)
    straight = Straightening(4).double().fit(h, h_pos)
    some = h[:5].double().requires_grad_()
    assert torch.autograd.gradcheck(straight, (some,))
    (slope,) = torch.autograd.grad(straight(some).sum(), some)
    assert (slope > 0).all()


def test_a_fitted_map_can_be_saved_and_is_in_the_codes_precision():
    _, h, h_pos = pairs(2.0, 4000)
    straight = Straightening(4).fit(h, h_pos)
    other = Straightening(4)
    other.load_state_dict(straight.state_dict())
    assert torch.equal(other(h), straight(h))
    assert straight(h).dtype == h.dtype
    assert straight(h[:0]).shape == (0, 4)


def test_one_piece_is_a_line_through_the_tails():
    """The 5 % and 95 % quantiles are those of a uniform distribution; extremes do not matter."""
    _, h, h_pos = pairs(2.0, 4000)
    h[0], h_pos[0] = -7.0, 9.0
    straight = Straightening(4, pieces=1).double().fit(h, h_pos)
    low, high = implied_range(torch.cat([h, h_pos]).double())
    torch.testing.assert_close(straight(h.double()), (h.double() - low) / (high - low))


def unrelated(share):
    def change(z, z_pos):
        count = int(share * len(z))
        return z, torch.cat([z_pos[:count].roll(1, 0), z_pos[count:]])

    return change


def wider_to_the_right(z, z_pos):
    step = 0.05 * torch.randn(z.shape, generator=torch.Generator().manual_seed(1))
    return z, (z + step * (0.3 + 1.4 * z)).clamp(0, 1)


def wider_in_the_middle(z, z_pos):
    step = 0.05 * torch.randn(z.shape, generator=torch.Generator().manual_seed(1))
    return z, (z + step * (0.3 + 4 * z * (1 - z))).clamp(0, 1)


def heavy_tails(z, z_pos):
    generator = torch.Generator().manual_seed(1)
    step, size = (torch.randn(z.shape, generator=generator) for _ in range(2))
    return z, (z + 0.01 * step / size.abs().clamp(min=0.01)).clamp(0, 1)


CHANGES = [
    *[lambda z, z_pos: (z, z_pos), unrelated(0.01), unrelated(0.1)],
    *[wider_to_the_right, wider_in_the_middle, heavy_tails],
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("std", [0.02, 0.05])
def test_straightening_leaves_perfect_codes_alone(change, std):
    """It used to cost up to R² 0.03 where steps are wider at some places or pairs unrelated."""
    world = World(Box(3), Uniform(), Normal(std), Identity(), seed=0)
    z, z_pos = change(*world.sample_latents(40_000))
    rows = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
    straight = Straightening(3)
    assert "not straightened" in straight.fit_if_supported(z[rows], z_pos[rows])
    torch.testing.assert_close(straight(z), z, atol=1e-6, rtol=0)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_unrelated_pairs_do_not_keep_warps_from_being_undone(share):
    """One per cent of unrelated pairs used to make codes worse than no straightening."""
    z, h, h_pos = pairs(2.0)
    h, h_pos = unrelated(share)(h, h_pos)
    rows = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
    straight = Straightening(4)
    assert straight.fit_if_supported(h[rows], h_pos[rows]) == "3 of 4 coordinates straightened"
    assert torch.equal(straight.knots[3], straight.knots.new_tensor(range(17)) / 16)
    assert iso.linear_r2(z, h) < 0.99
    assert iso.linear_r2(z, straight(h)) > 0.999


def test_whether_codes_fill_their_box_is_a_number_that_can_fail():
    z = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0))
    assert box_share(z) == pytest.approx(1.0, abs=0.01)
    assert box_share(0.2 + 0.6 * z) == pytest.approx(0.6, abs=0.01)
    assert box_share(z * torch.tensor([1.0, 0.3])) == pytest.approx(0.3, abs=0.01)
    assert box_share(2 * z, side=2.0) == pytest.approx(1.0, abs=0.01)
    z[0], z[1] = -9.0, 9.0  # extremes do not count
    assert box_share(0.5 * z) == pytest.approx(0.5, abs=0.01)


LINSPACE = tuple(torch.linspace(5, 25, 5).tolist())


@pytest.mark.parametrize(
    ("marginal", "weights"),
    [
        (Uniform(), LINSPACE),
        (iso.VonMisesFisher(2.0), LINSPACE),
        (iso.VonMisesFisher(4.0), LINSPACE),
        (iso.VonMisesFisher(4.0), (5.0, 10.0, 20.0)),
        (Uniform(), tuple(10 * 1.02**k for k in range(10))),
        (Uniform(), (10.0,) * 4),
        (Uniform(), (5.0, 5.0, 25.0, 25.0)),
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_perfect_codes_are_not_rotated(marginal, weights, share):
    """It used to cost MCC 0.1 to 0.2 for a marginal that is not uniform, 0.06 for close weights."""
    space, conditional = iso.Sphere(len(weights)), iso.AnisotropicNormal(weights)
    z, z_pos = iso.World(space, marginal, conditional, Identity(), seed=0).sample_latents(40_000)
    z, z_pos = unrelated(share)(z, z_pos)
    rows = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
    axes = PrincipalAxes(len(weights))
    axes.fit_if_supported(z[rows], z_pos[rows])
    assert iso.mcc(z, axes(z)) > 0.998


def test_axes_of_equal_weights_stay_as_they_are():
    """The blocks are rotated against each other, and axes within a block are not."""
    weights = (5.0, 5.0, 25.0, 25.0)
    conditional = iso.AnisotropicNormal(weights)
    world = iso.World(iso.Sphere(4), Uniform(), conditional, Identity(), seed=0)
    z, z_pos = (part.double() for part in world.sample_latents(40_000))
    turn = torch.eye(4, dtype=torch.float64)
    turn[1:3, 1:3] = torch.tensor([[0.8, 0.6], [-0.6, 0.8]])
    axes = PrincipalAxes(4).double()
    assert "codes rotated" in axes.fit_if_supported(z @ turn, z_pos @ turn)
    assert iso.mcc(z, z @ turn) < 0.95
    assert iso.mcc(z, axes(z @ turn)) > 0.998


@pytest.mark.parametrize("kappa", [0.1, 4.0])
def test_swapped_positives_determine_the_weights_for_every_marginal(kappa):
    weights = torch.tensor([5.0, 10.0, 20.0], dtype=torch.float64)
    conditional = iso.AnisotropicNormal(tuple(weights.tolist()))
    world = iso.World(iso.Sphere(3), iso.VonMisesFisher(kappa), conditional, Identity(), seed=0)
    z, z_pos = (part.double() for part in world.sample_latents(100_000))
    features = _swap_features(z, z_pos, _neighbours(z, z_pos))
    torch.testing.assert_close(_fit_swaps(features)[0], weights, rtol=0.07, atol=0)


NARROW = (200.0, 400.0, 800.0, 1600.0, 3200.0)


def narrow_pairs(marginal=None, count=40_000):
    conditional = iso.AnisotropicNormal(NARROW)
    world = iso.World(iso.Sphere(5), marginal or Uniform(), conditional, Identity(), seed=0)
    return tuple(part.double() for part in world.sample_latents(count))


@pytest.mark.parametrize("marginal", [Uniform(), iso.VonMisesFisher(4.0)])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_narrow_normal_has_its_weights_for_every_marginal(marginal, share):
    z, z_pos = unrelated(share)(*narrow_pairs(marginal))
    weights, found = fit_narrow_normal(z, z_pos)
    expected = torch.tensor(NARROW, dtype=torch.float64)
    torch.testing.assert_close(weights, expected, rtol=0.06, atol=0)  # it is not that narrow
    assert found == pytest.approx(share, abs=0.01)


def test_the_log_density_of_a_narrow_normal_is_normalised():
    """Its integral over the circle, for anchors all around it."""
    angle = torch.linspace(0, 2 * math.pi, 20_001, dtype=torch.float64)[:-1]
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    weights = torch.tensor([2000.0, 6000.0], dtype=torch.float64)
    for anchor in circle[::2500]:
        density = _narrow_log_density(anchor.expand(len(circle), 2), circle, weights, 0.1).exp()
        assert density.mean().item() * 2 * math.pi == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("error", [0.0, 0.05])
def test_a_rotation_is_undone_where_the_conditional_is_too_narrow_for_swaps(error, generator):
    z, z_pos = narrow_pairs()
    turn = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64))[0]
    turn = turn + error * torch.randn(5, 5, generator=generator, dtype=torch.float64)
    h, h_pos = (torch.nn.functional.normalize(part @ turn) for part in (z, z_pos))
    axes = PrincipalAxes(5).double()
    assert "codes rotated" in axes.fit_if_supported(h, h_pos, narrow=True)
    assert iso.mcc(z, h) < 0.95
    assert iso.mcc(z, axes(h)) > 0.998


def test_codes_that_a_matrix_has_distorted_are_likelier_without_it():
    """In the axes of the factors, differences are uncorrelated with and without the distortion."""
    z, z_pos = narrow_pairs()
    stretch = torch.tensor([1.2, 0.9, 1.0, 1.1, 0.8], dtype=torch.float64)
    h, h_pos = (torch.nn.functional.normalize(part * stretch) for part in (z, z_pos))
    undo = PrincipalAxes(5).double()
    undo.matrix.copy_(torch.diag(1 / stretch))
    gains = _compare_densities(undo, [[h[::2], h_pos[::2]], [h[1::2], h_pos[1::2]]])
    assert gains.mean() > 3 * gains.std() / len(gains) ** 0.5


@pytest.mark.parametrize("marginal", [Uniform(), iso.VonMisesFisher(4.0)])
def test_perfect_codes_of_a_narrow_conditional_are_not_rotated(marginal):
    z, z_pos = narrow_pairs(marginal)
    axes = PrincipalAxes(5).double()
    axes.fit_if_supported(z, z_pos, narrow=True)
    assert iso.mcc(z, axes(z)) > 0.998


@pytest.mark.parametrize("error", [0.0, 0.02])
def test_a_rotation_is_undone_also_where_it_is_not_quite_one(error, generator):
    """20 000 pairs of four weights; MCC was 0.999 and more for ten seeds, 0.98 is the bound."""
    weights = (5.0, 10.0, 20.0, 40.0)
    conditional = iso.AnisotropicNormal(weights)
    world = iso.World(iso.Sphere(4), iso.Uniform(), conditional, iso.Identity(), seed=0)
    z, z_pos = (part.double() for part in world.sample_latents(20_000))
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    turn = turn + error * torch.randn(4, 4, generator=generator, dtype=torch.float64)
    axes = PrincipalAxes(4).double()
    h = axes.fit(z @ turn, z_pos @ turn)(z @ turn)
    assert iso.mcc(z, z @ turn) < 0.95
    assert iso.mcc(z, h) > 0.98
    torch.testing.assert_close(h.norm(dim=1), torch.ones(len(h), dtype=torch.float64))
    # The largest weight comes first.
    order = torch.corrcoef(torch.cat([h, z], 1).T)[:4, 4:].abs().argmax(1)
    assert order.tolist() == [3, 2, 1, 0]


def test_it_starts_as_the_identity_on_the_sphere():
    h = torch.nn.functional.normalize(torch.randn(10, 3))
    torch.testing.assert_close(PrincipalAxes(3)(h), h)


Z = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Straightening(0), ValueError, "n must be an integer >= 1, got 0"),
        (lambda: Straightening(2, p=0.5), ValueError, "p must be a finite number >= 1, got 0.5"),
        (lambda: Straightening(2, pieces=0), ValueError, "pieces must be an integer >= 1, got 0"),
        (lambda: Straightening(2).fit(Z, Z[:-1]), ValueError, r"same shape \(N, 2\), got \(200, 2"),
        (lambda: Straightening(3).fit(Z, Z), ValueError, r"the same shape \(N, 3\)"),
        (lambda: Straightening(2).fit(Z[:, 0], Z[:, 0]), ValueError, r"the same shape \(N, 2\)"),
        (lambda: Straightening(2).fit(Z[:159], Z[:159]), ValueError, "at least 10 rows for each"),
        (lambda: Straightening(2).fit(Z, Z), ValueError, "h and h_pos must differ"),
        (lambda: Straightening(2).fit(0 * Z, 0 * Z + 1), ValueError, "must differ, and vary, in"),
        (
            lambda: PrincipalAxes(3).fit(Z, Z),
            ValueError,
            r"h and h_pos must have the same shape \(N, 3\)",
        ),
        (lambda: PrincipalAxes(2).fit(Z[:1], Z[:1]), ValueError, "at least 2 rows, got 1"),
        (lambda: PrincipalAxes(2).fit(0 * Z, 0 * Z), ValueError, "must vary in every direction"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
