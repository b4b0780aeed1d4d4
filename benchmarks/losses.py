"""Time and memory of the contrastive losses, forward and backward, against what else there is.

Each cell (loss × similarity × method × batch) runs in a process of its own: value and gradients are
checked against our dense engine in float64, then the peak of resident memory over the first run and
the median time of the next ones are taken. Cells are written as they come; a second call goes on.

Run: python benchmarks/losses.py [--quick] [--fresh] [--report] [--methods …] [--batches …]
Writes results/benchmarks/losses.{json,md,png}.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import json
import math
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

import isolatent.contrast
from loss_peers import (
    ENGINES,
    GEOMETRIES,
    LOSSES,
    METHODS,
    PEERS,
    POLICIES,
    N,
    codes,
    methods_for,
    missing_peers,
    oracle,
    peer_versions,
)

BATCHES = (512, 1024, 6144, 16384, 65536)
QUICK = (1024, 6144)
CHECKED = 200  # batch of the comparison with the oracle
TOLERANCE = 1e-4  # relative, of values and of gradients
PRELOAD = ["torch", "isolatent.contrast", "isolatent.contrast.kernels.numba_engine", "loss_peers"]
Record = dict[str, Any]


class Cell(NamedTuple):
    """One measurement."""

    loss: str
    geometry: str
    policy: str
    method: str
    batch: int

    @property
    def key(self) -> str:
        return " | ".join(map(str, self))


def cells(quick: bool) -> Iterator[Cell]:
    """All cells, batches ascending, so that small ones foretell the cost of large ones."""
    for loss in ["InfoNCE"] if quick else LOSSES:
        for batch in QUICK if quick else BATCHES:
            for geometry in GEOMETRIES.values():
                for policy in POLICIES:
                    for method in methods_for(loss, geometry, policy):
                        yield Cell(loss, geometry.name, policy, method, batch)


def chosen(options: argparse.Namespace) -> Iterator[Cell]:
    """The cells that the options ask for."""
    for cell in cells(options.quick):
        if (
            cell.method in (options.methods or METHODS)
            and cell.loss in (options.losses or LOSSES)
            and cell.batch in (options.batches or BATCHES)
        ):
            yield cell


# In the process of a cell


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (peak since `forget_peak`) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


def forget_peak() -> None:
    """Give free memory back to the system, then set the peak to what is in use."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def busy() -> float:
    """Seconds of all cores spent so far by processes other than this one, or by other guests."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def deviations(cell: Cell) -> tuple[float, float]:
    """Largest relative errors of value and of gradients against the oracle, at a small batch."""
    geometry = GEOMETRIES[cell.geometry]
    build = METHODS[cell.method].build
    results = []
    for builder, dtype in ((oracle, torch.float64), (build, torch.float32)):
        h, h_pos = codes(geometry, CHECKED, dtype)
        value = builder(cell.loss, geometry, cell.policy)(h, h_pos)
        results.append((value.item(), torch.autograd.grad(value, (h, h_pos))))
    (expected, wanted), (found, got) = results
    gradients = [
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(got, wanted, strict=True)
    ]
    return abs(found - expected) / abs(expected), max(gradients)


def repeats_for(seconds: float, budget: float) -> int:
    """How often to repeat after a first run of so many seconds; 0 where once must do."""
    if seconds < 1:
        return min(25, max(5, round(3 / seconds)))
    return 3 if seconds < budget / 12 else int(seconds < budget / 4)


def measure(cell: Cell, threads: int, budget: float) -> Record:
    """The record of a cell; raises where its value is wrong."""
    torch.set_num_threads(threads)
    value_error, gradient_error = deviations(cell)  # warms up, too
    if not max(value_error, gradient_error) < TOLERANCE:
        raise ValueError(f"value off by {value_error:.1e}, gradients by {gradient_error:.1e}")
    geometry = GEOMETRIES[cell.geometry]
    function = METHODS[cell.method].build(cell.loss, geometry, cell.policy)
    h, h_pos = codes(geometry, cell.batch, torch.float32)

    def run() -> tuple[float, float]:
        start = time.perf_counter()
        value = function(h, h_pos)
        torch.autograd.grad(value, (h, h_pos))
        return time.perf_counter() - start, value.item()

    forget_peak()
    before = resident("VmRSS")
    start, busy_before = time.perf_counter(), busy()
    first, value = run()
    extra = resident("VmHWM") - before
    times = [run()[0] for _ in range(repeats_for(first, budget))] or [first]
    return {
        "seconds": statistics.median(times),
        "fastest": min(times),
        "repeats": len(times),
        "others": max(0.0, busy() - busy_before) / (time.perf_counter() - start),
        "megabytes": extra / 1e6,
        "value": value,
        "value error": value_error,
        "gradient error": gradient_error,
    }


def child(pipe: Connection, cell: Cell, threads: int, budget: float) -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (KeOps is talkative)
    try:
        pipe.send(measure(cell, threads, budget))
    except Exception as error:
        pipe.send({"failed": f"{type(error).__name__}: {error}"})


# In the process that starts them


def run_apart(cell: Cell, threads: int, budget: float) -> Record:
    """The record of a cell measured in a process forked from one that has run nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(theirs, cell, threads, budget))
    process.start()
    theirs.close()
    try:
        if not ours.poll(120 + 3 * budget):
            process.kill()
            return {"failed": f"killed after {120 + 3 * budget:.0f} s"}
        record: Record = ours.recv()
        return record
    except EOFError:
        process.join()
        return {"failed": f"crashed with exit code {process.exitcode}"}
    finally:
        process.join()


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


