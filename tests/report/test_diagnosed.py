"""The verdict at the top of a page, and the marks on the card."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from isolatent.diagnosis import Check, Diagnosis
from isolatent.figure_data import encode_rows
from isolatent.report import Section, read_diagnosis, render_page
from isolatent.report.diagnosed import diagnosis_blocks, headline_of
from isolatent.report.guarantee_card import guarantee_card, marks_of
from isolatent.report.page import Page
from isolatent.report.sections import render_section
from isolatent.theory import Beliefs, derive_guarantee

GUARANTEE = derive_guarantee(Beliefs("sphere"))
SUPPORTED = [Check(k, "supported", 1.0, f"found {k}") for k in ("information", "optimum")]
WRONG_CHECK = """{"holds": true, "broken": [], "expected_score": null, "verdict": "Good.",
"checks": [{"key": "optimum", "status": "supported", "statistic": "x", "effect": "0.9"}]}"""


def diagnosed(holds, *checks):
    return Diagnosis(holds, (), None, (*SUPPORTED, *checks), "What was found.")


def headline(diagnosis=None, **changes):
    guarantee = dataclasses.replace(GUARANTEE, **changes)
    model = SimpleNamespace(guarantee_=guarantee, n_components=3, history_=[])
    return headline_of(model, diagnosis)


@pytest.mark.parametrize(("holds", "state"), [(True, "good"), (False, "bad"), (None, "open")])
def test_the_verdict_of_a_diagnosis_decides(holds, state):
    found = headline(diagnosed(holds))
    assert found.state == state
    assert "What was found." in found.text


def test_a_fit_without_a_diagnosis_is_never_good():
    assert headline().state == "open"
    assert "not been checked" in headline().text
    assert any("isolatent diagnose" in command for command in headline().commands)


def test_codes_on_a_sphere_are_one_factor_fewer():
    for space, text in (("sphere", "2 factors were"), ("box", "3 factors were")):
        model = SimpleNamespace(
            guarantee_=GUARANTEE, n_components=3, history_=[], beliefs_=Beliefs(space)
        )
        assert text in headline_of(model, None).text


def test_warnings_of_the_training_are_red_and_survive_a_diagnosis():
    warned = headline(warnings=("pairs share 0.001 nats",))
    assert (warned.state, "pairs share 0.001 nats" in warned.text.lower()) == ("bad", True)
    warned = headline(diagnosed(True), warnings=("pairs share 0.001 nats",))
    assert (warned.state, "pairs share 0.001 nats" in warned.text.lower()) == ("bad", True)
    advice = headline(diagnosed(None), warnings=("pairs share 0.001 nats",)).advice
    assert "pairs share 0.001 nats" in advice.lower()


def test_a_fit_about_which_nothing_is_claimed_is_red():
    found = headline(equivalence=None, gap="no theorem")
    assert (found.state, "no theorem" in found.text) == ("bad", True)


def test_a_withdrawn_claim_stays_red_whatever_a_diagnosis_finds():
    withdrawn = GUARANTEE.withdraw("the encoder overfitted")
    model = SimpleNamespace(guarantee_=withdrawn, n_components=3, history_=[])
    found = headline_of(model, diagnosed(True))
    assert (found.state, "the encoder overfitted" in found.text) == ("bad", True)


def test_assumptions_have_the_marks_of_their_checks():
    card = GUARANTEE.to_dict()
    assert {mark.status for mark in marks_of(card, None)} == {"open"}
    pairing = Check("pairing", "contradicted", 1.0, "half of them")
    marks = {mark.text: mark for mark in marks_of(card, diagnosed(False, pairing))}
    (steps,) = (mark for text, mark in marks.items() if text.startswith("vMF conditional"))
    assert (steps.status, steps.found) == ("no", "half of them")
    (optimum,) = (mark for text, mark in marks.items() if text.startswith("enough data"))
    assert optimum.status == "yes"
    (injective,) = (mark for text, mark in marks.items() if "injective" in text)
    assert injective.status == "open"  # not checked here


def test_one_check_that_cannot_tell_leaves_an_assumption_open():
    unsure = dataclasses.replace(SUPPORTED[1], status="cannot tell")
    diagnosis = Diagnosis(None, (), None, (SUPPORTED[0], unsure), "")
    marks = marks_of(GUARANTEE.to_dict(), diagnosis)
    assert "yes" not in {mark.status for mark in marks if mark.text.startswith("enough data")}


def test_every_contradicted_check_that_an_assumption_names_is_a_cross_somewhere():
    for key in ("marginal", "pairing", "anchor_scale", "dynamics", "n_components", "injective"):
        check = Check(key, "contradicted", 1.0, "why")
        marks = marks_of(GUARANTEE.to_dict(), diagnosed(False, check))
        assert "no" in {mark.status for mark in marks}, key


@pytest.mark.parametrize(("holds", "state"), [(True, "good"), (False, "bad"), (None, "open")])
def test_the_card_has_the_colour_of_the_diagnosis(holds, state):
    section = Section("s", guarantee=GUARANTEE.to_dict(), diagnosis=diagnosed(holds))
    (card,) = guarantee_card(section)
    assert card.state == state


def test_every_check_has_a_row_and_what_measured_something_a_picture():
    pairing = Check("pairing", "contradicted", 0.5, "half", 1e-5, 0.3, 0.1)
    nothing = Check("noise", "cannot tell", None, "unknown")
    section = Section("s", diagnosis=diagnosed(False, pairing, nothing))
    _, table, pictures = diagnosis_blocks(section, "a")
    assert [row[1].text for row in table.rows] == [
        *("supported", "supported", "contradicted", "cannot tell")
    ]
    assert table.bad == {2}
    keys = [figure.key for figure in pictures.figures]
    assert keys == ["a-check-information", "a-check-optimum", "a-check-pairing"]
    html = render_page(Page("p", sections=(section,)))
    assert 'aria-label="all pairs related.' in html


def test_a_diagnosis_is_read_as_it_was_written(tmp_path):
    found = diagnosed(None, Check("pairing", "contradicted", 0.5, "half", None, 0.3))
    path = tmp_path / "diagnosis.json"
    path.write_text(json.dumps(found.to_dict() | {"of_a_later_version": 1}))
    assert read_diagnosis(path) == found


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"checks": 3}', "not json", "[" * 100_000, WRONG_CHECK],
    ids=["empty", "list", "nothing", "checks", "text", "deep", "check"],
)
def test_another_file_is_not_a_diagnosis(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a diagnosis"):
        read_diagnosis(path)


def test_the_claim_is_said_once():
    """By the headline, or by the verdict of the diagnosis if that says it."""
    claim = GUARANTEE.equivalence
    for verdict in ("Nothing contradicts it.", f"The codes are the factors up to {claim}."):
        found = dataclasses.replace(diagnosed(True), verdict=verdict)
        assert headline(found).text.count(claim) == 1


def test_what_was_found_comes_before_how_it_was_found():
    rows = encode_rows(np.random.default_rng(0).normal(size=(50, 2)))
    facts = (("Steps", "7"),)
    with_codes = render_section(Section("s", facts=facts, rows=rows), "a")
    assert with_codes.lead == ()
    titles = [part.title for part in with_codes.parts]
    assert titles.index("Recovered factors") < titles.index("The fit in numbers")
    assert render_section(Section("s", facts=facts), "a").lead[0].facts == facts
