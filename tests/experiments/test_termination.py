"""Workers end with the process that started them, and what they finished is stored."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from isolatent.experiments import Experiment, Store, backends

PROGRAM = """
    import os, sys, time
    from pathlib import Path
    from isolatent.experiments import Experiment, Store, backends, reproduce

    def stand_in(run, threads):
        # The first run is done at once; the others would take an hour.
        folder = Path({folder!r})
        (folder / f"pid-{{os.getpid()}}").touch()
        if run.seed > 0:
            time.sleep(3600)
        return run, {{"status": "done", "cell": run.cell.name, "seed": run.seed, "started": ""}}

    backends._execute_one = stand_in
    experiment = Experiment.model_validate_json(Path({folder!r}, "experiment.json").read_text())
    reproduce(experiment, Store({folder!r} + "/out"), [0, 1, 2], jobs=2)
"""


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="reads /proc")
@pytest.mark.parametrize(
    "signal_number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_no_worker_outlives_its_parent(tiny, tmp_path, signal_number):
    cells = [{"name": "one", **tiny}]
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": cells})
    (tmp_path / "experiment.json").write_text(json.dumps(experiment.to_dict()))
    program = textwrap.dedent(PROGRAM).format(folder=str(tmp_path))
    # Ctrl-C is ignored in a process that a test started in the background.
    start = f"import signal; signal.signal(2, signal.default_int_handler)\n{program}"
    parent = subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.PIPE)
    store = Store(tmp_path / "out")
    assert until(lambda: len(store.records("own")) == 1)  # and two others are under way
    assert until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
    workers = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
    assert all(map(is_running, workers))
    parent.send_signal(signal_number)
    parent.wait(30)
    assert until(lambda: not any(map(is_running, workers)), 10)
    if signal_number == signal.SIGTERM:
        assert parent.returncode == 128 + signal.SIGTERM
    assert [record["seed"] for record in store.records("own")] == [0]


def test_what_was_finished_at_an_interruption_is_returned(monkeypatch):
    """The interruption comes while the consumer works on the first of two finished runs."""

    class Done:
        def __init__(self, value):
            self.value = value

        def done(self):
            return True

        def exception(self):
            return None

        def result(self):
            return self.value

    class Executor:
        def __init__(self, *args, **options):
            pass

        def submit(self, function, run, threads):
            return Done((run, {"run": run}))

        def shutdown(self, **options):
            ended.append(options)

    ended = []
    monkeypatch.setattr(backends, "ProcessPoolExecutor", Executor)
    monkeypatch.setattr(backends, "wait", lambda pending, return_when: ([next(iter(pending))], ()))
    finished = backends.map_runs(iter("abc"), "local", 2)
    assert next(finished)[0] == "a"
    assert finished.throw(SystemExit(143))[0] == "b"
    with pytest.raises(SystemExit):
        next(finished)
    assert ended == [{"wait": True, "kill_workers": True}]
