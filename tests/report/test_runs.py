"""The page of experiments: verdicts, and which fields of records are shown."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from html_outline import Outline
from isolatent.experiments.results import Row, rows_of, verdict
from isolatent.report import judge, page_of_runs, read_results, render_page

scores = st.floats(0, 100)
spreads = st.none() | st.floats(0, 30)


def row(mean, published, spread=None, runs=3, seeds=None, **about):
    seeds = (0 if mean is None else runs) if seeds is None else seeds
    text = verdict(mean, published, spread, seeds=seeds, **about)
    return Row(
        "e", "c", "unsupervised", "mcc", mean, None, "mean", seeds, runs, published, spread, 0, text
    )


@given(scores, scores, scores, spreads)
def test_a_higher_score_never_has_a_worse_verdict(low, high, paper, spread):
    low, high = sorted((low, high))
    order = ["missed", "reached", "above"]
    first, second = (judge(row(mean, paper, spread)).kind for mean in (low, high))
    assert order.index(first) <= order.index(second)


@given(scores, scores)
def test_a_limit_is_reproduced_by_low_scores_only(ours, paper):
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
        (row(99.0, 99.0, runs=4, seeds=3), "failed", True),
        (row(99.0, 99.0, runs=3, seeds=2), "failed", True),
        (row(50.0, 99.0, runs=2), "open", False),
        (row(50.0, 99.0, objective="not recorded"), "open", False),
        (row(50.0, 99.0, comparable=False), "open", False),
        (row(99.0, 99.0, objective="InfoNCE"), "reached", False),
        (row(99.0, 99.0, objective="InfoNCE, saturated from step 9"), "ours", False),
        (row(50.0, 60.0, limits=True, objective="AnInfoNCE, axes turned"), "ours", False),
        (row(50.0, 99.0, objective="InfoNCE with learned potentials"), "missed", True),
        (row(99.0, None), "open", False),
        (row(50.0, None, limits=True), "limit", False),
        (row(99.0, None, limits=True), "open", False),
    ],
)
def test_verdicts_on_rows(given, kind, bad):
    shown = judge(given)
    assert (shown.kind, shown.is_bad) == (kind, bad)
    assert shown.text.startswith(given.verdict)


def test_every_row_has_its_verdict_and_every_cell_its_section(results):
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
    """Those of ``isolatent results``."""
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


# What a section shows of each field of a record, and the part of the page that holds it.
SHOWN = {
    "curve": (lambda section: section.curves, "Training"),
    "correlation": (lambda section: section.correlations, "True and recovered factors"),
    "scatter": (lambda section: section.scatter, "True and recovered factors"),
    "scale": (lambda section: section.learned, "Learned scale"),
    "guarantee": (lambda section: section.guarantee, "Guarantee"),
    "measures": (lambda section: dict(section.facts).get("Total variation"), None),
    "intervals": (lambda section: section.intervals, "Runs"),
    "command": (lambda section: section.command, "Command and specification"),
}
MALFORMED = [None, [], {}, 3, [[1], [1, 2]], [{}], math.nan, {"true": [[1.0]]}, {"mcc": "ab"}]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_missing_and_malformed_fields_are_not_shown(run_of, cell_of, results_of, data):
    """And all others are: a field neither hides nor invents another one."""
    run = run_of("a", n=2, intervals={"mcc": [0.5, 0.7]})
    intact = set(SHOWN)
    for key in data.draw(st.lists(st.sampled_from(sorted(SHOWN)), unique=True)):
        malformed = MALFORMED if key == "command" else [*MALFORMED, "text"]
        run[key] = data.draw(st.sampled_from(malformed))
        intact.remove(key)
    for key in data.draw(st.lists(st.sampled_from(sorted(set(run) - {"cell"})), unique=True)):
        del run[key]
        intact -= {key, "intervals"} if key == "scores" else {key}  # intervals of scores
    cell = cell_of("a")
    for key in data.draw(st.lists(st.sampled_from(sorted(set(cell) - {"name"})), unique=True)):
        del cell[key]
    page = page_of_runs([results_of([cell], [run])])
    (section,) = page.sections
    assert {key for key, (value, _) in SHOWN.items() if value(section)} == intact
    titles = [e["text"] for e in Outline(render_page(page)).all("h3")]
    expected = {SHOWN[key][1] for key in intact} - {None}
    always = {"Scores", "Command and specification"}  # the latter holds the specification, too
    assert set(titles) - always == expected - always
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize(
    "malformed", [{"mcc": None}, {"mcc": [1]}, {"mcc": ["a", 1]}, {"no": [0, 1]}], ids=repr
)
def test_malformed_intervals_are_not_shown(run_of, cell_of, results_of, malformed):
    page = page_of_runs([results_of([cell_of("a")], [run_of("a", intervals=malformed)])])
    assert page.sections[0].intervals == ()


def test_intervals_stand_beside_the_scores_of_each_run(run_of, cell_of, results_of):
    known = {"mcc": [0.5, 0.7], "linear_r2": [0.98, 1.0]}
    records = [run_of("a", 0, intervals=known), run_of("a", 1, intervals={"mcc": [0.6, 0.62]})]
    page = page_of_runs([results_of([cell_of("a")], [*records, run_of("a", 2)])])
    shown = {(score.metric, score.label): score.text for score in page.sections[0].intervals}
    assert shown == {
        ("mcc", "seed 0"): "61.00 [50.00, 70.00]",
        ("linear_r2", "seed 0"): "99.00 [98.00, 100.00]",
        ("mcc", "seed 1"): "61.00 [60.00, 62.00]",
    }
    html = render_page(page)
    assert all(text in html for text in shown.values())


def test_an_image_cell_has_no_guarantee_and_says_why(sprites):
    page = page_of_runs(read_results(sprites))
    encoder, vae = (section.guarantee for section in page.sections)
    html = render_page(page)
    for card in (encoder, vae):
        assert card["equivalence"] is None
        assert card["gap"] in html
    assert encoder["consequence"] in html
    assert not vae["consequence"]


def test_the_guarantee_of_an_image_cell_needs_no_record(sprites):
    ((experiment, records),) = read_results(sprites)
    bare = [{k: v for k, v in record.items() if k != "guarantee"} for record in records]
    one, other = (page_of_runs([(experiment, given)]).sections for given in (records, bare))
    assert [section.guarantee for section in one] == [section.guarantee for section in other]


def test_the_command_repeats_the_run_in_a_new_directory(sprites):
    """Since finished runs in a directory are skipped."""
    for section in page_of_runs(read_results(sprites)).sections:
        command = f"--cells {section.name} --first-seed 0 --seeds 1 --out again"
        assert section.command.endswith(command)


def test_the_same_experiment_twice_has_two_headings(results):
    page = page_of_runs([results[0], results[0]])
    assert len({cell.name for cell in page.sections}) == len(page.sections) == 14


def test_results_of_real_runs_are_shown(reproduced):
    page = page_of_runs(read_results(reproduced.parent))  # also from a directory above
    vmf, two, unfit = page.sections
    assert [row.verdict.text for row in page.table] == ["2 seeds", "2 seeds", "failed"]
    assert [row.row.stale for row in page.table] == [0, 0, 0]
    assert [row.row.objective for row in page.table] == [
        *("InfoNCE", "AnInfoNCE, codes kept uniform at first", ""),
    ]
    assert page.summary[0] == "Three worlds, hardly trained. Twenty steps teach nothing."
    assert {score.label for score in vmf.scores} == {
        "raw observations",
        "raw observations, paper",
        "supervised encoder",
        "recovered",
        "recovered, paper",
    }
    for cell, n in ((vmf, 3), (two, 4)):
        assert [len(curve) > 0 for curve in cell.curves] == [True, True]
        assert np.shape(cell.correlations) == (n, n)
        assert np.min(cell.correlations) >= 0
        assert np.shape(cell.scatter[0]) == np.shape(cell.scatter[1])
        assert cell.guarantee["equivalence"]
    assert (len(vmf.learned), vmf.truth) == (1, (10.0,))
    assert (len(two.learned), two.truth) == (4, (5.0, 5.0, 25.0, 25.0))
    assert len(unfit.errors) == 2
    html = render_page(page)
    claims = [cell.guarantee["equivalence"] for cell in (vmf, two)]
    for text in ("sphere_vmf", "two_values", "2 seeds", "Quality", *claims, "Copy the command"):
        assert text in html


def test_a_cell_with_a_median_shows_medians(run_of, cell_of, results_of):
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


def test_a_section_with_several_missed_scores_is_listed_once(run_of, cell_of, results_of):
    published = {name: {"value": 99.9, "spread": 0.1} for name in ("linear_r2", "mcc")}
    cell = cell_of("a", metrics=list(published)) | {"published": {"unsupervised": published}}
    page = page_of_runs([results_of([cell], [run_of("a", seed, 0.5) for seed in range(3)])])
    assert page.summary[-1] == "Not reached: a (R² (linear), MCC)."


def test_the_headline_counts_what_was_reached(results, run_of, cell_of, results_of):
    headline = page_of_runs(results).headline
    assert (headline.state, headline.label) == ("bad", "In part")
    assert headline.text == (
        "3 of 8 rows reach the published score or claim; 4 do not; 1 cannot be judged."
    )
    records = [run_of("a", seed, value=0.992) for seed in range(3)]
    page = page_of_runs([results_of([cell_of("a")], records)])
    assert (page.headline.state, page.headline.label) == ("good", "Reproduced")
    page = page_of_runs([results_of([cell_of("a")], records[:1])])
    assert page.headline.state == "open"  # one seed says nothing
    assert "1 row: 1 with 1 seed only." in page.summary
