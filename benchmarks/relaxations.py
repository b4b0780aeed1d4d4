"""Relaxed assumptions against declared ones, on worlds that break what is declared.

The worlds are those of relaxation_worlds.py: factors through an invertible network of three layers.
Approaches:

- declared: ``relax=()``, all that is declared is taken for granted;
- the relaxations that should help, one by one, and two together where two assumptions are broken;
  with --full also every other relaxation by itself;
- auto: ``relax="auto"``;
- supervised: the same encoder, trained on the factors of all observations;
- RINCE (Chuang et al. 2022): its published loss with q = 0.5 and λ = 0.01, without potentials. It
  falls without bound in a learned scale, so the best of three fixed scales is reported, chosen by
  the true factors, which favours it; free codes choose their scale themselves;
- dynamics model, as in arXiv 2410.14673: a linear map of the anchor's codes, InfoNCE with the
  squared distance in one direction, free codes, no potentials. For planes; elsewhere with --full.

Scores are R² and MCC on 8192 fresh factors; seconds are those of one processor core.

Run: python benchmarks/relaxations.py [--seeds 3] [--jobs 2] [--worlds "box, 40%" ...]
         [--approaches declared auto ...] [--full] [--report]
Writes results/benchmarks/relaxations.{json,md} after every fit. Fits that are there are not run
again, unless the code has changed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

import isolatent as iso
from fit_store import Fit, FitStore, group_records, make_parser, mean_and_least, starts_with
from isolatent.contrast import LinearDynamics
from isolatent.experiments.program import digest_code, program_digest
from isolatent.theory import RELAXATIONS
from relaxation_worlds import WORLDS, BrokenWorld, EndlessPairs, mixing_of, split_places

OUT = Path(__file__).parents[1] / "results/benchmarks/relaxations.json"
TEST_FACTORS, TEST_SEED = 8192, 1_000_003
RATIO_PAIRS = 200_000  # from which the true ratio of steps is taken
DECLARED, AUTO, SUPERVISED = "declared", "auto", "supervised"
RINCE, DYNAMICS_MODEL = "RINCE", "dynamics model"
PEERS = (SUPERVISED, RINCE, DYNAMICS_MODEL)
RINCE_Q, RINCE_LAMBDA = 0.5, 0.01
# Scales of the score: 1/τ for τ = 0.5 and 0.1, as published, and one near those of the worlds.
RINCE_SCALES = (2.0, 10.0, 30.0)
MIN_GAP, MAX_LOSS, MAX_COST = 0.01, 0.002, 0.01  # what is asked of auto, in the order of the report
MAX_SHARE_ERROR, MAX_SCALE_ERROR, MAX_ANGLE_ERROR = 0.03, 0.05, 0.02
MAX_RATIO_ERROR = 0.25  # of widths, relative: training leaves codes that are distorted by as much
MAX_TIME = 1.5


class RobustInfoNCE(nn.Module):
    r"""RINCE: :math:`-e^{q s_+}/q + (\lambda \sum_j e^{s_j})^q / q`, the sum over all candidates.

    Both directions are averaged. The score is ``scale`` times u·v - 1 on a sphere, and minus
    ``scale`` times the p-th power of the Lp distance elsewhere. The loss is homogeneous in e^s, so
    the -1 only changes its size.

    References:
        | Robust Contrastive Learning against Noisy Views (Chuang et al. 2022)
    """

    def __init__(self, p: float | None, scale: float) -> None:
        super().__init__()
        self.p, self.scale = p, scale

    def forward(self, h: Tensor, h_pos: Tensor) -> Tensor:
        if self.p is None:
            scores = self.scale * (h @ h_pos.mT - 1)
        else:
            scores = -self.scale * (h[:, None] - h_pos).abs().pow(self.p).sum(-1)
        positive = (RINCE_Q * scores.diagonal()).exp()
        sums = torch.stack([scores.logsumexp(1), scores.logsumexp(0)])
        return (-positive + (RINCE_Q * (sums + math.log(RINCE_LAMBDA))).exp()).mean() / RINCE_Q


class Data(NamedTuple):
    """Pairs to fit: observations with their factors, or an endless source."""

    arguments: tuple[Any, ...]
    x: Tensor | None
    z: Tensor | None
    source: EndlessPairs | None


def make_data(world: BrokenWorld, seed: int) -> Data:
    """Return what an estimator is fitted to."""
    source = EndlessPairs(world, seed)
    if world.pairs is None:
        return Data((source,), None, None, source)
    z, z_pos = world.sample(world.pairs, Generator().manual_seed(seed))
    if world.lag is not None:
        recording = torch.cat([z, z_pos[-world.lag :]])
        return Data((source.mixing(recording),), source.mixing(recording), recording, None)
    x, x_pos = source.mixing(z), source.mixing(z_pos)
    return Data((x, x_pos), torch.cat([x, x_pos]), torch.cat([z, z_pos]), None)


def relaxations_in(approach: str) -> tuple[str, ...] | None:
    """Return the relaxations that an approach names; None for auto and peers."""
    if approach == DECLARED:
        return ()
    names = tuple(approach.split("+"))
    return names if set(names) <= {*RELAXATIONS} else None


def make_models(
    world: BrokenWorld, approach: str, seed: int, max_steps: int | None
) -> Iterator[tuple[str, Any]]:
    """Yield the estimators of an approach, the best of which counts, with their settings."""
    options: dict[str, Any] = {"random_state": seed}
    if approach == SUPERVISED:
        limit: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
        yield "", iso.SupervisedEncoder(world.n, space=world.declared["space"], **options, **limit)
        return
    if world.lag is not None:
        options["lag"] = (world.lag, world.lag)
    if max_steps is not None:
        options["recipe"] = iso.Recipe(max_steps=max_steps)
    if approach == RINCE:
        space = world.declared["space"]
        p = {"sphere": None, "box": iso.Beliefs(**world.declared).exponent, "euclidean": 2.0}[space]
        for scale in (1.0,) if space == "euclidean" else RINCE_SCALES:
            loss: nn.Module = RobustInfoNCE(p, scale)
            yield (
                f"scale {scale:g}",
                iso.ContrastiveICA(world.n, **world.declared, loss=loss, **options),
            )
    elif approach == DYNAMICS_MODEL:
        loss = iso.InfoNCE(iso.Lp(p=2), symmetric=False, dynamics=LinearDynamics(world.n))
        yield "", iso.ContrastiveICA(world.n, space="euclidean", loss=loss, **options)
    else:
        relax: Any = AUTO if approach == AUTO else relaxations_in(approach)
        yield "", iso.ContrastiveICA(world.n, **world.declared, relax=relax, **options)


def measure(fit: Fit, max_steps: int | None) -> dict[str, Any]:
    """Run a fit, and return its record."""
    world = WORLDS[fit.world]
    data, mixing = make_data(world, fit.seed), mixing_of(world.n, fit.seed)
    z = world.sample(TEST_FACTORS, Generator().manual_seed(TEST_SEED + fit.seed))[0]
    x = mixing(z)
    records = []
    for setting, model in make_models(world, fit.approach, fit.seed, max_steps):
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if fit.approach == SUPERVISED:
                model.fit(*((data.x, data.z) if data.source is None else (data.source,)))
            else:
                model.fit(*data.arguments)
        seconds = time.process_time() - started
        codes = torch.as_tensor(model.transform(x))
        records.append(
            {
                "r2": iso.linear_r2(z, codes),
                "mcc": iso.mcc(z, codes),
                "seconds": round(seconds, 1),
                "steps": len(model.history_),
                "setting": setting,
                **(_learned(model, world) if hasattr(model, "relaxed_") else {}),
            }
        )
    return max(records, key=lambda record: record["r2"])


def _learned(model: Any, world: BrokenWorld) -> dict[str, Any]:
    """Return what was chosen and learned, and how far it is from the truth."""
    learned, errors, inside = model.learned_, {}, {}
    found: dict[str, Any] = {
        "relaxed": list(model.relaxed_),
        "gains": {name: list(gain) for name, gain in model.gains_.items()},
        "learned": learned,
        "objective": model.guarantee_.objective,
        "warnings": list(model.guarantee_.warnings),
    }
    if "pairing" in learned:
        errors["share"] = learned["pairing"]["related_share"] - world.related
        inside["share"] = _holds(learned["pairing"]["interval"], world.related)
    scale = _scale_of(model.loss_)
    if scale is not None:
        found["scale"] = scale
        if world.scale is not None:  # λ is that of the factors only if codes fill the box
            name = "kappa" if world.declared["space"] == "sphere" else "lambda"
            errors[name] = scale / world.scale - 1
    if "dynamics" in learned and world.angles:
        turns = sorted(abs(angle) for angle in learned["dynamics"]["angles"])
        true = sorted(2 * list(world.angles))  # conjugate eigenvalues
        errors["angles"] = max(abs(a - b) for a, b in zip(turns, true, strict=True))
        positive = sorted(sorted(map(abs, i)) for i in learned["dynamics"]["angles_intervals"])
        inside["angles"] = all(map(_holds, positive, true))
    if "anchor_scale" in learned and world.width_ratio is not None:
        ratio = ratio_of_steps(world)
        errors["width_ratio"] = learned["anchor_scale"]["width_ratio"] / ratio - 1
        inside["width_ratio"] = _holds(learned["anchor_scale"]["interval"], ratio)
    if "factor_scale" in learned and world.weights:
        pairs = zip(
            _relative(learned["factor_scale"]["weights"]), _relative(world.weights), strict=True
        )
        errors["weights"] = max(abs(a / b - 1) for a, b in pairs)
    return {**found, "errors": errors, "inside": inside}


def _holds(interval: Sequence[float], true: float) -> bool:
    return interval[0] <= true <= interval[1]


def ratio_of_steps(world: BrokenWorld) -> float:
    """Return how many times wider the steps of the factors are in one half of the places.

    It is less than the ratio of the conditionals' widths: a box or a sphere cuts wide steps off.
    """
    z, z_pos = world.sample_related(RATIO_PAIRS, Generator().manual_seed(0))
    p = iso.Beliefs(**world.declared).exponent or 2.0
    powers = (z - z_pos).abs().pow(p).sum(1)
    near, far = (powers[part].mean() for part in split_places(world, z))
    return float(max(near / far, far / near)) ** (1 / p)


def _relative(weights: Sequence[float]) -> list[float]:
    """Return weights in increasing order, by their geometric mean."""
    mean = statistics.geometric_mean(weights)
    return sorted(weight / mean for weight in weights)


def _scale_of(loss: Any) -> float | None:
    """Return the κ of a dot product, or the λ of a distance, where codes have a size."""
    similarity = getattr(loss, "similarity", None)
    if similarity is None:
        return None
    values = (similarity.scale if similarity.p is None else similarity.weights).detach()
    return float(values) if values.ndim == 0 else None


def program(max_steps: int | None = None) -> str:
    """Return the identity of the program and of the worlds that records depend on."""
    worlds = digest_code(Path(__file__).with_name("relaxation_worlds.py"))
    return f"{program_digest()}-{worlds}" + ("" if max_steps is None else f"-{max_steps}")


def approaches_of(world: BrokenWorld, full: bool) -> list[list[str]]:
    """Return the approaches to a world, by the order in which to run them."""
    telling = list(dict.fromkeys([DECLARED, AUTO, *world.relevant]))
    free = world.declared["space"] == "euclidean"
    others = [name for name in PEERS if free or full or name != DYNAMICS_MODEL]
    singles = [name for name in RELAXATIONS if name not in telling] if full else []
    return [telling, [*others, *singles]]


def plan(options: argparse.Namespace) -> list[Fit]:
    """Return the fits, the most telling ones first."""
    names = [name for name in WORLDS if starts_with(name, options.worlds)]
    order = [(seed, stage) for seed in range(options.seeds) for stage in (0, 1)]
    return [
        Fit(name, approach, seed)
        for seed, stage in order
        for name in names
        for approach in approaches_of(WORLDS[name], options.full)[stage]
        if not options.approaches or approach in options.approaches
    ]


def main() -> None:
    parser = make_parser(__doc__, OUT)
    parser.add_argument("--worlds", nargs="+", default=[], help="beginnings of their names")
    parser.add_argument("--approaches", nargs="+", default=[])
    parser.add_argument("--full", action="store_true", help="every relaxation in every world")
    options = parser.parse_args()
    today = program(options.max_steps)
    store = FitStore(options.out, lambda _: today, lambda records: Report(records).text())
    if options.report:
        store.write()
        return
    shown = ("error", "r2", "mcc", "seconds", "steps", "relaxed", "errors")
    store.run(plan(options), measure, jobs=options.jobs, max_steps=options.max_steps, shown=shown)


class Report:
    """Tables of the records, and a summary that is computed from them."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.records, self.failures = group_records(results, WORLDS)

    def text(self) -> str:
        """Return the report in Markdown."""
        lines = [
            "# Relaxed assumptions against declared ones",
            "",
            "Written by `python benchmarks/relaxations.py`, which describes the approaches. Scores "
            "are means over seeds; in brackets the seeds' least, where there are several. "
            "Relaxations that are chosen are in the order of choice, with the number of seeds. "
            "MCC is a score where factors are identified one by one.",
            "",
            "## Summary",
            "",
            *self._summary(),
        ]
        groups = dict.fromkeys(WORLDS[name].group for name in WORLDS if name in self.records)
        for group in groups:
            lines += ["", f"## {group}", ""]
            lines += [
                "| world | approach | R² | MCC | seconds | steps | chosen | learned, error |",
                "|---|---|---|---|---|---|---|---|",
            ]
            for name in WORLDS:
                if WORLDS[name].group == group:
                    lines += self._rows(name)
        if self.failures:
            lines += ["", "## Failures", "", *self.failures]
        return "\n".join([*lines, ""])

    def _rows(self, name: str) -> list[str]:
        world = WORLDS[name]
        stages = [approach for stage in approaches_of(world, full=True) for approach in stage]
        rows = []
        for approach in sorted(self.records.get(name, {}), key=stages.index):
            runs = [*self.records[name][approach].values()]
            marked = f"**{approach}**" if approach in world.relevant else approach
            setting = ", ".join(sorted({run["setting"] for run in runs} - {""}))
            cells = [
                name,
                f"{marked} ({setting})" if setting else marked,
                mean_and_least([run["r2"] for run in runs]),
                mean_and_least([run["mcc"] for run in runs]) if world.axes else "",
                f"{statistics.mean(run['seconds'] for run in runs):.0f}",
                f"{statistics.mean(run['steps'] for run in runs):.0f}",
                _choices(runs) if approach == AUTO else "",
                _errors(runs),
            ]
            rows.append(f"| {' | '.join(cells)} |")
        return rows

    def _pairs_of(
        self, reference: Callable[[BrokenWorld], Iterable[str]], score: str
    ) -> list[tuple[float, str]]:
        """Return how far auto is below the best of some approaches, for each world and seed."""
        gaps = []
        for name, approaches in self.records.items():
            allowed = [a for a in reference(WORLDS[name]) if a in approaches]
            for seed, auto in approaches.get(AUTO, {}).items():
                others = [approaches[a][seed][score] for a in allowed if seed in approaches[a]]
                if others:
                    gaps.append((max(others) - auto[score], f"{name}, seed {seed}"))
        return gaps

    def _summary(self) -> list[str]:
        singles = (DECLARED, *RELAXATIONS)
        lines = []
        for label, score, reference, most in (
            ("best single choice - auto, R²", "r2", lambda world: singles, MIN_GAP),
            (
                "best single choice - auto, MCC",
                "mcc",
                lambda world: singles if world.axes else (),
                MIN_GAP,
            ),
            (
                "both relaxations - auto, R²",
                "r2",
                lambda world: [name for name in world.relevant if "+" in name],
                MIN_GAP,
            ),
            (
                "declared - auto where all is as declared, R²",
                "r2",
                lambda world: (DECLARED,) if world.holds else (),
                MAX_LOSS,
            ),
        ):
            lines += _limit(label, self._pairs_of(reference, score), most)
        for approach in ("pairing", AUTO):
            label = f"clean - contaminated by at most 40 %, {approach}, R²"
            lines += _limit(label, self._contamination_costs(approach), MAX_COST)
        learned: tuple[tuple[str, str, float | None], ...] = (
            ("share", "error of the related share", MAX_SHARE_ERROR),
            ("kappa", "relative error of κ, contaminated", MAX_SCALE_ERROR),
            ("lambda", "relative error of λ in the box, contaminated", None),
            ("angles", "error of angles in rad", MAX_ANGLE_ERROR),
            ("weights", "relative error of the factors' relative weights", None),
            ("width_ratio", "relative error of the ratio of steps' widths", MAX_RATIO_ERROR),
        )
        for error, label, limit in learned:
            lines += _limit(label, self._learning_errors(error), limit)
        for name, label in (
            ("share", "related share"),
            ("angles", "angles"),
            ("width_ratio", "ratio of widths"),
        ):
            lines += self._coverage(name, label)
        lines += self._times()
        return lines

    def _contamination_costs(self, approach: str) -> list[tuple[float, str]]:
        costs = []
        for name in self.records:
            world = WORLDS[name]
            if not world.group.startswith("Contamination") or not 0.6 <= world.related < 1:
                continue
            clean = name.replace(f"{1 - world.related:.0%}", "0%", 1)
            for seed, record in self.records[name].get(approach, {}).items():
                known = self.records.get(clean, {}).get(DECLARED, {}).get(seed)
                if known is not None:
                    costs.append((known["r2"] - record["r2"], f"{name}, seed {seed}"))
        return costs

    def _coverage(self, name: str, label: str) -> list[str]:
        """Count the intervals that hold the truth; errors of training are not in them."""
        found = self._known("inside", name)
        if not found:
            return []
        missed = [where for holds, where in found if not holds]
        held = len(found) - len(missed)
        line = f"- {label} inside the interval of 95 %: {held} of {len(found)}."
        return [line, *(f"  - outside: {where}" for where in missed[:10])]

    def _learning_errors(self, error: str) -> list[tuple[float, str]]:
        """Return the sizes of the errors of fits with what they needed, or what auto chose."""
        return [(abs(value), where) for value, where in self._known("errors", error)]

    def _known(self, field: str, error: str) -> list[tuple[float, str]]:
        """Return what is recorded of fits with what they needed, or what auto chose."""
        found = []
        for name, approaches in self.records.items():
            world = WORLDS[name]
            wanted = [*world.relevant, AUTO]
            if any("+" in approach for approach in wanted):  # one alone is not enough
                wanted = [approach for approach in wanted if "+" in approach or approach == AUTO]
            if error in ("kappa", "lambda") and not world.group.startswith("Contamination"):
                continue
            for approach in wanted:
                for seed, record in approaches.get(approach, {}).items():
                    value = record.get(field, {}).get(error)
                    if value is not None:
                        found.append((value, f"{name}, {approach}, seed {seed}"))
        return found

    def _times(self) -> list[str]:
        """Compare auto with one fit of the relaxations that it chose."""
        ratios = []
        for name, approaches in self.records.items():
            for seed, auto in approaches.get(AUTO, {}).items():
                chosen = {*auto["relaxed"]}
                for approach, runs in approaches.items():
                    names = relaxations_in(approach)
                    if names is not None and {*names} == chosen and seed in runs:
                        ratio = auto["seconds"] / max(runs[seed]["seconds"], 0.1)
                        ratios.append((ratio, f"{name}, seed {seed}"))
        if not ratios:
            return []
        middle = statistics.median(ratio for ratio, _ in ratios)
        return [
            *_limit("time of auto by that of one fit with what it chose", ratios, MAX_TIME),
            f"  The median is {middle:.2f}.",
        ]


