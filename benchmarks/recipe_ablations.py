"""What each part of the recipe gives: the default, and the default with one part changed.

Each variant trains one encoder for the same number of steps and is scored on fresh factors. They
are written as they come; a second call goes on with those that are missing.

Run: python benchmarks/recipe_ablations.py [--steps 1000] [--seed 0] [--fresh]
Writes results/benchmarks/recipe_ablations.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

import isolatent as iso
from isolatent.encoders import MLP, BoxHead, PrincipalAxes, SphereHead, Straightening, Whitening
from isolatent.pairs import WorldPairs
from isolatent.training import Training, fit_encoder
from paper_rows import ROWS, N, Row, make_world

OUT = Path(__file__).parents[1] / "results/benchmarks/recipe_ablations.json"
TEST_PAIRS = 4096
PAIRS = 65_536  # for what is put right after training
HEADS: dict[str, Callable[[], list[nn.Module]]] = {
    "box": lambda: [BoxHead(learn_bound=False)],
    "sphere": lambda: [SphereHead()],
}


@dataclass(frozen=True)
class Variant:
    """One choice of parts; the defaults are those of the recipe."""

    recipe: dict[str, Any] = field(default_factory=dict)
    whiten: bool = True
    skip: bool = True
    hidden: tuple[int, ...] = (128, 128)
    scale: float | None = None  # a fixed one instead of a learned one
    saturated: bool = True  # whether to go over to the saturated form
    walls: bool = True  # whether its kernel is balanced on the box
    finish: bool = True  # whether coordinates are straightened, or turned to their axes


COMMON = {
    "the recipe": Variant(),
    "no whitening": Variant(whiten=False),
    "no linear path": Variant(skip=False),
    "hidden layers of 256": Variant(hidden=(256, 256)),
    "batch 256": Variant({"batch": 256}),
    "learning rate 0.005": Variant({"learning_rate": 0.005}),
    "no cool-down": Variant({"cooldown": 0.0}),
    "scales learned at the rate of weights": Variant({"scale_rate": 1.0}),
}
NARROW = {
    "InfoNCE with a learned scale to the end": Variant(saturated=False),
    "InfoNCE with the true scale": Variant(saturated=False, scale=200.0),
    "InfoNCE with a tenth of it": Variant(saturated=False, scale=20.0),
    "kernel not balanced at the walls": Variant(walls=False),
    "not straightened": Variant(finish=False),
}
PLANS: dict[str, dict[str, Variant]] = {
    "box_normal": COMMON | NARROW,
    "sphere_vmf10": COMMON,
    "aniso_linspace": {"the recipe": Variant(), "not turned to the axes": Variant(finish=False)},
}


def run(row: Row, variant: Variant, steps: int, seed: int) -> dict[str, Any]:
    """Train and score one variant."""
    started = time.perf_counter()
    world = make_world(row, seed)
    source, generator = WorldPairs(world), Generator().manual_seed(seed)
    recipe = replace(iso.Recipe(max_steps=steps, tolerance=0.0), **variant.recipe)
    torch.manual_seed(seed)
    space, p = row.model["space"], 2.0
    whitening = Whitening(N).fit([source.sample(8192, generator)[0]])
    encoder = nn.Sequential(
        *([whitening] if variant.whiten else []),
        MLP(N, N, hidden=variant.hidden, skip=variant.skip),
        *HEADS[space](),
    )
    training = Training(
        encoder, _loss(row, variant), recipe, generator, _saturated(row, variant, recipe.batch_size)
    )
    best, _ = fit_encoder(training, source, source.sample(TEST_PAIRS, generator))
    z, _ = world.sample_latents(TEST_PAIRS, Generator().manual_seed(seed + 1_000_003))
    h = training.encode_all(best, world.observe(z))
    pairs = [training.encode_all(best, x) for x in source.sample(PAIRS, generator)]
    if variant.finish and training.saturated_at is not None and space == "box":
        h = Straightening(N, p).fit(pairs[0], pairs[1])(h)
    if variant.finish and "aniso" in row.name:
        h = PrincipalAxes(N).fit(pairs[0], pairs[1])(h)
    return {
        "linear_r2": iso.linear_r2(z, h),
        "mcc": iso.mcc(z, h),
        "steps": training.number,
        "saturated_at": training.saturated_at,
        "seconds": time.perf_counter() - started,
    }


def _loss(row: Row, variant: Variant) -> nn.Module:
    if "aniso" in row.name:
        return iso.AnInfoNCE(N)
    if row.model["space"] == "sphere":
        return iso.InfoNCE(iso.Dot(learn_scale=True))
    learned = variant.scale is None
    return iso.InfoNCE(iso.Lp(2.0, weights=variant.scale or 1.0, learn_weights=learned))


def _saturated(row: Row, variant: Variant, batch: int) -> nn.Module | None:
    if not variant.saturated or "aniso" in row.name:
        return None
    loss = iso.contrast.SaturatedInfoNCE(N, 2.0, row.model["space"], batch)
    if not variant.walls:
        loss.potential = loss.potential_pos = None
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="run again what is stored")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name, variants in PLANS.items():
        row = next(row for row in ROWS if row.name == name)
        for label, variant in variants.items():
            key = f"{name} / {label} / {options.steps} steps / seed {options.seed}"
            if key in stored and not options.fresh:
                continue
            stored[key] = run(row, variant, options.steps, options.seed)
            OUT.write_text(json.dumps(stored, indent=1) + "\n")
            scores = f"R² {stored[key]['linear_r2']:.4f}, MCC {stored[key]['mcc']:.4f}"
            print(f"{key}: {scores}, {stored[key]['seconds']:.0f} s", flush=True)
    OUT.with_suffix(".md").write_text(_table(stored))


def _table(stored: dict[str, Any]) -> str:
    lines = [
        "# What each part of the recipe gives",
        "",
        "Written by `python benchmarks/recipe_ablations.py`, one thread of the encoder.",
        "",
        "| world | variant | steps | R² | MCC | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for key, result in stored.items():
        world, label, *_ = key.split(" / ")
        lines.append(
            f"| {world} | {label} | {result['steps']} | {result['linear_r2']:.4f} "
            f"| {result['mcc']:.4f} | {result['seconds']:.0f} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