# The report


def number(x: float) -> str:
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}" if x >= 0.001 else f"{x:.1e}"


def describe(record: Record | None) -> str:
    if record is None:
        return ""
    if "seconds" in record:
        return f"{number(record['seconds'])} s, {number(max(record['megabytes'], 0))} MB"
    return next(f"{word}: {record[word]}" for word in ("skipped", "failed") if word in record)


class Results:
    """The finished cells, and comparisons among them."""

    def __init__(self, records: dict[str, Record]) -> None:
        self.records = records

    def get(self, *cell: Any) -> Record | None:
        return self.records.get(Cell(*cell).key)

    def seconds(self, *cell: Any, which: str = "seconds") -> float:
        return float((self.get(*cell) or {}).get(which, math.nan))

    def ratio(self, *cell: Any, which: str = "seconds") -> float:
        """Time of a method over ours, nan where either is not known."""
        loss, geometry, policy, _, batch = cell
        mine = self.seconds(loss, geometry, policy, "numba", batch, which=which)
        return self.seconds(*cell, which=which) / mine

    def ratios(self, *cell: Any) -> str:
        """The ratio of medians and, less troubled by other processes, that of the fastest runs."""
        return f"{self.ratio(*cell):.1f}×, fastest runs {self.ratio(*cell, which='fastest'):.1f}×"

    def finished(self, **wanted: Any) -> list[Record]:
        return [
            record
            for record in self.records.values()
            if "seconds" in record and all(record[k] == v for k, v in wanted.items())
        ]

    def peers(self, **wanted: Any) -> list[tuple[float, Record]]:
        """Ratios of all peers to ours with the same definition, smallest first."""
        found = [
            (self.ratio(*(record[k] for k in Cell._fields)), record)
            for record in self.finished(**wanted)
            if record["method"] in PEERS
        ]
        return sorted(((r, c) for r, c in found if not math.isnan(r)), key=lambda pair: pair[0])


def verdict(name: str, holds: bool | None, found: str) -> str:
    word = "not measured" if holds is None else "holds" if holds else "**fails**"
    return f"| {name} | {word} | {'' if holds is None else found} |"


def targets(results: Results) -> list[str]:
    """Whether each target of the issue holds."""
    lines = ["| target | | found |", "|---|---|---|"]
    for geometry, least in (("L1", 60), ("L2", 30), ("L3", 80)):
        naive = Cell("InfoNCE", geometry, "one way", "naive (B,B,n)", 6144)
        r = results.ratio(*naive)
        holds = None if math.isnan(r) else r >= least
        name = f"{least}× over naive, {geometry}, 6144"
        lines.append(verdict(name, holds, results.ratios(*naive)))
    for geometry, least in (("L1", 8), ("L2", 6), ("L3", 60), ("dot", 3)):
        found = results.peers(loss="InfoNCE", geometry=geometry, policy="one way", batch=6144)
        name = f"{least}× over best peer, {geometry}, 6144"
        if not found:
            lines.append(verdict(name, None, ""))
            continue
        r, record = found[0]
        ratios = results.ratios(*(record[k] for k in Cell._fields))
        lines.append(verdict(name, r >= least, f"{record['method']}: {ratios}"))
    large = [(r, c) for r, c in results.peers() if c["batch"] >= 1024]
    worst = "; ".join(
        f"{r:.2f}× {c['loss']} {c['geometry']} {c['policy']} {c['method']} {c['batch']}"
        for r, c in (([p for p in large if p[0] < 1]) or large[:1])
    )
    holds = large[0][0] >= 1 if large else None
    lines.append(verdict("never slower than a peer, batch ≥ 1024", holds, worst))
    biggest = max(
        results.finished(method="numba", batch=65536), key=lambda c: c["megabytes"], default=None
    )
    found_memory = f"{biggest['megabytes']:.0f} MB" if biggest else ""
    holds = biggest["megabytes"] < 300 if biggest else None
    lines.append(verdict("memory under 300 MB at 65536", holds, found_memory))
    orders = []
    for record in results.finished(method="numba", batch=65536):
        small = results.seconds(*(record[k] for k in Cell._fields[:-1]), 6144)
        orders.append(math.log(record["seconds"] / small) / math.log(65536 / 6144))
    order = max((o for o in orders if not math.isnan(o)), default=math.nan)
    holds = None if math.isnan(order) else order <= 2.05  # log of 12 % noise over log of 10.7
    lines.append(verdict("time grows no faster than B², 6144 to 65536", holds, f"B^{order:.2f}"))
    return lines


