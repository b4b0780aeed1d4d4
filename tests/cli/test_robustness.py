"""What a user of the command line meets when files are damaged, locked, or half written."""

import os
import shutil

import pytest

from command_line import QUICK
from isolatent.files import LOCK_FILE, lock_directory
from isolatent.training import Checkpoints
from isolatent.training.checkpoints import read_pair, write_pair


@pytest.fixture
def interrupted(isolatent, files, tmp_path, monkeypatch):
    """The directory of a run that was interrupted after some steps, and its command."""
    from isolatent.training import progress

    out = tmp_path / "out"
    command = ("fit", files / "pairs.npz", *QUICK, "--log", "csv", "--out", out)
    show = progress.ProgressDisplay.__call__

    def interrupt(self, step):
        show(self, step)
        if step.number == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(progress.ProgressDisplay, "__call__", interrupt)
        assert isolatent(*command).code == 130
    assert Checkpoints(out / "checkpoints").steps()[-1] == 7
    return out, command


@pytest.mark.parametrize(
    "log", [b"", b"num", b"number,total,loss\n1,2", b"\0\xff\n", b"x,y\n1,2\n"]
)
def test_a_log_never_blocks_a_resume(isolatent, interrupted, log):
    out, command = interrupted
    (out / "log.csv").write_bytes(log)
    done = isolatent(*command, "--resume")
    assert done.code == 0, done.err
    lines = (out / "log.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == [str(n) for n in range(8, 21)]


def test_a_second_fit_into_the_same_directory_is_refused(isolatent, files, tmp_path):
    out = tmp_path / "out"
    with lock_directory(out):
        done = isolatent("fit", files / "pairs.npz", *QUICK, "--out", out)
        assert done.code == 2
        assert f"{out} is being written by process {os.getpid()} on" in done.err
    assert not out.exists()
    out.mkdir()
    (out / LOCK_FILE).write_text("123 on elsewhere\n")  # of a process that was killed
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--out", out)
    assert done.code == 0, done.err
    assert not (out / LOCK_FILE).exists()


def test_the_card_is_printed_before_training(isolatent, files, tmp_path):
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--out", tmp_path / "out")
    assert done.out.index("to be claimed: ") < done.out.index("guarantee: ")


def test_a_log_for_tensorboard(isolatent, files, tmp_path):
    pytest.importorskip("tensorboard")
    out = tmp_path / "out"
    done = isolatent("fit", files / "pairs.npz", *QUICK, "--out", out, "--log", "tensorboard")
    assert done.code == 0, done.err
    assert list((out / "tensorboard").glob("events.out.tfevents.*"))


@pytest.mark.parametrize("harm", ["shape", "missing", "text", "half", "nested"])
@pytest.mark.parametrize("command", ["info {m}", "transform {m} {d}/x.npy", "report {m}"])
def test_a_damaged_model_is_one_line(isolatent, files, model, tmp_path, harm, command):
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    tensors, record = read_pair(damaged / "model")
    if harm == "shape":
        write_pair(damaged / "model", tensors, record | {"shape": [60_000]})
    elif harm == "missing":
        write_pair(damaged / "model", tensors, {k: v for k, v in record.items() if k != "head"})
    elif harm == "half":
        write_pair(damaged / "model", {k: v.half() for k, v in tensors.items()}, record)
    else:
        text = {"text": "not JSON", "nested": "[" * 100_000}[harm]
        (damaged / "model.json").write_text(text)
    done = isolatent(*command.format(m=damaged, d=files).split())
    assert done.code == 2
    assert done.err.startswith(f"isolatent: {damaged}/model.")
    assert " is damaged: " in done.err
    assert done.err.count("\n") == 1
