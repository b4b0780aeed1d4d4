"""Files are written completely or not at all; plain data and digests follow their values."""

import errno
import json
import os
import pickle
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from isolatent.experiments import Row, find_experiment
from isolatent.experiments.store import Store
from isolatent.files import (
    LOCK_FILE,
    DamagedFileError,
    LockedError,
    atomic_write,
    digest_data,
    digest_file,
    digest_json,
    lock_directory,
    read_json,
    reading,
    to_plain,
    write_json,
    write_text,
)
from isolatent.plot import experiments as plots
from isolatent.report import Page, write_report


def test_an_exception_leaves_the_target_unchanged_and_no_other_file(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("before")

    def interrupted():
        with atomic_write(target) as partial:
            partial.write_text("half of")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_a_partial_file_does_not_match_the_pattern_of_results(tmp_path):
    with atomic_write(tmp_path / "a.json") as partial:
        partial.write_text("{")
        assert not list(tmp_path.glob("*.json"))


def test_temporary_names_differ_and_existing_files_are_not_opened(tmp_path, monkeypatch):
    with atomic_write(tmp_path / "a") as one, atomic_write(tmp_path / "a") as other:
        assert one != other
        assert one.parent == other.parent == tmp_path
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr("isolatent.files.secrets.token_hex", lambda size: "guessed")
    (tmp_path / ".a.guessed.partial").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "a", "text")
    assert victim.read_text() == "mine"


def test_files_have_the_permissions_of_newly_created_ones(tmp_path):
    write_text(tmp_path / "atomic", "text")
    (tmp_path / "plain").write_text("text")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("atomic", "plain")}
    assert len(modes) == 1


def test_the_file_is_synced_before_it_is_renamed_and_the_directory_after(tmp_path, monkeypatch):
    done = []
    for owner, name in ((os, "fsync"), (Path, "replace")):
        called = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, c=called, n=name: (done.append(n), c(*args))[1]
        )
    write_text(tmp_path / "a", "text")
    assert done == ["fsync", "replace", "fsync"]


ROW = Row("own", "a", "unsupervised", "mcc", 90.0, None, "mean", 1, 1, None, None, None, "")


@pytest.mark.parametrize("kind", ["record", "json", "page", "figure"])
def test_every_writer_cleans_up_when_the_rename_fails(kind, tmp_path, monkeypatch):
    if kind == "figure":
        pytest.importorskip("matplotlib")

    def full(*about):
        raise OSError("no space left on the device")

    (run,) = find_experiment("quick").runs([0])[:1]
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space"):
        {
            "record": lambda: Store(tmp_path).write(run, {"status": "done"}),
            "json": lambda: write_json(tmp_path / "a.json", {}),
            "page": lambda: write_report(tmp_path / "a.html", Page("a")),
            "figure": lambda: plots.write_figure([ROW], tmp_path / "a.png"),
        }[kind]()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


DATA = {
    "tuple": (1, 2),
    "scalars": [np.int64(3), np.float64(0.5), np.bool_(True), np.float32("nan")],
    "array": np.arange(4.0).reshape(2, 2),
    "tensor": torch.arange(2),
    "path": Path("folder/a.csv"),
    "text": "ü",
    "nested": {"infinite": (float("-inf"),), "none": None},
}
PLAIN = {
    "tuple": [1, 2],
    "scalars": [3, 0.5, True, None],
    "array": [[0.0, 1.0], [2.0, 3.0]],
    "tensor": [0, 1],
    "path": str(Path("folder/a.csv")),
    "text": "ü",
    "nested": {"infinite": [None], "none": None},
}


def test_written_json_holds_the_plain_data(tmp_path):
    for indent in (None, 2):
        write_json(tmp_path / "a.json", DATA, indent)
        assert json.loads((tmp_path / "a.json").read_text()) == PLAIN


def test_only_types_that_json_lacks_are_converted():
    assert to_plain(DATA, nan_to_none=True) == PLAIN
    assert type(to_plain(np.float64(0.5))) is float
    assert np.isnan(to_plain(float("nan")))
    unknown = object()
    assert to_plain([unknown])[0] is unknown


