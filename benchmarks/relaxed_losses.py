"""Time of InfoNCE with one relaxation, forward and backward, relative to InfoNCE without it.

Runs of the two losses alternate, so that a slow phase of the machine affects both, and the median
of ratios is taken. A ratio is that of the fastest runs in a group of about 0.2 s, as a short run is
easily interrupted. A relaxation is measured at its start.

Run: python benchmarks/relaxed_losses.py [--repeats 25] [--batches 1024 6144] [--threads 2]
Writes results/benchmarks/relaxed_losses.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isolatent.contrast import (
    AnchorScale,
    Dot,
    FactorScale,
    InfoNCE,
    LinearDynamics,
    Lp,
    NetworkDynamics,
    Pairing,
    Similarity,
)
from loss_measuring import busy

N = 10
BATCHES = (1024, 6144)
GROUP_SECONDS = 0.2
SIMILARITIES: dict[str, Callable[[], Similarity]] = {
    "Dot": lambda: Dot(10.0),
    "Lp(1)": lambda: Lp(1, weights=10.0),
    "Lp(2)": lambda: Lp(2, weights=50.0),
    "Lp(3)": lambda: Lp(3, weights=250.0),
}
RELAXATIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "pairing": lambda: {"pairing": Pairing()},
    "dynamics": lambda: {"dynamics": LinearDynamics(N)},
    "dynamics, a network": lambda: {"dynamics": NetworkDynamics(N)},
    "anchor_scale": lambda: {"anchor_scale": AnchorScale(N)},
    "factor_scale": lambda: {"factor_scale": FactorScale(N)},
}
LIMITS = {"pairing": 1.05, "dynamics": 1.05, "anchor_scale": 1.3}  # of the ratio
Record = dict[str, Any]


def codes(similarity: str, batch: int) -> tuple[Tensor, Tensor]:
    """Codes of pairs: on a unit sphere for Dot, else uniform in a box; a step of 0.1."""
    generator = torch.Generator().manual_seed(0)
    step = 0.1 * torch.randn(batch, N, generator=generator)
    if similarity == "Dot":
        h = nn.functional.normalize(torch.randn(batch, N, generator=generator))
        return h.requires_grad_(), nn.functional.normalize(h.detach() + step).requires_grad_()
    h = torch.rand(batch, N, generator=generator)
    return h.requires_grad_(), (h.detach() + step).requires_grad_()


def seconds(loss: InfoNCE, h: Tensor, h_pos: Tensor) -> tuple[float, float]:
    """Return the time of a forward and a backward pass, and the value."""
    start = time.perf_counter()
    value = loss(h, h_pos)
    torch.autograd.grad(value, [h, h_pos, *loss.parameters()])
    return time.perf_counter() - start, value.item()


def measure(similarity: str, relaxation: str, batch: int, repeats: int) -> Record:
    """Return the median ratio of one relaxation, with its quartiles."""
    h, h_pos = codes(similarity, batch)
    plain = InfoNCE(SIMILARITIES[similarity]())
    relaxed = InfoNCE(SIMILARITIES[similarity](), **RELAXATIONS[relaxation]())
    if relaxed.pairing is not None:
        relaxed.pairing.start(relaxed.scores(h, h_pos.roll(1, 0)))  # type: ignore[operator]
    for _ in range(2):  # compile, and fill caches
        (first, expected), (_, found) = seconds(plain, h, h_pos), seconds(relaxed, h, h_pos)
    # At their start all relaxations are neutral, but for pairing, which is nearly so.
    if abs(found - expected) > (0.1 if relaxation == "pairing" else 1e-4) * abs(expected):
        raise ValueError(f"{relaxation} changes {similarity} from {expected} to {found}")
    start, busy_before = time.perf_counter(), busy()
    ratios, times = [], []
    group = min(15, max(1, round(GROUP_SECONDS / (2 * first))))
    for repeat in range(repeats):
        order = (plain, relaxed) if repeat % 2 else (relaxed, plain)
        runs = [{loss: seconds(loss, h, h_pos)[0] for loss in order} for _ in range(group)]
        fastest = min(run[plain] for run in runs)
        ratios.append(min(run[relaxed] for run in runs) / fastest)
        times.append(fastest)
    low, ratio, high = statistics.quantiles(ratios, n=4)
    return {
        **{"similarity": similarity, "relaxation": relaxation, "batch": batch},
        **{"ratio": ratio, "quartiles": [low, high], "plain_seconds": statistics.median(times)},
        "others": max(0.0, busy() - busy_before) / (time.perf_counter() - start),
    }


def table(records: list[Record], circumstances: Record) -> Iterator[str]:
    """Yield the lines of the report."""
    yield (
        f"InfoNCE with one relaxation, forward and backward: time relative to InfoNCE without it. "
        f"n = {N}, float32, {circumstances['threads']} threads, medians of "
        f"{circumstances['repeats']} ratios of alternating runs (quartiles in brackets); "
        f"torch {circumstances['torch']}. Other processes used at most "
        f"{max(record['others'] for record in records):.1f} cores. "
        "Written by `benchmarks/relaxed_losses.py`."
    )
    for batch in dict.fromkeys(record["batch"] for record in records):
        yield from ("", f"Batch {batch}", "")
        names = list(dict.fromkeys(record["similarity"] for record in records))
        yield "| relaxation | " + " | ".join(names) + " | limit |"
        yield "|---" * (len(names) + 2) + "|"
        here = {(r["relaxation"], r["similarity"]): r for r in records if r["batch"] == batch}
        plain = [
            statistics.median(r["plain_seconds"] for (_, s), r in here.items() if s == name)
            for name in names
        ]
        yield "| none, in ms | " + " | ".join(f"{1e3 * s:.1f}" for s in plain) + " | |"
        for relaxation in dict.fromkeys(record["relaxation"] for record in records):
            cells = []
            for name in names:
                record = here[relaxation, name]
                low, high = record["quartiles"]
                cells.append(f"{record['ratio']:.2f} ({low:.2f}-{high:.2f})")
            limit = LIMITS.get(relaxation, "")
            yield f"| {relaxation} | " + " | ".join(cells) + f" | {limit} |"
    missed = [
        f"{r['relaxation']} with {r['similarity']} at batch {r['batch']}: {r['ratio']:.2f}"
        for r in records
        if r["ratio"] > LIMITS.get(r["relaxation"], float("inf"))
    ]
    yield ""
    yield "Above the limit: " + ("; ".join(missed) if missed else "none") + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    records = []
    for batch in options.batches:
        for similarity in SIMILARITIES:
            for relaxation in RELAXATIONS:
                records.append(measure(similarity, relaxation, batch, options.repeats))
                print(batch, similarity, relaxation, f"{records[-1]['ratio']:.3f}", flush=True)
    circumstances = {
        **{"n": N, "threads": options.threads, "repeats": options.repeats},
        **{"cores": os.cpu_count(), "torch": torch.__version__},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    content = {"circumstances": circumstances, "records": records}
    (options.out / "relaxed_losses.json").write_text(json.dumps(content, indent=1) + "\n")
    lines = list(table(records, circumstances))
    (options.out / "relaxed_losses.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
