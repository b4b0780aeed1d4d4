"""Tables of results: means, medians, spreads, differences and verdicts."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from isolatent.experiments import Experiment, as_csv, as_markdown, export, tabulate, verdict
from isolatent.experiments.program import program_digest
from isolatent.experiments.results import centre_and_spread
from isolatent.report import page_of_runs, render_page

SCORES = {"first": [0.991, 0.993, 0.998], "second": [0.55, 0.61, 0.58], "third": [0.9]}
ABOUT = {"error": None, "objective": "InfoNCE"}


@pytest.fixture
def filled(tiny, store):
    paper = {"unsupervised": [99.5, 0.2], "identity": 60.0}
    cells = [
        {"name": "first", **tiny, "published": paper},
        {"name": "second", **tiny, "published": {"unsupervised": [58.26, 3.0]}, "limits": True},
        {"name": "third", **tiny, "published": {"unsupervised": 99.0}},
        {"name": "fourth", **tiny},
    ]
    experiment = Experiment.model_validate({"name": "a/b", "title": "", "cells": cells})
    store.write_experiment(experiment)
    for run in experiment.runs([0, 1, 2]):
        scores = SCORES.get(run.cell.name, [])
        record = {"cell": run.cell.name, "seed": run.seed, "started": "2", **ABOUT}
        if run.seed < len(scores):
            values = {
                "unsupervised": {"linear_r2": scores[run.seed]},
                "identity": {"linear_r2": 0.6},
            }
            store.write(run, record | {"status": "done", "scores": values})
        elif run.cell.name == "third":
            store.write(run, record | {"status": "failed", "scores": {}})
    return store


def test_mean_spread_and_difference_by_hand(filled):
    rows = {(row.cell, row.approach): row for row in tabulate(filled)}
    for name, values in SCORES.items():
        row = rows[name, "unsupervised"]
        assert row.ours == pytest.approx(100 * np.mean(values))
        assert row.seeds == len(values)
        if len(values) > 1:
            assert row.deviation == pytest.approx(100 * np.std(values, ddof=1))
        assert row.difference == pytest.approx(row.ours - row.published)
    assert rows["first", "unsupervised"].verdict == "within the paper's spread"
    assert rows["first", "identity"].verdict == "within 0.5 points"
    assert rows["second", "unsupervised"].verdict == "fails as published"
    assert rows["third", "unsupervised"].verdict == "1 seed"
    assert rows["third", "unsupervised"].deviation is None
    assert rows["third", "unsupervised"].runs == 3  # two of which failed
    assert "| 90.00 | 1 of 3 | 99.00 | -9.00 | 1 seed |" in as_markdown(tabulate(filled))
    assert rows["fourth", "unsupervised"].verdict == "missing"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((99.7, 99.5, 0.2), "within the paper's spread"),
        ((99.3, 99.5, 0.2), "within the paper's spread"),
        ((99.9, 99.5, 0.2), "within 0.5 points"),
        ((99.0, 99.5, None), "within 0.5 points"),
        ((98.9, 99.5, None), "worse"),
        ((99.5, 98.9, 0.1), "better"),
        ((50.0, None, None), "nothing published"),
        ((None, 99.5, 0.2), "missing"),
    ],
)
def test_verdicts(arguments, expected):
    assert verdict(*arguments, seeds=3, objective="InfoNCE") == expected


def test_verdicts_of_limits_and_of_runs_without_a_score():
    assert verdict(79.9, 58.0, 3.0, seeds=3, limits=True) == "fails as published"
    assert verdict(80.0, 58.0, 3.0, seeds=3, limits=True) == ("identified here, not in the paper")
    assert verdict(79.9, None, None, seeds=3, limits=True) == "fails as claimed"
    assert verdict(80.0, None, None, seeds=3, limits=True) == "identified, against the claim"
    assert verdict(None, 99.0, None, seeds=0, ended=["failed", "diverged"]) == "diverged"
    assert verdict(None, 99.0, None, seeds=0, ended=["failed"]) == "failed"


def test_every_format_holds_the_same_numbers(filled, tmp_path):
    rows = tabulate(filled)
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    export(rows, tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet").to_pylist()
    text = as_markdown(rows)
    for row, from_csv, from_parquet in zip(rows, read, table, strict=True):
        assert from_parquet["ours"] == row.ours
        assert from_csv["ours"] == ("" if row.ours is None else repr(row.ours))
        assert row.ours is None or f"{row.ours:.2f}" in text
    export(rows, tmp_path / "t.md")
    assert (tmp_path / "t.md").read_text() == text
    with pytest.raises(ValueError, match="must end in"):
        export(rows, tmp_path / "t.txt")


@pytest.mark.parametrize(
    ("first_file", "last_file", "counts"), [("3", "1", 0.5), ("1", "3", 0.7), ("1", "1", 0.991)]
)
def test_the_latest_record_counts(filled, first_file, last_file, counts):
    """It does not depend on the file name: versions of the package differ in the hash."""
    for started, name, score in ((first_file, "0", 0.5), (last_file, "z", 0.7)):
        scores = {"unsupervised": {"linear_r2": score}}
        record = {"cell": "first", "seed": 0, "started": started, "scores": scores}
        path = filled.directory / "runs" / "a-b" / f"first-seed0-{name * 12}.json"
        path.write_text(json.dumps(record | ABOUT | {"status": "done"}))
    (row,) = [r for r in tabulate(filled) if (r.cell, r.approach) == ("first", "unsupervised")]
    assert row.ours == pytest.approx(100 * np.mean([counts, 0.993, 0.998]))


def test_medians_are_shown_for_cells_with_published_medians(tiny, store):
    """The median and the median absolute deviation, in every format, and the heading says so."""
    cells = [{"name": name, **tiny, "centre": "median"} for name in ("a", "b")]
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": cells})
    store.write_experiment(experiment)
    values = [0.5, 0.6, 0.9, 0.65]
    for run in experiment.runs([*range(len(values))]):
        scores = {"unsupervised": {"linear_r2": values[run.seed]}}
        record = {"cell": run.cell.name, "seed": run.seed, "started": "", "scores": scores}
        if run.cell.name == "a" or run.seed == 0:
            store.write(run, record | {"status": "done"})
    rows = [row for row in tabulate(store) if row.approach == "unsupervised"]
    assert rows[0].ours == pytest.approx(62.5)
    assert rows[0].deviation == pytest.approx(100 * np.median(np.abs(np.array(values) - 0.625)))
    assert (rows[1].ours, rows[1].deviation) == (50.0, None)
    assert "| ours (median ± MAD) [%] |" in as_markdown(rows)
    assert [row["centre"] for row in csv.DictReader(io.StringIO(as_csv(rows)))] == ["median"] * 2
    mixed = as_markdown([rows[0], replace(rows[1], centre="mean")])
    assert "| ours (mean or median) [%] |" in mixed
    assert "| 62.50 ± 7.50 (median) |" in mixed


@pytest.mark.parametrize("centre", ["mean", "median"])
def test_centre_and_spread_are_affine_equivariant(centre):
    values = np.random.default_rng(0).normal(size=9)
    middle, spread = centre_and_spread(values.tolist(), centre)
    moved = centre_and_spread((3 - 2 * values).tolist(), centre)
    assert moved == pytest.approx((3 - 2 * middle, 2 * spread))
    assert centre_and_spread([], centre) == (None, None)
    assert centre_and_spread([4.0], centre) == (4.0, None)


@pytest.mark.parametrize("limits", [False, True])
@pytest.mark.parametrize(("seeds", "expected"), [(1, "1 seed"), (2, "2 seeds")])
def test_fewer_than_three_seeds_have_no_verdict(seeds, expected, limits):
    assert verdict(50.0, 99.5, 0.2, seeds=seeds, limits=limits) == expected
    assert verdict(50.0, 99.5, 0.2, seeds=3, limits=limits) != expected


def test_only_the_papers_objective_reproduces_its_score():
    given = {"seeds": 3, "spread": 0.2, "published": 99.5}
    assert verdict(99.5, **given, objective="InfoNCE") == "within the paper's spread"
    ours = "InfoNCE, saturated from step 40"
    assert verdict(99.5, **given, objective=ours) == "ours: within the paper's spread"
    assert verdict(50.0, **given, limits=True, objective=ours) == "ours: fails as published"
    assert verdict(99.5, **given, objective="not recorded") == "objective not recorded"
    assert verdict(99.5, **given, comparable=False) == "not comparable"
    assert verdict(99.5, None, None, seeds=3, objective=ours) == "nothing published"


def test_rows_name_objectives_and_programs(tiny, store):
    """Runs of another program than today's are stale, and pooled programs are named."""
    names = ("today", "older", "mixed")
    paper = {"unsupervised": 90.0}
    cells = [{"name": name, **tiny, "published": paper} for name in names]
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": cells})
    store.write_experiment(experiment)
    for run in experiment.runs([0, 1, 2]):
        program = {"today": program_digest(), "older": None}.get(run.cell.name, f"p{run.seed % 2}")
        objective = f"InfoNCE, saturated from step {30 + run.seed}"
        about = {"cell": run.cell.name, "seed": run.seed, "started": "", "status": "done"}
        about |= {"scores": {"unsupervised": {"linear_r2": 0.9}}, "objective": objective}
        store.write(run, about | {"program": program})
    rows = {row.cell: row for row in tabulate(store) if row.approach == "unsupervised"}
    assert [rows[name].stale for name in names] == [0, 3, 3]
    assert {row.verdict for row in rows.values()} == {"ours: within 0.5 points"}
    text, table = as_markdown([*rows.values()]), as_csv([*rows.values()])
    shown = {
        "today": program_digest(),
        "older": "not recorded; stale: 3 of 3 seeds",
        "mixed": "p0 and p1; stale: 3 of 3 seeds; several programs pooled",
    }
    for name, program in shown.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert line.endswith(f"| InfoNCE, saturated from step 30–32 | {program} |")
    read = {row["cell"]: row for row in csv.DictReader(io.StringIO(table))}
    assert [read[name]["stale"] for name in names] == ["0", "3", "3"]
    assert read["mixed"]["programs"] == "p0 and p1"
    page = render_page(page_of_runs([(store.experiments()[0], store.records("own"))]))
    assert "2 of 3 rows stale: made by another program than today" in page
    for program in shown.values():
        assert program in page
