"""The training engine: optimiser steps, the modules it keeps, and restored runs."""

import copy
import math

import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.encoders import BoxHead, SphereHead
from isolatent.pairs import ArrayPairs, Batch, WorldPairs
from isolatent.training import Recipe, Step, Training, train
from small_runs import WORLD, small_batch, small_encoder, small_run, trained_parameters


class Regression(Training):
    """The simplest objective: predict the positive; nothing is averaged or measured."""

    def loss(self, batch):
        return nn.functional.mse_loss(self.network(batch.x), batch.x_pos)


def regression(recipe, **options):
    return Regression(small_encoder(), recipe, torch.Generator().manual_seed(0), **options)


def test_the_engine_needs_only_a_loss():
    run = regression(Recipe(max_steps=60, batch_size=32, warmup=5, learning_rate=1e-2))
    modules = train(run, DoublePairs())
    assert [*modules] == ["network"]
    assert not modules["network"].training
    assert run.averaged is None
    assert run.history[-1].loss < 0.5 * run.history[0].loss
    for step in run.history:
        assert (step.information, step.scale, step.held_out, step.quality) == (None,) * 4


class DoublePairs:
    """Pairs of the world in float64, either as a tuple or as a batch."""

    def __init__(self, as_batch=False):
        self.as_batch = as_batch

    def sample(self, batch_size, generator):
        x, x_pos = (part.double() for part in WORLD.sample_pairs(batch_size, generator))
        return Batch(x, x_pos) if self.as_batch else (x, x_pos)


def test_a_source_may_return_tuples_or_batches():
    runs = [regression(Recipe(max_steps=3, batch_size=8)) for _ in range(2)]
    for run, as_batch in zip(runs, (False, True), strict=True):
        train(run, DoublePairs(as_batch))
    assert runs[0].history == runs[1].history


def test_a_step_is_that_of_adamw_with_a_separate_rate_for_scales():
    """Recomputed with one optimiser for the weights and one for the logarithm of the scale."""
    recipe = Recipe(max_steps=40, batch_size=64, warmup=10, scale_rate=7.0, weight_decay=0.3)
    run = small_run(recipe)
    network, loss = copy.deepcopy(run.network), copy.deepcopy(run.modules["loss"])
    weights = torch.optim.AdamW(network.parameters(), weight_decay=0.3, betas=(0.9, 0.99))
    scale = torch.optim.AdamW(loss.parameters(), weight_decay=0.0, betas=(0.9, 0.99))
    for number in range(1, 16):
        batch = small_batch(seed=number)
        current = run.advance(batch)
        rate = run.schedule.rate(number)
        weights.param_groups[0]["lr"], scale.param_groups[0]["lr"] = rate, 7.0 * rate
        value = loss(network(batch.x), network(batch.x_pos))
        assert current == pytest.approx(value.item(), abs=1e-6)  # scales are float32
        for optimiser in (weights, scale):
            optimiser.zero_grad()
        value.backward()
        for optimiser in (weights, scale):
            optimiser.step()
        run.history.append(Step(number, 40, current, None, None))
    expected = [*network.parameters(), *loss.parameters()]
    for found, parameter in zip(trained_parameters(run), expected, strict=True):
        torch.testing.assert_close(found, parameter.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("head", "name"), [(SphereHead(learn_radius=True), "log_radius"), (BoxHead(), "log_bound")]
)
def test_logarithms_of_radii_and_bounds_have_the_rate_of_scales(head, name):
    recipe = Recipe(scale_rate=3.0, weight_decay=0.1)
    run = small_run(recipe, nn.Sequential(small_encoder(), head))
    rest, scales = run.optimiser.param_groups
    assert {id(p) for p in scales["params"]} == {
        id(getattr(run.network[1], name)),
        id(run.modules["loss"].similarity.log_scale),
    }
    assert (rest["weight_decay"], rest["rate_factor"]) == (0.1, 1.0)
    assert (scales["weight_decay"], scales["rate_factor"]) == (0.0, 3.0)
    assert len(rest["params"]) == len(list(small_encoder().parameters()))


