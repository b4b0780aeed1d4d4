"""Calibration estimates what has a closed form, and changes nothing else."""

import copy

import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.encoders import BoxHead, PrincipalAxes, SphereHead, Straightening
from isolatent.pairs import WorldPairs
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
    set_scale(loss, *world.sample_latents(20_000))
    assert loss.similarity.weights.item() == pytest.approx(weight, rel=0.03)


def test_the_concentration_of_a_narrow_vmf_is_estimated():
    conditional = iso.VonMisesFisher(500.0)
    world = iso.World(iso.Sphere(4), iso.Uniform(), conditional, iso.Identity(), seed=0)
    loss = iso.InfoNCE(iso.Dot(learn_scale=True))
    set_scale(loss, *world.sample_latents(20_000))
    assert loss.similarity.scale.item() == pytest.approx(500.0, rel=0.03)


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
    ],
)
def test_calibration_changes_the_last_layer_and_the_loss_alone(world, layers, saturated, changes):
    encoder = nn.Sequential(nn.Linear(2, 2), *copy.deepcopy(layers))
    nn.init.eye_(encoder[0].weight)
    loss = iso.InfoNCE(iso.Lp(weights=[1.0, 1.0] if world is SPHERE else 1.0, **LP))
    run = small_run(Recipe(batch_size=256), encoder, loss)
    run.saturated_at = 1 if saturated else None
    before = copy.deepcopy((encoder.state_dict(), loss.state_dict()))
    calibrate(run, encoder, loss, WorldPairs(world))
    for key, value in encoder.state_dict().items():
        last = key.startswith(f"{len(encoder) - 1}.")
        if not (changes and last):
            assert torch.equal(value, before[0][key]), key
    assert (
        any(not torch.equal(value, before[0][key]) for key, value in encoder.state_dict().items())
        == changes
    )
    assert all(torch.equal(v, before[1][k]) for k, v in loss.state_dict().items()) != changes