def test_digests_of_json_do_not_depend_on_the_order_of_keys():
    data = {"a": 1, "b": {"c": 2, "d": 3}}
    assert digest_json(data) == digest_json({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest_json(data) != digest_json({**data, "a": 2})
    # Stored results carry such digests, so they must never change.
    assert digest_json({"name": "Σ", "x": [1.0, None, True]}) == (
        "7b709a99fce55c5a232d60ec6b188276c9386797474be0382c6825a9497a9429"
    )


def test_digests_of_data_depend_on_values_dtype_shape_and_contents_of_files(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    parts = [
        np.arange(4),
        np.arange(4.0),
        np.arange(4).reshape(2, 2),
        tmp_path / "a",
        tmp_path / "b",
    ]
    assert len({digest_data(part) for part in parts}) == len(parts)
    assert digest_data(np.arange(8)[::2]) == digest_data(np.arange(8)[::2].copy())
    assert digest_file(tmp_path / "a") != digest_file(tmp_path / "b")


def test_a_full_disk_names_the_file(tmp_path):
    def fill():
        with atomic_write(tmp_path / "a.json"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"):
        fill()
    assert os.listdir(tmp_path) == []


def test_abandoned_temporary_files_are_removed_and_others_kept(tmp_path):
    random = "0123456789abcdef"
    old = [f".a.json.{random}.partial", f".b.json.{random}.partial", ".a.json.mine.partial"]
    for name in (*old, f".a.json.{random[::-1]}.partial"):
        (tmp_path / name).touch()
    for name in old:
        os.utime(tmp_path / name, (0, 0))
    write_text(tmp_path / "a.json", "{}")
    assert {*os.listdir(tmp_path)} == {"a.json", *old[1:], f".a.json.{random[::-1]}.partial"}


def test_a_planted_link_is_not_followed(tmp_path):
    """Neither a temporary file nor a lock is opened where a link leads."""
    victim = tmp_path / "victim"
    victim.write_text("intact")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / LOCK_FILE).symlink_to(victim)
    with pytest.raises(OSError), lock_directory(tmp_path / "d"):  # noqa: PT011
        pass
    (tmp_path / "d" / ".a.json.partial").symlink_to(victim)
    write_text(tmp_path / "d" / "a.json", "{}")
    assert victim.read_text() == "intact"


def test_a_lock_keeps_others_out_until_its_owner_ends(tmp_path):
    directory = tmp_path / "out" / "deep"
    program = (
        "import sys; from isolatent.files import lock_directory\n"
        "with lock_directory(sys.argv[1]):\n    print('locked', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout.readline() == "locked\n"
    message = f"written by process {owner.pid} on "
    with pytest.raises(LockedError, match=message), lock_directory(directory):
        pass
    owner.kill()
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    assert (directory / LOCK_FILE).exists()  # the file stays, the lock does not
    with lock_directory(directory):
        assert (directory / LOCK_FILE).read_text().startswith(f"{os.getpid()} on ")
    assert list(directory.iterdir()) == []


def test_a_lock_by_the_means_of_windows(tmp_path, monkeypatch):
    """With a stand-in for its module; no process is asked whether it is alive, by a signal."""
    locked = []

    def locking(file, mode, n_bytes):
        place = (os.fstat(file).st_ino, os.lseek(file, 0, os.SEEK_CUR))
        assert (mode, n_bytes) == (2, 1)
        if place in locked:
            raise PermissionError("locked")
        locked.append(place)

    stand_in = SimpleNamespace(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", stand_in)
    monkeypatch.setattr(os, "kill", None)
    (tmp_path / LOCK_FILE).write_text(f"{os.getpid()} on a machine that was switched off")
    with lock_directory(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()} on {socket.gethostname()}\n"
        message = f"written by process {os.getpid()} on "
        with pytest.raises(LockedError, match=message), lock_directory(tmp_path):
            pass
    assert [place for _, place in locked] == [2**30]


def test_a_lock_leaves_no_empty_directory(tmp_path):
    with lock_directory(tmp_path / "a" / "b"):
        pass
    assert os.listdir(tmp_path) == []
    with lock_directory(tmp_path / "a" / "b"):
        (tmp_path / "a" / "c").touch()
    assert os.listdir(tmp_path / "a") == ["c"]


@pytest.mark.parametrize(
    "text", ["", "{", "[1", "nul", '{"a": NaN}', "[" * 2000 + "]" * 2000, "1" * 5000, "\ud800"]
)
def test_json_that_is_none_is_named(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(DamagedFileError, match=r"a\.json is damaged: "):
        read_json(path)


def test_an_error_of_reading_names_the_file():
    for error in (
        KeyError("x"),
        TypeError("x"),
        RecursionError(),
        AttributeError("x"),
        IndexError(),
    ):
        with pytest.raises(DamagedFileError, match=r"^model\.json is dam"), reading("model.json"):
            raise error
    with pytest.raises(FileNotFoundError), reading("model.json"):
        raise FileNotFoundError
    again = pickle.loads(pickle.dumps(DamagedFileError("a", "it is empty")))
    assert str(again) == "a is damaged: it is empty"