def test_frozen_parameters_stay():
    network = small_encoder()
    network[0].weight.requires_grad_(False)
    before = network[0].weight.clone()
    run = small_run(Recipe(max_steps=5, batch_size=16), network)
    train(run, WorldPairs(WORLD), small_batch())
    assert torch.equal(run.network[0].weight, before)
    assert not torch.equal(run.network[2].weight, small_encoder()[2].weight)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_stops_before_the_weights_change(value):
    class Exploding(nn.Module):
        steps = 0

        def forward(self, h, h_pos):
            self.steps += 1
            return h.sum() * (value if self.steps == 3 else 1.0)

    run = small_run(Recipe(max_steps=10, batch_size=8, learning_rate=0.5), loss=Exploding())
    states = []
    with pytest.raises(FloatingPointError, match=r"became -?(inf|nan) at step 3; .* than 0.5"):
        train(
            run,
            WorldPairs(WORLD),
            small_batch(),
            on_step=lambda step: states.append(trained_parameters(run)),
        )
    assert all(map(torch.equal, trained_parameters(run), states[-1]))
    assert run.number == 2


def test_every_step_is_reported_once():
    run = small_run(Recipe(max_steps=35, batch_size=32, warmup=5))
    seen, scored = [], []

    def quality(network):
        assert network is run.averaged.module
        scored.append(len(seen) + 1)
        return float(len(seen))

    train(run, WorldPairs(WORLD), small_batch(), on_step=seen.append, quality=quality)
    assert seen == run.history
    assert [step.number for step in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].number == seen[-1].total
    measured = [step.number for step in seen if step.held_out is not None]
    assert measured == [10, 20, 30, 35] == scored
    for step in seen:
        assert (step.quality is None) == (step.held_out is None)
        assert step.information == pytest.approx(math.log(32) - step.loss)
        assert step.scale > 0


def test_network_and_loss_with_the_least_held_out_loss_are_kept():
    """Few pairs are overfitted; the result is from the step with the least held-out loss."""
    few, held_out = small_batch(40), small_batch(200, seed=5)
    run = small_run(Recipe(max_steps=400, batch_size=40, learning_rate=3e-2, warmup=5))
    copies = {}

    def remember(step):
        if step.held_out is not None:
            network, loss = run.averaged.module, run.modules["loss"]
            value = loss(network(held_out.x), network(held_out.x_pos)).item()
            assert value == pytest.approx(step.held_out, abs=1e-9)
            copies[step.number] = step.held_out, copy.deepcopy((network, loss))

    modules = train(run, ArrayPairs(few.x, few.x_pos), held_out, on_step=remember)
    best = min(copies, key=lambda number: copies[number][0])
    assert best < run.number - 20  # training continued without improvement
    network, loss = modules["network"], modules["loss"]
    for found, expected in zip((network, loss), copies[best][1], strict=True):
        for name, value in expected.state_dict().items():
            assert torch.equal(found.state_dict()[name], value)
    value = loss(network(held_out.x), network(held_out.x_pos)).item()
    assert value == pytest.approx(copies[best][0], abs=1e-9)
    assert value < copies[max(copies)][0]


def test_the_result_is_a_copy():
    run = small_run(Recipe(max_steps=10, batch_size=16))
    train(run, WorldPairs(WORLD), small_batch())
    kept = copy.deepcopy(run.result()["network"].state_dict())
    for number in range(5):
        run.advance(small_batch(16, number))
    assert all(torch.equal(v, kept[k]) for k, v in run.result()["network"].state_dict().items())


def test_a_restored_run_continues_with_the_same_bits(tmp_path):
    recipe = Recipe(max_steps=30, batch_size=16, warmup=5)
    checkpoints = iso.training.Checkpoints(tmp_path)
    run = small_run(recipe)

    def stop(step):
        if step.number == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, WorldPairs(WORLD), small_batch(), on_step=stop, checkpoints=checkpoints)
    other = small_run(recipe, small_encoder(seed=8))
    other.restore(checkpoints.latest(), {})
    assert other.history == run.history
    for one in (run, other):
        train(one, WorldPairs(WORLD), small_batch())
    assert all(map(torch.equal, trained_parameters(run), trained_parameters(other)))
    assert run.history == other.history
