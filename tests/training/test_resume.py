"""A run that was killed, stopped or tampered with ends with the same bits as one that was not."""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.training import Checkpoints, DamagedFileError, estimator
from isolatent.training.loop import fit_encoder


def related(rows=300, seed=0):
    """Pairs on a circle that is embedded in four dimensions."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, rows)
    near = angle + 0.2 * rng.normal(size=rows)
    mixing = rng.normal(size=(2, 4))
    return tuple(np.stack([np.cos(a), np.sin(a)], 1) @ mixing for a in (angle, near))


def recording(rows=400):
    rng = np.random.default_rng(1)
    x = np.zeros((rows, 3))
    for t in range(1, rows):
        x[t] = 0.9 * x[t - 1] + rng.normal(size=3)
    return x


def case(name, steps=30):
    """An unfitted model and the arguments of its fit."""
    recipe = {"steps": steps, "batch": 32, "warmup": 5}
    settings = {"random_state": 3}
    if name == "world":
        world = iso.World(
            iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(20.0), iso.Linear(), seed=0
        )
        return iso.ContrastiveICA(3, recipe=iso.Recipe(**recipe), **settings), (world,), {}
    if name == "array":
        return iso.ContrastiveICA(2, recipe=iso.Recipe(**recipe), **settings), related(), {}
    if name == "series":
        model = iso.ContrastiveICA(
            2,
            space="euclidean",
            marginal="normal",
            conditional="normal",
            lag=(1, 3),
            recipe=iso.Recipe(**recipe),
            **settings,
        )
        return model, (recording(),), {"groups": np.repeat([0, 1, 0, 2], 100)}
    if name == "saturated":
        world = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.01), iso.Linear(), seed=0)
        # Saturated early, so that runs are broken off before and after.
        narrow = iso.Recipe(**{**recipe, "batch": 64, "saturation": 0.85})
        model = iso.ContrastiveICA(3, space="box", conditional="normal", recipe=narrow, **settings)
        return model, (world,), {}
    if name == "dropout":
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.2), nn.Tanh(), nn.Linear(32, 2))
        model = iso.ContrastiveICA(
            2,
            encoder=encoder,
            loss=iso.InfoNCE(iso.Dot(learn_scale=True)),
            recipe=iso.Recipe(**recipe),
            **settings,
        )
        return model, related(), {}
    raise AssertionError(name)


CASES = ("world", "array", "series", "saturated", "dropout")


def bits(model, directory):
    """The bytes of a saved model, which hold encoder, loss and history."""
    model.save(directory, overwrite=True)
    return (Path(directory) / "model.safetensors").read_bytes()


def save_always(patch=setattr):
    """Checkpoints after every step instead of every half minute."""
    patch(estimator, "fit_encoder", functools.partial(fit_encoder, save_every=0.0))


# --- Runs that are killed for real. The test file itself is the script: see `work` at its end.


def run_in_fork(name, steps, directory, told):
    """Begin or go on with a run in a forked process, which writes a byte for each step."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        model, data, options = case(name, steps)
        way = "resume" if Checkpoints(directory / "checkpoints").steps() else "checkpoint"
        options[way] = directory / "checkpoints"
        model.fit(*data, **options, on_step=lambda step: os.write(told, b"."))
        model.save(directory / "model")
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def end_after(child, reading, steps, delay, how):
    """End a process after so many steps and a moment; return its status and the steps it said."""
    said = 0
    while said < steps and (heard := os.read(reading, steps - said)):
        said += len(heard)
    time.sleep(delay)
    os.kill(child, how)  # also if it has ended by itself: it was not waited for yet
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    while heard := os.read(reading, 4096):
        said += len(heard)
    return status, said


