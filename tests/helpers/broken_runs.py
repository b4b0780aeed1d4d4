"""Runs that are killed for real, again and again; a script, whose process forks them."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from isolatent.training import Checkpoints
from resumable_runs import CASES, bits, case, save_always


def run_in_fork(name, steps, directory, told):
    """Begin or go on with a run in a forked process, which writes a byte for each step."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        model, data, options = case(name, steps)
        way = "resume" if Checkpoints(directory / "checkpoints").steps() else "checkpoint"
        options[way] = directory / "checkpoints"
        model.fit(*data, **options, on_step=lambda step: os.write(told, b"."))
        model.save(directory / "model")
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def end_after(child, reading, steps, delay, how):
    """End a process after so many steps and a moment; return its status and the steps it said."""
    said = 0
    while said < steps and (heard := os.read(reading, steps - said)):
        said += len(heard)
    time.sleep(delay)
    os.kill(child, how)  # also if it has ended by itself: it was not waited for yet
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    while heard := os.read(reading, 4096):
        said += len(heard)
    return status, said


def broken_run(name, steps, kills, directory, rng, how=signal.SIGKILL):
    """Break a run off again and again, then let it end; where it was broken off, and how."""
    history = []
    directory.mkdir()
    for last in [False] * kills + [True]:
        reading, told = os.pipe()
        child = run_in_fork(name, steps, directory, told)
        os.close(told)
        if last:
            while os.read(reading, 4096):
                pass
            history.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), None, None))
        else:
            before = [0, *Checkpoints(directory / "checkpoints").steps()][-1]
            after = rng.randint(1, max(1, steps // (kills + 1)))
            status, said = end_after(child, reading, after, rng.uniform(0, 0.03), how)
            reached = [0, *Checkpoints(directory / "checkpoints").steps()][-1]
            history.append((status, before + said, reached))
        os.close(reading)
    return history


def work(directory, steps, kills):
    torch.set_num_threads(1)
    rng = random.Random(0)
    results = {}
    for name in CASES:
        model, data, options = case(name, steps)
        model.fit(*data, **options)  # without checkpoints, and with that of every half minute
        whole = bits(model, directory / f"{name}-whole")
        save_always()
        history = broken_run(name, steps, kills, directory / name, rng)
        ended = (directory / name / "model" / "model.safetensors").read_bytes()
        results[name] = {"same": ended == whole, "history": history}
        results[name]["saturated"] = sum(step.information is None for step in model.history_)
    history = broken_run("array", steps, 1, directory / "interrupted", rng, signal.SIGINT)
    ended = (directory / "interrupted" / "model" / "model.safetensors").read_bytes()
    whole = (directory / "array-whole" / "model.safetensors").read_bytes()
    results["interrupted"] = {"same": ended == whole, "history": history}
    (directory / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
