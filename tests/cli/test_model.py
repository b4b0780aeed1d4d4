"""The commands transform, evaluate, info and, for a model, report."""

import json
import os
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest

import isolatent as iso
from command_line import NAMES, QUICK
from isolatent.baselines import SlowVAE
from isolatent.evaluation import linear_r2
from isolatent.training import ContrastiveICA


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_codes_are_the_same_in_every_format(isolatent, files, model, tmp_path, world, suffix):
    out = tmp_path / f"h{suffix}"
    done = isolatent("transform", model, files / "x.npy", "--out", out)
    assert done.code == 0, done.err
    assert done.out == f"wrote {out}: 400 rows, 3 components\n"
    read = {
        ".npy": np.load,
        ".npz": lambda path: np.load(path)["h"],
        ".csv": lambda path: pd.read_csv(path)[["h0", "h1", "h2"]].to_numpy(),
        ".parquet": lambda path: pd.read_parquet(path)[["h0", "h1", "h2"]].to_numpy(),
    }[suffix](out)
    h = ContrastiveICA.load(model).transform(world.x)
    np.testing.assert_allclose(read, h, rtol=1e-6, atol=1e-7)
    assert sorted(os.listdir(tmp_path)) == ["data", f"h{suffix}", "model"]


def test_codes_do_not_depend_on_chunks_or_on_the_order_of_columns(
    isolatent, files, model, tmp_path, world, monkeypatch
):
    monkeypatch.setattr("isolatent.pairs.readers.reading.CHUNK_VALUES", 100)
    table = pd.DataFrame(world.x, columns=NAMES)[NAMES[::-1]].assign(day="mon")
    table.to_csv(tmp_path / "turned.csv", index=False)
    out = tmp_path / "h.npy"
    done = isolatent(
        *("transform", model, tmp_path / "turned.csv", "--session", "day", "--out", out)
    )
    assert done.code == 0, done.err
    h = ContrastiveICA.load(model).transform(world.x)
    np.testing.assert_allclose(np.load(out), h, rtol=1e-5, atol=1e-6)


def test_a_single_row_can_be_encoded(isolatent, model, tmp_path, world):
    np.save(tmp_path / "one.npy", world.x[:1])
    out = tmp_path / "h.npy"
    assert isolatent("transform", model, tmp_path / "one.npy", "--out", out).code == 0
    assert np.load(out).shape == (1, 3)


@pytest.mark.parametrize("paths", [("x.npy", "z.npy"), ("x.csv", "pairs.npz"), (None, "pairs.npz")])
def test_the_metric_of_the_guarantee_comes_first(isolatent, files, model, tmp_path, world, paths):
    data, truth = paths
    given = [] if data is None else [files / data]
    path = tmp_path / "scores.json"
    done = isolatent(
        *("evaluate", model, *given, "--truth", files / truth, "--json", path),
        *("--blocks", "0,1/2"),
    )
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("linear_r2 ")
    assert lines[0].endswith("  metric of the guarantee")
    assert [line.split()[0] for line in lines[1:4]] == ["mcc", "block_r2", "block_mcc"]
    written = json.loads(path.read_text())
    assert written["metric"] == "linear_r2"
    assert written["rows"] == 400
    h = ContrastiveICA.load(model).transform(world.x)
    score = written["scores"]["linear_r2"]
    assert score["value"] == pytest.approx(linear_r2(world.z, h), abs=1e-6)
    assert score["low"] < score["value"] < score["high"]


def test_columns_of_truth_and_data_are_chosen_alike(isolatent, files, model, tmp_path, world):
    """Times and text beside the factors change no score, and are named."""
    factors = pd.DataFrame(world.z, columns=["z1", "z2", "z3"])
    table = factors.assign(time=np.arange(400), kind=np.where(np.arange(400) % 2, "a", "b"))
    table.to_csv(tmp_path / "truth.csv", index=False)
    given = ("evaluate", model, files / "x.csv", "--json", "--truth")
    expected = json.loads(isolatent(*given, files / "z.npy").out)["scores"]
    done = isolatent(*given, "truth.csv")
    assert (done.code, "--drop" in done.err) == (2, False)
    assert "column 'kind' holds text" in done.err
    assert "--truth-columns" in done.err
    found = json.loads(isolatent(*given, "truth.csv", "--truth-columns", "z*").out)["scores"]
    assert found["linear_r2"]["value"] == pytest.approx(expected["linear_r2"]["value"], abs=1e-6)
    table.drop(columns="kind").to_csv(tmp_path / "truth.csv", index=False)
    done = isolatent("evaluate", model, files / "x.csv", "--truth", "truth.csv")
    assert "truth.csv: not taken as factors: 'time'" in done.out
    found = json.loads(isolatent(*given, "truth.csv").out)["scores"]
    assert found["mcc"]["value"] == pytest.approx(expected["mcc"]["value"], abs=1e-6)


