"""Several processes that share batches train like one process that has all of each batch."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.baselines import SlowVAE, SupervisedEncoder
from isolatent.encoders import Whitening
from isolatent.pairs import Batch, WorldPairs
from isolatent.training import Checkpoints, connect
from isolatent.training.devices import Processes, average_gradients

STEPS = 30
WORLD = iso.World(
    iso.Sphere(3),
    iso.Uniform(),
    iso.VonMisesFisher(20.0),
    iso.InvertibleMLP(2, condition_draws=200),
    seed=0,
)
NARROW = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.01), iso.Linear(), seed=0)
PRECISIONS = (20.0, 40.0, 60.0)
ANISOTROPIC = iso.World(
    iso.Sphere(3), iso.Uniform(), iso.AnisotropicNormal(PRECISIONS), iso.Linear(), seed=0
)
RECIPE = {"max_steps": STEPS, "batch_size": 64, "warmup": 5, "learning_rate": 3e-3}
BASELINE = {"max_steps": STEPS, "batch_size": 64, "learning_rate": 3e-3}
SATURATED = {"recipe": iso.Recipe(**RECIPE, saturation=0.95)}
SHORT = iso.Recipe(max_steps=3, batch_size=64)


def tagged_pairs():
    """Return pairs of two kinds, in an order in which processes get different numbers of each."""
    conditionals = [iso.AnisotropicNormal(p) for p in (PRECISIONS, PRECISIONS[::-1])]
    batch = WorldPairs(ANISOTROPIC, conditionals=conditionals).sample(
        400, torch.Generator().manual_seed(0)
    )
    return iso.ArrayPairs(batch.x, batch.x_pos, tags=batch.tags)


def pairs_with_negatives():
    return WorldPairs(ANISOTROPIC, negatives=iso.AnisotropicNormal(5.0), n_negatives=4)


# A world or a function that returns a source, the class of the model, and its parameters.
CASES = {
    "infonce": (WORLD, iso.ContrastiveICA, {"n_components": 3, "space": "sphere"}),
    "saturated box": (NARROW, iso.ContrastiveICA, {"space": "box", **SATURATED}),
    "negatives": (
        pairs_with_negatives,
        iso.ContrastiveICA,
        {
            "n_components": 3,
            "space": "sphere",
            "loss": iso.AnInfoNCE(3, symmetric=False, negatives_from="given"),
        },
    ),
    "tags": (
        tagged_pairs,
        iso.ContrastiveICA,
        {
            "n_components": 3,
            "space": "sphere",
            "loss": iso.Ensemble([iso.AnInfoNCE(3), iso.AnInfoNCE(3)]),
        },
    ),
    "supervised": (WORLD, SupervisedEncoder, {"n_components": 3, **BASELINE}),
    "slow_vae": (WORLD, SlowVAE, {"n_components": 3, **BASELINE}),
    "nce": (WORLD, iso.ContrastiveICA, {"n_components": 3, "space": "sphere", "loss": "nce"}),
    "saturated sphere": (
        WORLD,
        iso.ContrastiveICA,
        {"n_components": 3, "space": "sphere", **SATURATED},
    ),
    "saturated free": (
        NARROW,
        iso.ContrastiveICA,
        {"space": "euclidean", "marginal": "uniform", **SATURATED},
    ),
}
QUICK = ["infonce", "saturated box", "negatives", "tags", "supervised", "slow_vae"]


def model(name, **settings):
    _, kind, parameters = CASES[name]
    defaults = {"random_state": 0, "accelerator": "cpu"}
    if kind is iso.ContrastiveICA:
        defaults["recipe"] = iso.Recipe(**RECIPE)
    return kind(**(defaults | parameters | settings))


def data(name):
    source = CASES[name][0]
    return source if isinstance(source, iso.World) else source()


def outcome(name, fitted, seen):
    world = CASES[name][0]
    world = world if isinstance(world, iso.World) else ANISOTROPIC
    z, _ = world.sample_latents(50, torch.Generator().manual_seed(1))
    return {
        "losses": [step.loss for step in fitted.history_],
        "held_out": [step.held_out for step in fitted.history_ if step.held_out is not None],
        "without_information": sum(step.information is None for step in fitted.history_),
        "codes": fitted.transform(world.observe(z)).tolist(),
        "steps_seen": len(seen),
    }


def fit_alone(name):
    seen = []
    fitted = model(name).fit(data(name), on_step=seen.append)
    return outcome(name, fitted, seen)


class NanInOneProcess(nn.Module):
    """A loss that is not finite in the second process."""

    def forward(self, h, h_pos):
        return (h - h_pos).square().sum() * (math.nan if torch.distributed.get_rank() else 1.0)


# --- What each of two processes does; see the end of the file.


def work(directory, devices, names):
    torch.set_num_threads(1)
    results = {}
    for name in names:
        seen, written = [], []
        write = Checkpoints.write

        def counted(self, step, *args, write=write, written=written):
            written.append(step)
            write(self, step, *args)

        Checkpoints.write = counted
        fitted = model(name, devices=devices)
        fitted.fit(data(name), on_step=seen.append, checkpoint=directory / name)
        Checkpoints.write = write
        results[name] = outcome(name, fitted, seen) | {"written": written}
        results[name]["gathers"] = bool(getattr(getattr(fitted, "loss_", None), "gather", False))
    for path in (directory / names[0]).glob(f"*{STEPS}.*"):
        if torch.distributed.get_rank() == 0:
            path.unlink()
    torch.distributed.barrier()
    resumed = model(names[0], devices=devices).fit(data(names[0]), resume=directory / names[0])
    results["resumed"] = outcome(names[0], resumed, [])["codes"] == results[names[0]]["codes"]
    odd = iso.Recipe(max_steps=1, batch_size=33)
    for key, settings in (("odd", {"recipe": odd}), ("nan", {"loss": NanInOneProcess()})):
        try:
            model("infonce", devices=devices, **settings).fit(WORLD)
            results[key] = ""
        except (ValueError, FloatingPointError) as error:
            results[key] = str(error)
    # Each process draws its own seed; that of the first is used.
    unseeded = model("infonce", devices=devices, random_state=None, recipe=SHORT).fit(WORLD)
    results["unseeded"] = [step.loss for step in unseeded.history_]
    rank = torch.distributed.get_rank()
    (directory / f"{rank}.json").write_text(json.dumps(results))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def start(command, environment):
    """Start a process in a group of its own, so that all its children can be killed."""
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )


@pytest.fixture(
    scope="module", params=["launched", pytest.param("torchrun", marks=pytest.mark.slow)]
)
def together(request, tmp_path_factory):
    """Return the results of two processes, started by fabric or as torchrun starts them."""
    directory = tmp_path_factory.mktemp("processes")
    plain = os.environ | {"PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, str(directory)]
    if request.param == "launched":
        workers = [start([*command, "2", *QUICK], plain)]
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
        shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
        workers = [
            start(
                [*command, "1", *CASES],
                plain | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(2)
        ]
    try:
        assert all(worker.wait(timeout=240) == 0 for worker in workers)
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)  # also those that fabric started
    names = QUICK if request.param == "launched" else list(CASES)
    found = [json.loads((directory / f"{rank}.json").read_text()) for rank in (0, 1)]
    return directory, names, found


def test_two_processes_train_like_one(together):
    """Up to rounding errors, which grow from step to step."""
    _, names, both = together
    for name in names:
        expected = fit_alone(name)
        for found in (results[name] for results in both):
            assert found["without_information"] == expected["without_information"]
            ours, theirs = np.array(found["losses"]), np.array(expected["losses"])
            np.testing.assert_allclose(ours[:8], theirs[:8], rtol=1e-4, err_msg=name)
            np.testing.assert_allclose(ours, theirs, rtol=1e-2, err_msg=name)
            held_out, theirs = found["held_out"], expected["held_out"]
            np.testing.assert_allclose(held_out, theirs, rtol=1e-2, err_msg=name)
            np.testing.assert_allclose(found["codes"], expected["codes"], atol=0.02, err_msg=name)
        if name.startswith("saturated"):
            assert 0.3 * STEPS < expected["without_information"] < STEPS


def test_processes_have_equal_results(together):
    _, names, (first, second) = together
    for name in names:
        for key in ("codes", "losses", "held_out"):
            assert first[name][key] == second[name][key], (name, key)
        assert not first[name]["gathers"]  # the fitted loss is for one process
    assert first["resumed"]
    assert second["resumed"]


def test_only_the_first_process_reports_and_writes(together):
    directory, names, (first, second) = together
    for name in names[1:]:
        assert first[name]["steps_seen"] == STEPS
        assert second[name]["steps_seen"] == 0
        measured = CASES[name][1] is iso.ContrastiveICA  # every 10 steps; others less often
        assert first[name]["written"] == ([0, 10, 20, 30] if measured else [0, 30])
        assert second[name]["written"] == []
        assert Checkpoints(directory / name).steps() == first[name]["written"][-2:]
        assert not list((directory / name).glob(".*"))


def test_without_a_seed_that_of_the_first_process_is_used(together):
    first, second = (results["unseeded"] for results in together[2])
    assert first == second


def test_a_batch_that_cannot_be_shared_is_refused(together):
    for results in together[2]:
        assert (
            "batch_size must be a multiple of the number of processes, 2, got 33" in results["odd"]
        )


def test_a_loss_that_is_not_finite_in_one_process_stops_all(together):
    for results in together[2]:
        assert "the loss became nan at step 1" in results["nan"]


# --- One process.


def test_bfloat16_scores_like_float32():
    """Half of the digits are enough, since the loss is computed in float32."""
    recipe = iso.Recipe(max_steps=120, batch_size=128)
    z, _ = WORLD.sample_latents(1000, torch.Generator().manual_seed(1))
    scores = {}
    for precision in ("32-true", "bf16-mixed"):
        fitted = model("infonce", recipe=recipe, precision=precision).fit(WORLD)
        assert {p.dtype for p in fitted.encoder_.parameters()} == {torch.float32}
        codes = fitted.transform(WORLD.observe(z))
        assert codes.dtype == np.float32
        scores[precision] = iso.linear_r2(z, codes)
    assert scores["bf16-mixed"] == pytest.approx(scores["32-true"], abs=0.03)
    assert scores["bf16-mixed"] > 0.9


def test_bfloat16_is_used():
    processes = connect("cpu", precision="bf16-mixed")
    with processes.autocast():
        assert nn.Linear(3, 3)(torch.ones(2, 3)).dtype == torch.bfloat16
    with connect("cpu").autocast():
        assert nn.Linear(3, 3)(torch.ones(2, 3)).dtype == torch.float32


def test_whitening_keeps_float32():
    with connect("cpu", precision="bf16-mixed").autocast():
        assert Whitening(3)(torch.ones(2, 3)).dtype == torch.float32


def whole_batch(rows=6):
    x = torch.arange(2.0 * rows).view(rows, 2)
    negatives = torch.arange(6.0 * rows).view(rows, 3, 2)
    return Batch(x, -x, negatives, torch.arange(rows))


def test_one_process_needs_no_fabric():
    processes = connect("cpu")
    assert (processes.rank, processes.size, processes.fabric) == (0, 1, None)
    batch = whole_batch()
    assert torch.equal(processes.share(batch).x, batch.x)
    assert processes.agree(7) == 7
    assert processes.mean(0.1) == 0.1
    assert processes.any(True)
    assert not processes.any(False)
    processes.wait()
    parameter = nn.Parameter(batch.x)
    parameter.grad = batch.x.clone()
    average_gradients([parameter], processes)
    assert torch.equal(parameter.grad, batch.x)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("negatives", ["own", "shared", "none"])
def test_parts_of_a_batch_make_the_whole(size, negatives):
    batch = whole_batch()
    if negatives != "own":  # (K, ...) for all anchors: each process has a part of them
        shared = torch.arange(12.0 * 2).view(12, 2) if negatives == "shared" else None
        batch = Batch(batch.x, batch.x_pos, shared, batch.tags)
    parts = [Processes(rank, size).share(batch) for rank in range(size)]
    assert len({len(part) for part in parts}) == 1
    for name in ("x", "x_pos", "negatives", "tags"):
        whole = getattr(batch, name)
        if whole is not None:
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), whole)


def test_parts_of_a_batch_must_be_equal():
    message = "batch_size must be a multiple of the number of processes, 4"
    with pytest.raises(ValueError, match=message):
        Processes(0, 4).share(whole_batch())
    x = torch.ones(4, 2)
    message = "the number of negatives must be a multiple of the number of processes, 4, got 3"
    with pytest.raises(ValueError, match=message):
        Processes(0, 4).share(Batch(x, x, torch.ones(3, 2)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"accelerator": "tpu"}, ValueError, "accelerator must be one of 'auto', 'cpu', 'cuda'"),
        ({"precision": "16-mixed"}, ValueError, "precision must be one of '32-true', 'bf16-mixed'"),
        ({"devices": 0}, ValueError, "devices must be an integer >= 1, got 0"),
        ({"devices": "auto"}, TypeError, "devices must be an integer >= 1, got 'auto'"),
        ({"num_nodes": 0}, ValueError, "num_nodes must be an integer >= 1, got 0"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        connect(**arguments)
    with pytest.raises(error, match=message):
        model("infonce", **arguments).fit(WORLD)


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
