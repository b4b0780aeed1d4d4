"""Time to sample 100 000 positives from every conditional at n = 10.

Run: .venv/bin/python benchmarks/sampling.py [--out results/benchmarks/sampling.md]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from isolatent.worlds import (
    AnisotropicNormal,
    Box,
    CubeGrid,
    Distribution,
    Euclidean,
    GeneralizedNormal,
    HollowBall,
    Laplace,
    Normal,
    ShellNormal,
    Space,
    Sphere,
    VonMisesFisher,
)

N = 10
POSITIVES = 100_000
LIMIT = 0.5  # seconds

LINEAR = tuple(torch.linspace(5, 25, N).tolist())
CASES: list[tuple[str, Space, Distribution]] = [
    *(
        (f"VonMisesFisher({kappa})", Sphere(N), VonMisesFisher(kappa))
        for kappa in (1.0, 10.0, 300.0)
    ),
    ("AnisotropicNormal(linspace(5, 25))", Sphere(N), AnisotropicNormal(LINEAR)),
    ("ShellNormal(linspace(5, 25))", Sphere(N), ShellNormal(LINEAR)),
    *(
        (repr(distribution), space, distribution)
        for space in (Sphere(N), Box(N), Euclidean(N), HollowBall(N), CubeGrid(N))
        for distribution in (Laplace(0.05), Normal(0.05), GeneralizedNormal(3.0, 0.05))
    ),
    ("Normal(std=1.0)", HollowBall(N), Normal(1.0)),
]

ACCEPTANCE: list[tuple[str, tuple[float, ...], bool]] = [
    ("linspace(5, 300), uniform anchors", tuple(torch.linspace(5, 300, 40).tolist()), False),
    ("5, 39 times 300, anchor on the axis of the least weight", (5.0, *(300.0,) * 39), True),
]


def seconds(space: Space, distribution: Distribution, repeats: int = 5) -> float:
    generator = torch.Generator().manual_seed(0)
    center = (
        space.sample(POSITIVES, generator)
        if space.bounded
        else torch.randn(POSITIVES, N, generator=generator)
    )
    distribution.sample(space, center[:1000], generator)  # builds interpolation tables
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        distribution.sample(space, center, generator)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def acceptance(weights: tuple[float, ...], on_axis: bool) -> float:
    space, generator = Sphere(len(weights)), torch.Generator().manual_seed(0)
    anchors = space.sample(POSITIVES, generator)
    if on_axis:
        anchors = space.center().float().expand_as(anchors).contiguous()
    return AnisotropicNormal(weights).acceptance_rate(space, anchors, generator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/sampling.md"))
    out = parser.parse_args().out
    lines = [
        f"{POSITIVES} positives, n = {N}, float32, {torch.get_num_threads()} threads, "
        "median of 5; written by `benchmarks/sampling.py`.",
        "",
        "| space | conditional | seconds |",
        "|---|---|---|",
    ]
    slow = []
    for name, space, distribution in CASES:
        taken = seconds(space, distribution)
        lines.append(f"| {space!r} | {name} | {taken:.3f} |")
        print(lines[-1], flush=True)
        slow += [name] if taken > LIMIT else []
    lines += ["", "Acceptance rate of `AnisotropicNormal(weights)` on `Sphere(40)`:", ""]
    for name, weights, on_axis in ACCEPTANCE:
        lines.append(f"- {name}: {acceptance(weights, on_axis):.2f}")
        print(lines[-1], flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    if slow:
        raise SystemExit(f"slower than {LIMIT} s: {', '.join(slow)}")


if __name__ == "__main__":
    main()
