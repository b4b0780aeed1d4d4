"""Codes are turned to the axes along which pairs differ independently."""

import pytest
import torch

import isolatent as iso
from isolatent.encoders import PrincipalAxes


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


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"h and h_pos must have the same shape \(N, 3\)"):
        PrincipalAxes(3).fit(torch.ones(10, 2), torch.ones(10, 2))
    with pytest.raises(ValueError, match="must vary in every direction"):
        PrincipalAxes(2).fit(torch.zeros(10, 2), torch.zeros(10, 2))
