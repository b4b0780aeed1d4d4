"""Images per second of the renderers, and time and memory of the whole grid of sprites.

The 3-D scene is also rendered in plain NumPy, whose images are compared with the compiled ones.
Reports the median over repeats; times include the allocation of the images. Finally all 737 280
images of the packed grid are compared with rendered ones.

Run: .venv/bin/python benchmarks/rendering.py [--threads 2] [--repeats 15]
Writes results/benchmarks/rendering.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isolatent.datasets import Scene3D, Shapes3D, Sprites, render_sprites
from plain_scene import render_plainly

OUT = Path(__file__).parents[1] / "results/benchmarks/rendering.json"
BATCHES = (512, 4096)
LIMIT, SCENE_LIMIT = 20_000, 2_000  # images per second on two cores; of the 3-D scene at 64 pixels
SCENE_SIZES = (64, 128)
PLAIN_IMAGES = 16  # that plain NumPy renders at a time


def busy() -> float:
    """Return the seconds of all cores used so far by other processes and other guests."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def measure(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Time at least ``repeats`` runs and half a second; return median and minimum."""
    run()  # compiles, and allocates memory
    times: list[float] = []
    others, begun = busy(), time.perf_counter()
    while len(times) < repeats or time.perf_counter() - begun < 0.5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    others = (busy() - others) / (time.perf_counter() - begun)
    return {"seconds": statistics.median(times), "fastest": min(times), "others": others}


def rates(threads: int, repeats: int) -> dict[str, dict[str, float]]:
    world, generator = Sprites(), torch.Generator().manual_seed(0)
    grid, cells = world.grid(cache=False), {}
    room = Shapes3D()
    for batch in BATCHES:
        factors = world.sample_factors(batch, generator)
        values = world.values_of(factors).T
        index = world.index_of(factors).numpy()
        ways: dict[str, Callable[[], Any]] = {
            "render_sprites, anti-aliased": partial(render_sprites, *values),
            "render_sprites, binary": partial(render_sprites, *values, antialias=False),
            "Sprites.observe": partial(world.observe, factors),
            "Sprites.grid, indexed": partial(grid.__getitem__, index),
            "Shapes3D.observe": partial(room.observe, room.sample_factors(batch, generator)),
        }
        for name, way in ways.items():
            for used in sorted({1, threads}):
                torch.set_num_threads(used)
                cell = measure(way, repeats)
                cells[f"{name} | {batch} | {used}"] = cell | {"rate": batch / cell["seconds"]}
                print(f"{name}, batch {batch}, {used} threads: {batch / cell['seconds']:.0f}/s")
    torch.set_num_threads(threads)
    return cells


def scene_rates(threads: int, repeats: int) -> tuple[dict[str, dict[str, float]], float]:
    """Return rates of the 3-D scene, compiled and plain, and the largest difference of pixels."""
    cells: dict[str, dict[str, float]] = {}
    difference, generator = 0.0, torch.Generator().manual_seed(0)
    for size in SCENE_SIZES:
        mixing = Scene3D(size).build(10, generator)
        latents = 2 * torch.rand(BATCHES[0], 10, generator=generator, dtype=torch.float64) - 1
        few = latents[:PLAIN_IMAGES]
        for used in sorted({1, threads}):
            torch.set_num_threads(used)
            cell = measure(partial(mixing, latents), repeats)
            key = f"Scene3D, {size} pixels | {len(latents)} | {used}"
            cells[key] = cell | {"rate": len(latents) / cell["seconds"]}
        cell = measure(partial(render_plainly, few.numpy(), size), 3)
        key = f"Scene3D in plain NumPy, {size} pixels | {len(few)} | 1"
        cells[key] = cell | {"rate": len(few) / cell["seconds"]}
        plain = render_plainly(few.numpy(), size)
        difference = max(difference, float(np.abs(mixing(few).numpy() - plain).max()))
    torch.set_num_threads(threads)
    for key, cell in cells.items():
        print(f"{key}: {cell['rate']:.0f}/s")
    return cells, difference


def differing() -> int:
    """Return how many images of the packed grid differ from observed ones."""
    world = Sprites()
    grid, count = world.grid(cache=False), 0
    for start in range(0, len(world), 8192):
        cells = np.arange(start, min(start + 8192, len(world)))
        observed = world.observe(world.factors_at(cells))[:, 0].numpy() > 0
        count += int((grid[cells] != observed).any(axis=(1, 2)).sum())
    return count


def report(state: dict[str, Any]) -> list[str]:
    where = state["circumstances"]
    lines = [
        "# Rendered worlds: images per second, and the whole grid of sprites",
        "",
        "Written by `benchmarks/rendering.py`. 64 × 64 pixels unless stated (3 channels for "
        "Shapes3D and Scene3D), "
        f"{where['processor']} with {where['cores']} cores, Python {where['python']}, "
        f"torch {where['torch']}. Median of at least {where['repeats']}; fastest in brackets. "
        "Others: cores used by other processes.",
        "",
        "| | batch | threads | images per second | others |",
        "|---|---|---|---|---|",
    ]
    for key, cell in state["rates"].items():
        name, batch, threads = key.split(" | ")
        fastest = int(batch) / cell["fastest"]
        lines.append(
            f"| {name} | {batch} | {threads} | {cell['rate']:,.0f} ({fastest:,.0f}) | "
            f"{cell['others']:.1f} |"
        )
    grid = state["grid"]
    return [
        *lines,
        "",
        f"The whole grid of sprites, {grid['images']} images: built in "
        f"{1000 * grid['seconds']:.1f} ms once the renderer is compiled, {grid['bytes']} bytes; "
        f"{grid['differing']} images differ from observed ones "
        f"(all were compared, in {grid['comparison']:.0f} s).",
        "",
        f"Images of Scene3D differ from those in plain NumPy by at most {state['difference']:.1g}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line for line in lines if line.startswith("model name")]
    world = Sprites()
    cells = rates(options.threads, options.repeats)
    scenes, difference = scene_rates(options.threads, options.repeats)
    cells |= scenes
    built = measure(lambda: world.grid(cache=False), options.repeats)
    started = time.perf_counter()
    differ = differing()
    state = {
        "circumstances": {
            "cores": os.cpu_count(),
            "processor": model[0].split(":")[1].strip() if model else platform.processor(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "repeats": options.repeats,
        },
        "rates": cells,
        "difference": difference,
        "grid": built
        | {
            "images": len(world),
            "bytes": world.grid(cache=False).nbytes,
            "differing": differ,
            "comparison": time.perf_counter() - started,
        },
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(state, indent=1) + "\n")
    OUT.with_suffix(".md").write_text("\n".join(report(state)) + "\n")
    least = {f"Scene3D, 64 pixels | {BATCHES[0]}": SCENE_LIMIT}
    slow = [
        key
        for key, cell in cells.items()
        if key.endswith(f"| {options.threads}")
        and cell["rate"] < least.get(key.rpartition(" | ")[0], 0 if "Scene3D" in key else LIMIT)
    ]
    if slow or differ or difference > 1e-5:
        raise SystemExit(
            f"too slow: {slow}; differing images: {differ}; scenes differ by {difference:.1g}"
        )


if __name__ == "__main__":
    main()
