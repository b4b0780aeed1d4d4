"""`isolatent reproduce` and `isolatent results`, as a person types them."""

import csv
import io
import itertools
import json

import pytest

from isolatent.experiments import list_experiments
from isolatent.experiments.backends import map_runs
from isolatent.report import is_report
from isolatent.report.plots import can_draw

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
recipe = { steps = 4, batch = 16 }
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
    assert drawn == can_draw()
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
    assert isolatent("results", "out", "--export", "t.parquet").code == 0

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
        (("quick", "--backend", "slurm"), "backend must be one of 'local', 'ray'"),
        (("absent.toml",), "absent.toml"),
    ],
)
def test_mistakes_are_one_line(isolatent, spec, arguments, told):
    shown = isolatent("reproduce", *arguments)
    assert shown.code == 2
    assert told in shown.err
    assert "Traceback" not in shown.err


def test_mistakes_of_results(isolatent, spec):
    assert "holds no results" in isolatent("results", "nowhere").err
    assert "--format must be one of" in isolatent("results", "nowhere", "--format", "pdf").err
