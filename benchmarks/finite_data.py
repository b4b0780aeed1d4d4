"""Scores by the number of pairs or rows, and with many factors, against peers and bounds.

The worlds are those of finite_data_cells.py. Approaches:

- ours: ``ContrastiveICA`` with the declared beliefs; for recordings nothing is declared but the
  number of factors, the lag, and ``counts=True`` for counts;
- linear code: the same with a linear encoder;
- papers' recipe, not for recordings and not for n = 100: their encoder (``encoder="paper"``) and a
  constant learning rate of 1e-4, with early stopping where the held-out loss rises. It differs from
  what they published: batches of 1024 instead of 6144 pairs, at most 10 000 steps instead of
  300 000, AdamW without decay instead of Adam, a learned scale, both directions of InfoNCE, weights
  averaged over 50 steps, and our calibration;
- CEBRA (Schneider et al. 2023), for pairs: its model of one row and its InfoNCE with 512 negatives
  drawn from all positives, 10 000 steps of Adam at 3e-4. On spheres its model has codes on a sphere
  and cosines, elsewhere free codes and squared distances;
- CEBRA-Time, for recordings: as in default.py; with --full also its variant with free outputs;
- slow features, FastICA: linear ones of the observations;
- supervised: the encoder of ours, trained on the factors of all observations.

Of counts the transformation that ``counts=True`` applies is given to the others as well. FastICA
and supervised do not use the lag: they are fitted once, and reported for every lag.

Scores are those of fresh data: MCC in boxes, R² elsewhere. Seconds are those of one processor core.
Endless pairs are fitted in at most 300 s: the largest number of steps is what a short run, which is
not counted, shows to fit in.

Run: python benchmarks/finite_data.py [--seeds 3] [--jobs 2] [--cells sphere "lag 5" ...]
         [--approaches ours CEBRA ...] [--full] [--report]
Writes results/benchmarks/finite_data.{json,md} after every fit and a plot, finite_data.png, at the
end. Fits that are there are not run again, unless the code has changed.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

import isolatent as iso
from default import CEBRA_BATCH, CEBRA_STEPS, cebra_model, has_cebra
from finite_data_cells import CELLS, LAGS, POISSON, Cell, Sample
from fit_store import Fit, FitStore, Record, group_records, make_parser, mean_and_least
from isolatent.encoders import Anscombe
from isolatent.experiments.program import digest_code, program_digest
from isolatent.training.capacity import Capacity, Start

OUT = Path(__file__).parents[1] / "results/benchmarks/finite_data.json"
OURS, LINEAR, PAPERS, SUPERVISED = "ours", "linear code", "papers' recipe", "supervised"
CEBRA, CEBRA_TIME, FREE_CEBRA = "CEBRA", "CEBRA-Time", "CEBRA-Time, free outputs"
SLOW, FAST_ICA = "slow features", "FastICA"
PEERS = (PAPERS, CEBRA, CEBRA_TIME, FREE_CEBRA, SLOW, FAST_ICA)
APPROACHES = (OURS, LINEAR, *PEERS, SUPERVISED)
WITHOUT_LAG = (FAST_ICA, SUPERVISED)
NETWORKS = (OURS, LINEAR, PAPERS, SUPERVISED)  # whose number of steps can be limited
WORLD_FILES = ("finite_data_cells.py", "recordings.py", "noisy_columns.py")

PAPERS_STEPS = 10_000
PAPERS_RECIPE = iso.Recipe(
    max_steps=PAPERS_STEPS,
    batch_size=1024,
    learning_rate=1e-4,
    scale_rate=10.0,
    warmup=0,
    patience=PAPERS_STEPS,
    cooldown=0.0,
    averaging=0.0,
    weight_decay=0.0,
    saturation=0.0,
    tolerance=0.0,
)
CEBRA_RATE, CEBRA_UNITS = 3e-4, 32  # the defaults of CEBRA's estimator

TIME_LIMIT = 300.0  # seconds of a fit to endless pairs
MARGIN = 0.9  # share of it that is used, since steps do not take equally long
PROBE_STEPS, FEW_PROBE_STEPS = 60, 12  # the latter where steps are slow
MANY_FACTORS = 40  # above it steps are slow, and the papers' encoder, of 50 n units, too large


class LinearContrastiveICA(iso.ContrastiveICA):
    """``ContrastiveICA`` with the linear encoder that it also tries with few pairs."""

    def _choose_start(self, *_: Any) -> Start:
        return Start(Capacity(0))


class CebraOfPairs:
    """CEBRA's model and criterion, trained on pairs."""

    def __init__(self, n: int, seed: int, on_sphere: bool, max_steps: int | None) -> None:
        self.n, self.seed, self.on_sphere = n, seed, on_sphere
        self.max_steps = CEBRA_STEPS if max_steps is None else max_steps

    def fit(self, draw: Callable[[int, Generator], tuple[Tensor, Tensor, Tensor]]) -> CebraOfPairs:
        """Train on anchors, positives and negatives that are drawn for each step."""
        models = importlib.import_module("cebra.models")
        criterions = importlib.import_module("cebra.models.criterions")
        generator = Generator().manual_seed(self.seed)
        torch.manual_seed(self.seed)  # weights are drawn from the global generator
        name = "offset1-model" if self.on_sphere else "offset1-model-mse"
        columns = draw(1, generator)[0].shape[1]
        self.model = models.init(name, columns, CEBRA_UNITS, self.n)
        kind = "Cosine" if self.on_sphere else "Euclidean"
        criterion = getattr(criterions, f"Fixed{kind}InfoNCE")(temperature=1.0)
        optimiser = torch.optim.Adam(self.model.parameters(), CEBRA_RATE)
        started = time.process_time()
        for step in range(1, self.max_steps + 1):
            codes = [self.model(x[:, :, None]) for x in draw(CEBRA_BATCH, generator)]
            optimiser.zero_grad()
            criterion(*codes)[0].backward()
            optimiser.step()
            self.steps = step
            if time.process_time() - started > TIME_LIMIT:
                break
        return self

    def transform(self, x: Tensor) -> Tensor:
        """Return the codes of observations."""
        with torch.no_grad():
            codes: Tensor = self.model.eval()(x[:, :, None])
        return codes


