"""The page of experiments: every cell's runs beside what was published."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

from isolatent.experiments.results import Row as Result
from isolatent.experiments.results import centre_and_spread, ours_text, rows_of, spread_text
from isolatent.report.page import (
    Cell,
    Curve,
    Facts,
    Matrix,
    Moment,
    Page,
    Row,
    Scatter,
    Score,
    Strips,
)
from isolatent.report.stored import Results
from isolatent.report.table import score_name
from isolatent.report.verdicts import judge, worst

__all__ = ["page_of_runs"]

Record: TypeAlias = Mapping[str, Any]

SCORED = {
    "identity": "observations as they are",
    "unsupervised": "recovered",
    "supervised": "trained on the factors",
}
QUALITY = "linear_r2"  # what runs measure while they train
ALIGNED = {
    "assignment": "after the best assignment, and with the sign that correlates",
    "linear": "after the best linear map, fitted on other observations",
}


def page_of_runs(results: Sequence[Results], title: str = "") -> Page:
    """Show every cell of some experiments, compared with what was published for it.

    A record is what :func:`isolatent.experiments.execute` gives; what it lacks is not shown.
    Figures of factors and weights are those of the run with the median score.

    Args:
        results: Each an experiment and its records, as :func:`read_results` gives them.
        title: The page's heading; the experiments' names if empty.

    Example:
        >>> paper = {"unsupervised": {"mcc": {"value": 99.0}}}
        >>> cell = {"name": "vmf", "metrics": ["mcc"], "published": paper}
        >>> record = {"cell": "vmf", "seed": 0, "scores": {"unsupervised": {"mcc": 0.9}}}
        >>> page_of_runs([({"name": "own", "cells": [cell]}, [record])]).table[0].verdict.text
        'worse'
    """
    names = list(dict.fromkeys(str(experiment["name"]) for experiment, _ in results))
    made = list(_made(results, several=len(names) > 1))
    table = tuple(row for rows, _ in made for row in rows)
    return Page(
        title or ", ".join(names) or "Report of runs",
        (*_told(results), *_summary(table)),
        table,
        tuple(cell for _, cell in made),
        _versions(record for _, records in results for record in records),
    )


def _made(results: Sequence[Results], several: bool) -> Iterator[tuple[list[Row], Cell]]:
    taken: Counter[str] = Counter()
    for experiment, records in results:
        rows = rows_of(experiment, records)
        for spec in experiment["cells"]:
            name = str(spec["name"])
            heading = f"{experiment['name']}: {name}" if several else name
            taken[heading] += 1
            if taken[heading] > 1:  # the same experiment in two directories
                heading = f"{heading} ({taken[heading]})"
            own = [record for record in records if record["cell"] == name]
            yield _rows_and_cell(heading, spec, [row for row in rows if row.cell == name], own)


def _rows_and_cell(
    heading: str, spec: Mapping[str, Any], rows: list[Result], records: list[Record]
) -> tuple[list[Row], Cell]:
    # The approach that is the point: the model, if it was asked for. One row for each metric.
    table = [Row(heading, row, judge(row)) for row in rows if row.approach == rows[-1].approach]
    result = table[0].result
    shown = _median(records, result)
    learned, truth = _weights(shown.get("scale"))
    cell = Cell(
        heading,
        verdict=worst([row.verdict for row in table]),
        facts=_facts(spec, records, result, shown),
        scores=_scores(records, rows, _promised(shown)),
        curves=tuple(c for record in records if (c := _curve(record)).moments),
        quality=score_name(QUALITY),
        correlations=_absolute(shown.get("correlation")),
        scatter=_scatter(shown.get("scatter")),
        factors=tuple(map(str, shown.get("factors") or ())),
        alignment=""
        if shown.get("strips")
        else ALIGNED.get(shown.get("alignment", "assignment"), ""),
        strips=_strips(shown.get("strips")),
        learned=learned,
        truth=truth,
        paired=True,
        guarantee=g if isinstance(g := shown.get("guarantee"), Mapping) else None,
        spec=spec,
        command=None if (command := shown.get("command")) is None else str(command),
        errors=tuple(
            f"seed {record.get('seed', '?')} {record.get('status', 'failed')}: {error}"
            for record in records
            if (error := record.get("error"))
        ),
    )
    return table, cell


def _told(results: Sequence[Results]) -> Iterator[str]:
    """The titles and notes of the experiments."""
    for experiment, _ in results:
        title, note = (str(experiment.get(key) or "") for key in ("title", "note"))
        parts = [part if part.endswith(".") else f"{part}." for part in (title, note) if part]
        if parts:
            yield (f"{experiment['name']}: " if len(results) > 1 else "") + " ".join(parts)


def _summary(table: Sequence[Row]) -> tuple[str, ...]:
    counts = Counter(row.result.verdict for row in table)
    told = "; ".join(f"{count} {text}" for text, count in counts.most_common())
    rows = "1 row" if len(table) == 1 else f"{len(table)} rows"
    bad = [row.cell for row in table if row.verdict.is_bad]
    return (f"{rows}: {told}." if table else "There are no runs.",) + (
        (f"Not reached: {', '.join(bad)}.",) if bad else ()
    )


def _facts(spec: Mapping[str, Any], records: list[Record], result: Result, shown: Record) -> Facts:
    name = score_name(result.metric)
    facts = []
    if result.ours is not None:
        ours = "Ours (median)" if result.centre == "median" else "Ours"
        facts.append((f"{ours}, {name}", f"{ours_text(result)} %"))
    if result.published is not None:
        facts.append((f"Paper, {name}", f"{spread_text(result.published, result.spread)} %"))
    if seeds := ", ".join(str(r["seed"]) for r in records if r.get("seed") is not None):
        facts.append(("Seeds", seeds))
    times = [(record.get("seconds") or {}).get("total") for record in records]
    if seconds := [s for time in times if (s := _number(time)) is not None]:
        facts.append(("Time of a run", f"{statistics.fmean(seconds):.3g} s"))
    if result.seeds > 1 and shown.get("seed") is not None:
        facts.append(("Run shown below", f"seed {shown['seed']}, the median"))
    facts += _measures(shown.get("measures"))
    if spec.get("note"):
        facts.append(("Note", str(spec["note"])))
    told = dict.fromkeys(str(text) for record in records for text in record.get("warnings") or ())
    return (*facts, *(("Warning", text) for text in told))


def _measures(measures: Any) -> Iterator[tuple[str, str]]:
    for name, value in measures.items() if isinstance(measures, Mapping) else ():
        parts = value.items() if isinstance(value, Mapping) else [("", value)]
        known = [(part, shown) for part, item in parts if (shown := _shown(item)) is not None]
        if known:
            text = ", ".join(f"{part.replace('_', ' ')} {shown}".strip() for part, shown in known)
            yield str(name).replace("_", " ").capitalize(), text


def _shown(item: Any) -> str | None:
    """A number, a word, or yes and no."""
    if isinstance(item, bool):
        return "yes" if item else "no"
    number = _number(item)
    return item if isinstance(item, str) else None if number is None else f"{number:.3g}"


def _versions(records: Iterable[Record]) -> Facts:
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, number in (record.get("versions") or {}).items():
            found.setdefault(str(name), {})[str(number)] = None
    told = [f"{name} {' and '.join(numbers)}" for name, numbers in sorted(found.items())]
    return (("Software", ", ".join(told)),) if told else ()


def _promised(record: Record) -> str | None:
    guarantee = record.get("guarantee")
    if isinstance(guarantee, Mapping) and guarantee.get("equivalence"):
        return str(guarantee.get("metric"))
    return None


def _scores(records: list[Record], rows: list[Result], promised: str | None) -> tuple[Score, ...]:
    """Every score that is a single number, in per cent, with the paper's where it has one."""
    found = []
    for approach in dict.fromkeys(row.approach for row in rows):
        of = SCORED.get(approach, approach)
        own = [(record.get("scores") or {}).get(approach) or {} for record in records]
        for name in dict.fromkeys(name for scores in own for name in scores):
            values = [100 * v for scores in own if (v := _number(scores.get(name))) is not None]
            if values:
                text = spread_text(*centre_and_spread(values, rows[0].centre)) + " %"
                bold = approach == "unsupervised" and name == promised
                found.append(Score(name, of, text, bold))
        for row in rows:
            if row.approach == approach and None not in (row.ours, row.published):
                text = spread_text(row.published, row.spread) + " %"
                found.append(Score(row.metric, f"{of}, paper", text))
    return tuple(found)


