"""Runs are independent: they resume, fail alone, and stop in time."""

import json
import os
import sys
from functools import cache
from itertools import count

import pytest

from isolatent.experiments import Experiment, as_markdown, backends, runner, tabulate
from isolatent.experiments.execution import execute
from isolatent.experiments.runner import Summary, reproduce, select_cells
from isolatent.experiments.store import Store


def outcomes(store, experiment):
    """What must be the same however the runs came about."""
    keys = ("cell", "seed", "hash", "status", "scores", "curve", "scatter", "scale", "correlation")
    keys += ("measures", "guarantee")
    return [{key: r[key] for key in keys} for r in store.records(experiment.name)]


def test_interrupted_and_resumed_is_run_through(tiny, tmp_path):
    measure = {"measure": ["total_variation", "gradient_noise"]}
    cells = [{"name": name, **tiny, **measure} for name in ("first", "second")]
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": cells})
    through, broken = Store(tmp_path / "through"), Store(tmp_path / "broken")
    assert reproduce(experiment, through, [0], jobs=1) == Summary(done=2)

    def interrupt(event):
        if event.kind == "started" and len(broken.records("own")) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, broken, [0], jobs=1, tell=interrupt)
    assert len(broken.records("own")) == 1
    events = []
    summary = reproduce(experiment, broken, [0], jobs=1, tell=events.append)
    assert summary == Summary(skipped=1, done=1)
    assert [event.kind for event in events] == ["skipped", "started", "finished"]
    assert outcomes(broken, experiment) == outcomes(through, experiment)
    assert as_markdown(tabulate(broken)) == as_markdown(tabulate(through))


def test_a_damaged_file_is_done_again(experiment, store):
    one = select_cells(experiment, "first")
    reproduce(one, store, [0], jobs=1)
    (path,) = store.directory.glob("runs/*/*.json")
    path.write_text(path.read_text()[:100])
    assert reproduce(one, store, [0], jobs=1) == Summary(done=1)


def test_a_failing_cell_is_recorded_and_the_others_finish(failing, store):
    assert reproduce(failing, store, [0], jobs=1) == Summary(done=2, failed=1)
    by_cell = {r["cell"]: r for r in store.records("own")}
    assert by_cell["broken"]["status"] == "failed"
    assert "X must have shape" in by_cell["broken"]["error"]
    assert by_cell["last"]["scores"]["unsupervised"]["linear_r2"] > 0
    # It is tried again; the others are not.
    assert reproduce(failing, store, [0], jobs=1) == Summary(skipped=2, failed=1)


def test_a_loss_that_becomes_infinite_is_a_result(tiny, store):
    cell = {
        "name": "wild",
        **tiny,
        "recipe": {"max_steps": 40, "batch_size": 16, "learning_rate": 1e30},
    }
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": [cell]})
    record = execute(experiment.runs([0])[0])
    assert record["status"] in ("diverged", "failed")  # codes may overflow before the loss does
    json.dumps(record)


def test_the_budget_stops_new_runs(experiment, store, monkeypatch):
    assert reproduce(experiment, store, [0, 1], jobs=1, budget=0) == Summary(left=4)
    ticks = count(step=45)  # seconds between two looks at the clock
    monkeypatch.setattr(runner.time, "monotonic", lambda: float(next(ticks)))
    # Asked at 45 and 90 seconds: one run begins within the minute, none after.
    assert reproduce(experiment, store, [0, 1], jobs=1, budget=1) == Summary(done=1, left=3)


def test_two_processes_and_one_that_dies(failing, store, monkeypatch):
    """Records come back from processes; a killed one costs its own run only."""

    def stand_in(run, threads):
        if run.cell.name == "broken":
            os._exit(1)
        return run, {"status": "done", "cell": run.cell.name, "seed": run.seed, "started": ""}

    monkeypatch.setattr(backends, "_pair", stand_in)
    assert reproduce(failing, store, [0], jobs=2) == Summary(done=2, failed=1)
    by_cell = {r["cell"]: r for r in store.records("own")}
    assert {name: r["status"] for name, r in by_cell.items()} == {
        "first": "done",
        "broken": "failed",
        "last": "done",
    }
    assert "its process died" in by_cell["broken"]["error"]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A Ray cluster on this machine, for one test."""
    ray = pytest.importorskip("ray", reason="needs the extra [cluster]")
    token = tmp_path / "token"  # else Ray would write one into the home directory
    token.write_text(os.urandom(32).hex())
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


def test_a_ray_cluster_gives_the_same(failing, tmp_path, cluster, monkeypatch):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    reproduce(failing, here, [0], jobs=1)
    summary = reproduce(failing, there, [0], backend="ray", jobs=2)
    assert summary == Summary(done=2, failed=1)
    assert [r["hash"] for r in here.records("own")] == [r["hash"] for r in there.records("own")]
    for ours, theirs in zip(here.records("own"), there.records("own"), strict=True):
        for name, score in ours["scores"].get("unsupervised", {}).items():
            assert theirs["scores"]["unsupervised"][name] == pytest.approx(score, abs=1e-3)

    def stand_in(run, threads):
        if run.cell.name == "broken":
            os._exit(1)
        if run.cell.name == "last":
            raise LookupError("of what no run does\nfor it records its errors")
        return run, {"status": "done", "cell": run.cell.name, "seed": run.seed, "started": ""}

    # A process that dies, or an error of the cluster, costs its own run only.
    monkeypatch.setattr(backends, "_pair", stand_in)
    monkeypatch.setattr(backends, "RETRIES", 0)
    lossy = Store(tmp_path / "lossy")
    summary = reproduce(failing, lossy, [0], backend="ray", jobs=2)
    assert summary == Summary(done=1, failed=2)
    failed = {r["cell"]: r for r in lossy.records("own") if r["status"] == "failed"}
    assert {*failed} == {"broken", "last"}
    for run in failing.runs([0])[1:]:
        assert failed[run.cell.name]["hash"] == run.hash
        assert failed[run.cell.name]["error"].startswith("its process died: ")
        assert len(failed[run.cell.name]["error"].splitlines()) == 1


def test_ray_without_ray_says_what_to_do(experiment, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"backend 'ray' needs Ray: .*isolatent\[cluster\]"):
        reproduce(experiment, store, [0], backend="ray")
    assert not store.directory.exists()


def test_ray_without_a_cluster_says_what_to_do(experiment, store, monkeypatch, tmp_path):
    ray = pytest.importorskip("ray", reason="needs the extra [cluster]")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where `ray start` leaves its address
    # Another test may have a cluster at this very time.
    monkeypatch.setattr(ray._private.services, "find_gcs_addresses", cache(set))
    with pytest.raises(ValueError, match="backend 'ray' found no cluster: start one with `ray sta"):
        reproduce(experiment, store, [0], backend="ray")
    assert not store.directory.exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"backend": "slurm"}, "backend must be one of 'local', 'ray', got 'slurm'"),
        ({"jobs": 0}, "jobs must be an integer >= 1"),
        ({"budget": -1.0}, "budget must be a finite number >= 0"),
    ],
)
def test_options_that_cannot_be(experiment, store, options, told):
    with pytest.raises(ValueError, match=told):
        reproduce(experiment, store, [0], **options)
    assert not store.directory.exists()


def test_select_cells(experiment):
    assert [c.name for c in select_cells(experiment, "f*").cells] == ["first"]
    with pytest.raises(ValueError, match="there are first, second"):
        select_cells(experiment, "third")