def draw_of(data: Sample) -> Callable[[int, Generator], tuple[Tensor, Tensor, Tensor]]:
    """Return a function that draws anchors, positives and negatives."""

    def draw(count: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        if data.world is not None:
            x, x_pos = data.world.sample_pairs(count, generator)
            return x, x_pos, data.world.sample_pairs(count, generator)[1]
        assert data.x is not None
        assert data.x_pos is not None
        rows, others = torch.randint(len(data.x), (2, count), generator=generator)
        return data.x[rows], data.x_pos[rows], data.x_pos[others]

    return draw


def make_model(cell: Cell, approach: str, seed: int, max_steps: int | None) -> Any:
    """Return the estimator of an approach."""
    lag: dict[str, Any] = {} if cell.lag is None else {"lag": (cell.lag, cell.lag)}
    recipe: dict[str, Any] = (
        {} if max_steps is None else {"recipe": iso.Recipe(max_steps=max_steps)}
    )
    if approach in (OURS, LINEAR):
        kind = iso.ContrastiveICA if approach == OURS else LinearContrastiveICA
        options = {**cell.declared, **lag, **recipe}
        return kind(cell.n, counts=cell.counts, random_state=seed, **options)
    if approach == PAPERS:
        limited = replace(PAPERS_RECIPE, max_steps=max_steps or PAPERS_STEPS)
        if cell.size is not None:  # no batch holds a pair twice; a tenth is held out
            batch = min(limited.batch_size, int(0.9 * cell.size))
            limited = replace(limited, batch_size=batch)
        return iso.ContrastiveICA(
            cell.n, encoder="paper", recipe=limited, random_state=seed, **cell.declared
        )
    if approach == SUPERVISED:
        steps: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
        space = cell.declared.get("space", "euclidean")
        return iso.SupervisedEncoder(cell.n, space=space, random_state=seed, **steps)
    if approach == SLOW:
        return iso.baselines.SlowFeatures(cell.n, random_state=seed, **lag)
    if approach == FAST_ICA:
        return iso.baselines.LinearICA(cell.n, random_state=seed)
    if approach == CEBRA:
        on_sphere = cell.declared.get("space") == "sphere"
        return CebraOfPairs(cell.n, seed, on_sphere, max_steps)
    return cebra_model(cell.n, cell.lag, seed, approach == FREE_CEBRA, max_steps)


def arguments_of(approach: str, data: Sample) -> tuple[Any, ...]:
    """Return the arguments of an approach's ``fit``."""
    if approach == CEBRA:
        return (draw_of(data),)
    if data.world is not None:
        return (data.world,)
    assert data.x is not None
    if approach == SUPERVISED:
        if data.x_pos is None:
            return data.x, data.z
        assert data.z is not None
        assert data.z_pos is not None
        return torch.cat([data.x, data.x_pos]), torch.cat([data.z, data.z_pos])
    if data.x_pos is None:
        return (data.x.numpy(),)
    return data.x, data.x_pos


def affordable_steps(cell: Cell, approach: str, data: Sample) -> int:
    """Return how many steps fit into the limit of time, at most those of the approach."""
    times: list[float] = []
    slow = approach == PAPERS or cell.n > MANY_FACTORS
    steps = FEW_PROBE_STEPS if slow else PROBE_STEPS
    first = steps // 6  # the ones before compile
    probe = make_model(cell, approach, 0, steps)
    started = time.process_time()
    probe.fit(*arguments_of(approach, data), on_step=lambda _: times.append(time.process_time()))
    seconds = (times[-1] - times[first]) / (len(times) - 1 - first)
    total = time.process_time() - started
    left = MARGIN * TIME_LIMIT - (total - len(times) * seconds)  # set-up and calibration are due
    usual = make_model(cell, approach, 0, None)
    recipe = getattr(usual, "recipe", None) or iso.Recipe()
    most = usual.max_steps if approach == SUPERVISED else recipe.max_steps
    return max(1, min(most, int(left / seconds)))


def measure(fit: Fit, max_steps: int | None) -> Record:
    """Run a fit, and return its record."""
    cell = CELLS[fit.world]
    data = cell.sample(fit.seed)
    if cell.counts and fit.approach not in (OURS, LINEAR):
        assert data.x is not None
        straight = Anscombe()
        data = data._replace(x=straight(data.x), test_x=straight(data.test_x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limit = max_steps
        if limit is None and cell.size is None and fit.approach in NETWORKS:
            limit = affordable_steps(cell, fit.approach, data)
        model = make_model(cell, fit.approach, fit.seed, limit)
        started = time.process_time()
        model.fit(*arguments_of(fit.approach, data))
        seconds = time.process_time() - started
        x = data.test_x if fit.approach == CEBRA else data.test_x.numpy()
        codes = torch.as_tensor(model.transform(x))
    steps = len(model.history_) if hasattr(model, "history_") else getattr(model, "steps", None)
    capacity = getattr(model, "capacity_", None)
    return {
        "r2": iso.linear_r2(data.test_z, codes),
        "mcc": iso.mcc(data.test_z, codes),
        "seconds": round(seconds, 1),
        **({} if steps is None else {"steps": steps}),
        **({} if capacity is None else {"capacity": list(capacity)}),
    }


def program(approach: str, max_steps: int | None = None) -> str:
    """Return the identity of the program and of the worlds that records depend on.

    Those of CEBRA depend on the worlds alone, and are not run again when isolatent changes.
    """
    worlds = digest_code(*(Path(__file__).with_name(name) for name in WORLD_FILES))
    code = CEBRA if approach in (CEBRA, CEBRA_TIME, FREE_CEBRA) else program_digest()
    return f"{code}-{worlds}" + ("" if max_steps is None else f"-{max_steps}")


def approaches_of(cell: Cell, full: bool) -> list[list[str]]:
    """Return the approaches to a cell, by the order in which to run them."""
    cebra = [CEBRA] if cell.lag is None else [CEBRA_TIME, *([FREE_CEBRA] if full else [])]
    networks = [PAPERS] if cell.lag is None and cell.n <= MANY_FACTORS else []
    if has_cebra():
        networks = [*cebra, *networks]
    return [[OURS, LINEAR, SLOW, FAST_ICA], [SUPERVISED], networks]


def fitted_cell(cell: Cell, approach: str) -> str:
    """Return the name of the cell whose fit of an approach is reported for a cell."""
    shared = cell.lag is not None and approach in WITHOUT_LAG
    return replace(cell, group=_without_lag(cell.group), lag=LAGS[0]).name if shared else cell.name


def _without_lag(group: str) -> str:
    return f"{group.rpartition(', lag ')[0]}, lag {LAGS[0]}"


def plan(options: argparse.Namespace) -> list[Fit]:
    """Return the fits, the most telling ones first."""
    names = [
        name for name in CELLS if not options.cells or any(part in name for part in options.cells)
    ]
    fits = [
        Fit(fitted_cell(CELLS[name], approach), approach, seed)
        for seed in range(options.seeds)
        for stage in range(3)
        for name in names
        for approach in approaches_of(CELLS[name], options.full)[stage]
        if not options.approaches or approach in options.approaches
    ]
    return list(dict.fromkeys(fits))


def main() -> None:
    parser = make_parser(__doc__, OUT)
    parser.add_argument("--cells", nargs="+", default=[], help="parts of their names")
    parser.add_argument("--approaches", nargs="+", default=[], choices=APPROACHES)
    parser.add_argument("--full", action="store_true", help="also CEBRA-Time with free outputs")
    options = parser.parse_args()
    programs = {approach: program(approach, options.max_steps) for approach in APPROACHES}
    store = FitStore(options.out, programs.get, lambda records: Report(records).text())
    if not options.report:
        if not has_cebra():
            print("CEBRA is left out: the package cebra is not installed", flush=True)
        shown = ("error", "r2", "mcc", "seconds", "steps", "capacity")
        store.run(
            plan(options), measure, jobs=options.jobs, max_steps=options.max_steps, shown=shown
        )
    store.write()
    plot(Report(store.current), options.out.with_suffix(".png"))


class Report:
    """Tables of the records, and a summary that is computed from them."""

    def __init__(self, results: dict[str, Record]) -> None:
        self.records, self.failures = group_records(results, CELLS)
        self.cells: dict[str, list[Cell]] = {}  # with records, by group
        for cell in CELLS.values():
            if any(self.runs(cell, approach) for approach in APPROACHES):
                self.cells.setdefault(cell.group, []).append(cell)

    def runs(self, cell: Cell, approach: str) -> dict[int, Record]:
        """Return the records of an approach by seed."""
        return self.records.get(fitted_cell(cell, approach), {}).get(approach, {})

    def scores(self, cell: Cell, approach: str) -> dict[int, float]:
        """Return the scores of an approach by seed."""
        return {seed: run[cell.score] for seed, run in self.runs(cell, approach).items()}

    def text(self) -> str:
        """Return the report in Markdown."""
        lines = [
            "# Scores by the number of pairs or rows",
            "",
            "Written by `python benchmarks/finite_data.py`, which describes the approaches and "
            "scores. Scores are means over seeds; in brackets the seeds' least, where there are "
            "several. Behind them the mean of the seconds of one processor core.",
            "",
            "![Scores by the number of pairs](finite_data.png)",
            "",
            "## Summary",
            "",
            *self._summary(),
        ]
        for group, cells in self.cells.items():
            score = "MCC" if cells[0].score == "mcc" else "R²"
            sizes = [cell.size_text for cell in cells]
            lines += ["", f"## {group}", "", f"| {score} | {' | '.join(sizes)} |"]
            lines.append("|---" * (1 + len(cells)) + "|")
            for approach in APPROACHES:
                shown = [self._shown(cell, approach) for cell in cells]
                if any(shown):
                    lines.append(f"| {approach} | {' | '.join(shown)} |")
        if self.failures:
            lines += ["", "## Failures", "", *self.failures]
        return "\n".join([*lines, ""])

    def _shown(self, cell: Cell, approach: str) -> str:
        runs = [*self.runs(cell, approach).values()]
        if not runs:
            return ""
        seconds = statistics.mean(run["seconds"] for run in runs)
        return f"{mean_and_least([run[cell.score] for run in runs])}, {seconds:.1f} s"

    def _summary(self) -> list[str]:
        fits = sum(len(runs) for world in self.records.values() for runs in world.values())
        count = sum(map(len, self.cells.values()))
        lines = [f"- {fits} fits in {count} of {len(CELLS)} cells."]
        leads = [*self._leads(PEERS)]
        behind = sorted(lead for lead in leads if lead[0] <= 0)
        if leads:
            ahead = len(leads) - len(behind)
            lines.append(f"- ours is ahead of every peer in {ahead} of {len(leads)} cells.")
            lines += [f"  - behind by {-lead:.4f}: {where}" for lead, where in behind]
        linear = [*self._leads((LINEAR,))]
        below = sorted(lead for lead in linear if lead[0] < 0)
        if linear:
            lines.append(f"- ours is below the linear code in {len(below)} of {len(linear)} cells.")
            lines += [f"  - by {-lead:.4f}: {where}" for lead, where in below]
        return [*lines, *self._targets()]

    def _leads(self, others: tuple[str, ...]) -> Iterator[tuple[float, str]]:
        """Yield how far ours is above the best of others in a cell, by means over common seeds."""
        for cells in self.cells.values():
            for cell in cells:
                leads = []
                for other in others:
                    lead = self._lead(cell, other)
                    if lead is not None:
                        leads.append((lead, f"{cell.name} ({other})"))
                if leads:
                    yield min(leads)

    def _lead(self, cell: Cell, other: str) -> float | None:
        ours, theirs = self.scores(cell, OURS), self.scores(cell, other)
        common = sorted({*ours} & {*theirs})
        return statistics.mean(ours[s] - theirs[s] for s in common) if common else None

    def _targets(self) -> list[str]:
        """Return a table that compares the means over seeds with the targets."""
        lines = ["", "| target for ours | met | below it |", "|---|---|---|"]
        known = [cell for cells in self.cells.values() for cell in cells]

        def add(label: str, values: list[tuple[float, Cell]], least: float) -> None:
            below = [f"{value:.4f}: {cell.name}" for value, cell in values if not value >= least]
            met = f"{len(values) - len(below)} of {len(values)}"
            lines.append(f"| {label} | {met} | {'; '.join(below)} |")

        def means(wanted: Callable[[Cell], bool]) -> list[tuple[float, Cell]]:
            return [
                (statistics.mean(self.scores(cell, OURS).values()), cell)
                for cell in known
                if wanted(cell) and self.scores(cell, OURS)
            ]

        for start, score, size, least in (
            ("sphere, n = 10", "R²", 1_000, 0.74),
            ("sphere, n = 10", "R²", 4_000, 0.96),
            ("box, n = 5", "MCC", 1_000, 0.985),
        ):
            wanted = means(lambda c, s=start, z=size: c.group.startswith(s) and c.size == z)  # type: ignore[misc]
            add(f"{start}, {size} pairs: {score} ≥ {least:g}", wanted, least)
        for lag, least in zip(LAGS, (0.98, 0.98, 0.97), strict=True):
            wanted = means(lambda c, k=lag: c.lag == k and c.noise == "20 dB")  # type: ignore[misc]
            add(f"recordings at 20 dB, lag {lag}: R² ≥ {least:g}", wanted, least)
        leads = [(self._lead(cell, SUPERVISED), cell) for cell in known if cell.counts]
        found = [(lead, cell) for lead, cell in leads if lead is not None]
        add(f"{POISSON}: R² - supervised ≥ -0.02", found, -0.02)
        many = [cell for cell in known if cell.size is None and cell.n == 40]
        add("sphere, n = 40, endless pairs: R² ≥ 0.95", means(lambda c: c in many), 0.95)
        slowest = [
            (-max(run["seconds"] for run in self.runs(cell, OURS).values()), cell)
            for cell in many
            if self.runs(cell, OURS)
        ]
        add(f"the same: at most {TIME_LIMIT:g} s (with a minus)", slowest, -TIME_LIMIT)
        return lines


def plot(report: Report, path: Path) -> None:
    """Plot scores against the number of pairs: a panel a world, a line an approach."""
    try:
        importlib.import_module("matplotlib").use("Agg")
        plt = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        print(
            "no plot: matplotlib is not installed (pip install 'isolatent[bench]')", file=sys.stderr
        )
        return
    groups = {
        group: finite
        for group, cells in report.cells.items()
        if (finite := [cell for cell in cells if cell.size is not None])
    }
    if not groups:
        return
    columns = min(3, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.5 * columns, 3 * rows + 1), squeeze=False, layout="constrained"
    )
    lines: dict[str, Any] = {}
    for axis, (group, cells) in zip(axes.flat, groups.items(), strict=False):
        for number, approach in enumerate(APPROACHES):
            scores = {cell.size: report.scores(cell, approach) for cell in cells}
            points = [(size, statistics.mean(s.values())) for size, s in scores.items() if s]
            if points:
                style = "--" if approach == SUPERVISED else "-"
                lines[approach] = axis.plot(
                    *zip(*points, strict=True), style, marker=".", color=f"C{number}"
                )[0]
        axis.set_title(group, fontsize=9)
        axis.set(xscale="log", ylabel="MCC" if cells[0].score == "mcc" else "R²")
        axis.set_xlabel("pairs" if cells[0].lag is None else "rows")
    for axis in axes.flat[len(groups) :]:
        axis.set_axis_off()
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main()
