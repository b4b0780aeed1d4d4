"""Time all disentanglement metrics of one encoder on the whole grid of sprites.

Compare this library (each point encoded once, boosters on two threads; with scikit-learn's booster
and with the presorted one) with a plain port of the protocols: images drawn and encoded anew for
every batch, scikit-learn's fits one after the other. The port's BetaVAE and FactorVAE encode three
million images; they are timed on a stated share of their examples and extrapolated, everything else
is timed in full.

Run: OMP_WAIT_POLICY=passive .venv/bin/python benchmarks/disentanglement.py [--share 0.05]
Writes results/benchmarks/disentanglement.{json,md} after every step; stored steps are not repeated,
so an interrupted run can be resumed.

(Passive, so that waiting threads of the port do not count as working.)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import Generator, Tensor

import isolatent as iso
from isolatent.datasets import Sprites
from isolatent.encoders import ConvEncoder

OUT = Path(__file__).parents[1] / "results/benchmarks/disentanglement.json"
N_TRAIN, N_TEST, BATCH_SIZE, N_BINS, N_CODES = 10_000, 5_000, 64, 20, 10
THREADS, REPEATS = 2, 3
LIMIT, LEAD = 180.0, 10.0  # seconds on two idle cores; times faster than the port
BOOSTERS = ("presorted", "sklearn")
UNITS = ("seconds", "processor")


def make_encoder(world: Sprites) -> ConvEncoder:
    """Return an encoder with random weights and codes of unit variance, so that none is dead."""
    torch.manual_seed(0)
    encoder = ConvEncoder(N_CODES).eval()
    with torch.no_grad():
        x = world.observe(world.sample_factors(500, Generator().manual_seed(1)))
        encoder.network[-1].weight /= encoder(x).std(dim=0, keepdim=True).T
    return encoder


# --- the port: each function follows its published protocol ---


class Port:
    """The published protocols; those that work on batches use a share of their examples."""

    def __init__(self, encoder: ConvEncoder, world: Sprites, share: float) -> None:
        self.encoder, self.world, self.share = encoder, world, share
        self.generator = Generator().manual_seed(0)
        self.rng = np.random.default_rng(0)

    def encode(self, factors: Tensor) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            return self.encoder(self.world.observe(factors)).numpy()

    def draw(self, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        factors = self.world.sample_factors(count, self.generator)
        codes = [self.encode(factors[i : i + BATCH_SIZE]) for i in range(0, count, BATCH_SIZE)]
        return factors.numpy(), np.concatenate(codes)

    def beta_vae(self) -> float:
        def examples(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
            features, labels = [], []
            for _ in range(round(count * self.share)):
                k = int(self.rng.integers(len(self.world.sizes)))
                first = self.world.sample_factors(BATCH_SIZE, self.generator)
                second = self.world.sample_factors(BATCH_SIZE, self.generator)
                second[:, k] = first[:, k]
                difference = np.abs(self.encode(first) - self.encode(second))
                features.append(difference.mean(axis=0))
                labels.append(k)
            return np.array(features), np.array(labels)

        model = LogisticRegression(max_iter=1000).fit(*examples(N_TRAIN))
        return float(model.score(*examples(N_TEST)))

    def factor_vae(self) -> float:
        variance = self.draw(round(N_TRAIN * self.share))[1].var(axis=0, ddof=1)
        live = np.flatnonzero(np.sqrt(variance) >= 0.05)

        def votes(count: int) -> np.ndarray[Any, Any]:
            table = np.zeros((len(live), len(self.world.sizes)))
            for _ in range(round(count * self.share)):
                k = int(self.rng.integers(len(self.world.sizes)))
                factors = self.world.sample_factors(BATCH_SIZE, self.generator)
                factors[:, k] = factors[0, k]
                local = self.encode(factors).var(axis=0, ddof=1)
                table[np.argmin(local[live] / variance[live]), k] += 1
            return table

        winner = votes(N_TRAIN).argmax(axis=1)
        table = votes(N_TEST)
        return float(table[np.arange(len(live)), winner].sum() / table.sum())

    def information(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        factors, codes = self.draw(N_TRAIN)
        mutual = np.zeros((codes.shape[1], factors.shape[1]))
        for c, code in enumerate(codes.T):
            bins = np.digitize(code, np.histogram(code, N_BINS)[1][:-1])
            for f, factor in enumerate(factors.T):
                mutual[c, f] = mutual_info_score(bins, factor)
        return mutual, np.array([mutual_info_score(y, y) for y in factors.T])

    def mig(self) -> float:
        mutual, entropy = self.information()
        ordered = np.sort(mutual, axis=0)
        return float(np.mean((ordered[-1] - ordered[-2]) / entropy))

    def modularity(self) -> float:
        squares = self.information()[0] ** 2
        top = squares.max(axis=1)
        return float(np.mean(1 - (squares.sum(axis=1) - top) / (top * (squares.shape[1] - 1))))

    def dci_points(self) -> None:
        """Draw the points that all fits of DCI use."""
        self.points = self.draw(N_TRAIN), self.draw(N_TEST)

    def dci(self, factor: int) -> float:
        """Return the accuracy of the classifier of one factor."""
        (y, c), (y_test, c_test) = self.points
        model = GradientBoostingClassifier(random_state=0).fit(c, y[:, factor])
        _ = model.feature_importances_
        return float(model.score(c_test, y_test[:, factor]))

    def explicitness(self) -> float:
        (y, c), (y_test, c_test) = self.draw(N_TRAIN), self.draw(N_TEST)
        scaler = StandardScaler().fit(c)
        scores = []
        for f in range(y.shape[1]):
            model = LogisticRegression(max_iter=1000).fit(scaler.transform(c), y[:, f])
            probability = model.predict_proba(scaler.transform(c_test))
            scores.append(roc_auc_score(y_test[:, f], probability, multi_class="ovr"))
        return float(np.mean(scores))

    def sap(self) -> float:
        (y, c), (y_test, c_test) = self.draw(N_TRAIN), self.draw(N_TEST)
        accuracy = np.zeros((c.shape[1], y.shape[1]))
        for i in range(c.shape[1]):
            for f in range(y.shape[1]):
                model = LinearSVC(C=0.01, class_weight="balanced").fit(c[:, [i]], y[:, f])
                accuracy[i, f] = model.score(c_test[:, [i]], y_test[:, f])
        ordered = np.sort(accuracy, axis=0)
        return float(np.mean(ordered[-1] - ordered[-2]))

    def mcc(self) -> float:
        return iso.mcc(*self.draw(N_TRAIN), method="spearman")


SINGLE = ("mig", "modularity", "mcc", "sap", "explicitness", "dci_points")
IN_BATCHES = ("factor_vae", "beta_vae")


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return a result, its wall-clock and processor seconds, and the cores used by others."""
    busy, wall, own = _busy(), time.perf_counter(), time.process_time()
    result = work()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    others = max(0.0, (_busy() - busy - own) / wall)
    return result, {"seconds": wall, "processor": own, "others": others}


