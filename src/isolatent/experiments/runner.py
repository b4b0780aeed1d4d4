"""Reproduce an experiment: execute the runs that are not stored yet, within a time budget."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from isolatent.checks import check_integer, check_real
from isolatent.experiments.backends import check_backend, map_runs
from isolatent.experiments.experiment import Experiment, Run
from isolatent.experiments.program import is_stale
from isolatent.experiments.store import Store

__all__ = ["Event", "Summary", "reproduce", "select_cells"]


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
    seeds: list[int],
    *,
    backend: str = "local",
    jobs: int | None = None,
    budget: float | None = None,
    stale: bool = False,
    callback: Callable[[Event], None] = lambda event: None,
) -> Summary:
    """Execute every cell with every seed, skipping runs that are already stored.

    Each record is stored as soon as its run is finished: an interruption loses only the runs in
    progress, and calling the function again resumes.

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
    for seed in seeds:
        check_integer("seeds", seed, at_least=0)
    if jobs is not None:
        check_integer("jobs", jobs, at_least=1)
    check_backend("backend", backend)
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

    for run, record in map_runs(runs_within_budget(), backend, jobs):
        store.write(run, record)
        counts[record["status"]] += 1
        callback(Event("finished", run, record))
    return Summary(**counts, left=len(waiting) - started)
