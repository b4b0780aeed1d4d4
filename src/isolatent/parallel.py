"""Threads over ranges of rows, for compiled code, and over batches, for torch modules.

Threads are ordinary Python threads that live for one call, while the code that they run has
released the GIL. So there is no second OpenMP pool beside torch's, nothing is inherited by a forked
data loader, and `torch.set_num_threads` governs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

__all__ = ["map_ranges", "map_threads", "max_threads"]

Part = TypeVar("Part")
Result = TypeVar("Result")


def max_threads() -> int:
    """Return torch's number of threads, else the number of cores, at most NUMBA_NUM_THREADS."""
    from numba import config

    torch = sys.modules.get("torch")
    return min(config.NUMBA_NUM_THREADS, torch.get_num_threads() if torch else os.cpu_count() or 1)


def map_ranges(
    work: Callable[[int, int, int], None],
    count: int,
    threads: int,
    pool: Executor | None = None,
) -> None:
    """Call ``work(t, first, last)`` in thread t on the t-th of equal parts of ``range(count)``.

    The first part is computed in the calling thread. An exception in any thread is raised.

    Args:
        work: Compiled code that releases the GIL.
        count: Number of rows.
        threads: Number of parts; below 1 as 1.
        pool: Where to start the other threads, for callers with many short calls. Default: a pool
            for this call.

    Example:
        >>> squares = [0] * 5
        >>> def work(t, first, last):
        ...     squares[first:last] = [k * k for k in range(first, last)]
        >>> map_ranges(work, 5, threads=2)
        >>> squares
        [0, 1, 4, 9, 16]
    """
    if threads <= 1:
        return work(0, 0, count)
    bounds = [count * t // threads for t in range(threads + 1)]
    context: AbstractContextManager[Executor] = (
        ThreadPoolExecutor(threads - 1) if pool is None else nullcontext(pool)
    )
    with context as executor:
        others = [executor.submit(work, t, *bounds[t : t + 2]) for t in range(1, threads)]
        work(0, *bounds[:2])
        for other in others:
            other.result()
    return None


def map_threads(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return ``[work(part) for part in parts]``, computed in as many threads as torch has.

    Each call runs in one thread: threads that share every layer of every batch wait for each other
    about ten times a batch, and longer on a busy machine. The first part is computed before the
    others, so that ``work`` may trace a module at its first call.

    Example:
        >>> map_threads(lambda x: x + 1, [1, 2, 3])
        [2, 3, 4]
    """
    import torch

    threads = torch.get_num_threads()
    results = [work(part) for part in parts[:1]]
    if threads == 1:
        return results + [work(part) for part in parts[1:]]
    torch.set_num_threads(1)  # of each thread that is started from now on
    try:
        with ThreadPoolExecutor(threads) as pool:
            return results + list(pool.map(work, parts[1:]))
    finally:
        torch.set_num_threads(threads)