def _median(records: list[Record], result: Result) -> Record:
    """The record with the median score; any where there is no score."""
    scored = [
        (v, k)
        for k, record in enumerate(records)
        if (
            v := _number(
                ((record.get("scores") or {}).get(result.approach) or {}).get(result.metric)
            )
        )
        is not None
    ]
    if not scored:
        return records[0] if records else {}
    return records[sorted(scored)[(len(scored) - 1) // 2][1]]


def _curve(record: Record) -> Curve:
    steps = record.get("curve")
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
    return Curve(f"seed {record.get('seed', '?')}", moments)


def _scatter(value: Any) -> Scatter | None:
    if not isinstance(value, Mapping):
        return None
    true, codes = _matrix(value.get("true")), _matrix(value.get("recovered"))
    return Scatter(true, codes) if true and len(true) == len(codes) else None


def _strips(value: Any) -> Strips | None:
    if not isinstance(value, Mapping) or not value.get("rows"):
        return None
    return Strips(
        str(value.get("kind")),
        tuple(map(str, value["rows"])),
        int(value["columns"]),
        int(value["size"]),
    )


def _weights(scale: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The learned and the true scale or weights; those of several ways one after the other."""
    if not isinstance(scale, Mapping):
        return (), ()
    learned, truth = (_flat(scale.get(key)) for key in ("learned", "true"))
    return learned, truth if len(truth) in (1, len(learned)) else ()


def _flat(value: Any) -> tuple[float, ...]:
    """Numbers, however they are nested; nothing if something else is among them."""
    if isinstance(value, list | tuple):
        parts = [_flat(item) for item in value]
        return tuple(v for part in parts for v in part) if all(parts) else ()
    return () if (single := _number(value)) is None else (single,)


def _absolute(value: Any) -> Matrix:
    return tuple(tuple(map(abs, row)) for row in _matrix(value))


def _matrix(value: Any) -> Matrix:
    """Rows of equal length; nothing if it is something else."""
    rows = tuple(
        tuple(math.nan if (v := _number(item)) is None else v for item in row)
        for row in (value if isinstance(value, Sequence) else ())
        if isinstance(row, Sequence)
    )
    return rows if len({len(row) for row in rows}) == 1 and rows[0] else ()


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None
