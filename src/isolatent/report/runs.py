"""The page of experiments: every cell's runs beside what was published."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from isolatent.experiments.image_cells import ImageCell
from isolatent.experiments.results import Row as Result
from isolatent.experiments.results import centre_and_spread, ours_text, rows_of, spread_text
from isolatent.report.page import Cell, Facts, Page, Row, Score
from isolatent.report.reading import (
    Record,
    read_absolute,
    read_curve,
    read_number,
    read_scatter,
    read_strips,
    read_weights,
)
from isolatent.report.stored import Results
from isolatent.report.table import score_name
from isolatent.report.verdicts import judge, worst

__all__ = ["page_of_runs"]

SCORED = {
    "identity": "observations as they are",
    "unsupervised": "recovered",
    "supervised": "trained on the factors",
}
ELSEWHERE = "again"  # a directory for runs that are done once more
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
    learned, truth = read_weights(shown.get("scale"))
    cell = Cell(
        heading,
        verdict=worst([row.verdict for row in table]),
        facts=_facts(spec, records, result, shown),
        scores=_scores(records, rows, _promised(shown)),
        intervals=tuple(_intervals(records, result.approach)),
        curves=tuple(c for record in records if (c := read_curve(record)).moments),
        quality=score_name(QUALITY),
        correlations=read_absolute(shown.get("correlation")),
        scatter=read_scatter(shown.get("scatter")),
        factors=tuple(map(str, shown.get("factors") or ())),
        categories=tuple(map(str, shown.get("categories") or ())),
        alignment=""
        if shown.get("strips")
        else ALIGNED.get(shown.get("alignment", "assignment"), ""),
        strips=read_strips(shown.get("strips")),
        learned=learned,
        truth=truth,
        paired=True,
        guarantee=_guarantee(spec, shown),
        spec=spec,
        command=_again(shown.get("command")),
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
    bad: dict[str, list[str]] = {}
    for row in table:
        if row.verdict.is_bad:
            bad.setdefault(row.cell, []).append(score_name(row.result.metric))
    several = any(len(scores) > 1 for scores in bad.values())
    parts = (f"{cell} ({', '.join(scores)})" if several else cell for cell, scores in bad.items())
    return (f"{rows}: {told}." if table else "There are no runs.",) + (
        (f"Not reached: {'; '.join(parts) if several else ', '.join(parts)}.",) if bad else ()
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
    if seconds := [s for time in times if (s := read_number(time)) is not None]:
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
    if isinstance(item, str):
        return item
    number = read_number(item)
    if number is None:
        return None
    return str(item) if isinstance(item, int) else f"{number:.3g}"


def _versions(records: Iterable[Record]) -> Facts:
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, number in (record.get("versions") or {}).items():
            found.setdefault(str(name), {})[str(number)] = None
    told = [f"{name} {' and '.join(numbers)}" for name, numbers in sorted(found.items())]
    return (("Software", ", ".join(told)),) if told else ()


def _guarantee(spec: Mapping[str, Any], record: Record) -> Mapping[str, Any] | None:
    """The card of a run; that of images follows from the cell alone, so that all have one."""
    if "images" in (spec.get("world") or {}):
        try:
            return ImageCell.model_validate(spec).guarantee().to_dict()
        except ValidationError:
            pass
    card = record.get("guarantee")
    return card if isinstance(card, Mapping) else None


def _again(command: Any) -> str | None:
    """What does a run once more: in a directory of its own, since what is finished is not done."""
    if not isinstance(command, str):
        return None
    return command if "--out" in command else f"{command} --out {ELSEWHERE}"


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
            values = [100 * v for scores in own if (v := read_number(scores.get(name))) is not None]
            if values:
                text = spread_text(*centre_and_spread(values, rows[0].centre)) + " %"
                bold = approach == "unsupervised" and name == promised
                found.append(Score(name, of, text, bold))
        for row in rows:
            if row.approach == approach and None not in (row.ours, row.published):
                text = spread_text(row.published, row.spread) + " %"
                found.append(Score(row.metric, f"{of}, paper", text))
    return tuple(found)


def _intervals(records: list[Record], approach: str) -> Iterator[Score]:
    """The scores of each run that has intervals for them."""
    for record in records:
        known, scores = record.get("intervals"), (record.get("scores") or {}).get(approach) or {}
        for name, bounds in known.items() if isinstance(known, Mapping) else ():
            ends = bounds if isinstance(bounds, Sequence) and len(bounds) == 2 else (None, None)
            value, low, high = map(read_number, (scores.get(name), *ends))
            if value is not None and low is not None and high is not None:
                text = f"{100 * value:.2f} [{100 * low:.2f}, {100 * high:.2f}]"
                yield Score(str(name), f"seed {record.get('seed', '?')}", text)


def _median(records: list[Record], result: Result) -> Record:
    """The record with the median score; any where there is no score."""
    scored = [
        (v, k)
        for k, record in enumerate(records)
        if (
            v := read_number(
                ((record.get("scores") or {}).get(result.approach) or {}).get(result.metric)
            )
        )
        is not None
    ]
    if not scored:
        return records[0] if records else {}
    return records[sorted(scored)[(len(scored) - 1) // 2][1]]