def _busy() -> float:
    """Return the busy processor seconds of the whole machine since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    ticks = [int(field) for field in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def steps(share: float) -> dict[str, Callable[[], tuple[Any, dict[str, float]]]]:
    """Return the timed steps by name, in the order of execution."""
    world = Sprites()
    encoder = make_encoder(world)
    rng = np.random.default_rng(0)  # compile before timing
    factors, codes = rng.integers(3, size=(60, 2)), rng.normal(size=(60, 2))
    for booster in BOOSTERS:
        iso.evaluation.dci(factors, codes, booster=booster)
    iso.evaluation.sap(factors, codes, solver="exact")

    def ours(booster: str) -> tuple[Any, dict[str, float]]:
        result, cost = timed(
            lambda: iso.evaluation.evaluate_disentanglement(encoder, world, booster=booster)
        )
        return result.to_dict(), cost

    def port(name: str, *arguments: int) -> tuple[Any, dict[str, float]]:
        made = Port(encoder, world, share)
        if name == "dci":
            made.dci_points()  # timed as a separate step
        value, cost = timed(lambda: getattr(made, name)(*arguments))
        return value, cost | ({"share": share} if name in IN_BATCHES else {})

    first: dict[str, Any] = {"ours, presorted, 1": lambda: ours("presorted")}
    for name in (*SINGLE, *IN_BATCHES):
        first[f"port, {name}"] = lambda name=name: port(name)
    for f, name in enumerate(world.names):
        first[f"port, dci of {name}"] = lambda f=f: port("dci", f)
    for repeat in range(1, REPEATS + 1):
        for booster in reversed(BOOSTERS):
            first.setdefault(f"ours, {booster}, {repeat}", lambda b=booster: ours(b))
    return first


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--share", type=float, default=0.05, help="share of the port's examples")
    parser.add_argument("--only", default="", help="run only steps whose name starts with this")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    stored: dict[str, Any] = {"cpu": _cpu(), "runs": {}}
    if OUT.exists():
        stored = json.loads(OUT.read_text())
    OUT.parent.mkdir(parents=True, exist_ok=True)
    for name, step in steps(options.share).items():
        if name.startswith(options.only) and name not in stored["runs"]:
            value, cost = step()
            stored["runs"][name] = {**cost, "value": value}
            OUT.write_text(json.dumps(stored, indent=1) + "\n")
            OUT.with_suffix(".md").write_text(table(stored))
            print(name, {unit: round(cost[unit], 1) for unit in (*UNITS, "others")}, flush=True)


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor()


def table(stored: dict[str, Any]) -> str:
    """Return a table of all timings; extrapolated ones are marked."""
    runs = stored["runs"]
    port = {name: run for name, run in runs.items() if name.startswith("port")}
    up = {name: 1 / run.get("share", 1.0) for name, run in port.items()}
    total = {unit: sum(run[unit] * up[name] for name, run in port.items()) for unit in UNITS}
    expected = len(SINGLE) + len(IN_BATCHES) + len(Sprites().names)
    missing = expected - len(port)
    shares = sorted({run["share"] for run in port.values() if "share" in run})
    lines = [
        "# All disentanglement metrics of one encoder",
        "",
        f"{len(Sprites())} images of 64 × 64, ConvEncoder with {N_CODES} codes, {THREADS} threads, "
        f"{stored['cpu']}; written by `benchmarks/disentanglement.py`.",
        "",
        "| | seconds | processor seconds | cores used by others |",
        "|---|---|---|---|",
    ]
    for name, run in port.items():
        mark = "*" if "share" in run else ""
        cost = " | ".join(f"{run[unit] * up[name]:.1f}" for unit in UNITS)
        lines.append(f"| {name}{mark} | {cost} | {run['others']:.1f} |")
    whole = f" but for {missing} steps not yet run" if missing else ""
    lines.append(f"| port, all{whole} | {total['seconds']:.0f} | {total['processor']:.0f} | |")
    leads = []
    for booster in BOOSTERS:
        own = [run for name, run in runs.items() if name.startswith(f"ours, {booster}")]
        if own:
            wall, work = (statistics.median(run[unit] for run in own) for unit in UNITS)
            others = statistics.median(run["others"] for run in own)
            lines.append(
                f"| ours, all, {booster} (median of {len(own)}) | {wall:.0f} | {work:.0f} "
                f"| {others:.1f} |"
            )
            leads.append(
                f"- `{booster}`: {total['processor'] / work:.1f} times less processor time than "
                f"the port{whole} (seconds: {total['seconds'] / wall:.1f} times), and at least "
                f"{work / THREADS:.0f} s on {THREADS} idle cores."
            )
    lines += [
        "",
        f"* timed on {' and '.join(f'{share:.0%}' for share in shares)} of the examples and "
        "extrapolated; everything else in full."
        if shares
        else "",
        "",
        "Where others use cores, seconds say little, and comparisons are by processor seconds; "
        "those suffer a little from shared caches and cores.",
        "",
        *leads,
        "",
        f"The aim is {LEAD:.0f} times faster than the port, and {LIMIT:.0f} s on two idle cores.",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
