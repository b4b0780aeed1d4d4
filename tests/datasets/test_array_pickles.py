"""Pickles of arrays are read as NumPy wrote them, and nothing in a pickle is ever run."""

import builtins
import io
import os
import pickle
import pickletools
import struct
import subprocess
import tracemalloc

import numpy as np
import pytest

from isolatent.datasets.array_pickles import read_array_pickle

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "videos": [RANDOM.random((k, 3, 4)) < 0.5 for k in (1, 2, 5)],
    "others": (
        RANDOM.random((3, 2)).astype("f4"),
        RANDOM.random((3, 2)).T,
        np.arange(3, dtype=">i2"),
        np.zeros((0, 4), np.uint8),
    ),
    "plain": [None, "text", 3, 0.5, True],
}


@pytest.fixture
def read(tmp_path):
    def read(content):
        path = tmp_path / "arrays.pickle"
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
        return read_array_pickle(path)

    return read


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_are_those_that_were_written(read, protocol):
    found = read(pickle.dumps(ARRAYS, protocol))
    assert found["plain"] == ARRAYS["plain"]
    for name in ("videos", "others"):
        assert type(found[name]) is type(ARRAYS[name])
        for array, written in zip(found[name], ARRAYS[name], strict=True):
            assert array.dtype == written.dtype
            assert np.array_equal(array, written)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("core", ["core", "_core"])
def test_names_of_older_and_newer_versions_of_numpy(read, protocol, core):
    content = pickle.dumps(ARRAYS["videos"][1], protocol)
    here = "_core" if b"_core" in content else "core"
    old, new = f"numpy.{here}.", f"numpy.{core}."
    if protocol >= 4:  # names are stored with their length, and in a frame
        for module in ("multiarray", "numeric"):
            before, after = (f"{prefix}{module}".encode() for prefix in (old, new))
            content = content.replace(bytes([len(before)]) + before, bytes([len(after)]) + after)
        start = content.index(b"\x95") if b"\x95" in content[:4] else None
        if start is not None:
            size = len(content) - start - 9
            content = content[: start + 1] + struct.pack("<Q", size) + content[start + 9 :]
    else:
        content = content.replace(old.encode(), new.encode())
    assert np.array_equal(read(content), ARRAYS["videos"][1])


