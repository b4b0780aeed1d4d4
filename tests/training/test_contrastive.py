"""Contrastive training: chunks, averaged weights, saturation, and set-up of a run."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.contrast import (
    Dot,
    InfoNCE,
    Lp,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
    SphereMoments,
)
from isolatent.pairs import ArrayPairs, Batch, SplitError, WorldPairs
from isolatent.training import ContrastiveTraining, Recipe, Step, Training, train
from isolatent.training.contrastive import (
    LATER_SATURATION,
    MIN_AVERAGING_STEPS,
    MOMENTS_WEIGHT,
)
from isolatent.training.setup import hold_out
from small_runs import WORLD, small_batch, small_encoder, small_run


@pytest.mark.parametrize("chunk_size", [5, 64, 127, 128, 1000])
@pytest.mark.parametrize("with_negatives", [False, True])
def test_chunks_give_the_gradients_of_the_whole_batch(chunk_size, with_negatives):
    batch = small_batch()
    if with_negatives:
        negatives = torch.randn(
            64, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        batch = Batch(batch.x, batch.x_pos, negatives)
    results = []
    for size in (None, chunk_size):
        loss = InfoNCE(Dot(learn_scale=True), symmetric=not with_negatives)
        run = small_run(Recipe(batch_size=64, chunk_size=size), loss=loss)
        value = run.loss(batch)
        results.append([value, *torch.autograd.grad(value, run.parameters)])
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-10)


def test_chunks_give_the_losses_of_whole_batches():
    curves = []
    for chunk_size in (None, 10):
        run = small_run(Recipe(max_steps=25, batch_size=64, chunk_size=chunk_size))
        train(run, WorldPairs(WORLD), small_batch(seed=9))
        curves.append([(step.loss, step.scale) for step in run.history])
    np.testing.assert_allclose(curves[1], curves[0], atol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.9])
def test_averaged_weights_are_an_exponential_average(share):
    """It starts with the weights of the first step; later 1/m of the newest, m the memory."""
    run = small_run(Recipe(max_steps=120, batch_size=8, averaging=share))
    mean = None
    for number in range(1, 121):
        run.advance(small_batch(8, number))
        run.history.append(Step(number, 120, 0.0, None, None))
        now = [p.detach().clone() for p in run.network.parameters()]
        memory = max(MIN_AVERAGING_STEPS, share * (number - 1))
        mean = [m + (p - m) / memory for m, p in zip(mean or now, now, strict=True)]
    for found, expected in zip(run.averaged.module.parameters(), mean, strict=True):
        torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-10)


def test_buffers_are_not_averaged():
    run = small_run(Recipe(max_steps=3, batch_size=16), small_encoder(0, nn.BatchNorm1d(16)))
    train(run, WorldPairs(WORLD), small_batch())
    assert torch.equal(run.averaged.module[2].running_mean, run.network[2].running_mean)
    assert run.network.training
    assert not run.result()["network"].training


class Distance(nn.Module):
    def forward(self, h, h_pos):
        return (h - h_pos).square().mean()


@pytest.mark.parametrize(
    ("loss", "has_bound", "has_scale"),
    [
        (InfoNCE(Lp(p=1, learn_weights=True)), True, True),
        (InfoNCE(Dot(), negatives_from="within"), False, True),
        (iso.NCE(Dot()), False, True),
        (Distance(), False, False),
    ],
)
def test_information_and_scale_are_reported_where_the_loss_has_them(loss, has_bound, has_scale):
    run = small_run(Recipe(max_steps=1, batch_size=8), loss=loss)
    train(run, WorldPairs(WORLD), small_batch())
    (step,) = run.history
    assert (step.information is not None, step.scale is not None) == (has_bound, has_scale)


def narrow_world(std):
    return iso.World(iso.Box(2), iso.Uniform(), iso.Normal(std), iso.Identity())


@pytest.mark.parametrize(("std", "saturates"), [(0.005, True), (0.3, False)])
def test_narrow_conditionals_saturate_and_wide_ones_do_not(std, saturates):
    """The encoder starts at the true factors, and the scale is learned."""
    network = nn.Linear(2, 2)
    nn.init.eye_(network.weight)
    nn.init.zeros_(network.bias)
    loss = InfoNCE(Lp(p=2, learn_weights=True))
    recipe = Recipe(max_steps=200, batch_size=128, learning_rate=0.02, warmup=5, scale_rate=10.0)
    run = small_run(recipe, network, loss, SaturatedInfoNCE(2, 2, "box", 128))
    world = narrow_world(std)
    held_out = Batch.of(world.sample_pairs(500, torch.Generator().manual_seed(1)))
    train(run, WorldPairs(world), held_out)
    assert (run.saturated_at is not None) == saturates
    if not saturates:
        assert all(step.information is not None for step in run.history)
        return
    at = run.saturated_at
    assert all(step.information is not None for step in run.history[:at])
    assert all(step.information is None for step in run.history[at:])
    assert run.objective is run.saturated_loss
    # Measurements of the old loss are discarded, so the best one is of the new loss.
    measured = [step for step in run.history[at:] if step.held_out is not None]
    assert run.schedule.best == min(step.held_out for step in measured)


def test_saturation_can_be_disabled():
    world = narrow_world(0.005)
    recipe = Recipe(max_steps=60, batch_size=64, warmup=5, scale_rate=20.0, saturation=0.0)
    run = small_run(recipe, nn.Linear(2, 2), InfoNCE(Lp(learn_weights=True)), SaturatedInfoNCE(2))
    train(run, WorldPairs(world), Batch.of(world.sample_pairs(100)))
    assert run.saturated_at is None


# --- Keep codes uniform on a sphere at first.


def sphere_run(recipe, **options):
    network = nn.Sequential(small_encoder(), iso.encoders.SphereHead())
    generator = torch.Generator().manual_seed(0)
    return ContrastiveTraining(network, iso.AnInfoNCE(3).double(), recipe, generator, **options)


def test_the_penalty_has_a_gradient_and_is_not_recorded():
    """Its weight falls linearly to zero over the steps of the patience."""
    recipe, batch = Recipe(batch_size=64, patience=10), small_batch()
    for done, share in ((0, 1.0), (4, 0.6), (10, 0.0), (30, 0.0)):
        gradients = []
        for moments in (True, False):
            run = sphere_run(recipe, moments=moments)
            run.history = [None] * done
            value = run.loss(batch)
            gradients.append(torch.autograd.grad(value, [*run.network.parameters()]))
            assert value.item() == pytest.approx(run.modules["loss"](
                run.network(batch.x), run.network(batch.x_pos)).item(), abs=1e-12)  # fmt: skip
        penalty = SphereMoments()(run.network(batch.x), run.network(batch.x_pos))
        expected = torch.autograd.grad(penalty, [*run.network.parameters()])
        for with_it, without, part in zip(*gradients, expected, strict=True):
            torch.testing.assert_close(with_it - without, MOMENTS_WEIGHT * share * part)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"conditional": "anisotropic", "loss": "aninfonce"}, True),
        ({"conditional": "anisotropic"}, True),
        ({"conditional": "anisotropic", "loss": "aninfonce", "marginal": "unknown"}, False),
        ({}, False),
        ({"space": "box"}, False),
    ],
)
def test_codes_are_kept_uniform_where_a_factor_could_be_lost(options, kept):
    recipe = Recipe(max_steps=2, batch_size=32)
    model = iso.ContrastiveICA(
        3, recipe=recipe, random_state=0, **{"space": "sphere"} | options
    ).fit(WORLD)
    assert ("kept uniform" in model.guarantee_.objective) == kept


def test_a_loss_with_a_weight_for_each_code_saturates_later():
    recipe = Recipe(batch_size=64)
    later = sphere_run(recipe, saturated_loss=SaturatedAnInfoNCE(3, batch_size=64))
    usual = sphere_run(recipe, saturated_loss=SaturatedInfoNCE(3, batch_size=64))
    assert later.saturation == LATER_SATURATION * recipe.saturation
    assert usual.saturation == sphere_run(recipe).saturation == recipe.saturation


def anisotropic_fit(weights, seed, max_steps=1000):
    n = len(weights)
    conditional, mixing = iso.AnisotropicNormal(weights), iso.InvertibleMLP(layers=3)
    world = iso.World(iso.Sphere(n), iso.Uniform(), conditional, mixing, seed=seed)
    options = {"conditional": "anisotropic", "loss": "aninfonce", "random_state": seed}
    model = iso.ContrastiveICA(n, recipe=Recipe(max_steps=max_steps), **options).fit(world)
    z = world.sample_latents(8192, torch.Generator().manual_seed(1))[0]
    return z, model.transform(world.observe(z)), model


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(2, 40), (5, 120), (50, 400)])
def test_no_factor_is_lost(ends):
    """AnInfoNCE alone had R² 0.90, 0.90 and 0.95."""
    weights = torch.linspace(*ends, 10)
    z, h, model = anisotropic_fit(tuple(weights.tolist()), seed=0)
    assert iso.linear_r2(z, h) > 0.99
    assert iso.mcc(z, h) > 0.98
    assert model.guarantee_.warnings == ()
    found = model.loss_.weights.detach().sort().values
    torch.testing.assert_close(found, weights, rtol=0.3, atol=0)


# --- Finite and endless sources, written as a user would write them.


class OwnFinite:
    """A finite source with the methods of the contract alone; it records the rows it drew."""

    def __init__(self, x, x_pos, rows=None):
        self.x, self.x_pos = x, x_pos
        self.rows = torch.arange(len(x)) if rows is None else rows
        self.drawn = set()

    def sample(self, batch_size, generator):
        repeats = -(-batch_size // len(self.rows))
        orders = [torch.randperm(len(self.rows), generator=generator) for _ in range(repeats)]
        rows = self.rows[torch.cat(orders)[:batch_size]]
        self.drawn |= set(rows.tolist())
        return self.x[rows], self.x_pos[rows]

    def __len__(self):
        return len(self.rows)

    def split(self, share, generator):
        count = round(share * len(self))
        if count < 2:
            raise SplitError("too few pairs")
        order = torch.randperm(len(self), generator=generator)
        parts = self.rows[order[count:]], self.rows[order[:count]]
        self.parts = [OwnFinite(self.x, self.x_pos, rows) for rows in parts]
        return tuple(self.parts)


class OwnEndless:
    def __init__(self):
        self.drawn = 0

    def sample(self, batch_size, generator):
        self.drawn += batch_size
        x = torch.randn(batch_size, 3, generator=generator)
        return x, x + 0.1 * torch.randn(batch_size, 3, generator=generator)


def noisy_pairs(count, seed=0):
    """Observations with their positives; most of the noise can be overfitted."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=generator)
    return x, x + 0.8 * torch.randn(count, 3, generator=generator)


