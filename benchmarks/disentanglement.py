"""How long all disentanglement metrics take on a grid as large as dSprites, for one encoder.

Ours (every point encoded once, compiled fits) against a port of the protocols as they read: images
encoded anew for every batch, scikit-learn's fits one after the other. The port's BetaVAE and
FactorVAE encode three million images; they are timed on a stated fraction of the examples and
multiplied up, everything else in full.

Run: OMP_WAIT_POLICY=passive .venv/bin/python benchmarks/disentanglement.py [--fraction 0.05]

(Passive, so that threads of the port which wait for each other do not count as working.)
"""

from __future__ import annotations

import argparse
import json
import os
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
from isolatent.encoders import ConvEncoder
from isolatent.evaluation import GridWorld

OUT = Path("results/benchmarks/disentanglement.json")
TRAIN, HELD_OUT, BATCH, BINS, CODES = 10_000, 5_000, 64, 20, 10
LIMIT, LEAD = 180.0, 10.0  # seconds on two idle cores; times faster than the port


class Squares:
    """A square at 32 × 32 places in six sizes, three patterns and 40 greys: 737 280 images."""

    names = ("pattern", "size", "grey", "x", "y")
    sizes = (3, 6, 40, 32, 32)
    categorical = (True, False, False, False, False)

    def __len__(self) -> int:
        return int(np.prod(self.sizes))

    def sample_factors(self, count: int, generator: Generator) -> Tensor:
        columns = [torch.randint(n, (count,), generator=generator) for n in self.sizes]
        return torch.stack(columns, dim=1)

    def index_of(self, factors: Tensor) -> Tensor:
        index = torch.zeros(len(factors), dtype=torch.int64)
        for f, size in enumerate(self.sizes):
            index = index * size + factors[:, f]
        return index

    def factors_at(self, index: Tensor) -> Tensor:
        return torch.stack(torch.unravel_index(index, self.sizes), dim=1)

    def observe(self, factors: Tensor) -> Tensor:
        pattern, size, grey, x, y = factors.float().T[:, :, None]
        pixel = torch.arange(64.0)
        across = ((pixel - x - 16).abs() <= 4 + 2 * size).float()
        down = ((pixel - y - 16).abs() <= 4 + 2 * size).float() * (0.3 + 0.7 * grey / 39)
        stripes = 1.0 - 0.5 * ((pixel % (2 + 2 * pattern)) < pattern).float()
        return ((down * stripes)[:, :, None] * across[:, None, :])[:, None]


def make_world() -> GridWorld:
    return Squares()  # or Sprites(), from isolatent.worlds


def make_encoder(world: GridWorld) -> ConvEncoder:
    """Random weights, codes scaled to unit variance so that none counts as dead."""
    torch.manual_seed(0)
    encoder = ConvEncoder(CODES).eval()
    with torch.no_grad():
        x = world.observe(world.sample_factors(500, Generator().manual_seed(1)))
        encoder.network[-1].weight /= encoder(x).std(dim=0, keepdim=True).T
    return encoder


# --- the port: each function reads as its protocol does ---


