"""Laws of the page: well-formed, accessible, self-contained, and safe against hostile text."""

import base64
import gzip
import json
import re
from importlib import resources
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from html_outline import Outline
from isolatent.diagnosis import Check, Diagnosis
from isolatent.experiments.results import Row
from isolatent.figure_data import EncodedRows, TraversalData
from isolatent.report import is_report, page_of_runs, render_page, write_report
from isolatent.report.content import clean
from isolatent.report.document import packed_library as library_of_plotly
from isolatent.report.page import (
    Comparison,
    Headline,
    LatentTraversal,
    Page,
    Relaxation,
    Score,
    Section,
    Verdict,
)


def page_with(text):
    """A page that shows the text in every place where text from users can stand."""
    measured = {"information": 1.0, "scale": 3.0, "quality": 0.5}
    steps = tuple(measured | {"number": k, "loss": 1 / k, "held_out": 2 / k} for k in (1, 2, 3))
    numbers = ((0.1, 0.9), (0.8, 0.2), (0.3, 0.4))
    verdict = Verdict("missed", text)
    changes = TraversalData(
        *(np.ones((2, 3)), np.ones((2, 3, 2)), np.ones(2), (text, text), (0, 1), (text, text)),
        *(np.ones((2, 2)), np.ones(2), 0.9, np.ones(2), 100, "fitted"),
    )
    codes = np.arange(12.0).reshape(6, 2)
    check = Check("information", "supported", 1.0, text, 0.1, 0.1)
    section = Section(
        text,
        verdict,
        ((text, text),),
        (Score(text, text, text, guaranteed=True),),
        (Score(text, text, text),),
        (steps,),
        text,
        correlations=numbers,
        scatter=(numbers, numbers),
        factors=(text, text, text),
        categories=(text,),
        alignment=text,
        traversal=LatentTraversal("nearest", ("iVBORw0KGgo=", "iVBORw0KGgo="), 9, 64),
        rows=EncodedRows(codes, (text, text), np.repeat([0, 1], 3), (text, text)),
        columns={text: np.arange(6)},
        is_recording=True,
        changes=changes,
        diagnosis=Diagnosis(None, (), None, (check,), text),
        seeds={text: (1.0, 2.0)},
        published={text: (1.0, 0.5)},
        learned=(1.0, 2.0),
        guarantee={
            "equivalence": text,
            "assumptions": [{"text": text, "kind": text}],
            "metric": text,
            "reference": text,
            "consequence": text,
            "learned": [text],
            "warnings": [text],
        },
        spec={text: [text]},
        command=text,
        errors=(text,),
        relaxations=(Relaxation(text, used=True, learned=text, gain=text),),
    )
    rows = tuple(
        Comparison(
            text,
            Row(name, text, text, text, 50.0, 1.0, "mean", 3, 3, 60.0, None, -10.0, text),
            verdict,
        )
        for name in (text, f"{text}2")
    )
    return Page(
        *(text, (text,), rows, (section,), ((text, text),)),
        headline=Headline("bad", text, text, text),
    )


@pytest.fixture(scope="module")
def outline(results):
    return Outline(render_page(page_of_runs(results)))