def test_columns_with_other_names_are_taken_in_the_order_of_the_fit(
    isolatent, files, model, tmp_path, world
):
    """Both files have the same values, so all commands give the same."""
    table = pd.DataFrame(world.x, columns=["p", "q", "r"]).assign(note="a")
    table.to_csv(tmp_path / "other.csv", index=False)
    for name, given in ((files / "x.csv", ()), ("other.csv", ("--columns", "p,q,r"))):
        done = isolatent("transform", model, name, *given, "--out", "h.npy", "--overwrite")
        assert done.code == 0, done.err
        h = np.load(tmp_path / "h.npy")
        np.testing.assert_allclose(h, ContrastiveICA.load(model).transform(world.x), rtol=1e-5)
        done = isolatent("evaluate", model, name, *given, "--truth", files / "z.npy")
        assert done.code == 0, done.err
        done = isolatent("report", model, "--data", name, *given, "--overwrite")
        assert done.code == 0, done.err


@pytest.mark.parametrize("command", ["transform", "evaluate", "diagnose", "report"])
def test_messages_name_only_options_of_the_command(
    isolatent, files, model, tmp_path, world, command
):
    """What is wrong with a file must be mended with the command at hand."""
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, a=np.ones((5, 3)), b=np.ones((5, 3)), z=world.z)
    words = tmp_path / "words.csv"
    pd.DataFrame({"left": ["a", "b"], "right": [1, 2], "up": [3, 5]}).to_csv(words, index=False)
    known = isolatent(command, "--help").out
    for path in (arrays, words):
        given = {
            "transform": [model, path, "--out", "h.npy"],
            "evaluate": [model, path, "--truth", files / "z.npy"],
            "diagnose": [model, path],
            "report": [model, "--data", path, "--overwrite"],
        }[command]
        done = isolatent(command, *given)
        assert done.code == 2
        for option in re.findall(r"--[a-z][a-z-]*", done.err):
            assert option in known, (option, done.err)


def test_info_prints_settings_training_and_guarantee(isolatent, model):
    done = isolatent("info", model)
    assert done.code == 0, done.err
    for words in (
        "nothing declared",
        "3 columns to 3 components",
        "left, right, up",
        "infonce",
        "max_steps 300, batch_size 64",
        "of 300",
        "final loss",
        "scale",
        "format 1",
        "guarantee: ",
        "Zimmermann et al. 2021",
    ):
        assert words in done.out


@pytest.mark.parametrize("command", ["info", "transform", "evaluate"])
def test_the_model_of_a_baseline_is_refused_in_one_line(isolatent, files, tmp_path, world, command):
    SlowVAE(2, max_steps=1, batch_size=4, random_state=0).fit(world.x).save(tmp_path / "slow")
    given = {
        "info": [],
        "transform": [files / "x.npy", "--out", tmp_path / "h.npy"],
        "evaluate": [files / "x.npy", "--truth", files / "z.npy"],
    }[command]
    done = isolatent(command, tmp_path / "slow", *given)
    assert done.code == 2
    message = f"directory must hold a ContrastiveICA, but {tmp_path / 'slow'} has a SlowVAE"
    assert (done.out, done.err) == ("", f"isolatent: {message}\n")
    assert not (tmp_path / "h.npy").exists()


def test_report_shows_a_model_and_its_data(isolatent, files, model, tmp_path):
    pairs = files / "pairs.npz"
    for arguments, expected in (
        ((), "Guarantee"),
        (("--data", files / "x.npy"), "400 rows. Choose axes and colour"),
        (("--data", files / "x.csv", "--truth", pairs), "Recovered against true factors"),
        (("--truth", pairs), "raw observations"),
    ):
        done = isolatent("report", model, "--out", "page.html", "--overwrite", *arguments)
        assert (done.code, done.out, done.err) == (0, "wrote page.html\n", "")
        assert expected in (tmp_path / "page.html").read_text()


def test_report_shows_a_diagnosis_and_sessions(isolatent, files, model, tmp_path):
    check = {"key": "pairing", "status": "contradicted", "statistic": 0.5, "effect": "<half>"}
    found = {"holds": False, "broken": ["pairing"], "expected_score": None, "checks": [check]}
    diagnosis = tmp_path / "diagnosis.json"
    diagnosis.write_text(json.dumps(found | {"verdict": "Some of the pairs look <unrelated>."}))
    given = ("--data", files / "series.csv", "--session", "day", "--diagnosis", diagnosis)
    done = isolatent("report", model, *given, "--out", "page.html")
    assert (done.code, done.out, done.err) == (0, "wrote page.html\n", "")
    page = (tmp_path / "page.html").read_text()
    assert page.count("Some of the pairs look &lt;unrelated&gt;.") >= 2  # at the top, and below
    assert '<div class="headline bad"' in page
    assert "&lt;half&gt;" in page
    assert ">session</option>" in page


