"""Checkpoints are read as written; damaged files are named, and a kill costs at most one."""

import json
import os
import pickletools
import shutil
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from isolatent.checks import IsolatentWarning
from isolatent.files import digest_json
from isolatent.training import checkpoints as module
from isolatent.training.checkpoints import (
    FORMAT,
    Checkpoints,
    DamagedFileError,
    read_pair,
    write_pair,
)

TENSORS = {"weights": torch.arange(12.0).view(3, 4), "seed": torch.tensor([7], dtype=torch.uint8)}
RECORD = {"step": 3, "name": "a", "rate": 0.02, "nested": {"none": None, "list": [1, 2.5, True]}}
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        ours[k].dtype == theirs[k].dtype and torch.equal(ours[k], theirs[k]) for k in ours
    )


@pytest.fixture
def pair(tmp_path):
    """The stem of an intact pair of files."""
    write_pair(tmp_path / "pair", TENSORS, RECORD)
    return tmp_path / "pair"


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    kinds=st.lists(
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)), max_size=5
    ),
    record=st.dictionaries(st.text(max_size=4), plain, max_size=4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_what_was_written_is_read(tmp_path_factory, kinds, record, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        f"t{k}.é": torch.randint(-5, 5, shape, generator=generator).to(dtype)
        for k, (dtype, shape) in enumerate(kinds)
    }
    stem = tmp_path_factory.mktemp("pair") / "a.b"  # a name with a dot keeps all of it
    write_pair(stem, tensors, record)
    read, plain_data = read_pair(stem)
    assert same(read, tensors)
    assert plain_data == record
    assert sorted(p.name for p in stem.parent.iterdir()) == ["a.b.json", "a.b.safetensors"]


def test_tensors_of_any_layout_are_written(tmp_path):
    """Transposed, with gradients, or with strides."""
    base = torch.arange(6.0).view(2, 3)
    tensors = {"turned": base.T, "learned": torch.nn.Parameter(base.clone()), "step": base[:, ::2]}
    write_pair(tmp_path / "x", tensors, {})
    assert same(read_pair(tmp_path / "x")[0], {k: v.detach() for k, v in tensors.items()})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_refused_before_anything_is_written(tmp_path, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_pair(tmp_path / "x", TENSORS, {"loss": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", [".safetensors", ".json"])
def test_every_change_of_a_byte_is_noticed(pair, end):
    """Each byte of either file in turn; white space between JSON tokens has no meaning."""
    path = pair.with_name(pair.name + end)
    intact = path.read_bytes()
    harmless = 0
    for position in range(len(intact)):
        for changed in {intact[position] ^ 1, intact[position] ^ 0x80, 0x20, 0x39} - {
            intact[position]
        }:
            path.write_bytes(intact[:position] + bytes([changed]) + intact[position + 1 :])
            try:
                tensors, record = read_pair(pair)
            except DamagedFileError as error:
                assert str(path) in str(error)  # noqa: PT017
            else:
                assert end == ".json"
                assert chr(intact[position]).isspace()
                assert same(tensors, TENSORS)
                assert record == RECORD
                harmless += 1
    assert harmless < 0.1 * len(intact)


@pytest.mark.parametrize("end", [".safetensors", ".json"])
def test_every_truncation_is_noticed(pair, end):
    path = pair.with_name(pair.name + end)
    intact = path.read_bytes()
    for length in range(len(intact) - (end == ".json")):  # the last byte of the JSON is a newline
        path.write_bytes(intact[:length])
        with pytest.raises(DamagedFileError, match=r"truncated|changed") as raised:
            read_pair(pair)
        assert str(path) in str(raised.value)
    path.write_bytes(intact + b"x")
    with pytest.raises(DamagedFileError) as raised:
        read_pair(pair)
    assert str(path) in str(raised.value)


def test_a_number_that_became_infinite_is_noticed(tmp_path):
    write_pair(tmp_path / "x", TENSORS, {"large": 1e100})
    path = tmp_path / "x.json"
    path.write_text(path.read_text().replace("1e+100", "1e+900"))
    try:
        read_pair(tmp_path / "x")
    except DamagedFileError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        raise AssertionError("not noticed")


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"3", b'"a"', b"{}", b"\xff\xfe", b"{" * 50])
def test_other_json_is_refused(pair, text):
    path = pair.with_name("pair.json")
    path.write_bytes(text)
    with pytest.raises(
        DamagedFileError, match=r"pair\.json is damaged: it is (empty|truncated or not)"
    ):
        read_pair(pair)


@pytest.mark.parametrize("known", [FORMAT + 1, 99, "1", None, 1.0])
def test_newer_formats_are_refused_even_with_a_valid_checksum(pair, known):
    path = pair.with_name("pair.json")
    body = json.loads(path.read_text())
    body.pop("checksum")
    body["format"] = known
    path.write_text(json.dumps({**body, "checksum": digest_json(body)}))
    with pytest.raises(DamagedFileError, match=rf"has format .*; .* reads up to {FORMAT}") as e:
        read_pair(pair)
    assert str(path) in str(e.value)


def test_swapped_tensors_are_refused(tmp_path):
    """Intact files of two pairs do not make a pair."""
    for name, value in (("a", 1.0), ("b", 2.0)):
        write_pair(tmp_path / name, {"x": torch.tensor(value)}, {})
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    with pytest.raises(
        DamagedFileError, match=r"b\.safetensors is damaged: it is truncated or was changed"
    ):
        read_pair(tmp_path / "b")


@pytest.mark.parametrize("end", [".safetensors", ".json"])
def test_missing_files_are_named(pair, end):
    path = pair.with_name(pair.name + end)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"pair{end} does not exist"):
        read_pair(pair)


def test_nothing_is_pickled(pair):
    tensors = load_file(pair.with_name("pair.safetensors"))
    assert same(tensors, TENSORS)
    assert json.loads(pair.with_name("pair.json").read_text())["record"] == RECORD
    for end in (".safetensors", ".json"):
        with pytest.raises(ValueError):  # noqa: PT011 — the message is that of pickle
            list(pickletools.genops(pair.with_name(pair.name + end).read_bytes()))


def written(directory, steps=(1, 2, 3), keep=2):
    checkpoints = Checkpoints(directory, keep)
    for step in steps:
        checkpoints.write(step, {"x": torch.tensor(float(step))}, {"step": step})
    return checkpoints


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_latest_checkpoints_are_kept(tmp_path, keep):
    checkpoints = written(tmp_path / "deep" / "er", range(1, 8), keep)
    assert checkpoints.steps() == list(range(8 - keep, 8))
    assert len(list(checkpoints.directory.iterdir())) == 2 * keep
    step, tensors, record, _ = checkpoints.latest()
    assert (step, tensors["x"].item(), record) == (7, 7.0, {"step": 7})


def test_steps_are_in_the_order_of_numbers(tmp_path):
    checkpoints = written(tmp_path, (99_999_999, 100_000_000), keep=5)
    assert checkpoints.steps() == [99_999_999, 100_000_000]
    assert checkpoints.latest().step == 100_000_000


@pytest.mark.parametrize("end", [".safetensors", ".json"])
@pytest.mark.parametrize("harm", ["cut", "change", "remove"])
def test_the_checkpoint_before_a_damaged_one_is_read(tmp_path, end, harm):
    checkpoints = written(tmp_path)
    path = tmp_path / f"step-00000003{end}"
    damage(path, harm)
    if (end, harm) == (".json", "remove"):  # without its JSON it is no checkpoint
        assert checkpoints.latest().step == 2
        return
    with pytest.warns(IsolatentWarning, match="continuing from the checkpoint of step 2") as caught:
        saved = checkpoints.latest()
    assert saved.step == 2
    assert saved.tensors["x"].item() == 2.0
    assert str(path) in str(caught[0].message)
    assert path.exists() == (harm != "remove")  # evidence is left alone


def test_the_last_is_named_if_all_are_damaged(tmp_path):
    checkpoints = written(tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        damage(path, "cut")
    with pytest.raises(DamagedFileError, match="holds no other intact checkpoint") as raised:
        checkpoints.latest()
    assert "step-00000003.safetensors" in str(raised.value)


def damage(path, harm):
    if harm == "remove":
        path.unlink()
    elif harm == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x55
        path.write_bytes(data)


def test_a_directory_without_checkpoints_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="it does not exist"):
        Checkpoints(tmp_path / "none").latest()
    with pytest.raises(FileNotFoundError, match=r"holds no checkpoint$"):
        Checkpoints(tmp_path).latest()


FOREIGN = [
    "notes.txt",
    "model.json",
    "model.safetensors",
    "step-notes.json",
    "step-00000001.txt",
    "step-00000001.json.bak",
    "other-00000001.json",
    "step-00000001 (copy).json",
]


def test_foreign_files_stay(tmp_path):
    for name in FOREIGN:
        (tmp_path / name).write_text(name)
    (tmp_path / "step-00000001").mkdir()
    checkpoints = written(tmp_path)
    assert checkpoints.steps() == [2, 3]
    assert checkpoints.latest().step == 3
    checkpoints.clear()
    assert checkpoints.steps() == []
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*FOREIGN, "step-00000001"])
    assert all((tmp_path / name).read_text() == name for name in FOREIGN)