def test_training_never_draws_the_held_out_pairs_of_a_finite_source():
    source = OwnFinite(*noisy_pairs(200))
    recipe = Recipe(max_steps=40, batch_size=32, warmup=5)
    model = iso.ContrastiveICA(3, space="sphere", recipe=recipe, random_state=0).fit(source)
    most, rest = source.parts
    assert source.drawn == set()
    assert (len(most), len(rest)) == (160, 40)
    assert most.drawn == set(most.rows.tolist())
    assert rest.drawn == set(rest.rows.tolist())
    assert not most.drawn & rest.drawn
    assert [step.number for step in model.history_ if step.held_out is not None] == [10, 20, 30, 40]


def test_the_held_out_loss_of_a_finite_source_stops_training():
    """The recorded losses are those of held-out pairs, and training ends once they rise."""
    source = OwnFinite(*noisy_pairs(150))
    recipe = Recipe(max_steps=1000, batch_size=64, warmup=5)
    model = iso.ContrastiveICA(3, space="euclidean", recipe=recipe, random_state=0).fit(source)
    assert len(model.history_) < 900
    measured = [step.held_out for step in model.history_ if step.held_out is not None]
    assert min(measured) < measured[-1]
    rows = source.parts[1].rows
    h, h_pos = (model.encoder_(part[rows]).detach() for part in (source.x, source.x_pos))
    distances = np.abs(np.array(measured) - model.loss_(h, h_pos).item())
    assert distances.min() < 1e-4
    assert distances.argmin() < len(measured) - 3  # one from before the end is kept


