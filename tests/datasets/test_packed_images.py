"""Packed images equal the array that was packed, and cached arrays the array that was built."""

import numpy as np
import pytest
from platformdirs import user_cache_path

from isolatent.checks import IsolatentWarning
from isolatent.datasets import PackedImages
from isolatent.datasets.packed_images import cache_directory, cached_array
from isolatent.files import digest_data

RANDOM = np.random.default_rng(0)
WINDOWS = RANDOM.random((3, 4, 8)) < 0.5
PLACES = [(0, 0), (2, 1), (1, 3), (2, 3)]
EMPTY: list[int] = []


@pytest.fixture
def packed():
    return PackedImages(np.packbits(WINDOWS.reshape(3, -1), axis=1), (4, 8), (6, 11), PLACES)


@pytest.fixture
def dense():
    images = np.zeros((12, 6, 11), bool)
    for cell in range(12):
        row, column = PLACES[cell % 4]
        images[cell, row : row + 4, column : column + 8] = WINDOWS[cell // 4]
    return images


@pytest.mark.parametrize(
    "index",
    [4, -1, slice(2, 8, 3), [5, 5, 0], np.array([[1, 2], [3, -4]]), np.arange(12) % 2 == 0, EMPTY],
    ids=str,
)
def test_indexing_equals_that_of_the_dense_array(packed, dense, index):
    shown = packed[index]
    expected = dense[np.array(index, int) if index is EMPTY else index]
    assert shown.dtype == bool
    assert np.array_equal(shown, expected)


def test_size(packed):
    assert packed.shape == (12, 6, 11)
    assert len(packed) == 12
    assert packed.nbytes == 3 * 4 + 4 * 16


def test_wrong_arguments(packed):
    for index in (12, -13, [0, 12], [0.5], np.ones(3, bool)):
        with pytest.raises(IndexError, match=r"index|range"):
            packed[index]
    bits = np.zeros((3, 4), np.uint8)
    with pytest.raises(ValueError, match="bits must be uint8"):
        PackedImages(bits, (4, 7))
    with pytest.raises(ValueError, match="places must keep windows"):
        PackedImages(bits, (4, 8), (4, 8), [(0, 1)])
    with pytest.raises(ValueError, match=r"places must have shape \(P, 2\)"):
        PackedImages(bits, (4, 8), (4, 8), [0, 1])


KEY = digest_data(np.arange(3))
ARRAY = np.arange(1000, dtype=np.uint8).reshape(10, 100)
OTHER = ARRAY + 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ISOLATENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Build:
    """Counts its calls."""

    calls = 0

    def __call__(self):
        self.calls += 1
        return ARRAY


def test_an_array_is_built_once(folder):
    build = Build()
    for _ in range(3):
        assert np.array_equal(cached_array("a", KEY, build), ARRAY)
    assert build.calls == 1
    assert [path.name for path in folder.iterdir()] == [f"a-{KEY[:16]}.npz"]  # and no partial file
    cached_array("a", digest_data(np.arange(4)), build)
    assert build.calls == 2


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a bit": flip,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-200]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello"),
    "single array": lambda path: np.save(path.open("wb"), ARRAY),
    "foreign arrays": lambda path: np.savez(path, x=ARRAY),
    "another key": lambda path: np.savez(path, array=OTHER, key="b", digest=digest_data(OTHER)),
    "changed": lambda path: np.savez(path, array=OTHER, key=KEY, digest=digest_data(ARRAY)),
    "pickled": lambda path: np.savez(path, array=np.array([{}]), key=KEY, digest="?"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_and_foreign_files_are_rebuilt(folder, damage):
    build = Build()
    cached_array("a", KEY, build)
    beside = folder / "other.txt"
    beside.write_text("mine")
    damage(folder / f"a-{KEY[:16]}.npz")
    assert np.array_equal(cached_array("a", KEY, build), ARRAY)
    assert build.calls == 2
    assert np.array_equal(cached_array("a", KEY, build), ARRAY)
    assert build.calls == 2
    assert beside.read_text() == "mine"


def test_an_unwritable_cache_warns(folder):
    folder.write_text("a file where the directory should be")
    with pytest.warns(IsolatentWarning, match="cannot be written"):
        assert np.array_equal(cached_array("a", KEY, Build()), ARRAY)


def test_a_failed_build_leaves_no_file(folder):
    cached_array("a", KEY, Build())
    before = sorted(folder.iterdir())

    def build():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cached_array("b", KEY, build)
    assert sorted(folder.iterdir()) == before


def test_the_directory_is_that_of_the_variable_or_the_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("ISOLATENT_CACHE", raising=False)
    assert cache_directory() == user_cache_path("isolatent", appauthor=False)
    monkeypatch.setenv("ISOLATENT_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
