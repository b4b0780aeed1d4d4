"""An interrupted run that is resumed ends with the same bits as an uninterrupted run."""

import os
import signal

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.baselines import SupervisedEncoder
from isolatent.checks import IsolatentWarning
from isolatent.files import LOCK_FILE, LockedError
from isolatent.training import Checkpoints, DamagedFileError
from resumable_runs import CASES, VAES, bits, case, checkpoint_every_step

SHORT = iso.Recipe(max_steps=4, batch_size=16, warmup=1)


def stop_at(number):
    def on_step(step):
        if step.number == number:
            raise KeyboardInterrupt

    return on_step


def interrupt(directory, number=12, name="array", **changes):
    """Start a run that is interrupted after a step."""
    model, data, options = case(name)
    model.set_params(**changes)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, **options, checkpoint=directory, on_step=stop_at(number))
    assert Checkpoints(directory).steps()[-1] == number


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    model, data, options = case("array")
    return bits(model.fit(*data, **options), tmp_path_factory.mktemp("uninterrupted"))


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, name):
    model, data, options = case(name)
    expected = bits(model.fit(*data, **options), tmp_path / "expected")
    history = model.history_
    interrupt(tmp_path / "checkpoints", name=name)
    model, data, options = case(name)
    seen = []
    model.fit(*data, **options, resume=tmp_path / "checkpoints", on_step=seen.append)
    assert seen[0].number == 13
    assert [step.number for step in model.history_] == list(range(1, 31))
    assert model.history_[12:] == seen
    assert model.history_ == history
    assert bits(model, tmp_path / "resumed") == expected


def test_an_image_encoder_resumes_with_the_same_bits(tmp_path):
    """Its weights have the channels last in memory, and so must the optimiser's moments."""
    x = np.random.default_rng(0).random((2, 12, 1, 64, 64), dtype=np.float32)
    recipe = iso.Recipe(max_steps=4, batch_size=4, warmup=0)
    codes = []
    for name in ("uninterrupted", "interrupted"):
        model = iso.ContrastiveICA(2, space="sphere", encoder="conv", recipe=recipe, random_state=0)
        if name == "interrupted":
            with pytest.raises(KeyboardInterrupt):
                model.fit(*x, checkpoint=tmp_path, on_step=stop_at(2))
            model.fit(*x, resume=tmp_path)
        else:
            model.fit(*x)
        codes.append(model.transform(x[0]))
    assert np.array_equal(*codes)


def test_the_error_of_a_supervised_encoder_survives_a_resumed_run(tmp_path):
    """The factors are independent of the observations, so the least error comes early."""
    x, z = np.random.default_rng(0).normal(size=(2, 200, 3))
    model = SupervisedEncoder(3, max_steps=400, batch_size=64)
    steps = []
    expected = model.fit(x, z, on_step=steps.append).error_
    (best,) = (step.number for step in steps if step.held_out == expected)
    assert best < len(steps) - 50
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, z, checkpoint=tmp_path, on_step=stop_at(best + 5))
    assert model.fit(x, z, resume=tmp_path).error_ == expected


