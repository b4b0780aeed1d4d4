"""Cards of notebooks: they are escaped, small, without scripts, and say what was found."""

from copy import copy
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.base import clone

import isolatent as iso
from isolatent.cards import card
from isolatent.diagnosis import Check, Diagnosis, ExpectedScore
from isolatent.theory import Beliefs, derive_guarantee

HOSTILE = "<script>alert('x')</script> \"quoted\" \u202eback\x00"
SMALL = 10_000  # characters


class Outline(HTMLParser):
    """Elements and texts of a piece of HTML; raises an error if elements do not nest."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def model():
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=10, batch_size=32, warmup=2)
    return iso.ContrastiveICA(2, space="box", n_init=1, recipe=recipe, random_state=0).fit(
        *world.sample_pairs(200)
    )


def test_everything_in_a_card_is_escaped():
    rows = [(HOSTILE, HOSTILE), (HOSTILE, HOSTILE, "no")]
    outline = Outline(card(HOSTILE, HOSTILE, rows, folded=rows, summary="<b>"))
    assert set(outline.tags) == {"div", "bdi", "table", "tr", "td", "details", "summary"}
    assert {name for name, _ in outline.attributes} == {"style"}
    shown = [text for text in outline.texts if "script" in text]
    assert shown == ["<script>alert('x')</script> \"quoted\" \ufffdback\ufffd"] * 10


def test_colours_are_those_of_the_page():
    for status in ("", "yes", "no", "open"):
        html = card("a", "b", [("c", "d", status)], status=status)
        assert "background:#" not in html
        assert "color:inherit" in html


def cards(model):
    check = Check("pairing", "contradicted", 1.0, HOSTILE, 0.0, 0.1)
    z = np.random.default_rng(0).normal(size=(60, 2))
    guarantee = derive_guarantee(Beliefs("sphere"))
    score = ExpectedScore(0.9, 0.8, 1.0, "mcc")
    return {
        "claim": replace(guarantee, learned=(HOSTILE,)),
        "warned": replace(guarantee, warnings=(HOSTILE,)),
        "no claim": derive_guarantee(Beliefs("sphere"), loss="nce", potentials="none"),
        "diagnosis": Diagnosis(False, ("pairing",), score, (check,), HOSTILE),
        "unsure": Diagnosis(None, (), None, (), "Cannot tell."),
        "consistency": iso.consistency([z, z[:, ::-1], -z]),
        "model": model,
    }


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("claim", ["orthogonal map, if:", "the mixing is smooth and injective"]),
        ("warned", ["✗", "warning"]),
        ("no claim", ["no guarantee: NCE needs"]),
        ("diagnosis", ["✗", "pairing", "harm 0.100", "expected score", "mcc 0.900"]),
        ("unsure", ["Cannot tell.", "not to be had"]),
        ("consistency", ["linear_r2 1.000", "runs 0 and 2"]),
    ],
)
def test_cards_of_results_say_what_was_found(model, kind, texts):
    html = cards(model)[kind]._repr_html_()
    outline = Outline(html)
    shown = " ".join(outline.texts)
    assert all(text in shown for text in texts)
    assert "script" not in outline.tags
    assert len(html) < SMALL


def test_runs_that_agree_by_chance_are_red():
    rng = np.random.default_rng(0)
    result = iso.consistency([rng.normal(size=(200, 2)) for _ in range(2)])
    html = result._repr_html_()
    assert "no more than by chance" in html
    assert "#d1495b" in html


def test_a_fitted_model_has_a_card_above_its_diagram(model):
    own = model._card()
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert html.startswith(own)
        assert "sk-" in html[len(own) :]  # the diagram of scikit-learn
    outline = Outline(own)
    assert "script" not in outline.tags
    assert len(own) < SMALL
    shown = " ".join(outline.texts)
    assert "2 columns to 2 codes" in shown
    assert "not supported by these data" in shown  # after ten steps
    assert "10 steps" in shown
    supported = copy(model)
    supported.guarantee_ = model.expected_guarantee()
    shown = " ".join(Outline(supported._card()).texts)
    assert "affine map, if its assumptions hold" in shown


def test_the_diagram_alone_is_shown_before_a_fit(model):
    new = clone(model)
    html = new._repr_html_()
    assert "sk-" in html
    assert "codes" not in html[:500]
    assert new._repr_mimebundle_()["text/plain"] == repr(new)


def test_texts_are_shown_if_scikit_learn_is_set_to(model):
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert set(model._repr_mimebundle_()) == {"text/plain"}
