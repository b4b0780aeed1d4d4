"""Ablations of the default, which declares nothing: the default, and the default with one change.

The worlds and recordings are some of those of default.py, of every kind. Variants:

- default: ``ContrastiveICA(n)``;
- batches of 512 or 2048 pairs instead of 1024; of few pairs an eighth, as in the default;
- no saturated loss: InfoNCE to the end, also where it saturates;
- a scale of the anchors from the start, or never; the default adds it on trial after two warm-ups;
- pairing from the start, which the default adds where it gains;
- axes by independence alone (of codes or innovations), or by dynamics alone, of which the default
  takes what tells more codes apart.

All else is as in the default, its choice among several starts included. Scores are those of
default.py: MCC where factors are identified one by one, block R² of oscillators, R² elsewhere.

Run: python benchmarks/default_ablations.py [--seeds 3] [--jobs 2] [--worlds "box, 40%" ...]
         [--variants "batch 512" ...] [--report]
Writes results/benchmarks/default_ablations.{json,md} after every fit. Fits that are there are not
run again, unless the code has changed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Generator

import default
import isolatent as iso
from fit_store import Fit, FitStore, group_records, make_parser, mean_and_least, starts_with
from isolatent.streams import random_stream
from isolatent.training import ContrastiveTraining

OUT = Path(__file__).parents[1] / "results/benchmarks/default_ablations.json"
UNCHANGED = "default"
BATCH_SIZE, BATCHES_PER_EPOCH = 1024, 8  # of the default
Change = Callable[[ContrastiveTraining, int], None]


class Variant(NamedTuple):
    """A change of the default.

    Attributes:
        batch_size: Largest number of pairs in a batch.
        recipe: Other settings of :class:`isolatent.Recipe`.
        options: Other parameters of the estimator.
        change: Changes a run of n codes before it starts.
    """

    batch_size: int = BATCH_SIZE
    recipe: dict[str, Any] = {}  # noqa: RUF012
    options: dict[str, Any] = {}  # noqa: RUF012
    change: Change | None = None


def _starts_with(name: str) -> Change:
    """Return a change by which a run has a relaxation from its first step."""

    def change(training: ContrastiveTraining, n: int) -> None:
        choice = training.choice
        if choice is not None and name in choice.candidates:
            choice.relaxed = (name,)
            with random_stream(Generator().manual_seed(0)):
                training.relax([name], n)

    return change


def _leave_out_scale(training: ContrastiveTraining, n: int) -> None:
    choice = training.choice
    if choice is not None:
        choice.provisional = ()
        choice.candidates = tuple(name for name in choice.candidates if name != "anchor_scale")


VARIANTS: dict[str, Variant] = {
    UNCHANGED: Variant(),
    "batch 512": Variant(512),
    "batch 2048": Variant(2048),
    "no saturated loss": Variant(recipe={"saturation": 0.0}),
    "anchor scale from the start": Variant(change=_starts_with("anchor_scale")),
    "never an anchor scale": Variant(change=_leave_out_scale),
    "pairing from the start": Variant(change=_starts_with("pairing")),
    "axes by independence alone": Variant(options={"axes": "ica"}),
    "axes by dynamics alone": Variant(options={"axes": "dynamics"}),
}
NAMES = (
    "sphere, 0% unrelated",
    "box, 0% unrelated",
    "box, 40% unrelated",
    "plane, 40% unrelated",
    "box, anchor scale 12",
    "plane, anchor scale 12",
    "box, factor scale 5",
    "plane, damped oscillators, lag 1",
    "plane, relaxing factors, lag 1",
    "box, correlated marginal",
    "box, Student steps",
    "box, 20% unrelated, anchor scale 3",
    "box, 0% unrelated, 10 factors, endless pairs",
    "recording, relaxing, Gaussian, lag 1, 5000 rows",
    "recording, relaxing, Gaussian, lag 1, 20000 rows",
    "recording, equal rates, Laplace, lag 1, 20000 rows",
    "recording, two oscillators, lag 1, 20000 rows",
    "recording, reflected walks, different widths, lag 1, 20000 rows",
    "recording, relaxing, Gaussian, 60 channels at 20 dB, lag 1, 30000 rows",
)
CASES: dict[str, default.Case] = {name: default.CASES[name] for name in NAMES}


class ChangedDefault(iso.ContrastiveICA):
    """The default with changed settings; a recipe does not turn its choice of a start off."""

    change: Change | None = None

    def _choose_start(self, *arguments: Any) -> Any:
        given, self.recipe = self.recipe, None
        try:
            return super()._choose_start(*arguments)
        finally:
            self.recipe = given

    def _set_up(self, *arguments: Any, **options: Any) -> Any:
        run = super()._set_up(*arguments, **options)
        if self.change is not None:
            self.change(run.training, self.n_components)
        return run


def make_model(
    case: default.Case, variant: Variant, seed: int, max_steps: int | None
) -> iso.ContrastiveICA:
    """Return the estimator of a variant."""
    batch_size = variant.batch_size
    if case.size is not None:
        batch_size = min(batch_size, case.size // BATCHES_PER_EPOCH)
    limit = {} if max_steps is None else {"max_steps": max_steps}
    recipe = iso.Recipe(batch_size=batch_size, **variant.recipe, **limit)
    lag: dict[str, Any] = {} if case.lag is None else {"lag": (case.lag, case.lag)}
    model = ChangedDefault(
        case.n, space=None, random_state=seed, recipe=recipe, **lag, **variant.options
    )
    if variant.change is not None:
        model.change = variant.change
    return model


def measure(fit: Fit, max_steps: int | None) -> dict[str, Any]:
    """Run a fit, and return its record."""
    case = CASES[fit.world]
    data = case.data(fit.seed)
    model = make_model(case, VARIANTS[fit.approach], fit.seed, max_steps)
    return default.fit_and_score(model, data.arguments, case, fit.seed, data)


def plan(options: Any) -> list[Fit]:
    """Return the fits, all variants of a seed before the next seed."""
    return [
        Fit(name, variant, seed)
        for seed in range(options.seeds)
        for name in CASES
        for variant in VARIANTS
        if starts_with(name, options.worlds)
        if not options.variants or variant in (UNCHANGED, *options.variants)
    ]


def main() -> None:
    parser = make_parser(__doc__, OUT)
    parser.add_argument("--worlds", nargs="+", default=[], help="beginnings of their names")
    parser.add_argument("--variants", nargs="+", default=[], choices=VARIANTS)
    options = parser.parse_args()
    today = default.program(default.DEFAULT, options.max_steps)
    store = FitStore(options.out, lambda _: today, lambda records: Report(records).text())
    if options.report:
        store.write()
        return
    shown = ("error", "r2", "mcc", "block_r2", "seconds", "steps", "relaxed")
    store.run(plan(options), measure, jobs=options.jobs, max_steps=options.max_steps, shown=shown)


class Report:
    """Tables of the records, and a summary that is computed from them."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.records, self.failures = group_records(results, CASES)

    def text(self) -> str:
        """Return the report in Markdown."""
        lines = [
            "# Ablations of the default",
            "",
            "Written by `python benchmarks/default_ablations.py`, which describes the variants. "
            "Scores are means over seeds; in brackets the seeds' least, where there are several.",
            "",
            "## Variants against the default",
            "",
            "Differences are those of the score that fits what is identified, over worlds and "
            "seeds; times are ratios.",
            "",
            "| variant | fits | mean difference | worst | best | median time |",
            "|---|---|---|---|---|---|",
            *filter(None, map(self._against_default, VARIANTS)),
        ]
        for name in CASES:
            if name in self.records:
                lines += ["", f"## {name}", "", *self._rows(name)]
        if self.failures:
            lines += ["", "## Failures", "", *self.failures]
        return "\n".join([*lines, ""])

    def _against_default(self, variant: str) -> str:
        """Return a row that compares a variant with the default; none for the default."""
        differences, times = [], []
        for name, records in self.records.items():
            score = CASES[name].truth.score
            for seed, record in records.get(variant, {}).items():
                base = records.get(UNCHANGED, {}).get(seed)
                if variant != UNCHANGED and base is not None:
                    differences.append((record[score] - base[score], name))
                    times.append(record["seconds"] / max(base["seconds"], 0.1))
        if not differences:
            return ""
        mean = statistics.mean(value for value, _ in differences)
        ends = [f"{value:+.4f} ({where})" for value, where in (min(differences), max(differences))]
        median = f"{statistics.median(times):.2f}"
        return f"| {variant} | {len(times)} | {mean:+.4f} | {' | '.join(ends)} | {median} |"

    def _rows(self, name: str) -> list[str]:
        case, records = CASES[name], self.records[name]
        rows = [
            "| variant | R² | MCC | block R² | seconds | chosen | identified codes |",
            "|---|---|---|---|---|---|---|",
        ]
        for variant in (variant for variant in VARIANTS if variant in records):
            runs = [*records[variant].values()]
            cells = [variant]
            for score in ("r2", "mcc", "block_r2"):
                shown = mean_and_least([run[score] for run in runs if score in run])
                cells.append(f"**{shown}**" if score == case.truth.score else shown)
            chosen = {", ".join(run["relaxed"]) or "nothing" for run in runs}
            single = [default.claimed_sizes(run["card"], case.n).count(1) for run in runs]
            cells += [
                f"{statistics.mean(run['seconds'] for run in runs):.0f}",
                "; ".join(sorted(chosen)),
                ", ".join(map(str, single)),
            ]
            rows.append(f"| {' | '.join(cells)} |")
        return rows


if __name__ == "__main__":
    main()
