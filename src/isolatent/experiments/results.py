"""Tables of results beside published scores, as text, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from isolatent.checks import check_one_of
from isolatent.experiments.cells import CENTRES
from isolatent.experiments.objectives import (
    NOT_RECORDED,
    is_published_objective,
    objective_of_record,
    pool_objectives,
)
from isolatent.experiments.program import is_stale
from isolatent.experiments.store import Store

__all__ = [
    "FORMATS",
    "Row",
    "as_csv",
    "as_markdown",
    "centre_and_spread",
    "export",
    "make_row",
    "no_verdict",
    "ours_heading",
    "ours_text",
    "program_text",
    "rows_of",
    "seconds_of_runs",
    "seeds_text",
    "spread_text",
    "tabulate",
    "verdict",
]

FORMATS = ("markdown", "csv", "parquet")
CLOSE = 0.5  # percentage points
MIN_SEEDS = 3  # a row of fewer seeds has no verdict
OURS = "ours: "  # prefix of verdicts on runs whose objective is not the paper's
NOT_COMPARABLE = "not comparable"
UNKNOWN_OBJECTIVE = "objective not recorded"
NOT_IDENTIFIED = 80.0  # per cent; below it the single factors are not identified
# Verdicts on a claimed failure: confirmed or not.
LIMITS = ("fails as published", "identified here, not in the paper")
CLAIMED_LIMITS = ("fails as claimed", "identified, against the claim")  # no published score


@dataclass(frozen=True)
class Row:
    """One score of one cell, in per cent.

    Attributes:
        experiment: Name of the experiment.
        cell: Name of the cell.
        approach: ``"identity"``, ``"supervised"`` or ``"unsupervised"``.
        metric: Name of the metric.
        ours: Our mean or median over seeds.
        deviation: Our sample standard deviation or median absolute deviation over seeds; None
            with fewer than two seeds.
        centre: ``"mean"`` or ``"median"``, for our score and the published one.
        seeds: Number of runs that gave the score.
        runs: Number of runs that ended, with those that diverged or failed.
        published: The published mean or median.
        spread: The published deviation.
        difference: Our score minus the published one.
        verdict: The result of :func:`verdict`.
        objective: The objective that was trained with; empty for other approaches.
        programs: Digests of the programs of the runs; several are separated by " and ".
        stale: Number of seeds whose program is not today's.
    """

    experiment: str
    cell: str
    approach: str
    metric: str
    ours: float | None
    deviation: float | None
    centre: str
    seeds: int
    runs: int
    published: float | None
    spread: float | None
    difference: float | None
    verdict: str
    objective: str = ""
    programs: str = ""
    stale: int = 0


def tabulate(store: Store) -> list[Row]:
    """Return a row for each metric of each approach of each cell of the stored experiments."""
    return [
        row
        for experiment in store.experiments()
        for row in rows_of(experiment, store.records(experiment["name"]))
    ]


def rows_of(experiment: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows of one experiment.

    Args:
        experiment: An experiment as ``Store.experiments`` returns it.
        records: Its records as ``Store.records`` returns them.

    Example:
        >>> paper = {"unsupervised": {"mcc": {"value": 99.0}}}
        >>> cell = {"name": "a", "metrics": ["mcc"], "published": paper}
        >>> scores = {"unsupervised": {"mcc": 0.9}}
        >>> record = {"cell": "a", "objective": "InfoNCE", "scores": scores}
        >>> (row,) = rows_of({"name": "own", "cells": [cell]}, [record] * 3)
        >>> row.ours, row.verdict
        (90.0, 'worse')
    """
    return [
        make_row(str(experiment["name"]), cell, approach, metric, own)
        for cell in experiment["cells"]
        for own in [[record for record in records if record["cell"] == cell["name"]]]
        for approach in cell.get("approaches", ["unsupervised"])
        for metric in cell.get("metrics", ["linear_r2"])
    ]


