"""From runs to rows: verdicts are fair, and what is missing is not shown."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.checks import IsolatentWarning
from isolatent.report import Estimate, compare, page_of_runs, render_page
from isolatent.report.stored import read_runs

scores = st.floats(0, 1)
spreads = st.none() | st.floats(0, 0.3)


@given(scores, scores, scores, spreads)
def test_more_is_never_worse(low, high, paper, spread):
    low, high = sorted((low, high))
    order = ["missed", "reached", "above"]
    first, second = (compare(Estimate(v), Estimate(paper, spread)).kind for v in (low, high))
    assert order.index(first) <= order.index(second)


@given(scores, scores, spreads)
def test_our_own_spread_does_not_help(ours, paper, spread):
    assert compare(Estimate(ours, 0.5, 3), Estimate(paper, spread)) == compare(
        Estimate(ours), Estimate(paper, spread)
    )


@given(scores, scores)
def test_a_row_that_shows_a_limit_is_no_fault(ours, paper):
    assert not compare(Estimate(ours), Estimate(paper), limits=True).is_bad


def test_a_figure_reaches_itself():
    assert compare(Estimate(0.99), Estimate(0.99)).text == "reached"
    assert compare(Estimate(0.98), Estimate(0.99)).kind == "reached"  # up to rounding
    assert compare(None, Estimate(0.99)).is_bad
    assert compare(Estimate(0.9), None).kind == "open"


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9))
def test_estimates_are_means_and_standard_deviations(values):
    estimate = Estimate.of([*values, math.nan])
    assert estimate.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert estimate.seeds == len(values)
    if len(values) > 1:
        assert estimate.spread == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_runs_become_rows(runs):
    page = page_of_runs(runs)
    kinds = [row.verdict.kind for row in page.table]
    assert kinds == ["reached", "missed", "limit", "above", "failed", "open"]
    first = page.table[0]
    assert first.ours.seeds == first.runs == 3
    assert first.ours.mean == pytest.approx(0.9996)
    assert ("Run shown below", "the median one, seed 1") in page.cells[0].facts
    assert page.cells[1].verdict.text == "not reached: 0.0800 below the paper"
    assert "nan at step 12" in page.cells[4].errors[0]
    assert any("sphere_laplace" in text for text in page.summary)


def test_a_failed_seed_is_told(run_of):
    page = page_of_runs([run_of("a", 0), run_of("a", 1, error="boom")])
    row = page.table[0]
    assert (row.ours.seeds, row.runs) == (1, 2)
    assert row.verdict.is_bad
    assert row.verdict.text == "1 of 2 runs failed; the others: reached"


def test_the_order_of_the_seeds_does_not_matter(run_of):
    runs = [run_of("a", seed) for seed in range(4)]
    one, other = page_of_runs(runs), page_of_runs(runs[::-1])
    assert one.table[0].ours.mean == pytest.approx(other.table[0].ours.mean)
    assert one.cells[0].scatter == other.cells[0].scatter


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_what_a_run_lacks_or_garbles_is_not_shown(run_of, data):
    run = run_of("a", n=2)
    keys = sorted(set(run) - {"cell"})
    for key in data.draw(st.lists(st.sampled_from(keys), unique=True)):
        garbled = [None, [], {}, "text", 3, [[1], [1, 2]], [{}], math.nan, {"true": [[1.0]]}]
        run[key] = data.draw(st.sampled_from(garbled))
    render_page(page_of_runs([run]))
    render_page(page_of_runs([{k: v for k, v in run.items() if v is not None}]))


def test_what_is_no_run_is_refused():
    with pytest.raises(ValueError, match=r"runs\[0\] must be a dictionary"):
        page_of_runs([{"seed": 0}])


def test_runs_are_read_from_all_shapes_of_files(tmp_path):
    (tmp_path / "deep").mkdir()
    run = '{"experiment": "e", "cell": "%s"}'
    (tmp_path / "a.json").write_text(run % "a")
    (tmp_path / "b.json").write_text(f"[{run % 'b'}, {run % 'c'}]")
    (tmp_path / "c.json").write_text(f'{{"runs": [{run % "d"}]}}')
    (tmp_path / "deep" / "d.jsonl").write_text(f"{run % 'e'}\n\n{run % 'f'}\n")
    (tmp_path / "other.json").write_text('{"something": "else"}')
    assert [r["cell"] for r in read_runs(tmp_path)] == list("abcdef")
    (tmp_path / "x.json").write_text('{"experiment": "e", ')
    with pytest.warns(IsolatentWarning, match=r"x\.json was left out"):
        assert len(read_runs(tmp_path)) == 6


def test_numpy_numbers_are_numbers(run_of):
    run = run_of("x") | {"seconds": np.float32(3.5), "learned": [np.float64(2.0)]}
    assert page_of_runs([run]).cells[0].learned == (2.0,)
