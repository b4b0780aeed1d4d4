"""The CIFAR-10 reader, on small files of the same layout."""

import pickle

import numpy as np
import pytest

from isolatent.datasets import cifar, load_cifar10
from published_layouts import write_cifar10

PER_FILE = 5


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "IMAGES_PER_FILE", PER_FILE)
    monkeypatch.delenv("ISOLATENT_DATA", raising=False)
    return tmp_path / "cifar-10-batches-bin"


def test_arrays_are_those_of_the_files(folder, monkeypatch):
    written = write_cifar10(folder, PER_FILE)
    monkeypatch.setenv("ISOLATENT_DATA", str(folder.parent))
    for part, (images, labels) in written.items():
        for path in (None, folder, folder.parent):
            data = load_cifar10(path, part)
            assert np.array_equal(data.images, images)
            assert np.array_equal(data.labels, labels)
    assert len(load_cifar10()) == 5 * PER_FILE
    assert load_cifar10(folder / "data_batch_1.bin", "test").classes[3] == "cat"


@pytest.mark.parametrize("change", [-1, 1, -3073, 3073])
def test_truncated_and_oversized_files_are_named(folder, change):
    write_cifar10(folder, PER_FILE)
    path = folder / "data_batch_3.bin"
    path.write_bytes((path.read_bytes() + bytes(3073))[: PER_FILE * 3073 + change])
    with pytest.raises(ValueError, match=r"^data_batch_3.bin: must have 15365 bytes, 5 images"):
        load_cifar10(folder)


def test_labels_beyond_the_classes_are_named(folder):
    write_cifar10(folder, PER_FILE)
    path = folder / "test_batch.bin"
    content = bytearray(path.read_bytes())
    content[2 * 3073] = 10
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"^test_batch.bin: labels .* from 0 to 9, got 10 in row 2"
    ):
        load_cifar10(folder, "test")


def test_missing_files_are_named_with_their_origin(folder):
    with pytest.raises(ValueError, match="got neither"):
        load_cifar10()
    write_cifar10(folder, PER_FILE)
    (folder / "data_batch_5.bin").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"data_batch_5.bin: does not .*cifar-10-binary.tar"
    ):
        load_cifar10(folder)


def test_pickles_are_refused_unread(folder, tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    pickles = tmp_path / "cifar-10-batches-py"
    pickles.mkdir()
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        (pickles / name).write_bytes(pickle.dumps(Payload()))
    for path in (tmp_path, pickles, pickles / "data_batch_1"):
        with pytest.raises(ValueError, match=r"data_batch_1: .* a pickle, .* binary version"):
            load_cifar10(path)
    assert not (tmp_path / "ran").exists()
