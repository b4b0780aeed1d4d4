"""`isolatent reproduce` and `isolatent results`, as a person types them."""

import csv
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from isolatent.cli.output import LARGEST_SEED as LAST
from isolatent.cli.reproduce import write_overview
from isolatent.experiments import Experiment, Store, find_experiment, list_experiments
from isolatent.experiments.backends import map_runs
from isolatent.report import is_report
from isolatent.report.plots import has_matplotlib

SPEC = """
title = "two sizes of a sphere"
[[grids]]
name = "n{n}"
axes = { n = [2, 3] }
published = { n2 = [99.0, 0.5] }
[grids.cell]
world.space = "Sphere({n})"
world.marginal = "Uniform()"
world.conditional = "VonMisesFisher(kappa=10)"
world.mixing = "Identity()"
model.space = "sphere"
model.conditional = "vmf"
recipe = { max_steps = 4, batch_size = 16 }
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(SPEC)
    return path


def test_list(isolatent):
    shown = isolatent("reproduce", "--list")
    assert [line.split()[0] for line in shown.out.splitlines()] == list_experiments()


def test_from_a_file_to_a_table(isolatent, spec):
    command = ("reproduce", spec.name, "--seeds", 2, "--jobs", 1, "--out", "out")
    first = isolatent(*command)
    assert first.code == 0, first.err
    assert "[4/4]" in first.out
    assert "4 done, 0 finished before; in out" in first.out
    page, table = (spec.parent / "out" / name for name in ("report.html", "table.md"))
    assert is_report(page)
    assert "| n2 | unsupervised | linear_r2 |" in table.read_text()
    drawn = (spec.parent / "out" / "mine.png").is_file()
    assert drawn == has_matplotlib()
    assert drawn or "matplotlib is missing" in first.out
    page.write_text("precious")
    again = isolatent(*command, "--quiet")
    assert "0 done, 4 finished before" in again.out
    assert "report.html was not written by isolatent and is left" in again.err
    assert page.read_text() == "precious"

    shown = isolatent("results", "out").out
    assert "| n2 | unsupervised | linear_r2 |" in shown
    rows = list(csv.DictReader(io.StringIO(isolatent("results", "out", "--format", "csv").out)))
    assert {row["cell"]: row["seeds"] for row in rows} == {"n2": "2", "n3": "2"}
    assert isolatent("results", ".").out == shown  # as `report` finds those below

    path = sorted((spec.parent / "out" / "runs" / "mine").glob("n3-seed1-*.json"))[0]
    again = json.loads(path.read_text())["command"].split()[1:]
    path.unlink()
    assert "1 done, 0 finished before" in isolatent(*again, "--out", "out", "--jobs", 1).out


def test_what_there_is_is_shown_after_an_interruption(isolatent, spec, monkeypatch):
    def interrupted(runs, *about):
        yield from itertools.islice(map_runs(runs, *about), 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("isolatent.experiments.runner.map_runs", interrupted)
    stopped = isolatent("reproduce", spec.name, "--seeds", 1, "--jobs", 1, "--out", "out")
    assert stopped.code == 130
    assert "goes on with what is left" in stopped.err
    table = (spec.parent / "out" / "table.md").read_text()
    lines = {line.split(" | ")[0]: line for line in table.splitlines() if "unsupervised" in line}
    assert lines["| n3"].endswith("| missing |")
    assert lines["| n2"].endswith(("| worse |", "| better |"))
    assert is_report(spec.parent / "out" / "report.html")


def test_a_reproduction_that_is_stopped_goes_on_to_the_same_table(isolatent, spec, tmp_path):
    """Ctrl-C, which goes to the processes that do the runs, too."""
    spec.write_text(SPEC.replace("steps = 4", "steps = 60"))
    command = ("reproduce", "mine.toml", "--seeds", 5, "--jobs", 2, "--quiet", "--out")
    main = [sys.executable, "-c", "from isolatent.cli import main; main()"]
    runs = tmp_path / "stopped" / "runs" / "mine"
    with (tmp_path / "told").open("w") as told:
        words = [*main, *map(str, command), "stopped"]
        process = subprocess.Popen(
            words,
            stdout=told,
            stderr=told,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # or it is ignored
        )
        try:
            while process.poll() is None and not [*runs.glob("*.json")]:
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(timeout=120) == 130
        finally:
            process.kill()
    told = (tmp_path / "told").read_text()
    assert told.endswith("interrupted; the same command goes on with what is left\n")
    assert "Traceback" not in told
    before = len([*runs.glob("*.json")])
    assert 0 < before < 10
    assert not [*runs.glob(".*")]
    resumed = isolatent(*command, "stopped")
    assert f"{10 - before} done, {before} finished before" in resumed.out
    assert "10 done, 0 finished before" in isolatent(*command, "through").out
    tables = [(tmp_path / name / "table.md").read_text() for name in ("stopped", "through")]
    assert tables[0] == tables[1]
    assert "missing" not in tables[0]


def test_some_cells_and_a_budget(isolatent, spec):
    some = ("reproduce", spec, "--cells", "n3", "--seeds", 1, "--jobs", 1)
    stopped = isolatent(*some, "--budget", 0)
    assert "1 left" in stopped.out
    assert "goes on with what is left" in stopped.out
    assert "1 done" in isolatent(*some, "--quiet").out
    assert (spec.parent / "reproduction").is_dir()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "NAME must be given"),
        (("nothing",), "there is no experiment 'nothing'"),
        (("quick", "--seeds", 0), "--seeds must be an integer >= 1"),
        (("quick", "--cells", "x"), "no cell of quick matches 'x'"),
        (("quick", "--backend", "slurm"), "--backend must be one of 'local', 'ray', got 'slurm'"),
        (("quick", "--backend", "ray"), "--backend 'ray' needs Ray: pip install"),
        (("quick", "--jobs", 0), "--jobs must be an integer >= 1, got 0"),
        (("quick", "--budget", -1), "--budget must be a finite number >= 0, got -1.0"),
        (("quick", "--budget", "nan"), "--budget must be a finite number >= 0, got nan"),
        (("quick", "--first-seed", -1), "--first-seed must be an integer >= 0"),
        (("quick", "--first-seed", 10**20), f"--first-seed must be an integer >= 0 and <= {LAST}"),
        (("quick", "--first-seed", LAST, "--seeds", 2), "--seeds must be an integer >= 1 and <= 1"),
        (("absent.toml",), "absent.toml"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(
    isolatent, spec, monkeypatch, arguments, told
):
    monkeypatch.setitem(sys.modules, "ray", None)
    shown = isolatent("reproduce", *arguments)
    assert shown.code == 2
    assert shown.err.startswith(f"isolatent: {told}")
    assert "Traceback" not in shown.err
    assert os.listdir() == ["mine.toml"]


def test_mistakes_of_results(isolatent, spec):
    assert "holds no results" in isolatent("results", "nowhere").err
    assert "--format must be one of" in isolatent("results", "nowhere", "--format", "pdf").err
    told = isolatent("results", "nowhere", "--export", "t.txt").err
    assert "--export must end in .md, .csv, .parquet, .png, or give --format, got 't.txt'" in told
    assert "no does not exist" in isolatent("results", "nowhere", "--export", "no/t.md").err


@pytest.fixture
def stored(spec):
    """Results in out/: of three cells, whose marginals differ."""
    cells = find_experiment("zimmermann2021/figure2").cells[:3]
    asked = Experiment(name="own", title="", cells=cells)
    store = Store("out")
    store.write_experiment(asked)
    for run in asked.runs([0]):
        scores = {"unsupervised": {"linear_r2": 0.9}}
        about = {"cell": run.cell.name, "seed": 0, "started": "", "status": "done"}
        about |= {"scores": scores, "measures": {"total_variation": 0.5}}
        store.write(run, about)
    return asked


@pytest.mark.parametrize("name", ["t.md", "t.csv", "t.parquet", "t.png"])
def test_an_export_replaces_nothing_unless_it_is_told_to(isolatent, stored, tmp_path, name):
    if name == "t.png" and not has_matplotlib():
        pytest.skip("needs the extra [bench]")
    target, command = tmp_path / name, ("results", "out", "--export", name)
    target.write_text("precious")
    refused = isolatent(*command)
    assert (refused.code, target.read_text()) == (2, "precious")
    assert f"--export: {name} exists; pass --overwrite to replace it" in refused.err
    assert isolatent(*command, "--overwrite").code == 0
    written = target.read_bytes()
    assert written != b"precious"
    # Of a table alone it is seen that it is ours.
    assert isolatent(*command).code == (0 if name == "t.md" else 2)
    assert target.read_bytes() == written


@pytest.mark.skipif(not has_matplotlib(), reason="needs the extra [bench]")
def test_the_exported_figure_is_the_one_that_reproduce_draws(isolatent, stored, tmp_path):
    write_overview(tmp_path / "out")
    assert isolatent("results", "out", "--export", "own.png").code == 0
    drawn = [(tmp_path / name).read_bytes() for name in ("own.png", "out/own.png")]
    assert drawn[0] == drawn[1]
    store = Store(tmp_path / "out")
    for run in stored.runs([0]):
        record = json.loads((tmp_path / "out" / run.file).read_text())
        store.write(run, record | {"measures": {}})
    assert isolatent("results", "out", "--export", "without.png").code == 0
    assert (tmp_path / "without.png").read_bytes() != drawn[0]  # it shows the distances
