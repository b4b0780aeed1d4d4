"""Cells on images: a row of pictures for each code, intervals for each run, and what is proven."""

import re

import pytest

from isolatent.report import page_of_runs, read_results, render_page


@pytest.fixture(scope="module")
def page(sprites):
    return page_of_runs(read_results(sprites))


def images(html):
    """The alternative text and the source of every picture."""
    tags = re.findall("<img[^>]*>", html)
    return [[re.search(f'{name}="([^"]*)"', tag)[1] for name in ("alt", "src")] for tag in tags]


def test_each_code_has_its_row_of_pictures(page):
    shown = images(render_page(page))
    assert [section.traversal.kind for cell in page.sections] == ["nearest", "decoded"]
    rows = [(k, row) for cell in page.sections for k, row in enumerate(section.traversal.rows, 1)]
    assert [k for k, _ in rows] == [1, 2, 1, 2, 3]
    for (k, row), (alt, source) in zip(rows, shown, strict=True):
        assert re.match(rf"Images while code {k} grows: (shape|scale|orientation|x|y|almost)", alt)
        assert source == f"data:image/png;base64,{row}"


def test_an_image_cell_says_what_is_not_proven(page):
    encoder, vae = (cell.guarantee for cell in page.sections)
    html = render_page(page)
    for card in (encoder, vae):
        assert card["equivalence"] is None
        assert card["gap"] in html
    assert encoder["consequence"] in html
    assert not vae["consequence"]


def test_a_run_without_a_card_has_that_of_its_cell(sprites, page):
    ((experiment, records),) = read_results(sprites)
    bare = [{k: v for k, v in record.items() if k != "guarantee"} for record in records]
    shown = page_of_runs([(experiment, bare)]).sections
    assert [cell.guarantee for cell in shown] == [cell.guarantee for cell in page.sections]


def test_a_code_that_is_almost_dead_is_called_so(sprites):
    ((experiment, records),) = read_results(sprites)
    changed = [
        record | {"strips": record["strips"] | {"spreads": [1.0, 0.002, 0.5]}} for record in records
    ]
    texts = [alt for alt, _ in images(render_page(page_of_runs([(experiment, changed)])))]
    dead = [": almost dead, 0.002 of the largest standard deviation" in text for text in texts]
    assert dead == [False, True, False, True, False]


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
    assert "95 % intervals" in html


@pytest.mark.parametrize(
    "garbled",
    [None, 3, [], {"mcc": None}, {"mcc": [1]}, {"mcc": "ab"}, {"mcc": ["a", 1]}, {"no": [0, 1]}],
)
def test_garbled_intervals_are_not_shown(run_of, cell_of, results_of, garbled):
    page = page_of_runs([results_of([cell_of("a")], [run_of("a", intervals=garbled)])])
    assert page.sections[0].intervals == ()
    assert "95 % intervals" not in render_page(page)


@pytest.mark.parametrize(
    "garbled",
    [None, 3, {}, {"rows": 3}, {"rows": ["a"]}, {"rows": ["a"], "columns": "x", "size": 8}],
)
def test_garbled_strips_are_not_shown(run_of, cell_of, results_of, garbled):
    page = page_of_runs([results_of([cell_of("a")], [run_of("a", strips=garbled)])])
    assert page.sections[0].strips is None


def test_the_command_does_the_run_once_more(page):
    """In a directory of its own: where a run is finished it is skipped."""
    for cell in page.sections:
        assert cell.command.endswith(f"--cells {cell.name} --first-seed 0 --seeds 1 --out again")
