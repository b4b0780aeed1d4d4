"""Learned scales of the conditional against the true ones, on the papers' worlds.

Every row of Tables 1 and 2 of `zimmermann2021` whose model is on a sphere or in a box is fitted
with the default recipe. The true scale is the λ or κ of the conditional. Where a model declares
another conditional than the world has, it is the scale of that conditional that fits the true
factors best, by the estimate that calibration makes from codes. Free codes have no scale.

Run: python benchmarks/scales.py [--seeds 3] [--rows box_normal ...]
Writes results/benchmarks/scales.{json,md} after every fit. Fits that are there are not run again,
unless the code has changed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Generator

import isolatent as iso
from isolatent.experiments.program import program_digest
from isolatent.files import write_json, write_text
from isolatent.training.assembly import build_loss
from isolatent.training.calibration import set_scale
from paper_rows import ROWS, Row, make_model, make_world

OUT = Path(__file__).parents[1] / "results/benchmarks/scales.json"
EXACT = {
    "sphere_vmf1": 1.0,
    "sphere_vmf10": 10.0,
    "box_laplace": 20.0,
    "box_cubic": 8000.0,
    "box_normal": 200.0,
}
PAIRS, TEST_CODES = 65_536, 16_384
TABLES = "zimmermann2021"
TOLERANCE = 0.05


def scale_of(loss: Any) -> float:
    """Return the κ of a dot product, or the λ of a distance."""
    similarity = loss.similarity
    return float((similarity.scale if similarity.p is None else similarity.weights).detach())


def true_scale(row: Row, world: iso.World) -> float:
    """Return the scale of a row's conditional, or of the best fit of the declared one."""
    if row.name in EXACT:
        return EXACT[row.name]
    z, z_pos = world.sample_latents(PAIRS, Generator().manual_seed(1))
    beliefs = iso.Beliefs(**row.model)
    loss = build_loss("infonce", beliefs, z.shape[1], None)
    set_scale(loss, z, z_pos, beliefs.space)
    return scale_of(loss)


def fit(row: Row, seed: int) -> dict[str, Any]:
    """Fit a row and return its scale, the true one, its score and the seconds it took."""
    world = make_world(row, seed)
    started = time.process_time()
    model = make_model(row, seed).fit(world)
    seconds = time.process_time() - started
    z = world.sample_latents(TEST_CODES, Generator().manual_seed(seed + 1_000_003))[0]
    score = getattr(iso, row.score)(z, torch.as_tensor(model.transform(world.observe(z))))
    return {
        "scale": scale_of(model.loss_),
        "true_scale": true_scale(row, world),
        "score": score,
        "seconds": round(seconds),
        "program": program_digest(),
    }


def main() -> None:
    rows = {
        row.name: row
        for row in ROWS
        if row.table.startswith(TABLES) and row.model["space"] in ("sphere", "box")
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=[*rows], default=[*rows])
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    for seed in range(options.seeds):
        for name in options.rows:
            key = f"{name}, seed {seed}"
            if results.get(key, {}).get("program") == program_digest():
                continue
            results[key] = fit(rows[name], seed)
            print(key, results[key], flush=True)
            write_json(OUT, results, indent=1)
            write_text(OUT.with_suffix(".md"), _table(results, [*rows]))


def _table(results: dict[str, Any], names: list[str]) -> str:
    ratios = [result["scale"] / result["true_scale"] for result in results.values()]
    within = sum(abs(ratio - 1) <= TOLERANCE for ratio in ratios)
    lines = [
        "# Learned scales against the true ones",
        "",
        "Written by `python benchmarks/scales.py`: the default recipe, a seed each in a column.",
        "",
        f"{within} of {len(ratios)} scales are within {TOLERANCE:.0%} of the truth; "
        f"ratios lie between {min(ratios):.3f} and {max(ratios):.3f}.",
        "",
        "| row | true scale | learned / true | score | seconds of one core |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        runs = [result for key, result in results.items() if key.startswith(f"{name}, ")]
        if runs:
            ratio, score, seconds = (
                ", ".join(form.format(value(run)) for run in runs)
                for form, value in (
                    ("{:.3f}", lambda run: run["scale"] / run["true_scale"]),
                    ("{:.4f}", lambda run: run["score"]),
                    ("{:d}", lambda run: run["seconds"]),
                )
            )
            lines.append(
                f"| {name} | {runs[0]['true_scale']:.4g} | {ratio} | {score} | {seconds} |"
            )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
