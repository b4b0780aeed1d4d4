"""From a messy file to codes: chosen columns, gaps, times, and the record that a model keeps."""

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from command_line import NAMES, QUICK, run_main
from isolatent import evaluation
from isolatent.cli.app import COMMAND_GROUPS, OPTION_GROUPS, app, printable
from isolatent.cli.data_options import DATA_RECORD
from isolatent.cli.model import holds_results
from isolatent.diagnosis import Choice, Diagnosis
from isolatent.training import ContrastiveICA

DECLARED = ("--space", "euclidean")  # nothing is searched for, so that fits are short


def write_messy(path, world):
    """Write a table with semicolons, gaps, a text column, a constant one, sessions and times."""
    x = world.x.copy()
    x[[3, 70, 71], [0, 1, 2]] = np.nan
    table = pd.DataFrame(x, columns=NAMES)
    table.insert(0, "when", pd.date_range("2026-03-29", periods=400, freq="20ms"))
    table = table.assign(trial=np.repeat(["a", "b"], 200), note="fine", gain=7.5)
    table.to_csv(path, sep=";", decimal=",", encoding="utf-8-sig", index=False)


@pytest.fixture(scope="module")
def fitted_to_messy(tmp_path_factory, world):
    """A model of a messy table, and what its fit printed."""
    folder = tmp_path_factory.mktemp("messy")
    write_messy(folder / "messy.csv", world)
    words = ("--time", "when", "--session", "trial", "--drop", "note", *DECLARED)
    command = ("fit", folder / "messy.csv", *words, *QUICK, "--out", folder / "model")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        assert run_main(patch, *command) == 0, err.getvalue()
    return SimpleNamespace(model=folder / "model", out=out.getvalue(), err=err.getvalue())


@pytest.fixture
def messy(tmp_path, fitted_to_messy):
    return shutil.copy(fitted_to_messy.model.parent / "messy.csv", tmp_path / "messy.csv")


@pytest.fixture
def model_of_messy(tmp_path, fitted_to_messy):
    model = shutil.copytree(fitted_to_messy.model, tmp_path / "of_messy")
    return model, fitted_to_messy


def test_what_was_done_to_a_messy_table_is_said_in_lines(model_of_messy):
    _, done = model_of_messy
    lines = done.out.splitlines()
    assert lines[:4] == [
        "read with columns separated by semicolons, decimal commas",
        "column 'gain' is constant, and left out",
        "3 of 400 rows have missing values and are left out of pairs: rows 3, 70, 71 (lines 5, 72, "
        "73)",
        "a time series of 400 rows, lag 1, 2 sessions, 3 columns",
    ]
    assert "rows hold NaN" not in done.err  # said once


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_codes_carry_row_session_and_time_without_options(
    isolatent, messy, model_of_messy, suffix, world
):
    model, _ = model_of_messy
    out = messy.parent / f"codes{suffix}"
    done = isolatent("transform", model, messy, "--out", out)
    assert done.code == 0, done.err
    assert done.out.startswith("read with columns separated by semicolons")
    assert done.out.endswith("3 components; 3 rows with missing values have no codes\n")
    if suffix == ".npz":
        found = dict(np.load(out))
        h = found.pop("h")
    else:
        read = pd.read_csv if suffix == ".csv" else pd.read_parquet
        found = read(out)
        assert [*found] == ["row", "session", "time", "h0", "h1", "h2"]
        h = found[["h0", "h1", "h2"]].to_numpy()
    assert [*found["row"]] == [*range(400)]
    assert [*found["session"]] == ["a"] * 200 + ["b"] * 200
    times = pd.to_datetime(np.asarray(found["time"]))
    assert (times == pd.date_range("2026-03-29", periods=400, freq="20ms")).all()
    assert np.flatnonzero(np.isnan(h).any(axis=1)).tolist() == [3, 70, 71]
    known = ~np.isnan(h).any(axis=1)
    expected = ContrastiveICA.load(model).transform(world.x[known])
    np.testing.assert_allclose(h[known], expected, rtol=1e-5, atol=1e-6)


def test_every_command_says_how_it_read_a_file(isolatent, messy, model_of_messy, world):
    model, _ = model_of_messy
    np.save("z.npy", world.z)
    for words in (
        ("evaluate", model, messy, "--truth", "z.npy"),
        ("report", model, "--data", messy),
    ):
        done = isolatent(*words)
        assert done.code == 0, done.err
        assert done.out.startswith("read with columns separated by semicolons")
    done = isolatent("diagnose", model, messy)
    assert done.out.startswith("read with columns separated by semicolons")