def make_row(
    experiment: str,
    cell: Mapping[str, Any],
    approach: str,
    metric: str,
    records: Sequence[Mapping[str, Any]],
) -> Row:
    """Return the row of one metric of a cell from the cell's records."""
    found = [((record.get("scores") or {}).get(approach) or {}).get(metric) for record in records]
    scored = [record for record, score in zip(records, found, strict=True) if score is not None]
    values = [100 * float(score) for score in found if score is not None]
    objective = ""
    if approach == "unsupervised":
        objective = pool_objectives([objective_of_record(record, cell) for record in scored])
    paper = cell.get("published", {}).get(approach, {}).get(metric, {})
    centre = cell.get("centre", "mean")
    ours, deviation = centre_and_spread(values, centre)
    published = paper.get("value")
    return Row(
        experiment=experiment,
        cell=cell["name"],
        approach=approach,
        metric=metric,
        ours=ours,
        deviation=deviation,
        centre=centre,
        seeds=len(values),
        runs=len(records),
        published=published,
        spread=paper.get("spread"),
        difference=None if ours is None or published is None else ours - published,
        verdict=verdict(
            ours,
            published,
            paper.get("spread"),
            seeds=len(values),
            limits=metric in cell.get("limits", ()) and approach == "unsupervised",
            ended=[record.get("status", "") for record in records],
            objective=objective,
            comparable=cell.get("comparable", True),
        ),
        objective=objective,
        programs=" and ".join(sorted({str(r.get("program") or NOT_RECORDED) for r in scored})),
        stale=sum(map(is_stale, scored)),
    )


def centre_and_spread(
    values: Sequence[float], centre: str = "mean"
) -> tuple[float | None, float | None]:
    """Return mean and sample standard deviation, or median and median absolute deviation.

    Both are None without values; the spread is None with fewer than two.

    Example:
        >>> centre_and_spread([1.0, 2.0, 9.0], "median"), centre_and_spread([1.0, 3.0])
        ((2.0, 1.0), (2.0, 1.4142135623730951))
    """
    check_one_of("centre", centre, CENTRES)
    if not values:
        return None, None
    if centre == "mean":
        spread = statistics.stdev(values) if len(values) > 1 else None
        return statistics.fmean(values), spread
    median = statistics.median(values)
    distances = [abs(value - median) for value in values]
    return median, statistics.median(distances) if len(values) > 1 else None


def verdict(
    ours: float | None,
    published: float | None,
    spread: float | None,
    *,
    seeds: int,
    limits: bool = False,
    ended: Sequence[str] = (),
    objective: str = "",
    comparable: bool = True,
) -> str:
    """Compare our score with a published one, both in per cent.

    Fewer than three seeds give no verdict. A verdict on an objective that is not the paper's starts
    with "ours: ", since such a score does not reproduce the paper's.

    Args:
        ours: Our mean or median; None if no run gave a score.
        published: The published mean or median.
        spread: The published deviation.
        seeds: Number of runs that gave our score.
        limits: Whether the claim is that the factors are *not* identified.
        ended: The status of the runs, which is the verdict if none gave a score.
        objective: The objective of the runs; empty for a baseline.
        comparable: Whether the paper's settings are known and used.

    Example:
        >>> verdict(99.8, 99.86, 0.01, seeds=3), verdict(55.0, 58.26, 3.0, seeds=5, limits=True)
        ('within 0.5 points', 'fails as published')
        >>> verdict(99.8, 99.86, 0.01, seeds=3, objective="InfoNCE, saturated from step 40")
        'ours: within 0.5 points'
        >>> verdict(99.8, 99.86, 0.01, seeds=1)
        '1 seed'
    """
    if ours is None:
        return next((kind for kind in ("diverged", "failed") if kind in ended), "missing")
    if published is None and not limits:
        return "nothing published"
    if not comparable:
        return NOT_COMPARABLE
    if seeds < MIN_SEEDS:
        return "1 seed" if seeds == 1 else f"{seeds} seeds"
    if NOT_RECORDED in objective:
        return UNKNOWN_OBJECTIVE
    prefix = "" if is_published_objective(objective) else OURS
    return prefix + _judgement(ours, published, spread, limits)


def _judgement(ours: float, published: float | None, spread: float | None, limits: bool) -> str:
    if limits or published is None:
        fails, found = LIMITS if published is not None else CLAIMED_LIMITS
        return fails if ours < NOT_IDENTIFIED else found
    difference = round(ours - published, 9)
    if spread is not None and abs(difference) <= spread:
        return "within the paper's spread"
    if abs(difference) <= CLOSE:
        return f"within {CLOSE:g} points"
    return "better" if difference > 0 else "worse"


def no_verdict(row: Row) -> bool:
    """Return whether a row with a published score is not judged."""
    return row.verdict in (NOT_COMPARABLE, UNKNOWN_OBJECTIVE) or row.verdict.endswith(
        (" seed", " seeds")
    )


