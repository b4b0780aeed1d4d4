"""Results of experiments: synthetic records with every verdict, and records of short real runs."""

import numpy as np
import pytest

from isolatent.experiments import Store, find_experiment, reproduce
from isolatent.theory import Beliefs, derive_guarantee
from own_spec import sphere_cell, toml_cell

TINY = "".join(
    [
        'title = "Three worlds, hardly trained"\nnote = "Twenty steps teach nothing."\n',
        "[defaults]\nrecipe = { max_steps = 20, batch_size = 64 }\n",
        'world.mixing = "Linear()"\n',
        sphere_cell(
            "sphere_vmf",
            'approaches = ["identity", "supervised", "unsupervised"]',
            "published.unsupervised = [99.86, 0.01]",
            "published.identity = 66.98",
        ),
        toml_cell(
            *("two_values", "Sphere(4)", "AnisotropicNormal([5.0, 5.0, 25.0, 25.0])"),
            *("sphere", "anisotropic", 'model.loss = "aninfonce"'),
            "blocks = [[0, 1], [2, 3]]",
            'metrics = "mcc"',
            "limits = true",
            "published.unsupervised = 68.0",
        ),
        toml_cell(
            *("box_unfit", "Box(3)", "Normal(std=0.05)", "box", "normal"),
            'model.encoder = "conv"',
            "published.unsupervised = 99.0",
        ),
    ]
)

SPRITES = """
title = "Sprites, hardly trained"
[defaults]
world = { images = "sprites", pairs = "nat", continuous = true }
[[cells]]
name = "nearest"
model = { method = "infonce", n_components = 2 }
recipe = { max_steps = 4, batch_size = 16, cooldown = 0.0 }
[[cells]]
name = "decoded"
model = { method = "slow_vae", n_components = 3 }
recipe = { max_steps = 2, batch_size = 8 }
"""


def make_cell(name, published=99.0, spread=0.2, **changes):
    """A cell as in ``experiments/<name>.json``; published scores are in per cent."""
    cell = {
        "name": name,
        "world": {"space": {"kind": "Sphere", "n": 4}},
        "model": {"space": "sphere", "conditional": "vmf", "loss": "infonce"},
        "approaches": ["identity", "supervised", "unsupervised"],
        "metrics": ["linear_r2"],
        "published": {"unsupervised": {"linear_r2": {"value": published, "spread": spread}}},
        "limits": [],
        "note": "",
    }
    return cell | changes


def make_run(cell, seed=0, value=0.99, n=4, **changes):
    """A record as ``isolatent.experiments.execute`` returns it; scores are between 0 and 1."""
    rng = np.random.default_rng([seed, len(cell)])
    z = rng.normal(size=(200, n))
    h = z + 0.2 * rng.normal(size=z.shape)
    steps = np.arange(1, 401)
    loss = 2 + 4 * np.exp(-steps / 80) + 0.1 * rng.normal(size=len(steps))
    curve = [
        {
            "number": int(k),
            "loss": float(v),
            "information": 8.0 - float(v),
            "scale": 10 * (1 - np.exp(-k / 100)),
        }
        | ({"held_out": float(v) + 0.2} if k % 50 == 0 else {})
        | ({"quality": 1 - np.exp(-k / 100)} if k % 100 == 0 else {})
        for k, v in zip(steps, loss, strict=True)
    ]
    record = {
        "format": 1,
        "experiment": "zimmermann2021/table1",
        "cell": cell,
        "seed": seed,
        "status": "done",
        "error": None,
        "warnings": [],
        "scores": {
            "identity": {"linear_r2": 0.64, "mcc": 0.5},
            "supervised": {"linear_r2": 0.999, "mcc": 0.99},
            "unsupervised": {
                "linear_r2": value + 0.001 * seed,
                "mcc": 0.61,
                "mcc_per_factor": [0.6] * n,
            },
        },
        "measures": {"total_variation": 0.25},
        "curve": curve,
        "correlation": np.corrcoef(z.T, h.T)[:n, n:].tolist(),
        "scatter": {"true": z.tolist(), "recovered": h.tolist()},
        "scale": {"name": "kappa", "learned": 9.8, "true": 10.0},
        "guarantee": derive_guarantee(Beliefs("sphere")).to_dict(),
        "seconds": {"unsupervised": 30.0, "total": 31.5 + seed},
        "versions": {"isolatent": "0.1.0", "torch": "2.9"},
        "command": f"isolatent reproduce zimmermann2021/table1 --cells {cell} --first-seed {seed}",
        "started": "2025-01-01T00:00:00+00:00",
    }
    return record | changes


def make_results(cells, records, name="zimmermann2021/table1"):
    return {"name": name, "title": "Table 1", "note": "", "cells": cells}, records


@pytest.fixture(autouse=True, scope="module")
def small_library(request):
    """A few bytes in place of plotly.js, except in the browser: tests read pages many times."""
    if request.module.__name__.endswith("test_browser"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isolatent.report.document.packed_library", lambda: "bGlicmFyeQ==")
        yield


@pytest.fixture(scope="session")
def run_of():
    return make_run


@pytest.fixture(scope="session")
def cell_of():
    return make_cell


@pytest.fixture(scope="session")
def results_of():
    return make_results


@pytest.fixture(scope="session")
def results():
    """Two experiments whose rows have every verdict."""
    weights = {"name": "weight", "learned": [5, 9, 16, 21], "true": [5.0, 10.0, 15.0, 20.0]}
    nan = {"status": "diverged", "error": "the loss is nan at step 12", "scores": {}}
    nothing = dict.fromkeys(["curve", "correlation", "scatter", "scale", "guarantee"])
    first = make_results(
        [
            make_cell("sphere_vmf10"),
            make_cell("sphere_laplace"),
            make_cell("box_normal_free", 58.26, 3.0, limits=["linear_r2"]),
            make_cell("found_after_all", 58.26, 3.0, limits=["linear_r2"]),
            make_cell("above", 95.0),
            make_cell("diverged"),
            make_cell("not_yet_run"),
        ],
        [
            *(make_run("sphere_vmf10", seed, 0.99) for seed in range(3)),
            *(make_run("sphere_laplace", seed, 0.91, n=10) for seed in range(3)),
            *(make_run("box_normal_free", seed, 0.7) for seed in range(3)),
            *(make_run("found_after_all", seed, 0.9) for seed in range(3)),
            *(make_run("above", seed, 0.995, scale=weights) for seed in range(3)),
            make_run("diverged", 0, **nan, **nothing),
        ],
    )
    sparse = {"cell": "sparse", "seed": 0, "scores": {"unsupervised": {"mcc": 1}}}
    return [
        first,
        ({"name": "rusak2025/sphere", "cells": [{"name": "sparse", "metrics": ["mcc"]}]}, [sparse]),
    ]


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """A directory with the results of three cells, each trained with two seeds."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "tiny.toml").write_text(TINY)
    reproduce(find_experiment(folder / "tiny.toml"), Store(folder / "out"), [0, 1], jobs=1)
    return folder / "out"


@pytest.fixture(scope="session")
def sprites(tmp_path_factory):
    """A directory with the results of an encoder and a VAE, trained on images for a few steps."""
    folder = tmp_path_factory.mktemp("sprites")
    (folder / "sprites.toml").write_text(SPRITES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isolatent.experiments.latent_traversal.CANDIDATES", 200)
        patch.setattr("isolatent.experiments.image_execution.TEST_POINTS", 200)
        experiment = find_experiment(folder / "sprites.toml")
        reproduce(experiment, Store(folder / "out"), [0], jobs=1)
    return folder / "out"
