"""Checks by relaxing an assumption: which are made, and what a saturated loss can say."""

import pytest
import torch

import isolatent as iso
from isolatent.diagnosis.held_out import HeldOut
from isolatent.diagnosis.nested import check_relaxations_nested

BOX = iso.Beliefs("box")


def held_out(width):
    """Return pairs of codes in a box, as observations."""
    generator = torch.Generator().manual_seed(0)
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(width), iso.Identity(), seed=0)
    parts = [iso.Batch(*world.sample_pairs(n, generator)) for n in (4000, 4000)]
    source = iso.ArrayPairs(parts[0].x, parts[0].x_pos)
    return HeldOut(source, *parts, 8000, source)


def checks_of(loss, width=0.1):
    network = torch.nn.Linear(2, 2)
    torch.nn.init.eye_(network.weight)
    torch.nn.init.zeros_(network.bias)
    options = {"steps": 300, "metric": "linear_r2", "seed": 0}
    return check_relaxations_nested(network, loss, BOX, "box", held_out(width), **options)


def test_the_true_model_is_supported():
    loss = iso.InfoNCE(iso.Lp(p=2, weights=1 / (2 * 0.1**2)))
    checks = {check.key: check for check in checks_of(loss)}
    assert set(checks) == {"pairing", "anchor_scale", "factor_scale", "marginal", "dynamics"}
    assert {check.status for check in checks.values()} == {"supported"}
    assert all(0 < check.p_value <= 1 and check.harm is None for check in checks.values())
    assert all(0 < check.error < 0.05 for check in checks.values())


def test_a_saturated_loss_cannot_support():
    loss = iso.InfoNCE(iso.Lp(p=2, weights=1 / (2 * 0.001**2)))
    assert "supported" not in {check.status for check in checks_of(loss, width=0.001)}


@pytest.mark.parametrize(
    "loss", [iso.AlignUniform(), iso.InfoNCE(iso.Dot(), negatives_from="within")]
)
def test_losses_that_cannot_be_compared_get_no_check(loss):
    assert checks_of(loss) == []
