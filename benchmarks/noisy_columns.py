"""Many columns, noise and counts: what the first layer of the encoder keeps, and codes by it.

Pixels are sprites with four factors, averaged to 32 × 32, without pixels that never vary.
Recordings have three factors behind 60 noisy channels. Spikes are Poisson counts whose rates are
functions of 60 channels. The first sets of pairs are compared with a whitening that keeps every
direction, the spikes with and without ``counts=True``.

Run: python benchmarks/noisy_columns.py [--seeds 1] [--cases pixels ...] [--max-steps 1000]
Writes results/benchmarks/noisy_columns.{json,md} after every fit. Fits that are there are not run
again, unless the code or the number of steps has changed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Generator, Tensor
from torch.nn.functional import avg_pool2d, softplus

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.datasets import SpriteMixing
from isolatent.encoders import Whitening
from isolatent.experiments.program import program_digest
from isolatent.files import write_json, write_text
from recordings import RECORDINGS

OUT = Path(__file__).parents[1] / "results/benchmarks/noisy_columns.json"
BATCH_SIZE, TEST_ROWS = 512, 4000
MEAN_COUNT = 3.0
CHUNK = 4096
SHOWN = {"directions": "d", "linear_r2": ".3f", "seconds": ".0f"}
NOISY = "recording, relaxing, Gaussian, 60 channels at 20 dB, lag 1, 30000 rows"


class Data(NamedTuple):
    """Pairs or a recording, test data with their factors, and what is declared."""

    x: Tensor
    x_pos: Tensor | None
    test_x: Tensor
    test_z: Tensor
    declared: dict[str, Any]
    z: Tensor | None = None  # factors of x
    z_pos: Tensor | None = None


def pixels(rows: int, seed: int) -> Data:
    mixing = SpriteMixing("ellipse")
    world = iso.World(iso.Box(4), iso.Uniform(), iso.Laplace(0.05), mixing, seed=seed)
    generator = Generator().manual_seed(seed)

    def observe(z: Tensor) -> Tensor:
        return torch.cat([avg_pool2d(world.observe(part), 2).flatten(1) for part in z.split(CHUNK)])

    latents = world.sample_latents(rows, generator)
    x, x_pos = map(observe, latents)
    z = world.sample_latents(TEST_ROWS, generator)[0]
    varies = (x.amax(0) > x.amin(0)) & (x_pos.amax(0) > x_pos.amin(0))
    declared = {"space": "box", "conditional": "laplace"}
    return Data(x[:, varies], x_pos[:, varies], observe(z)[:, varies], z, declared, *latents)


def sphere(rows: int, seed: int) -> Data:
    mixing = iso.InvertibleMLP(layers=3)
    world = iso.World(iso.Sphere(10), iso.Uniform(), iso.VonMisesFisher(35.0), mixing, seed=seed)
    generator = Generator().manual_seed(seed)
    x, x_pos = map(world.observe, world.sample_latents(rows, generator))
    z = world.sample_latents(TEST_ROWS, generator)[0]
    return Data(x, x_pos, world.observe(z), z, {"space": "sphere"})


def recording(rows: int, seed: int, decibels: float) -> Data:
    process = replace(RECORDINGS[NOISY], decibels=decibels)
    mixing = process.mixing(seed)
    x, _ = process.sample(rows, seed, mixing)
    test_x, test_z = process.sample(TEST_ROWS, seed + 1_000_003, mixing)
    return Data(x, None, test_x, test_z, process.declared)


def spikes(rows: int, seed: int, link: str) -> Data:
    data = recording(rows, seed, math.inf)
    x, test_x = counts_of(data.x, data.test_x, seed, link)
    return data._replace(x=x, test_x=test_x)


def counts_of(x: Tensor, test_x: Tensor, seed: int, link: str) -> tuple[Tensor, Tensor]:
    """Return Poisson counts whose rates are functions of channels, for training and for tests."""
    mean, deviation = x.mean(0), x.std(0)
    generator = Generator().manual_seed(seed)

    def count(x: Tensor) -> Tensor:
        u = (x - mean) / deviation
        rates = (0.7 * u - 0.245).exp() if link == "exp" else softplus(2 * u)
        return torch.poisson(MEAN_COUNT * rates, generator)

    return count(x), count(test_x)


CASES: dict[str, Callable[[int], Data]] = {
    "pixels, 20000 pairs": partial(pixels, 20_000),
    "pixels, 3000 pairs": partial(pixels, 3_000),
    "pixels, 800 pairs": partial(pixels, 800),
    "60 channels, 20 dB, 30000 rows": partial(recording, 30_000, decibels=20.0),
    "60 channels, 20 dB, 5000 rows": partial(recording, 5_000, decibels=20.0),
    "60 channels, 10 dB, 30000 rows": partial(recording, 30_000, decibels=10.0),
    "60 channels, 10 dB, 5000 rows": partial(recording, 5_000, decibels=10.0),
    "sphere, 10 columns, 20000 pairs": partial(sphere, 20_000),
    "spikes, exp, 5000 rows": partial(spikes, 5_000, link="exp"),
    "spikes, exp, 20000 rows": partial(spikes, 20_000, link="exp"),
    "spikes, softplus, 5000 rows": partial(spikes, 5_000, link="softplus"),
    "spikes, softplus, 20000 rows": partial(spikes, 20_000, link="softplus"),
}


def ways_of(case: str) -> tuple[str, str]:
    return ("raw", "counts=True") if case.startswith("spikes") else ("every direction", "chosen")


def keep_all(self: Whitening, first: Iterable[Any], second: Iterable[Any], *_: int) -> Whitening:
    return self.fit(x for x, _ in chain(first, second))


def fit(case: str, way: str, seed: int, max_steps: int) -> dict[str, Any]:
    """Fit a case in one way, and return scores, the number of directions and the seconds."""
    data = CASES[case](seed)
    n = data.test_z.shape[1]
    recipe = iso.Recipe(max_steps=max_steps, batch_size=BATCH_SIZE)
    counts = way == "counts=True"
    model = iso.ContrastiveICA(n, counts=counts, recipe=recipe, random_state=seed, **data.declared)
    started = time.process_time()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", IsolatentWarning)
        if way == "every direction":
            stack.enter_context(patch.object(Whitening, "fit_pairs", keep_all))
        model.fit(data.x, data.x_pos)
    seconds = time.process_time() - started
    h = torch.as_tensor(model.transform(data.test_x))
    return {
        "linear_r2": iso.linear_r2(data.test_z, h),
        "mcc": iso.mcc(data.test_z, h),
        "columns": data.x.shape[1],
        "directions": model.n_directions_,
        "steps": model.history_[-1].number,
        "seconds": seconds,
    }


def write_report(fits: dict[str, dict[str, Any]]) -> None:
    lines = [
        "# Many columns, noise and counts",
        "",
        "Written by `python benchmarks/noisy_columns.py`. R² of held-out factors by a linear map",
        "of the codes, for each seed; seconds of CPU time for a fit.",
        "",
        "| data | columns | first layer | directions | R² | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for case in CASES:
        for way in ways_of(case):
            found = [fit for key, fit in fits.items() if key.startswith(f"{case}; {way}; ")]
            if found:
                cells = (
                    ", ".join(f"{fit[name]:{form}}" for fit in found)
                    for name, form in (
                        ("directions", "d"),
                        ("linear_r2", ".3f"),
                        ("seconds", ".0f"),
                    )
                )
                lines.append(f"| {case} | {found[0]['columns']} | {way} | {' | '.join(cells)} |")
    write_text(OUT.with_suffix(".md"), "\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cases", nargs="+", default=[""], help="beginnings of names")
    parser.add_argument("--max-steps", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(OUT.read_text()) if OUT.exists() else {}
    program = {"code": program_digest(), "max_steps": options.max_steps}
    fits = stored.get("fits", {}) if stored.get("program") == program else {}
    for seed in range(options.seeds):
        for case in CASES:
            for way in ways_of(case):
                key = f"{case}; {way}; seed {seed}"
                if key in fits or not case.startswith(tuple(options.cases)):
                    continue
                fits[key] = fit(case, way, seed, options.max_steps)
                print(key, fits[key], flush=True)
                write_json(OUT, {"program": program, "fits": fits}, indent=2)
                write_report(fits)


if __name__ == "__main__":
    main()
