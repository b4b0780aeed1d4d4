"""Reader of the binary version of CIFAR-10."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isolatent.checks import check_one_of
from isolatent.datasets.labelled_images import LabelledImages
from isolatent.datasets.published_files import PathLike, Publication

__all__ = ["load_cifar10"]

CIFAR10 = Publication(
    "CIFAR-10",
    "cifar-10-binary.tar.gz, which unpacks to cifar-10-batches-bin, published on the CIFAR-10 page "
    "of Alex Krizhevsky at the University of Toronto",
    folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
)
BATCH_FILES = {
    "train": tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
    "test": ("test_batch.bin",),
}
SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32  # the label, then the planes of red, green and blue
IMAGES_PER_FILE = 10_000
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def load_cifar10(path: PathLike | None = None, part: str = "train") -> LabelledImages:
    r"""Load the published CIFAR-10 images: 50 000 for training or 10 000 for tests.

    The *binary* version is read. The version for Python consists of pickles, which can run code
    when they are read, and is refused.

    Args:
        path: The folder ``cifar-10-batches-bin``, or the directory that holds it; by default the
            directory in the environment variable ``ISOLATENT_DATA``.
        part: ``"train"`` or ``"test"``.

    Returns:
        Images (N, 3, 32, 32) and their classes.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file has another layout than the published one, or is a pickle.

    References:
        Krizhevsky: Learning multiple layers of features from tiny images, 2009.
    """
    names = BATCH_FILES[check_one_of("part", part, BATCH_FILES)]
    first = _find(path, names[0])
    # Each file is read into its part of one array, so that no image is in memory twice.
    images = np.empty((len(names) * IMAGES_PER_FILE, *SHAPE), np.uint8)
    labels = np.empty(len(images), np.int64)
    for k, name in enumerate(names):
        rows = slice(k * IMAGES_PER_FILE, (k + 1) * IMAGES_PER_FILE)
        records = _read_records(_find(first.parent, name))
        labels[rows] = records[:, 0]
        images[rows] = records[:, 1:].reshape(-1, *SHAPE)
    return LabelledImages(images, labels, CLASSES)


def _find(path: PathLike | None, name: str) -> Path:
    pickled = name.removesuffix(".bin")
    found = CIFAR10.find(path, (name, pickled))
    if found.name == pickled:
        raise ValueError(
            f"{found.name}: is of CIFAR-10's version for Python, a pickle, which can run code when "
            f"it is read; use the binary version ({CIFAR10.origin})"
        )
    # Any other file names its directory.
    return found if found.name == name else _find(found.parent, name)


def _read_records(path: Path) -> NDArray[np.uint8]:
    """Read one file as records (10 000, 3073)."""
    expected, size = IMAGES_PER_FILE * RECORD_BYTES, path.stat().st_size
    if size != expected:
        raise ValueError(
            f"{path.name}: must have {expected} bytes, {IMAGES_PER_FILE} images of {RECORD_BYTES}, "
            f"got {size}"
        )
    records: NDArray[Any] = np.fromfile(path, np.uint8).reshape(-1, RECORD_BYTES)
    if records[:, 0].max() >= len(CLASSES):
        row = int(records[:, 0].argmax())
        raise ValueError(
            f"{path.name}: labels must be from 0 to 9, got {records[row, 0]} in row {row}"
        )
    return records
