"""The default, which declares the number of factors alone, against declared beliefs and peers.

The worlds are those of relaxation_worlds.py, and the recordings of recordings.py. Approaches:

- default: ``ContrastiveICA(n)``, for a recording with its lag;
- declared: ``ContrastiveICA`` with the beliefs that are declared for the world;
- slow features: linear slow feature analysis of the observations;
- FastICA: linear independent components of the observations;
- CEBRA-Time (Schneider et al. 2023), for recordings: one row of context, n outputs on a sphere and
  10 000 steps; with --full also its variant with free outputs and Euclidean distances. It needs the
  package cebra;
- supervised: the same encoder as the default, trained on the factors of all observations.

Factors are identified one by one if they are independent and at most one is Gaussian, or if their
time scales differ; then the score is MCC. Planes of oscillators are identified as blocks, and the
score is block R². Elsewhere it is R²: on spheres and where factors are correlated, which makes them
dependent, and where they are Gaussian with equal time scales. Scores are those of fresh data,
seconds those of one processor core.

Time scales and frequencies are those of ``dynamics_``. Beside their errors are those of a
regression on the true factors of the training rows, which no method is expected to beat.

Run: python benchmarks/default.py [--seeds 3] [--jobs 2] [--worlds "box, 40%" recording ...]
         [--approaches default declared ...] [--full] [--report]
Writes results/benchmarks/default.{json,md} after every fit. Fits that are there are not run again,
unless the code has changed.
"""

from __future__ import annotations

import argparse
import cmath
import importlib
import importlib.util
import math
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor

import isolatent as iso
from fit_store import Fit, FitStore, group_records, make_parser, mean_and_least, starts_with
from isolatent.evaluation import block_r2
from isolatent.experiments.program import digest_code, program_digest
from recordings import OSCILLATING, RECORDINGS, TIME_SCALES, Pole, factors_of_poles
from relaxation_worlds import WORLDS, BrokenWorld, mixing_of
from relaxations import TEST_FACTORS, TEST_SEED, Data, make_data

OUT = Path(__file__).parents[1] / "results/benchmarks/default.json"
TEST_ROWS = 20_000  # of a recording, whose rows resemble their neighbours
DEFAULT, DECLARED, SUPERVISED = "default", "declared", "supervised"
SLOW, FAST_ICA = "slow features", "FastICA"
CEBRA, FREE_CEBRA = "CEBRA-Time", "CEBRA-Time, free outputs"
APPROACHES = (DEFAULT, DECLARED, SLOW, FAST_ICA, SUPERVISED, CEBRA, FREE_CEBRA)
PEERS = (DECLARED, SLOW, FAST_ICA, CEBRA, FREE_CEBRA)  # which the default is to match
CEBRA_STEPS, CEBRA_BATCH = 10_000, 512
MIN_SCORE, MAX_DEFICIT, MAX_ERROR = 0.98, 0.002, 0.05
CARD_FIELDS = (
    "equivalence",
    "metric",
    "blocks",
    "reference",
    "gap",
    "consequence",
    "objective",
    "calibration",
    "warnings",
    "learned",
)


class Truth(NamedTuple):
    """What is true of a world, and can be learned without beliefs.

    Attributes:
        axes: Whether factors are identified one by one.
        reason: Why they are, or are not.
        blocks: Factors that are identified together, where there are such blocks.
        poles: Poles per row, where the process has some: see recordings.py.
        innovations: Whether innovations tell the factors of a block apart: see recordings.py.
    """

    axes: bool
    reason: str
    blocks: tuple[tuple[int, ...], ...] | None = None
    poles: tuple[Pole, ...] = ()
    innovations: bool = False

    @property
    def score(self) -> str:
        """The score that fits what is identified: its key in a record."""
        return "mcc" if self.axes else "r2" if self.blocks is None else "block_r2"


