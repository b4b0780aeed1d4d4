"""Write the stored results into README.md and docs/results.md.

A document holds `<!-- results: NAME -->` and `<!-- end -->`; what stands between them is made from
`results/NAME`, which `isolatent reproduce NAME --out results/NAME` wrote. Run after new results:

    python docs/fill_tables.py
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isolatent.experiments import Row, Store
from isolatent.experiments.results import ours_text, rows_of, seeds_text, spread_text
from isolatent.report import judge
from isolatent.report.plots import find_sweep
from isolatent.report.tables import score_name

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "results.md")
BLOCK = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
Record = Mapping[str, Any]


def filled(text: str) -> str:
    """The text with all blocks made anew."""
    return BLOCK.sub(lambda match: f"{match[1]}{block(match[2])}{match[3]}", text)


def block(name: str) -> str:
    """What one experiment's results say: how they were made, and a table."""
    store = Store(ROOT / "results" / name)
    records = store.records(name)
    if not records:
        return "\nNot run yet.\n\n"
    (experiment,) = store.experiments()
    rows = rows_of(experiment, records)
    grid = _grid([row.cell for row in rows])
    if any("strips" in record for record in records):
        table = _by_cell(rows, records)
    else:
        table = _listed(rows, records) if grid is None else _pivoted(rows, *grid)
    return f"\n{_told(name, rows, records)}\n\n{table}\n"


def _told(name: str, rows: Sequence[Row], records: Sequence[Record]) -> str:
    most = max((row.seeds for row in rows), default=1)
    seeds = sorted({row.seeds for row in rows if row.ours is not None})
    each = " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))
    hours = sum(_seconds(record) for record in records) / 3600
    command = f"isolatent reproduce {name} --seeds {most} --out results/{name}"
    plural = "s" if each != "1" else ""
    return (
        f"`{command}`: {len(records)} runs, {each} seed{plural} a row, {hours:.1f} h of one core; "
        f"scores in per cent{_centres(rows)}."
    )


def _centres(rows: Sequence[Row]) -> str:
    medians = {row.centre for row in rows} == {"median"}
    return ", medians ± median absolute deviations" if medians else ""


def _seconds(record: Record) -> float:
    """Processor time; it is the wall clock's, on one thread, where the machine is not shared."""
    seconds = record["seconds"]
    return float(seconds.get("cpu", seconds["total"]))


def _grid(cells: Sequence[str]) -> tuple[list[str], dict[str, dict[str, str]]] | None:
    """Columns, and for each line its cells by column, of names that are made of the same words."""
    names = list(dict.fromkeys(cells))
    words = {name: name.split("-") for name in names}
    if len({len(parts) for parts in words.values()}) > 1 or len(next(iter(words.values()))) < 2:
        return None
    if (found := find_sweep(names)) is not None:
        label, series = found
        values = sorted({x for points in series.values() for x, _ in points})
        columns = [f"{label} {x:g}" for x in values]
        lines = {own: {f"{label} {x:g}": c for x, c in points} for own, points in series.items()}
        return columns, lines
    columns = list(dict.fromkeys(parts[-1] for parts in words.values()))
    lines = {}
    for name, parts in words.items():
        lines.setdefault(" ".join(parts[:-1]), {})[parts[-1]] = name
    return columns, lines


def _pivoted(
    rows: Sequence[Row], columns: list[str], lines: Mapping[str, Mapping[str, str]]
) -> str:
    """The model's scores, one line for each series and score; the paper's in brackets."""
    own = {(row.cell, row.metric): row for row in rows if row.approach == "unsupervised"}
    metrics = list(dict.fromkeys(metric for _, metric in own))
    body = [
        [
            name,
            score_name(metric),
            *(_with_paper(own.get((cells.get(c, ""), metric))) for c in columns),
        ]
        for metric in metrics
        for name, cells in lines.items()
    ]
    return _markdown(["", "score", *columns], body)


def _with_paper(row: Row | None) -> str:
    if row is None:
        return ""
    if row.ours is None:
        return row.verdict
    paper = "" if row.published is None else f" ({row.published:g})"
    return f"{ours_text(row)}{paper}"


def _listed(rows: Sequence[Row], records: Sequence[Record]) -> str:
    """A line for each score of each cell, the baselines beside it."""
    baselines = [
        approach
        for approach in ("identity", "supervised")
        if any(row.approach == approach and row.published is not None for row in rows)
    ]
    names = {"identity": "observations (paper)", "supervised": "supervised (paper)"}
    head = ["row", "score", *(names[approach] for approach in baselines)]
    head += ["**ours**", "paper", "seeds", "seconds a run", "verdict"]
    beside = {(row.cell, row.metric, row.approach): row for row in rows}
    body = []
    for row in rows:
        if row.approach != "unsupervised":
            continue
        times = [_seconds(record) for record in records if record["cell"] == row.cell]
        others = [beside.get((row.cell, row.metric, approach)) for approach in baselines]
        body.append(
            [
                row.cell,
                score_name(row.metric),
                *(_with_paper(other) for other in others),
                f"**{ours_text(row)}**" if row.ours is not None else "",
                spread_text(row.published, row.spread),
                seeds_text(row),
                f"{statistics.median(times):.0f}" if times else "",
                row.verdict,
            ]
        )
    return _markdown(head, body)


def _by_cell(rows: Sequence[Row], records: Sequence[Record]) -> str:
    """A line for each cell on images, with all its scores; the paper's in brackets.

    The last columns say how many of the paper's figures are reached, and how far training got.
    """
    own = {(row.cell, row.metric): row for row in rows if row.approach == "unsupervised"}
    metrics = list(dict.fromkeys(metric for _, metric in own))
    body = []
    for cell in dict.fromkeys(cell for cell, _ in own):
        scores = [own.get((cell, metric)) for metric in metrics]
        judged = [judge(row).is_bad for row in scores if row and row.published is not None]
        seeds = max(row.seeds for row in scores if row)
        runs = [r for r in records if r["cell"] == cell and r["status"] == "done"]
        body.append(
            [
                cell,
                *(_with_paper(row) for row in scores),
                f"{judged.count(False)} of {len(judged)}" if judged and runs else "",
                f"{seeds}",
                *_progress(runs),
            ]
        )
    last = ["reached", "seeds", "seconds a run", "steps", "late fall"]
    return _markdown(["row", *(score_name(metric) for metric in metrics), *last], body)


def _progress(runs: Sequence[Record]) -> list[str]:
    """Seconds, steps, and how much of the loss's fall came in the last quarter of the steps."""
    if not runs:
        return ["", "", ""]
    seconds = statistics.median(map(_seconds, runs))
    steps = statistics.median(run["measures"]["steps"] for run in runs)
    return [f"{seconds:.0f}", f"{steps:.0f}", f"{statistics.median(map(_late_fall, runs)):.1f} %"]


def _late_fall(record: Record) -> float:
    """Of the held-out loss where there is one; medians over a twentieth of the steps."""
    curve = record["curve"]
    last = curve[-1]["number"]
    kind = "loss" if curve[-1].get("held_out") is None else "held_out"
    known = [(p["number"] / last, p[kind]) for p in curve if p.get(kind) is not None]
    late, end = (
        statistics.median(loss for share, loss in known if until - 0.05 < share <= until)
        for until in (0.75, 1.0)
    )
    begun = known[0][1]
    return 100 * (late - end) / (begun - end)


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    """Fill all documents."""
    for path in DOCUMENTS:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
