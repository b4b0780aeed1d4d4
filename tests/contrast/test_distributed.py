"""Two processes that share the pairs give the loss and gradients of one process with all pairs."""

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
    AnchorScale,
    AnInfoNCE,
    ConstantPotential,
    Dot,
    Ensemble,
    FactorScale,
    FullAnInfoNCE,
    InfoNCE,
    LinearDynamics,
    Lp,
    NetworkDynamics,
    Pairing,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
    SpectralContrastive,
    SphereMoments,
)

ROWS, N, K = 12, 3, 4


class Bowl(torch.nn.Module):
    """A potential that depends on the codes."""

    def __init__(self):
        super().__init__()
        self.depth = torch.nn.Parameter(torch.tensor(0.2))

    def forward(self, h):
        return self.depth * h.square().sum(-1)


def relaxed(*names, dynamics=LinearDynamics):
    """Options of a loss with relaxations, whose parameters are away from their start."""
    make = {
        "pairing": Pairing,
        "anchor_scale": lambda: AnchorScale(N, 4),
        "factor_scale": lambda: FactorScale(N),
        "dynamics": lambda: dynamics(N),
        "potential": Bowl,
        "potential_pos": Bowl,
    }
    options = {name: make[name]() for name in names or make}
    generator = torch.Generator().manual_seed(1)
    for module in options.values():
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return {**options, "engine": "blockwise"}  # numba would compile for half a minute


LOSSES = {
    "infonce": lambda: InfoNCE(Dot(2.0, learn_scale=True)),
    "aninfonce one way": lambda: AnInfoNCE(N, negatives_from="both", symmetric=False),
    "nce": lambda: NCE(
        Dot(learn_scale=True), potential_pos=ConstantPotential(0.3), ratio="count", symmetric=False
    ),
    "nwj": lambda: NWJ(Dot(learn_scale=True), potential=Bowl(), potential_pos=Bowl()),
    "align": lambda: AlignUniform(0.6),
    "spectral": lambda: SpectralContrastive(Dot(learn_scale=True), negatives_from="within"),
    "given": lambda: AnInfoNCE(N, symmetric=False, negatives_from="given"),
    "ensemble": lambda: Ensemble([AnInfoNCE(N), AnInfoNCE(N, weights=2.0)]),
    "ensemble given": lambda: Ensemble(
        [
            NCE(Lp(learn_weights=True), symmetric=False, negatives_from="given", potential=Bowl()),
            AnInfoNCE(N, symmetric=False, negatives_from="both"),
        ]
    ),
    "saturated sphere": lambda: SaturatedInfoNCE(N, batch_size=ROWS),
    "saturated box": lambda: SaturatedInfoNCE(N, geometry="box", batch_size=ROWS),
    "full matrix": lambda: FullAnInfoNCE(N, weight=2.0),
    "saturated weights": lambda: SaturatedAnInfoNCE(N, batch_size=ROWS),
    "saturated moments": lambda: SphereMoments(),  # takes no negatives either
    "saturated free": lambda: SaturatedInfoNCE(N, geometry="free", batch_size=ROWS),
    "saturated ensemble": lambda: Ensemble(
        [SaturatedInfoNCE(N, geometry="free", batch_size=ROWS) for _ in range(2)]
    ),
    "relaxed infonce": lambda: InfoNCE(Lp(3, learn_weights=True), **relaxed()),
    "relaxed decoupled": lambda: InfoNCE(
        Dot(learn_scale=True), positive_in_denominator=False, **relaxed("anchor_scale", "pairing")
    ),
    "relaxed aninfonce": lambda: AnInfoNCE(
        N, negatives_from="both", **relaxed(dynamics=NetworkDynamics)
    ),
    "relaxed nce": lambda: NCE(
        Dot(learn_scale=True), ratio="count", negatives_from="within", **relaxed()
    ),
    "relaxed one way": lambda: NCE(
        Lp(1, learn_weights=True), symmetric=False, **relaxed("pairing", "anchor_scale", "dynamics")
    ),
    "relaxed spectral": lambda: SpectralContrastive(Lp(2, learn_weights=True), **relaxed()),
    "relaxed nwj": lambda: NWJ(
        Dot(learn_scale=True), negatives_from="both", **relaxed("anchor_scale", "pairing")
    ),
    "relaxed given": lambda: InfoNCE(Lp(2), negatives_from="given", **relaxed()),
    "relaxed ensemble": lambda: Ensemble(
        [NWJ(Lp(2, learn_weights=True), **relaxed()), AnInfoNCE(N, **relaxed("anchor_scale"))]
    ),
}
# Take negatives of each anchor.
ONE_WAY = ("aninfonce one way", "nce", "given", "ensemble given", "relaxed one way")