class Case(NamedTuple):
    """A world or a recording, with what the approaches need of it."""

    name: str
    group: str
    n: int
    size: int | None  # pairs, or rows of a recording; None for endless pairs
    lag: int | None
    declared: dict[str, Any]
    truth: Truth

    def data(self, seed: int) -> Data:
        """Return what an estimator is fitted to."""
        if self.name in WORLDS:
            return make_data(WORLDS[self.name], seed)
        recording = RECORDINGS[self.name]
        x, z = recording.sample(recording.rows, seed, recording.mixing(seed))
        return Data((x,), x, z, None)

    def test(self, seed: int) -> tuple[Tensor, Tensor]:
        """Return fresh observations and their factors."""
        if self.name in WORLDS:
            sample = WORLDS[self.name].sample
            z = sample(TEST_FACTORS, Generator().manual_seed(TEST_SEED + seed))[0]
            return mixing_of(self.n, seed)(z), z
        recording = RECORDINGS[self.name]
        return recording.sample(TEST_ROWS, TEST_SEED + seed, recording.mixing(seed))


def truth_of(world: BrokenWorld) -> Truth:
    """Return what is true of a world of relaxation_worlds.py."""
    name = world.name
    if world.angles:
        return Truth(False, OSCILLATING, factors_of_poles(world.poles), world.poles)
    if world.poles:
        return Truth(True, TIME_SCALES, poles=world.poles)
    if name.startswith("sphere"):
        return Truth(False, "on a sphere, so dependent")
    if "correlated" in name:
        return Truth(False, "correlated, so dependent")
    if name.startswith("box"):
        return Truth(True, "independent, not Gaussian")
    return Truth(False, "Gaussian, all alike")


CASES: dict[str, Case] = {
    world.name: Case(
        world.name,
        world.group,
        world.n,
        world.pairs,
        world.lag,
        world.declared,
        truth_of(world),
    )
    for world in WORLDS.values()
} | {
    r.name: Case(
        r.name,
        r.group,
        r.n,
        r.rows,
        r.lag,
        r.declared,
        Truth(r.axes, r.reason, r.blocks, r.poles, r.innovations),
    )
    for r in RECORDINGS.values()
}


def default_model(n: int, lag: int | None, seed: int, **options: Any) -> iso.ContrastiveICA:
    """Return the model that declares nothing but the number of factors."""
    recording: dict[str, Any] = {} if lag is None else {"lag": (lag, lag)}
    return iso.ContrastiveICA(n, space=None, random_state=seed, **recording, **options)


def make_model(case: Case, approach: str, seed: int, max_steps: int | None) -> Any:
    """Return the estimator of an approach."""
    lag: dict[str, Any] = {} if case.lag is None else {"lag": (case.lag, case.lag)}
    recipe: dict[str, Any] = (
        {} if max_steps is None else {"recipe": iso.Recipe(max_steps=max_steps)}
    )
    if approach == DEFAULT:
        return default_model(case.n, case.lag, seed, **recipe)
    if approach == DECLARED:
        return iso.ContrastiveICA(case.n, random_state=seed, **case.declared, **lag, **recipe)
    if approach == SLOW:
        return iso.baselines.SlowFeatures(case.n, random_state=seed, **lag)
    if approach == FAST_ICA:
        return iso.baselines.LinearICA(case.n, random_state=seed)
    if approach == SUPERVISED:
        steps: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
        space = case.declared["space"]
        return iso.SupervisedEncoder(case.n, space=space, random_state=seed, **steps)
    return cebra_model(case.n, case.lag, seed, approach == FREE_CEBRA, max_steps)


def cebra_model(n: int, lag: int | None, seed: int, free: bool, max_steps: int | None) -> Any:
    """Return CEBRA-Time, with codes on a sphere or free ones."""
    torch.manual_seed(seed)  # CEBRA draws from the global generators
    np.random.seed(seed)  # noqa: NPY002
    return importlib.import_module("cebra").CEBRA(
        model_architecture="offset1-model-mse" if free else "offset1-model",
        distance="euclidean" if free else "cosine",
        conditional="time",
        time_offsets=lag,
        output_dimension=n,
        max_iterations=CEBRA_STEPS if max_steps is None else max_steps,
        batch_size=CEBRA_BATCH,
        device="cpu",
    )


