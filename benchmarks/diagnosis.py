"""How often verdicts are right: worlds as declared, and worlds that break one assumption.

Half of at least 120 worlds are as declared, the others break one assumption each, at three
strengths: spheres, boxes, planes and recordings, 3 to 10 factors, 5 000 to 100 000 pairs; in some
nothing is declared. Half of the worlds are held back, by assumption and strength: thresholds are
chosen on the others alone, and both halves are reported.

- diagnosis: a fit with what is declared, and ``iso.diagnose``;
- null: shuffled pairs of a small world, 100 seeds: what ``fit`` and ``diagnose`` say of them;
- choose: ``iso.choose`` on 40 worlds as declared, recordings among them, and a fit with its choice
  and ``relax="auto"`` beside one with the true beliefs.

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
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from scipy import stats

import isolatent as iso
from diagnosis_worlds import CHOSEN, WORLDS, DiagnosedWorld
from fit_store import Fit, FitStore, Record, make_parser, starts_with
from isolatent.checks import IsolatentWarning
from isolatent.diagnosis.trials import Candidate
from isolatent.experiments.program import digest_code, program_digest
from isolatent.theory import derive_guarantee
from isolatent.training.claims import FittedClaims

OUT = Path(__file__).parents[1] / "results/benchmarks/diagnosis.json"
DIAGNOSIS, NULL, CHOOSE = "diagnosis", "null", "choose"
APPROACHES = (DIAGNOSIS, NULL, CHOOSE)
NULL_WORLD, NULL_SEEDS, NULL_PAIRS = "sphere, 4 factors, 20000 pairs, width 1", 100, 2000
LEAST_SCORE, COVERED = 0.95, 0.03
MAX_BEHIND = 0.01
MOST_FITS, MOST_SHARE = 4.0, 0.1  # time of a diagnosis in fits, and of the checks inside a fit
LEVEL, FEWEST_VALUES = 0.01, 30  # of the tests of uniformity together, and p-values of a test
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


@contextmanager
def checks_timed() -> Iterator[list[float]]:
    """Yield the times that fits spend on checks of their held-out pairs, as they end."""
    seconds: list[float] = []
    check = FittedClaims._check_support

    def timed(*args: Any) -> None:
        start = time.process_time()
        check(*args)
        seconds.append(time.process_time() - start)

    with mock.patch.object(FittedClaims, "_check_support", timed):
        yield seconds


def measure(fit: Fit, max_steps: int | None) -> Record:
    """Return the record of a fit."""
    world = WORLDS[fit.world]
    drawn = world.sample(fit.seed)
    if fit.approach == NULL:
        return measure_null(world, drawn, fit.seed, max_steps)
    if fit.approach == CHOOSE:
        return measure_choice(world, drawn, fit.seed, max_steps)
    start = time.process_time()
    with checks_timed() as checking:
        model = fitted(world, drawn.data, fit.seed, max_steps)
    seconds = time.process_time() - start
    start = time.process_time()
    found = model.diagnose(*drawn.data, random_state=fit.seed)
    card = model.guarantee_
    return {
        "broken_by_design": world.broken,
        "score": score_of(model, card.metric, drawn.z, drawn.x),
        "metric": card.metric,
        "supported_by_fit": card.withdrawn == "",
        "seconds": round(seconds, 1),
        "checks_seconds": round(sum(checking), 2),
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
        chosen = [name for name in names if name in CHOSEN]
        yield from (Fit(name, CHOOSE, 0) for name in chosen)


# Report


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found)} of {len(found)}" if found else "none run"


class Target(NamedTuple):
    """A figure with the limit that it is to keep.

    Attributes:
        name: What is measured.
        limit: The limit in words.
        figure: The figure in words.
        is_met: Whether it keeps the limit; None if nothing was run that tells.
    """

    name: str
    limit: str
    figure: str
    is_met: bool | None

    def __str__(self) -> str:
        met = {True: "met", False: "**not met**", None: "not run"}[self.is_met]
        return f"| {self.name} | {self.limit} | {self.figure} | {met} |"


def _at_least(name: str, least: float, found: Sequence[bool]) -> Target:
    is_met = fmean(found) >= least if found else None
    return Target(name, f"at least {least:.0%}", _share(found), is_met)


def _at_most(name: str, most: float, found: Sequence[bool]) -> Target:
    is_met = fmean(found) <= most if found else None
    return Target(name, f"at most {most:.0%}", _share(found), is_met)


def targets_of_diagnoses(records: list[Record]) -> list[Target]:
    """Return what diagnoses are to show, with what they show."""
    good = [r for r in records if r["score"] >= LEAST_SCORE]
    bad = [r for r in records if r["score"] < LEAST_SCORE]
    declared = [r for r in records if not r["broken_by_design"]]
    balanced = None
    if good and bad:
        right = fmean(r["holds"] is True for r in good)
        balanced = (right + fmean(r["holds"] is not True for r in bad)) / 2
    named = [r["broken_by_design"] in r["broken"] for r in bad if r["broken_by_design"]]
    expected = [(r["expected_score"], r["score"]) for r in declared]
    covered = [e is not None and abs(e["value"] - score) <= COVERED for e, score in expected]
    timed = [r for r in records if r["seconds"]]
    slow = [r["diagnosis_seconds"] > MOST_FITS * r["seconds"] for r in timed]
    checking = [r["checks_seconds"] > MOST_SHARE * r["seconds"] for r in timed]
    return [
        Target(
            "balanced accuracy of the claim",
            "at least 95%",
            "none run" if balanced is None else f"{balanced:.1%}",
            None if balanced is None else balanced >= 0.95,
        ),
        _at_most(
            "false alarms as declared",
            0.05,
            [r["holds"] is False and r["score"] >= LEAST_SCORE for r in declared],
        ),
        _at_least("broken assumption named where the score suffers", 0.85, named),
        _at_least(f"expected score within ±{COVERED} as declared", 0.9, covered),
        _at_most(f"diagnoses that take more than {MOST_FITS:g} fits", 0.0, slow),
        _at_most(f"fits with more than {MOST_SHARE:.0%} of their time in checks", 0.0, checking),
    ]


def target_of_p_values(records: list[Record]) -> Target:
    """Return whether p-values of worlds as declared are uniform, by the check that is least so."""
    found = {k: v for k, v in p_values_as_declared(records).items() if len(v) >= FEWEST_VALUES}
    tests = {key: float(stats.kstest(values, "uniform").pvalue) for key, values in found.items()}
    name, limit = "p-values uniform as declared", f"every check, together at a level of {LEVEL:g}"
    if not tests:
        return Target(name, limit, f"no check has {FEWEST_VALUES} p-values", None)
    failed = [key for key, value in tests.items() if value < LEVEL / len(tests)]
    figure = f"not uniform: {', '.join(failed)}" if failed else f"all of {len(tests)}"
    return Target(name, limit, figure, not failed)


def target_of_null(records: list[Record]) -> Target:
    """Return how often shuffled pairs are said to share nothing."""
    silent = [
        r["is_null"] and r["claims"] is None and r["broken"][:1] == ["information"] for r in records
    ]
    is_met = all(silent) and len(silent) >= NULL_SEEDS if silent else None
    return Target("shuffled pairs called so", "100 of 100", _share(silent), is_met)


def targets_of_choice(records: list[Record]) -> list[Target]:
    """Return what choices are to show, with what they show."""
    right = [r["is_true"] or r["true_is_tied"] for r in records]
    near = [
        r["n_factors"] is not None and abs(r["n_factors"] - r["true_factors"]) <= 1 for r in records
    ]
    close = ["score" in r and r["true_score"] - r["score"] <= MAX_BEHIND for r in records]
    return [
        _at_least("choose: true space and conditional, or tied with them", 0.9, right),
        _at_least("choose: number of factors within one", 0.9, near),
        _at_least(f"choose: score within {MAX_BEHIND} of that of the true beliefs", 0.9, close),
    ]


def _half(records: list[Record]) -> list[str]:
    """Return the lines about one half of the worlds, beside its targets."""
    good = [r for r in records if r["score"] >= LEAST_SCORE]
    bad = [r for r in records if r["score"] < LEAST_SCORE]
    declared = [r for r in records if not r["broken_by_design"]]
    suffers = [r for r in bad if r["broken_by_design"]]
    first = [r["broken"][:1] == [r["broken_by_design"]] for r in suffers]
    harmless = [r for r in good if r["broken_by_design"]]
    lines = [
        f"- claims that hold and are said to: {_share([r['holds'] is True for r in good])}; "
        f"that do not, and are not said to: {_share([r['holds'] is not True for r in bad])}",
        f"- cannot tell: {_share([r['holds'] is None for r in records])}",
        f"- as declared, with a contradicted assumption: "
        f"{_share([bool(r['broken']) for r in declared])}",
        f"- broken assumption named first where the score suffers: {_share(first)}",
        "- broken assumption named where the score does not suffer: "
        f"{_share([r['broken_by_design'] in r['broken'] for r in harmless])}",
    ]
    timed = [r for r in records if r["seconds"]]
    if timed:
        ratios = [r["diagnosis_seconds"] / r["seconds"] for r in timed]
        shares = [r["checks_seconds"] / r["seconds"] for r in timed]
        lines.append(
            f"- time of a diagnosis, in fits: median {median(ratios):.1f}, most {max(ratios):.1f}; "
            f"share of the checks inside a fit: median {median(shares):.1%}, most {max(shares):.1%}"
        )
    return lines


def p_values_as_declared(records: list[Record]) -> dict[str, list[float]]:
    """Return the p-values of worlds as declared, by check; of the information all are small."""
    values: dict[str, list[float]] = {}
    for record in records:
        for check in record["checks"] if not record["broken_by_design"] else ():
            if check["p_value"] is not None and check["key"] != "information":
                values.setdefault(check["key"], []).append(check["p_value"])
    return values


def _uniformity(records: list[Record]) -> list[str]:
    """Return a table of Kolmogorov-Smirnov tests of p-values in worlds as declared."""
    values = p_values_as_declared(records)
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
    names = {name for name, _ in kinds[DIAGNOSIS]}
    lines.append(f"{len(names)} of {len(WORLDS)} worlds were diagnosed.")
    null, chosen = ([record for _, record in kinds[name]] for name in (NULL, CHOOSE))
    head = ["| target | limit | found | |", "|---|---|---|---|"]
    lines += ["", "## Targets", "", *head]
    targets = [*targets_of_diagnoses(diagnosed), target_of_p_values(diagnosed)]
    lines += map(str, [*targets, target_of_null(null), *targets_of_choice(chosen)])
    for is_held_back, name in ((False, "tuning"), (True, "held back")):
        half = [
            record
            for world, record in kinds[DIAGNOSIS]
            if WORLDS[world].is_held_back == is_held_back
        ]
        if half:
            lines += ["", f"## {len(half)} diagnoses, {name}", "", *head]
            lines += [*map(str, targets_of_diagnoses(half)), "", *_half(half)]
    if diagnosed:
        lines += ["", "## p-values of worlds as declared", "", *_uniformity(diagnosed)]
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
            f"| {name} | {'held back' if WORLDS[name].is_held_back else 'tuning'} | "
            f"{record['broken_by_design'] or 'none'} | {record['score']:.3f} | {record['holds']} | "
            f"{', '.join(record['broken'])} | {value} |"
        )
    return "\n".join([*lines, *(["", "## Failures", "", *failures] if failures else []), ""])


def program() -> str:
    """Return the identity of what the records depend on: the package, and the worlds."""
    worlds = Path(__file__).with_name("diagnosis_worlds.py")
    return f"{program_digest('isolatent.diagnosis')}-{digest_code(worlds)}"


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