@pytest.fixture
def interruptible():
    """Python's own handler of Ctrl-C, also where tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_takes_effect_after_the_step(tmp_path, uninterrupted, interruptible):
    """The signal arrives while pairs are drawn; the step is finished and saved first."""
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
    assert signal.getsignal(signal.SIGINT) is interruptible
    assert Checkpoints(tmp_path / "c").steps()[-1] == 9
    model.fit(*data, resume=tmp_path / "c")
    assert bits(model, tmp_path / "m") == uninterrupted


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_takes_effect_at_once(tmp_path):
    model, data, _ = case("array")

    def twice(step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second signal had no effect")

    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, checkpoint=tmp_path / "c", on_step=twice)


def test_the_signal_handler_is_restored_after_training(interruptible):
    model, data, _ = case("array")
    seen = []
    model.fit(*data, on_step=lambda step: seen.append(signal.getsignal(signal.SIGINT)))
    assert interruptible not in seen
    assert signal.getsignal(signal.SIGINT) is interruptible


def test_a_finished_run_is_loaded_without_training(tmp_path, uninterrupted):
    model, data, _ = case("array")
    model.fit(*data, checkpoint=tmp_path / "c")
    assert bits(model, tmp_path / "m") == uninterrupted  # checkpoints change nothing
    again, _, _ = case("array")
    steps = []
    again.fit(*data, resume=tmp_path / "c", on_step=steps.append)
    assert steps == []
    assert bits(again, tmp_path / "m") == uninterrupted
    assert again.history_ == model.history_


def test_a_new_run_replaces_old_checkpoints(tmp_path):
    interrupt(tmp_path, 20)
    interrupt(tmp_path, 4, random_state=8)
    assert Checkpoints(tmp_path).steps() == [0, 4]


@pytest.mark.parametrize("end", [".json", ".safetensors"])
def test_a_damaged_last_checkpoint_costs_only_time(tmp_path, monkeypatch, uninterrupted, end):
    checkpoint_every_step(monkeypatch.setattr)
    interrupt(tmp_path / "c")
    path = tmp_path / "c" / f"step-00000012{end}"
    path.write_bytes(path.read_bytes()[:-7])
    model, data, _ = case("array")
    with pytest.warns(
        IsolatentWarning, match="continuing from the checkpoint of step 11"
    ) as caught:
        model.fit(*data, resume=tmp_path / "c")
    assert str(path) in str(caught[0].message)
    assert bits(model, tmp_path / "m") == uninterrupted


def test_resume_fails_if_all_checkpoints_are_damaged(tmp_path):
    interrupt(tmp_path)
    for path in tmp_path.glob("*.json"):
        path.write_text("{}")
    model, data, _ = case("array")
    with pytest.raises(DamagedFileError, match="holds no other intact checkpoint"):
        model.fit(*data, resume=tmp_path)


def test_a_run_without_a_seed_keeps_the_seed_that_was_drawn(tmp_path):
    """The seed is drawn once, here from NumPy's global stream."""
    model, data, _ = case("array")
    model.set_params(random_state=None)
    np.random.seed(5)  # noqa: NPY002
    first = bits(model.fit(*data), tmp_path / "m")
    np.random.seed(5)  # noqa: NPY002
    interrupt(tmp_path / "c", random_state=None)
    model.fit(*data, resume=tmp_path / "c")
    assert bits(model, tmp_path / "m") == first
    assert bits(model.fit(*data), tmp_path / "m") != first


CHANGES = [
    ("array", {"n_components": 3}, "n_components"),
    ("array", {"recipe": iso.Recipe(max_steps=31, batch_size=32, warmup=5)}, "recipe"),
    ("array", {"conditional": "normal", "space": "box"}, "space"),
    ("array", {"loss": "nce"}, "loss"),
    ("array", {"encoder": "paper"}, "encoder"),
    ("array", {"lag": 2}, "lag"),
    ("array", {"random_state": 4}, "random_state"),
    ("supervised", {"max_steps": 31}, "recipe"),
    ("supervised", {"random_state": 4}, "random_state"),
    ("slow_vae", {"gamma": 5.0}, "gamma"),
    ("slow_vae", {"batch_size": 16}, "batch_size"),
    ("beta_vae", {"beta": 2.0}, "beta"),
]


@pytest.mark.parametrize(
    ("name", "changes", "named"), CHANGES, ids=[f"{name}-{named}" for name, _, named in CHANGES]
)
def test_resume_refuses_a_run_with_other_parameters(tmp_path, name, changes, named):
    interrupt(tmp_path, name=name)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model, data, _ = case(name)
    model.set_params(**changes)
    with pytest.raises(ValueError, match=f"resume must hold a run with the same {named}"):
        model.fit(*data, resume=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("name", ["array", *VAES])
def test_resume_refuses_a_run_on_other_data(tmp_path, name):
    interrupt(tmp_path, name=name)
    model, (x, x_pos), _ = case(name)
    with pytest.raises(ValueError, match="resume must hold a run with the same data"):
        model.fit(x, x_pos + 0.01, resume=tmp_path)


@pytest.mark.parametrize("name", ["array", "supervised", "unpaired", "recording"])
def test_resume_sees_a_change_of_any_value(tmp_path, name):
    """Each of some rows in turn, held out or not: the digest covers all data in memory."""
    rng = np.random.default_rng(0)
    x, x_pos, unpaired = rng.normal(size=(3, 60, 3))

    def fit(data, **options):
        if name == "supervised":
            return SupervisedEncoder(3, max_steps=9, batch_size=8).fit(*data[:2], **options)
        model = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0)
        if name == "recording":
            return model.fit(data[0], times=data[2][:, 0].cumsum() * 0 + np.arange(60), **options)
        more = {"unpaired": data[2]} if name == "unpaired" else {}
        return model.fit(*data[:2], **more, **options)

    data = [x, x_pos, unpaired]
    with pytest.raises(KeyboardInterrupt):
        fit(data, checkpoint=tmp_path, on_step=stop_at(2))
    for which in range({"recording": 1, "unpaired": 3}.get(name, 2)):
        for row in (0, 17, 59):
            changed = [part.copy() for part in data]
            changed[which][row, 1] += 1e-3 if name == "supervised" else 1e-9
            with pytest.raises(ValueError, match="the same data, but these have changed"):
                fit(changed, resume=tmp_path)
    fit([part.copy() for part in data], resume=tmp_path)


