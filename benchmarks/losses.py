"""Time and memory of the contrastive losses, forward and backward, against what else there is.

Each cell (loss × similarity × method × batch) runs in a process of its own: value and gradients are
checked against our dense engine in float64, then the peak of resident memory over the first run and
the median time of the next ones are taken. Cells are written as they come; a second call goes on.

Run: python benchmarks/losses.py [--quick] [--fresh] [--report] [--methods …] [--batches …]
Writes results/benchmarks/losses.{json,md,png}.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import torch

import isolatent.contrast
from loss_measuring import BATCHES, Cell, Record, cells, run_apart
from loss_peers import ENGINES, GEOMETRIES, LOSSES, METHODS, N, missing_peers, peer_versions
from loss_report import Results, describe, plot, report, targets


def chosen(options: argparse.Namespace) -> Iterator[Cell]:
    """The cells that the options ask for."""
    for cell in cells(options.quick):
        if (
            cell.method in (options.methods or METHODS)
            and cell.loss in (options.losses or LOSSES)
            and cell.batch in (options.batches or BATCHES)
        ):
            yield cell


def reason_to_skip(
    cell: Cell, done: dict[str, Record], budget: float, gigabytes: float
) -> str | None:
    """Why a cell cannot be run, foretold from the next smaller batch that was measured."""
    method, seconds = METHODS[cell.method], 0.0
    rate = method.bytes if GEOMETRIES[cell.geometry].p or cell.method != "dense" else 20
    memory = rate * cell.batch**method.order
    for batch in sorted((b for b in BATCHES if b < cell.batch), reverse=True):
        record = done.get(cell._replace(batch=batch).key, {})
        growth = (cell.batch / batch) ** method.order
        if "failed" in record:
            return f"failed at batch {batch}"
        if "seconds" in record:
            seconds = record["seconds"] * growth
            if record["megabytes"] > 100 and method.bytes:
                memory = 1e6 * record["megabytes"] * growth
            break
    if memory > 1e9 * gigabytes:
        return f"would need {memory / 1e9:.0f} GB"
    return f"would take {seconds:.0f} s" if seconds > budget else None


def source_digest() -> str:
    """Changes with the code of our losses, whose cells are then measured again."""
    folder = Path(isolatent.contrast.__file__).parent
    text = b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256(text).hexdigest()[:12]


def circumstances(threads: int) -> Record:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line for line in lines if line.startswith("model name")]
    return {
        "n": N,
        "threads": threads,
        "cores": os.cpu_count(),
        "processor": model[0].split(":")[1].strip() if model else platform.processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "peers": peer_versions(),
        "missing": missing_peers(),
    }


def run_all(options: argparse.Namespace, store: Path) -> Record:
    """Measure what is not in the store yet, writing as it goes."""
    state: Record = {"cells": {}}
    if store.exists() and not options.fresh:
        state = json.loads(store.read_text())
        if state["circumstances"]["threads"] != options.threads:
            raise SystemExit(f"{store} is of other --threads; add --fresh")
    state["circumstances"] = circumstances(options.threads)
    done, missing = state["cells"], state["circumstances"]["missing"]
    digest = source_digest()  # once: the processes are forked from one that has read the code
    for cell in chosen(options):
        code = digest if cell.method in ENGINES else None
        old = done.get(cell.key, {})
        calm = old.get("others", math.inf) <= options.calm
        if cell.method in missing or ("seconds" in old and old["code"] == code and calm):
            continue
        reason = reason_to_skip(cell, done, options.budget, options.memory)
        record = {"skipped": reason} if reason else run_apart(cell, options.threads, options.budget)
        done[cell.key] = {**cell._asdict(), **record, "code": code}
        print(cell.key, describe(done[cell.key]), flush=True)
        partial = store.with_suffix(".partial.json")
        partial.write_text(json.dumps(state, indent=1) + "\n")
        partial.replace(store)  # at once: a run that is killed leaves a whole file
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="batch 1024 and 6144, InfoNCE")
    parser.add_argument("--fresh", action="store_true", help="forget the cells already measured")
    parser.add_argument("--report", action="store_true", help="only write the tables and the plot")
    parser.add_argument(
        "--calm",
        type=float,
        default=math.inf,
        help="measure cells again during which other processes used more cores than this",
    )
    for name, choices in (("methods", METHODS), ("losses", LOSSES)):
        parser.add_argument(
            f"--{name}", nargs="+", choices=list(choices), help=f"only these {name}"
        )
    parser.add_argument("--batches", nargs="+", type=int, choices=BATCHES, help="only these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for one run of a cell")
    parser.add_argument("--memory", type=float, default=8.0, help="GB a cell may take")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # KeOps reads nothing else
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "losses.json"
    state = json.loads(store.read_text()) if options.report else run_all(options, store)
    (options.out / "losses.md").write_text("\n".join(report(state)) + "\n")
    results = Results(state["cells"])
    plot(results, options.out / "losses.png")
    print("\n".join(targets(results)))


if __name__ == "__main__":
    main()
