"""Images shared among threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

__all__ = ["share_images"]


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