def test_resume_knows_a_memory_map_by_its_file(tmp_path):
    path = tmp_path / "x.npy"
    rng = np.random.default_rng(0)
    np.save(path, rng.normal(size=(200, 3)))
    x = np.load(path, mmap_mode="r")
    model = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, checkpoint=tmp_path / "c", on_step=stop_at(2))
    model.fit(np.load(path, mmap_mode="r"), resume=tmp_path / "c")
    time = path.stat().st_mtime_ns
    os.utime(path, ns=(time, time + 1))
    with pytest.raises(ValueError, match="the same data, but these have changed"):
        model.fit(x, resume=tmp_path / "c")


def test_a_run_of_an_earlier_version_is_not_said_to_have_other_data(tmp_path):
    model, data, _ = case("array")
    interrupt(tmp_path)
    checkpoints = Checkpoints(tmp_path)
    step, tensors, record, _ = checkpoints.latest()
    record["identity"]["data"] = "0" * 64
    checkpoints.write(step, tensors, record)
    with pytest.raises(ValueError, match="of this version of isolatent"):
        model.fit(*data, resume=tmp_path)


@pytest.mark.parametrize("harm", ["lost tensor", "shape", "schedule", "state", "further key"])
def test_a_tampered_checkpoint_is_named(tmp_path, harm):
    """Its checksum is right."""
    model, data, _ = case("array")
    interrupt(tmp_path)
    checkpoints = Checkpoints(tmp_path)
    step, tensors, record, _ = checkpoints.latest()
    if harm == "lost tensor":
        del tensors["generator"]
    elif harm == "shape":
        name = next(name for name in tensors if name.startswith("network."))
        tensors[name] = torch.zeros(7, 7, 7)
    elif harm == "schedule":
        record["schedule"] = {}
    elif harm == "state":
        record["state"] = 3
    else:
        record["more"] = {}
    checkpoints.write(step, tensors, record)
    with pytest.raises(DamagedFileError, match=r"step-00000012\.json is damaged: "):
        model.fit(*data, resume=tmp_path)


def test_an_ignored_interrupt_stays_ignored():
    """As in a script that starts a fit with ``&``."""
    model, data, _ = case("array")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        model.fit(*data, on_step=lambda step: signal.raise_signal(signal.SIGINT))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(model.history_) == 30


def test_a_handler_of_the_user_is_called():
    model, data, _ = case("array")
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        model.fit(*data, on_step=lambda step: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT] * 30


def test_a_second_run_into_the_same_checkpoints_is_refused(tmp_path):
    model, data, _ = case("array")

    def start_another(step):
        if step.number == 5:
            other, _, _ = case("array")
            with pytest.raises(LockedError, match=f"is being written by process {os.getpid()} on"):
                other.fit(*data, checkpoint=tmp_path)

    model.fit(*data, checkpoint=tmp_path, on_step=start_another)
    assert not (tmp_path / LOCK_FILE).exists()


@pytest.mark.parametrize("name", ["negatives", "ensemble"])
def test_resume_refuses_a_run_with_other_negatives_or_tags(tmp_path, name):
    model, (source,), _ = case(name)
    batch = source.sample(150, torch.Generator().manual_seed(0))
    options = {"negatives": batch.negatives} if name == "negatives" else {"tags": batch.tags}
    changed = {key: value.roll(1, 0) for key, value in options.items()}
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            iso.ArrayPairs(batch.x, batch.x_pos, **options),
            checkpoint=tmp_path,
            on_step=stop_at(2),
        )
    with pytest.raises(ValueError, match="resume must hold a run with the same data"):
        model.fit(iso.ArrayPairs(batch.x, batch.x_pos, **changed), resume=tmp_path)


@pytest.mark.parametrize("name", ["array", "supervised", "slow_vae"])
def test_wrong_arguments(tmp_path, name):
    model, data, _ = case(name)
    with pytest.raises(ValueError, match="checkpoint and resume exclude each other"):
        model.fit(*data, checkpoint=tmp_path, resume=tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        model.fit(*data, resume=tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        model.fit(*data, resume=tmp_path / "none")


@pytest.mark.parametrize("numbers", [{"n_components": np.int64(2)}, {"lag": np.int64(1)}])
def test_numpy_integers_are_saved(tmp_path, numbers):
    """A grid search over ``np.arange`` passes them."""
    interrupt(tmp_path, **numbers)


@pytest.mark.parametrize("name", ["dropout", "supervised", "slow_vae"])
def test_the_global_random_state_does_not_change(name):
    """Also if an encoder draws from it."""
    model, data, options = case(name)
    before = torch.get_rng_state()
    model.fit(*data, **options)
    assert torch.equal(torch.get_rng_state(), before)
