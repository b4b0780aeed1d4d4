"""Write tables of the stored results into README.md and docs/results.md.

The text between the comments `<!-- results: NAME -->` and `<!-- end -->` of a document is generated
from `results/NAME`, as `isolatent reproduce NAME --out results/NAME` stores it; after `<!-- pairs
seen: NAME -->` it is R² by the number of pairs that training has seen. Run this script after new
results:

    python docs/fill_tables.py
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isolatent import Recipe
from isolatent.experiments import Row, Store
from isolatent.experiments.results import (
    no_verdict,
    ours_text,
    rows_of,
    seeds_text,
    spread_text,
)
from isolatent.figure_data.scores import score_name
from isolatent.plot.experiments import find_sweep
from isolatent.report import judge

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "results.md")
SATURATED = re.compile(r", saturated (from|by) step [\d–]+")
SINCE = re.compile(r" from step [\d–]+ \(saturated\)")
POTENTIALS = re.compile(r" with (constant|learned) potentials")
BLOCK = re.compile(r"(<!-- (results|pairs seen): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
PAIRS_SEEN = (30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
Record = Mapping[str, Any]


def fill(text: str) -> str:
    """Return the text with all blocks generated anew."""
    write = {"results": block, "pairs seen": pairs_seen}
    return BLOCK.sub(lambda match: f"{match[1]}{write[match[2]](match[3])}{match[4]}", text)


def block(name: str) -> str:
    """Return a caption with the command that made an experiment's results, and their table."""
    store = Store(ROOT / "results" / name)
    records = store.records(name)
    if not records:
        return "\nNot run yet.\n\n"
    (experiment,) = store.experiments()
    rows = rows_of(experiment, records)
    grid = _grid([row.cell for row in rows])
    if any("steps" in (record.get("measures") or {}) for record in records):
        table = _image_table(rows, records)
    else:
        table = _score_table(rows, records) if grid is None else _grid_table(rows, *grid)
    return f"\n{_caption(name, rows, records)}\n\n{table}\n"


def pairs_seen(name: str) -> str:
    """Return R² of a linear map of the codes during training, by the number of pairs seen.

    Values between two measurements are interpolated in the logarithm of the number; there are none
    before the first and after the last. The last column has the end of training.
    """
    records = [r for r in Store(ROOT / "results" / name).records(name) if r.get("curve")]
    curves: dict[str, list[tuple[list[float], list[float]]]] = {}
    for record in records:
        batch = record["spec"]["recipe"].get("batch_size", Recipe().batch_size)
        known = [(batch * p["number"], p["quality"]) for p in record["curve"] if "quality" in p]
        if known:
            seen, scores = ([*map(float, column)] for column in zip(*known, strict=True))
            curves.setdefault(record["cell"], []).append((seen, scores))
    if not curves:
        return "\nNot run yet.\n\n"
    head = ["row", "seeds", *(f"{pairs / 1e6:g} million" for pairs in PAIRS_SEEN), "last"]
    body = []
    for cell, runs in curves.items():
        last = statistics.fmean(seen[-1] for seen, _ in runs) / 1e6
        end = 100 * statistics.fmean(scores[-1] for _, scores in runs)
        points = [_mean_at(pairs, runs) for pairs in PAIRS_SEEN]
        body.append([cell, f"{len(runs)}", *points, f"{end:.2f} at {last:.2g}"])
    return f"\nR² (linear) in per cent, means over seeds.\n\n{_markdown(head, body)}\n"


def _mean_at(pairs: float, runs: Sequence[tuple[list[float], list[float]]]) -> str:
    """Return the mean score at a number of pairs; nothing unless all runs were measured there."""
    if any(not seen[0] <= pairs <= seen[-1] for seen, _ in runs):
        return ""
    values = [np.interp(np.log(pairs), np.log(seen), scores) for seen, scores in runs]
    return f"{100 * float(np.mean(values)):.2f}"


def _caption(name: str, rows: Sequence[Row], records: Sequence[Record]) -> str:
    most = max((row.seeds for row in rows), default=1)
    seeds = sorted({row.seeds for row in rows if row.ours is not None})
    each = " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))
    hours = sum(_seconds(record) for record in records) / 3600
    command = f"isolatent reproduce {name} --seeds {most} --out results/{name}"
    plural = "s" if each != "1" else ""
    return (
        f"`{command}`: {len(records)} runs, {each} seed{plural} a row, {hours:.1f} h of processor "
        f"time; scores in per cent{_centres(rows)}; {_programs(records)}."
    )


def _programs(records: Sequence[Record]) -> str:
    """Name the programs that made the records; whether they are today's would change daily."""
    known = sorted({record["program"] for record in records if record.get("program")})
    texts = [f"program `{name}`" for name in known]
    if unknown := sum(not record.get("program") for record in records):
        texts.append(f"the program of {unknown} runs was not recorded")
    return ", ".join(texts)


def _centres(rows: Sequence[Row]) -> str:
    medians = {row.centre for row in rows} == {"median"}
    return ", medians ± median absolute deviations" if medians else ""


def _seconds(record: Record) -> float:
    """Return the processor time of a run; records without it have the wall time only."""
    seconds = record["seconds"]
    return float(seconds.get("cpu", seconds["total"]))


