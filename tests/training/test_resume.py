"""A run that was stopped or tampered with ends with the same bits as one that was not."""

import signal

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.training import Checkpoints, DamagedFileError
from resumable_runs import bits, case, save_always


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
    recipe = iso.Recipe(max_steps=4, batch_size=4, warmup=0)
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
        ({"recipe": iso.Recipe(max_steps=31, batch_size=32, warmup=5)}, "recipe"),
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
