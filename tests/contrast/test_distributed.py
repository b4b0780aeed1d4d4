"""Two processes with half the pairs each are one process with all of them."""

import os
import socket
import subprocess
import sys
from itertools import product

import pytest
import torch
import torch.distributed as dist

from isolatent.contrast import (
    NCE,
    NWJ,
    AlignUniform,
    AnInfoNCE,
    ConstantPotential,
    Dot,
    InfoNCE,
    SpectralContrastive,
)

ROWS, N = 12, 3


class Bowl(torch.nn.Module):
    """A potential that depends on the codes."""

    def __init__(self):
        super().__init__()
        self.depth = torch.nn.Parameter(torch.tensor(0.2))

    def forward(self, h):
        return self.depth * h.square().sum(-1)


LOSSES = [
    lambda gather: InfoNCE(Dot(2.0, learn_scale=True), gather=gather),
    lambda gather: AnInfoNCE(N, negatives_from="both", symmetric=False, gather=gather),
    lambda gather: NCE(
        Dot(learn_scale=True), potential_pos=ConstantPotential(0.3), ratio="count", gather=gather
    ),
    lambda gather: NWJ(
        Dot(learn_scale=True), potential=Bowl(), potential_pos=Bowl(), gather=gather
    ),
    lambda gather: AlignUniform(0.6, gather=gather),
    lambda gather: SpectralContrastive(
        Dot(learn_scale=True), negatives_from="within", gather=gather
    ),
]


def problem():
    generator = torch.Generator().manual_seed(0)
    x, x_pos = torch.randn(2, ROWS, 5, generator=generator, dtype=torch.float64)
    weight = 0.3 * torch.randn(5, N, generator=generator, dtype=torch.float64)
    queue = torch.randn(8, N, generator=generator, dtype=torch.float64)
    return x, x_pos, weight, queue


def losses_and_gradients(rank, processes):
    """The loss and the averaged gradients of an encoder and of the loss's own parameters."""
    x, x_pos, weight, queue = problem()
    share = slice(rank * ROWS // processes, (rank + 1) * ROWS // processes)
    results = []
    part = slice(rank * len(queue) // processes, (rank + 1) * len(queue) // processes)
    for make, negatives in product(LOSSES, (None, queue[part])):
        encoder = weight.clone().requires_grad_()
        loss = make(processes > 1).double()
        value = loss(x[share] @ encoder, x_pos[share] @ encoder, negatives)
        gradients = torch.autograd.grad(value, [encoder, *loss.parameters()])
        if processes > 1:
            for gradient in gradients:
                dist.all_reduce(gradient)
        results.append((value.detach(), [g / processes for g in gradients]))
    return results


def work(rank, port, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    results = losses_and_gradients(rank, 2)
    uneven = torch.zeros(2 + rank, N)
    try:
        InfoNCE(Dot(), gather=True)(uneven, uneven)
        message = ""
    except ValueError as error:
        message = str(error)
    torch.save((results, message), f"{path}/{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(port), str(tmp_path)])
        for rank in range(2)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    alone = losses_and_gradients(0, 1)
    for rank in range(2):
        together, message = torch.load(tmp_path / f"{rank}.pt")
        assert "every process must have as many rows, got [2, 3]" in message
        for (value, gradients), (expected, expected_gradients) in zip(together, alone, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-9)
            for ours, theirs in zip(gradients, expected_gradients, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_the_laws_above_would_notice_missing_negatives():
    """Half the batch without gathering is a different loss."""
    x, x_pos, weight, _ = problem()
    loss = InfoNCE(Dot(2.0)).double()
    whole = loss(x @ weight, x_pos @ weight)
    half = loss(x[:6] @ weight, x_pos[:6] @ weight)
    assert half.item() != pytest.approx(whole.item(), rel=1e-2)


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
