"""The page of an experiment: many runs, each a plain dictionary, beside what was published."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

from isolatent.report.page import Cell, Curve, Facts, Matrix, Moment, Page, Row, Scatter, Score
from isolatent.report.table import score_name
from isolatent.report.verdicts import Estimate, Verdict, compare, failed

__all__ = ["page_of_runs"]

Run: TypeAlias = Mapping[str, Any]

OURS = "unsupervised"
SCORED = {
    "identity": "observations as they are",
    OURS: "recovered",
    "supervised": "trained on the factors",
}


def page_of_runs(runs: Sequence[Run], title: str = "") -> Page:
    """Group runs by experiment and cell, and compare each cell with what was published.

    What a run lacks is not shown. A run whose ``"error"`` is set counts as failed, whatever else
    it holds. Figures of factors and weights are those of the run with the median score.

    Args:
        runs: Dictionaries with ``"experiment"``, ``"cell"`` and, as far as there are,
            ``"seed", "spec", "score", "scores", "published", "limits", "curve", "correlations",
            "scatter", "learned", "truth", "guarantee", "seconds", "versions", "command", "error"``.
        title: The page's heading; the experiments' names if empty.

    Example:
        >>> run = {"experiment": "table1", "cell": "vmf", "score": "mcc",
        ...        "scores": {"unsupervised": {"mcc": 0.9}}, "published": {"value": 0.99}}
        >>> page_of_runs([run]).table[0].verdict.text
        'not reached: 0.0900 below the paper'
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for k, run in enumerate(runs):
        if not isinstance(run, Mapping) or "cell" not in run:
            raise ValueError(f"runs[{k}] must be a dictionary with 'experiment' and 'cell'")
        key = str(run.get("experiment") or ""), str(run["cell"])
        groups.setdefault(key, []).append(run)
    several = len({experiment for experiment, _ in groups}) > 1
    made = [
        _group(experiment, name, members, several) for (experiment, name), members in groups.items()
    ]
    table = tuple(row for row, _ in made)
    names = list(dict.fromkeys(row.experiment for row in table if row.experiment))
    return Page(
        title or ", ".join(names) or "Report of runs",
        _summary(table),
        table,
        tuple(cell for _, cell in made),
        _versions(runs),
    )


def _group(experiment: str, name: str, runs: list[Run], several: bool) -> tuple[Row, Cell]:
    done = [run for run in runs if not run.get("error")]
    published_score, published = _published(runs)
    score = next((str(run["score"]) for run in runs if run.get("score")), published_score)
    score = score or next((name for run in done for name in _names(run)), "")
    ours = Estimate.of([v for run in done if (v := _score(run, OURS, score)) is not None])
    verdict = _verdict(runs, done, ours, published)
    heading = f"{experiment}: {name}" if several and experiment else name
    shown = _median(done, score)
    cell = Cell(
        heading,
        verdict=verdict,
        facts=_facts(runs, done, ours, published, score, shown),
        scores=_scores(done, _promised(shown)),
        curves=tuple(c for run in done if (c := _curve(run)).moments),
        quality=score_name(score) or "score",
        correlations=_matrix(shown.get("correlations")),
        scatter=_scatter(shown.get("scatter")),
        alignment=str(shown.get("alignment") or ""),
        learned=_numbers(shown.get("learned")),
        truth=_numbers(shown.get("truth")),
        guarantee=g if isinstance(g := shown.get("guarantee"), Mapping) else None,
        spec=s if isinstance(s := (shown or runs[0]).get("spec"), Mapping) else None,
        command=_text((shown or runs[0]).get("command")),
        errors=tuple(
            f"seed {run.get('seed', '?')}: {run['error']}" for run in runs if run.get("error")
        ),
    )
    return Row(experiment, heading, score, ours, published, verdict, len(runs)), cell


def _verdict(
    runs: list[Run], done: list[Run], ours: Estimate | None, published: Estimate | None
) -> Verdict:
    lost = len(runs) - len(done)
    if not done:
        return failed("all runs failed" if lost > 1 else "the run failed")
    verdict = compare(ours, published, any(run.get("limits") for run in runs))
    if lost:
        kind = verdict.kind if verdict.is_bad else "failed"
        return Verdict(kind, f"{lost} of {len(runs)} runs failed; the others: {verdict.text}")
    return verdict


def _summary(table: Sequence[Row]) -> tuple[str, ...]:
    counts = Counter(row.verdict.kind for row in table)
    words = {
        "reached": "reached",
        "above": "above the paper",
        "missed": "not reached",
        "failed": "with failed runs",
        "limit": "shown by the paper as not identified",
        "open": "without a published figure",
    }
    told = ", ".join(f"{counts[kind]} {text}" for kind, text in words.items() if counts[kind])
    rows = "1 row" if len(table) == 1 else f"{len(table)} rows"
    bad = [row.cell for row in table if row.verdict.is_bad]
    return (f"{rows}: {told}." if table else "There are no runs.",) + (
        (f"Not reached: {', '.join(bad)}.",) if bad else ()
    )


