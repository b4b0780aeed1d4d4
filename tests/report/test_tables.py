"""Tables of scores: names of metrics, and rows that did not reach a published score."""

import re

import pytest

from html_outline import Outline
from isolatent.report import page_of_runs, render_page
from isolatent.report.tables import score_name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("mcc", "MCC"),
        ("block_mcc", "MCC (blocks)"),
        ("linear_r2_block12", "R² (linear), block 12"),
        ("my_blocks", "my_blocks"),
    ],
)
def test_names_of_scores(name, written):
    assert score_name(name) == written


def test_rows_that_did_not_reach_the_published_score_are_red(results):
    """And no others, above all none without a published score."""
    rows = Outline(render_page(page_of_runs(results))).all("tr")[1:9]
    red = [e["text"] for e in rows if e["attributes"].get("class") == "bad"]
    assert [re.search("worse|identified|diverged|missing", text)[0] for text in red] == [
        "worse",
        "identified",
        "diverged",
        "missing",
    ]
