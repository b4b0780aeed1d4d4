"""Time of one loss, forward and backward, at batches of 32 to 1024, beside dense torch code.

    python benchmarks/small_batches.py

Processor time of one thread. Within a cell the methods alternate, call by call, and the median of
each is reported, so that whatever else the machine does meets all of them alike. Every method has
fixed weights and computes its value with the gradients of h and h_pos (B, 10). "ours" and "plain
torch" are the symmetric InfoNCE, and must agree; "ours, one way" and "CEBRA's formula" are the
InfoNCE of the anchors alone, and must agree, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from isolatent.contrast import InfoNCE
from loss_peers import GEOMETRIES, Geometry, codes, torch_scores

BATCHES = (32, 64, 128, 256, 512, 1024)
SIMILARITIES = ("dot", "L1", "L2")
METHODS = ("ours", "plain torch", "ours, one way", "CEBRA's formula")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "benchmarks"
Value = Callable[[Tensor, Tensor], Tensor]


def plain_torch(geometry: Geometry) -> Value:
    """Two cross-entropies of one matrix of scores."""

    def value(h: Tensor, h_pos: Tensor) -> Tensor:
        scores, own = torch_scores(geometry, h, h_pos), torch.arange(len(h))
        return 0.5 * (cross_entropy(scores, own) + cross_entropy(scores.T, own))

    return value


def align_and_uniform(geometry: Geometry) -> Value:
    """The formula of CEBRA's criterion: alignment plus a log-sum-exp over the negatives.

    Its negatives are a batch of their own; here they are the positives of all anchors, so that the
    values can be compared.
    """

    def value(h: Tensor, h_pos: Tensor) -> Tensor:
        negative = torch_scores(geometry, h, h_pos)
        u, v = geometry.scaled(h, h_pos)
        p = geometry.p
        positive = (u * v).sum(1) if p is None else -((u - v).abs() ** p).sum(1)
        largest = negative.detach().amax(1)
        align = -(positive - largest).mean()
        return align + (negative - largest[:, None]).logsumexp(1).mean()

    return value


def methods(geometry: Geometry) -> dict[str, Value]:
    similarity = geometry.similarity()
    built = (
        InfoNCE(similarity),
        plain_torch(geometry),
        InfoNCE(similarity, symmetric=False),
        align_and_uniform(geometry),
    )
    return dict(zip(METHODS, built, strict=True))


def measure(geometry: Geometry, batch: int, repeats: int) -> dict[str, float]:
    """Median milliseconds of each method."""
    h, h_pos = codes(geometry, batch, torch.float32)
    found = {name: value(h, h_pos).item() for name, value in methods(geometry).items()}
    for ours, other in (METHODS[:2], METHODS[2:]):
        if abs(found[ours] - found[other]) > 1e-3 * max(1.0, abs(found[other])):
            raise ValueError(f"{ours} is {found[ours]}, but {other} is {found[other]}")
    timed = methods(geometry)
    times: dict[str, list[float]] = {name: [] for name in timed}
    for repeat in range(repeats + 3):
        for name, value in timed.items():
            start = time.thread_time()
            torch.autograd.grad(value(h, h_pos), (h, h_pos))
            if repeat >= 3:  # the first ones warm up
                times[name].append(time.thread_time() - start)
    return {name: 1e3 * statistics.median(taken) for name, taken in times.items()}


def table(records: list[dict[str, object]]) -> str:
    lines = [
        "# Small batches",
        "",
        "Milliseconds of processor time for value and gradients of InfoNCE, one thread, 10 codes;",
        "medians of alternating repeats. Written by `python benchmarks/small_batches.py`.",
        "",
        f"| similarity | batch | {' | '.join(METHODS)} |",
        f"|---|--:|{'--:|' * len(METHODS)}",
    ]
    for record in records:
        cells = " | ".join(f"{record[name]:.2f}" for name in METHODS)
        lines.append(f"| {record['similarity']} | {record['batch']} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=101)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    records: list[dict[str, object]] = []
    for name in SIMILARITIES:
        for batch in BATCHES:
            taken = measure(GEOMETRIES[name], batch, max(5, repeats * 128 // max(128, batch)))
            records.append({"similarity": name, "batch": batch, **taken})
            print(name, batch, {k: round(v, 3) for k, v in taken.items()}, flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    record = {"torch": torch.__version__, "repeats": repeats, "milliseconds": records}
    (RESULTS / "small_batches.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "small_batches.md").write_text(table(records))
    print(table(records))


if __name__ == "__main__":
    main()
