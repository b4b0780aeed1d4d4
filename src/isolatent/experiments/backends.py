"""Execute runs in parallel, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import joblib
import torch
from joblib.externals.loky import ProcessPoolExecutor

from isolatent.checks import check_one_of
from isolatent.experiments.execution import execute, new_record
from isolatent.experiments.experiment import Run

__all__ = ["BACKENDS", "check_backend", "map_runs"]

BACKENDS = ("local", "ray")
RETRIES = 2  # of a run whose process or node Ray has lost
SECONDS_BETWEEN_LOOKS = 0.5  # of a worker at its parent
MANAGER = "ExecutorManagerThread"  # name of the thread of a pool
THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
)
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
        lost: list[tuple[Run, Exception]] = []
        yield from _map_pool(waiting, jobs, threads, lost)
        if not lost:
            return
        # When a worker is killed, for example out of memory, all workers stop. Repeat the
        # interrupted runs one at a time to find the one that fails.
        for run, error in lost:
            yield run, _retry(run, threads, error)


def _map_pool(
    waiting: Iterator[Run], jobs: int, threads: int, lost: list[tuple[Run, Exception]]
) -> Iterator[RunRecord]:
    """Execute runs in a pool of processes, until all are done or a process is killed.

    An interruption, in here or thrown into this generator, ends the processes; what they have
    finished by then is yielded before it is raised again.

    Args:
        waiting: The runs.
        jobs: Number of processes.
        threads: Threads of each.
        lost: Receives the runs that were under way in a pool that broke, with the error.
    """
    pending: dict[Any, Run] = {}
    with _pool(jobs, threads) as executor:
        try:
            while not lost:
                for run in itertools.islice(waiting, jobs - len(pending)):
                    pending[executor.submit(_execute_one, run, threads)] = run
                if not pending:
                    return
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    run = pending.pop(future)
                    if isinstance(error := future.exception(), BrokenProcessPool):
                        lost.append((run, error))
                    else:
                        yield future.result()
            for future, run in pending.items():
                if isinstance(error := future.exception(), BrokenProcessPool):
                    lost.append((run, error))
                else:
                    yield future.result()
        except (KeyboardInterrupt, SystemExit):
            for future in [*pending]:
                if future.done() and future.exception() is None:
                    yield future.result()
            raise


@contextmanager
def _pool(jobs: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes that end with the block, and with this process if it is killed."""
    environment = {name: str(threads) for name in THREAD_VARIABLES}
    executor = ProcessPoolExecutor(
        jobs, initializer=_end_with_parent, initargs=(os.getpid(),), env=environment
    )
    try:
        yield executor
    finally:
        with _silent_manager():
            executor.shutdown(wait=True, kill_workers=True)


@contextmanager
def _silent_manager() -> Iterator[None]:
    """Let the thread that manages a pool end in an error: runs are taken from it while it ends."""
    before = threading.excepthook

    def hook(error: threading.ExceptHookArgs) -> None:
        if error.thread is None or not error.thread.name.startswith(MANAGER):
            before(error)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _end_with_parent(parent: int) -> None:
    """Let this process end soon after its parent, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _retry(run: Run, threads: int, error: Exception) -> dict[str, Any]:
    """Repeat a run in a separate process, which may be killed again."""
    lost: list[tuple[Run, Exception]] = []
    for _, record in _map_pool(iter([run]), 1, threads, lost):
        return record
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
