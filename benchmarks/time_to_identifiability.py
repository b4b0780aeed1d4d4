"""Time to recover the factors: our recipe against that of the papers, with the same kernels.

On the worlds of zimmermann2021's Table 2 also the default, to which nothing is declared; rows of
one world share its run. Its axes are found in the end, so its MCC rises with the last score.

Each run (world × recipe × seed) is a separate process with ``--threads`` threads. Scores on newly
drawn factors are computed during training; the time this takes is not counted. Results are written
after each run; a second call runs the missing ones only.

The recipe of the papers has their encoder, batch size, unit scale and constant learning rate, but
our losses: without the fused kernels it would be slower. It is stopped after ``--limit`` seconds.

Run: python benchmarks/time_to_identifiability.py [--rows NAME …] [--all]
     [--recipes ours default papers] [--limit 3600] [--threads 2] [--seeds 0] [--fresh] [--report]
Writes results/benchmarks/time_to_identifiability.{json,md,png}.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

import isolatent as iso
from isolatent.encoders import BoxHead, PaperMLP, SphereHead
from paper_rows import ROWS, T2, N, Row, make_model, make_world

SIX = ("sphere_vmf1", "sphere_vmf10", "box_laplace", "box_normal", "box_cubic", "aniso_linspace")
OUT = Path(__file__).parents[1] / "results/benchmarks/time_to_identifiability.json"
TEST_PAIRS = 4096
LEVELS = (0.95, 0.99)
RECIPES = ("ours", "default", "papers")
# Rows of Table 2, each with the first row of the same world.
DEFAULT_ROWS = {
    row.name: next(other.name for other in ROWS if (other.table, other.world) == (T2, row.world))
    for row in ROWS
    if row.table == T2
}
PAPERS_SCORE_EVERY = 15.0  # seconds between two scores of the papers' recipe
Record = dict[str, Any]


class ScoredRun:
    """A training run whose clock is stopped while scores are computed."""

    def __init__(self, row: Row, seed: int) -> None:
        self.world = make_world(row, seed)
        generator = Generator().manual_seed(seed + 1_000_003)
        self.z, _ = self.world.sample_latents(TEST_PAIRS, generator)
        self.x = self.world.observe(self.z)
        self.metric = row.score
        self.curve: list[dict[str, float]] = []
        self.started = time.perf_counter()

    def score(self, step: int, codes: Tensor) -> float:
        """Score codes of the test points, and add them to the curve."""
        now = time.perf_counter()
        r2, mcc = iso.linear_r2(self.z, codes), iso.mcc(self.z, codes)
        seconds = now - self.started
        self.curve.append({"step": step, "seconds": seconds, "linear_r2": r2, "mcc": mcc})
        self.started += time.perf_counter() - now
        return r2 if self.metric == "linear_r2" else mcc


def run_ours(row: Row, seed: int, declares: bool = True) -> Record:
    """Train with the default recipe until it stops."""
    scored = ScoredRun(row, seed)
    model = make_model(row, seed) if declares else iso.ContrastiveICA(N, random_state=seed)
    steps = [0]

    def quality(encoder: nn.Module) -> float:
        with torch.no_grad():
            return scored.score(steps[0] + 1, encoder(scored.x))

    def count(step: Any) -> None:
        steps[0] = step.number

    model.fit(scored.world, on_step=count, quality=quality)
    scored.score(steps[0], torch.from_numpy(model.transform(scored.x)))
    similarity: Any = model.loss_.similarity
    learned = (similarity.scale if similarity.p is None else similarity.weights).detach()
    record = {"curve": scored.curve, "scale": learned.tolist()}
    if "aniso" in row.name:
        record["weights"] = sorted((2 * learned).tolist())  # in the convention with a factor ½
        record["true_weights"] = sorted(row.world[2].weights)
    return record


def run_papers(row: Row, seed: int, limit: float) -> Record:
    """Train with the recipe of the papers for ``limit`` seconds."""
    anisotropic = "aniso" in row.name
    scored = ScoredRun(row, seed)
    torch.manual_seed(seed)
    heads = {"box": BoxHead(1.0, learn_bound=True), "sphere": SphereHead()}
    head = heads.get(row.model["space"], nn.Identity())
    encoder = nn.Sequential(PaperMLP(N, N), head)
    p = {"laplace": 1.0, "normal": 2.0, "gennorm": row.model["p"]}.get(row.model["conditional"])
    loss = (
        iso.AnInfoNCE(N, weights=math.log(2))
        if anisotropic
        else iso.InfoNCE(iso.Dot(1.0) if p is None else iso.Lp(p))
    )
    groups = [
        {"params": encoder.parameters(), "lr": 1e-4},
        {"params": list(loss.parameters()), "lr": 1e-3},
    ]
    optimiser = torch.optim.Adam([group for group in groups if group["params"]])
    batch = 1000 if anisotropic else 6144
    generator = Generator().manual_seed(seed)
    scored.started = due = time.perf_counter()
    step = 0
    while time.perf_counter() - scored.started < limit:
        x, x_pos = scored.world.sample_pairs(batch, generator)
        optimiser.zero_grad()
        loss(*encoder(torch.cat([x, x_pos])).chunk(2)).backward()
        optimiser.step()
        step += 1
        if time.perf_counter() >= due:
            with torch.no_grad():
                scored.score(step, encoder(scored.x))
            due = time.perf_counter() + PAPERS_SCORE_EVERY
    with torch.no_grad():
        scored.score(step, encoder(scored.x))
    return {"curve": scored.curve, "limit": limit}


def seconds_to(record: Record, score: str, level: float) -> float | None:
    """Return the time at which the score first reached a level, or None."""
    reached = [point["seconds"] for point in record["curve"] if point[score] >= level]
    return min(reached, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", choices=[row.name for row in ROWS], default=[*SIX])
    parser.add_argument("--all", action="store_true", help="run all rows of the papers' tables")
    parser.add_argument("--recipes", nargs="*", choices=RECIPES, default=[*RECIPES])
    parser.add_argument(
        "--limit",
        type=float,
        default=3600.0,
        help="seconds after which the papers' recipe is stopped",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--fresh", action="store_true", help="also repeat stored runs")
    parser.add_argument("--report", action="store_true", help="write the table and the plot only")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _child(json.loads(options.one))
        return
    stored = json.loads(OUT.read_text()) if OUT.exists() else {}
    for key, task in [] if options.report else _tasks(options):
        done = stored.get(key)
        enough = done is not None and done.get("limit", math.inf) >= task["limit"]
        if enough and not options.fresh:
            continue
        print(f"{key} …", flush=True)
        call = [sys.executable, __file__, "--one", json.dumps(task)]
        result = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True)
        stored[key] = json.loads(result.stdout.splitlines()[-1])
        OUT.write_text(json.dumps(stored, indent=1) + "\n")
        last = stored[key]["curve"][-1]
        print(f"  R² {last['linear_r2']:.4f}, MCC {last['mcc']:.4f}, {last['seconds']:.0f} s")
    OUT.with_suffix(".md").write_text(_table(stored))
    _plot(stored)


def _tasks(options: argparse.Namespace) -> Iterator[tuple[str, Record]]:
    names = [row.name for row in ROWS] if options.all else options.rows
    for name in names:
        for recipe in options.recipes:
            if recipe == "default" and DEFAULT_ROWS.get(name) != name:
                continue
            for seed in options.seeds:
                task = {
                    "row": name,
                    "recipe": recipe,
                    "seed": seed,
                    "limit": options.limit if recipe == "papers" else 0.0,
                    "threads": options.threads,
                }
                yield f"{name} {recipe} {seed}", task


def _child(task: Record) -> None:
    import numba

    torch.set_num_threads(task["threads"])
    numba.set_num_threads(task["threads"])
    row = next(row for row in ROWS if row.name == task["row"])
    if task["recipe"] in ("ours", "default"):
        record = run_ours(row, task["seed"], declares=task["recipe"] == "ours")
    else:
        record = run_papers(row, task["seed"], task["limit"])
    record |= {"threads": task["threads"], "torch": torch.__version__, "cpu": platform.machine()}
    print(json.dumps(record))


def _table(stored: Record) -> str:
    lines = [
        "# Time to identifiability",
        "",
        "Written by `python benchmarks/time_to_identifiability.py`. Seconds until the score first",
        "reached a level, with the stated number of threads. — means that the run, whose length is",
        "in the last column, did not reach it. Our recipe stops by itself.",
        "",
        "| world | score | recipe | threads | 0.95 | 0.99 | published | final | steps | total |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        for key, record in stored.items():
            name, recipe, _ = key.split(" ")
            if name != (DEFAULT_ROWS.get(row.name) if recipe == "default" else row.name):
                continue
            levels = [seconds_to(record, row.score, level) for level in (*LEVELS, row.published)]
            shown = ["—" if s is None else f"{s:.0f} s" for s in levels]
            shown[2] += f" ({row.published:.4f})"
            last = record["curve"][-1]
            score = "R²" if row.score == "linear_r2" else "MCC"
            lines.append(
                f"| {row.name} | {score} | {recipe} | {record['threads']} | {' | '.join(shown)} "
                f"| {last[row.score]:.4f} | {last['step']} | {last['seconds']:.0f} s |"
            )
    lines += ["", *_ratios(stored), "", *_weights(stored), ""]
    return "\n".join(lines)


def _ratios(stored: Record) -> Iterator[str]:
    """Yield a table of speed-ups over the papers' recipe; lower bounds if it was stopped before."""
    yield "| world | level | ours | the papers' recipe | ratio |"
    yield "|---|---|---|---|---|"
    for row in ROWS:
        ours, papers = (stored.get(f"{row.name} {recipe} 0") for recipe in ("ours", "papers"))
        if ours is None or papers is None:
            continue
        for level in (*LEVELS, row.published):
            quick, slow = (seconds_to(record, row.score, level) for record in (ours, papers))
            if quick is None:
                continue
            more = "" if slow is not None else "> "
            slow = papers["curve"][-1]["seconds"] if slow is None else slow
            ratio = f"{more}{slow / quick:.0f}×"
            yield f"| {row.name} | {level:.4f} | {quick:.0f} s | {more}{slow:.0f} s | {ratio} |"


