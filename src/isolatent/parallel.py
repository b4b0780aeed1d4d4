"""Work shared among threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["map_in_threads", "share_images"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def share_images(count: int, work: Callable[[int, int], None], *, alone: int) -> None:
    """Call work(first, last) on ranges that make up 0 … count - 1, on as many threads as torch has.

    Ordinary threads, while the compiled code has released the GIL: as for the losses' engine.

    Args:
        count: Images.
        work: Makes those from its first argument to before its second.
        alone: Images to a thread below which a further one costs more than it gains.
    """
    threads = max(1, min(torch.get_num_threads(), count // alone))
    bounds = [count * t // threads for t in range(threads + 1)]
    if threads == 1:
        return work(0, count)
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, *bounds[t : t + 2]) for t in range(threads)]:
            done.result()  # raises what was raised there
    return None


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return ``[function(item) for item in items]``, computed on as many threads as torch has.

    Each item is computed by one thread, with torch's own threads switched off: threads that share
    every layer of every batch wait for each other some ten times per batch. The first item is
    computed alone, so that ``function`` can initialise what later calls share.

    Example:
        >>> map_in_threads(lambda x: x + 1, [1, 2, 3])
        [2, 3, 4]
    """
    threads = torch.get_num_threads()
    results = [function(item) for item in items[:1]]
    if threads == 1:
        return results + [function(item) for item in items[1:]]
    torch.set_num_threads(1)  # of each thread that is started from now on
    try:
        with ThreadPoolExecutor(threads) as pool:
            return results + list(pool.map(function, items[1:]))
    finally:
        torch.set_num_threads(threads)