def as_markdown(rows: Sequence[Row]) -> str:
    """Return one Markdown table for each experiment."""
    lines: list[str] = []
    for experiment in dict.fromkeys(row.experiment for row in rows):
        own = [row for row in rows if row.experiment == experiment]
        centres = {row.centre for row in own}
        lines += [f"## {experiment}", ""] if not lines else ["", f"## {experiment}", ""]
        lines.append(
            f"| cell | approach | score | {ours_heading(centres)} | seeds | paper [%] | difference "
            "| verdict | objective | program |"
        )
        lines.append("|---" * 10 + "|")
        for row in own:
            cells = [row.cell, row.approach, row.metric, ours_text(row, mixed=len(centres) > 1)]
            cells += [seeds_text(row), spread_text(row.published, row.spread)]
            cells += ["" if row.difference is None else f"{row.difference:+.2f}", row.verdict]
            cells += [row.objective, program_text(row)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def spread_text(value: float | None, spread: float | None) -> str:
    """Format a score and its spread, such as ``99.42 ± 0.05``."""
    if value is None:
        return ""
    return f"{value:.2f}" if spread is None else f"{value:.2f} ± {spread:.2f}"


def ours_heading(centres: Collection[str]) -> str:
    """Return the heading of the column of our scores.

    Example:
        >>> ours_heading({"mean"}), ours_heading({"median"})
        ('ours [%]', 'ours (median ± MAD) [%]')
    """
    if set(centres) <= {"mean"}:
        return "ours [%]"
    only = set(centres) == {"median"}
    return "ours (median ± MAD) [%]" if only else "ours (mean or median) [%]"


def ours_text(row: Row, mixed: bool = False) -> str:
    """Format our score and its deviation; medians are marked in a table that mixes both."""
    text = spread_text(row.ours, row.deviation)
    return f"{text} (median)" if mixed and text and row.centre == "median" else text


def seeds_text(row: Row) -> str:
    """Format the number of seeds: ``3``, or ``2 of 3`` if a run gave no score."""
    return str(row.seeds) if row.seeds == row.runs else f"{row.seeds} of {row.runs}"


def program_text(row: Row) -> str:
    """Format the programs of a row's runs, marked as stale where they are not today's.

    Example:
        >>> about = ("e", "c", "unsupervised", "mcc", 90.0, None, "mean", 3, 3, None, None, None)
        >>> program_text(Row(*about, "nothing published", "InfoNCE", "not recorded", stale=2))
        'not recorded; stale: 2 of 3 seeds'
    """
    stale = f"stale: {row.stale} of {row.seeds} seed{'s' * (row.seeds > 1)}" if row.stale else ""
    pooled = "several programs pooled" if " and " in row.programs else ""
    return "; ".join(filter(None, (row.programs, stale, pooled)))


def as_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def _write_parquet(rows: Sequence[Row], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: pa.int64() for name in ("seeds", "runs", "stale")} | {
        name: pa.float64() for name in ("ours", "deviation", "published", "spread", "difference")
    }
    schema = pa.schema([(field.name, kinds.get(field.name, pa.string())) for field in fields(Row)])
    pq.write_table(pa.Table.from_pylist([asdict(row) for row in rows], schema=schema), path)


def export(rows: Sequence[Row], path: Path, kind: str | None = None) -> None:
    """Write rows to a file; the default format follows from the file's suffix."""
    suffixes = {".md": "markdown", ".csv": "csv", ".parquet": "parquet"}
    if kind is None:
        if path.suffix not in suffixes:
            raise ValueError(
                f"the file must end in {', '.join(suffixes)} or have a format, got {path.name!r}"
            )
        kind = suffixes[path.suffix]
    check_one_of("format", kind, FORMATS)
    if kind == "parquet":
        _write_parquet(rows, path)
    else:
        path.write_text(as_markdown(rows) if kind == "markdown" else as_csv(rows))


def seconds_of_runs(records: Sequence[Mapping[str, Any]]) -> tuple[list[float], str]:
    """Return the seconds of runs and what they are: of the processor if all records have these.

    Records of early versions have the wall time only.

    Example:
        >>> seconds_of_runs([{"seconds": {"total": 9.0, "cpu": 7.0}}, {}])
        ([7.0], 'processor')
        >>> seconds_of_runs([{"seconds": {"total": 9.0, "cpu": 7.0}}, {"seconds": {"total": 5.0}}])
        ([9.0, 5.0], 'wall')
    """
    given = [record.get("seconds") or {} for record in records]
    given = [seconds for seconds in given if _is_number(seconds.get("total"))]
    has_all = all(_is_number(seconds.get("cpu")) for seconds in given)
    field, kind = ("cpu", "processor") if has_all else ("total", "wall")
    return [float(seconds[field]) for seconds in given], kind


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