@pytest.mark.parametrize(
    ("pairs", "held_out"), [(19, 19), (20, 4), (300, 60), (700, 100), (5000, 500), (90_000, 4096)]
)
def test_a_tenth_of_the_pairs_is_held_out_within_bounds(pairs, held_out):
    x = torch.arange(float(pairs))[:, None]
    generator = torch.Generator().manual_seed(0)
    source, batch = hold_out(OwnFinite(x, -x), generator)
    assert len(batch) == held_out
    assert len(batch.x.unique()) == held_out
    assert torch.equal(batch.x, -batch.x_pos)
    assert len(source) == (pairs if held_out == pairs else pairs - held_out)


def test_a_source_that_cannot_be_split_is_used_whole():
    source = OwnFinite(*noisy_pairs(120))
    source.split = lambda share, generator: (_ for _ in ()).throw(SplitError("too few"))
    kept, batch = hold_out(source, torch.Generator().manual_seed(0))
    assert kept is source
    assert len(batch) == 120


def test_an_endless_source_of_a_user_works():
    source = OwnEndless()
    model = iso.ContrastiveICA(
        3, space="sphere", recipe=Recipe(max_steps=3, batch_size=16), random_state=0
    )
    assert model.fit(source).transform(np.ones((2, 3))).shape == (2, 3)
    assert source.drawn > 3 * 16
    kept, batch = hold_out(source, torch.Generator().manual_seed(0))
    assert kept is source
    assert len(batch) == 4096


