"""The loop: what a step does, what is kept, and when it stops."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.contrast import Dot, InfoNCE, Lp, SaturatedInfoNCE
from isolatent.encoders import SphereHead
from isolatent.pairs import ArrayPairs, WorldPairs
from isolatent.training import Recipe, Training, fit_encoder
from isolatent.training.engine import SHORTEST_MEMORY

WORLD = iso.World(
    iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(20.0), iso.InvertibleMLP(2, condition_draws=50)
)


def encoder(seed=0, *extra):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), *extra, nn.Linear(16, 3)).double()


def training(recipe, network=None, loss=None, saturated=None):
    return Training(
        network or encoder(),
        loss or InfoNCE(Dot(learn_scale=True)),
        recipe,
        torch.Generator().manual_seed(0),
        saturated,
    )


def pairs(count=64, seed=0):
    return tuple(x.double() for x in WORLD.sample_pairs(count, torch.Generator().manual_seed(seed)))


def state(run):
    return [p.detach().clone() for p in (*run.encoder.parameters(), *run.loss.parameters())]


@pytest.mark.parametrize("part", [5, 64, 127, 128, 1000])
def test_parts_give_the_gradients_of_the_whole(part):
    x, x_pos = pairs()
    results = []
    for recipe in (Recipe(batch_size=64), Recipe(batch_size=64, chunk_size=part)):
        run = training(recipe)
        value = run.objective(*run._encode(x, x_pos))
        results.append([value, *torch.autograd.grad(value, run.parameters)])
    for ours, whole in zip(*results, strict=True):
        torch.testing.assert_close(ours, whole, rtol=0, atol=1e-10)


def test_parts_give_the_curve_of_the_whole():
    curves = []
    for part in (None, 10):
        run = training(Recipe(max_steps=25, batch_size=64, chunk_size=part))
        fit_encoder(run, WorldPairs(WORLD), pairs(seed=9))
        curves.append([(step.loss, step.scale) for step in run.history])
    np.testing.assert_allclose(curves[1], curves[0], atol=1e-10)


def test_a_step_is_that_of_adamw_with_its_own_rate_for_scales():
    """Recomputed with one optimiser for the weights and one for the logarithm of the scale."""
    recipe = Recipe(max_steps=40, batch_size=64, warmup=10, scale_rate=7.0, weight_decay=0.3)
    run = training(recipe)
    network, loss = copy.deepcopy(run.encoder), copy.deepcopy(run.loss)
    weights = torch.optim.AdamW(network.parameters(), weight_decay=0.3, betas=(0.9, 0.99))
    scale = torch.optim.AdamW(loss.parameters(), weight_decay=0.0, betas=(0.9, 0.99))
    for number in range(1, 16):
        x, x_pos = pairs(seed=number)
        current = run.advance(x, x_pos)
        rate = run.pace.rate(number)
        weights.param_groups[0]["lr"], scale.param_groups[0]["lr"] = rate, 7.0 * rate
        value = loss(network(x), network(x_pos))
        assert current == pytest.approx(value.item(), abs=1e-6)  # scales are float32
        for optimiser in (weights, scale):
            optimiser.zero_grad()
        value.backward()
        for optimiser in (weights, scale):
            optimiser.step()
        run.history.append(iso.training.Step(number, 40, current, None, None))
    for ours, expected in zip(state(run), [*network.parameters(), *loss.parameters()], strict=True):
        torch.testing.assert_close(ours, expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (SphereHead(learn_radius=True), "log_radius"),
        (iso.encoders.BoxHead(), "log_bound"),
    ],
)
def test_logarithms_of_sizes_are_scales_too(module, name):
    run = training(Recipe(scale_rate=3.0, weight_decay=0.1), nn.Sequential(encoder(), module))
    rest, scales = run.optimiser.param_groups
    assert {id(p) for p in scales["params"]} == {
        id(getattr(run.encoder[1], name)),
        id(run.loss.similarity.log_scale),
    }
    assert (rest["weight_decay"], rest["times"]) == (0.1, 1.0)
    assert (scales["weight_decay"], scales["times"]) == (0.0, 3.0)
    assert len(rest["params"]) == len(list(encoder().parameters()))


def test_weights_that_are_frozen_stay():
    network = encoder()
    network[0].weight.requires_grad_(False)
    before = network[0].weight.clone()
    run = training(Recipe(max_steps=5, batch_size=16), network)
    fit_encoder(run, WorldPairs(WORLD), pairs())
    assert torch.equal(run.encoder[0].weight, before)
    assert not torch.equal(run.encoder[2].weight, encoder()[2].weight)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.9])
def test_the_average_is_the_one_written_by_hand(share):
    """After the first step its weights, later 1/m of the newest, m the memory."""
    run = training(Recipe(max_steps=120, batch_size=8, averaging=share))
    mean = None
    for number in range(1, 121):
        run.advance(*pairs(8, number))
        run.history.append(iso.training.Step(number, 120, 0.0, None, None))
        now = [p.detach().clone() for p in run.encoder.parameters()]
        memory = max(SHORTEST_MEMORY, share * (number - 1))
        mean = [m + (p - m) / memory for m, p in zip(mean or now, now, strict=True)]
    for ours, expected in zip(run.averaged.module.parameters(), mean, strict=True):
        torch.testing.assert_close(ours.detach(), expected, rtol=0, atol=1e-10)


def test_buffers_of_the_average_are_the_newest():
    run = training(Recipe(max_steps=3, batch_size=16), encoder(0, nn.BatchNorm1d(16)))
    fit_encoder(run, WorldPairs(WORLD), pairs())
    assert torch.equal(run.averaged.module[2].running_mean, run.encoder[2].running_mean)
    assert run.encoder.training
    assert not run.result()[0].training


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_no_number_stops_before_it_does_harm(value):
    class Exploding(nn.Module):
        steps = 0

        def forward(self, h, h_pos):
            self.steps += 1
            return h.sum() * (value if self.steps == 3 else 1.0)

    run = training(Recipe(max_steps=10, batch_size=8, learning_rate=0.5), loss=Exploding())
    states = []
    with pytest.raises(FloatingPointError, match=r"became -?(inf|nan) at step 3; .* than 0.5"):
        fit_encoder(run, WorldPairs(WORLD), pairs(), on_step=lambda step: states.append(state(run)))
    assert all(map(torch.equal, state(run), states[-1]))
    assert run.number == 2


def test_every_step_is_told_once():
    run = training(Recipe(max_steps=35, batch_size=32, warmup=5))
    seen, qualities = [], []

    def quality(network):
        assert network is run.averaged.module
        qualities.append(len(seen) + 1)
        return float(len(seen))

    fit_encoder(run, WorldPairs(WORLD), pairs(), on_step=seen.append, quality=quality)
    assert seen == run.history
    assert [step.number for step in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].number == seen[-1].total
    measured = [step.number for step in seen if step.held_out is not None]
    assert measured == [10, 20, 30, 35] == qualities
    for step in seen:
        assert (step.quality is None) == (step.held_out is None)
        assert step.information == pytest.approx(math.log(32) - step.loss)
        assert step.scale > 0


class Apart(nn.Module):
    def forward(self, h, h_pos):
        return (h - h_pos).square().mean()


@pytest.mark.parametrize(
    ("loss", "has_bound", "has_scale"),
    [
        (InfoNCE(Lp(p=1, learn_weights=True)), True, True),
        (InfoNCE(Dot(), negatives_from="within"), False, True),
        (iso.NCE(Dot()), False, True),
        (Apart(), False, False),
    ],
)
def test_what_is_told_depends_on_the_loss(loss, has_bound, has_scale):
    run = training(Recipe(max_steps=1, batch_size=8), loss=loss)
    fit_encoder(run, WorldPairs(WORLD), pairs())
    (step,) = run.history
    assert (step.information is not None, step.scale is not None) == (has_bound, has_scale)


def test_the_best_held_out_moment_is_kept_encoder_and_loss():
    """Few pairs are learned by heart; what comes back is from where the held-out loss was least."""
    few, held_out = pairs(40), pairs(200, seed=5)
    run = training(Recipe(max_steps=400, batch_size=40, learning_rate=3e-2, warmup=5))
    moments = {}

    def remember(step):
        if step.held_out is not None:
            h, h_pos = (run.averaged.module(x) for x in held_out)
            assert run.loss(h, h_pos).item() == pytest.approx(step.held_out, abs=1e-9)
            moments[step.number] = (step.held_out, copy.deepcopy((run.averaged.module, run.loss)))

    network, loss = fit_encoder(run, ArrayPairs(*few), held_out, on_step=remember)
    best = min(moments, key=lambda number: moments[number][0])
    assert best < run.number - 20  # it went on, and was no better
    for ours, theirs in zip((network, loss), moments[best][1], strict=True):
        for name, value in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[name], value)
    value = loss(*(network(x) for x in held_out)).item()
    assert value == pytest.approx(moments[best][0], abs=1e-9)
    assert value < moments[max(moments)][0]


def test_what_is_kept_does_not_change_with_what_is_trained():
    run = training(Recipe(max_steps=10, batch_size=16))
    fit_encoder(run, WorldPairs(WORLD), pairs())
    kept = copy.deepcopy(run.result()[0].state_dict())
    for number in range(5):
        run.advance(*pairs(16, number))
    assert all(torch.equal(v, kept[k]) for k, v in run.result()[0].state_dict().items())


def narrow(std):
    return iso.World(iso.Box(2), iso.Uniform(), iso.Normal(std), iso.Identity())


@pytest.mark.parametrize(("std", "saturates"), [(0.005, True), (0.3, False)])
def test_narrow_worlds_saturate_and_wide_ones_do_not(std, saturates):
    """With the encoder at the truth and a scale that is learned."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Linear(2, 2)
    nn.init.eye_(network.weight)
    nn.init.zeros_(network.bias)
    loss = InfoNCE(Lp(p=2, learn_weights=True))
    recipe = Recipe(max_steps=200, batch_size=128, learning_rate=0.02, warmup=5, scale_rate=10.0)
    run = training(recipe, network, loss, SaturatedInfoNCE(2, 2, "box", 128))
    world = narrow(std)
    held_out = world.sample_pairs(500, torch.Generator().manual_seed(1))
    fit_encoder(run, WorldPairs(world), held_out)
    assert (run.saturated_at is not None) == saturates
    if not saturates:
        assert all(step.information is not None for step in run.history)
        return
    at = run.saturated_at
    assert all(step.information is not None for step in run.history[:at])
    assert all(step.information is None for step in run.history[at:])
    assert run.objective is run.saturated_loss
    # Measurements of the old loss are forgotten: what is best is best by the new one.
    measured = [step for step in run.history[at:] if step.held_out is not None]
    assert run.pace.best == min(step.held_out for step in measured)


def test_saturation_can_be_switched_off():
    world = narrow(0.005)
    recipe = Recipe(max_steps=60, batch_size=64, warmup=5, scale_rate=20.0, saturation=0.0)
    run = training(recipe, nn.Linear(2, 2), InfoNCE(Lp(learn_weights=True)), SaturatedInfoNCE(2))
    fit_encoder(run, WorldPairs(world), world.sample_pairs(100))
    assert run.saturated_at is None


def test_a_state_can_be_restored_and_goes_on_alike(tmp_path):
    recipe = Recipe(max_steps=30, batch_size=16, warmup=5)
    checkpoints = iso.training.Checkpoints(tmp_path)
    run = training(recipe)

    def stop(step):
        if step.number == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_encoder(run, WorldPairs(WORLD), pairs(), on_step=stop, checkpoints=checkpoints)
    other = training(recipe, encoder(seed=8))
    other.restore(checkpoints.latest(), {})
    assert other.history == run.history
    for one in (run, other):
        fit_encoder(one, WorldPairs(WORLD), pairs())
    assert all(map(torch.equal, state(run), state(other)))
    assert run.history == other.history
