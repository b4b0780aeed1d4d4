"""Devices and processes: one process on one device, or several, through lightning-fabric."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from isolatent.checks import IsolatentWarning, check_integer, check_one_of
from isolatent.pairs import Batch

__all__ = ["ACCELERATORS", "PRECISIONS", "Processes", "average_gradients", "connect"]

ACCELERATORS = ("auto", "cpu", "cuda", "mps")
# Half-precision floats would need their gradients scaled; bfloat16 has the range of float32. Losses
# and whitening take float32 under both.
PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class Processes:
    """One process of a training run.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
        device: Device of this process.
        fabric: The :class:`lightning_fabric.Fabric` that connects the processes; None for one
            process on the CPU, which does not need it (the import takes seconds).
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    fabric: Any = None

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which networks run in the requested precision."""
        return nullcontext() if self.fabric is None else self.fabric.autocast()

    def share(self, batch: Batch) -> Batch:
        """Return this process's part of a batch, on its device."""
        own = batch.rows(self._part("batch_size", len(batch)))
        if batch.negatives is not None and batch.negatives.ndim == batch.x.ndim:  # of all anchors
            shared = batch.negatives[self._part("the number of negatives", len(batch.negatives))]
            own = replace(own, negatives=shared)
        return own.to(self.device)

    def _part(self, name: str, count: int) -> slice:
        if count % self.size:
            raise ValueError(
                f"{name} must be a multiple of the number of processes, {self.size}, got {count}"
            )
        part = count // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def agree(self, number: int) -> int:
        """Return the number that the first process has."""
        return number if self.size == 1 else int(self.fabric.broadcast(number))

    def mean(self, number: float) -> float:
        """Return the mean over the processes."""
        if self.size == 1:
            return number
        own = torch.tensor(number, dtype=torch.float64)
        return float(self.fabric.all_reduce(own, reduce_op="mean"))

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        if self.size == 1:
            return flag
        return bool(self.fabric.all_reduce(torch.tensor(float(flag)), reduce_op="max") > 0)

    def wait(self) -> None:
        """Wait for the other processes."""
        if self.size > 1:
            self.fabric.barrier()


def connect(
    accelerator: str = "auto", devices: int = 1, num_nodes: int = 1, precision: str = "32-true"
) -> Processes:
    """Start or join the processes of a training run.

    Under torchrun, join the processes that it started. Otherwise, with several devices,
    lightning-fabric starts the running script once more for each further process, so that all
    processes reach this call.

    Args:
        accelerator: ``"cpu"``, ``"cuda"`` or ``"mps"``. ``"auto"`` means the CPU, since training
            has not been tried on other devices; a warning says how to ask for one that there is.
        devices: Number of devices on this machine: GPUs, or processes on the CPU.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run encoders in bfloat16.
    """
    check_one_of("accelerator", accelerator, ACCELERATORS)
    check_one_of("precision", precision, PRECISIONS)
    check_integer("devices", devices, at_least=1)
    check_integer("num_nodes", num_nodes, at_least=1)
    under_torchrun = int(os.environ.get("WORLD_SIZE", "1")) > 1
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(accelerator, True):
        raise ValueError(
            f"accelerator must be one that this machine has, got {accelerator!r} without a GPU"
        )
    if accelerator == "auto":
        if found := [name for name in available if available[name]]:
            warnings.warn(
                f"accelerator='auto' means the CPU, since no GPU has been tried with this version; "
                f"pass accelerator={found[0]!r} for the GPU of this machine",
                IsolatentWarning,
                stacklevel=2,
            )
        accelerator = "cpu"
    on_cpu = accelerator == "cpu"
    several = devices > 1 or num_nodes > 1 or under_torchrun
    if on_cpu and precision == "32-true" and not several:
        return Processes()

    from lightning_fabric import Fabric

    fabric = Fabric(
        accelerator=accelerator,
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", devices)) if under_torchrun else devices,
        num_nodes=num_nodes,
        precision=precision,  # type: ignore[arg-type]  # checked above
        strategy="ddp" if several else "auto",
    )
    fabric.launch()
    return Processes(fabric.global_rank, fabric.world_size, fabric.device, fabric)


def average_gradients(parameters: Iterable[torch.nn.Parameter], processes: Processes) -> None:
    """Replace gradients by their means over the processes, in one all-reduce."""
    if processes.size == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    longest = torch.promote_types(
        torch.float32, max((g.dtype for g in gradients), key=lambda d: d.itemsize)
    )
    flat = torch.cat([gradient.flatten().to(longest) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= processes.size
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