def test_a_source_that_returns_batches_trains_like_one_that_returns_tuples():
    class AsBatch(OwnEndless):
        def sample(self, batch_size, generator):
            return Batch(*super().sample(batch_size, generator))

    recipe = Recipe(max_steps=5, batch_size=16)
    histories = [
        iso.ContrastiveICA(3, space="sphere", recipe=recipe, random_state=0).fit(source).history_
        for source in (OwnEndless(), AsBatch())
    ]
    assert histories[0] == histories[1]


# --- Negatives and tags.

ANISOTROPIC = iso.World(
    iso.Sphere(3), iso.Uniform(), iso.AnisotropicNormal((20.0, 40.0, 60.0)), iso.Linear(), seed=0
)
NEGATIVES = iso.AnisotropicNormal(5.0)
SHORT = Recipe(max_steps=4, batch_size=24, warmup=1)
CONDITIONALS = [
    iso.AnisotropicNormal((20.0, 40.0, 60.0)),
    iso.AnisotropicNormal((60.0, 40.0, 20.0)),
]


def given_loss(n=3):
    return iso.AnInfoNCE(n, symmetric=False, negatives_from="given")


def two_losses(n=3, **options):
    return iso.Ensemble([iso.AnInfoNCE(n, **options) for _ in range(2)])


def ensemble_arrays(count=120, **changes):
    batch = WorldPairs(ANISOTROPIC, conditionals=CONDITIONALS).sample(
        count, torch.Generator().manual_seed(0)
    )
    return ArrayPairs(batch.x, batch.x_pos, **{"tags": batch.tags, **changes})


BATCH_CASES = {
    "negatives": (given_loss, lambda: WorldPairs(ANISOTROPIC, negatives=NEGATIVES, n_negatives=4)),
    "ensemble": (two_losses, lambda: WorldPairs(ANISOTROPIC, conditionals=CONDITIONALS)),
    "ensemble of arrays": (two_losses, ensemble_arrays),
    "ensemble with negatives": (
        lambda: two_losses(symmetric=False, negatives_from="given"),
        lambda: WorldPairs(
            ANISOTROPIC, conditionals=CONDITIONALS, negatives=NEGATIVES, n_negatives=4
        ),
    ),
}


