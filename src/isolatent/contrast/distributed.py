"""Gather rows from all processes of ``torch.distributed``, with gradients.

Each process computes the loss of its own rows against the columns of all processes. In the backward
pass every process runs the collectives in the reverse order of the forward pass, so all processes
must gather the same tensors in the same order, also a process that has no rows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["Counts", "average_value", "check_processes", "count_rows", "gather_rows", "row_offset"]

Counts = tuple[int, ...]  # the number of rows of each process, by rank


def check_processes() -> None:
    """Raise an error unless there is a process group to gather from."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "gather=True needs torch.distributed.init_process_group() to have been called, as "
            "torchrun and lightning-fabric do; without several processes leave gather=False"
        )


def count_rows(rows: Tensor) -> Counts:
    """Return the number of rows of each process."""
    own = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, own)
    return tuple(torch.cat(counts).tolist())


def row_offset(counts: Counts | None) -> int:
    """Return the index of this process's first row among the gathered rows."""
    return 0 if counts is None else sum(counts[: dist.get_rank()])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Counts) -> Tensor:
        ctx.counts = counts
        # all_gather needs equal shapes: pad to the largest number of rows.
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # The loss of every process depends on these rows: sum the gradients, keep the own rows.
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        first = row_offset(ctx.counts)
        return total[first : first + ctx.counts[dist.get_rank()]], None


def gather_rows(rows: Tensor, counts: Counts | None) -> Tensor:
    """Return the rows (B, ...) of all processes, ordered by rank.

    Args:
        rows: The rows of this process; the number may differ between processes and may be 0.
        counts: The numbers of rows, from :func:`count_rows`; None to return the own rows.
    """
    if counts is None:
        return rows
    out: Tensor = _Gather.apply(rows, counts)
    return out


def average_value(loss: Tensor, counts: Counts) -> Tensor:
    """Return the mean over the rows of all processes, given the mean over the own rows.

    All processes get the same value. Its gradient is that of the own rows, weighted by
    P · own rows / all rows for P processes. So the mean of all processes' gradients, as
    DistributedDataParallel takes it, is the gradient of one process that has all the rows.
    """
    weighted = loss * (len(counts) * counts[dist.get_rank()] / sum(counts))
    mean = weighted.detach().clone()
    dist.all_reduce(mean)
    return weighted + (mean / len(counts) - weighted.detach())