def _facts(
    runs: list[Run],
    done: list[Run],
    ours: Estimate | None,
    published: Estimate | None,
    score: str,
    shown: Run,
) -> Facts:
    facts = []
    if ours is not None:
        facts.append((f"Ours, {score_name(score)}", f"{ours}, {ours.seeds} of {len(runs)} runs"))
    if published is not None:
        facts.append((f"Paper, {score_name(score)}", str(published)))
    seeds = [str(run["seed"]) for run in runs if run.get("seed") is not None]
    if seeds:
        facts.append(("Seeds", ", ".join(seeds)))
    seconds = [s for run in done if (s := _number(run.get("seconds"))) is not None]
    if seconds:
        facts.append(("Time of a run", f"{statistics.fmean(seconds):.3g} s"))
    if len(done) > 1 and shown.get("seed") is not None:
        facts.append(("Run shown below", f"the median one, seed {shown['seed']}"))
    return tuple(facts)


def _versions(runs: Iterable[Run]) -> Facts:
    found: dict[str, list[str]] = {}
    for run in runs:
        versions = run.get("versions")
        for name, number in versions.items() if isinstance(versions, Mapping) else ():
            if str(number) not in found.setdefault(str(name), []):
                found[str(name)].append(str(number))
    return tuple((name, ", ".join(numbers)) for name, numbers in sorted(found.items()))


def _published(runs: list[Run]) -> tuple[str | None, Estimate | None]:
    for run in runs:
        published = run.get("published")
        if (
            isinstance(published, Mapping)
            and (value := _number(published.get("value"))) is not None
        ):
            spread = _number(published.get("spread"))
            return _text(published.get("score")), Estimate(value, spread)
    return None, None


def _promised(run: Run) -> str | None:
    guarantee = run.get("guarantee")
    if isinstance(guarantee, Mapping) and guarantee.get("equivalence"):
        return _text(guarantee.get("metric"))
    return None


def _scores(done: list[Run], promised: str | None) -> tuple[Score, ...]:
    kinds = list(SCORED)
    names: list[str] = []
    for run in done:
        scores = run.get("scores")
        for kind, values in scores.items() if isinstance(scores, Mapping) else ():
            kinds += [kind] if kind not in kinds else []
            names += [n for n in values if n not in names] if isinstance(values, Mapping) else []
    found = []
    for kind in kinds:
        for name in names:
            estimate = Estimate.of(
                [v for run in done if (v := _score(run, kind, name)) is not None]
            )
            if estimate is not None:
                bold = kind == OURS and name == promised
                found.append(Score(name, SCORED.get(kind, str(kind)), str(estimate), bold))
    return tuple(found)


def _names(run: Run) -> list[str]:
    """The scores of a run's codes."""
    scores = run.get("scores")
    values = scores.get(OURS) if isinstance(scores, Mapping) else None
    return list(map(str, values)) if isinstance(values, Mapping) else []


def _score(run: Run, kind: str, name: str) -> float | None:
    scores = run.get("scores")
    values = scores.get(kind) if isinstance(scores, Mapping) else None
    value = values.get(name) if isinstance(values, Mapping) else None
    return _number(value.get("value") if isinstance(value, Mapping) else value)


def _median(done: list[Run], score: str) -> Run:
    scored = [(v, k) for k, run in enumerate(done) if (v := _score(run, OURS, score)) is not None]
    if not scored:
        return done[0] if done else {}
    return done[sorted(scored)[(len(scored) - 1) // 2][1]]


def _curve(run: Run) -> Curve:
    steps = run.get("curve")
    moments = tuple(
        Moment(
            int(step["number"]),
            *(
                _number(step.get(name))
                for name in ("loss", "held_out", "information", "scale", "quality")
            ),
        )
        for step in (steps if isinstance(steps, Sequence) else ())
        if isinstance(step, Mapping) and _number(step.get("number")) is not None
    )
    return Curve(f"seed {run.get('seed', '?')}", moments)


def _scatter(value: Any) -> Scatter | None:
    if not isinstance(value, Mapping):
        return None
    true, codes = _matrix(value.get("true")), _matrix(value.get("codes"))
    return Scatter(true, codes) if true and len(true) == len(codes) else None


def _matrix(value: Any) -> Matrix:
    """Rows of equal length; nothing if it is something else."""
    rows = tuple(
        tuple(math.nan if (v := _number(item)) is None else v for item in row)
        for row in (value if isinstance(value, Sequence) else ())
        if isinstance(row, Sequence)
    )
    return rows if len({len(row) for row in rows}) == 1 and rows[0] else ()


def _numbers(value: Any) -> tuple[float, ...]:
    if (single := _number(value)) is not None:
        return (single,)
    values = [_number(item) for item in (value if isinstance(value, Sequence) else ())]
    return tuple(v for v in values if v is not None) if None not in values else ()


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
