"""Time and memory of one cell of `losses.py`: a loss, a similarity, a method and a batch.

A cell is measured in a process of its own, which is forked from one that has run nothing.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from loss_peers import GEOMETRIES, LOSSES, METHODS, POLICIES, codes, methods_for, oracle

BATCHES = (512, 1024, 6144, 16384, 65536)
QUICK = (1024, 6144)
CHECKED = 200  # batch of the comparison with the oracle
TOLERANCE = 1e-4  # relative, of values and of gradients
PRELOAD = ["torch", "isolatent.contrast", "isolatent.contrast.kernels.numba_engine", "loss_peers"]
Record = dict[str, Any]


class Cell(NamedTuple):
    """One measurement."""

    loss: str
    geometry: str
    policy: str
    method: str
    batch: int

    @property
    def key(self) -> str:
        return " | ".join(map(str, self))


def cells(quick: bool) -> Iterator[Cell]:
    """All cells, batches ascending, so that small ones foretell the cost of large ones."""
    for loss in ["InfoNCE"] if quick else LOSSES:
        for batch in QUICK if quick else BATCHES:
            for geometry in GEOMETRIES.values():
                for policy in POLICIES:
                    for method in methods_for(loss, geometry, policy):
                        yield Cell(loss, geometry.name, policy, method, batch)


# In the process of a cell


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (peak since `forget_peak`) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


def forget_peak() -> None:
    """Give free memory back to the system, then set the peak to what is in use."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def busy() -> float:
    """Seconds of all cores spent so far by processes other than this one, or by other guests."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def deviations(cell: Cell) -> tuple[float, float]:
    """Largest relative errors of value and of gradients against the oracle, at a small batch."""
    geometry = GEOMETRIES[cell.geometry]
    build = METHODS[cell.method].build
    results = []
    for builder, dtype in ((oracle, torch.float64), (build, torch.float32)):
        h, h_pos = codes(geometry, CHECKED, dtype)
        value = builder(cell.loss, geometry, cell.policy)(h, h_pos)
        results.append((value.item(), torch.autograd.grad(value, (h, h_pos))))
    (expected, wanted), (found, got) = results
    gradients = [
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(got, wanted, strict=True)
    ]
    return abs(found - expected) / abs(expected), max(gradients)


def repeats_for(seconds: float, budget: float) -> int:
    """How often to repeat after a first run of so many seconds; 0 where once must do."""
    if seconds < 1:
        return min(25, max(5, round(3 / seconds)))
    return 3 if seconds < budget / 12 else int(seconds < budget / 4)


def measure(cell: Cell, threads: int, budget: float) -> Record:
    """The record of a cell; raises where its value is wrong."""
    torch.set_num_threads(threads)
    value_error, gradient_error = deviations(cell)  # warms up, too
    if not max(value_error, gradient_error) < TOLERANCE:
        raise ValueError(f"value off by {value_error:.1e}, gradients by {gradient_error:.1e}")
    geometry = GEOMETRIES[cell.geometry]
    function = METHODS[cell.method].build(cell.loss, geometry, cell.policy)
    h, h_pos = codes(geometry, cell.batch, torch.float32)

    def run() -> tuple[float, float]:
        start = time.perf_counter()
        value = function(h, h_pos)
        torch.autograd.grad(value, (h, h_pos))
        return time.perf_counter() - start, value.item()

    forget_peak()
    before = resident("VmRSS")
    start, busy_before = time.perf_counter(), busy()
    first, value = run()
    extra = resident("VmHWM") - before
    times = [run()[0] for _ in range(repeats_for(first, budget))] or [first]
    return {
        "seconds": statistics.median(times),
        "fastest": min(times),
        "repeats": len(times),
        "others": max(0.0, busy() - busy_before) / (time.perf_counter() - start),
        "megabytes": extra / 1e6,
        "value": value,
        "value error": value_error,
        "gradient error": gradient_error,
    }


def child(pipe: Connection, cell: Cell, threads: int, budget: float) -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (KeOps is talkative)
    try:
        pipe.send(measure(cell, threads, budget))
    except Exception as error:
        pipe.send({"failed": f"{type(error).__name__}: {error}"})


# In the process that starts them


def run_apart(cell: Cell, threads: int, budget: float) -> Record:
    """The record of a cell measured in a process forked from one that has run nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(theirs, cell, threads, budget))
    process.start()
    theirs.close()
    try:
        if not ours.poll(120 + 3 * budget):
            process.kill()
            return {"failed": f"killed after {120 + 3 * budget:.0f} s"}
        record: Record = ours.recv()
        return record
    except EOFError:
        process.join()
        return {"failed": f"crashed with exit code {process.exitcode}"}
    finally:
        process.join()
