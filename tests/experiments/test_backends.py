"""Backends give the same records; a terminated process costs its own run only."""

import os
import sys
from functools import cache

import pytest

from isolatent.experiments import Store, backends, reproduce
from isolatent.experiments.runner import Summary


def test_two_processes_and_one_that_dies(failing, store, monkeypatch):
    """Records come back from processes; a killed one costs its own run only."""

    def stand_in(run, threads):
        if run.cell.name == "broken":
            os._exit(1)
        return run, {"status": "done", "cell": run.cell.name, "seed": run.seed, "started": ""}

    monkeypatch.setattr(backends, "_execute_one", stand_in)
    assert reproduce(failing, store, [0], jobs=2) == Summary(done=2, failed=1)
    by_cell = {r["cell"]: r for r in store.records("own")}
    assert {name: r["status"] for name, r in by_cell.items()} == {
        "first": "done",
        "broken": "failed",
        "last": "done",
    }
    assert "the process was terminated" in by_cell["broken"]["error"]


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
    monkeypatch.setattr(backends, "_execute_one", stand_in)
    monkeypatch.setattr(backends, "RETRIES", 0)
    lossy = Store(tmp_path / "lossy")
    summary = reproduce(failing, lossy, [0], backend="ray", jobs=2)
    assert summary == Summary(done=1, failed=2)
    failed = {r["cell"]: r for r in lossy.records("own") if r["status"] == "failed"}
    assert {*failed} == {"broken", "last"}
    for run in failing.runs([0])[1:]:
        assert failed[run.cell.name]["hash"] == run.hash
        assert failed[run.cell.name]["error"].startswith("the process was terminated: ")
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
