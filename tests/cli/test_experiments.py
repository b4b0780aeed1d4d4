"""The commands reproduce, results and, for results, report."""

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

from isolatent.cli.experiments import write_overview
from isolatent.experiments import Experiment, Store, find_experiment, list_experiments
from isolatent.experiments.backends import map_runs
from isolatent.plot.axes import has_matplotlib
from isolatent.report import is_report
from own_spec import sphere_cell

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
SPRITES = """
title = "sprites"
[[cells]]
name = "decoded"
world = { images = "sprites", pairs = "nat", continuous = true }
model = { method = "beta_vae", n_components = 2 }
recipe = { max_steps = 2, batch_size = 8 }
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(SPEC)
    return path


def test_the_list_names_every_experiment(isolatent):
    shown = isolatent("reproduce", "--list")
    assert [line.split()[0] for line in shown.out.splitlines()] == list_experiments()


def test_from_a_file_to_a_table(isolatent, spec):
    command = ("reproduce", spec.name, "--seeds", 2, "--jobs", 1, "--out", "out")
    first = isolatent(*command)
    assert first.code == 0, first.err
    assert "[4/4]" in first.out
    assert "4 done, 0 already finished; results in out" in first.out
    page, table = (spec.parent / "out" / name for name in ("report.html", "table.md"))
    assert is_report(page)
    assert "| n2 | unsupervised | linear_r2 |" in table.read_text()
    assert (spec.parent / "out" / "mine.png").is_file() == has_matplotlib()
    assert ("matplotlib is missing" in first.out) == (not has_matplotlib())
    page.write_text("precious")
    again = isolatent(*command, "--quiet")
    assert "0 done, 4 already finished" in again.out
    assert "report.html was not written by isolatent and is kept" in again.err
    assert page.read_text() == "precious"

    shown = isolatent("results", "out").out
    assert "| n2 | unsupervised | linear_r2 |" in shown
    rows = list(csv.DictReader(io.StringIO(isolatent("results", "out", "--format", "csv").out)))
    assert {row["cell"]: row["seeds"] for row in rows} == {"n2": "2", "n3": "2"}
    assert isolatent("results", ".").out == shown  # results below a directory

    path = sorted((spec.parent / "out" / "runs" / "mine").glob("n3-seed1-*.json"))[0]
    again = json.loads(path.read_text())["command"].split()[1:]
    path.unlink()
    assert "1 done, 0 already finished" in isolatent(*again, "--out", "out", "--jobs", 1).out


def test_an_interrupted_reproduction_writes_the_results_it_has(isolatent, spec, monkeypatch):
    def interrupted(runs, *about):
        yield from itertools.islice(map_runs(runs, *about), 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("isolatent.experiments.runner.map_runs", interrupted)
    stopped = isolatent("reproduce", spec.name, "--seeds", 1, "--jobs", 1, "--out", "out")
    assert stopped.code == 130
    assert "run the same command again to continue" in stopped.err
    table = (spec.parent / "out" / "table.md").read_text()
    lines = {line.split(" | ")[0]: line for line in table.splitlines() if "unsupervised" in line}
    assert "| missing |" in lines["| n3"]
    assert "| 1 seed | InfoNCE |" in lines["| n2"]
    assert is_report(spec.parent / "out" / "report.html")


def test_a_resumed_reproduction_ends_with_the_same_table(isolatent, spec, tmp_path):
    """Interrupted by Ctrl-C, which also reaches the processes of the runs."""
    spec.write_text(SPEC.replace("steps = 4", "steps = 60"))
    command = ("reproduce", "mine.toml", "--seeds", 5, "--jobs", 2, "--quiet", "--out")
    main = [sys.executable, "-c", "from isolatent.cli import main; main()"]
    runs = tmp_path / "stopped" / "runs" / "mine"
    with (tmp_path / "log").open("w") as log:
        words = [*main, *map(str, command), "stopped"]
        process = subprocess.Popen(
            words,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # else ignored
        )
        try:
            while process.poll() is None and not [*runs.glob("*.json")]:
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(timeout=120) == 130
        finally:
            process.kill()
    printed = (tmp_path / "log").read_text()
    assert printed.endswith("interrupted; run the same command again to continue\n")
    assert "Traceback" not in printed
    before = len([*runs.glob("*.json")])
    assert 0 < before < 10
    assert not [*runs.glob(".*")]
    resumed = isolatent(*command, "stopped")
    assert f"{10 - before} done, {before} already finished" in resumed.out
    assert "10 done, 0 already finished" in isolatent(*command, "through").out
    tables = [(tmp_path / name / "table.md").read_text() for name in ("stopped", "through")]
    assert tables[0] == tables[1]
    assert "missing" not in tables[0]


def test_stale_runs_are_counted_and_repeated_on_demand(isolatent, spec):
    command = ("reproduce", spec, "--seeds", 1, "--jobs", 1, "--quiet", "--out", "out")
    assert "2 done, 0 already finished; results" in isolatent(*command).out
    for path in (spec.parent / "out").glob("runs/*/*.json"):
        record = json.loads(path.read_text())
        del record["program"]  # as in records of earlier versions
        path.write_text(json.dumps(record))
    kept = isolatent(*command).out
    assert "0 done, 2 already finished (2 stale: of another program; --stale runs" in kept
    assert isolatent("results", "out").out.count("not recorded; stale: 1 of 1 seed") == 4
    assert "2 done, 0 already finished; results" in isolatent(*command, "--stale").out
    assert "stale" not in isolatent("results", "out").out


def test_cells_can_be_selected_and_time_can_be_limited(isolatent, spec):
    some = ("reproduce", spec, "--cells", "n3", "--seeds", 1, "--jobs", 1)
    stopped = isolatent(*some, "--budget", 0)
    assert "1 left" in stopped.out
    assert "run the same command again to continue" in stopped.out
    assert "1 done" in isolatent(*some, "--quiet").out
    assert (spec.parent / "reproduction").is_dir()


@pytest.fixture
def stored(spec):
    """Results of three cells with different marginals, in out/."""
    cells = find_experiment("zimmermann2021/figure2").cells[:3]
    experiment = Experiment(name="own", title="", cells=cells)
    store = Store("out")
    store.write_experiment(experiment)
    for run in experiment.runs([0]):
        scores = {"unsupervised": {"linear_r2": 0.9}}
        about = {"cell": run.cell.name, "seed": 0, "started": "", "status": "done"}
        about |= {"scores": scores, "measures": {"total_variation": 0.5}}
        store.write(run, about)
    return experiment


@pytest.mark.parametrize("name", ["t.md", "t.csv", "t.parquet", "t.png"])
def test_an_export_replaces_a_file_only_on_demand(isolatent, stored, tmp_path, name):
    if name == "t.png" and not has_matplotlib():
        pytest.skip("needs the extra [plot]")
    target, command = tmp_path / name, ("results", "out", "--export", name)
    target.write_text("precious")
    refused = isolatent(*command)
    assert (refused.code, target.read_text()) == (2, "precious")
    assert f"--export: {name} exists; pass --overwrite to replace it" in refused.err
    assert isolatent(*command, "--overwrite").code == 0
    written = target.read_bytes()
    assert written != b"precious"
    # A table is recognised as ours and replaced.
    assert isolatent(*command).code == (0 if name == "t.md" else 2)
    assert target.read_bytes() == written


@pytest.mark.skipif(not has_matplotlib(), reason="needs the extra [plot]")
def test_the_exported_figure_equals_that_of_reproduce(isolatent, stored, tmp_path):
    write_overview(tmp_path / "out")
    assert isolatent("results", "out", "--export", "own.png").code == 0
    drawn = [(tmp_path / name).read_bytes() for name in ("own.png", "out/own.png")]
    assert drawn[0] == drawn[1]
    store = Store(tmp_path / "out")
    for run in stored.runs([0]):
        record = json.loads((tmp_path / "out" / run.file).read_text())
        store.write(run, record | {"measures": {}})
    assert isolatent("results", "out", "--export", "without.png").code == 0
    assert (tmp_path / "without.png").read_bytes() != drawn[0]  # without distances of the marginals


def test_report_writes_the_page_that_reproduce_wrote(isolatent, tmp_path):
    cell = sphere_cell(
        *("sphere_vmf", "recipe = { max_steps = 20, batch_size = 32 }"),
        "published.unsupervised = [99.86, 0.01]",
    )
    (tmp_path / "mine.toml").write_text(f'title = "mine"\n{cell}')
    done = isolatent("reproduce", "mine.toml", "--seeds", 1, "--jobs", 1, "--out", "out")
    assert done.code == 0, done.err
    assert isolatent("report", "out", "--out", "page.html").out == "wrote page.html\n"
    page, default = (tmp_path / name for name in ("page.html", "out/report.html"))
    assert page.read_text() == default.read_text()
    for text in ("sphere_vmf", "1 seed", "Guarantee", "orthogonal map", "Quality"):
        assert text in page.read_text()
    assert isolatent("report", "out").out == "wrote out/report.html\n"  # replaces its own report
    assert isolatent("report", "out", "--out", "page.html").code == 2  # but not a named file
    default.write_text("precious")
    assert "report.html exists; pass --overwrite" in isolatent("report", "out").err
    assert default.read_text() == "precious"


def test_report_shows_latent_traversals(isolatent, tmp_path, monkeypatch):
    monkeypatch.setattr("isolatent.experiments.latent_traversal.CANDIDATES", 100)
    monkeypatch.setattr("isolatent.experiments.image_execution.TEST_POINTS", 100)
    (tmp_path / "mine.toml").write_text(SPRITES)
    done = isolatent("reproduce", "mine.toml", "--seeds", 1, "--jobs", 1, "--out", "out")
    assert done.code == 0, done.err
    page = (tmp_path / "out" / "report.html").read_text()
    for k in (0, 1):
        assert page.count(f'alt="Traversal of code {k}') == 1
    assert page.count("data:image/png;base64,") == 2
    assert "a β-VAE does not use pairs" in page
