"""AnInfoNCE on a sphere: codes kept uniform at first, against AnInfoNCE alone.

The worlds have ten factors, uniform on a sphere, a normal conditional with the weights Λ, and an
invertible network of three layers as their mixing. AnInfoNCE alone is how training was before:
no penalty on moments, and no loss to continue with once InfoNCE saturates. A factor counts as kept
if a linear map of the codes explains at least half of its variance.

Run: python benchmarks/anisotropy.py [--seeds 5] [--worlds 2-40 ...] [--max-steps 1500]
Writes results/benchmarks/anisotropy.{json,md} after every fit. Fits that are there are not run
again, unless the code or the number of steps has changed.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Generator

import isolatent as iso
from isolatent.experiments.program import program_digest
from isolatent.files import write_json, write_text

OUT = Path(__file__).parents[1] / "results/benchmarks/anisotropy.json"
N = 10
WORLDS = {
    "2-40": np.linspace(2, 40, N),
    "5-120": np.linspace(5, 120, N),
    "50-400": np.linspace(50, 400, N),
    "5 and 200": np.repeat([5.0, 200.0], N // 2),
}
WAYS = ("kept uniform", "alone")
TEST_CODES = 16_384
KEPT = 0.5  # share of the variance of a factor that codes must explain


def make_world(name: str, seed: int) -> iso.World:
    """Return a world; its mixing depends on the seed."""
    conditional = iso.AnisotropicNormal(WORLDS[name].tolist())
    mixing = iso.InvertibleMLP(layers=3)
    return iso.World(iso.Sphere(N), iso.Uniform(), conditional, mixing, seed=seed)


def fit(name: str, way: str, seed: int, max_steps: int) -> dict[str, Any]:
    """Fit a world in one way, and return scores, weights and the seconds it took."""
    world = make_world(name, seed)
    model = iso.ContrastiveICA(
        N,
        space="sphere",
        conditional="anisotropic",
        loss="aninfonce",
        recipe=iso.Recipe(max_steps=max_steps),
        random_state=seed,
    )
    started = time.process_time()
    with ExitStack() as stack:
        if way == "alone":
            module = "isolatent.training.setup"
            stack.enter_context(patch(f"{module}.may_lose_factors", return_value=False))
            stack.enter_context(patch(f"{module}.build_saturated_loss", return_value=None))
        model.fit(world)
    seconds = time.process_time() - started
    z = world.sample_latents(TEST_CODES, Generator().manual_seed(seed + 1_000_003))[0].double()
    h = torch.as_tensor(model.transform(world.observe(z))).double()
    loss: Any = model.loss_
    true, learned = np.sort(WORLDS[name]), np.sort(loss.weights.detach().numpy())
    return {
        "linear_r2": iso.linear_r2(z, h),
        "mcc": iso.mcc(z, h),
        "kept": int((explained(z, h) >= KEPT).sum()),
        "weights": learned.tolist(),
        "weight_error": float(np.abs(learned / true - 1).max()),
        "objective": model.guarantee_.objective,
        "calibration": model.guarantee_.calibration,
        "claim": model.guarantee_.equivalence,
        "warnings": len(model.guarantee_.warnings),
        "steps": len(model.history_),
        "seconds": round(seconds),
        "max_steps": max_steps,
        "program": program_digest(),
    }


def explained(z: torch.Tensor, h: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the share of the variance of each factor that a linear map of codes explains."""
    z, h = z - z.mean(0), h - h.mean(0)
    rest = z - h @ torch.linalg.lstsq(h, z).solution
    return (1 - rest.square().mean(0) / z.square().mean(0)).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--worlds", nargs="+", choices=[*WORLDS], default=[*WORLDS])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--max-steps", type=int, default=1500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    for way in options.ways:
        for seed in range(options.seeds):
            for name in options.worlds:
                key = f"{name}, {way}, seed {seed}"
                known = results.get(key, {})
                same = known.get("max_steps") == options.max_steps
                if same and known.get("program") == program_digest():
                    continue
                results[key] = fit(name, way, seed, options.max_steps)
                shown = ("linear_r2", "mcc", "kept", "weight_error", "steps", "seconds")
                print(key, {field: results[key][field] for field in shown}, flush=True)
                write_json(OUT, results, indent=1)
                write_text(OUT.with_suffix(".md"), _table(results))


def _table(results: dict[str, Any]) -> str:
    lines = [
        "# AnInfoNCE on a sphere",
        "",
        "Written by `python benchmarks/anisotropy.py`: ten factors with weights Λ, "
        "a seed each in a column.",
        "",
        "| Λ | AnInfoNCE | R² | MCC | factors kept | largest error of a weight | steps | "
        "seconds of one core |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in WORLDS:
        for way in WAYS:
            runs = [run for key, run in results.items() if key.startswith(f"{name}, {way}, ")]
            if not runs:
                continue
            columns = [
                ", ".join(form.format(run[field]) for run in runs)
                for field, form in (
                    ("linear_r2", "{:.4f}"),
                    ("mcc", "{:.3f}"),
                    ("kept", "{:d}"),
                    ("weight_error", "{:.0%}"),
                    ("steps", "{:d}"),
                    ("seconds", "{:d}"),
                )
            ]
            lines.append(f"| {name} | {way} | {' | '.join(columns)} |")
    lines += [
        "",
        "Equal weights, as in the last world, leave the axes of their codes open, so its MCC and "
        "the order of its codes say nothing.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