def _limit(label: str, values: list[tuple[float, str]], most: float | None) -> list[str]:
    if not values:
        return []
    worst, where = max(values)
    line = f"- {label}: at most {worst:.4f} ({where})"
    if most is None:
        return [f"{line}; {len(values)} values."]
    above = sorted(((v, at) for v, at in values if v > most), reverse=True)
    lines = [f"{line}; {len(values) - len(above)} of {len(values)} are within {most:g}."]
    return lines + [f"  - above: {value:.4f}, {at}" for value, at in above[:10]]


def _choices(runs: list[dict[str, Any]]) -> str:
    """Return what was chosen, how often, and the gains of the first such run."""
    shown: dict[tuple[str, ...], list[Any]] = {}
    for run in runs:
        key = tuple(run["relaxed"])
        known = run["gains"]  # a relaxation that was added without a comparison has none
        gains = [f"{name} +{known[name][0]:.2f}" if name in known else name for name in key]
        text = ", then ".join(gains) if gains else "nothing"
        shown.setdefault(key, [text, 0])[1] += 1
    return "; ".join(f"{text} ({count})" for text, count in shown.values())


def _errors(runs: list[dict[str, Any]]) -> str:
    names = {"share": "related", "kappa": "κ", "lambda": "λ", "angles": "angles"}
    names |= {"weights": "weights", "width_ratio": "widths"}
    parts = []
    for error, label in names.items():
        values = [run["errors"][error] for run in runs if error in run.get("errors", {})]
        if values:
            relative = error not in ("share", "angles")
            worst = max(values, key=abs)
            parts.append(f"{label} {worst:+.1%}" if relative else f"{label} {worst:+.3f}")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
