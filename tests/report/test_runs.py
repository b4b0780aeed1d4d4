"""From runs to rows: verdicts are fair, and what is missing is not shown."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.experiments.results import Row, rows_of, verdict
from isolatent.report import judge, page_of_runs, read_results, render_page

scores = st.floats(0, 100)
spreads = st.none() | st.floats(0, 30)


def row(mean, published, spread=None, runs=1, seeds=None, **about):
    seeds = (0 if mean is None else runs) if seeds is None else seeds
    told = verdict(mean, published, spread, **about)
    return Row(
        "e", "c", "unsupervised", "mcc", mean, None, "mean", seeds, runs, published, spread, 0, told
    )


@given(scores, scores, scores, spreads)
def test_more_is_never_worse(low, high, paper, spread):
    low, high = sorted((low, high))
    order = ["missed", "reached", "above"]
    first, second = (judge(row(mean, paper, spread)).kind for mean in (low, high))
    assert order.index(first) <= order.index(second)


@given(scores, scores)
def test_a_limit_is_reached_by_a_low_score_alone(ours, paper):
    shown = judge(row(ours, paper, limits=True))
    assert shown.kind == ("limit" if ours < 80 else "missed")
    assert (shown.text == "identified here, not in the paper") == shown.is_bad == (ours >= 80)


@pytest.mark.parametrize(
    ("given", "kind", "bad"),
    [
        (row(99.0, 99.0, 0.1), "reached", False),
        (row(98.6, 99.0, 0.1), "reached", False),
        (row(98.0, 99.0, 0.1), "missed", True),
        (row(None, 99.0, runs=0), "missing", True),
        (row(None, None, runs=0), "open", False),
        (row(None, 99.0, ended=["diverged"]), "failed", True),
        (row(None, None, ended=["diverged"]), "open", False),
        (row(None, None, ended=["failed"]), "failed", True),
        (row(99.0, 99.0, runs=3, seeds=2), "failed", True),
        (row(99.0, None), "open", False),
        (row(50.0, None, limits=True), "limit", False),
        (row(99.0, None, limits=True), "open", False),
    ],
)
def test_what_is_red(given, kind, bad):
    shown = judge(given)
    assert (shown.kind, shown.is_bad) == (kind, bad)
    assert shown.text.startswith(given.verdict)


def test_runs_become_rows(results):
    page = page_of_runs(results)
    assert [row.verdict.text for row in page.table] == [
        "within the paper's spread",
        "worse",
        "fails as published",
        "identified here, not in the paper",
        "better",
        "diverged",
        "missing",
        "nothing published",
    ]
    first = page.table[0].row
    assert first.seeds == first.runs == 3
    assert first.ours == pytest.approx(99.1)
    assert ("Run shown below", "seed 1, the median") in page.sections[0].facts
    assert page.sections[4].learned == (5, 9, 16, 21)
    assert page.sections[4].paired
    assert page.sections[5].errors == ("seed 0 diverged: the loss is nan at step 12",)
    assert (
        "Not reached: "
        + ", ".join(
            f"zimmermann2021/table1: {name}"
            for name in ("sphere_laplace", "found_after_all", "diverged", "not_yet_run")
        )
        in page.summary[-1]
    )


def test_the_page_has_the_numbers_of_the_table(results):
    """There is one arithmetic, that of ``isolatent results``."""
    rows = [row for experiment, records in results for row in rows_of(experiment, records)]
    shown = [compared.row for compared in page_of_runs(results).table]
    assert shown == [row for row in rows if row.approach == "unsupervised"]


def test_the_order_of_the_seeds_does_not_matter(run_of, cell_of, results_of):
    records = [run_of("a", seed) for seed in range(4)]
    one, other = (
        page_of_runs([results_of([cell_of("a")], part)]) for part in (records, records[::-1])
    )
    assert one.table[0].row.ours == pytest.approx(other.table[0].row.ours)
    assert one.sections[0].scatter == other.sections[0].scatter


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_what_a_run_lacks_or_garbles_is_not_shown(run_of, cell_of, results_of, data):
    run = run_of("a", n=2)
    for key in data.draw(st.lists(st.sampled_from(sorted(set(run) - {"cell"})), unique=True)):
        del run[key]
    drawn = ["curve", "correlation", "scatter", "scale", "guarantee", "measures", "command"]
    for key in data.draw(st.lists(st.sampled_from(drawn), unique=True)):
        garbled = [None, [], {}, "text", 3, [[1], [1, 2]], [{}], math.nan, {"true": [[1.0]]}]
        run[key] = data.draw(st.sampled_from(garbled))
    cell = cell_of("a")
    for key in data.draw(st.lists(st.sampled_from(sorted(set(cell) - {"name"})), unique=True)):
        del cell[key]
    render_page(page_of_runs([results_of([cell], [run])]))


def test_the_same_experiment_twice_has_two_headings(results):
    page = page_of_runs([results[0], results[0]])
    assert len({cell.name for cell in page.sections}) == len(page.sections) == 14


def test_weights_of_several_ways_stand_in_a_row(run_of, cell_of, results_of):
    scale = {"name": "weight", "learned": [[1.0, 2.0], [3.0, 4.0]], "true": [[1, 2], [3, 5]]}
    run = run_of("a", scale=scale)
    (cell,) = page_of_runs([results_of([cell_of("a")], [run])]).sections
    assert (cell.learned, cell.truth) == ((1.0, 2.0, 3.0, 4.0), (1, 2, 3, 5))


def test_real_runs_are_shown(reproduced):
    page = page_of_runs(read_results(reproduced.parent))  # also from a directory above
    vmf, two, unfit = page.sections
    assert [row.verdict.kind for row in page.table] == ["missed", "missed", "failed"]
    assert page.summary[0] == "Three worlds, hardly trained. Twenty steps teach nothing."
    assert {score.label for score in vmf.scores} == {
        "observations as they are",
        "observations as they are, paper",
        "trained on the factors",
        "recovered",
        "recovered, paper",
    }
    for cell, n in ((vmf, 3), (two, 4)):
        assert [len(curve.points) > 0 for curve in cell.curves] == [True, True]
        assert np.shape(cell.correlations) == (n, n)
        assert np.min(cell.correlations) >= 0
        assert np.shape(cell.scatter.true) == np.shape(cell.scatter.codes)
        assert cell.guarantee["equivalence"]
    assert (len(vmf.learned), vmf.truth) == (1, (10.0,))
    assert (len(two.learned), two.truth) == (4, (5.0, 5.0, 25.0, 25.0))
    assert len(unfit.errors) == 2
    html = render_page(page)
    claims = [cell.guarantee["equivalence"] for cell in (vmf, two)]
    for text in ("sphere_vmf", "two_values", "worse", "Quality", *claims, "Copy the command"):
        assert text in html


def test_medians_are_shown_where_the_cell_asks_for_them(run_of, cell_of, results_of):
    records = [
        run_of(name, seed, value) for name in "ab" for seed, value in enumerate((0.5, 0.6, 0.9))
    ]
    median, mean = cell_of("a", centre="median"), cell_of("b")
    page = page_of_runs([results_of([median], records)])
    assert ("Ours (median), R² (linear)", "60.10 ± 10.10 %") in page.sections[0].facts
    assert any(score.text == "60.10 ± 10.10 %" for score in page.sections[0].scores)
    html = render_page(page)
    assert "Ours (median ± MAD) [%]" in html
    assert "Medians ± median absolute deviations (MAD) over seeds" in html
    html = render_page(page_of_runs([results_of([median, mean], records)]))
    assert "60.10 ± 10.10 (median)<" in html
    assert "Ours (mean or median) [%]" in html


def test_a_cell_that_misses_several_scores_is_named_once(run_of, cell_of, results_of):
    published = {name: {"value": 99.9, "spread": 0.1} for name in ("linear_r2", "mcc")}
    cell = cell_of("a", metrics=list(published)) | {"published": {"unsupervised": published}}
    page = page_of_runs([results_of([cell], [run_of("a", 0, 0.5)])])
    assert page.summary[-1] == "Not reached: a (R² (linear), MCC)."