@pytest.mark.parametrize("name", ["step-9.json", "step-²²²²²²²².json"])
def test_names_with_other_digits_are_foreign(tmp_path, name):
    (tmp_path / name).write_text("mine")
    checkpoints = written(tmp_path)
    assert checkpoints.steps() == [2, 3]
    assert checkpoints.latest().step == 3
    checkpoints.clear()
    assert [p.name for p in tmp_path.iterdir()] == [name]


class Killed(BaseException):
    """Stands for a kill: no code may catch it."""


@pytest.mark.parametrize("operation", range(14))
def test_a_kill_at_any_moment_of_writing_leaves_an_intact_checkpoint(
    tmp_path, monkeypatch, operation
):
    """Killed at the n-th open, fsync, rename or removal of writing step 4, before it happens."""
    checkpoints = written(tmp_path)
    done = []

    def counting(function):
        def replacement(*args, **kwargs):
            if len(done) == operation:
                raise Killed
            done.append(function.__name__)
            return function(*args, **kwargs)

        return replacement

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", counting(os.fsync))
        patch.setattr(module.Path, "touch", counting(module.Path.touch))
        patch.setattr(module.Path, "open", counting(module.Path.open))
        patch.setattr(module.Path, "replace", counting(module.Path.replace))
        patch.setattr(module.Path, "unlink", counting(module.Path.unlink))
        with pytest.raises(Killed):
            checkpoints.write(4, {"x": torch.tensor(4.0)}, {"step": 4})
    saved = Checkpoints(tmp_path).latest()  # without a warning: nothing is damaged
    assert saved.step == (4 if done.count("replace") == 2 else 3)  # of tensors and of the JSON
    assert saved.tensors["x"].item() == saved.step == saved.record["step"]
    for step in (4, 5, 6):  # the run continues
        checkpoints.write(step, {"x": torch.tensor(float(step))}, {"step": step})
    assert checkpoints.steps() == [5, 6]
    assert checkpoints.latest().step == 6