def _weights(stored: Record) -> Iterator[str]:
    """Yield a table of the learned and the true weights of the anisotropic world."""
    record = stored.get("aniso_linspace ours 0")
    if record is None:
        return
    yield "| Λ | " + " | ".join(f"{value:.1f}" for value in record["true_weights"]) + " |"
    yield "|---" * (1 + len(record["weights"])) + "|"
    yield "| Λ̂ | " + " | ".join(f"{value:.1f}" for value in record["weights"]) + " |"
    pairs = zip(record["weights"], record["true_weights"], strict=True)
    yield ""
    yield f"Largest relative error: {100 * max(abs(a / b - 1) for a, b in pairs):.0f} %."


def _plot(stored: Record) -> None:
    try:
        importlib.import_module("matplotlib").use("Agg")
        plt = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        print(
            "no plot: matplotlib is not installed (pip install 'isolatent[bench]')", file=sys.stderr
        )
        return
    rows = [row for row in ROWS if row.name in SIX]
    figure, axes = plt.subplots(
        2, 3, figsize=(12, 7), sharex=True, sharey=True, layout="constrained"
    )
    for axis, row in zip(axes.flat, rows, strict=True):
        for recipe, colour in (("ours", "tab:blue"), ("papers", "tab:orange")):
            record = stored.get(f"{row.name} {recipe} 0")
            if record is None:
                continue
            seconds = [max(point["seconds"], 0.1) for point in record["curve"]]
            scores = [point[row.score] for point in record["curve"]]
            axis.plot(seconds, scores, color=colour, label=recipe)
        axis.axhline(row.published, color="grey", linestyle=":", label="published")
        axis.set(title=row.name, xscale="log", ylim=(0.4, 1.005))
        axis.set_ylabel("R²" if row.score == "linear_r2" else "MCC")
    for axis in axes[1]:
        axis.set_xlabel("seconds")
    axes[0, 0].legend()
    figure.savefig(OUT.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
