"""Reader of the published MNIST files."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from isolatent.checks import check_one_of
from isolatent.datasets.labelled_images import LabelledImages
from isolatent.datasets.published_files import PathLike, Publication

__all__ = ["load_mnist"]

MNIST = Publication(
    "MNIST",
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, plain or as .gz, published on the MNIST page of Yann LeCun",
    folders=("mnist", "MNIST/raw"),
)
PREFIXES = {"train": "train", "test": "t10k"}  # of the files of a part
DIGIT_SIDE = 28  # pixels
DIGITS = 10
IDX_BYTES = 0x08  # the idx code of unsigned bytes
LARGEST_ARRAY = 2**31  # bytes, so that no header makes us ask for more


def load_mnist(path: PathLike | None = None, part: str = "train") -> LabelledImages:
    r"""Load the published MNIST digits: 60 000 images for training or 10 000 for tests.

    The idx files are read as published, plain or compressed by gzip. Sizes are checked against
    their headers, and nothing beyond the declared size is unpacked.

    Args:
        path: The directory with the four files, or one above its folder ``mnist`` or ``MNIST/raw``;
            by default the directory in the environment variable ``ISOLATENT_DATA``.
        part: ``"train"`` or ``"test"``.

    Returns:
        Images (N, 1, 28, 28) and their digits.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file has another layout than the published one.

    References:
        LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition.
        Proceedings of the IEEE, 1998.
    """
    prefix = PREFIXES[check_one_of("part", part, PREFIXES)]
    where = _find(path, f"{prefix}-images-idx3-ubyte")
    beside = _find(where.parent, f"{prefix}-labels-idx1-ubyte")
    images, labels = _read_idx(where, 3), _read_idx(beside, 1)
    if images.shape[1:] != (DIGIT_SIDE, DIGIT_SIDE):
        raise ValueError(f"{where.name}: images must be 28 x 28, got {images.shape[1:]}")
    if len(images) != len(labels):
        raise ValueError(
            f"{beside.name}: must have one label for each of the {len(images)} images in "
            f"{where.name}, got {len(labels)}"
        )
    if labels.max() >= DIGITS:
        row = int(labels.argmax())
        raise ValueError(f"{beside.name}: labels must be digits, got {labels[row]} in row {row}")
    classes = tuple(map(str, range(DIGITS)))
    return LabelledImages(images[:, None], labels.astype(np.int64), classes)


def _find(path: PathLike | None, name: str) -> Path:
    found = MNIST.find(path, (name, f"{name}.gz"))
    # A path that is a file names its directory: the labels are beside the images.
    if found.name not in (name, f"{name}.gz"):
        return _find(found.parent, name)
    return found


def _read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of bytes: 0, 0, type, number of dimensions, their sizes, and the data."""
    opened: Callable[..., AbstractContextManager[IO[Any]]] = (
        gzip.open if path.suffix == ".gz" else open
    )
    try:
        with opened(path, "rb") as file:
            magic = file.read(4)
            expected = bytes([0, 0, IDX_BYTES, dimensions])
            if magic != expected:
                raise ValueError(
                    f"{path.name}: must start with the idx header {expected.hex(' ')}, got "
                    f"{magic.hex(' ') or 'nothing'}"
                )
            header = file.read(4 * dimensions)
            if len(header) < 4 * dimensions:
                raise ValueError(f"{path.name}: ends within its header")
            shape = tuple(int(n) for n in np.frombuffer(header, ">u4"))
            size = math.prod(shape)
            if not 0 < size <= LARGEST_ARRAY:
                raise ValueError(
                    f"{path.name}: its header declares {shape}; sizes must be above 0, and at most "
                    f"{LARGEST_ARRAY} bytes"
                )
            data = file.read(size + 1)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path.name}: not a complete gzip file ({error})") from error
    if len(data) != size:
        found = f"only {len(data)}" if len(data) < size else "more"
        raise ValueError(f"{path.name}: must hold {size} bytes of data {shape}, got {found}")
    return np.frombuffer(data, np.uint8).reshape(shape)
