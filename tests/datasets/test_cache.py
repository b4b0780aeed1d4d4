"""What is kept on the disk is what was built, or it is built again."""

import numpy as np
import pytest

from isolatent.checks import IsolatentWarning
from isolatent.datasets.cache import cache_directory, cached_array
from isolatent.files import digest_data

KEY = digest_data(np.arange(3))
ARRAY = np.arange(1000, dtype=np.uint8).reshape(10, 100)
OTHER = ARRAY + 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ISOLATENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Build:
    """Counts how often it is asked."""

    calls = 0

    def __call__(self):
        self.calls += 1
        return ARRAY


def test_an_array_is_built_once(folder):
    build = Build()
    for _ in range(3):
        assert np.array_equal(cached_array("a", KEY, build), ARRAY)
    assert build.calls == 1
    assert [path.name for path in folder.iterdir()] == [f"a-{KEY[:16]}.npz"]  # nothing half-written
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
def test_damaged_and_foreign_files_are_made_anew(folder, damage):
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


def test_a_place_that_cannot_be_written_is_told(folder):
    folder.write_text("a file where the directory should be")
    with pytest.warns(IsolatentWarning, match="cannot be written"):
        assert np.array_equal(cached_array("a", KEY, Build()), ARRAY)


def test_a_build_that_fails_leaves_nothing(folder):
    def build():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cached_array("a", KEY, build)
    assert not folder.exists() or not list(folder.iterdir())


def test_the_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("ISOLATENT_CACHE", raising=False)
    assert cache_directory().name == "isolatent"
    monkeypatch.setenv("ISOLATENT_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