def test_tensors_without_json_and_partial_files_do_not_count(tmp_path):
    checkpoints = written(tmp_path)
    shutil.copy(tmp_path / "step-00000003.safetensors", tmp_path / "step-00000004.safetensors")
    (tmp_path / ".step-00000005.json.12ab.partial").write_text("{")
    (tmp_path / ".step-00000005.safetensors.12ab.partial").write_bytes(b"\0")
    assert checkpoints.steps() == [2, 3]
    assert checkpoints.latest().step == 3


def test_leftovers_of_a_kill_are_removed(tmp_path):
    checkpoints = written(tmp_path)
    (tmp_path / "step-00000004.safetensors").write_bytes(b"\0")
    (tmp_path / ".step-00000005.json.12ab.partial").write_text("{")
    checkpoints.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_kill_while_one_pair_is_overwritten_leaves_the_old_or_the_new(tmp_path, monkeypatch):
    write_pair(tmp_path / "model", {"x": torch.tensor(1.0)}, {"version": 1})
    write = module.write_bytes

    def write_tensors_only(path, data):
        if path.suffix == ".json":
            raise Killed
        write(path, data)

    monkeypatch.setattr(module, "write_bytes", write_tensors_only)
    with pytest.raises(Killed):
        write_pair(tmp_path / "model", {"x": torch.tensor(2.0)}, {"version": 2})
    tensors, record = read_pair(tmp_path / "model")
    assert tensors["x"].item() == record["version"]


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="keep must be an integer >= 1, got 0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_pair(tmp_path / "x", {}, {"array": torch.ones(2)})
    assert list(tmp_path.iterdir()) == []


def replaced_while_read(directory, seconds):
    """Return how often a pair was read while another thread replaced it all the time."""
    stem = directory / "pair"
    write_pair(stem, {"x": torch.tensor(0.0)}, {"x": 0.0})
    stop = threading.Event()

    def replace():
        value = 0.0
        while not stop.is_set():
            value += 1
            write_pair(stem, {"x": torch.tensor(value)}, {"x": value})

    writer = threading.Thread(target=replace)
    writer.start()
    reads, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            tensors, record = read_pair(stem)
            assert float(tensors["x"]) == record["x"]
            reads += 1
    finally:
        stop.set()
        writer.join()
    return reads


def test_a_reader_during_a_replacement_sees_one_pair_or_the_other(tmp_path):
    assert replaced_while_read(tmp_path, 0.5) > 20


@pytest.mark.slow
def test_a_reader_during_many_replacements_sees_one_pair_or_the_other(tmp_path):
    assert replaced_while_read(tmp_path, 30) > 600
