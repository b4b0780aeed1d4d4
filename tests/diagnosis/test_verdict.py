"""What follows from checks: whether the claim holds, the order of what is broken, plain data."""

import json
from dataclasses import replace

import pytest

from isolatent.diagnosis import ASSUMPTION_KEYS, Check, Diagnosis, ExpectedScore
from isolatent.diagnosis.verdict import SENTENCES, conclude

HELD = [
    Check("information", "supported", 3.0, "3 nats", 0.0),
    Check("optimum", "supported", 0.99, "agrees", None, 0.005),
]
SCORE = ExpectedScore(0.99, 0.98, 1.0, "linear_r2")


def broken(key, harm):
    return Check(key, "contradicted", 1.0, "gains 1 nat", 1e-9, harm)


def test_nothing_broken_holds():
    found = conclude(HELD, SCORE, "orthogonal map")
    assert (found.holds, found.broken, found.expected_score) == (True, (), SCORE)
    assert "orthogonal map" in found.verdict


def test_a_harmless_contradiction_is_listed_and_the_claim_holds():
    found = conclude([*HELD, broken("marginal", 0.002)], SCORE, "orthogonal map")
    assert found.holds is True
    assert found.broken == ("marginal",)
    assert found.expected_score.value == pytest.approx(0.988)
    assert "the codes change little" in found.verdict


def test_a_contradiction_of_unknown_harm_leaves_the_claim_open():
    found = conclude([*HELD, broken("noise", None)], SCORE, "orthogonal map")
    assert (found.holds, found.broken, found.expected_score) == (None, ("noise",), None)
    assert "not known" in found.verdict
    assert "change little" not in found.verdict
    worse = conclude([*HELD, broken("noise", None), broken("space", 0.2)], SCORE, "affine map")
    assert (worse.holds, worse.broken) == (False, ("space", "noise"))


def test_the_most_harmful_comes_first():
    checks = [*HELD, broken("marginal", 0.002), broken("pairing", 0.1), broken("dynamics", 0.05)]
    found = conclude(checks, SCORE, "orthogonal map")
    assert found.holds is False
    assert found.broken == ("pairing", "dynamics", "marginal")
    assert found.expected_score is None
    assert "relax=('pairing',)" in found.verdict


def test_no_information_comes_before_all_else():
    none = Check("information", "contradicted", 0.0, "0 nats", 0.5, 1.0)
    found = conclude([none, broken("pairing", 0.5)], None, "affine map")
    assert found.holds is False
    assert found.broken[0] == "information"


def test_a_low_expected_score_contradicts_the_optimum():
    found = conclude(HELD, replace(SCORE, value=0.8), "orthogonal map")
    assert found.holds is False
    assert found.broken == ("optimum",)


def test_without_an_answer_about_information_nothing_is_told():
    unsure = Check("information", "cannot tell", None, "too few pairs")
    found = conclude([unsure, HELD[1]], SCORE, "orthogonal map")
    assert (found.holds, found.expected_score) == (None, None)


def test_without_a_claim_nothing_holds():
    found = conclude(HELD, None, None, "no theorem covers it")
    assert found.holds is False
    assert "no theorem covers it" in found.verdict


def test_a_diagnosis_is_plain_json():
    checks = [*HELD, Check("pairing", "cannot tell", float("nan"), "?", float("inf"))]
    record = conclude(checks, SCORE, "orthogonal map").to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_it_prints_a_line_for_each_check():
    found = conclude([*HELD, broken("pairing", 0.1)], SCORE, "orthogonal map")
    lines = str(found).splitlines()
    assert lines[0] == found.verdict
    assert [line.split()[:2] for line in lines[1:-1]] == [
        ["✓", "information"],
        ["✓", "optimum"],
        ["✗", "pairing"],
    ]


def test_sentences_are_about_known_assumptions():
    assert set(SENTENCES) == set(ASSUMPTION_KEYS)


def test_what_is_harmful_comes_before_what_is_not():
    doubtful = Check("optimum", "contradicted", 0.3, "runs differ", None, 0.45)
    found = conclude([HELD[0], doubtful, broken("marginal", 0.001)], SCORE, "orthogonal map")
    assert (found.holds, found.broken) == (False, ("optimum", "marginal"))
    assert "not to be believed" in found.verdict
    caused = conclude([HELD[0], doubtful, broken("pairing", 0.1)], SCORE, "orthogonal map")
    assert caused.broken == ("pairing", "optimum")  # a cause before its effect


def test_without_a_claim_harmless_contradictions_are_listed_after_the_gap():
    found = conclude([*HELD, broken("marginal", 0.001)], None, None, "no theorem covers it")
    assert found.holds is False
    assert found.verdict.startswith("Nothing is claimed about these codes: no theorem covers it")
    assert "marginal" in found.verdict


def test_a_record_without_units_is_read():
    found = conclude([replace(HELD[0], unit="nats"), HELD[1]], SCORE, "orthogonal map")
    record = json.loads(json.dumps(found.to_dict()))
    assert Diagnosis.from_dict(record) == found
    for check in record["checks"]:
        del check["unit"]
    assert [check.unit for check in Diagnosis.from_dict(record).checks] == ["", ""]