def broken_run(name, steps, kills, directory, rng, how=signal.SIGKILL):
    """Break a run off again and again, then let it end; where it was broken off, and how."""
    history = []
    directory.mkdir()
    for last in [False] * kills + [True]:
        reading, told = os.pipe()
        child = run_in_fork(name, steps, directory, told)
        os.close(told)
        if last:
            while os.read(reading, 4096):
                pass
            history.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), None, None))
        else:
            before = [0, *Checkpoints(directory / "checkpoints").steps()][-1]
            after = rng.randint(1, max(1, steps // (kills + 1)))
            status, said = end_after(child, reading, after, rng.uniform(0, 0.03), how)
            reached = [0, *Checkpoints(directory / "checkpoints").steps()][-1]
            history.append((status, before + said, reached))
        os.close(reading)
    return history


def work(directory, steps, kills):
    torch.set_num_threads(1)
    rng = random.Random(0)
    results = {}
    for name in CASES:
        model, data, options = case(name, steps)
        model.fit(*data, **options)  # without checkpoints, and with that of every half minute
        whole = bits(model, directory / f"{name}-whole")
        save_always()
        history = broken_run(name, steps, kills, directory / name, rng)
        ended = (directory / name / "model" / "model.safetensors").read_bytes()
        results[name] = {"same": ended == whole, "history": history}
        results[name]["saturated"] = sum(step.information is None for step in model.history_)
    history = broken_run("array", steps, 1, directory / "interrupted", rng, signal.SIGINT)
    ended = (directory / "interrupted" / "model" / "model.safetensors").read_bytes()
    whole = (directory / "array-whole" / "model.safetensors").read_bytes()
    results["interrupted"] = {"same": ended == whole, "history": history}
    (directory / "results.json").write_text(json.dumps(results))


def breaks_change_nothing(directory, steps, kills):
    command = [sys.executable, __file__, str(directory), str(steps), str(kills)]
    subprocess.run(command, check=True, timeout=1200)
    results = json.loads((directory / "results.json").read_text())
    interrupted = results.pop("interrupted")
    assert sorted(results) == sorted(CASES)
    for name, result in results.items():
        assert result["same"], (name, result["history"])
        *broken, (ended, _, _) = result["history"]
        assert ended == 0
        assert [status for status, _, _ in broken] == [-signal.SIGKILL] * kills
        for _, said, reached in broken:
            assert said - 1 <= reached <= said  # at most the step under way is lost
        # The saturated form of the loss has no bound to tell.
        assert (0 < result["saturated"] < steps) == (name == "saturated")
    (status, said, reached), (ended, _, _) = interrupted["history"]
    assert (status, ended) == (130, 0)
    assert 0 < said == reached < steps  # Ctrl-C loses nothing
    assert interrupted["same"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
def test_ten_kills_change_nothing(tmp_path):
    breaks_change_nothing(tmp_path, steps=24, kills=2)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
def test_ten_kills_of_each_run_change_nothing(tmp_path):
    breaks_change_nothing(tmp_path, steps=150, kills=10)


# --- Runs that are stopped in this process.


def stop_at(number):
    def on_step(step):
        if step.number == number:
            raise KeyboardInterrupt

    return on_step


def stopped(directory, number=12, name="array", **changes):
    """A run that was stopped after a step."""
    model, data, options = case(name)
    model.set_params(**changes)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, **options, checkpoint=directory, on_step=stop_at(number))
    assert Checkpoints(directory).steps()[-1] == number


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    model, data, options = case("array")
    return bits(model.fit(*data, **options), tmp_path_factory.mktemp("whole"))


def test_a_stopped_run_goes_on_where_it_was(tmp_path, whole):
    stopped(tmp_path / "c")
    model, data, options = case("array")
    seen = []
    model.fit(*data, **options, resume=tmp_path / "c", on_step=seen.append)
    assert seen[0].number == 13
    assert [step.number for step in model.history_] == list(range(1, 31))
    assert model.history_[12:] == seen
    assert bits(model, tmp_path / "m") == whole


def test_images_go_on_to_the_same_bits(tmp_path):
    """Their weights lie in memory with the channels last, and so must the optimiser's moments."""
    x = np.random.default_rng(0).random((2, 12, 1, 64, 64), dtype=np.float32)
    recipe = iso.Recipe(steps=4, batch=4, warmup=0)
    codes = []
    for name in ("whole", "stopped"):
        model = iso.ContrastiveICA(2, encoder="conv", recipe=recipe, random_state=0)
        if name == "stopped":
            with pytest.raises(KeyboardInterrupt):
                model.fit(*x, checkpoint=tmp_path, on_step=stop_at(2))
            model.fit(*x, resume=tmp_path)
        else:
            model.fit(*x)
        codes.append(model.transform(x[0]))
    assert np.array_equal(*codes)


def test_ctrl_c_within_a_step_is_honoured_after_it(tmp_path, whole):
    """The signal arrives while pairs are drawn; the step is finished, saved, and then it stops."""
    before = signal.getsignal(signal.SIGINT)
    model, data, _ = case("array")
    source = iso.ArrayPairs(*data)
    drawn = 0

    class Interrupting(iso.ArrayPairs):
        def sample(self, batch, generator):
            nonlocal drawn
            drawn += batch == 32
            if drawn == 9:
                signal.raise_signal(signal.SIGINT)
            return super().sample(batch, generator)

    source.__class__ = Interrupting
    with pytest.raises(KeyboardInterrupt):
        model.fit(source, checkpoint=tmp_path / "c")
    assert signal.getsignal(signal.SIGINT) is before
    assert Checkpoints(tmp_path / "c").steps()[-1] == 9
    model.fit(*data, resume=tmp_path / "c")
    assert bits(model, tmp_path / "m") == whole


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    model, data, _ = case("array")

    def twice(step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one was not honoured")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data, checkpoint=tmp_path / "c", on_step=twice)
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_given_back_after_training():
    model, data, _ = case("array")
    before = signal.getsignal(signal.SIGINT)
    seen = []
    model.fit(*data, on_step=lambda step: seen.append(signal.getsignal(signal.SIGINT)))
    assert before not in seen
    assert signal.getsignal(signal.SIGINT) is before


def test_a_finished_run_is_given_back(tmp_path, whole):
    model, data, _ = case("array")
    model.fit(*data, checkpoint=tmp_path / "c")
    assert bits(model, tmp_path / "m") == whole  # keeping checkpoints changes nothing
    again, _, _ = case("array")
    again.fit(*data, resume=tmp_path / "c", on_step=stop_at(0))
    assert bits(again, tmp_path / "m") == whole
    assert again.history_ == model.history_


def test_old_checkpoints_are_replaced_by_a_new_run(tmp_path):
    stopped(tmp_path, 20)
    stopped(tmp_path, 4, random_state=8)
    assert Checkpoints(tmp_path).steps() == [0, 4]


@pytest.mark.parametrize("end", [".json", ".safetensors"])
def test_a_damaged_last_checkpoint_costs_only_time(tmp_path, monkeypatch, whole, end):
    save_always(monkeypatch.setattr)
    stopped(tmp_path / "c")
    path = tmp_path / "c" / f"step-00000012{end}"
    path.write_bytes(path.read_bytes()[:-7])
    model, data, _ = case("array")
    with pytest.warns(IsolatentWarning, match="going on from the checkpoint of step 11") as caught:
        model.fit(*data, resume=tmp_path / "c")
    assert str(path) in str(caught[0].message)
    assert bits(model, tmp_path / "m") == whole


def test_damaged_checkpoints_alone_are_an_error(tmp_path):
    stopped(tmp_path)
    for path in tmp_path.glob("*.json"):
        path.write_text("{}")
    model, data, _ = case("array")
    with pytest.raises(DamagedFileError, match="holds no other good checkpoint"):
        model.fit(*data, resume=tmp_path)


def test_without_a_seed_the_first_run_is_repeated(tmp_path):
    """What is drawn for want of a seed is drawn once, here from NumPy's own stream."""
    model, data, _ = case("array")
    model.set_params(random_state=None)
    np.random.seed(5)  # noqa: NPY002
    first = bits(model.fit(*data), tmp_path / "m")
    np.random.seed(5)  # noqa: NPY002
    stopped(tmp_path / "c", random_state=None)
    model.fit(*data, resume=tmp_path / "c")
    assert bits(model, tmp_path / "m") == first
    assert bits(model.fit(*data), tmp_path / "m") != first


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_components": 3}, "n_components"),
        ({"recipe": iso.Recipe(steps=31, batch=32, warmup=5)}, "recipe"),
        ({"conditional": "normal", "space": "box"}, "space"),
        ({"loss": "nce"}, "loss"),
        ({"encoder": "paper"}, "encoder"),
        ({"lag": 2}, "lag"),
        pytest.param(
            {"random_state": 4},
            "seed",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_run_is_refused_by_name(tmp_path, changes, named):
    stopped(tmp_path)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model, data, _ = case("array")
    model.set_params(**changes)
    with pytest.raises(ValueError, match=f"resume must hold a run with the same {named}"):
        model.fit(*data, resume=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_wrong_arguments(tmp_path):
    model, data, _ = case("array")
    with pytest.raises(ValueError, match="checkpoint and resume exclude each other"):
        model.fit(*data, checkpoint=tmp_path, resume=tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        model.fit(*data, resume=tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        model.fit(*data, resume=tmp_path / "none")


@pytest.mark.parametrize("numbers", [{"n_components": np.int64(2)}, {"lag": np.int64(1)}])
def test_numbers_of_numpy_are_numbers(tmp_path, numbers):
    """As a grid search over ``np.arange`` gives them."""
    stopped(tmp_path, **numbers)


def test_the_global_stream_is_left_alone():
    """Also by an encoder that draws from it."""
    model, data, options = case("dropout")
    before = torch.get_rng_state()
    model.fit(*data, **options)
    assert torch.equal(torch.get_rng_state(), before)


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
