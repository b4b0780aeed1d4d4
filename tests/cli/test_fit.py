"""The command fit: formats, beliefs, logs, reports and resumption."""

import csv
import json
import os
import re

import numpy as np
import pandas as pd
import pytest

from command_line import NAMES, QUICK, contents
from isolatent.cli.fit import FIT_LOSSES, is_first_process
from isolatent.report import write_report
from isolatent.theory import LOSSES as KNOWN_LOSSES
from isolatent.theory import SPACES
from isolatent.training import ContrastiveICA, ProgressDisplay


@pytest.mark.parametrize(
    "arguments",
    [
        ("x.npy", "x_pos.npy"),
        ("x.npy", "--lag", "2"),
        ("x.npy", "--lag", "2:2"),
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
def test_a_model_can_be_fitted_to_every_format(isolatent, files, tmp_path, world, arguments):
    paths = [files / word if "." in word else word for word in arguments]
    out = tmp_path / "deep" / "model"
    done = isolatent("fit", *paths, *QUICK, "--out", out)
    assert done.code == 0, done.err
    assert f"saved {out}: 20 steps, loss " in done.out
    assert "; nothing declared;" in done.out
    assert "step 20 of at most 20" in done.err
    assert {"model.json", "model.safetensors"} <= set(os.listdir(out))
    done = isolatent("transform", out, files / "x.npy", "--out", tmp_path / "h.npy")
    assert done.code == 0, done.err
    np.testing.assert_array_equal(
        np.load(tmp_path / "h.npy"), ContrastiveICA.load(out).transform(world.x)
    )


def test_the_same_seed_gives_the_same_model_for_every_format(isolatent, files, tmp_path):
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
    assert done.out.startswith("guarantee: ")
    assert "400 pairs" not in done.out


def test_the_default_number_of_components_is_that_of_columns(isolatent, files, tmp_path):
    done = isolatent("fit", files / "pairs.npz", *QUICK[2:], "--out", tmp_path / "m")
    assert "400 pairs, 3 columns\n3 components; nothing declared" in done.out


@pytest.mark.parametrize("space", SPACES)
def test_every_space_has_default_beliefs(isolatent, files, tmp_path, space):
    out = tmp_path / "model"
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--space", space, "--out", out)
    assert done.code == 0, done.err
    marginal = "normal" if space == "euclidean" else "uniform"
    conditional = "vmf" if space == "sphere" else "normal"
    beliefs = f"{space}, {marginal} marginal, {conditional} conditional"
    assert beliefs in done.out
    assert beliefs in isolatent("info", out).out


@pytest.mark.parametrize("loss", FIT_LOSSES)
def test_every_loss_can_be_chosen(isolatent, files, tmp_path, loss):
    assert loss in KNOWN_LOSSES
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--loss", loss, "--out", tmp_path / "m")
    assert done.code == 0, done.err


def test_the_log_has_a_line_for_every_step(isolatent, files, tmp_path):
    out = tmp_path / "model"
    assert isolatent("fit", files / "pairs.npz", *QUICK, "--out", out, "--log", "csv").code == 0
    with (out / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows] == list(range(1, 21))
    history = ContrastiveICA.load(out).history_
    assert float(rows[-1]["loss"]) == pytest.approx(history[-1].loss)


def test_overwriting_replaces_only_the_model(isolatent, files, model):
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
    assert "log.csv" not in after  # the log of the replaced model


def test_an_interrupted_run_can_be_resumed_to_the_same_model(
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
    assert advice.startswith("interrupted; resume with: isolatent fit ")
    assert advice.endswith(" --resume")
    assert not (halved / "model.json").exists()
    done = isolatent(*command, halved)
    assert done.code == 2
    assert "or --resume to continue from its checkpoint" in done.err
    done = isolatent(*advice.split()[4:])
    assert done.code == 0, done.err
    h = [ContrastiveICA.load(out).transform(np.load(files / "x.npy")) for out in (whole, halved)]
    np.testing.assert_array_equal(*h)
    assert (whole / "log.csv").read_text() == (halved / "log.csv").read_text()


def test_an_interrupt_before_the_first_checkpoint_says_so(isolatent, files, tmp_path, monkeypatch):
    def interrupt(*_, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("isolatent.pairs.readers.read_observations", interrupt)
    done = isolatent("fit", files / "pairs.npz", "--out", tmp_path / "model")
    assert done.code == 130
    assert done.err == "interrupted before the first checkpoint; nothing to resume\n"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("devices", "environment", "first"),
    [
        (1, {}, True),
        (1, {"RANK": "1"}, True),  # set by another program: this process trains alone
        (2, {}, True),
        (2, {"LOCAL_RANK": "0"}, True),
        (2, {"LOCAL_RANK": "1"}, False),
        (2, {"NODE_RANK": "1"}, False),
        (1, {"RANK": "1", "WORLD_SIZE": "2"}, False),  # torchrun
        (1, {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}, True),
    ],
)
def test_only_the_first_process_prints(monkeypatch, devices, environment, first):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_first_process(devices, 1) is first


def test_a_fit_replaces_its_own_report_and_no_other_file(isolatent, files, tmp_path):
    command = ("fit", files / "pairs.npz", *QUICK, "--quiet")
    done = isolatent(*command)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("report: model/report.html\n")
    page = tmp_path / "model" / "report.html"
    first = page.read_text()
    assert f"isolatent fit {files / 'pairs.npz'} --n-components 3 --max-steps 20" in first
    assert "400 rows. Choose axes and colour" in first
    assert isolatent("report", "model").out == "wrote model/report.html\n"
    second = page.read_text()
    assert "Choose axes and colour" not in second  # written without data
    assert isolatent(*command, "--seed", "1", "--overwrite").code == 0
    assert page.read_text() not in (first, second)
    page.write_text("precious")
    done = isolatent(*command, "--overwrite")
    assert done.code == 2
    assert "report.html was not written by isolatent; move it first" in done.err
    assert page.read_text() == "precious"


def test_a_fit_can_be_watched(isolatent, files, tmp_path, monkeypatch):
    """The report reloads itself while training runs, and is the final one afterwards."""
    written = []

    def write(path, page, *, overwrite, refresh):
        written.append((path.name, page.headline.label, refresh))
        write_report(path, page, overwrite=overwrite, refresh=refresh)

    monkeypatch.setattr("isolatent.report.live.write_report", write)
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--quiet", "--watch")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("open model/report.html in a browser")
    assert written == [("report.html", "Training", 5.0), ("report.html", "Trained", None)]
    page = (tmp_path / "model" / "report.html").read_text()
    assert "400 rows. Choose axes and colour" in page
    assert 'http-equiv="refresh"' not in page


@pytest.mark.parametrize(
    ("text", "relax"),
    [("pairing", ("pairing",)), ("marginal, pairing", ("marginal", "pairing")), ("auto", "auto")],
)
def test_relaxations_are_stored_and_shown(isolatent, files, tmp_path, monkeypatch, text, relax):
    monkeypatch.setattr("isolatent.training.relaxations.PROBE_STEPS", 5)
    out = tmp_path / "model"
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--relax", text, "--out", out)
    assert done.code == 0, done.err
    described = relax if relax == "auto" else ", ".join(relax)
    assert f"loss infonce, relax {described}, seed 0" in done.out
    model = ContrastiveICA.load(out)
    assert model.relax == relax
    page = (out / "report.html").read_text()
    info = isolatent("info", out).out
    for shown in (done.out, info):
        for sentence in model.guarantee_.learned:
            assert f"learned     {sentence}" in shown
        for name, (mean, error) in model.gains_.items():
            used = "  in use" if name in model.relaxed_ else ""
            assert f"  {name:<12}  {mean:.3f} ± {error:.3f}{used}\n" in shown
        assert ("relaxations compared by their gain" in shown) == (relax == "auto")
    assert "relaxed      " in info
    assert "Learned instead of assumed" in page
    for name in {*model.relaxed_, *model.gains_}:
        assert f"{name}: " in page
    if relax != "auto":
        assert "% of the pairs are related" in model.guarantee_.learned[0]
        assert model.guarantee_.learned[0] in page


def test_as_declared_nothing_is_said_of_relaxing(isolatent, files, tmp_path):
    declared = [*QUICK, "--space", "sphere"]
    done = isolatent("fit", files / "pairs.npz", *declared, "--out", tmp_path / "model")
    for shown in (done.out, isolatent("info", tmp_path / "model").out):
        assert "guarantee: " in shown
        assert "relax " not in shown
        assert "relaxed" not in shown
        assert "relaxations" not in shown
    assert "Learned instead" not in (tmp_path / "model" / "report.html").read_text()


def test_dynamics_are_relaxed_for_a_time_series(isolatent, files, tmp_path):
    out = tmp_path / "model"
    done = isolatent("fit", files / "x.npy", *QUICK, "--relax", "dynamics", "--out", out)
    assert done.code == 0, done.err
    assert "from anchor to positive, codes are multiplied by" in done.out


def test_a_resumed_fit_must_have_the_same_relaxations(isolatent, files, tmp_path):
    out = tmp_path / "model"
    arguments = ("fit", files / "pairs.npz", *QUICK, "--out", out)
    assert isolatent(*arguments, "--relax", "pairing").code == 0
    done = isolatent(*arguments, "--relax", "marginal", "--resume")
    assert done.code == 2
    assert "resume must hold a run with the same relax" in done.err


@pytest.fixture
def recording(tmp_path):
    """Three normal factors with time scales of their own."""
    rng = np.random.default_rng(0)
    z, noise = np.zeros((3000, 3)), rng.normal(size=(3000, 3))
    for t in range(1, 3000):
        z[t] = np.array([0.97, 0.85, 0.4]) * z[t - 1] + noise[t]
    np.save(tmp_path / "recording.npy", z @ [[1.0, 0.4, -0.3], [-0.5, 1.0, 0.2], [0.3, 0.1, 1.0]])
    return tmp_path / "recording.npy"


def test_axes_are_shown_after_the_card(isolatent, recording, tmp_path):
    out = tmp_path / "model"
    options = ("--axes", "dynamics", "--relax", "marginal", "--out", out)
    done = isolatent("fit", recording, *QUICK, *options)
    assert done.code == 0, done.err
    model = ContrastiveICA.load(out)
    assert model.axes_.separates
    for shown in (done.out, isolatent("info", out).out):
        lines = shown[shown.index("guarantee: ") :].splitlines()
        first = lines.index(f"axes: {model.axes_.choice}")
        assert lines[first + 1].split("  ")[1:4] == ["code", "block", "stability"]
        assert "time scale [rows]" in lines[first + 1]
        for line, axis in zip(lines[first + 2 :], model.axes_.codes, strict=False):
            assert line.split()[0] == str(axis.code)
            assert f" {axis.stability:.2f} " in line
            assert f" {axis.time_scale_text} " in line
        assert "inf" not in "".join(lines[first : first + 5])
    page = (out / "report.html").read_text()
    assert "<h3>Axes</h3>" in page
    assert model.axes_.codes[0].time_scale_text in page


def test_without_axes_nothing_is_said_of_them(isolatent, recording, tmp_path):
    out = tmp_path / "model"
    done = isolatent("fit", recording, *QUICK, "--space", "box", "--out", out)
    assert done.code == 0, done.err
    for shown in (done.out, isolatent("info", out).out):
        assert "axes: " not in shown
        assert "stability" not in shown
    assert "<h3>Axes</h3>" not in (out / "report.html").read_text()


def test_one_component_has_a_table_of_one_code(isolatent, recording, tmp_path):
    options = (
        "--n-components",
        "1",
        "--max-steps",
        "5",
        "--batch-size",
        "64",
        "--relax",
        "marginal",
    )
    done = isolatent("fit", recording, *options, "--axes", "auto", "--out", tmp_path / "model")
    assert done.code == 0, done.err
    assert "axes: one code is one axis\n" in done.out
    assert "  0     {0}    1.00 " in done.out


def test_dropped_directions_are_shown(isolatent, tmp_path):
    rng = np.random.default_rng(0)
    z, mixing = rng.normal(size=(500, 2)), rng.normal(size=(2, 30))
    x, x_pos = (np.exp(z @ mixing / 3) for _ in "ab")
    np.savez(tmp_path / "spikes.npz", x=rng.poisson(x), x_pos=rng.poisson(x_pos))
    out = tmp_path / "model"
    done = isolatent(
        *(
            "fit",
            tmp_path / "spikes.npz",
            "--counts",
            "--n-components",
            "2",
            "--space",
            "euclidean",
        ),
        *("--space", "euclidean", *QUICK, "--out", out),
    )
    assert done.code == 0, done.err
    model = ContrastiveICA.load(out)
    line = f"kept {model.n_directions_} of 30 directions"
    assert model.counts
    assert model.n_directions_ < 30
    assert line in done.out
    done = isolatent("info", out)
    assert line in done.out
    assert "counts       transformed by" in done.out


@pytest.mark.filterwarnings("ignore:.*were interpolated")
def test_options_of_recordings_and_of_starts_reach_the_model(isolatent, files, tmp_path):
    np.save("further.npy", np.load(files / "x.npy")[:100] + 0.01)
    out = tmp_path / "model"
    pairs = (files / "pairs.npz", *QUICK, "--overwrite", "--out", out)
    done = isolatent("fit", *pairs, "--n-init", "2", "--unpaired", "further.npy")
    assert done.code == 0, done.err
    assert ContrastiveICA.load(out).n_init == 2
    x = np.load(files / "x.npy")
    x[[50, 51, 90]] = np.nan
    np.save("gaps.npy", x)
    recording = ("gaps.npy", *QUICK, "--overwrite", "--out", out)
    done = isolatent("fit", *recording, "--window", "3", "--max-gap", "2")
    assert done.code == 0, done.err
    model = ContrastiveICA.load(out)
    assert (model.window, model.n_init) == (3, "auto")
    assert "starts once" in done.out


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("pairs.npz", ("--n-init", "0"), "--n-init must be auto or a positive integer, got '0'"),
        ("x.npy", ("--window", "2"), "--window must be odd, got 2"),
        ("x.npy", ("--unpaired", "x.npy"), "--unpaired is for pairs"),
        ("pairs.npz", ("--unpaired", "z.npy"), "--unpaired: z.npy must have"),
        ("pairs.npz", ("--max-gap", "2"), "max_gap must be 0"),
    ],
)
def test_options_of_recordings_and_of_starts_are_checked(isolatent, files, data, options, message):
    np.save(files / "z.npy", np.load(files / "z.npy")[:, :2])
    options = [files / one if str(one).endswith(".npy") else one for one in options]
    done = isolatent("fit", files / data, *QUICK, *options)
    assert done.code == 2
    assert message in done.err


def test_of_all_directions_nothing_is_said(isolatent, files, tmp_path):
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--out", tmp_path / "model")
    assert " directions" not in done.out


def test_negative_counts_are_refused(isolatent, files, tmp_path):
    done = isolatent("fit", files / "pairs.npz", "--counts", *QUICK, "--out", tmp_path / "model")
    assert done.code != 0
    assert "must not be negative" in done.err


def test_a_fit_can_be_diagnosed_at_once(isolatent, files, tmp_path):
    out = tmp_path / "m"
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--out", out, "--quiet", "--diagnose")
    assert done.code == 0, done.err
    assert "Cannot tell: 400 pairs" in done.out
    assert json.loads((out / "diagnosis.json").read_text())["holds"] is None
    assert "Cannot tell: 400 pairs" in (out / "report.html").read_text()
    again = ("fit", files / "pairs.npz", *QUICK, "--out", out, "--quiet", "--overwrite")
    assert isolatent(*again).code == 0
    assert not (out / "diagnosis.json").exists()  # it was about the model before


def explorer_choices(path):
    """What the recovered factors of a page can be coloured by, and the command that is shown."""
    page = path.read_text()
    menu = re.search('<select data-role="colour">(.*?)</select>', page, re.DOTALL)[1]
    command = re.search("<code id=[^>]*-command.>(.*?)</code>", page, re.DOTALL)
    return re.findall(">([^<>]*)</option>", menu), command and command[1]


def test_a_report_shows_what_the_page_of_the_fit_shows(isolatent, world, tmp_path):
    """Its command, and colours by columns that were not used, dropped or text."""
    table = pd.DataFrame(world.x, columns=NAMES).assign(mood="calm", extra=np.arange(400.0) % 7)
    table.loc[7, "mood"] = None
    table.to_csv(tmp_path / "lab.csv", index=False)
    given = ("fit", "lab.csv", *QUICK, "--drop", "mood,extra", "--out", "m", "--quiet")
    done = isolatent(*given)
    assert done.code == 0, done.err
    colours, command = explorer_choices(tmp_path / "m" / "report.html")
    assert colours[:4] == ["row", "mood", "extra", "left"]
    done = isolatent("report", "m", "--data", "lab.csv", "--out", "page.html")
    assert done.code == 0, done.err
    assert explorer_choices(tmp_path / "page.html") == (colours, command)
    assert command == " ".join(["isolatent", *given])


@pytest.mark.parametrize("kind", ["npz", "csv", "suffix"])
def test_a_report_colours_by_relatedness_as_the_fit_does(isolatent, files, tmp_path, world, kind):
    tables = pd.read_csv(files / "x.csv"), pd.read_csv(files / "x_pos.csv").add_suffix("_next")
    pd.concat(tables, axis=1).to_csv(tmp_path / "wide.csv", index=False)
    fitted, shown = {
        "npz": ((files / "pairs.npz",), ()),
        "csv": ((files / "x.csv", files / "x_pos.csv"), ("--data-pos", files / "x_pos.csv")),
        "suffix": (("wide.csv", "--positive-suffix", "_next"), ()),
    }[kind]
    done = isolatent("fit", *fitted, *QUICK, "--relax", "pairing", "--out", "m", "--quiet")
    assert done.code == 0, done.err
    colours, _ = explorer_choices(tmp_path / "m" / "report.html")
    assert "relatedness" in colours
    done = isolatent("report", "m", "--data", fitted[0], *shown, "--out", "page.html")
    assert done.code == 0, done.err
    found, _ = explorer_choices(tmp_path / "page.html")
    assert "relatedness" in found
    assert set(found) >= set(colours) - {name for name in colours if "_next" in name}
