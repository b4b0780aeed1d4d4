"""Where runs are executed: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError

from isolatent.checks import check_integer, check_one_of
from isolatent.experiments.execution import blank_record, execute
from isolatent.experiments.spec import Run

__all__ = ["BACKENDS", "check_backend", "map_runs"]

BACKENDS = ("local", "ray")
RETRIES = 2  # of a run whose process or machine Ray has lost
Finished = tuple[Run, dict[str, Any]]


def check_backend(name: str, value: str) -> str:
    """Return ``value`` if runs can be executed there; connects to the cluster of ``"ray"``.

    Example:
        >>> check_backend("--backend", "slurm")
        Traceback (most recent call last):
        ValueError: --backend must be one of 'local', 'ray', got 'slurm'
    """
    if check_one_of(name, value, BACKENDS) == "ray":
        _connect(name)
    return value


def map_runs(runs: Iterable[Run], backend: str, jobs: int | None) -> Iterator[Finished]:
    """Execute runs side by side; give each with its record as soon as it is there.

    ``runs`` is read one by one, when there is room for another: an iterator that ends early starts
    nothing more.

    Args:
        runs: What to do.
        backend: ``"local"``, or ``"ray"`` for the cluster that this machine is part of.
        jobs: Runs at a time; by default one for each core.
    """
    check_backend("backend", backend)
    if jobs is not None:
        check_integer("jobs", jobs, at_least=1)
    return _local(runs, jobs) if backend == "local" else _ray(runs, jobs)


def _pair(run: Run, threads: int) -> Finished:
    return run, execute(run, threads)


def _local(runs: Iterable[Run], jobs: int | None) -> Iterator[Finished]:
    cores = joblib.cpu_count()
    jobs = jobs or cores
    # Not more than this process may have, by OMP_NUM_THREADS or torch.set_num_threads.
    threads = min(max(1, cores // jobs), torch.get_num_threads())
    waiting = iter(runs)
    if jobs == 1:
        for run in waiting:
            yield _pair(run, threads)
        return
    while True:
        under_way: dict[str, Run] = {}

        def started(under_way: dict[str, Run] = under_way) -> Iterator[Any]:
            for run in waiting:
                under_way[run.file] = run
                yield joblib.delayed(_pair)(run, threads)

        with joblib.parallel_config("loky", inner_max_num_threads=threads):
            parallel = joblib.Parallel(
                jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
            )
        try:
            for run, record in parallel(started()):
                del under_way[run.file]
                yield run, record
            return
        except TerminatedWorkerError as error:
            # A process was killed, perhaps for want of memory; the others with it. Alone, each
            # shows whether it was the one.
            for run in under_way.values():
                yield run, _alone(run, threads, error)


def _alone(run: Run, threads: int, error: Exception) -> dict[str, Any]:
    """Do a run again in a process of its own, which may be killed, too."""
    try:
        with joblib.parallel_config("loky", inner_max_num_threads=threads):
            # Two jobs, since joblib would do a single one in this process.
            [(_, record)] = joblib.Parallel(2)([joblib.delayed(_pair)(run, threads)])
        return record
    except TerminatedWorkerError:
        return _lost(run, threads, error)


def _lost(run: Run, threads: int, error: Exception) -> dict[str, Any]:
    """The record of a run whose process could not tell what happened."""
    told = f"its process died: {(str(error).splitlines() or [type(error).__name__])[0]}"
    return blank_record(run, threads) | {"status": "failed", "error": told}


def _connect(name: str) -> Any:
    """Ray, connected to the cluster that this machine is part of."""
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"{name} 'ray' needs Ray: pip install 'isolatent[cluster]'") from error

    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError as error:
            raise ValueError(
                f"{name} 'ray' found no cluster: start one with `ray start --head`, or set "
                f"RAY_ADDRESS ({error})"
            ) from error
    return ray


def _ray(runs: Iterable[Run], jobs: int | None) -> Iterator[Finished]:
    ray = _connect("backend")
    # One core each: these matrices are small. Ray decides where; it starts a run anew whose
    # machine was lost.
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_pair)
    room = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = iter(runs)
    pending = {remote.remote(run, 1): run for run in itertools.islice(waiting, room)}
    try:
        while pending:
            (done, *_), _ = ray.wait([*pending], num_returns=1)
            run = pending.pop(done)
            try:
                finished = ray.get(done)
            except ray.exceptions.RayError as error:
                # Its process was killed each time, or what it gave cannot be read.
                finished = run, _lost(run, 1, error)
            yield finished
            pending |= {remote.remote(run, 1): run for run in itertools.islice(waiting, 1)}
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