def test_new_data_need_only_the_columns_of_the_fit(isolatent, messy, model_of_messy, world):
    model, _ = model_of_messy
    path = messy.parent / "new.csv"
    pd.DataFrame(world.x, columns=NAMES)[NAMES[::-1]].assign(other="text").to_csv(path, index=False)
    done = isolatent("transform", model, path, "--out", messy.parent / "h.csv")
    assert done.code == 0, done.err
    assert [*pd.read_csv(messy.parent / "h.csv")] == ["row", "h0", "h1", "h2"]


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"format": 99}', "\x00", "[" * 100_000, '{"format": 1, "time": 3}'],
    ids=["cut", "list", "format", "binary", "deep", "type"],
)
def test_a_damaged_record_is_named(isolatent, messy, model_of_messy, content):
    model, _ = model_of_messy
    (model / DATA_RECORD).write_text(content)
    done = isolatent("transform", model, messy)
    assert done.code == 2
    assert done.err.startswith(f"isolatent: {model / DATA_RECORD} is damaged: ")


def test_columns_without_names_are_known_by_their_numbers(isolatent, tmp_path, world):
    x = np.column_stack([world.x[:, 0], np.ones(400), world.x[:, 1:]])
    np.save(tmp_path / "x.npy", x)
    done = isolatent("fit", "x.npy", *QUICK, *DECLARED, "--columns", "0-2,3", "--out", "model")
    assert done.code == 0, done.err
    assert "column 1 is constant, and left out" in done.out
    assert isolatent("transform", "model", "x.npy", "--out", "h.npy").code == 0
    np.save(tmp_path / "kept.npy", world.x)
    assert isolatent("transform", "model", "kept.npy", "--out", "k.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "h.npy"), np.load(tmp_path / "k.npy"))


def test_positives_in_columns_with_a_suffix(isolatent, tmp_path, world):
    pos = pd.DataFrame(world.x_pos, columns=[f"{name}_pos" for name in NAMES])
    table = pd.concat([pd.DataFrame(world.x, columns=NAMES), pos], axis=1)
    table.to_parquet(tmp_path / "wide.parquet")
    done = isolatent(
        "fit", "wide.parquet", "--positive-suffix", "_pos", *QUICK, *DECLARED, "--out", "model"
    )
    assert done.code == 0, done.err
    assert "400 pairs, 3 columns" in done.out
    assert isolatent("transform", "model", "wide.parquet").code == 0


def test_images_have_an_encoder_on_the_command_line(isolatent, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.random((60, 20, 24)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, x_pos=x + 0.1 * rng.random(x.shape, dtype=np.float32))
    quick = ("--n-components", "2", "--max-steps", "3", "--batch-size", "16")
    done = isolatent("fit", "x.npz", "--encoder", "conv", *quick, *DECLARED, "--out", "model")
    assert done.code == 0, done.err
    assert isolatent("transform", "model", "x.npz", "--out", "h.npy").code == 0
    assert np.load(tmp_path / "h.npy").shape == (60, 2)


@pytest.fixture
def paused(tmp_path, world):
    """A table with a time for each row and a pause after row 149."""
    times = np.arange(400.0) + 100 * (np.arange(400) >= 150)
    table = pd.DataFrame(world.x, columns=NAMES).assign(when=times, gain=7.5)
    table.to_csv(tmp_path / "paused.csv", index=False)
    return times


def test_times_of_a_fit_reach_its_diagnosis_and_its_pages(isolatent, paused, monkeypatch):
    given = []
    found = Diagnosis(None, (), None, (), "Cannot tell.")
    monkeypatch.setattr(
        ContrastiveICA, "diagnose", lambda self, *x, **options: given.append(options) or found
    )
    pages = []
    monkeypatch.setattr(
        "isolatent.report.write_report", lambda path, page, **how: pages.append(page)
    )
    gap = ("--max-gap", "2")
    command = ("fit", "paused.csv", "--time", "when", *gap, *DECLARED, *QUICK, "--diagnose")
    assert isolatent(*command).code == 0
    np.testing.assert_array_equal(given[0]["times"], paused)
    assert given[0]["max_gap"] == 2
    assert isolatent("report", "model", "--data", "paused.csv").code == 0
    for page in pages:
        assert page.sections[0].rows.times.tolist() == paused.tolist()


def test_a_choice_takes_times_and_says_what_was_left_out(isolatent, paused, monkeypatch):
    given = []

    def compare(x, x_pos, *, times, max_gap, model, **options):
        given.extend([x.shape, times, max_gap, model.window])
        return Choice(None, (), None, None, None, (), "Cannot tell.")

    monkeypatch.setattr("isolatent.diagnosis.choose", compare)
    done = isolatent("choose", "paused.csv", "--time", "when", "--max-gap", "2", "--window", "3")
    assert done.code == 0, done.err
    assert given[0] == (400, 3)  # neither the times nor what is constant
    np.testing.assert_array_equal(given[1], paused)
    assert given[2:4] == [2, 3]
    assert "'gain' is constant, and left out" in done.out
    assert "left out" not in isolatent("choose", "paused.csv", "--time", "when", "--quiet").out


# Output as JSON


def test_every_option_has_a_group(isolatent):
    """Help shows options in groups, so that those on images or output stand together."""
    import typer

    known = {name for names in OPTION_GROUPS.values() for name in names} | {"help"}
    for name, command in typer.main.get_command(app).commands.items():
        options = [p for p in command.params if p.param_type_name == "option"]
        if name in ("fit", "choose", "transform", "evaluate", "diagnose", "report", "watch"):
            assert {option.name for option in options} <= known, name
    shown = isolatent("fit", "--help").out
    for group, option in (("Images", "--grayscale"), ("Output", "--watch"), ("Output", "--diag")):
        part = shown.partition(f"{group}:\n")[2].partition("\n\n")[0]
        assert option in part, group


def test_every_command_has_json(isolatent):
    import typer

    for name, command in typer.main.get_command(app).commands.items():
        assert any(parameter.name == "json" for parameter in command.params), name


def test_json_is_one_document_on_standard_output(isolatent, files, model, tmp_path):
    truth = files / "pairs.npz"
    commands = {
        "info": (model,),
        "transform": (model, files / "x.csv"),
        "evaluate": (model, "--truth", truth, "--quiet"),
        "report": (model,),
        "reproduce": ("--list",),
        "fit": (truth, *QUICK, *DECLARED, "--out", tmp_path / "new", "--quiet"),
        "demo": ("--max-steps", "2", "--quiet"),
    }
    found = {}
    for name, arguments in commands.items():
        done = isolatent(name, *arguments, "--json")
        assert (done.code, done.err) == (0, ""), (name, done.err)
        found[name] = json.loads(done.out)
    assert found["info"]["columns"] == NAMES
    assert found["fit"]["steps"] == 20
    assert found["evaluate"]["scores"]["mcc"]["value"] > 0
    assert {"name", "cells", "title"} == set(found["reproduce"][0])
    done = isolatent("info", model, "--json", "info.json")
    assert "guarantee: " in done.out
    assert json.loads((tmp_path / "info.json").read_text()) == found["info"]


def test_a_recording_is_scored_by_stretches_of_its_rows(isolatent, files, tmp_path):
    """Its interval is wider than that of a bootstrap over rows if neighbours are alike."""
    walk = np.cumsum(np.random.default_rng(0).normal(size=(400, 3)), axis=0)
    np.savez(tmp_path / "walk.npz", x=walk @ np.random.default_rng(1).normal(size=(3, 3)), z=walk)
    out = tmp_path / "recorded"
    done = isolatent("fit", "walk.npz", *QUICK, *DECLARED, "--out", out)
    assert done.code == 0, done.err
    done = isolatent("evaluate", out, "--truth", "walk.npz", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["block_rows"] == 20
    h = ContrastiveICA.load(out).transform(np.load("walk.npz")["x"])
    alone = evaluation.bootstrap(evaluation.mcc, walk, h)
    mcc = found["scores"]["mcc"]
    assert mcc["value"] == pytest.approx(alone.value)
    assert mcc["high"] - mcc["low"] > 1.5 * (alone.high - alone.low)


def test_evaluation_shows_its_progress(isolatent, files, model):
    done = isolatent("evaluate", model, files / "x.npy", "--truth", files / "z.npy")
    assert done.err.splitlines() == [
        "encoding 400 rows",
        "scoring linear_r2 (1 of 2)",
        "scoring mcc (2 of 2)",
    ]


# Help, and what does not wait


def test_options_and_commands_are_grouped(isolatent):
    lines = isolatent("fit", "--help").out.splitlines()
    heads = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads == [
        *("Arguments:", "Data:", "Images:", "Model:", "Training:", "Output:", "Devices:"),
        "Options:",
    ]
    lines = isolatent("--help").out.splitlines()
    assert [head for head in COMMAND_GROUPS if f"{head}:" in lines] == [*COMMAND_GROUPS]
    assert "Exit codes: 0 done; 1" in " ".join(lines)


def test_a_folder_of_other_things_is_not_walked(tmp_path, monkeypatch):
    deep = tmp_path
    for k in range(12):
        deep = deep / f"d{k}"
    (deep / "experiments").mkdir(parents=True)
    (deep / "experiments" / "a.json").write_text("{}")
    assert not holds_results(tmp_path)
    near = tmp_path / "results" / "paper" / "table" / "experiments"
    near.mkdir(parents=True)
    (near / "a.json").write_text("{}")
    assert holds_results(tmp_path)
    monkeypatch.setattr("isolatent.cli.model.MAX_ENTRIES", 2)
    for k in range(5):
        (tmp_path / f"file{k}").touch()
    assert not holds_results(tmp_path)


def test_columns_with_escape_sequences_do_not_reach_the_terminal(isolatent, tmp_path, world):
    names = ["left\x1b[31m", "right\x07", "up\x9b2J"]
    pd.DataFrame(world.x, columns=names).to_csv(tmp_path / "x.csv", index=False)
    done = isolatent("fit", "x.csv", *QUICK, *DECLARED, "--out", "model")
    shown = done.out + done.err + isolatent("info", "model").out
    (tmp_path / "other.csv").write_text("a\x1b[2J,b\n1,x\n2,y\n")
    shown += isolatent("transform", "model", "other.csv").err
    shown += isolatent("fit", "other.csv", "--session", "\x1b[2J").err
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert "left\\x1b[31m" in shown
    assert printable("µ σ²\tüÄ") == "µ σ²\\tüÄ"