class Port:
    """The protocols, plainly."""

    def __init__(self, encoder: ConvEncoder, world: GridWorld, fraction: float) -> None:
        self.encoder, self.world, self.fraction = encoder, world, fraction
        self.generator = Generator().manual_seed(0)
        self.rng = np.random.default_rng(0)

    def encode(self, factors: Tensor) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            return self.encoder(self.world.observe(factors)).numpy()

    def draw(self, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        factors = self.world.sample_factors(count, self.generator)
        codes = [self.encode(factors[i : i + BATCH]) for i in range(0, count, BATCH)]
        return factors.numpy(), np.concatenate(codes)

    def beta_vae(self) -> float:
        def examples(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
            features, labels = [], []
            for _ in range(round(count * self.fraction)):
                k = int(self.rng.integers(len(self.world.sizes)))
                first = self.world.sample_factors(BATCH, self.generator)
                second = self.world.sample_factors(BATCH, self.generator)
                second[:, k] = first[:, k]
                difference = np.abs(self.encode(first) - self.encode(second))
                features.append(difference.mean(axis=0))
                labels.append(k)
            return np.array(features), np.array(labels)

        model = LogisticRegression(max_iter=1000).fit(*examples(TRAIN))
        return float(model.score(*examples(HELD_OUT)))

    def factor_vae(self) -> float:
        variance = self.draw(round(TRAIN * self.fraction))[1].var(axis=0, ddof=1)
        live = np.flatnonzero(np.sqrt(variance) >= 0.05)

        def votes(count: int) -> np.ndarray[Any, Any]:
            table = np.zeros((len(live), len(self.world.sizes)))
            for _ in range(round(count * self.fraction)):
                k = int(self.rng.integers(len(self.world.sizes)))
                factors = self.world.sample_factors(BATCH, self.generator)
                factors[:, k] = factors[0, k]
                local = self.encode(factors).var(axis=0, ddof=1)
                table[np.argmin(local[live] / variance[live]), k] += 1
            return table

        winner = votes(TRAIN).argmax(axis=1)
        table = votes(HELD_OUT)
        return float(table[np.arange(len(live)), winner].sum() / table.sum())

    def information(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        factors, codes = self.draw(TRAIN)
        mutual = np.zeros((codes.shape[1], factors.shape[1]))
        for c, code in enumerate(codes.T):
            bins = np.digitize(code, np.histogram(code, BINS)[1][:-1])
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

    def dci(self) -> float:
        (y, c), (y_test, c_test) = self.draw(TRAIN), self.draw(HELD_OUT)
        columns = []
        for f in range(y.shape[1]):
            model = GradientBoostingClassifier(random_state=0).fit(c, y[:, f])
            columns.append(model.feature_importances_)
            model.score(c_test, y_test[:, f])
        importance = np.stack(columns, axis=1)
        share = importance / importance.sum(axis=1, keepdims=True)
        entropy = -(share * np.log(share + 1e-11)).sum(axis=1) / np.log(share.shape[1])
        return float(importance.sum(axis=1) @ (1 - entropy) / importance.sum())

    def explicitness(self) -> float:
        (y, c), (y_test, c_test) = self.draw(TRAIN), self.draw(HELD_OUT)
        scaler = StandardScaler().fit(c)
        scores = []
        for f in range(y.shape[1]):
            model = LogisticRegression(max_iter=1000).fit(scaler.transform(c), y[:, f])
            probability = model.predict_proba(scaler.transform(c_test))
            scores.append(roc_auc_score(y_test[:, f], probability, multi_class="ovr"))
        return float(np.mean(scores))

    def sap(self) -> float:
        (y, c), (y_test, c_test) = self.draw(TRAIN), self.draw(HELD_OUT)
        accuracy = np.zeros((c.shape[1], y.shape[1]))
        for i in range(c.shape[1]):
            for f in range(y.shape[1]):
                model = LinearSVC(C=0.01, class_weight="balanced").fit(c[:, [i]], y[:, f])
                accuracy[i, f] = model.score(c_test[:, [i]], y_test[:, f])
        ordered = np.sort(accuracy, axis=0)
        return float(np.mean(ordered[-1] - ordered[-2]))

    def mcc(self) -> float:
        return iso.mcc(*self.draw(TRAIN), method="spearman")


PORTED = ("mig", "modularity", "mcc", "sap", "explicitness", "factor_vae", "beta_vae", "dci")
EXTRAPOLATED = ("beta_vae", "factor_vae")


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return a result with wall-clock and processor seconds, and how many cores others used."""
    busy, wall, own = _busy(), time.perf_counter(), time.process_time()
    result = work()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    others = max(0.0, (_busy() - busy - own) / wall)
    return result, {"seconds": wall, "processor": own, "others": others}


def _busy() -> float:
    """Processor seconds of the whole machine since it started, idle ones excepted."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    ticks = [int(field) for field in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def ours(encoder: ConvEncoder, world: GridWorld) -> dict[str, Any]:
    rng = np.random.default_rng(0)  # compiles what is compiled
    factors, codes = rng.integers(3, size=(60, 2)), rng.normal(size=(60, 2))
    iso.dci(factors, codes, booster="presorted")
    iso.sap(factors, codes)
    result, cost = timed(lambda: iso.evaluate_disentanglement(encoder, world, booster="presorted"))
    print(result, cost, flush=True)
    return {**cost, "result": result.to_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--fraction", type=float, default=0.05)
    parser.add_argument("--only", choices=["ours", "port", "table"])
    options = parser.parse_args()
    torch.set_num_threads(2)
    stored = json.loads(OUT.read_text()) if OUT.exists() else {}
    world = make_world()
    encoder = make_encoder(world)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    if options.only in (None, "ours"):
        stored["ours"] = ours(encoder, world)
        OUT.write_text(json.dumps(stored, indent=1) + "\n")
    if options.only in (None, "port"):
        stored["fraction"], stored["port"] = options.fraction, {}
        port = Port(encoder, world, options.fraction)
        for name in PORTED:
            value, cost = timed(getattr(port, name))
            stored["port"][name] = {**cost, "value": value}
            print(name, stored["port"][name], flush=True)
            OUT.write_text(json.dumps(stored, indent=1) + "\n")
    if "ours" in stored and stored.get("port"):
        OUT.with_suffix(".md").write_text(table(stored))


def table(stored: dict[str, Any]) -> str:
    """The figures beside each other; what was multiplied up is marked."""
    own, port = stored["ours"], stored["port"]
    run = [name for name in PORTED if name in port]
    up = {name: 1 / stored["fraction"] if name in EXTRAPOLATED else 1.0 for name in run}
    total = {
        unit: sum(port[name][unit] * up[name] for name in run) for unit in ("seconds", "processor")
    }
    lead = {unit: total[unit] / own[unit] for unit in total}
    names = {"dci": "disentanglement"}
    lines = [
        "# All disentanglement metrics of one encoder",
        "",
        f"{len(Squares())} images of 64 × 64, ConvEncoder with {CODES} codes, two threads; written "
        "by `benchmarks/disentanglement.py`.",
        "",
        f"* was timed on {stored['fraction']:.0%} of the examples and multiplied up. Others used "
        f"{own['others']:.1f} cores while ours ran and "
        f"{np.mean([c['others'] for c in port.values()]):.1f} while the port ran; seconds suffer "
        "from that, processor seconds hardly. Ours used the booster "
        f"`{own['result']['booster']}`, the port scikit-learn's.",
        "",
        "| | seconds | processor seconds | value |",
        "|---|---|---|---|",
    ]
    for name in run:
        mark = "*" if name in EXTRAPOLATED else ""
        value = own["result"][names.get(name, name)]["value"]
        lines.append(
            f"| port, {name}{mark} | {port[name]['seconds'] * up[name]:.0f} "
            f"| {port[name]['processor'] * up[name]:.0f} "
            f"| {port[name]['value']:.3f} (ours {value:.3f}) |"
        )
    missing = [name for name in PORTED if name not in run]
    lines += [
        *(f"| port, {name} | not run: the port's sums are without it | | |" for name in missing),
        f"| port, all* | {total['seconds']:.0f} | {total['processor']:.0f} | |",
        f"| ours, all | {own['seconds']:.0f} | {own['processor']:.0f} | |",
        f"| times faster | {lead['seconds']:.1f} | {lead['processor']:.1f} | |",
        "",
        f"The aim is {LEAD:.0f} times faster and {LIMIT:.0f} s on two idle cores; in "
        f"{own['processor']:.0f} processor seconds two cores take at least "
        f"{own['processor'] / 2:.0f} s.",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