@pytest.mark.parametrize("name", BATCH_CASES)
def test_negatives_and_tags_reach_the_loss(name):
    """The losses of all steps are those of a loop written by hand."""
    make_loss, make_source = BATCH_CASES[name]
    run = small_run(SHORT, small_encoder(), make_loss())
    network, loss = small_encoder(), make_loss()
    groups = [{"params": network.parameters()}, {"params": loss.parameters(), "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, weight_decay=SHORT.weight_decay, betas=(0.9, 0.99))
    source, generator = make_source(), torch.Generator().manual_seed(0)
    train(run, make_source(), Batch.of(make_source().sample(60, torch.Generator())))
    for step in run.history:
        batch = source.sample(24, generator)
        options = {"tags": batch.tags} if "ensemble" in name else {}
        if batch.negatives is not None:
            flat = batch.negatives.double().flatten(0, 1)
            options["negatives"] = network(flat).view(24, 4, 3)
        value = loss(network(batch.x.double()), network(batch.x_pos.double()), **options)
        assert step.loss == pytest.approx(value.item(), rel=1e-4)
        rate = run.schedule.rate(step.number)
        for group, factor in zip(optimiser.param_groups, (1.0, SHORT.scale_rate), strict=True):
            group["lr"] = rate * factor
        optimiser.zero_grad()
        value.backward()
        optimiser.step()


@pytest.mark.parametrize("name", BATCH_CASES)
def test_the_estimator_takes_negatives_and_tags(name, tmp_path):
    make_loss, make_source = BATCH_CASES[name]
    model = iso.ContrastiveICA(
        3, space="sphere", loss=make_loss(), conditional="anisotropic", recipe=SHORT, random_state=0
    )
    model.fit(make_source())
    before, after = make_loss().state_dict(), model.loss_.state_dict()
    assert all(not torch.equal(after[key], value) for key, value in before.items())
    assert model.history_[-1].held_out is not None
    assert math.isfinite(model.score(make_source()))
    x = ANISOTROPIC.sample_pairs(10, torch.Generator().manual_seed(1))[0].numpy()
    model.save(tmp_path)
    loaded = iso.ContrastiveICA.load(tmp_path, loss=make_loss())
    assert np.array_equal(loaded.transform(x), model.transform(x))
    assert loaded.score(make_source()) == model.score(make_source())
    again = iso.ContrastiveICA(**model.get_params()).partial_fit(make_source())
    assert again.transform(x).shape == (10, 3)


class PlainLoss(nn.Module):
    """A user's own loss, which takes pairs of codes and nothing else."""

    def forward(self, h, h_pos):
        return (h - h_pos).square().mean()


@pytest.mark.parametrize(
    ("make_loss", "make_source", "message"),
    [
        (two_losses, lambda: WorldPairs(ANISOTROPIC), "X must be a pair source with tags for an"),
        (
            given_loss,
            lambda: WorldPairs(ANISOTROPIC),
            "X must be a pair source with negatives for a loss with negatives_from='given'",
        ),
        (
            lambda: two_losses(symmetric=False, negatives_from="given"),
            lambda: WorldPairs(ANISOTROPIC, conditionals=CONDITIONALS),
            "X must be a pair source with negatives for a loss with negatives_from='given'",
        ),
        (
            PlainLoss,
            lambda: WorldPairs(ANISOTROPIC, negatives=NEGATIVES, n_negatives=4),
            "loss must take negatives=, which these pairs carry, got PlainLoss",
        ),
        (
            lambda: "infonce",
            lambda: WorldPairs(ANISOTROPIC, negatives=NEGATIVES, n_negatives=4),
            "loss must be a module with symmetric=False",
        ),
        (
            two_losses,
            lambda: ensemble_arrays(tags=np.arange(120) % 3),
            r"tags must be from 0 to 1, got \[0, 1, 2\]",
        ),
        (
            two_losses,
            lambda: ensemble_arrays(tags=np.arange(120) % 2 - 1),
            r"tags must be from 0 to 1, got \[-1, 0\]",
        ),
    ],
)
def test_batches_that_the_loss_cannot_take_are_refused_before_training(
    make_loss, make_source, message, monkeypatch
):
    monkeypatch.setattr(Training, "advance", lambda *_: pytest.fail("training has started"))
    model = iso.ContrastiveICA(3, space="sphere", loss=make_loss(), recipe=SHORT, random_state=0)
    with pytest.raises(ValueError, match=message):
        model.fit(make_source())


def test_a_loss_that_takes_no_tags_ignores_them():
    x, x_pos = noisy_pairs(120)
    recipe = Recipe(max_steps=3, batch_size=16)
    histories = [
        iso.ContrastiveICA(3, space="sphere", recipe=recipe, random_state=0).fit(source).history_
        for source in (ArrayPairs(x, x_pos), ArrayPairs(x, x_pos, tags=np.arange(120) % 2))
    ]
    assert histories[0] == histories[1]


@pytest.mark.parametrize(
    ("level", "saturated_at", "narrow"),
    [(None, None, False), (1.0, None, False), (0.5, None, True), (1.0, 3, True)],
)
def test_a_conditional_is_narrow_where_infonce_is_small(level, saturated_at, narrow):
    run = sphere_run(Recipe(batch_size=64, saturation=0.15))  # 0.62 nats
    run._level, run.saturated_at = level, saturated_at
    assert run.is_narrow == narrow


def test_information_of_held_out_pairs_is_log_b_minus_their_loss():
    """With all held-out pairs as candidates; only where log B minus the loss is a bound."""
    x = np.random.default_rng(0).normal(size=(400, 3))
    for loss, has_bound in (("infonce", True), ("scl", False)):
        recipe = iso.Recipe(max_steps=20, batch_size=32)
        model = iso.ContrastiveICA(2, space="box", loss=loss, recipe=recipe, random_state=0)
        model.fit(x, x + 0.1)
        measured = [step for step in model.history_ if step.held_out is not None]
        assert measured
        assert all((step.held_out_information is not None) == has_bound for step in measured)
        if has_bound:
            held_out = {math.exp(step.held_out + step.held_out_information) for step in measured}
            assert [*held_out] == pytest.approx([80] * len(held_out))
