"""Sections: figures of factors and codes, above all latent traversals of models of images."""

import json
import re

import numpy as np
import pytest

from isolatent.report import Page, Section, page_of_runs, read_results, render_page


@pytest.fixture(scope="module")
def page(sprites):
    return page_of_runs(read_results(sprites))


def images(html):
    """The alternative text and the source of every image."""
    tags = re.findall("<img[^>]*>", html)
    return [[re.search(f'{name}="([^"]*)"', tag)[1] for name in ("alt", "src")] for tag in tags]


def test_each_code_has_a_row_of_images(page):
    shown = images(render_page(page))
    traversals = [section.traversal for section in page.sections]
    assert [traversal.kind for traversal in traversals] == ["nearest", "decoded"]
    rows = [(k, row) for traversal in traversals for k, row in enumerate(traversal.rows)]
    assert [k for k, _ in rows] == [0, 1, 0, 1, 2]  # numbers of codes are those of columns
    for (k, row), (alt, source) in zip(rows, shown, strict=True):
        assert re.match(rf"Traversal of code {k}: (shape|scale|orientation|x|y|inactive)", alt)
        assert source == f"data:image/png;base64,{row}"


def test_an_inactive_code_is_named_so(sprites):
    ((experiment, records),) = read_results(sprites)
    changed = [
        record | {"strips": record["strips"] | {"spreads": [1.0, 0.002, 0.5]}} for record in records
    ]
    texts = [alt for alt, _ in images(render_page(page_of_runs([(experiment, changed)])))]
    inactive = [": inactive, 0.002 of the largest standard deviation" in text for text in texts]
    assert inactive == [False, True, False, True, False]


def test_panels_of_many_factors_are_truncated_with_a_note(run_of, cell_of, results_of):
    html = render_page(page_of_runs([results_of([cell_of("wide")], [run_of("wide", n=40)])]))
    assert "The first 20 of 40 factors." in html
    drawn = json.loads(re.search('id="figures">(.*?)</script>', html)[1])
    assert np.shape(drawn["section1-correlations"]["data"][0]["z"]) == (40, 40)
    assert sum(name.startswith("section1-factor") for name in drawn) == 20
    assert len(html) < 400_000


def test_losses_that_are_not_comparable_are_not_drawn_together():
    """InfoNCE of a batch and of all held-out pairs have different numbers of candidates."""
    shared = {"information": 1.0, "held_out": 5.0, "held_out_information": 0.9}
    for more, together in ((shared, "information"), ({"held_out": 5.0}, "loss")):
        curve = tuple({"number": k, "total": 9, "loss": 2.0} | more for k in range(1, 9))
        page = Page("Fit", sections=(Section("Fit", curves=(curve,)),))
        drawn = json.loads(re.search('id="figures">(.*?)</script>', render_page(page))[1])
        names = {
            key.removeprefix("section1-"): [trace["name"] for trace in figure["data"]]
            for key, figure in drawn.items()
        }
        assert names[together] == ["training", "held out"]
        if together == "information":
            assert names["loss"] == ["training"]
            assert names["held-out-loss"] == ["held out"]