def _grid(cells: Sequence[str]) -> tuple[list[str], dict[str, dict[str, str]]] | None:
    """Return the columns of a grid, and for each line its cells by column.

    None if the names of the cells do not have the same number of words.
    """
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


def _grid_table(
    rows: Sequence[Row], columns: list[str], lines: Mapping[str, Mapping[str, str]]
) -> str:
    """Return unsupervised scores, a line for each series and metric; published ones in brackets."""
    own = {(row.cell, row.metric): row for row in rows if row.approach == "unsupervised"}
    metrics = list(dict.fromkeys(metric for _, metric in own))
    body = []
    for metric in metrics:
        for name, cells in lines.items():
            scores = [own.get((cells.get(column, ""), metric)) for column in columns]
            objectives = [row.objective for row in scores if row and row.objective]
            body.append(
                [name, score_name(metric), *map(_with_paper, scores), _pooled(objectives)],
            )
    return _markdown(["", "score", *columns, "objective"], body)


def _pooled(objectives: Sequence[str]) -> str:
    """Return the objectives of a line of cells, which may be trained in different ways."""
    kinds = Counter(SINCE.sub("", SATURATED.sub(", saturated", o)) for o in objectives)
    if len(kinds) == 1:
        return next(iter(kinds))
    without = {POTENTIALS.sub("", kind) for kind in kinds}
    if len(without) == 1:
        return f"{next(iter(without))}, with the potentials of the column"
    return "; ".join(f"{kind} ({count} of {len(objectives)})" for kind, count in kinds.items())


def _with_paper(row: Row | None) -> str:
    if row is None:
        return ""
    if row.ours is None:
        return row.verdict
    paper = "" if row.published is None else f" ({row.published:g})"
    return f"{ours_text(row)}{paper}"


def _score_table(rows: Sequence[Row], records: Sequence[Record]) -> str:
    """Return a line for each metric of each cell, with baselines."""
    baselines = [
        approach
        for approach in ("identity", "supervised")
        if any(row.approach == approach and row.published is not None for row in rows)
    ]
    names = {"identity": "observations (paper)", "supervised": "supervised (paper)"}
    head = ["row", "score", *(names[approach] for approach in baselines)]
    head += ["**ours**", "paper", "seeds", "processor seconds a run", "verdict", "objective"]
    by_approach = {(row.cell, row.metric, row.approach): row for row in rows}
    body = []
    for row in rows:
        if row.approach != "unsupervised":
            continue
        times = [_seconds(record) for record in records if record["cell"] == row.cell]
        others = [by_approach.get((row.cell, row.metric, approach)) for approach in baselines]
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
                row.objective,
            ]
        )
    return _markdown(head, body)


def _image_table(rows: Sequence[Row], records: Sequence[Record]) -> str:
    """Return a line for each cell on images, with all its scores; published ones in brackets.

    The last columns are the number of published scores that are reached, how far training has
    converged, and the objective.
    """
    own = {(row.cell, row.metric): row for row in rows if row.approach == "unsupervised"}
    metrics = list(dict.fromkeys(metric for _, metric in own))
    body = []
    for cell in dict.fromkeys(cell for cell, _ in own):
        scores = [own.get((cell, metric)) for metric in metrics]
        compared = [row for row in scores if row and row.published is not None]
        seeds = max(row.seeds for row in scores if row)
        runs = [r for r in records if r["cell"] == cell and r["status"] == "done"]
        body.append(
            [
                cell,
                *(_with_paper(row) for row in scores),
                _reached(compared) if runs else "",
                f"{seeds}",
                *_convergence(runs),
                next(row.objective for row in scores if row),
            ]
        )
    last = [
        "scores reached",
        "seeds",
        "processor seconds a run",
        "steps",
        "late decrease",
        "objective",
    ]
    return _markdown(["row", *(score_name(metric) for metric in metrics), *last], body)


def _reached(rows: Sequence[Row]) -> str:
    """Count the scores that reach the published ones, or say why they are not judged."""
    if not rows:
        return ""
    if no_verdict(rows[0]):
        return rows[0].verdict
    return f"{sum(not judge(row).is_bad for row in rows)} of {len(rows)}"


def _convergence(runs: Sequence[Record]) -> list[str]:
    """Return medians over runs of seconds, steps and :func:`_late_decrease`."""
    if not runs:
        return ["", "", ""]
    seconds = statistics.median(map(_seconds, runs))
    steps = statistics.median(run["measures"]["steps"] for run in runs)
    late = statistics.median(map(_late_decrease, runs))
    return [f"{seconds:.0f}", f"{steps:.0f}", f"{late:.1f} %"]


def _late_decrease(record: Record) -> float:
    """Return the share of the loss's decrease in the last quarter of the steps, in per cent.

    The validation loss is used if there is one. Losses are medians over a twentieth of the steps.
    """
    curve = record["curve"]
    last = curve[-1]["number"]
    kind = "loss" if curve[-1].get("held_out") is None else "held_out"
    known = [(p["number"] / last, p[kind]) for p in curve if p.get(kind) is not None]
    late, end = (
        statistics.median(loss for share, loss in known if until - 0.05 < share <= until)
        for until in (0.75, 1.0)
    )
    start = known[0][1]
    return 100 * (late - end) / (start - end)


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    """Update all documents."""
    for path in DOCUMENTS:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
