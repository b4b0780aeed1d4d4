"""Laws of the page: well-formed, named, by itself, and never fooled by what users write."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.experiments.results import Row
from isolatent.report import (
    Comparison,
    Curve,
    CurvePoint,
    Page,
    Scatter,
    Score,
    Section,
    Verdict,
    is_report,
    page_of_runs,
    render_page,
    write_report,
)
from isolatent.report.colours import HEAT_LEVELS, PALETTES, colour_style, contrast
from isolatent.report.page import LatentTraversal

VOID = {"meta", "br", "hr", "wbr", "link"}


class Outline(HTMLParser):
    """Every element in order, with its attributes, its text and its ancestors."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(html)
        self.close()
        assert self.open == [], "an element is not closed"

    def handle_starttag(self, tag, attributes):
        assert len({name for name, _ in attributes}) == len(attributes)
        item = {"tag": tag, "attributes": dict(attributes), "text": "", "inside": list(self.open)}
        self.elements.append(item)
        if tag not in VOID:
            self.open.append(item)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for item in self.open:
            item["text"] += data

    def all(self, *tags):
        return [item for item in self.elements if item["tag"] in tags]

    def by_id(self):
        return {e["attributes"]["id"]: e for e in self.elements if "id" in e["attributes"]}

    @property
    def structure(self):
        return [(item["tag"], sorted(item["attributes"])) for item in self.elements]


def page_with(text):
    """A page that shows the text wherever a person's text can come."""
    points = tuple(CurvePoint(k, 1 / k, 2 / k, 1.0, 3.0, 0.5) for k in (1, 2, 3))
    numbers = ((0.1, 0.9), (0.8, 0.2), (0.3, 0.4))
    verdict = Verdict("missed", text)
    section = Section(
        text,
        verdict,
        ((text, text),),
        (Score(text, text, text, guaranteed=True),),
        (Score(text, text, text),),
        (Curve(text, points),),
        text,
        numbers,
        Scatter(numbers, numbers),
        (text, text, text),
        (text,),
        text,
        LatentTraversal("nearest", ("iVBORw0KGgo=", "iVBORw0KGgo="), 9, 64),
        numbers,
        (1.0, 2.0),
        (),
        False,
        {
            "equivalence": text,
            "assumptions": [{"text": text, "kind": text}],
            "metric": text,
            "reference": text,
            "consequence": text,
        },
        {text: [text]},
        text,
        (text,),
    )
    rows = tuple(
        Comparison(
            text,
            Row(name, text, text, text, 50.0, 1.0, "mean", 3, 3, 60.0, None, -10.0, text),
            verdict,
        )
        for name in (text, f"{text}2")
    )
    return Page(text, (text,), rows, (section,), ((text, text),))


@pytest.fixture(scope="module")
def outline(results):
    return Outline(render_page(page_of_runs(results)))


def test_the_page_is_in_order(outline):
    """Landmarks once each, one h1, and no heading skips a level."""
    for tag in ("header", "main", "footer", "h1"):
        assert len(outline.all(tag)) == 1, tag
    assert outline.elements[0]["attributes"]["lang"] == "en"
    assert outline.all("title")[0]["inside"][-1]["tag"] == "head"
    levels = [int(e["tag"][1]) for e in outline.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_ids_are_unique_and_references_lead_somewhere(outline):
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
    for picture in outline.all("svg"):
        assert picture["attributes"]["role"] == "img"
        assert by_id[picture["attributes"]["aria-labelledby"]]["text"].strip()
        assert len(by_id[picture["attributes"]["aria-describedby"]]["text"]) > 20
        assert any(e["tag"] == "figure" for e in picture["inside"])


def test_nothing_comes_from_elsewhere(results):
    html = render_page(page_of_runs(results))
    assert not re.search(r"https?:|//\w|\bsrc\s*=(?!\"data:image/png;base64,)|url\(|@import", html)
    policies = [
        e["attributes"]["content"]
        for e in Outline(html).all("meta")
        if e["attributes"].get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'; img-src data:; script-src 'sha256-")


def test_the_same_page_gives_the_same_text(results):
    assert render_page(page_of_runs(results)) == render_page(page_of_runs(results))


@settings(max_examples=60, deadline=None)
@given(
    st.text(min_size=1) | st.sampled_from(["</script><script>", '"><svg onload=x>', "<!--", "]]>"])
)
def test_users_text_is_text_wherever_it_stands(text):
    """It changes no element and no attribute's name, and stands in the page as it was written."""
    html = render_page(page_with(text))
    html.encode("utf-8")
    shown = Outline(html)
    harmless = "x" * len(text)  # long facts get a line of their own
    assert shown.structure == Outline(render_page(page_with(harmless))).structure
    forbidden = "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
    expected = re.sub(forbidden, "\ufffd", text)
    for tag in ("title", "h1", "h2", "dt", "code"):
        assert any(expected in e["text"] for e in shown.all(tag)), tag
    assert sum(expected in e["text"] for e in shown.elements) > 20


@pytest.mark.parametrize("scheme", PALETTES)
def test_text_can_be_read(scheme):
    palette = PALETTES[scheme]
    for ink, *backs in (
        ("ink", "surface", "panel", "plain-back"),
        ("muted", "surface", "panel"),
        ("link", "surface", "panel"),
        ("good", "good-back"),
        ("best", "best-back"),
        ("bad", "bad-back", "surface", "panel"),
    ):
        for back in backs:
            assert contrast(palette[ink], palette[back]) >= 4.5, (ink, back)
    for line in ("first", "second"):
        assert contrast(palette[line], palette["surface"]) >= 3


def test_figures_on_a_heat_map_can_be_read():
    levels = re.findall(r"--back: (#\w+); --front: (#\w+);", colour_style())
    assert len(levels) == 2 * (HEAT_LEVELS + 1)
    assert min(contrast(*pair) for pair in levels) >= 4.5


def test_an_empty_page_and_an_empty_cell_are_pages():
    Outline(render_page(Page("nothing")))
    Outline(render_page(Page("little", sections=(Section("empty"),))))
    Outline(render_page(page_of_runs([])))


def test_long_pages_are_folded(run_of, cell_of, results_of):
    def folds(count):
        names = [f"cell{k}" for k in range(count)]
        page = page_of_runs([results_of([*map(cell_of, names)], [*map(run_of, names)])])
        details = Outline(render_page(page)).all("details")
        return sum(e["attributes"].get("class") == "fold" for e in details)

    assert (folds(1), folds(9)) == (0, 9)


def test_many_factors_are_cut_short_and_said_to_be(run_of, cell_of, results_of):
    html = render_page(page_of_runs([results_of([cell_of("wide")], [run_of("wide", n=40)])]))
    assert "The first 20 of 40 factors." in html
    assert html.count("<rect") == 1600
    assert len(html) < 400_000


def test_red_marks_what_was_not_reached(results):
    """And nothing else: no row without a published figure."""
    rows = Outline(render_page(page_of_runs(results))).all("tr")[1:9]
    red = [e["text"] for e in rows if e["attributes"].get("class") == "bad"]
    assert [re.search("worse|identified|diverged|missing", text)[0] for text in red] == [
        "worse",
        "identified",
        "diverged",
        "missing",
    ]


def test_writing_loses_nothing(tmp_path):
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
