"""Two processes that share a batch train like one that has all of it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.encoders import Whitening
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
RECIPE = iso.Recipe(max_steps=STEPS, batch_size=64, warmup=5, learning_rate=3e-3)
EARLY = iso.Recipe(max_steps=STEPS, batch_size=64, warmup=5, learning_rate=3e-3, saturation=0.95)
SHORT = iso.Recipe(max_steps=3, batch_size=64)
FREE = {"space": "euclidean", "marginal": "normal", "conditional": "normal"}
BOX = {"space": "box", "conditional": "normal"}
CASES = {
    "infonce": (WORLD, 3, RECIPE, {}),
    "nce": (WORLD, 3, RECIPE, {"loss": "nce"}),
    "saturated box": (NARROW, 2, EARLY, BOX),
    "saturated sphere": (WORLD, 3, EARLY, {}),
    "saturated free": (NARROW, 2, EARLY, FREE),
}


def model(name, **settings):
    _, n, recipe, beliefs = CASES[name]
    settings = {"random_state": 0, "accelerator": "cpu", "recipe": recipe} | beliefs | settings
    return iso.ContrastiveICA(n, **settings)


def outcome(name, fitted, seen):
    z, _ = CASES[name][0].sample_latents(50, torch.Generator().manual_seed(1))
    return {
        "losses": [step.loss for step in fitted.history_],
        "held_out": [step.held_out for step in fitted.history_ if step.held_out is not None],
        "saturated": sum(step.information is None for step in fitted.history_),
        "codes": fitted.transform(CASES[name][0].observe(z)).tolist(),
        "steps_seen": len(seen),
    }


def alone(name, **settings):
    seen = []
    fitted = model(name, **settings).fit(CASES[name][0], on_step=seen.append)
    return outcome(name, fitted, seen)


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
        fitted.fit(CASES[name][0], on_step=seen.append, checkpoint=directory / name)
        Checkpoints.write = write
        results[name] = outcome(name, fitted, seen) | {"written": written}
        results[name]["gathers"] = bool(fitted.loss_.gather)
    for path in (directory / names[0]).glob(f"*{STEPS}.*"):
        if torch.distributed.get_rank() == 0:
            path.unlink()
    torch.distributed.barrier()
    resumed = model(names[0], devices=devices).fit(CASES[names[0]][0], resume=directory / names[0])
    results["resumed"] = outcome(names[0], resumed, [])["codes"] == results[names[0]]["codes"]
    odd = iso.Recipe(max_steps=1, batch_size=33)
    try:
        model("infonce", devices=devices, recipe=odd).fit(WORLD)
        results["odd"] = ""
    except ValueError as error:
        results["odd"] = str(error)
    # Each draws its own seed; the first one's counts.
    unseeded = model("infonce", devices=devices, random_state=None, recipe=SHORT).fit(WORLD)
    results["unseeded"] = [step.loss for step in unseeded.history_]
    rank = torch.distributed.get_rank()
    (directory / f"{rank}.json").write_text(json.dumps(results))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.fixture(
    scope="module", params=["launched", pytest.param("torchrun", marks=pytest.mark.slow)]
)
def together(request, tmp_path_factory):
    """What two processes found: started by fabric, or by us as torchrun would."""
    directory = tmp_path_factory.mktemp("processes")
    plain = os.environ | {"PYTHONWARNINGS": "ignore"}
    quick = ["infonce", "saturated box"]
    command = [sys.executable, __file__, str(directory)]
    if request.param == "launched":
        workers = [subprocess.Popen([*command, "2", *quick], env=plain, stderr=subprocess.DEVNULL)]
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
        shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
        workers = [
            subprocess.Popen(
                [*command, "1", *CASES],
                env=plain | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stderr=subprocess.DEVNULL,
            )
            for rank in range(2)
        ]
    assert all(worker.wait(timeout=240) == 0 for worker in workers)
    names = quick if request.param == "launched" else list(CASES)
    found = [json.loads((directory / f"{rank}.json").read_text()) for rank in (0, 1)]
    return directory, names, found


def test_two_processes_train_like_one(together):
    """Up to rounding, which grows from step to step."""
    _, names, both = together
    for name in names:
        expected = alone(name)
        for found in (results[name] for results in both):
            assert found["saturated"] == expected["saturated"]
            ours, theirs = np.array(found["losses"]), np.array(expected["losses"])
            np.testing.assert_allclose(ours[:8], theirs[:8], rtol=1e-4, err_msg=name)
            np.testing.assert_allclose(ours, theirs, rtol=1e-2, err_msg=name)
            held_out, theirs = found["held_out"], expected["held_out"]
            np.testing.assert_allclose(held_out, theirs, rtol=1e-2, err_msg=name)
            np.testing.assert_allclose(found["codes"], expected["codes"], atol=0.02, err_msg=name)
        if name.startswith("saturated"):
            assert expected["saturated"] > 0.3 * STEPS


def test_processes_agree_with_each_other(together):
    _, names, (first, second) = together
    for name in names:
        assert first[name]["codes"] == second[name]["codes"]
        assert first[name]["losses"] == second[name]["losses"]
        assert first[name]["held_out"] == second[name]["held_out"]
        assert not first[name]["gathers"]  # the fitted loss is one process's again
    assert first["resumed"]
    assert second["resumed"]


def test_only_the_first_process_reports_and_writes(together):
    directory, names, (first, second) = together
    for name in names[1:]:
        assert first[name]["steps_seen"] == STEPS
        assert second[name]["steps_seen"] == 0
        assert first[name]["written"] == [0, 10, 20, 30]
        assert second[name]["written"] == []
        assert Checkpoints(directory / name).steps() == [20, 30]
        assert not list((directory / name).glob(".*"))


def test_without_a_seed_the_first_one_counts(together):
    first, second = (results["unseeded"] for results in together[2])
    assert first == second


def test_a_batch_that_cannot_be_shared_is_refused(together):
    for results in together[2]:
        assert (
            "batch_size must be a multiple of the number of processes, 2, got 33" in results["odd"]
        )


# --- One process.


def test_bfloat16_lands_close():
    """Half of the digits are enough: scores are computed in float32."""
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


def test_one_process_needs_nothing():
    processes = connect("cpu")
    assert (processes.rank, processes.size, processes.fabric) == (0, 1, None)
    x = torch.arange(6.0).view(3, 2)
    assert torch.equal(processes.share(x), x)
    assert processes.agree(7) == 7
    processes.wait()
    parameter = nn.Parameter(x)
    parameter.grad = x.clone()
    average_gradients([parameter], processes)
    assert torch.equal(parameter.grad, x)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_shares_are_the_whole(size):
    x = torch.arange(12.0).view(6, 2)
    parts = [Processes(rank, size).share(x) for rank in range(size)]
    assert torch.equal(torch.cat(parts), x)
    assert len({len(part) for part in parts}) == 1


def test_shares_must_be_equal():
    with pytest.raises(
        ValueError, match="batch_size must be a multiple of the number of processes, 4"
    ):
        Processes(0, 4).share(torch.ones(6, 2))


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
