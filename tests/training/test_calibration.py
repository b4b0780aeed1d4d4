"""Calibration estimates what has a closed form, and changes nothing else."""

import copy

import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.encoders import BoxHead, PrincipalAxes, SphereHead, Straightening
from isolatent.pairs import ArrayPairs, WorldPairs
from isolatent.training import Recipe
from isolatent.training.calibration import calibrate, fit_loss, set_scale
from small_runs import small_run


@pytest.mark.parametrize(
    ("conditional", "p", "weight"),
    [
        (iso.Normal(0.01), 2.0, 0.5 / 0.01**2),
        (iso.Laplace(0.01), 1.0, 1 / 0.01),
        (iso.GeneralizedNormal(3, 0.02), 3.0, 0.02**-3),
    ],
)
def test_the_weight_of_a_narrow_conditional_is_estimated(conditional, p, weight):
    world = iso.World(iso.Box(3), iso.Uniform(), conditional, iso.Identity(), seed=0)
    loss = iso.InfoNCE(iso.Lp(p=p, learn_weights=True))
    set_scale(loss, *world.sample_latents(20_000), "box")
    assert loss.similarity.weights.item() == pytest.approx(weight, rel=0.03)


def test_the_concentration_of_a_narrow_vmf_is_estimated():
    conditional = iso.VonMisesFisher(500.0)
    world = iso.World(iso.Sphere(4), iso.Uniform(), conditional, iso.Identity(), seed=0)
    loss = iso.InfoNCE(iso.Dot(learn_scale=True))
    set_scale(loss, *world.sample_latents(20_000), "sphere")
    assert loss.similarity.scale.item() == pytest.approx(500.0, rel=0.03)


def test_the_weights_of_a_narrow_anisotropic_normal_are_estimated():
    weights = torch.tensor([100.0, 200.0, 400.0, 800.0])
    conditional = iso.AnisotropicNormal(tuple(weights.tolist()))
    world = iso.World(iso.Sphere(4), iso.Uniform(), conditional, iso.Identity(), seed=0)
    loss = iso.AnInfoNCE(4)
    set_scale(loss, *world.sample_latents(20_000), "sphere")
    torch.testing.assert_close(loss.weights.detach(), weights, rtol=0.04, atol=0)


def with_unrelated(z, z_pos, share):
    """Give a share of the anchors the positives of others."""
    count = int(share * len(z))
    return z, torch.cat([z_pos[:count].roll(1, 0), z_pos[count:]])


@pytest.mark.parametrize("n", [2, 3, 10])
def test_an_lp_distance_on_a_sphere_has_one_dimension_less(n):
    """It was n / (n - 1) of the truth: 150 for 100 in three dimensions."""
    conditional = iso.VonMisesFisher(400.0)
    world = iso.World(iso.Sphere(n), iso.Uniform(), conditional, iso.Identity(), seed=0)
    loss = iso.InfoNCE(iso.Lp(p=2, learn_weights=True))
    set_scale(loss, *world.sample_latents(20_000), "sphere")
    assert loss.similarity.weights.item() == pytest.approx(200.0, rel=0.05)


@pytest.mark.parametrize("unrelated", [0.0, 0.01, 0.1])
@pytest.mark.parametrize(
    ("space", "conditional", "similarity", "geometry", "expected"),
    [
        (iso.Box(3), iso.Normal(0.05), iso.Lp(2, learn_weights=True), "box", 200.0),
        (iso.Box(3), iso.Normal(0.15), iso.Lp(2, learn_weights=True), "box", 0.5 / 0.15**2),
        (iso.Box(10), iso.Laplace(0.05), iso.Lp(1, learn_weights=True), "box", 20.0),
        (iso.Box(3), iso.GeneralizedNormal(3, 0.05), iso.Lp(3, learn_weights=True), "box", 8000.0),
        (iso.Sphere(4), iso.VonMisesFisher(100.0), iso.Dot(learn_scale=True), "sphere", 100.0),
        (iso.Box(3), iso.Normal(0.01), iso.Lp(2, learn_weights=True), "free", 5000.0),
    ],
    ids=repr,
)
def test_walls_and_unrelated_pairs_do_not_change_the_scale(
    space, conditional, similarity, geometry, expected, unrelated
):
    """It was off by a quarter to a half in a box, and by more with unrelated pairs."""
    world = iso.World(space, iso.Uniform(), conditional, iso.Identity(), seed=0)
    loss = iso.InfoNCE(copy.deepcopy(similarity))
    set_scale(loss, *with_unrelated(*world.sample_latents(20_000), unrelated), geometry)
    (learned,) = (parameter.exp().item() for parameter in loss.parameters())
    assert learned == pytest.approx(expected, rel=0.05)


