"""How long it takes to draw 100 000 positives, for every conditional, at n = 10.

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
CASES: list[tuple[Space, Distribution]] = [
    *((Sphere(N), VonMisesFisher(kappa)) for kappa in (1.0, 10.0, 300.0)),
    (Sphere(N), AnisotropicNormal(LINEAR)),
    (Sphere(N), ShellNormal(LINEAR)),
    *(
        (space, distribution)
        for space in (Sphere(N), Box(N), Euclidean(N), HollowBall(N), CubeGrid(N))
        for distribution in (Laplace(0.05), Normal(0.05), GeneralizedNormal(3.0, 0.05))
    ),
]


def seconds(space: Space, distribution: Distribution, repeats: int = 5) -> float:
    generator = torch.Generator().manual_seed(0)
    center = (
        space.sample(POSITIVES, generator)
        if space.bounded
        else torch.randn(POSITIVES, N, generator=generator)
    )
    distribution.sample(space, center[:1000], generator)  # builds tables
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        distribution.sample(space, center, generator)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


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
    for space, distribution in CASES:
        taken = seconds(space, distribution)
        name = (
            f"{type(distribution).__name__}(linspace(5, 25))"
            if distribution
            in (
                AnisotropicNormal(LINEAR),
                ShellNormal(LINEAR),
            )
            else repr(distribution)
        )
        lines.append(f"| {space!r} | {name} | {taken:.3f} |")
        print(lines[-1], flush=True)
        slow += [name] if taken > LIMIT else []
    generator = torch.Generator().manual_seed(0)
    rate = AnisotropicNormal(tuple(torch.linspace(5, 300, 40).tolist())).acceptance_rate(
        Sphere(40), Sphere(40).sample(POSITIVES, generator), generator
    )
    lines += [
        "",
        f"Acceptance of `AnisotropicNormal(linspace(5, 300))` on `Sphere(40)`: {rate:.2f}.",
    ]
    print(lines[-1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    if slow:
        raise SystemExit(f"slower than {LIMIT} s: {', '.join(slow)}")


if __name__ == "__main__":
    main()