def measure(fit: Fit, max_steps: int | None) -> dict[str, Any]:
    """Run a fit, and return its record."""
    case = CASES[fit.world]
    data = case.data(fit.seed)
    model = make_model(case, fit.approach, fit.seed, max_steps)
    arguments = data.arguments
    if fit.approach == SUPERVISED and data.source is None:
        arguments = (data.x, data.z)
    elif fit.approach in (CEBRA, FREE_CEBRA):
        arguments = (data.arguments[0].numpy(),)
    return fit_and_score(model, arguments, case, fit.seed, data)


def fit_and_score(
    model: Any, arguments: tuple[Any, ...], case: Case, seed: int, data: Data
) -> dict[str, Any]:
    """Fit a model, and return its scores on fresh data, its time and what it claims."""
    x, z = case.test(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.process_time()
        model.fit(*arguments)
        seconds = time.process_time() - started
        codes = torch.as_tensor(model.transform(x.numpy()))
    blocks = case.truth.blocks
    return {
        "r2": iso.linear_r2(z, codes),
        "mcc": iso.mcc(z, codes),
        **({} if blocks is None else {"block_r2": block_r2(z, codes, blocks)}),
        "seconds": round(seconds, 1),
        **({"steps": len(model.history_)} if hasattr(model, "history_") else {}),
        **(_found(model, case, data) if hasattr(model, "guarantee_") else {}),
    }


def _found(model: Any, case: Case, data: Data) -> dict[str, Any]:
    """Return what a model claims and learned, and how far it is from the truth."""
    card = model.guarantee_.to_dict()
    found: dict[str, Any] = {
        "card": {name: card[name] for name in CARD_FIELDS if name in card},
        "relaxed": list(getattr(model, "relaxed_", ())),
        "gains": {name: list(gain) for name, gain in getattr(model, "gains_", {}).items()},
    }
    poles, lag = case.truth.poles, case.lag or 1
    dynamics = read_dynamics(getattr(model, "dynamics_", None))
    if dynamics is not None:
        found["dynamics"] = dynamics
        if poles:
            found["errors"] = compare_dynamics(dynamics, poles, lag)
    if poles and data.z is not None and case.lag is not None:
        regressed = _regress(data.z.double().numpy(), poles, lag)
        known = {"moduli": [*map(abs, regressed)], "angles": [*map(cmath.phase, regressed)]}
        found["attainable"] = compare_dynamics(known, poles, lag)
    return found


def read_dynamics(dynamics: Any) -> dict[str, Any] | None:
    """Return the moduli and angles per lag, with their intervals, as plain data."""
    moduli, angles = (getattr(dynamics, name, None) for name in ("moduli", "angles"))
    if moduli is None or angles is None:
        return None
    read: dict[str, Any] = {"moduli": _floats(moduli), "angles": _floats(angles)}
    for name in ("moduli_intervals", "angles_intervals"):
        intervals = getattr(dynamics, name, None)
        if intervals is not None:
            read[name] = [None if pair is None else _floats(pair) for pair in intervals]
    for name in ("time_scales", "periods"):
        values = getattr(dynamics, name, None)
        if values is not None:  # infinite ones are no JSON
            known = [None if value is None else float(value) for value in values]
            read[name] = [v if v is not None and math.isfinite(v) else None for v in known]
    return read


def _floats(values: Any) -> list[float]:
    return [float(value) for value in values]


def _regress(z: Any, poles: Sequence[Pole], lag: int) -> list[complex]:
    """Return the poles per lag, by least squares on the true factors of each."""
    found = []
    for block in factors_of_poles(tuple(poles)):
        columns = z[:, block] - z[:, block].mean(0)
        signal = columns[:, 0] if len(block) == 1 else columns[:, 0] + 1j * columns[:, 1]
        before, after = signal[:-lag], signal[lag:]
        found.append(complex(np.vdot(before, after) / np.vdot(before, before)))
    return found


def compare_dynamics(
    dynamics: Mapping[str, Any], poles: Sequence[Pole], lag: int
) -> list[dict[str, Any]]:
    """Return the errors of time scales and frequencies, one dictionary for each true pole.

    Learned poles may have their complex conjugates beside them; each true pole is compared with
    the nearest one that is left. A dictionary is empty if there are fewer learned poles than true
    ones.
    """
    learned = [
        cmath.rect(modulus, abs(angle))
        for modulus, angle in zip(dynamics["moduli"], dynamics["angles"], strict=True)
    ]
    true = [complex(pole) ** lag for pole in poles]
    true = [cmath.rect(abs(pole), abs(cmath.phase(pole))) for pole in true]
    count = sum(map(len, factors_of_poles(tuple(poles))))
    both = [p for p in true for _ in range(2 if p.imag else 1)]
    conjugates = len(learned) == count > len(true)
    distances = np.abs(np.subtract.outer(both if conjugates else true, learned))
    rows, columns = linear_sum_assignment(distances)
    nearest = dict(zip(rows.tolist(), columns.tolist(), strict=True))
    errors, row = [], 0
    for pole in true:
        at = nearest.get(row)
        errors.append({} if at is None else _pole_errors(dynamics, at, pole))
        row += 2 if conjugates and pole.imag else 1
    return errors


def _pole_errors(dynamics: Mapping[str, Any], at: int, pole: complex) -> dict[str, Any]:
    """Return relative errors, and whether intervals hold the truth, of one learned pole."""
    modulus, angle = dynamics["moduli"][at], abs(dynamics["angles"][at])
    errors: dict[str, Any] = {}
    if 0 < modulus < 1:
        errors["time_scale"] = math.log(abs(pole)) / math.log(modulus) - 1
    for name, true in (("modulus", abs(pole)), ("angle", cmath.phase(pole))):
        interval = (dynamics.get(f"{name}_intervals") or {at: None})[at]
        if interval is not None and true:
            if name == "angle" and dynamics["angles"][at] < 0:  # that of the conjugate
                interval = sorted(-bound for bound in interval)
            errors[f"{name}_inside"] = interval[0] <= true <= interval[1]
    if pole.imag:
        errors["frequency"] = angle / cmath.phase(pole) - 1
    return errors


def claimed_sizes(card: Mapping[str, Any], n: int) -> list[int]:
    """Return the sizes of the blocks of codes that a card claims to be identified.

    All are 1 if it claims axes; there is one block of n codes if it claims neither axes nor blocks.
    """
    equivalence = card["equivalence"] or ""
    if equivalence and card.get("blocks"):
        return [len(block) for block in card["blocks"]]
    if "block" in equivalence or card["metric"].startswith("block"):
        return [n]  # it does not say which
    axes = "permutation" in equivalence or (equivalence and card["metric"] == "mcc")
    return [1] * n if axes else [n]


def claims_too_much(card: Mapping[str, Any], case: Case) -> bool:
    """Return whether a card claims axes, or blocks, that are not identified."""
    if case.truth.axes or case.truth.innovations:
        return False
    blocks = case.truth.blocks
    true = [case.n] if blocks is None else [len(block) for block in blocks]
    return not _can_be_joined(sorted(true, reverse=True), claimed_sizes(card, case.n))


def _can_be_joined(sizes: list[int], into: list[int]) -> bool:
    """Return whether blocks of some sizes can be joined to blocks of other sizes."""
    if not sizes:
        return not any(into)
    return any(
        _can_be_joined(sizes[1:], [*into[:k], room - sizes[0], *into[k + 1 :]])
        for k, room in enumerate(into)
        if room >= sizes[0]
    )


def program(approach: str, max_steps: int | None = None) -> str:
    """Return the identity of the program and of the worlds that records depend on.

    Those of CEBRA depend on the worlds alone, and are not run again when isolatent changes.
    """
    names = ("relaxation_worlds.py", "recordings.py")
    worlds = digest_code(*(Path(__file__).with_name(name) for name in names))
    code = CEBRA if approach in (CEBRA, FREE_CEBRA) else program_digest()
    return f"{code}-{worlds}" + ("" if max_steps is None else f"-{max_steps}")


def has_cebra() -> bool:
    """Return whether the package cebra is installed."""
    return importlib.util.find_spec("cebra") is not None


def approaches_of(case: Case, full: bool) -> list[list[str]]:
    """Return the approaches to a case, by the order in which to run them."""
    slow = [] if case.lag is None or not has_cebra() else [CEBRA, *([FREE_CEBRA] if full else [])]
    return [[DEFAULT, DECLARED, SLOW, FAST_ICA], [SUPERVISED], slow]


def plan(options: argparse.Namespace) -> list[Fit]:
    """Return the fits, the most telling ones first."""
    names = [name for name in CASES if starts_with(name, options.worlds)]
    return [
        Fit(name, approach, seed)
        for seed in range(options.seeds)
        for stage in range(3)
        for name in names
        for approach in approaches_of(CASES[name], options.full)[stage]
        if not options.approaches or approach in options.approaches
    ]


def main() -> None:
    parser = make_parser(__doc__, OUT)
    parser.add_argument("--worlds", nargs="+", default=[], help="beginnings of their names")
    parser.add_argument("--approaches", nargs="+", default=[], choices=APPROACHES)
    parser.add_argument("--full", action="store_true", help="also CEBRA with free outputs")
    options = parser.parse_args()
    programs = {approach: program(approach, options.max_steps) for approach in APPROACHES}
    store = FitStore(options.out, programs.get, lambda records: Report(records).text())
    if options.report:
        store.write()
        return
    if not has_cebra():
        print("CEBRA-Time is left out: the package cebra is not installed", flush=True)
    shown = ("error", "r2", "mcc", "block_r2", "seconds", "steps", "relaxed", "errors")
    store.run(plan(options), measure, jobs=options.jobs, max_steps=options.max_steps, shown=shown)


class Report:
    """Tables of the records, and a summary that is computed from them."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.records, self.failures = group_records(results, CASES)

    def text(self) -> str:
        """Return the report in Markdown."""
        lines = [
            "# The default, against declared beliefs and peers",
            "",
            "Written by `python benchmarks/default.py`, which describes the approaches and scores. "
            "Scores are means over seeds; in brackets the seeds' least, where there are several. "
            "The score that fits what is identified is in bold.",
            "",
            "## Summary",
            "",
            *self._summary(),
        ]
        for group in dict.fromkeys(CASES[name].group for name in CASES if name in self.records):
            lines += ["", f"## {group}", ""]
            lines += [
                "| world | approach | R² | MCC | block R² | seconds | claim | "
                "time scales, error | frequencies, error |",
                "|---|---|---|---|---|---|---|---|---|",
            ]
            for case in CASES.values():
                if case.group == group:
                    lines += self._rows(case)
        lines += ["", "## What is identified", "", *_worlds()]
        if self.failures:
            lines += ["", "## Failures", "", *self.failures]
        return "\n".join([*lines, ""])

    def _rows(self, case: Case) -> list[str]:
        rows = []
        records = self.records.get(case.name, {})
        for approach in sorted(records, key=APPROACHES.index):
            runs = [*records[approach].values()]
            cells = [case.name, approach]
            for score in ("r2", "mcc", "block_r2"):
                shown = mean_and_least([run[score] for run in runs if score in run])
                cells.append(f"**{shown}**" if score == case.truth.score else shown)
            cells.append(f"{statistics.mean(run['seconds'] for run in runs):.1f}")
            cells.append(_claims(runs, case))
            cells += [_worst(runs, name) for name in ("time_scale", "frequency")]
            rows.append(f"| {' | '.join(cells)} |")
        return rows

    def _summary(self) -> list[str]:
        kinds = (
            ("mcc", "MCC where axes are identified"),
            ("block_r2", "block R² where planes of oscillators are"),
            ("r2", "R² in the other worlds"),
        )
        lines = [f"- {self._progress()}"]
        for score, label in kinds:
            lines += _limit(f"default, {label}", self._least(score), MIN_SCORE)
        for peer in PEERS:
            label = f"default - {peer}, mean over seeds"
            leads = self._leads(peer)
            lines += _limit(label, leads, -MAX_DEFICIT)
            if leads:
                strict = sum(lead > 0 for lead, _ in leads)
                lines.append(f"  - strictly ahead of {peer} in {strict} of {len(leads)} worlds")
        bounds = [lead for lead, _ in self._leads(SUPERVISED)]
        if bounds:
            lines.append(
                f"- default - {SUPERVISED}: median {statistics.median(bounds):+.4f}, "
                f"least {min(bounds):+.4f}."
            )
        return [*lines, *self._cards(), *self._dynamics(), *self._times()]

    def _progress(self) -> str:
        fits = sum(len(runs) for world in self.records.values() for runs in world.values())
        known = any(CEBRA in world for world in self.records.values())
        missing = "" if known else f"; none of {CEBRA}, which needs the package cebra"
        return f"{fits} fits in {len(self.records)} of {len(CASES)} worlds{missing}."

    def _least(self, score: str) -> list[tuple[float, str]]:
        """Return the least score of the default over seeds, in worlds with that score."""
        return [
            (min(run[score] for run in world[DEFAULT].values()), name)
            for name, world in self.records.items()
            if CASES[name].truth.score == score and DEFAULT in world
        ]

    def _leads(self, peer: str) -> list[tuple[float, str]]:
        """Return how far the default is above a peer, on the mean over common seeds."""
        leads = []
        for name, world in self.records.items():
            score = CASES[name].truth.score
            ours, theirs = world.get(DEFAULT, {}), world.get(peer, {})
            common = sorted({*ours} & {*theirs})
            if common:
                lead = statistics.mean(ours[s][score] - theirs[s][score] for s in common)
                leads.append((lead, f"{name}, {score}"))
        return leads

    def _default_runs(self) -> Iterator[tuple[Case, int, dict[str, Any]]]:
        for name, world in self.records.items():
            for seed, record in sorted(world.get(DEFAULT, {}).items()):
                yield CASES[name], seed, record

    def _cards(self) -> list[str]:
        """Count the claims of axes or blocks, false and true."""
        runs = [*self._default_runs()]
        without = [run for run in runs if not run[0].truth.axes]
        false = [run for run in without if claims_too_much(run[2]["card"], run[0])]
        with_axes = [run for run in runs if run[0].truth.axes]
        silent = [run for run in with_axes if max(claimed_sizes(run[2]["card"], run[0].n)) > 1]
        lines = [
            f"- cards that claim axes or blocks which are not identified: {len(false)} of "
            f"{len(without)}."
        ]
        lines += [
            f"  - {case.name}, seed {seed}: {record['card']['equivalence']} ({case.truth.reason})"
            for case, seed, record in false
        ]
        return [
            *lines,
            f"- cards that claim the axes which are identified: {len(with_axes) - len(silent)} of "
            f"{len(with_axes)}.",
        ]

    def _dynamics(self) -> list[str]:
        """Count time scales and frequencies within 5 %, and inside their intervals."""
        lines = []
        for error, interval, label in (
            ("time_scale", "modulus_inside", "time scales"),
            ("frequency", "angle_inside", "frequencies"),
        ):
            values, missing, inside, attainable = [], 0, [], []
            for case, seed, record in self._default_runs():
                for pole, errors in enumerate(record.get("errors") or [{}] * len(case.truth.poles)):
                    if error == "frequency" and not complex(case.truth.poles[pole]).imag:
                        continue
                    where = f"{case.name}, seed {seed}, {_pole_text(case.truth.poles[pole], error)}"
                    if errors.get(error) is None:
                        missing += 1
                    else:
                        values.append((errors[error], where))
                    if interval in errors:
                        inside.append((errors[interval], where))
                for errors in record.get("attainable", ()):
                    if errors.get(error) is not None:
                        attainable.append(abs(errors[error]) <= MAX_ERROR)
            total = len(values) + missing
            if not total:
                continue
            above = [(value, where) for value, where in values if abs(value) > MAX_ERROR]
            lines.append(
                f"- {label} within {MAX_ERROR:.0%}: {len(values) - len(above)} of {total}, "
                f"{missing} not learned; from the true factors: {sum(attainable)} of "
                f"{len(attainable)}."
            )
            lines += [
                f"  - {value:+.1%}: {where}"
                for value, where in sorted(above, key=lambda pair: -abs(pair[0]))
            ]
            if inside:
                held = sum(ok for ok, _ in inside)
                lines.append(f"- {label} inside their intervals: {held} of {len(inside)}.")
                lines += [f"  - outside: {where}" for ok, where in inside if not ok]
        return lines

    def _times(self) -> list[str]:
        """Compare the processor time of the default with that of the declared model."""
        ratios = [
            record["seconds"] / max(declared["seconds"], 0.1)
            for case, seed, record in self._default_runs()
            if (declared := self.records[case.name].get(DECLARED, {}).get(seed)) is not None
        ]
        if not ratios:
            return []
        return [
            f"- processor time of the default by that of the declared model: median "
            f"{statistics.median(ratios):.2f}, most {max(ratios):.2f}; {len(ratios)} fits."
        ]


def _limit(label: str, values: list[tuple[float, str]], least: float) -> list[str]:
    """Return a line that counts the values of at least ``least``, and one for each below it."""
    if not values:
        return []
    below = sorted((value, where) for value, where in values if not value >= least)
    lines = [
        f"- {label}: at least {least:g} in {len(values) - len(below)} of {len(values)} worlds."
    ]
    return lines + [f"  - below: {value:.4f}, {where}" for value, where in below]


def _claims(runs: list[dict[str, Any]], case: Case) -> str:
    """Return the claims of the cards, with the number of seeds."""
    counts: dict[str, int] = {}
    for run in runs:
        if "card" in run:
            sizes = claimed_sizes(run["card"], case.n)
            claim = run["card"]["equivalence"] or "none"
            if 1 < len(sizes) < case.n:
                claim += f", blocks of {', '.join(map(str, sizes))}"
            counts[claim] = counts.get(claim, 0) + 1
    return "; ".join(f"{claim} ({count})" for claim, count in counts.items())


def _worst(runs: list[dict[str, Any]], error: str) -> str:
    """Return the largest relative error over poles and seeds."""
    values = [e[error] for run in runs for e in run.get("errors", ()) if e.get(error) is not None]
    return f"{max(values, key=abs):+.1%}" if values else ""


def _pole_text(pole: Pole, error: str) -> str:
    if error == "frequency":
        return f"{cmath.phase(pole):.3g} rad per row"
    return f"{-1 / math.log(abs(pole)):.3g} rows"


def _worlds() -> list[str]:
    """Return a table of the worlds, and what is identified in each."""
    lines = ["| world | factors | pairs or rows | lag | axes | why |", "|---|---|---|---|---|---|"]
    for case in CASES.values():
        truth = case.truth
        axes = "yes" if truth.axes else "no" if truth.blocks is None else "blocks"
        size = "endless" if case.size is None else str(case.size)
        lag = "" if case.lag is None else str(case.lag)
        lines.append(f"| {case.name} | {case.n} | {size} | {lag} | {axes} | {truth.reason} |")
    return lines


if __name__ == "__main__":
    main()
