"""From a file to a model and back to files, as a person does it, and all that can go wrong."""

import csv
import hashlib
import json
import os
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import typer

from isolatent.cli import main
from isolatent.cli.app import app
from isolatent.cli.fit import LOSSES, USUAL, Place
from isolatent.evaluation import LOSSES as KNOWN_LOSSES
from isolatent.evaluation import SPACES, linear_r2
from isolatent.training import ContrastiveICA, ProgressDisplay
from isolatent.worlds import InvertibleMLP, Sphere, Uniform, VonMisesFisher, World

QUICK = ("--components", "3", "--steps", "20", "--batch", "64")
NAMES = ["left", "right", "up"]


def run_main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["isolatent", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


@pytest.fixture
def isolatent(monkeypatch, capsys):
    def run(*arguments):
        code = run_main(monkeypatch, *arguments)
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture(scope="module")
def world():
    world = World(Sphere(3), Uniform(), VonMisesFisher(20.0), InvertibleMLP(layers=2), seed=0)
    z, z_pos = world.sample_latents(400)
    x, x_pos = (world.observe(part).double().numpy() for part in (z, z_pos))
    return SimpleNamespace(x=x, x_pos=x_pos, z=z.double().numpy())


@pytest.fixture
def files(tmp_path, world):
    """The same data in every format, in a directory of their own."""
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "x.npy", world.x)
    np.save(folder / "x_pos.npy", world.x_pos)
    np.save(folder / "z.npy", world.z)
    np.savez(folder / "pairs.npz", x=world.x, x_pos=world.x_pos, z=world.z)
    np.savez(folder / "series.npz", x=world.x, session=np.arange(400) // 100)
    table = pd.DataFrame(world.x, columns=NAMES)
    table_pos = pd.DataFrame(world.x_pos, columns=NAMES)
    day = np.repeat(["mon", "tue"], 200)
    table.assign(day=day).to_csv(folder / "series.csv", index=False)
    table.assign(day=day).to_parquet(folder / "series.parquet", index=False)
    table.to_csv(folder / "x.csv", index=False)
    table_pos.to_csv(folder / "x_pos.csv", index=False)
    table.to_parquet(folder / "x.parquet", index=False)
    table_pos.to_parquet(folder / "x_pos.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, world):
    """A model of the two tables; copy it before you change it."""
    folder = tmp_path_factory.mktemp("fitted")
    for name, x in (("x.csv", world.x), ("x_pos.csv", world.x_pos)):
        pd.DataFrame(x, columns=NAMES).to_csv(folder / name, index=False)
    with pytest.MonkeyPatch.context() as patch:
        paths = folder / "x.csv", folder / "x_pos.csv"
        assert run_main(patch, "fit", *paths, *QUICK, "--out", folder / "model", "--quiet") == 0
    return folder / "model"


@pytest.fixture
def model(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "model")


def contents(folder):
    """Every path below and a hash of what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("x.npy", "x_pos.npy"),
        ("x.npy", "--lag", "2"),
        ("pairs.npz",),
        ("series.npz",),
        ("x.csv", "x_pos.csv"),
        ("x.parquet", "x_pos.parquet"),
        ("x.npy", "x_pos.parquet"),
        ("series.csv", "--session", "day", "--lag", "3"),
        ("series.parquet", "--session", "day"),
    ],
    ids=" ".join,
)
def test_every_format_makes_a_model_that_can_be_used(isolatent, files, tmp_path, world, arguments):
    paths = [files / word if "." in word else word for word in arguments]
    out = tmp_path / "deep" / "model"
    done = isolatent("fit", *paths, *QUICK, "--out", out)
    assert done.code == 0, done.err
    assert f"saved {out}: 20 steps, loss " in done.out
    assert "sphere, uniform marginal, vmf conditional" in done.out
    assert "step 20 of at most 20" in done.err
    assert {"model.json", "model.safetensors"} <= set(os.listdir(out))
    done = isolatent("transform", out, files / "x.npy", "--out", tmp_path / "h.npy")
    assert done.code == 0, done.err
    np.testing.assert_array_equal(
        np.load(tmp_path / "h.npy"), ContrastiveICA.load(out).transform(world.x)
    )


def test_the_same_seed_gives_the_same_model_whatever_the_format(isolatent, files, tmp_path):
    codes = []
    for k, (paths, seed) in enumerate(
        [
            (["x.npy", "x_pos.npy"], 1),
            (["pairs.npz"], 1),
            (["x.parquet", "x_pos.parquet"], 1),
            (["pairs.npz"], 2),
        ]
    ):
        out, h = tmp_path / f"model{k}", tmp_path / f"h{k}.npy"
        paths = [files / name for name in paths]
        assert isolatent("fit", *paths, *QUICK, "--out", out, "--seed", seed).code == 0
        assert isolatent("transform", out, files / "x.npy", "--out", h).code == 0
        codes.append(np.load(h))
    np.testing.assert_array_equal(codes[0], codes[1])
    np.testing.assert_array_equal(codes[0], codes[2])
    assert not np.array_equal(codes[0], codes[3])


def test_quiet_prints_the_result_only(isolatent, files, tmp_path):
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--out", tmp_path / "m", "--quiet")
    assert done.err == ""
    assert done.out.startswith("guarantee: orthogonal map")
    assert "400 pairs" not in done.out


def test_the_components_are_the_columns_if_nothing_is_said(isolatent, files, tmp_path):
    done = isolatent("fit", files / "pairs.npz", *QUICK[2:], "--out", tmp_path / "m")
    assert "400 pairs of rows, 3 columns\n3 components; sphere" in done.out


@pytest.mark.parametrize("space", SPACES)
def test_every_space_has_usual_beliefs(isolatent, files, tmp_path, space):
    out = tmp_path / "model"
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--space", space, "--out", out)
    assert done.code == 0, done.err
    marginal, conditional = USUAL[space]
    beliefs = f"{space}, {marginal} marginal, {conditional} conditional"
    assert beliefs in done.out
    assert beliefs in isolatent("info", out).out


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_can_be_asked_for(isolatent, files, tmp_path, loss):
    assert loss in KNOWN_LOSSES
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--loss", loss, "--out", tmp_path / "m")
    assert done.code == 0, done.err


def test_the_log_has_a_line_for_each_step(isolatent, files, tmp_path):
    out = tmp_path / "model"
    assert isolatent("fit", files / "pairs.npz", *QUICK, "--out", out, "--log", "csv").code == 0
    with (out / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows] == list(range(1, 21))
    history = ContrastiveICA.load(out).history_
    assert float(rows[-1]["loss"]) == pytest.approx(history[-1].loss)


def test_overwriting_replaces_the_model_and_nothing_else(isolatent, files, model):
    (model / "notes.txt").write_text("precious")
    (model / "log.csv").write_text("number,total,loss\n")
    (model / "checkpoints").mkdir(exist_ok=True)
    (model / "checkpoints" / "mine.json").write_text("precious")
    before = contents(model)
    done = isolatent(
        *("fit", files / "pairs.npz", *QUICK, "--seed", "5", "--out", model, "--overwrite")
    )
    assert done.code == 0, done.err
    after = contents(model)
    for name in ("notes.txt", "checkpoints/mine.json"):
        assert after[name] == before[name]
    for name in ("model.json", "model.safetensors"):
        assert after[name] != before[name]
    assert "log.csv" not in after  # the other model's


def test_an_interrupted_run_says_how_to_go_on_and_ends_as_if_it_had_not_been(
    isolatent, files, tmp_path, monkeypatch
):
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    command = ("fit", files / "pairs.npz", *QUICK, "--log", "csv", "--out")
    assert isolatent(*command, whole).code == 0
    show = ProgressDisplay.__call__

    def interrupt(display, step):
        show(display, step)
        if step.number == 13:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressDisplay, "__call__", interrupt)
        done = isolatent(*command, halved)
    assert done.code == 130
    assert "Traceback" not in done.err
    advice = done.err.splitlines()[-1]
    assert advice.startswith("interrupted; go on with: isolatent fit ")
    assert advice.endswith(" --resume")
    assert not (halved / "model.json").exists()
    done = isolatent(*command, halved)
    assert done.code == 2
    assert "or --resume to go on from its checkpoint" in done.err
    done = isolatent(*advice.split()[5:])
    assert done.code == 0, done.err
    h = [ContrastiveICA.load(out).transform(np.load(files / "x.npy")) for out in (whole, halved)]
    np.testing.assert_array_equal(*h)
    assert (whole / "log.csv").read_text() == (halved / "log.csv").read_text()


def test_an_interrupt_before_the_first_checkpoint_says_so(isolatent, files, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("isolatent.pairs.files.read_observations", interrupt)
    done = isolatent("fit", files / "pairs.npz", "--out", tmp_path / "model")
    assert done.code == 130
    assert done.err == "interrupted before the first checkpoint; nothing to resume\n"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("devices", "environment", "first"),
    [
        (1, {}, True),
        (1, {"RANK": "1"}, True),  # left over from something else: this process trains alone
        (2, {}, True),
        (2, {"LOCAL_RANK": "0"}, True),
        (2, {"LOCAL_RANK": "1"}, False),
        (2, {"NODE_RANK": "1"}, False),
        (1, {"RANK": "1", "WORLD_SIZE": "2"}, False),  # torchrun
        (1, {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}, True),
    ],
)
def test_one_process_of_many_prints(monkeypatch, devices, environment, first):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Place("cpu", devices, 1, "32").is_first is first


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


def test_codes_do_not_depend_on_chunks_nor_on_the_order_of_columns(
    isolatent, files, model, tmp_path, world, monkeypatch
):
    monkeypatch.setattr("isolatent.pairs.files.CHUNK_VALUES", 100)
    table = pd.DataFrame(world.x, columns=NAMES)[NAMES[::-1]].assign(day="mon")
    table.to_csv(tmp_path / "turned.csv", index=False)
    out = tmp_path / "h.npy"
    done = isolatent(
        *("transform", model, tmp_path / "turned.csv", "--session", "day", "--out", out)
    )
    assert done.code == 0, done.err
    h = ContrastiveICA.load(model).transform(world.x)
    np.testing.assert_allclose(np.load(out), h, rtol=1e-5, atol=1e-6)


def test_one_row_can_be_transformed(isolatent, model, tmp_path, world):
    np.save(tmp_path / "one.npy", world.x[:1])
    out = tmp_path / "h.npy"
    assert isolatent("transform", model, tmp_path / "one.npy", "--out", out).code == 0
    assert np.load(out).shape == (1, 3)


@pytest.mark.parametrize("paths", [("x.npy", "z.npy"), ("x.csv", "pairs.npz"), (None, "pairs.npz")])
def test_scores_begin_with_what_the_guarantee_is_about(
    isolatent, files, model, tmp_path, world, paths
):
    data, truth = paths
    given = [] if data is None else [files / data]
    figures = tmp_path / "scores.json"
    done = isolatent(
        *("evaluate", model, *given, "--truth", files / truth, "--json", figures),
        *("--blocks", "0,1/2"),
    )
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("linear_r2 ")
    assert lines[0].endswith("  what the guarantee is about")
    assert [line.split()[0] for line in lines[1:4]] == ["mcc", "block_r2", "block_mcc"]
    written = json.loads(figures.read_text())
    assert written["metric"] == "linear_r2"
    assert written["rows"] == 400
    h = ContrastiveICA.load(model).transform(world.x)
    score = written["scores"]["linear_r2"]
    assert score["value"] == pytest.approx(linear_r2(world.z, h), abs=1e-6)
    assert score["low"] < score["value"] < score["high"]


def test_info_says_what_the_model_is(isolatent, model):
    done = isolatent("info", model)
    assert done.code == 0, done.err
    for words in (
        "sphere, uniform marginal, vmf conditional",
        "3 columns to 3 components",
        "left, right, up",
        "infonce",
        "steps 20, batch 64",
        "20 of 20",
        "final loss",
        "scale",
        "format 1",
        "guarantee: orthogonal map",
        "Zimmermann et al. 2021",
    ):
        assert words in done.out


def spoil(files, world):
    """Files of which each has one fault."""
    np.save(files / "nan.npy", np.where(np.arange(400)[:, None] == 7, np.nan, world.x))
    np.save(files / "flat.npy", world.x[:, 0])
    np.save(files / "short.npy", world.x[:-1])
    np.save(files / "one.npy", world.x[:1])
    np.save(files / "wide.npy", np.hstack([world.x, world.x]))
    np.save(files / "constant.npy", np.hstack([world.x, np.ones((400, 2))]))
    np.savez(files / "other.npz", y=world.x, label=np.arange(400))
    table = pd.DataFrame(world.x, columns=NAMES)
    table.assign(still=1.0).to_csv(files / "constant.csv", index=False)
    table.rename(columns={"up": "down"}).to_csv(files / "down.csv", index=False)
    table.to_csv(files / "x.tsv", index=False)
    table.iloc[5, 1] = np.nan
    table.to_csv(files / "nan.csv", index=False)


# What to run ({d}: data, {w}: a directory to work in) and what the line must say.
BAD = [
    ("fit {d}/nan.npy", "nan.npy: must be finite, got nan in row 7, column 0"),
    ("fit {d}/nan.csv", "nan.csv: must be finite, got nan or no value in row 5, column 'right'"),
    ("fit {d}/flat.npy", "must have shape (rows, columns), got shape (400,)"),
    ("fit {d}/x.npy {d}/short.npy", "x.npy has 400 rows and short.npy has 399"),
    ("fit {d}/x.npy {d}/wide.npy", "x.npy has 3 columns and wide.npy has 6"),
    ("fit {d}/one.npy", "must have at least 2 rows, got 1"),
    ("fit {d}/constant.npy", "constant.npy: columns 3, 4 are constant"),
    ("fit {d}/constant.csv", "constant.csv: column 'still' is constant"),
    ("fit {d}/series.csv", "column 'day' holds text ('mon'), not numbers; if it tells sessions"),
    ("fit {d}/no.npy", "no.npy: does not exist"),
    ("fit {d}/x.npy {d}/no.npy", "no.npy: does not exist"),
    ("fit {d}", "must end in one of .npy, .npz, .csv, .parquet"),
    ("fit {d}/x.tsv", "must end in one of .npy, .npz, .csv, .parquet, got '.tsv'"),
    ("fit {d}/other.npz", "has no array 'x'; it has 'y', 'label'"),
    ("fit {d}/x.npy --session day", "an .npy has no names"),
    ("fit {d}/series.csv --session week", "has no column 'week' for --session"),
    ("fit {d}/series.csv --session week", "it has 'left', 'right', 'up', 'day'"),
    ("fit {d}/x.npy {d}/x_pos.npy --lag 2", "--lag is for a series in one file"),
    ("fit {d}/pairs.npz --lag 2", "--lag is for a series; pairs.npz holds pairs already"),
    ("fit {d}/x.npy --lag 400", "--lag must be shorter than the longest session, 400 rows, got"),
    ("fit {d}/series.csv --session day --lag 200", "longest session, 200 rows, got 200"),
    ("fit {d}/x.npy --lag 0", "--lag must be an integer >= 1, got 0"),
    ("fit {d}/x.npy --steps 0", "--steps must be an integer >= 1, got 0"),
    ("fit {d}/x.npy --batch 1", "--batch must be an integer >= 2, got 1"),
    ("fit {d}/x.npy --components 0", "--components must be an integer >= 1, got 0"),
    ("fit {d}/x.npy --components 1", "at least 2 on a sphere, got 1"),
    ("fit {d}/x.npy --seed -1", "--seed must be an integer >= 0"),
    ("fit {d}/x.npy --space torus", "--space must be one of 'sphere', 'box'"),
    ("fit {d}/x.npy --marginal cauchy", "--marginal must be one of 'uniform'"),
    ("fit {d}/x.npy --conditional cauchy", "--conditional must be one of 'vmf'"),
    ("fit {d}/x.npy --space box --conditional vmf", "conditional 'vmf' goes with space 'sphere'"),
    ("fit {d}/x.npy --space box --conditional gennorm", "--p must be given with --conditional"),
    ("fit {d}/x.npy --p 3", "p goes with conditional 'gennorm' alone"),
    ("fit {d}/x.npy --loss mse", "--loss must be one of 'infonce'"),
    ("fit {d}/x.npy --log tensorboard", "--log must be one of 'csv'"),
    ("fit {d}/x.npy --precision 16", "--precision must be one of '32', 'bf16-mixed'"),
    ("fit {d}/x.npy --accelerator tpu", "--accelerator must be one of 'auto', 'cpu', 'cuda'"),
    ("fit {d}/x.npy --devices 0", "--devices must be an integer >= 1, got 0"),
    ("fit {d}/x.npy --batch 63 --devices 2", "a multiple of --devices times --nodes, 2, got 63"),
    ("fit {d}/x.npy --resume", "holds no checkpoint; start without --resume"),
    ("fit {d}/x.npy --resume --overwrite", "give one of them"),
    ("fit {d}/x.npy --out {d}/x.csv", "--out must be a directory, but"),
    ("fit {d}/x.npy --out {d}/x.csv/model", "x.csv is a file"),
    ("fit {d}/x.npy --out {d}", "is not empty and holds no model of isolatent"),
    ("fit {d}/x.npy --out {d} --overwrite", "is not empty and holds no model of isolatent"),
    ("fit {d}/x.npy --out {w}/foreign --overwrite", "holds no model of isolatent"),
    ("fit {d}/x.npy --out {w}/model", "is not empty; pass --overwrite to replace the model"),
    ("fit {d}/nan.npy --out {w}/model --overwrite", "must be finite, got nan"),
    ("transform {w}/no {d}/x.npy", "MODEL: {w}/no is not a directory"),
    ("transform {d} {d}/x.npy", "MODEL: {d} is not a model, it has no model.json"),
    ("transform {w}/damaged {d}/x.npy", "damaged"),
    ("transform {w}/model {d}/no.npy", "no.npy: does not exist"),
    ("transform {w}/model {d}/nan.npy", "must be finite, got nan in row 7, column 0"),
    ("transform {w}/model {d}/wide.npy", "wide.npy: must have 3 columns, as the model was fitted"),
    ("transform {w}/model {d}/down.csv", "lacks 'up', has also 'down'"),
    ("transform {w}/model {d}/series.csv", "column 'day' holds text"),
    ("transform {w}/model {d}/x.npy --out {d}/x.csv", "exists; pass --overwrite"),
    ("transform {w}/model {d}/x.csv --out {d}/x.csv --overwrite", "must not be the data"),
    ("transform {w}/model {d}/x.npy --out {w}/h.txt", "suffix must be one of '.npy'"),
    ("transform {w}/model {d}/x.npy --out {w}/no/h.npy", "does not exist"),
    ("evaluate {w}/model {d}/x.npy", "Missing option '--truth'"),
    ("evaluate {w}/model --truth {d}/z.npy", "an .npz with arrays 'x' and 'z' if DATA is not"),
    ("evaluate {w}/model --truth {d}/other.npz", "has no array 'z'; it has 'y', 'label'"),
    ("evaluate {w}/model {d}/short.npy --truth {d}/z.npy", "z.npy has 400 rows of factors, but"),
    ("evaluate {w}/model {d}/x.npy --truth {d}/z.npy --blocks a", "--blocks must be factors'"),
    ("evaluate {w}/model {d}/x.npy --truth {d}/z.npy --blocks 0/1", "blocks"),
    ("evaluate {w}/model {d}/x.npy --truth {d}/z.npy --json {d}/x.csv", "exists; pass --overwri"),
    ("info {d}", "MODEL: {d} is not a model, it has no model.json"),
]


@pytest.mark.parametrize(("command", "message"), BAD, ids=[command for command, _ in BAD])
def test_a_mistake_is_one_line_and_nothing_is_changed(
    isolatent, files, world, tmp_path, monkeypatch, request, command, message
):
    spoil(files, world)
    work = tmp_path / "work"
    work.mkdir()
    if "{w}/model" in command:
        shutil.copytree(request.getfixturevalue("fitted"), work / "model")
    if "damaged" in command:
        shutil.copytree(request.getfixturevalue("fitted"), work / "damaged")
        (work / "damaged" / "model.json").write_text("{}")
    (work / "foreign").mkdir()
    (work / "foreign" / "model.json").write_text('{"precious": true}')
    monkeypatch.chdir(work)
    before = contents(tmp_path)
    done = isolatent(*(word.format(d=files, w=work) for word in command.split()))
    assert done.code == 2
    assert message.format(d=files, w=work) in done.err
    assert "Traceback" not in done.err
    if not done.err.startswith("Usage"):  # what typer says about options is its own
        assert done.err.startswith("isolatent: ")
        assert done.err.count("\n") == 1
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.name != "posix" or not os.path.isdir("/proc"), reason="needs /proc")
def test_a_directory_that_cannot_be_written_is_found_before_training(isolatent, files):
    """Not even root can make a directory in /proc."""
    done = isolatent("fit", files / "x.npy", "--out", "/proc/model")
    assert done.code == 2
    assert "--out: cannot write in /proc" in done.err


@pytest.mark.parametrize("command", ["demo", "fit", "transform", "evaluate", "info", "report"])
def test_every_option_has_a_line_of_help(isolatent, command):
    assert isolatent(command, "--help").code == 0
    for parameter in typer.main.get_command(app).commands[command].params:
        assert parameter.help, parameter.name