# The number of rows in the first process. The second one has the other rows.
SHARES = (6, 7, 12)
RELAXED_SHARES = (7, 11, 12)  # with a single row every candidate but one has a negative
# Spread evenly, unevenly, in one process only for some shares, and one tag without pairs.
TAGS = {
    "even": torch.arange(ROWS) % 2,
    "uneven": torch.tensor([0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1]),
    "apart": (torch.arange(ROWS) >= 6).long(),
    "one": torch.ones(ROWS, dtype=torch.int64),
}


def cases():
    shares = {name: RELAXED_SHARES if "relaxed" in name else SHARES for name in LOSSES}
    pairs = [(name, share) for name in LOSSES for share in shares[name]]
    for name, share in pairs:
        negatives = [None] if "given" not in name else []
        negatives += [] if "saturated" in name else ["shared"]
        negatives += ["own"] if name in ONE_WAY else []
        for given, tags in product(negatives, TAGS if "ensemble" in name else [None]):
            yield name, share, given, tags


def loss_and_gradients(case, rank, processes):
    """The loss and the averaged gradients of an encoder and of the loss's own parameters."""
    name, share, given, tags = case
    generator = torch.Generator().manual_seed(0)
    x, x_pos = torch.randn(2, ROWS, 5, generator=generator, dtype=torch.float64)
    weight = 0.3 * torch.randn(5, N, generator=generator, dtype=torch.float64)
    shared = torch.randn(7, N, generator=generator, dtype=torch.float64)
    own = torch.randn(ROWS, K, N, generator=generator, dtype=torch.float64)
    rows, queue = slice(None), slice(None)
    if processes > 1:
        rows = [slice(share), slice(share, None)][rank]
        queue = [slice(5), slice(5, None)][rank]
    encoder = weight.clone().requires_grad_()
    mixing = torch.eye(N, dtype=torch.float64).requires_grad_()  # gradients to the negatives
    extra = {"shared": lambda: shared[queue] @ mixing, "own": lambda: own[rows] @ mixing}
    options = {} if given is None else {"negatives": extra[given]()}
    if tags is not None:
        options["tags"] = TAGS[tags][rows]
    loss = LOSSES[name]().double()
    loss.gather = processes > 1
    value = loss(x[rows] @ encoder, x_pos[rows] @ encoder, **options)
    inputs = [encoder, *([] if given is None else [mixing]), *loss.parameters()]
    gradients = torch.autograd.grad(value, inputs, allow_unused=True)
    missing = [gradient is None for gradient in gradients]
    total = [gradient for gradient in gradients if gradient is not None]
    if processes > 1:
        for gradient in total:
            dist.all_reduce(gradient)
    return value.detach(), missing, [gradient / processes for gradient in total]


def work(rank, port, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    results = [loss_and_gradients(case, rank, 2) for case in cases()]
    try:
        InfoNCE(Dot(), gather=True)(torch.zeros(0, N), torch.zeros(0, N))
        message = ""
    except ValueError as error:
        message = str(error)
    torch.save((results, message), f"{path}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Results of all cases in two processes, by rank, each with the message of an error."""
    path = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(port), str(path)])
        for rank in range(2)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    return [torch.load(path / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize(("index", "case"), list(enumerate(cases())), ids=str)
def test_two_processes_equal_one(together, index, case):
    value, missing, gradients = loss_and_gradients(case, 0, 1)
    for results, _ in together:
        ours, ours_missing, our_gradients = results[index]
        torch.testing.assert_close(ours, value, rtol=1e-6, atol=1e-9)
        assert ours_missing == missing  # in both processes, so that averaging lines up
        for ours, theirs in zip(our_gradients, gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_no_rows_at_all_are_refused(together):
    for _, message in together:
        assert "must have rows in at least one process" in message


def test_losses_of_the_parts_differ_from_the_loss_of_the_whole():
    """The law above would notice missing negatives."""
    h, h_pos = torch.randn(2, ROWS, N, generator=torch.Generator().manual_seed(0))
    loss = InfoNCE(Dot(2.0))
    parts = 0.5 * (loss(h[:6], h_pos[:6]) + loss(h[6:], h_pos[6:]))
    assert parts.item() != pytest.approx(loss(h, h_pos).item(), rel=1e-2)


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