def test_landmarks_and_headings_are_in_order(outline):
    """Landmarks once each, one h1, and no heading skips a level."""
    for tag in ("header", "main", "footer", "h1"):
        assert len(outline.all(tag)) == 1, tag
    assert outline.elements[0]["attributes"]["lang"] == "en"
    assert outline.all("title")[0]["inside"][-1]["tag"] == "head"
    levels = [int(e["tag"][1]) for e in outline.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_ids_are_unique_and_references_resolve(outline):
    ids = [e["attributes"]["id"] for e in outline.elements if "id" in e["attributes"]]
    assert len(ids) == len(set(ids))
    for item in outline.elements:
        for name in ("aria-labelledby", "aria-describedby", "data-copy"):
            assert set((item["attributes"].get(name) or "").split()) <= set(ids)
        if "href" in item["attributes"]:
            assert item["attributes"]["href"].removeprefix("#") in ids


def test_every_figure_has_a_name_and_every_picture_a_description(outline):
    by_id = outline.by_id()
    assert len(outline.all("figure")) > 10
    for figure in outline.all("figure"):
        assert by_id[figure["attributes"]["aria-labelledby"]]["text"].strip()
    plots = [e for e in outline.all("div") if "plot" in e["attributes"].get("class", "").split()]
    assert len(plots) > 20
    for plot in plots:
        assert plot["attributes"]["role"] == "img"
        assert len(plot["attributes"]["aria-label"]) > 20
        assert plot["text"].strip()  # until it is drawn, and where scripts do not run
        assert any(e["tag"] == "figure" for e in plot["inside"])


def test_every_plot_has_its_figure(outline, results):
    html = render_page(page_of_runs(results))
    drawn = json.loads(re.search('id="figures">(.*?)</script>', html)[1])
    ids = {
        e["attributes"].get("id")
        for e in outline.all("div")
        if "plot" in e["attributes"].get("class", "").split()
    }
    assert ids == set(drawn)


def test_the_page_loads_nothing(results):
    html = re.sub("(?m)^ *//.*", "", render_page(page_of_runs(results)))  # but for comments
    assert not re.search(r"https?:|//\w|\bsrc\s*=(?!\"data:image/png;base64,)|url\(|@import", html)
    policies = [
        e["attributes"]["content"]
        for e in Outline(html).all("meta")
        if e["attributes"].get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    directives = dict(part.strip().split(" ", 1) for part in policies[0].split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["form-action"] == "'none'"
    scripts = directives["script-src"].split()
    assert len(scripts) == 2  # ours, and plotly.js
    assert all(re.fullmatch("'sha256-[A-Za-z0-9+/=]{44}'", script) for script in scripts)


def test_only_a_page_with_figures_holds_the_library(results):
    assert 'id="library"' not in render_page(Page("none"))
    html = render_page(page_of_runs(results))
    assert html.count('id="library"') == 1


def test_the_library_is_that_of_plotly():
    packed = base64.b64decode(library_of_plotly())
    library = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    assert gzip.decompress(packed) == library
    assert len(packed) < len(library) / 3


def test_a_page_reloads_itself_only_on_demand():
    refresh = 'http-equiv="refresh" content="5"'
    assert refresh in render_page(Page("live"), refresh=5)
    assert "refresh" not in render_page(Page("still")).split("<style>")[0]


def test_the_same_page_gives_the_same_text(results):
    assert render_page(page_of_runs(results)) == render_page(page_of_runs(results))


@settings(max_examples=40, deadline=None)
@given(
    st.text(min_size=1)
    | st.sampled_from(
        ["</script><script>", '"><svg onload=x>', "<!--", "]]>", "{{ 7*7 }}", "\u202e"]
    )
)
def test_hostile_text_stays_text(text):
    """It changes no element and no attribute name, and appears on the page unchanged."""
    html = render_page(page_with(text))
    html.encode("utf-8")
    shown = Outline(html)
    harmless = "x" * len(text)  # a long fact has another class
    assert shown.structure == Outline(render_page(page_with(harmless))).structure
    expected = clean(text)
    for tag in ("title", "h1", "h2", "dt", "code"):
        assert any(expected in e["text"] for e in shown.all(tag)), tag
    assert sum(expected in e["text"] for e in shown.elements) > 20


def test_empty_pages_and_sections_are_well_formed():
    Outline(render_page(Page("nothing")))
    Outline(render_page(Page("little", sections=(Section("empty"),))))
    Outline(render_page(page_of_runs([])))


def test_sections_of_long_pages_are_folded(run_of, cell_of, results_of):
    def folds(count):
        names = [f"cell{k}" for k in range(count)]
        page = page_of_runs([results_of([*map(cell_of, names)], [*map(run_of, names)])])
        details = Outline(render_page(page)).all("details")
        return sum(e["attributes"].get("class") == "fold" for e in details)

    assert (folds(1), folds(9)) == (0, 9)


def test_writing_replaces_a_file_only_on_demand(tmp_path):
    path, page = tmp_path / "report.html", Page("mine")
    path.write_text("precious")
    assert not is_report(path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_report(path, page)
    assert path.read_text() == "precious"
    write_report(path, page, overwrite=True)
    assert is_report(path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert not is_report(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path / "no" / "report.html", page)
