"""The page of experiments: the runs of every cell beside the published scores."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from isolatent.experiments.image_cells import ImageCell
from isolatent.experiments.results import (
    OURS,
    Row,
    centre_and_spread,
    no_verdict,
    ours_text,
    program_text,
    rows_of,
    seconds_of_runs,
    spread_text,
)
from isolatent.report.page import (
    APPROACH_LABELS,
    Comparison,
    Facts,
    Headline,
    Page,
    Score,
    Section,
    Verdict,
)
from isolatent.report.records import (
    Record,
    Results,
    read_absolute,
    read_curve,
    read_number,
    read_scatter,
    read_traversal,
    read_weights,
)
from isolatent.report.tables import score_name

__all__ = ["judge", "page_of_runs"]

RERUN_DIRECTORY = "again"  # in the commands that repeat a run
QUALITY_METRIC = "linear_r2"  # measured by runs during training
# Verdicts of `isolatent.experiments.verdict` that start with "within" are "reached".
VERDICT_KINDS = {
    "worse": "missed",
    "better": "above",
    "fails as published": "limit",
    "identified here, not in the paper": "missed",
    "fails as claimed": "limit",
    "identified, against the claim": "open",  # a claim without a published score
    "nothing published": "open",
    "missing": "missing",
    "diverged": "failed",
    "failed": "failed",
}
REACHED = ("reached", "above", "limit")


def page_of_runs(results: Sequence[Results]) -> Page:
    """Return a page with every cell of some experiments, compared with the published scores.

    A record is the result of :func:`isolatent.experiments.execute`; missing fields are not shown.
    Figures of factors and weights are those of the run with the median score.

    Args:
        results: Experiments and their records, as :func:`read_results` returns them.

    Example:
        >>> paper = {"unsupervised": {"mcc": {"value": 99.0}}}
        >>> cell = {"name": "vmf", "metrics": ["mcc"], "published": paper}
        >>> scores = {"unsupervised": {"mcc": 0.9}}
        >>> record = {"cell": "vmf", "objective": "InfoNCE", "scores": scores}
        >>> page_of_runs([({"name": "own", "cells": [cell]}, [record] * 3)]).table[0].verdict.text
        'worse'
    """
    names = list(dict.fromkeys(str(experiment["name"]) for experiment, _ in results))
    parts = list(_comparisons_and_sections(results, several=len(names) > 1))
    table = tuple(compared for comparisons, _ in parts for compared in comparisons)
    return Page(
        ", ".join(names) or "Report of runs",
        (*_titles_and_notes(results), *_summary(table)),
        table,
        tuple(section for _, section in parts),
        _versions(record for _, records in results for record in records),
        headline=_headline(table),
    )


def judge(row: Row) -> Verdict:
    """Return the verdict on a row, which also counts the runs without a score.

    Where nothing was published, a run that diverged or is missing does no harm. With an objective
    that is not the paper's no score counts as reached, but a lower one counts as missed.
    """
    kind = VERDICT_KINDS.get(row.verdict.removeprefix(OURS), "reached")
    if no_verdict(row):
        kind = "open"
    elif row.verdict.startswith(OURS) and row.verdict != f"{OURS}worse":
        kind = "ours"
    lost = row.runs - row.seeds
    if kind in ("missing", "failed"):
        harmless = row.published is None and row.verdict != "failed"
        return Verdict("open" if harmless else kind, row.verdict)
    if lost:
        text = f"{row.verdict}; {lost} of {row.runs} runs without a score"
        return Verdict("failed" if row.published is not None else kind, text)
    return Verdict(kind, row.verdict)


def _comparisons_and_sections(
    results: Sequence[Results], several: bool
) -> Iterator[tuple[list[Comparison], Section]]:
    taken: Counter[str] = Counter()
    for experiment, records in results:
        rows = rows_of(experiment, records)
        for spec in experiment["cells"]:
            name = str(spec["name"])
            heading = f"{experiment['name']}: {name}" if several else name
            taken[heading] += 1
            if taken[heading] > 1:  # the same experiment in two directories
                heading = f"{heading} ({taken[heading]})"
            own_rows = [row for row in rows if row.cell == name]
            # Only the last approach is compared: the model itself, if it was run.
            comparisons = [
                Comparison(heading, row, judge(row))
                for row in own_rows
                if row.approach == own_rows[-1].approach
            ]
            own = [record for record in records if record["cell"] == name]
            yield comparisons, _section(spec, comparisons, own_rows, own)


def _section(
    spec: Mapping[str, Any],
    comparisons: Sequence[Comparison],
    rows: list[Row],
    records: list[Record],
) -> Section:
    compared = comparisons[0].row
    shown = _median_record(records, compared)
    learned, truth = read_weights(shown.get("scale"))
    traversal = read_traversal(shown)
    # The codes of images are not aligned.
    alignment = "" if traversal else str(shown.get("alignment") or "assignment")
    return Section(
        comparisons[0].section,
        verdict=min((c.verdict for c in comparisons), key=lambda verdict: verdict.rank),
        facts=_facts(spec, records, compared, shown),
        scores=_scores(records, rows, _guaranteed_metric(shown)),
        intervals=tuple(_intervals(records, compared.approach)),
        seeds=_seeds(records, comparisons),
        published={
            c.row.metric: (c.row.published, c.row.spread)
            for c in comparisons
            if c.row.published is not None
        },
        curves=tuple(curve for record in records if (curve := read_curve(record))),
        quality=score_name(QUALITY_METRIC),
        correlations=read_absolute(shown.get("correlation")),
        scatter=read_scatter(shown.get("scatter")),
        factors=tuple(map(str, shown.get("factors") or ())),
        categories=tuple(map(str, shown.get("categories") or ())),
        alignment=alignment,
        traversal=traversal,
        learned=learned,
        truth=truth,
        paired=True,
        guarantee=_guarantee(spec, shown),
        spec=spec,
        command=_rerun_command(shown.get("command")),
        errors=tuple(
            f"seed {record.get('seed', '?')} {record.get('status', 'failed')}: {error}"
            for record in records
            if (error := record.get("error"))
        ),
    )


def _seeds(
    records: list[Record], comparisons: Sequence[Comparison]
) -> dict[str, tuple[float, ...]]:
    """Return the scores of all runs in per cent, by the metric that is compared."""
    found = {}
    for compared in comparisons:
        row = compared.row
        scores = ((r.get("scores") or {}).get(row.approach) or {} for r in records)
        known = (read_number(own.get(row.metric)) for own in scores)
        if values := tuple(100 * value for value in known if value is not None):
            found[row.metric] = values
    return found


def _titles_and_notes(results: Sequence[Results]) -> Iterator[str]:
    for experiment, _ in results:
        title, note = (str(experiment.get(key) or "") for key in ("title", "note"))
        parts = [part if part.endswith(".") else f"{part}." for part in (title, note) if part]
        if parts:
            yield (f"{experiment['name']}: " if len(results) > 1 else "") + " ".join(parts)


def _headline(table: Sequence[Comparison]) -> Headline | None:
    """Return in one sentence how many published scores are reached."""
    if not table:
        return None
    kinds = Counter(compared.verdict.kind for compared in table)
    bad = sum(compared.verdict.is_bad for compared in table)
    reached, ours = sum(kinds[kind] for kind in REACHED), kinds["ours"]
    others = len(table) - bad - reached - ours
    parts = [f"{reached} of {len(table)} rows reach the published score or claim"]
    parts += [f"{bad} do not"] if bad else []
    parts += [f"{ours} reach it with an objective that is not the paper’s"] if ours else []
    parts += [f"{others} cannot be judged"] if others else []
    text = f"{'; '.join(parts)}."
    if bad:
        return Headline("bad", "In part" if reached or ours else "Not reproduced", text)
    if reached == len(table):
        return Headline("good", "Reproduced", text)
    return Headline("open", "In part" if reached or ours else "Not judged", text)


def _summary(table: Sequence[Comparison]) -> tuple[str, ...]:
    counts = Counter(compared.row.verdict for compared in table)
    counted = "; ".join(
        f"{count} with {text} only" if text[:1].isdigit() else f"{count} {text}"
        for text, count in counts.most_common()
    )
    rows = "1 row" if len(table) == 1 else f"{len(table)} rows"
    bad: dict[str, list[str]] = {}
    for compared in table:
        if compared.verdict.is_bad:
            bad.setdefault(compared.section, []).append(score_name(compared.row.metric))
    several = any(len(scores) > 1 for scores in bad.values())
    parts = (f"{name} ({', '.join(scores)})" if several else name for name, scores in bad.items())
    stale = sum(compared.row.stale > 0 for compared in table)
    return (
        f"{rows}: {counted}." if table else "No runs.",
        *([f"{stale} of {rows} stale: made by another program than today's."] if stale else []),
        *([f"Not reached: {'; '.join(parts) if several else ', '.join(parts)}."] if bad else []),
    )


def _facts(spec: Mapping[str, Any], records: list[Record], row: Row, shown: Record) -> Facts:
    name = score_name(row.metric)
    facts = []
    if row.ours is not None:
        ours = "Ours (median)" if row.centre == "median" else "Ours"
        facts.append((f"{ours}, {name}", f"{ours_text(row)} %"))
    if row.published is not None:
        facts.append((f"Paper, {name}", f"{spread_text(row.published, row.spread)} %"))
    if seeds := ", ".join(str(r["seed"]) for r in records if r.get("seed") is not None):
        facts.append(("Seeds", seeds))
    if row.objective:
        facts.append(("Objective", row.objective))
    if row.programs:
        facts.append(("Program", program_text(row)))
    seconds, kind = seconds_of_runs(records)
    if seconds:
        name = f"{kind.capitalize()} time of a run"
        facts.append((name, f"{statistics.fmean(seconds):.3g} s"))
    if row.seeds > 1 and shown.get("seed") is not None:
        facts.append(("Run shown below", f"seed {shown['seed']}, the median"))
    facts += _measures(shown.get("measures"))
    if spec.get("note"):
        facts.append(("Note", str(spec["note"])))
    texts = dict.fromkeys(str(text) for record in records for text in record.get("warnings") or ())
    return (*facts, *(("Warning", text) for text in texts))


def _measures(measures: Any) -> Iterator[tuple[str, str]]:
    for name, value in measures.items() if isinstance(measures, Mapping) else ():
        parts = value.items() if isinstance(value, Mapping) else [("", value)]
        known = [(part, text) for part, item in parts if (text := _measure_text(item)) is not None]
        if known:
            text = ", ".join(f"{part.replace('_', ' ')} {text}".strip() for part, text in known)
            yield str(name).replace("_", " ").capitalize(), text


def _measure_text(item: Any) -> str | None:
    """Format a number, a text or a truth value; return None for anything else."""
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
    listed = [f"{name} {' and '.join(numbers)}" for name, numbers in sorted(found.items())]
    return (("Software", ", ".join(listed)),) if listed else ()


def _guarantee(spec: Mapping[str, Any], record: Record) -> Mapping[str, Any] | None:
    """Return the guarantee of a run; that of an image cell follows from its specification."""
    if "images" in (spec.get("world") or {}):
        try:
            return ImageCell.model_validate(spec).guarantee().to_dict()
        except ValidationError:
            pass
    card = record.get("guarantee")
    return card if isinstance(card, Mapping) and "equivalence" in card else None


def _rerun_command(command: Any) -> str | None:
    """Return the command that repeats a run, in a new directory: finished runs are skipped."""
    if not isinstance(command, str):
        return None
    return command if "--out" in command else f"{command} --out {RERUN_DIRECTORY}"


def _guaranteed_metric(record: Record) -> str | None:
    guarantee = record.get("guarantee")
    if isinstance(guarantee, Mapping) and guarantee.get("equivalence"):
        return str(guarantee.get("metric"))
    return None


def _scores(records: list[Record], rows: list[Row], guaranteed: str | None) -> tuple[Score, ...]:
    """Return every score that is a single number, in per cent, beside the published ones."""
    found = []
    for approach in dict.fromkeys(row.approach for row in rows):
        label = APPROACH_LABELS.get(approach, approach)
        own = [(record.get("scores") or {}).get(approach) or {} for record in records]
        for metric in dict.fromkeys(metric for scores in own for metric in scores):
            known = (read_number(scores.get(metric)) for scores in own)
            values = [100 * value for value in known if value is not None]
            if values:
                text = spread_text(*centre_and_spread(values, rows[0].centre)) + " %"
                bold = approach == "unsupervised" and metric == guaranteed
                found.append(Score(metric, label, text, bold))
        for row in rows:
            if row.approach == approach and None not in (row.ours, row.published):
                text = spread_text(row.published, row.spread) + " %"
                found.append(Score(row.metric, f"{label}, paper", text))
    return tuple(found)


def _intervals(records: list[Record], approach: str) -> Iterator[Score]:
    """Yield the scores of each run that have confidence intervals."""
    for record in records:
        known, scores = record.get("intervals"), (record.get("scores") or {}).get(approach) or {}
        for metric, bounds in known.items() if isinstance(known, Mapping) else ():
            ends = bounds if isinstance(bounds, Sequence) and len(bounds) == 2 else (None, None)
            value, low, high = map(read_number, (scores.get(metric), *ends))
            if value is not None and low is not None and high is not None:
                text = f"{100 * value:.2f} [{100 * low:.2f}, {100 * high:.2f}]"
                yield Score(str(metric), f"seed {record.get('seed', '?')}", text)


def _median_record(records: list[Record], row: Row) -> Record:
    """Return the record with the median score, or the first one if none has a score."""
    scores = [
        ((record.get("scores") or {}).get(row.approach) or {}).get(row.metric) for record in records
    ]
    scored = sorted(
        (value, k) for k, score in enumerate(scores) if (value := read_number(score)) is not None
    )
    if not scored:
        return records[0] if records else {}
    return records[scored[(len(scored) - 1) // 2][1]]
