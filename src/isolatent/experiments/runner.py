"""Reproduce an experiment: execute the runs that are not stored yet, within a time budget."""

from __future__ import annotations

import fnmatch
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from isolatent.checks import check_integer, check_real
from isolatent.experiments.backends import check_backend, map_runs
from isolatent.experiments.experiment import Experiment, Run
from isolatent.experiments.program import is_stale
from isolatent.experiments.store import Store

__all__ = ["Event", "Summary", "reproduce", "select_cells"]


MOST_RUNS = 100_000  # of a call


@dataclass(frozen=True)
class Event:
    """A change of the state of a run, passed to the callback of :func:`reproduce`.

    Attributes:
        kind: ``"skipped"`` (the store holds the result), ``"started"`` or ``"finished"``.
        run: The run.
        record: Its record, unless the run has only started.
    """

    kind: str
    run: Run
    record: dict[str, Any] | None = None


@dataclass(frozen=True)
class Summary:
    """Numbers of runs.

    Attributes:
        skipped: Runs whose results were stored before.
        stale: Those of them whose results are of another program than today's.
        done: Runs that were executed.
        diverged: Runs whose loss became infinite.
        failed: Runs that ended with an error.
        left: Runs that the time budget did not allow for.
    """

    skipped: int = 0
    stale: int = 0
    done: int = 0
    diverged: int = 0
    failed: int = 0
    left: int = 0


def select_cells(experiment: Experiment, pattern: str) -> Experiment:
    """Return the experiment restricted to cells whose names match a pattern such as ``"box_*"``."""
    kept = [cell for cell in experiment.cells if fnmatch.fnmatchcase(cell.name, pattern)]
    if not kept:
        names = ", ".join(cell.name for cell in experiment.cells)
        raise ValueError(f"no cell of {experiment.name} matches {pattern!r}; cells are {names}")
    return experiment.model_copy(update={"cells": kept})


def reproduce(
    experiment: Experiment,
    store: Store,
    seeds: Sequence[int],
    *,
    backend: str = "local",
    jobs: int | None = None,
    budget: float | None = None,
    stale: bool = False,
    callback: Callable[[Event], None] = lambda event: None,
) -> Summary:
    """Execute every cell with every seed, skipping runs that are already stored.

    Each record is stored as soon as its run is finished: an interruption loses only the runs in
    progress, and calling the function again resumes. SIGTERM, unless it has a handler, ends the
    processes of the runs as well, and then this one by SystemExit.

    Args:
        experiment: The cells.
        store: The directory of records.
        seeds: Seeds of the worlds and of training.
        backend: ``"local"`` or ``"ray"``.
        jobs: Number of parallel runs; by default the number of cores.
        budget: Minutes after which no further run is started.
        stale: Whether finished runs of another program than today's are executed again. Their
            records are replaced.
        callback: Called with every event.
    """
    if budget is not None:
        check_real("budget", budget, at_least=0)
    for seed in itertools.islice(seeds, MOST_RUNS):
        check_integer("seeds", seed, at_least=0)
    if jobs is not None:
        check_integer("jobs", jobs, at_least=1)
    check_backend("backend", backend)
    if (count := len(seeds) * len(experiment.cells)) > MOST_RUNS:
        raise ValueError(
            f"seeds must make at most {MOST_RUNS} runs, got {count}: {len(seeds)} seeds of "
            f"{len(experiment.cells)} cells"
        )
    # All arguments are checked by now: an invalid one leaves no file behind.
    deadline = None if budget is None else time.monotonic() + 60 * budget
    store.write_experiment(experiment)
    runs = experiment.runs(seeds)
    waiting = []
    counts = dict.fromkeys(("skipped", "stale", "done", "diverged", "failed"), 0)
    for run in runs:
        record = store.finished(run)
        if record is None or (stale and is_stale(record)):
            waiting.append(run)
        else:
            counts["skipped"] += 1
            counts["stale"] += is_stale(record)
            callback(Event("skipped", run, record))
    started = 0

    def runs_within_budget() -> Iterator[Run]:
        nonlocal started
        for run in waiting:
            if deadline is not None and time.monotonic() >= deadline:
                return
            started += 1
            callback(Event("started", run))
            yield run

    with _terminated_by_signal():
        finished = map_runs(runs_within_budget(), backend, jobs)
        try:
            for run, record in finished:
                store.write(run, record)
                counts[record["status"]] += 1
                callback(Event("finished", run, record))
        except (KeyboardInterrupt, SystemExit) as error:
            for run, record in _rest(finished, error):
                store.write(run, record)
            raise
    return Summary(**counts, left=len(waiting) - started)


def _rest(
    finished: Iterator[tuple[Run, dict[str, Any]]], error: BaseException
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Yield what was finished when an interruption came, whether it came in there or out here."""
    throw = getattr(finished, "throw", None)
    if throw is None:
        return
    try:
        yield throw(error)
        yield from finished
    except (KeyboardInterrupt, SystemExit, StopIteration):
        return


@contextmanager
def _terminated_by_signal() -> Iterator[None]:
    """Raise SystemExit at SIGTERM, which would end this process alone, if nothing handles it."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