class Call:
    """A pickle of it calls a function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("around", [lambda x: x, lambda x: {"pedestrians": [x]}, lambda x: (x, x)])
def test_a_payload_never_runs(read, tmp_path, monkeypatch, protocol, around):
    target = tmp_path / "ran"
    for function, argument in (
        (os.system, f"touch {target}"),
        (subprocess.getoutput, f"touch {target}"),
        (builtins.exec, f"open({str(target)!r}, 'w')"),
        (builtins.open, str(target)),
        (getattr, "x"),
        (np.load, str(target)),
    ):
        content = pickle.dumps(around(Call(function, argument)), protocol)
        with pytest.raises(ValueError, match=r"^arrays.pickle: refused, since it names \S+; only"):
            read(content)
    assert not target.exists()
    pickle.loads(pickle.dumps(Call(os.system, f"touch {target}")))
    assert target.exists()  # the payload works where it is not refused


def program(*parts):
    """Return a pickle with these opcodes."""
    return b"\x80\x02" + b"".join(parts) + b"."


RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
DTYPE = b"cnumpy\ndtype\n"
NESTED_LIST = b"]" + b"q\x000]h\x00ah\x00a" * 60
NESTED_TUPLE = b")" + b"2\x86" * 60  # each holds the one before it twice


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.array([{}], dtype=object), "dtype 'O8'"),
        (np.array(["text"]), "dtype 'U4'"),
        (np.zeros(2, [("a", "f4")]), "dtype with fields"),
        (np.datetime64("2001"), "names numpy.*scalar"),
        (np.ma.zeros(3), "names numpy.ma"),
        (slice(3), "names builtins.slice"),
        ({1, 2}, "holds a set"),
        (1 + 2j, "names builtins.complex"),
        (program(b"\x82\x01"), "extension code 1"),
        (program(b"Pname\n"), "refers to objects outside"),
        # Attributes of the functions that names stand for cannot be set.
        (program(RECONSTRUCT, b"}X\x01\0\0\0aK\x01sb"), "sets the state of a function"),
        (program(DTYPE, b"X\x02\0\0\0f4\x85R}b"), "dtype with an unknown state"),
        (program(DTYPE, b"K\x04\x85R"), "has a dtype of type int"),
        (program(b"cnumpy\nndarray\n)R"), "makes an array in an unknown way"),
        (
            program(b"c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R"),
            "encodes text as 'rot13'",
        ),
        (
            program(b"c_codecs\nencode\nX\x01\0\0\0a", NESTED_TUPLE, b"\x86R"),
            "encodes a str by a tuple",
        ),
        (program(DTYPE, NESTED_LIST, b"\x85R"), "has a dtype of type list"),
        (
            program(b"cnumpy.core.numeric\n_frombuffer\n(C\x01a", NESTED_LIST, b"K\x01NtR"),
            "has an array with a dtype of type list",
        ),
        # Hashes of them would take for ever.
        (program(b"}", NESTED_TUPLE, b"Ns"), "a dictionary with a tuple as a key"),
        (program(b"}(", NESTED_TUPLE, b"Nu"), "a dictionary with a tuple as a key"),
        (program(b"(", NESTED_TUPLE, b"Nd"), "a dictionary with a tuple as a key"),
        (program(b"(", NESTED_TUPLE, b"\x91"), "holds a frozenset"),
        (program(b"\x8f(", NESTED_TUPLE, b"\x90"), "holds a set"),
        (program(RECONSTRUCT, b"NNN\x87R"), "has an array without data"),
        (program(b"]q\0h\0a"), "a container that holds itself"),
    ],
    ids=str,
)
def test_all_else_is_refused_by_name(read, content, message):
    with pytest.raises(ValueError, match=f"^arrays.pickle: refused, since it .*{message}"):
        read(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        b"GIF89a",
        program(b"\x8e" + struct.pack("<Q", 2**40), b"abc"),  # bytes, longer than the file
        program(b"B" + struct.pack("<I", 2**31), b"abc"),
        program(b"\x96" + struct.pack("<Q", 2**31), b"abc"),
        b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b".",  # a frame
        program(b"\x8a\xff"),
        program(b"r" + struct.pack("<I", 2**32 - 1)),  # a slot of the memory
        program(b"h\x07"),
        b"\x80\x63.",
        b"I" + b"9" * 9000 + b"\n.",
    ],
    ids=repr,
)
def test_damaged_files_are_refused(read, content):
    with pytest.raises(ValueError, match=r"^arrays.pickle: not a complete pickle of arrays"):
        read(content)


def test_every_truncation_is_refused(read):
    content = pickle.dumps(ARRAYS["videos"][:2], 4)
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"^arrays.pickle: not a complete pickle"):
            read(content[:length])


@pytest.mark.parametrize("protocol", [2, 5])
def test_sizes_that_do_not_fit_the_data_are_refused(read, protocol):
    content = pickle.dumps(np.zeros((2, 3), np.uint8), protocol)
    assert read(content).shape == (2, 3)
    shape = b"K\x02K\x03\x86"
    assert content.count(shape) == 1
    with pytest.raises(ValueError, match=r"an array of shape \(200, 3\) and uint8 has 6 bytes"):
        read(content.replace(shape, b"K\xc8K\x03\x86"))


def test_random_changes_are_read_or_refused(read):
    content = pickle.dumps({"a": [np.eye(2)], "b": None}, 4)
    pickletools.dis(content, out=io.StringIO())  # a complete pickle
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(600):
        changed = bytearray(content)
        for position in random.integers(0, len(content), 3):
            changed[position] = random.integers(256)
        try:
            read(bytes(changed))
        except ValueError:
            refused += 1
    assert 0 < refused < 600


def test_shared_containers_are_converted_once(read):
    inner = [np.zeros(1)] * 10
    for _ in range(30):  # 10 ** 31 leaves, if each were visited
        inner = [inner] * 10
    found = read(inner)
    assert found[0] is found[9]


@pytest.mark.parametrize("size", [9, 200_000])  # within a frame, and after one
def test_arrays_in_bytes_that_can_change_are_read(read, size):
    content = pickle.dumps([np.arange(size) % 251], 5)
    assert pickle.BYTEARRAY8 in content
    assert np.array_equal(read(content)[0], np.arange(size) % 251)


def test_no_memory_is_set_aside_for_bytes_that_are_not_there(read):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="not a complete pickle"):
            read(program(b"\x96" + struct.pack("<Q", 2**27)))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_shape_of_nested_tuples_is_not_printed(read):
    content = pickle.dumps(np.zeros((2, 3), np.uint8), 2)
    content = content.replace(b"K\x02K\x03\x86", NESTED_TUPLE)
    with pytest.raises(ValueError, match="a size that is no length of an axis"):
        read(content)
