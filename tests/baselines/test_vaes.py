"""VAEs reconstruct their observations, are reproducible, and have their papers' losses."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import isolatent as iso
from isolatent.baselines.elbo import kl_to_standard_normal, mean_posterior, share, slow_divergence
from isolatent.baselines.vae_networks import Autoencoder, ImageAutoencoder

FAMILY = [
    iso.baselines.BetaVAE,
    iso.baselines.SlowVAE,
    iso.baselines.AdaGVAE,
    iso.baselines.AdaMLVAE,
]
WORLD = iso.World(iso.Box(2), iso.Uniform(), iso.Laplace(0.05), iso.Linear(n_observed=4), seed=0)
X, X_POS = (part.numpy() for part in WORLD.sample_pairs(200, torch.Generator().manual_seed(0)))


def images(count, seed=0):
    """Return images with a white square of 16 pixels on black."""
    out = np.zeros((count, 1, 64, 64), np.float32)
    corners = np.random.default_rng(seed).integers(0, 48, (count, 2))
    for image, (row, column) in zip(out, corners, strict=True):
        image[0, row : row + 16, column : column + 16] = 1
    return out


@pytest.mark.parametrize("kind", FAMILY)
def test_the_reconstruction_improves(kind):
    model = kind(2, max_steps=100, learning_rate=5e-3, random_state=0)
    few = clone(model).set_params(max_steps=1).fit(WORLD)
    model.fit(WORLD)
    before, after = ((m.reconstruct(X) - X).var(0).sum() / X.var(0).sum() for m in (few, model))
    assert after < 0.2 < 0.8 < before
    assert model.transform(X).shape == (200, 2)
    assert [step.number for step in model.history_] == list(range(1, 101))


def test_images_are_reconstructed():
    x = images(64)
    steps = []
    model = iso.baselines.BetaVAE(4, max_steps=20, batch_size=4, learning_rate=1e-3, random_state=0)
    model.fit(x, on_step=steps.append)
    assert steps[-1].loss < 0.5 * steps[0].loss
    decoded = model.decode(model.transform(x[:3]))
    assert decoded.shape == (3, 1, 64, 64)
    assert 0 <= decoded.min() <= decoded.max() <= 1
    assert np.array_equal(decoded, model.reconstruct(x[:3]))
    assert model.n_features_in_ == 4096


@pytest.mark.parametrize("kind", FAMILY)
def test_losses_are_those_of_the_formulas(kind):
    """Recomputed on images with the same noise: errors of both frames, and the divergence."""
    torch.manual_seed(0)
    network, noise = ImageAutoencoder(3), torch.randn(4, 3)
    x = torch.from_numpy(images(4))
    q = network.posterior(x)
    first, second = q.halves()
    if kind is iso.baselines.SlowVAE:
        error = network.error(q.sample(noise), x)
        pairs = slow_divergence(first, second, 0.5, 10.0, 6.0)
        oracle = sum(error[i] + error[i + 2] + pairs[i] for i in range(2)) / 2
    else:
        if kind is iso.baselines.AdaGVAE:
            q = share(first, second, mean_posterior)
        elif kind is iso.baselines.AdaMLVAE:
            q = share(first, second, iso.baselines.elbo.product_posterior)
        error = network.error(q.sample(noise), x)
        oracle = sum(error[i] + 0.5 * kl_to_standard_normal(q)[i] for i in range(4)) / 4
    assert torch.allclose(kind(3, beta=0.5)._loss(network, x, noise), oracle)


class FixedPosterior(Autoencoder):
    """Observations are the posteriors; the error of a code is half its squared length."""

    def __init__(self):
        super().__init__(torch.nn.Identity(), torch.nn.Identity())

    def error(self, z, x):
        return 0.5 * z.square().sum(1)


@pytest.mark.parametrize("kind", [iso.baselines.AdaGVAE, iso.baselines.AdaMLVAE])
def test_adaptive_losses_by_hand(kind):
    """One pair whose variances are 1 and 4 in two dimensions, and 1 in three."""
    means, means_pos = [0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 3.0, 2.5, 2.0, 3.0]
    variances, variances_pos = [1.0, 4.0, 1.0, 1.0, 1.0], [4.0, 4.0, 1.0, 1.0, 1.0]
    # δ is 1/4 + 1/4 - 1 + log 4 = 0.886, then d² / v: 1, 6.25, 4 and 9. The middle is 4.943.
    if kind is iso.baselines.AdaGVAE:  # means of means and of variances
        shared = {0: (0.5, 2.5), 1: (2.0, 4.0), 3: (1.0, 1.0)}
    else:  # precisions 1 and 1/4: their mean is 5/8, and the means weigh 4 to 1
        shared = {0: (0.2, 1.6), 1: (2.0, 4.0), 3: (1.0, 1.0)}
    noise = [[0.3, -1.0, 0.5, 2.0, -0.7], [-0.2, 0.4, 1.5, -1.0, 0.1]]
    oracle = 0.0
    for mean, variance, eps in (
        (means, variances, noise[0]),
        (means_pos, variances_pos, noise[1]),
    ):
        for i in range(5):
            m, v = shared.get(i, (mean[i], variance[i]))
            error = 0.5 * (m + math.sqrt(v) * eps[i]) ** 2
            oracle += error + 0.5 * 0.5 * (m**2 + v - math.log(v) - 1)
    x = torch.tensor(
        [[*means, *map(math.log, variances)], [*means_pos, *map(math.log, variances_pos)]],
        dtype=torch.float64,
    )
    loss = kind(5, beta=0.5)._loss(FixedPosterior(), x, torch.tensor(noise, dtype=torch.float64))
    assert loss.item() == pytest.approx(oracle / 2, rel=1e-12)  # the mean of both frames


@pytest.mark.parametrize("data", [X, images(8)], ids=["vectors", "images"])
def test_a_seed_determines_the_model_also_after_loading(data, tmp_path):
    model = iso.baselines.SlowVAE(2, max_steps=2, batch_size=2, random_state=3)
    codes = model.fit(data).transform(data)
    assert np.array_equal(clone(model).fit(data).transform(data), codes)
    assert not np.array_equal(
        clone(model).set_params(random_state=4).fit(data).transform(data), codes
    )
    model.save(tmp_path)
    loaded = iso.baselines.SlowVAE.load(tmp_path)
    assert np.array_equal(loaded.transform(data), codes)
    assert np.array_equal(loaded.reconstruct(data), model.reconstruct(data))


@pytest.mark.parametrize("kind", FAMILY)
def test_arrays_recordings_worlds_and_sources_are_accepted(kind):
    model = kind(2, max_steps=2, batch_size=4, random_state=0)
    for data in ((X, X_POS), (X,), (WORLD,), (iso.ArrayPairs(X, X_POS),)):
        assert model.fit(*data).transform(X).shape == (200, 2)
        assert model.n_features_in_ == 4
    assert model.transform(X.astype(np.float64)).dtype == np.float64
    assert clone(model).get_params() == model.get_params()
    assert model.get_feature_names_out().tolist() == [f"{kind.__name__.lower()}{i}" for i in (0, 1)]
    with pytest.raises(NotFittedError):
        clone(model).transform(X)


def test_a_constant_column_is_reconstructed():
    x = np.concatenate([X, np.ones((200, 1), np.float32)], axis=1)
    model = iso.baselines.BetaVAE(2, max_steps=5, random_state=0).fit(x)
    assert np.isfinite(model.reconstruct(x)).all()


@pytest.mark.parametrize(
    ("kind", "arguments", "fit", "message"),
    [
        (iso.baselines.BetaVAE, {"n_components": 0}, (X,), "n_components must be an integer >= 1"),
        (iso.baselines.AdaGVAE, {"n_components": 1}, (X,), "n_components must be an integer >= 2"),
        (iso.baselines.BetaVAE, {"beta": -1.0}, (X,), "beta must be a finite number >= 0"),
        (iso.baselines.SlowVAE, {"rate": 0.0}, (X,), "rate must be a finite number > 0"),
        (iso.baselines.SlowVAE, {"gamma": "much"}, (X,), "gamma must be a finite number >= 0"),
        (iso.baselines.SlowVAE, {"max_steps": 0}, (X,), "max_steps must be an integer >= 1"),
        (iso.baselines.SlowVAE, {}, (X, X[:-1]), "X and X_pos must have the same shape"),
        (iso.baselines.SlowVAE, {}, (WORLD, X), "X_pos must be None"),
        (iso.baselines.SlowVAE, {"lag": (200, 300)}, (X,), "lag must be shorter"),
        (iso.baselines.BetaVAE, {}, (255 * images(4),), r"X must hold pixels in \[0, 1\]"),
        (iso.baselines.BetaVAE, {}, (images(4)[..., :32],), r"or \(N, channels, 64, 64\), got"),
    ],
)
def test_wrong_arguments(kind, arguments, fit, message):
    model = kind(**({"n_components": 2, "max_steps": 1} | arguments))
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(*fit)


def test_wrong_codes_and_groups():
    model = iso.baselines.BetaVAE(2, max_steps=1, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"Z must have shape \(N, 2\), got \(1, 3\)"):
        model.decode(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="Z must be finite, but row 1"):
        model.decode([[0.0, 1.0], [np.nan, 0.0]])
    with pytest.raises(ValueError, match="BetaVAE takes no recordings"):
        model.fit(X, groups=np.zeros(200))


def test_the_example_in_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs/baselines.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(code, names)
    assert min(names["scores"].values()) > 0.95
    assert names["traversal"].shape == (5, 4)
