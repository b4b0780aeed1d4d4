"""Execute runs in parallel, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError

from isolatent.checks import check_one_of
from isolatent.experiments.execution import execute, new_record
from isolatent.experiments.experiment import Run

__all__ = ["BACKENDS", "check_backend", "map_runs"]

BACKENDS = ("local", "ray")
RETRIES = 2  # of a run whose process or node Ray has lost
RunRecord = tuple[Run, dict[str, Any]]


def check_backend(name: str, value: str) -> str:
    """Return ``value`` if it is an available backend; ``"ray"`` connects to the cluster.

    Example:
        >>> check_backend("--backend", "slurm")
        Traceback (most recent call last):
        ValueError: --backend must be one of 'local', 'ray', got 'slurm'
    """
    if check_one_of(name, value, BACKENDS) == "ray":
        _connect(name)
    return value


def map_runs(runs: Iterable[Run], backend: str, jobs: int | None) -> Iterator[RunRecord]:
    """Execute runs in parallel and yield each with its record as soon as it is finished.

    ``runs`` is consumed lazily, one run whenever a worker is free, so that an iterator can stop
    early to start no further run.

    Args:
        runs: The runs.
        backend: ``"local"``, or ``"ray"`` for the cluster that this machine belongs to.
        jobs: Number of parallel runs; by default the number of cores.
    """
    return _map_local(runs, jobs) if backend == "local" else _map_ray(runs, jobs)


def _execute_one(run: Run, threads: int) -> RunRecord:
    return run, execute(run, threads)


def _map_local(runs: Iterable[Run], jobs: int | None) -> Iterator[RunRecord]:
    cores = joblib.cpu_count()
    jobs = jobs or cores
    # At most the limit of this process, set by OMP_NUM_THREADS or torch.set_num_threads.
    threads = min(max(1, cores // jobs), torch.get_num_threads())
    waiting = iter(runs)
    if jobs == 1:
        for run in waiting:
            yield _execute_one(run, threads)
        return
    while True:
        running: dict[str, Run] = {}

        def submissions(running: dict[str, Run] = running) -> Iterator[Any]:
            for run in waiting:
                running[run.file] = run
                yield joblib.delayed(_execute_one)(run, threads)

        with joblib.parallel_config("loky", inner_max_num_threads=threads):
            parallel = joblib.Parallel(
                jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
            )
        try:
            for run, record in parallel(submissions()):
                del running[run.file]
                yield run, record
            return
        except TerminatedWorkerError as error:
            # When a worker is killed, for example out of memory, joblib stops all workers. Repeat
            # the interrupted runs one at a time to find the one that fails.
            for run in running.values():
                yield run, _retry(run, threads, error)


def _retry(run: Run, threads: int, error: Exception) -> dict[str, Any]:
    """Repeat a run in a separate process, which may be killed again."""
    try:
        with joblib.parallel_config("loky", inner_max_num_threads=threads):
            # Two jobs, since joblib executes a single job in this process.
            [(_, record)] = joblib.Parallel(2)([joblib.delayed(_execute_one)(run, threads)])
        return record
    except TerminatedWorkerError:
        return _failed_record(run, threads, error)


def _failed_record(run: Run, threads: int, error: Exception) -> dict[str, Any]:
    """Return the record of a run whose process was terminated."""
    message = (str(error).splitlines() or [type(error).__name__])[0]
    failure = {"status": "failed", "error": f"the process was terminated: {message}"}
    return new_record(run, threads) | failure


def _connect(name: str) -> Any:
    """Return the module ``ray``, connected to the cluster that this machine belongs to."""
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


def _map_ray(runs: Iterable[Run], jobs: int | None) -> Iterator[RunRecord]:
    ray = _connect("backend")
    # One core each, since the matrices are small. Ray chooses the node, and repeats a run whose
    # node was lost.
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_execute_one)
    jobs = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = iter(runs)
    pending = {remote.remote(run, 1): run for run in itertools.islice(waiting, jobs)}
    try:
        while pending:
            (done, *_), _ = ray.wait([*pending], num_returns=1)
            run = pending.pop(done)
            try:
                finished = ray.get(done)
            except ray.exceptions.RayError as error:
                # The process was killed at every attempt, or its result cannot be read.
                finished = run, _failed_record(run, 1, error)
            yield finished
            pending |= {remote.remote(run, 1): run for run in itertools.islice(waiting, 1)}
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
