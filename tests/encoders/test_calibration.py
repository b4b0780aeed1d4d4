"""Calibration inverts the warp of each coordinate and the rotation of codes, nothing else."""

import pytest
import torch

import isolatent as iso
from isolatent.encoders import PrincipalAxes, Straightening
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


def test_one_piece_is_a_line():
    _, h, h_pos = pairs(2.0, 4000)
    straight = Straightening(4, pieces=1).double().fit(h, h_pos)
    middle = 0.5 * (h + h_pos).double()
    low, high = middle.min(0).values, middle.max(0).values
    torch.testing.assert_close(straight(h.double()), (h.double() - low) / (high - low))


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
