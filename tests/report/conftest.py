"""Runs as an experiment writes them: reached, missed, failed, sparse."""

import numpy as np
import pytest

from isolatent.evaluation import derive_guarantee


def make_run(cell, seed=0, value=0.99, published=0.99, n=4, **changes):
    rng = np.random.default_rng([seed, len(cell)])
    z = rng.normal(size=(200, n))
    h = z + 0.2 * rng.normal(size=z.shape)
    steps = np.arange(1, 401)
    loss = 2 + 4 * np.exp(-steps / 80) + 0.1 * rng.normal(size=len(steps))
    curve = [
        {
            "number": int(k),
            "loss": float(v),
            "held_out": float(v) + 0.2 if k % 50 == 0 else None,
            "information": 8.0 - float(v),
            "scale": 10 * (1 - np.exp(-k / 100)),
            "quality": 1 - np.exp(-k / 100) if k % 100 == 0 else None,
        }
        for k, v in zip(steps, loss, strict=True)
    ]
    run = {
        "experiment": "zimmermann2021/table1",
        "cell": cell,
        "seed": seed,
        "spec": {"world": {"space": {"kind": "sphere", "n": n}}, "model": {"loss": "infonce"}},
        "score": "linear_r2",
        "scores": {
            "unsupervised": {"linear_r2": value + 0.001 * seed, "mcc": 0.61},
            "identity": {"linear_r2": 0.64, "mcc": 0.5},
            "supervised": {"linear_r2": 0.999, "mcc": 0.99},
        },
        "published": {"score": "linear_r2", "value": published, "spread": 0.002},
        "limits": False,
        "curve": curve,
        "correlations": np.abs(np.corrcoef(z.T, h.T)[:n, n:]).tolist(),
        "scatter": {"true": z.tolist(), "codes": h.tolist()},
        "learned": [9.8],
        "truth": [10.0],
        "guarantee": derive_guarantee("sphere", "uniform", "vmf").to_dict(),
        "seconds": 31.5 + seed,
        "versions": {"isolatent": "0.1.0", "torch": "2.9"},
        "command": f"isolatent reproduce zimmermann2021/table1 --cell {cell} --seed {seed}",
        "error": None,
    }
    return run | changes


@pytest.fixture(scope="session")
def run_of():
    return make_run


@pytest.fixture(scope="session")
def runs():
    """Rows of every verdict."""
    return [
        *(make_run("sphere_vmf10", seed, 0.9986) for seed in range(3)),
        make_run("sphere_laplace", 0, 0.91, n=10),
        make_run("box_normal_free", 0, 0.7, 0.5826, limits=True),
        make_run("above", 0, 0.995, 0.95, learned=[5, 9, 16], truth=[5.0, 10.0, 15.0]),
        make_run("failed", 0, error="FloatingPointError: the loss is nan at step 12"),
        {
            "experiment": "rusak2025/sphere",
            "cell": "sparse",
            "scores": {"unsupervised": {"mcc": 1}},
        },
    ]
