"""Models of every kind with the data of their fit, and the bits that a run of them ends with."""

import functools
from pathlib import Path

import numpy as np
import torch
from torch import nn

import isolatent as iso
from isolatent.training import estimator
from isolatent.training.engine import fit_encoder


def related(rows=300, seed=0):
    """Pairs on a circle that is embedded in four dimensions."""
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


def case(name, steps=30):
    """An unfitted model and the arguments of its fit."""
    recipe = {"max_steps": steps, "batch_size": 32, "warmup": 5}
    settings = {"random_state": 3}
    if name == "world":
        world = iso.World(
            iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(20.0), iso.Linear(), seed=0
        )
        return iso.ContrastiveICA(3, recipe=iso.Recipe(**recipe), **settings), (world,), {}
    if name == "array":
        return iso.ContrastiveICA(2, recipe=iso.Recipe(**recipe), **settings), related(), {}
    if name == "series":
        model = iso.ContrastiveICA(
            2,
            space="euclidean",
            marginal="normal",
            conditional="normal",
            lag=(1, 3),
            recipe=iso.Recipe(**recipe),
            **settings,
        )
        return model, (recording(),), {"groups": np.repeat([0, 1, 0, 2], 100)}
    if name == "saturated":
        world = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.01), iso.Linear(), seed=0)
        # Saturated early, so that runs are broken off before and after.
        narrow = iso.Recipe(**{**recipe, "batch_size": 64, "saturation": 0.85})
        model = iso.ContrastiveICA(3, space="box", conditional="normal", recipe=narrow, **settings)
        return model, (world,), {}
    if name == "dropout":
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.2), nn.Tanh(), nn.Linear(32, 2))
        model = iso.ContrastiveICA(
            2,
            encoder=encoder,
            loss=iso.InfoNCE(iso.Dot(learn_scale=True)),
            recipe=iso.Recipe(**recipe),
            **settings,
        )
        return model, related(), {}
    raise AssertionError(name)


CASES = ("world", "array", "series", "saturated", "dropout")


def bits(model, directory):
    """The bytes of a saved model, which hold encoder, loss and history."""
    model.save(directory, overwrite=True)
    return (Path(directory) / "model.safetensors").read_bytes()


def save_always(patch=setattr):
    """Checkpoints after every step instead of every half minute."""
    patch(estimator, "fit_encoder", functools.partial(fit_encoder, save_every=0.0))
