"""What encoders of the 3-D scene cost, and how much of its factors they can see.

For images of several sizes: images a second of rendering, and of a training step of each encoder
(forward and backward). Then each encoder is trained as a regression on the true factors for the
same processor time, rendering included, and scored by R² on new images: what a network does not
find with the factors given, it will not find by contrast. All on one thread, in processor time.

Run: .venv/bin/python benchmarks/scene_encoders.py [--seconds 60]
Writes results/benchmarks/scene_encoders.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from isolatent.datasets import SCENE_LATENTS, Scene3D
from isolatent.encoders import MLP, ConvEncoder, PooledEncoder, ResidualEncoder
from isolatent.evaluation import linear_r2

OUT = Path(__file__).parents[1] / "results/benchmarks/scene_encoders.json"
FACTORS = len(SCENE_LATENTS)
BATCH, TEST_IMAGES, WHITENED_IMAGES = 256, 2048, 8000
DIRECTIONS = (50, 400)  # of the whitened perceptron
RATE, WARMUP = 1e-3, 100
REPEATS = 3


def draw(count: int, generator: Generator) -> Tensor:
    return 2 * torch.rand(count, FACTORS, generator=generator, dtype=torch.float64) - 1


class Directions(nn.Module):
    """Coordinates along the directions of images with the largest variances, of unit variance."""

    mean: Tensor
    matrix: Tensor

    def __init__(self, mean: Tensor, variances: Tensor, axes: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("matrix", (axes * variances.rsqrt()).float())

    def forward(self, x: Tensor) -> Tensor:
        coordinates: Tensor = (x.flatten(1) - self.mean) @ self.matrix
        return coordinates


def encoders(size: int, whitened: Tensor) -> dict[str, nn.Module]:
    """Return the encoders for images of a size; the perceptrons for small ones alone.

    Args:
        size: Height and width of the images.
        whitened: Images from which the directions of the perceptrons are estimated.
    """
    torch.manual_seed(0)
    found: dict[str, nn.Module] = {
        "conv": ConvEncoder(FACTORS, 3, (size, size)),
        "pooled": PooledEncoder(FACTORS, 3),
        "residual": ResidualEncoder(FACTORS, 3),
    }
    if size == 32:
        x = whitened.flatten(1).double()
        variances, axes = torch.linalg.eigh(torch.cov(x.mT))
        for k in DIRECTIONS:
            first = Directions(x.mean(0), variances[-k:], axes[:, -k:])
            perceptron = nn.Sequential(first, MLP(k, FACTORS, (512, 512, 512)))
            found[f"perceptron, {k} directions"] = perceptron
    return found


def images_per_second(run: Callable[[], Any]) -> float:
    run()  # compiles, and allocates memory
    start = time.process_time()
    for _ in range(REPEATS):
        run()
    return BATCH * REPEATS / (time.process_time() - start)


def differentiate(net: nn.Module, x: Tensor) -> None:
    net(x).sum().backward()


def train(net: nn.Module, mixing: nn.Module, generator: Generator, seconds: float) -> int:
    """Train on new images for a processor time, and return the number of images."""
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    start, steps = time.process_time(), 0
    while (share := (time.process_time() - start) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1, (steps + 1) / WARMUP) * (1 + math.cos(math.pi * share)) / 2
        z = draw(BATCH, generator)
        loss = (net(mixing(z).float()) - z.float()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        steps += 1
    return BATCH * steps


def measure(sizes: list[int], seconds: float) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        generator = Generator().manual_seed(0)
        mixing = Scene3D(size).build(FACTORS, generator)
        z = draw(TEST_IMAGES, generator)
        x = mixing(z).float()
        rendered = images_per_second(partial(mixing, z[:BATCH]))
        nets = encoders(size, mixing(draw(WHITENED_IMAGES, generator)).float())
        for name, net in nets.items():
            trained = images_per_second(partial(differentiate, net, x[:BATCH]))
            images = train(net, mixing, generator, seconds)
            with torch.no_grad():
                h = torch.cat([net(part) for part in x.split(BATCH)])
            r2 = linear_r2(z.numpy(), h.numpy(), per_factor=True)
            rows.append(
                {"size": size, "encoder": name, "rendered": rendered, "trained": trained}
                | {"images": images, "r2": r2.tolist()}
            )
            print(f"{size} {name}: {trained:.0f}/s, R² {r2.mean():.3f} of {images} images")
    return rows


def report(state: dict[str, Any]) -> list[str]:
    names = [name.replace("_", " ") for name in SCENE_LATENTS]
    head = ["pixels", "encoder", "rendered a second", "trained a second", "images", "R²", *names]
    lines = [
        "# Encoders of the 3-D scene: cost, and R² as a regression on the factors",
        "",
        f"Written by `benchmarks/scene_encoders.py`: {state['seconds']:g} s of processor time for "
        f"each, batches of {BATCH}, one thread, torch {state['torch']}.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
    ]
    for row in state["rows"]:
        cells = [row["size"], row["encoder"], f"{row['rendered']:,.0f}", f"{row['trained']:,.0f}"]
        cells += [f"{row['images']:,}", f"{sum(row['r2']) / FACTORS:.3f}"]
        cells += [f"{value:.2f}" for value in row["r2"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 48, 64])
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.sizes, options.seconds)
    state = {"seconds": options.seconds, "torch": torch.__version__}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(state | {"rows": rows}, indent=1) + "\n")
    options.out.with_suffix(".md").write_text("\n".join(report(state | {"rows": rows})) + "\n")


if __name__ == "__main__":
    main()
