"""The MNIST reader, on small files of the same layout."""

import gzip

import numpy as np
import pytest

from isolatent.datasets import load_mnist
from published_layouts import write_idx, write_mnist

IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    monkeypatch.delenv("ISOLATENT_DATA", raising=False)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("folder", ["", "mnist", "MNIST/raw"])
def test_arrays_are_those_of_the_files(tmp_path, monkeypatch, suffix, folder):
    written = write_mnist(tmp_path / folder, suffix=suffix)
    monkeypatch.setenv("ISOLATENT_DATA", str(tmp_path))
    for part, (images, labels) in written.items():
        name = ("train" if part == "train" else "t10k") + f"-images-idx3-ubyte{suffix}"
        for path in (None, tmp_path, tmp_path / folder / name):
            data = load_mnist(path, part)
            assert np.array_equal(data.images[:, 0], images)
            assert np.array_equal(data.labels, labels)
            assert np.allclose(data.observe([3, 1])[:, 0], images[[3, 1]] / 255)


def test_missing_files_are_named_with_their_origin(tmp_path):
    with pytest.raises(ValueError, match="ISOLATENT_DATA must name that directory; got neither"):
        load_mnist()
    with pytest.raises(
        FileNotFoundError, match=r"train-images.*does not exist.*MNIST page of Yann"
    ):
        load_mnist(tmp_path)
    write_mnist(tmp_path)
    (tmp_path / LABELS).unlink()
    with pytest.raises(FileNotFoundError, match=r"train-labels-idx1-ubyte: does not exist"):
        load_mnist(tmp_path)
    with pytest.raises(ValueError, match="part must be one of 'train', 'test', got 'valid'"):
        load_mnist(tmp_path, "valid")


ZEROS = np.zeros((20, 28, 28), np.uint8)


@pytest.mark.parametrize(
    ("name", "array", "options", "message"),
    [
        (
            IMAGES,
            ZEROS,
            {"magic": b"\x89PNG"},
            r"must start with the idx header 00 00 08 03, got 89",
        ),
        (IMAGES, ZEROS, {"magic": b"\0\0\x0d\3"}, "must start with the idx header"),
        (IMAGES, ZEROS, {"data": bytes(100)}, r"must hold 15680 bytes .*, got only 100"),
        (IMAGES, ZEROS, {"data": bytes(15681)}, r"must hold 15680 bytes .*, got more"),
        (IMAGES, ZEROS[:, :27], {}, r"images must be 28 x 28, got \(27, 28\)"),
        (IMAGES, ZEROS[:0], {}, "its header declares"),
        (LABELS, ZEROS[:19, 0, 0], {}, "one label for each of the 20 images"),
        (LABELS, ZEROS[:, 0, 0] + 10, {}, "labels must be digits, got 10 in row 0"),
        (LABELS, ZEROS, {}, "must start with the idx header 00 00 08 01"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_another_layout_is_refused(tmp_path, name, array, options, message, suffix):
    write_mnist(tmp_path, suffix=suffix)
    write_idx(tmp_path / f"{name}{suffix}", array, **options)
    with pytest.raises(ValueError, match=rf"^{name}{suffix}: .*{message}"):
        load_mnist(tmp_path)


def test_sizes_of_headers_are_not_believed(tmp_path):
    write_mnist(tmp_path)
    huge = bytes([0, 0, 8, 3]) + np.array([2**31, 28, 28], ">u4").tobytes()
    (tmp_path / IMAGES).write_bytes(huge)
    with pytest.raises(ValueError, match="its header declares"):
        load_mnist(tmp_path)
    (tmp_path / IMAGES).write_bytes(huge[:9])
    with pytest.raises(ValueError, match="ends within its header"):
        load_mnist(tmp_path)


def test_damaged_gzip_files_are_refused(tmp_path):
    write_mnist(tmp_path, suffix=".gz")
    path = tmp_path / f"{IMAGES}.gz"
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"no gzip file", content[:50] + bytes(400)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a complete gzip file"):
            load_mnist(tmp_path)
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(ValueError, match="got nothing"):
        load_mnist(tmp_path)
