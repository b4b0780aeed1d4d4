"""A run that was killed ends with the same bits as one that was not."""

import json
import os
import signal
import subprocess
import sys

import pytest

import broken_runs
from resumable_runs import CASES


def breaks_change_nothing(directory, steps, kills):
    command = [sys.executable, broken_runs.__file__, str(directory), str(steps), str(kills)]
    subprocess.run(command, check=True, timeout=1200)
    results = json.loads((directory / "results.json").read_text())
    interrupted = results.pop("interrupted")
    assert sorted(results) == sorted(CASES)
    for name, result in results.items():
        assert result["same"], (name, result["history"])
        *broken, (ended, _, _) = result["history"]
        assert ended == 0
        assert [status for status, _, _ in broken] == [-signal.SIGKILL] * kills
        for _, said, reached in broken:
            assert said - 1 <= reached <= said  # at most the step under way is lost
        # The saturated form of the loss has no bound to tell.
        assert (0 < result["saturated"] < steps) == (name == "saturated")
    (status, said, reached), (ended, _, _) = interrupted["history"]
    assert (status, ended) == (130, 0)
    assert 0 < said == reached < steps  # Ctrl-C loses nothing
    assert interrupted["same"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
def test_ten_kills_change_nothing(tmp_path):
    breaks_change_nothing(tmp_path, steps=24, kills=2)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
def test_ten_kills_of_each_run_change_nothing(tmp_path):
    breaks_change_nothing(tmp_path, steps=150, kills=10)