def disagreements(results: Results) -> list[str]:
    """Cells whose value at full batch is not that of ours."""
    found = []
    for record in results.finished():
        mine = results.get(*(record[k] for k in Cell._fields[:3]), "numba", record["batch"]) or {}
        if "value" in mine and abs(record["value"] / mine["value"] - 1) > TOLERANCE:
            found.append(f"{Cell(*(record[k] for k in Cell._fields)).key}: {record['value']}")
    return found


def table(results: Results, loss: str, geometry: str, policy: str) -> list[str]:
    """Rows are methods, columns are batches; in brackets the time over ours."""
    lines = [
        f"### {loss}, {geometry}, {policy}",
        "",
        "| method |" + "".join(f" {batch} |" for batch in BATCHES),
        "|---" * (len(BATCHES) + 1) + "|",
    ]
    for method in methods_for(loss, GEOMETRIES[geometry], policy):
        row = []
        for batch in BATCHES:
            cell = (loss, geometry, policy, method, batch)
            ratio = results.ratio(*cell)
            over = "" if math.isnan(ratio) or method == "numba" else f" (**{number(ratio)}×**)"
            row.append(describe(results.get(*cell)) + over)
        lines.append(f"| {method} | " + " | ".join(row) + " |")
    return [*lines, ""]


def report(state: Record) -> list[str]:
    results, facts = Results(state["cells"]), state["circumstances"]
    others = sorted(record["others"] for record in results.finished()) or [0.0]
    lines = [
        "# Contrastive losses: time and peak extra memory of forward + backward",
        "",
        "Written by `benchmarks/losses.py`. Gradients to h and h_pos (B, n), "
        f"n = {N}, float32, {facts['threads']} threads, {facts['processor']} with "
        f"{facts['cores']} cores, Python {facts['python']}, torch {facts['torch']}. Median time; "
        f"meanwhile other processes used {statistics.median(others):.1f} cores in the median cell, "
        f"{others[-1]:.1f} in the worst. numba is our default engine; × is time over its time. "
        f"Values and gradients agree with the float64 oracle within {TOLERANCE:g} at batch "
        f"{CHECKED}, in every cell that has a time.",
        "",
        "Policies: one way, h asks and all h_pos answer, as in the reference code, CEBRA's, KeOps' "
        "and PML's (SelfSupervisedLoss, symmetric=False; SupCon with one positive is InfoNCE); "
        "symmetric, both directions (our default); simclr, symmetric with negatives from both "
        "views (lightly's).",
        "",
        "Peers: " + ", ".join(f"{k} {v}" for k, v in facts["peers"].items()) + ".",
        *(f"Left out, {name}: {reason}." for name, reason in facts["missing"].items()),
        "",
        "Values that differ from ours at full batch: "
        + ("; ".join(disagreements(results)) or "none")
        + ".",
        "",
        "## Targets",
        "",
        *targets(results),
        "",
        "## All cells",
        "",
    ]
    for loss in LOSSES:
        for geometry in GEOMETRIES:
            for policy in POLICIES:
                if results.finished(loss=loss, geometry=geometry, policy=policy):
                    lines += table(results, loss, geometry, policy)
    return lines


def plot(results: Results, path: Path) -> None:
    """InfoNCE, one way: time above, memory below, against the batch."""
    try:
        importlib.import_module("matplotlib").use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        print(f"no plot: {error}")
        return
    names = [name for name in METHODS if name != "lightly"]
    figure, axes = pyplot.subplots(
        2, len(GEOMETRIES), figsize=(20, 7), sharex=True, sharey="row", layout="constrained"
    )
    for column, geometry in enumerate(GEOMETRIES):
        for row, quantity in enumerate(("seconds", "megabytes")):
            axis = axes[row][column]
            for index, name in enumerate(names):
                found = results.finished(
                    loss="InfoNCE", geometry=geometry, policy="one way", method=name
                )
                points = sorted((c["batch"], max(c[quantity], 0.1 * row)) for c in found)
                style = {"lw": 3, "zorder": 3} if name == "numba" else {"lw": 1.2}
                axis.plot(*zip(*points, strict=True) if points else ([], []), marker="o", ms=4,
                          color=f"C{index}", label=name, **style)  # fmt: skip
            axis.set(xscale="log", yscale="log")
            axis.grid(alpha=0.3)
        axes[0][column].set_title(geometry)
        axes[1][column].set_xticks(BATCHES, [str(b) for b in BATCHES], rotation=60)
        axes[1][column].minorticks_off()
    axes[0][0].set_ylabel("seconds, forward + backward")
    axes[1][0].set_ylabel("peak extra memory, MB")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names))
    figure.suptitle("InfoNCE against batch size")
    figure.savefig(path, dpi=110)


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
