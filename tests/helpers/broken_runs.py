"""Kill training runs repeatedly and resume them; a script, whose process forks the runs."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from isolatent.training import Checkpoints
from resumable_runs import KILLED_CASES, bits, case, checkpoint_every_step


def run_in_fork(name, steps, directory, writing):
    """Start or resume a run in a forked process, which writes a byte for each step."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        model, data, options = case(name, steps)
        option = "resume" if Checkpoints(directory / "checkpoints").steps() else "checkpoint"
        options[option] = directory / "checkpoints"
        model.fit(*data, **options, on_step=lambda step: os.write(writing, b"."))
        model.save(directory / "model")
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def end_after(child, reading, steps, delay, signal_number):
    """Send a process a signal after some steps and a delay; return its status and its steps."""
    done = 0
    while done < steps and (received := os.read(reading, steps - done)):
        done += len(received)
    time.sleep(delay)
    os.kill(child, signal_number)  # also if it has ended by itself: it was not waited for yet
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    while received := os.read(reading, 4096):
        done += len(received)
    return status, done


def broken_run(name, steps, kills, directory, rng, signal_number=signal.SIGKILL):
    """Interrupt a run repeatedly, then let it end.

    Returns:
        For each part of the run its exit status, the steps done and the step of its checkpoint.
    """
    history = []
    directory.mkdir()
    for last in [False] * kills + [True]:
        reading, writing = os.pipe()
        child = run_in_fork(name, steps, directory, writing)
        os.close(writing)
        if last:
            while os.read(reading, 4096):
                pass
            history.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), None, None))
        else:
            before = [0, *Checkpoints(directory / "checkpoints").steps()][-1]
            after = rng.randint(1, max(1, steps // (kills + 1)))
            delay = rng.uniform(0, 0.03)
            status, done = end_after(child, reading, after, delay, signal_number)
            reached = [0, *Checkpoints(directory / "checkpoints").steps()][-1]
            history.append((status, before + done, reached))
        os.close(reading)
    return history


def work(directory, steps, kills):
    torch.set_num_threads(1)
    rng = random.Random(0)
    results = {}
    for name in KILLED_CASES:
        model, data, options = case(name, steps)
        model.fit(*data, **options)
        whole = bits(model, directory / f"{name}-whole")
        checkpoint_every_step()
        history = broken_run(name, steps, kills, directory / name, rng)
        ended = (directory / name / "model" / "model.safetensors").read_bytes()
        results[name] = {"same": ended == whole, "history": history}
        results[name]["without_information"] = sum(
            step.information is None for step in model.history_
        )
    history = broken_run("array", steps, 1, directory / "interrupted", rng, signal.SIGINT)
    ended = (directory / "interrupted" / "model" / "model.safetensors").read_bytes()
    whole = (directory / "array-whole" / "model.safetensors").read_bytes()
    results["interrupted"] = {"same": ended == whole, "history": history}
    (directory / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
