"""A run that was killed and resumed ends with the same bits as an uninterrupted run."""

import json
import os
import signal
import subprocess
import sys

import pytest

import broken_runs
from resumable_runs import KILLED_CASES


def check_broken_runs(directory, steps, kills):
    command = [sys.executable, broken_runs.__file__, str(directory), str(steps), str(kills)]
    subprocess.run(command, check=True, timeout=1200)
    results = json.loads((directory / "results.json").read_text())
    interrupted = results.pop("interrupted")
    assert sorted(results) == sorted(KILLED_CASES)
    for name, result in results.items():
        assert result["same"], (name, result["history"])
        *broken, (ended, _, _) = result["history"]
        assert ended == 0
        assert [status for status, _, _ in broken] == [-signal.SIGKILL] * kills
        for _, done, reached in broken:
            assert done - 1 <= reached <= done  # at most the current step is lost
        # A saturated loss reports no information; the baselines report none at all.
        assert (0 < result["without_information"] < steps) == (name == "saturated")
    (status, done, reached), (ended, _, _) = interrupted["history"]
    assert (status, ended) == (130, 0)
    assert 0 < done == reached < steps  # Ctrl-C loses no step
    assert interrupted["same"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
def test_killed_runs_end_with_the_same_bits(tmp_path):
    check_broken_runs(tmp_path, steps=24, kills=2)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
def test_runs_killed_ten_times_end_with_the_same_bits(tmp_path):
    check_broken_runs(tmp_path, steps=150, kills=10)
