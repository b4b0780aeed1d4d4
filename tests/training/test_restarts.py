"""Where training starts: capacities and weights, compared by short runs."""

import math
from dataclasses import replace

import pytest
import torch

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.training import restarts
from isolatent.training.capacity import LINEAR, Capacity, Start
from isolatent.training.devices import connect
from isolatent.training.restarts import (
    CAPACITIES,
    FEWEST_PAIRS,
    check_n_init,
    choose_start,
)

RECIPE = iso.Recipe()


def pairs_of(n_pairs, layers, seed=0, n=4):
    world = iso.World(
        *(iso.Sphere(n), iso.Uniform(), iso.VonMisesFisher(20.0)),
        iso.InvertibleMLP(layers=layers) if layers else iso.Linear(),
        seed=seed,
    )
    return world.sample_pairs(n_pairs)


def starts_of(model, x, x_pos, n_init, recipe=RECIPE):
    """Return the start that is chosen, and the held-out loss of each that was tried."""
    source, runs = iso.ArrayPairs(x, x_pos), {}

    def set_up(short, start):
        beliefs, processes = model.beliefs, connect("cpu", 1, 1, "32-true")
        model._set_shape((x.shape[1],))
        run = model._set_up(source, 0, short, beliefs, processes, start=start, trial=True)
        runs[start] = run.training
        return run

    chosen = choose_start(set_up, recipe, 0, source, n_init)
    return chosen, {start: run.schedule.best for start, run in runs.items()}


def test_the_start_with_the_least_held_out_loss_is_chosen():
    x, x_pos = pairs_of(600, layers=3)
    recipe = replace(RECIPE, max_steps=60, batch_size=64)
    model = iso.ContrastiveICA(4, space="sphere")
    chosen, losses = starts_of(model, x, x_pos, 3, recipe)
    assert len({start.seed for start in losses}) == 3
    assert losses[chosen] == min(losses.values())


def test_other_capacities_are_compared_where_the_network_overfits(monkeypatch):
    monkeypatch.setattr(restarts, "SHORT_RUN_OF_FEW", 50)
    model = iso.ContrastiveICA(4, space="sphere")
    _, few = starts_of(model, *pairs_of(300, layers=3), 1)
    assert {start.capacity for start in few} == {None, *CAPACITIES}
    recipe = replace(RECIPE, max_steps=50)
    _, many = starts_of(model, *pairs_of(20_000, layers=0), 1, recipe)
    assert {start.capacity for start in many} == {None}


@pytest.mark.parametrize(("complete", "expected"), [(1.0, Capacity(32, 0.1, 3.0)), (3.0, LINEAR)])
def test_a_linear_encoder_is_taken_only_if_a_complete_network_is_worse(
    monkeypatch, complete, expected
):
    """A linear encoder is complete after its short run, and ahead of networks then."""

    def loss_and_gap(run, seed):
        recipe, start = run
        if start.capacity == LINEAR:
            return 2.0, 0.0
        if recipe.max_steps > restarts.SHORT_RUN_OF_FEW:
            return complete, 1.0
        return (2.5 if start.capacity == Capacity(32, 0.1, 3.0) else 2.6), 1.0

    monkeypatch.setattr(restarts, "_train_briefly", loss_and_gap)
    source = iso.ArrayPairs(*pairs_of(2000, layers=0))
    chosen = choose_start(lambda *run: run, RECIPE, 0, source, None)
    assert chosen == Start(expected)


def test_regularised_networks_train_for_as_many_epochs_whatever_the_number_of_pairs():
    start = Start(Capacity(32, 0.0, 6.0))
    for n_pairs in (3000, 4000, 6000):
        settings = start.recipe(RECIPE, n_pairs)
        epochs = settings.max_steps * settings.batch_size / n_pairs
        assert math.isclose(epochs, 300, rel_tol=0.05)


def test_a_linear_start_and_the_default_keep_the_batch_size():
    for start in (Start(), Start(LINEAR)):
        assert start.recipe(RECIPE, 1000).batch_size == RECIPE.batch_size


def test_fewer_pairs_than_can_say_anything_get_a_linear_encoder_and_a_warning():
    x, x_pos = pairs_of(FEWEST_PAIRS - 40, layers=3)
    model = iso.ContrastiveICA(4, space="sphere", random_state=0)
    with pytest.warns(IsolatentWarning, match="60 pairs support no better one.*about 160 pairs"):
        model.fit(x, x_pos)
    assert model.capacity_ == LINEAR
    assert len(model.history_) <= 2000
    assert any("linear encoder" in warning for warning in model.guarantee_.warnings)


def test_trials_leave_the_global_generator_alone():
    x, x_pos = pairs_of(300, layers=3)
    before = torch.get_rng_state()
    recipe = replace(RECIPE, max_steps=20, batch_size=64)
    starts_of(iso.ContrastiveICA(4, space="sphere"), x, x_pos, 2, recipe)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "options",
    [
        {"encoder": "paper"},
        {"encoder": "deep"},
        {"encoder": torch.nn.Linear(4, 3)},
        {"loss": iso.InfoNCE(iso.Dot())},
        {"devices": 2},
        {"relax": ("noise",), "noise_share": 1.0},
    ],
)
def test_several_starts_are_refused_where_there_would_be_one(options):
    x, x_pos = pairs_of(300, layers=1)
    model = iso.ContrastiveICA(4, space="sphere", n_init=7, recipe=RECIPE, **options)
    with pytest.raises(ValueError, match=r"n_init must be 'auto' or 1 .*, got 7"):
        model.fit(x, x_pos)


def test_several_starts_are_refused_for_pairs_that_are_not_held_out():
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
    recordings = [world.observe(world.sample_latents(60)[0]).numpy() for _ in range(2)]
    several = [recordings[0], recordings[1][:, :1]]
    for data in ((world,), world.sample_pairs(19), (several,)):
        model = iso.ContrastiveICA(1, space="box", n_init=2, recipe=RECIPE)
        with pytest.raises(ValueError, match=r"n_init must be 'auto' or 1 .*, got 2"):
            model.fit(*data)


@pytest.mark.parametrize("value", ["always", 0, -1, 1.5, None])
def test_other_numbers_of_runs_are_refused(value):
    with pytest.raises((ValueError, TypeError), match="n_init must be"):
        check_n_init(value)
