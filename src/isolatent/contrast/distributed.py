"""Columns from all processes, with gradients that flow back to where they came from."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["average_value", "check_processes", "gather_rows", "row_offset"]


def check_processes() -> None:
    """Raise an error unless a process group is there to gather from."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "gather=True needs torch.distributed.init_process_group() to have been called, as "
            "torchrun and lightning-fabric do; without several processes leave gather=False"
        )


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.rows = len(rows)
        sizes = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(_processes())]
        dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
        counts = [int(size) for size in sizes]
        if len(set(counts)) > 1:
            raise ValueError(f"every process must have as many rows, got {counts}")
        parts = [torch.empty_like(rows) for _ in counts]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        # Every process's loss depends on these rows: their gradients add up at the owner.
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        start = dist.get_rank() * ctx.rows
        return total[start : start + ctx.rows]


def gather_rows(rows: Tensor) -> Tensor:
    """The rows (B, ...) of all processes one after another, by rank."""
    out: Tensor = _Gather.apply(rows)
    return out


def row_offset(rows: int) -> int:
    """Where this process's rows start among the gathered ones."""
    return dist.get_rank() * rows


def average_value(loss: Tensor) -> Tensor:
    """The mean of all processes' losses as the value, this process's own gradient.

    With the gradients averaged over processes, as DistributedDataParallel does, training is the
    same as in one process with all the rows.
    """
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return loss + (mean / _processes() - loss.detach())


def _processes() -> int:
    return dist.get_world_size()
