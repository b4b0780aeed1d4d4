"""The demonstration: its scores, on the screen and in a file, and its report."""

import json
import os

import pytest

from isolatent.cli.demo import DEFAULT_REPORT, default_report
from isolatent.report import is_report
from isolatent.worlds import World


def test_the_demo_prints_and_writes_the_same_scores(isolatent, tmp_path):
    done = isolatent("demo", "--max-steps", 20, "--json", "scores.json", "--seed", 1)
    assert done.code == 0, done.err
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert {
        *("identity_r2", "recovered_r2", "recovered_mcc", "seconds", "seed", "world"),
    } <= set(scores)
    assert scores["seed"] == 1
    assert 0.5 < scores["identity_r2"] < 0.8
    low, high = scores["intervals"]["recovered_r2"]
    assert low < scores["recovered_r2"] < high
    assert f"{scores['recovered_r2']:.3f}" in done.out
    assert f"{scores['recovered_mcc']:.3f}" in done.out
    assert "orthogonal map" in done.out
    assert "step 20 of at most 20" in done.err
    assert World.from_dict(scores["world"]).to_dict() == scores["world"]
    assert sorted(os.listdir(tmp_path)) == ["isolatent-demo.html", "scores.json"]


def test_quiet_prints_the_result_only(isolatent):
    done = isolatent("demo", "--max-steps", 2, "--quiet")
    assert done.code == 0
    assert done.err == ""
    assert "Training" not in done.out
    assert "recovered" in done.out


def test_the_report_replaces_an_earlier_report_and_no_other_file(isolatent, tmp_path):
    demo = ("demo", "--max-steps", 2, "--quiet")
    page = tmp_path / "isolatent-demo.html"
    assert "report: isolatent-demo.html" in isolatent(*demo).out
    assert is_report(page)
    assert default_report() == DEFAULT_REPORT
    page.write_text("precious")
    done = isolatent(*demo)
    assert done.code == 0
    assert "no report is written; --report: isolatent-demo.html exists\n" in done.err
    assert isolatent(*demo, "--report", page).code == 2
    assert page.read_text() == "precious"
    assert os.listdir(tmp_path) == ["isolatent-demo.html"]


@pytest.mark.slow
def test_the_demo_recovers_the_factors(isolatent, tmp_path):
    isolatent("demo", "--quiet", "--json", "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text())["recovered_r2"] >= 0.99
