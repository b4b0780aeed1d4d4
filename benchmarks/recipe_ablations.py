"""Ablations of the training recipe: the default, and the default with one part changed.

Each variant trains one encoder for the same number of steps and is scored on newly drawn factors.
Results are written after each variant; a second call runs the missing ones only.

Run: python benchmarks/recipe_ablations.py [--max-steps 1000] [--seed 0] [--fresh]
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
from isolatent.training import ContrastiveTraining, train
from paper_rows import ROWS, N, Row, make_world

OUT = Path(__file__).parents[1] / "results/benchmarks/recipe_ablations.json"
TEST_PAIRS = 4096
CALIBRATION_PAIRS = 65_536  # pairs to fit Straightening and PrincipalAxes to
HEADS: dict[str, Callable[[], list[nn.Module]]] = {
    "box": lambda: [BoxHead(learn_bound=False)],
    "sphere": lambda: [SphereHead()],
}


@dataclass(frozen=True)
class Variant:
    """A variant of the recipe.

    Attributes:
        recipe: Changed settings of :class:`isolatent.Recipe`.
        whiten: Whether to whiten the observations.
        skip: Whether the encoder has a linear skip connection.
        hidden: Widths of the hidden layers.
        scale: A fixed scale of the similarity, or None for a learned one.
        saturated: Whether to switch to SaturatedInfoNCE when InfoNCE saturates.
        balanced: Whether the kernel of SaturatedInfoNCE is balanced at the boundary of the box.
        calibrate: Whether to straighten the coordinates or rotate them to their axes at the end.
    """

    recipe: dict[str, Any] = field(default_factory=dict)
    whiten: bool = True
    skip: bool = True
    hidden: tuple[int, ...] = (128, 128)
    scale: float | None = None
    saturated: bool = True
    balanced: bool = True
    calibrate: bool = True


COMMON = {
    "the recipe": Variant(),
    "no whitening": Variant(whiten=False),
    "no linear path": Variant(skip=False),
    "hidden layers of 256": Variant(hidden=(256, 256)),
    "batch 256": Variant({"batch_size": 256}),
    "learning rate 0.005": Variant({"learning_rate": 0.005}),
    "no cool-down": Variant({"cooldown": 0.0}),
    "scales learned at the rate of weights": Variant({"scale_rate": 1.0}),
}
NARROW = {
    "InfoNCE with a learned scale to the end": Variant(saturated=False),
    "InfoNCE with the true scale": Variant(saturated=False, scale=200.0),
    "InfoNCE with a tenth of the true scale": Variant(saturated=False, scale=20.0),
    "kernel not balanced at the boundary": Variant(balanced=False),
    "not straightened": Variant(calibrate=False),
}
PLANS: dict[str, dict[str, Variant]] = {
    "box_normal": COMMON | NARROW,
    "sphere_vmf10": COMMON,
    "aniso_linspace": {
        "the recipe": Variant(),
        "not rotated to the axes": Variant(calibrate=False),
    },
}


def run(row: Row, variant: Variant, max_steps: int, seed: int) -> dict[str, Any]:
    """Train and score one variant."""
    started = time.perf_counter()
    world = make_world(row, seed)
    source, generator = WorldPairs(world), Generator().manual_seed(seed)
    recipe = replace(iso.Recipe(max_steps=max_steps, tolerance=0.0), **variant.recipe)
    torch.manual_seed(seed)
    space, p = row.model["space"], 2.0
    whitening = Whitening(N).fit([source.sample(8192, generator)[0]])
    encoder = nn.Sequential(
        *([whitening] if variant.whiten else []),
        MLP(N, N, hidden=variant.hidden, skip=variant.skip),
        *HEADS[space](),
    )
    training = ContrastiveTraining(
        encoder, _loss(row, variant), recipe, generator, _saturated(row, variant, recipe.batch_size)
    )
    held_out = iso.Batch(*source.sample(TEST_PAIRS, generator))
    best = train(training, source, held_out)["network"]
    z, _ = world.sample_latents(TEST_PAIRS, Generator().manual_seed(seed + 1_000_003))
    h = training.encode(best, world.observe(z))
    pairs = [training.encode(best, x) for x in source.sample(CALIBRATION_PAIRS, generator)]
    if variant.calibrate and training.saturated_at is not None and space == "box":
        h = Straightening(N, p).fit(pairs[0], pairs[1])(h)
    if variant.calibrate and "aniso" in row.name:
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


def _saturated(row: Row, variant: Variant, batch_size: int) -> nn.Module | None:
    if not variant.saturated or "aniso" in row.name:
        return None
    loss = iso.contrast.SaturatedInfoNCE(N, 2.0, row.model["space"], batch_size)
    if not variant.balanced:
        loss.potential = loss.potential_pos = None
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--max-steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="also repeat stored runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name, variants in PLANS.items():
        row = next(row for row in ROWS if row.name == name)
        for label, variant in variants.items():
            key = f"{name} / {label} / {options.max_steps} steps / seed {options.seed}"
            if key in stored and not options.fresh:
                continue
            stored[key] = run(row, variant, options.max_steps, options.seed)
            OUT.write_text(json.dumps(stored, indent=1) + "\n")
            scores = f"R² {stored[key]['linear_r2']:.4f}, MCC {stored[key]['mcc']:.4f}"
            print(f"{key}: {scores}, {stored[key]['seconds']:.0f} s", flush=True)
    OUT.with_suffix(".md").write_text(_table(stored))


def _table(stored: dict[str, Any]) -> str:
    lines = [
        "# Ablations of the training recipe",
        "",
        "Written by `python benchmarks/recipe_ablations.py`, with one thread for the encoder.",
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
