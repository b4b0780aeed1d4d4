"""Unfitted models of every kind with the data of their fit, and the bits of a fitted model."""

import functools
from pathlib import Path

import numpy as np
import torch
from torch import nn

import isolatent as iso
from isolatent.baselines import AdaGVAE, AdaMLVAE, BetaVAE, SlowVAE, SupervisedEncoder
from isolatent.training import network_estimator
from isolatent.training.engine import train

VAES = {
    "beta_vae": BetaVAE,
    "slow_vae": SlowVAE,
    "ada_gvae": AdaGVAE,
    "ada_ml_vae": AdaMLVAE,
}
CONTRASTIVE = (
    *("world", "array", "default", "series", "saturated", "dropout", "ensemble", "negatives"),
)
CASES = (*CONTRASTIVE, "supervised", *VAES)
KILLED_CASES = (
    "world",
    "array",
    "default",
    "series",
    "saturated",
    "dropout",
    "supervised",
    "slow_vae",
)


def related_rows(rows=300, seed=0):
    """Return pairs on a circle that is embedded in four dimensions."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, rows)
    near = angle + 0.2 * rng.normal(size=rows)
    mixing = rng.normal(size=(2, 4))
    return tuple(np.stack([np.cos(a), np.sin(a)], 1) @ mixing for a in (angle, near))


def recording(rows=400):
    rng = np.random.default_rng(1)
    x = np.zeros((rows, 3))
    for t in range(1, rows):
        x[t] = 0.9 * x[t - 1] + rng.normal(size=3)
    return x


def sphere_world(conditional=None):
    conditional = conditional or iso.VonMisesFisher(20.0)
    return iso.World(iso.Sphere(3), iso.Uniform(), conditional, iso.Linear(), seed=0)


def case(name, steps=30):
    """Return an unfitted model, and the positional and keyword arguments of its fit."""
    if name == "supervised":
        model = SupervisedEncoder(3, max_steps=steps, batch_size=32, random_state=3)
        return model, (sphere_world(),), {}
    if name in VAES:
        model = VAES[name](2, max_steps=steps, batch_size=8, learning_rate=1e-3, random_state=3)
        return model, related_rows(), {}
    settings, data, options = contrastive_case(name)
    recipe = {"max_steps": steps, "batch_size": 32, "warmup": 5} | settings.pop("recipe", {})
    return (
        iso.ContrastiveICA(recipe=iso.Recipe(**recipe), random_state=3, **settings),
        data,
        options,
    )


def contrastive_case(name):
    if name == "world":
        return {"n_components": 3, "space": "sphere"}, (sphere_world(),), {}
    if name == "array":
        return {"n_components": 2, "space": "sphere"}, related_rows(), {}
    if name == "default":  # relaxations are tried early, and chosen in the end
        return {"n_components": 2, "recipe": {"warmup": 3}}, related_rows(), {}
    if name == "series":
        settings = {"n_components": 2, "space": "euclidean", "lag": (1, 3)}
        return settings, (recording(),), {"groups": np.repeat([0, 1, 0, 2], 100)}
    if name == "saturated":
        world = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.01), iso.Linear(), seed=0)
        # Saturated early, so that runs are interrupted before and after.
        recipe = {"batch_size": 64, "saturation": 0.85}
        return {"n_components": 3, "space": "box", "recipe": recipe}, (world,), {}
    if name == "dropout":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers = nn.Linear(4, 32), nn.Dropout(0.2), nn.Tanh(), nn.Linear(32, 2)
        loss = iso.InfoNCE(iso.Dot(learn_scale=True))
        settings = {"n_components": 2, "encoder": nn.Sequential(*layers), "loss": loss}
        return settings, related_rows(), {}
    precisions = (20.0, 40.0, 60.0)
    world = sphere_world(iso.AnisotropicNormal(precisions))
    settings = {"n_components": 3, "conditional": "anisotropic"}
    if name == "ensemble":
        loss = iso.Ensemble([iso.AnInfoNCE(3), iso.AnInfoNCE(3)])
        conditionals = [iso.AnisotropicNormal(p) for p in (precisions, precisions[::-1])]
        return settings | {"loss": loss}, (iso.WorldPairs(world, conditionals=conditionals),), {}
    assert name == "negatives"
    loss = iso.AnInfoNCE(3, symmetric=False, negatives_from="given")
    source = iso.WorldPairs(world, negatives=iso.AnisotropicNormal(5.0), n_negatives=4)
    return settings | {"loss": loss}, (source,), {}


def bits(model, directory):
    """Return the bytes of a saved model, which hold networks, loss and history."""
    model.save(directory, overwrite=True)
    return (Path(directory) / "model.safetensors").read_bytes()


def checkpoint_every_step(patch=setattr):
    """Write checkpoints after every step instead of every half minute."""
    patch(network_estimator, "train", functools.partial(train, save_every=0.0))