def test_report_refuses_what_is_not_a_diagnosis_of_a_model(isolatent, files, model, tmp_path):
    done = isolatent("report", model, "--diagnosis", files / "x.csv", "--out", "page.html")
    assert (done.code, done.out) == (2, "")
    assert "is not a diagnosis that `isolatent diagnose --json` printed" in done.err
    done = isolatent("report", files, "--diagnosis", files / "x.csv", "--out", "page.html")
    assert (done.code, "--diagnosis are for a model" in done.err) == (2, True)
    assert not (tmp_path / "page.html").exists()


# diagnose


def test_a_diagnosis_is_printed_as_text_or_json(isolatent, model, tmp_path, world):
    pairs = tmp_path / "few.npz"
    np.savez(pairs, x=world.x, x_pos=world.x + 0.01)
    done = isolatent("diagnose", model, pairs)
    assert done.code == 0, done.err
    assert done.out.startswith("Cannot tell: 400 pairs")
    record = json.loads(isolatent("diagnose", model, pairs, "--json").out)
    assert (record["holds"], record["broken"], record["expected_score"]) == (None, [], None)


def test_data_of_another_width_are_not_diagnosed(isolatent, model, tmp_path, world):
    narrow = tmp_path / "narrow.npz"
    np.savez(narrow, x=world.x[:, :2], x_pos=world.x[:, 1:3])
    done = isolatent("diagnose", model, narrow)
    assert done.code == 2
    assert "features" in done.err


# choose


def test_a_choice_is_printed_and_continues_where_it_was(isolatent, tmp_path):
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Laplace(0.08), iso.Linear(), seed=0)
    x, x_pos = (part.numpy() for part in world.sample_pairs(2000))
    np.savez(tmp_path / "pairs.npz", x=x, x_pos=x_pos)
    options = ("--n-components", 2, "--spaces", "box", "--steps", 10, "--no-diagnose")
    done = isolatent("choose", "pairs.npz", *options, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["best"]["space"] == "box"
    assert "after 10 steps" in done.err
    again = isolatent("choose", "pairs.npz", *options, "--json")
    assert (json.loads(again.out), again.err) == (record, "")
    text = isolatent("choose", "pairs.npz", *options, "--quiet")
    assert text.out.startswith("box, ")
    assert text.out.endswith("report: choice/report.html\n")
    page = (tmp_path / "choice" / "report.html").read_text()
    assert record["verdict"] in unescape(page)
    (tmp_path / "choice" / "report.html").write_text("precious")
    done = isolatent("choose", "pairs.npz", *options)
    assert (done.code, "choice/report.html exists" in done.err) == (2, True)
    assert (tmp_path / "choice" / "report.html").read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--n-components", "some"), "--n-components must be auto or a positive integer"),
        (("--lags", "1,x"), "--lags must be numbers of rows"),
        (("--lags", "1"), "--lags is for a time series"),
        (("--spaces", "torus"), "spaces must be one of"),
    ],
)
def test_choices_that_cannot_be_made(isolatent, files, options, message):
    done = isolatent("choose", files / "pairs.npz", *options)
    assert done.code == 2
    assert message in done.err


def test_json_has_the_card_as_structure(isolatent, files, tmp_path):
    """Not only as text of several lines."""
    fitted = json.loads(
        isolatent("fit", files / "series.csv", "--session", "day", *QUICK, "--json").out
    )
    shown = json.loads(isolatent("info", "model", "--json").out)
    model = ContrastiveICA.load(tmp_path / "model")
    for found in (fitted, shown):
        card = found["card"]
        assert card["equivalence"] == model.guarantee_.equivalence
        assert len(card["assumptions"]) == len(model.guarantee_.assumptions)
        assert set(found["gains"]) == set(model.gains_)
        assert (found["axes"] is None) == (model.axes_ is None)
        assert (found["support"] is None) == (model.support_ is None)
        assert found["guarantee"] == str(model.guarantee_)


@pytest.mark.parametrize(
    "error", [KeyError("x"), TypeError("no"), RecursionError("deep"), IndexError("3")], ids=repr
)
def test_what_no_check_foresaw_in_a_file_is_one_line(isolatent, files, model, monkeypatch, error):
    """Whatever reads it: a table, a file of arrays, or true factors."""

    def fail(*arguments):
        raise error

    monkeypatch.setattr("isolatent.pairs.readers.text_tables.sniff_dialect", fail)
    monkeypatch.setattr("isolatent.pairs.readers.array_files.contents_of", fail)
    for name, truth in (("x.csv", "z.npy"), ("pairs.npz", "z.npy"), ("x.npy", "pairs.npz")):
        damaged = name if name != "x.npy" else "pairs.npz"
        done = isolatent("evaluate", model, files / name, "--truth", files / truth)
        assert done.code == 2
        assert done.err.startswith(f"isolatent: {damaged} is damaged: ")
        assert done.err.count("\n") == 1
