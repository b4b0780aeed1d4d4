"""Running experiments: what is left to do, how long, and who is told."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from isolatent.checks import check_integer, check_real
from isolatent.experiments.backends import check_backend, map_runs
from isolatent.experiments.spec import Experiment, Run
from isolatent.experiments.store import Store

__all__ = ["Event", "Summary", "reproduce", "select_cells"]


@dataclass(frozen=True)
class Event:
    """Something happened to a run.

    Attributes:
        kind: ``"skipped"`` (it was finished before), ``"started"`` or ``"finished"``.
        run: The run.
        record: Its record, once finished, now or before.
    """

    kind: str
    run: Run
    record: dict[str, Any] | None = None


@dataclass(frozen=True)
class Summary:
    """How many runs were skipped, done, diverged, failed, and left for want of time."""

    skipped: int = 0
    done: int = 0
    diverged: int = 0
    failed: int = 0
    left: int = 0


def select_cells(experiment: Experiment, pattern: str) -> Experiment:
    """The experiment with only the cells whose names match a pattern such as ``"box_*"``."""
    kept = [cell for cell in experiment.cells if fnmatch.fnmatchcase(cell.name, pattern)]
    if not kept:
        names = ", ".join(cell.name for cell in experiment.cells)
        raise ValueError(f"no cell of {experiment.name} matches {pattern!r}; there are {names}")
    return experiment.model_copy(update={"cells": kept})


def reproduce(
    experiment: Experiment,
    store: Store,
    seeds: list[int],
    *,
    backend: str = "local",
    jobs: int | None = None,
    budget: float | None = None,
    tell: Callable[[Event], None] = lambda event: None,
) -> Summary:
    """Do every cell with every seed that is not yet in the store.

    Each record is stored as soon as it is there, so an interruption loses the runs under way.

    Args:
        experiment: The cells.
        store: Where records are and go.
        seeds: Of the worlds and trainings.
        backend: ``"local"`` or ``"ray"``.
        jobs: Runs at a time; by default one for each core.
        budget: Minutes after which no further run is started.
        tell: Called with every event.
    """
    if budget is not None:
        check_real("budget", budget, at_least=0)
    for seed in seeds:
        check_integer("seeds", seed, at_least=0)
    if jobs is not None:
        check_integer("jobs", jobs, at_least=1)
    check_backend("backend", backend)
    # Nothing is written before all that was asked for is known to be possible.
    deadline = None if budget is None else time.monotonic() + 60 * budget
    store.write_experiment(experiment)
    # Cells with the same settings share a hash, so it is not enough.
    stored = {(r["cell"], r["seed"], r.get("hash")): r for r in store.records(experiment.name)}
    runs = experiment.runs(seeds)
    waiting = []
    for run in runs:
        if store.has(run):
            tell(Event("skipped", run, stored.get((run.cell.name, run.seed, run.hash))))
        else:
            waiting.append(run)
    counts = {"skipped": len(runs) - len(waiting), "done": 0, "diverged": 0, "failed": 0}
    started = 0

    def in_time() -> Iterator[Run]:
        nonlocal started
        for run in waiting:
            if deadline is not None and time.monotonic() >= deadline:
                return
            started += 1
            tell(Event("started", run))
            yield run

    for run, record in map_runs(in_time(), backend, jobs):
        store.write(run, record)
        counts[record["status"]] += 1
        tell(Event("finished", run, record))
    return Summary(**counts, left=len(waiting) - started)
