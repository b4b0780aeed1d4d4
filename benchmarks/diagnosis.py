"""How often verdicts are right: worlds as declared, and worlds that break one assumption.

Half of at least 120 worlds are as declared, the others break one assumption each, at three
strengths: spheres, boxes, planes and recordings, 3 to 10 factors, 5 000 to 100 000 pairs. Every
second world is held back: thresholds were chosen on the others alone, and both halves are reported.

- diagnosis: a fit with what is declared, and ``iso.diagnose``;
- null: shuffled pairs of a small world, 100 seeds: what ``fit`` and ``diagnose`` say of them;
- choose: ``iso.choose`` on 40 worlds as declared, and a fit with its choice and ``relax="auto"``
  beside one with the true beliefs.

A claim holds if the score of the guaranteed metric against the true factors is at least .95.

Run: python benchmarks/diagnosis.py [--seeds 1] [--jobs 2] [--worlds sphere ...]
         [--approaches diagnosis null choose] [--tuning] [--report]
Writes results/benchmarks/diagnosis.{json,md} after every fit. Fits that are there are not run
again, unless the code has changed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy import stats

import isolatent as iso
from diagnosis_worlds import WORLDS, DiagnosedWorld
from fit_store import Fit, FitStore, Record, make_parser, starts_with
from isolatent.checks import IsolatentWarning
from isolatent.diagnosis.trials import Candidate
from isolatent.experiments.program import digest_code
from isolatent.theory import derive_guarantee

OUT = Path(__file__).parents[1] / "results/benchmarks/diagnosis.json"
DIAGNOSIS, NULL, CHOOSE = "diagnosis", "null", "choose"
APPROACHES = (DIAGNOSIS, NULL, CHOOSE)
NULL_WORLD, NULL_SEEDS, NULL_PAIRS = "sphere, 4 factors, 20000 pairs, width 1", 100, 2000
CHOSEN_WORLDS = 40
LEAST_SCORE, COVERED = 0.95, 0.03
MAX_BEHIND = 0.01
SHOWN = ("error", "score", "holds", "broken", "seconds", "diagnosis_seconds", "best", "is_null")


def score_of(model: iso.ContrastiveICA, metric: str, z: Any, x: Any) -> float:
    """Return the score of the guaranteed metric."""
    codes = model.transform(x)
    return float(iso.mcc(z, codes) if metric == "mcc" else iso.linear_r2(z, codes))


def fitted(
    world: DiagnosedWorld, data: Sequence[Any], seed: int, max_steps: int | None, **changes: Any
) -> iso.ContrastiveICA:
    options = {"n_components": world.codes, **world.declared, **changes}
    if max_steps is not None:
        options["recipe"] = iso.Recipe(max_steps=max_steps, batch_size=512)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsolatentWarning)
        return iso.ContrastiveICA(random_state=seed, **options).fit(*data)


def measure(fit: Fit, max_steps: int | None) -> Record:
    """Return the record of a fit."""
    world = WORLDS[fit.world]
    drawn = world.sample(fit.seed)
    if fit.approach == NULL:
        return measure_null(world, drawn, fit.seed, max_steps)
    if fit.approach == CHOOSE:
        return measure_choice(world, drawn, fit.seed, max_steps)
    start = time.process_time()
    model = fitted(world, drawn.data, fit.seed, max_steps)
    seconds = time.process_time() - start
    start = time.process_time()
    found = model.diagnose(*drawn.data, random_state=fit.seed)
    card = model.guarantee_
    return {
        "broken_by_design": world.broken,
        "held_back": world.is_held_back,
        "score": score_of(model, card.metric, drawn.z, drawn.x),
        "metric": card.metric,
        "supported_by_fit": card.withdrawn == "",
        "seconds": round(seconds, 1),
        "diagnosis_seconds": round(time.process_time() - start, 1),
        "steps": len(model.history_),
        **found.to_dict(),
    }


def measure_null(world: DiagnosedWorld, drawn: Any, seed: int, max_steps: int | None) -> Record:
    order = np.random.default_rng(seed).permutation(NULL_PAIRS)
    x, x_pos = (part[:NULL_PAIRS] for part in drawn.data)
    model = fitted(world, (x, x_pos[order]), seed, max_steps)
    found = model.diagnose(x, x_pos[order], random_state=seed)
    support = model.support_
    return {
        "is_null": bool(support is not None and support.is_null),
        "claims": model.guarantee_.equivalence,
        "broken": list(found.broken),
        "holds": found.holds,
    }


def measure_choice(world: DiagnosedWorld, drawn: Any, seed: int, max_steps: int | None) -> Record:
    start = time.process_time()
    found = iso.choose(*drawn.data, random_state=seed, diagnose=False)
    seconds = time.process_time() - start
    declared = world.declared
    truth = Candidate(declared["space"], declared.get("conditional"), world.codes)
    best = found.best or {}
    record: Record = {
        "held_back": world.is_held_back,
        "best": best,
        "tied": list(found.tied),
        "is_true": best.get("space") == truth.space
        and best.get("conditional", truth.beliefs.conditional) == truth.beliefs.conditional,
        "true_is_tied": any(
            name.startswith(f"{truth.space}, {truth.beliefs.conditional}") for name in found.tied
        ),
        "n_factors": found.n_factors,
        "true_factors": truth.n_factors,
        "seconds": round(seconds, 1),
    }
    if found.best is not None:
        metric = derive_guarantee(truth.beliefs).metric
        given = {k: v for k, v in best.items() if k != "relax"}
        chosen = fitted(
            world._replace(declared={}), drawn.data, seed, max_steps, **given, relax="auto"
        )
        true = fitted(world, drawn.data, seed, max_steps)
        record["score"] = score_of(chosen, metric, drawn.z, drawn.x)
        record["true_score"] = score_of(true, metric, drawn.z, drawn.x)
    return record


def plan(options: Any) -> Iterator[Fit]:
    """Return the fits to run, the quicker worlds first."""
    approaches = options.approaches or APPROACHES
    names = [
        name
        for name, world in WORLDS.items()
        if starts_with(name, options.worlds) and not (options.tuning and world.is_held_back)
    ]
    if DIAGNOSIS in approaches:
        for seed in range(options.seeds):
            yield from (Fit(name, DIAGNOSIS, seed) for name in names)
    if NULL in approaches and NULL_WORLD in names:
        yield from (Fit(NULL_WORLD, NULL, seed) for seed in range(NULL_SEEDS))
    if CHOOSE in approaches:
        declared = [name for name in names if not WORLDS[name].broken]
        chosen = [n for n in declared if not n.startswith("recording") and "100000" not in n]
        yield from (Fit(name, CHOOSE, 0) for name in chosen[:CHOSEN_WORLDS])


# Report


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found)} of {len(found)}" if found else "none run"


def _half(records: list[Record]) -> list[str]:
    """Return the lines about one half of the worlds."""
    good = [r for r in records if r["score"] >= LEAST_SCORE]
    bad = [r for r in records if r["score"] < LEAST_SCORE]
    declared = [r for r in records if not r["broken_by_design"]]
    suffers = [r for r in bad if r["broken_by_design"]]
    lines = []
    if good and bad:
        right = [
            fmean(r["holds"] is True for r in good),
            fmean(r["holds"] is not True for r in bad),
        ]
        lines.append(f"- balanced accuracy of the claim: {fmean(right):.3f}")
    lines.append(
        f"- claims that hold and are said to: {_share([r['holds'] is True for r in good])}; "
        f"that do not, and are not said to: {_share([r['holds'] is not True for r in bad])}"
    )
    lines.append(
        f"- false alarms as declared: {_share([r['holds'] is False for r in declared])}; with a "
        f"contradicted assumption: {_share([bool(r['broken']) for r in declared])}"
    )
    named = [r["broken_by_design"] in r["broken"] for r in suffers]
    first = [r["broken"][:1] == [r["broken_by_design"]] for r in suffers]
    lines.append(
        f"- assumption named where the score suffers: {_share(named)}; first: {_share(first)}"
    )
    expected = [(r["expected_score"], r["score"]) for r in declared]
    covered = [e is not None and abs(e["value"] - score) <= COVERED for e, score in expected]
    lines.append(f"- expected score within ±{COVERED} as declared: {_share(covered)}")
    ratios = [r["diagnosis_seconds"] / r["seconds"] for r in records if r["seconds"]]
    if ratios:
        lines.append(f"- median time of a diagnosis, in fits: {median(ratios):.1f}")
    return lines


def _uniformity(records: list[Record]) -> list[str]:
    """Return a table of Kolmogorov-Smirnov tests of p-values in worlds as declared."""
    values: dict[str, list[float]] = {}
    for record in records:
        for check in record["checks"] if not record["broken_by_design"] else ():
            if check["p_value"] is not None and check["key"] != "information":
                values.setdefault(check["key"], []).append(check["p_value"])
    rows = [
        f"| {key} | {len(found)} | {fmean(p < 0.05 for p in found):.2f} | "
        f"{stats.kstest(found, 'uniform').pvalue:.2g} |"
        for key, found in values.items()
    ]
    head = ["| check | worlds | share of p < .05 | p of uniformity |", "|---|---|---|---|"]
    return [*head, *rows] if rows else []


def report(records: dict[str, Record]) -> str:
    """Return the report on records in Markdown."""
    kinds: dict[str, list[tuple[str, Record]]] = {name: [] for name in APPROACHES}
    failures = []
    for key, record in records.items():
        fit = Fit.of(key)
        if "error" in record:
            failures.append(f"- {key}: {record['error']}")
        elif fit.world in WORLDS:
            kinds[fit.approach].append((fit.world, record))
    lines = ["# Diagnoses", "", "Written by `python benchmarks/diagnosis.py`.", ""]
    diagnosed = [record for _, record in kinds[DIAGNOSIS]]
    lines.append(f"{len(diagnosed)} of {len(WORLDS)} worlds were diagnosed.")
    for held_back, name in ((False, "tuning"), (True, "held back")):
        half = [record for record in diagnosed if record["held_back"] == held_back]
        if half:
            lines += ["", f"## {len(half)} worlds, {name}", "", *_half(half)]
    if diagnosed:
        lines += ["", "## p-values of worlds as declared", "", *_uniformity(diagnosed)]
    if null := [record for _, record in kinds[NULL]]:
        silent = [r["is_null"] and r["claims"] is None for r in null]
        told = [r["broken"][:1] == ["information"] for r in null]
        lines += ["", "## Shuffled pairs", ""]
        lines.append(f"- null by fit: {_share(silent)}; by diagnose: {_share(told)}")
    if chosen := [record for _, record in kinds[CHOOSE]]:
        right = [r["is_true"] or r["true_is_tied"] for r in chosen]
        near = [
            r["n_factors"] is not None and abs(r["n_factors"] - r["true_factors"]) <= 1
            for r in chosen
        ]
        close = [r["true_score"] - r["score"] <= MAX_BEHIND for r in chosen if "score" in r]
        lines += ["", "## choose", ""]
        lines.append(f"- true space and conditional, or tied with them: {_share(right)}")
        lines.append(f"- number of factors within one: {_share(near)}")
        lines.append(f"- score within {MAX_BEHIND} of that of the true beliefs: {_share(close)}")
    lines += [
        "",
        "## Worlds",
        "",
        "| world | half | broken | score | holds | contradicted | expected |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, record in kinds[DIAGNOSIS]:
        expected = record["expected_score"]
        value = "" if expected is None else f"{expected['value']:.3f}"
        lines.append(
            f"| {name} | {'held back' if record['held_back'] else 'tuning'} | "
            f"{record['broken_by_design'] or 'none'} | {record['score']:.3f} | {record['holds']} | "
            f"{', '.join(record['broken'])} | {value} |"
        )
    return "\n".join([*lines, *(["", "## Failures", "", *failures] if failures else []), ""])


def program() -> str:
    """Return the identity of what the records depend on: the code of the package and this."""
    package = Path(iso.__file__).parent
    parts = ("worlds", "theory", "pairs", "encoders", "contrast", "evaluation", "training")
    files = [
        path for part in (*parts, "diagnosis") for path in sorted((package / part).rglob("*.py"))
    ]
    files.append(Path(__file__).with_name("diagnosis_worlds.py"))
    return digest_code(*files)


def main() -> None:
    parser = make_parser(__doc__, OUT, seeds=1)
    parser.add_argument("--worlds", nargs="+", default=[], help="beginnings of their names")
    parser.add_argument("--approaches", nargs="+", default=[], choices=APPROACHES)
    parser.add_argument("--tuning", action="store_true", help="leave out what is held back")
    options = parser.parse_args()
    today = f"{program()}{'' if options.max_steps is None else f' {options.max_steps} steps'}"
    store = FitStore(options.out, lambda approach: today, report)
    if options.report:
        store.write()
        return
    store.run(plan(options), measure, jobs=options.jobs, max_steps=options.max_steps, shown=SHOWN)


if __name__ == "__main__":
    main()
