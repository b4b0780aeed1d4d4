"""The report of `losses.py`: which targets hold, a table for each loss, and a plot."""

from __future__ import annotations

import importlib
import math
import statistics
from pathlib import Path
from typing import Any

from loss_measuring import BATCHES, CHECKED, TOLERANCE, Cell, Record
from loss_peers import GEOMETRIES, LOSSES, METHODS, PEERS, POLICIES, N, methods_for


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
