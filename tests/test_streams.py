"""A fit neither reads nor changes torch's global generator, also in threads."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Generator, nn

import isolatent as iso
from isolatent.baselines import AdaGVAE, SupervisedEncoder
from isolatent.encoders import MLP
from isolatent.streams import (
    Dropout,
    draws_globally,
    layers_from_stream,
    random_stream,
    replayed,
    stream_for,
)
from isolatent.training import contrastive
from isolatent.training.capacity import Capacity, Start
from isolatent.training.setup import set_up

X, X_POS = np.random.default_rng(0).normal(size=(2, 200, 3)).astype(np.float32)
X_POS = X + 0.3 * X_POS
RECIPE = iso.Recipe(max_steps=12, batch_size=32, warmup=2)


def with_dropout():
    with random_stream(Generator().manual_seed(3)), layers_from_stream():
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def of_array():
    model = iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, n_init=2, random_state=0)
    return model.fit(X, X_POS).transform(X)


def of_recording():
    return iso.ContrastiveICA(2, recipe=RECIPE, random_state=0).fit(X.cumsum(0)).transform(X)


def of_own_module():
    model = iso.ContrastiveICA(
        2, space="box", encoder=with_dropout(), recipe=RECIPE, random_state=0
    )
    return model.fit(X, X_POS).transform(X)


def of_supervised():
    return SupervisedEncoder(2, max_steps=12, batch_size=32).fit(X, X_POS[:, :2]).transform(X)


def of_vae():
    return AdaGVAE(2, max_steps=12, batch_size=32, random_state=0).fit(X, X_POS).transform(X)


def of_world():
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.FlowMixing(), seed=0)
    return world.observe(world.sample_latents(9)[0]).numpy()


FITS = [of_array, of_recording, of_own_module, of_supervised, of_vae, of_world]


def digest(codes):
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()


@pytest.mark.filterwarnings("ignore:the encoder overfitted")
@pytest.mark.parametrize("fit", FITS)
def test_the_global_generator_is_neither_used_nor_changed(fit):
    found = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.add(digest(fit()))
        assert torch.equal(torch.get_rng_state(), before)
    assert len(found) == 1


def fit_in_threads(threads, repeats):
    """Fit in threads beside one that draws from the global generator all the time."""
    fits = [of_array, of_own_module]
    expected = {fit: digest(fit()) for fit in fits}
    stop = threading.Event()
    differ = 0
    with ThreadPoolExecutor(threads + 1) as pool:
        noise = pool.submit(lambda: [torch.rand(1) for _ in iter(stop.is_set, True)])
        tasks = [(fit, pool.submit(fit)) for _ in range(repeats) for fit in fits[:1]]
        differ += sum(digest(task.result()) != expected[fit] for fit, task in tasks)
        stop.set()
        noise.result()
        tasks = [(fit, pool.submit(fit)) for _ in range(repeats) for fit in fits]
        differ += sum(digest(task.result()) != expected[fit] for fit, task in tasks)
    return differ


def test_fits_in_threads_have_the_bits_of_fits_alone():
    assert fit_in_threads(threads=3, repeats=3) == 0


@pytest.mark.slow
def test_many_fits_in_threads_have_the_bits_of_fits_alone():
    assert fit_in_threads(threads=4, repeats=100) == 0


def test_a_loaded_model_leaves_the_global_generator_alone(tmp_path):
    iso.ContrastiveICA(2, space="sphere", recipe=RECIPE).fit(X, X_POS).save(tmp_path)
    before = torch.get_rng_state()
    iso.ContrastiveICA.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Linear(4, 3),
        lambda: nn.Conv2d(2, 3, 3),
        lambda: nn.GRU(3, 2),
        lambda: nn.Embedding(4, 3),
        lambda: nn.MultiheadAttention(4, 2),
        lambda: nn.TransformerEncoderLayer(4, 2),
        lambda: nn.Bilinear(2, 3, 4),
    ],
)
def test_weights_are_those_that_the_global_generator_would_give(build):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = build().state_dict()
        torch.manual_seed(6)
        before = torch.get_rng_state()
        with random_stream(Generator().manual_seed(5)), layers_from_stream():
            found = build().state_dict()
        assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_of_dropout_are_those_of_torch(dtype):
    x = torch.arange(1, 301, dtype=dtype).view(30, 10)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = [nn.Dropout(0.3)(x) for _ in range(2)]
    with random_stream(Generator().manual_seed(5)):
        found = [Dropout(0.3)(x) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_which_modules_draw_globally():
    assert not draws_globally([MLP(3, 2, dropout=0.1), nn.Sequential(nn.Linear(1, 1), nn.GELU())])
    for loud in (nn.Dropout(0.1), nn.LSTM(2, 2), nn.RReLU(), type("Own", (nn.Module,), {})()):
        assert draws_globally([nn.Sequential(nn.Linear(1, 1), loud)])


def test_a_regularised_network_draws_its_masks_from_the_run():
    """The perceptron's own dropout, as few pairs get it."""
    losses = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        run = set_up(
            *("mlp", "infonce", iso.ArrayPairs(X, X_POS), 0, RECIPE, iso.Beliefs("sphere"), 2),
            start=Start(Capacity(16, 0.3, 3.0)),
        )
        batch = iso.pairs.Batch.of(run.source.sample(32, Generator().manual_seed(0)))
        losses.append([run.training.advance(batch) for _ in range(3)])
        assert torch.equal(torch.get_rng_state(), before)
    assert losses[0] == losses[1]


def test_a_stream_goes_on_where_it_stopped():
    whole, parts = (Generator().manual_seed(0) for _ in range(2))
    with stream_for(whole, loud=True):
        expected = torch.rand(6)
    found = []
    for _ in range(2):
        with stream_for(parts, loud=True):
            found.append(torch.rand(3))
    assert torch.equal(torch.cat(found), expected)


def test_masks_are_drawn_again_where_there_is_no_stream():
    """As in a backward pass after the stream has ended."""
    dropout, x = replayed(Dropout(0.5)), torch.ones(99)
    with random_stream(Generator().manual_seed(0)):
        expected = dropout(x)
    before = torch.get_rng_state()
    assert torch.equal(dropout(x), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_recomputed_activations_have_the_masks_of_the_forward_pass(monkeypatch):
    recipe = iso.Recipe(max_steps=9, batch_size=32, warmup=2, chunk_size=24)
    gradients = []
    for recomputes in (True, False):
        if not recomputes:
            monkeypatch.setattr(contrastive, "recompute", lambda f, x, use_reentrant: f(x))
        run = set_up(
            *("mlp", "infonce", iso.ArrayPairs(X, X_POS), 0, recipe, iso.Beliefs("sphere"), 2),
            start=Start(Capacity(16, 0.3)),
        )
        network = run.training.network.train()
        nn.init.ones_(network[-2].network[-1].weight)  # so that the hidden layers have gradients
        batch = iso.pairs.Batch.of(run.source.sample(32, Generator().manual_seed(0)))
        with run.training.drawing():
            run.training.loss(batch).backward()
        gradients.append([p.grad for p in network.parameters() if p.requires_grad])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