def test_a_loss_is_minimised_over_its_own_parameters():
    """No change of the scale lowers it, and the codes stay."""
    world = iso.World(
        iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(20.0), iso.Identity(), seed=0
    )
    h, h_pos = world.sample_latents(512)
    loss = iso.InfoNCE(iso.Dot(learn_scale=True))
    before = loss(h, h_pos).item()
    fit_loss(loss, h, h_pos, batch_size=512)
    least = loss(h, h_pos).item()
    assert least < before - 0.1
    best = loss.similarity.log_scale.detach().clone()
    for change in (-0.05, 0.05):
        with torch.no_grad():
            loss.similarity.log_scale.copy_(best + change)
        assert loss(h, h_pos).item() > least


BOX = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.01), iso.Identity(), seed=0)
SPHERE = iso.World(
    iso.Sphere(2), iso.Uniform(), iso.AnisotropicNormal((20.0, 60.0)), iso.Identity(), seed=0
)
LP = {"p": 2, "learn_weights": True}


@pytest.mark.parametrize(
    ("world", "layers", "saturated", "changes"),
    [
        (BOX, [BoxHead(learn_bound=False), Straightening(2)], False, False),
        (BOX, [BoxHead(learn_bound=False), Straightening(2)], True, True),
        (SPHERE, [SphereHead()], False, False),
        (SPHERE, [SphereHead(), PrincipalAxes(2)], False, True),
        (SPHERE, [SphereHead(), PrincipalAxes(2)], True, True),
    ],
)
def test_calibration_changes_the_last_layer_and_the_loss_alone(world, layers, saturated, changes):
    encoder = nn.Sequential(nn.Linear(2, 2), *copy.deepcopy(layers))
    with torch.no_grad():  # a rotation of the factors
        encoder[0].weight.copy_(torch.tensor([[0.8, -0.6], [0.6, 0.8]]))
        if world is BOX:
            nn.init.eye_(encoder[0].weight)
        encoder[0].bias.zero_()
    loss = iso.InfoNCE(iso.Lp(weights=[1.0, 1.0] if world is SPHERE else 1.0, **LP))
    run = small_run(Recipe(batch_size=256), encoder, loss)
    run.saturated_at = 1 if saturated else None
    before = copy.deepcopy((encoder.state_dict(), loss.state_dict()))
    description = calibrate(run, encoder, loss, WorldPairs(world))
    assert ("straightened" in description or "rotated" in description) == changes
    assert "not" not in description
    for key, value in encoder.state_dict().items():
        last = key.startswith(f"{len(encoder) - 1}.")
        if not (changes and last):
            assert torch.equal(value, before[0][key]), key
    assert (
        any(not torch.equal(value, before[0][key]) for key, value in encoder.state_dict().items())
        == changes
    )
    assert all(torch.equal(v, before[1][k]) for k, v in loss.state_dict().items()) != changes


def test_codes_that_do_not_fill_their_box_are_named():
    """Straightening does not hide it: the share is that of the codes as they were trained."""
    encoder = nn.Sequential(nn.Linear(2, 2), BoxHead(learn_bound=False), Straightening(2))
    nn.init.eye_(encoder[0].weight)
    nn.init.zeros_(encoder[0].bias)
    loss = iso.InfoNCE(iso.Lp(weights=1.0, **LP))
    run = small_run(Recipe(batch_size=256), encoder, loss)
    run.saturated_at = 1
    description = calibrate(run, encoder, loss, WorldPairs(BOX))
    assert "codes spanned 23% of their box's sides" in description  # sigmoid(1) - sigmoid(0)
    assert loss.similarity.weights.item() == pytest.approx(5000.0, rel=0.05)


def test_pairs_of_a_small_data_set_are_not_counted_twice():
    """Copies of 300 pairs would pass for evidence."""
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.05), iso.Identity(), seed=0)
    encoder = nn.Sequential(nn.Linear(2, 2), Straightening(2))
    loss = iso.InfoNCE(iso.Lp(weights=1.0, **LP))
    run = small_run(Recipe(batch_size=256), encoder, loss)
    run.saturated_at = 1
    description = calibrate(run, encoder, loss, ArrayPairs(*world.sample_latents(300)))
    assert "not straightened: too few pairs" in description
    assert torch.equal(encoder[1].values, Straightening(2).values)


@pytest.mark.parametrize(("n", "kappa"), [(3, 200.0), (20, 50.0), (40, 50.0)])
def test_the_scale_of_a_vmf_need_not_be_narrow(n, kappa):
    """As long as pairs share enough to saturate InfoNCE, which is when it is estimated so."""
    world = iso.World(iso.Sphere(n), iso.Uniform(), iso.VonMisesFisher(kappa), iso.Linear(), seed=0)
    z, z_pos = world.sample_latents(16_000)
    loss = iso.InfoNCE(iso.Dot(learn_scale=True))
    set_scale(loss, z, z_pos, "sphere")
    assert float(loss.similarity.scale.detach()) == pytest.approx(kappa, rel=0.03)
