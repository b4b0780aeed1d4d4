"""Reader of the published dSprites file."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from isolatent.datasets.factor_grid import FactorArray
from isolatent.datasets.packed_images import UNREADABLE, PackedImages, cached_array
from isolatent.datasets.published_files import PathLike, Publication
from isolatent.datasets.sprites import SIZES, factors_of
from isolatent.files import digest_data

__all__ = ["load_dsprites"]

FILE = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
DSPRITES = Publication("dSprites", "published by DeepMind in its repository of the dataset")
SIDE = 64
IMAGES_AT_A_TIME = 4096  # images unpacked at a time: 16 MB


def load_dsprites(path: PathLike | None = None, *, cache: bool = True) -> FactorArray:
    r"""Load the published dSprites images as a world, in the order of the file.

    The factors are shape (square, ellipse, heart), scale, orientation, x and y; colour is constant.
    Images are kept as bits, 377 MB instead of 3 GB, and the file is read in chunks. Unpacking it
    takes about ten seconds; with ``cache`` the bits are stored on disk
    (:mod:`isolatent.datasets.packed_images`) under the hash of the file. Nothing is unpickled.

    Args:
        path: ``dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz``, or its directory; by default the
            directory in the environment variable ``ISOLATENT_DATA``.
        cache: Whether to store the packed bits on disk.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file has another layout than the published one.
    """
    where = DSPRITES.find(path, FILE)
    if cache:
        bits = cached_array("dsprites", digest_data(where), lambda: _pack(where))
    else:
        bits = _pack(where)
    return FactorArray(PackedImages(bits, (SIDE, SIDE)), SIZES, **factors_of(SIZES))


def _pack(path: Path) -> NDArray[np.uint8]:
    """Check the arrays of the file and pack its images in chunks."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            for name in ("imgs", "latents_classes"):
                if name not in names:
                    raise ValueError(f"{path.name}: has no array {name!r}; it has {sorted(names)}")
            with archive.open("latents_classes.npy") as file:
                _check_order(path, file)
            with archive.open("imgs.npy") as file:
                return _packed(path, file)
    except UNREADABLE as error:
        raise ValueError(f"{path.name}: not a complete .npz file ({error})") from error


def _packed(path: Path, file: IO[bytes]) -> NDArray[np.uint8]:
    count, pixels = math.prod(SIZES), SIDE * SIDE
    _header(path, "imgs", file, (count, SIDE, SIDE), "bu")
    bits = np.empty((count, pixels // 8), np.uint8)
    for start in range(0, count, IMAGES_AT_A_TIME):
        stop = min(start + IMAGES_AT_A_TIME, count)
        part = _read(path, "imgs", file, (stop - start) * pixels)
        images = np.frombuffer(part, np.uint8).reshape(-1, pixels)
        if images.max() > 1:
            raise ValueError(f"{path.name}: imgs must hold 0 and 1, got {images.max()}")
        bits[start:stop] = np.packbits(images, axis=1)
    if file.read(1):
        raise ValueError(f"{path.name}: imgs holds more data than its header declares")
    return bits


def _check_order(path: Path, file: IO[bytes]) -> None:
    """Check that the classes (N, 6) enumerate colour 0 and the grid, the last factor fastest."""
    shape = (math.prod(SIZES), 1 + len(SIZES))
    dtype = _header(path, "latents_classes", file, shape, "iu")
    part = _read(path, "latents_classes", file, math.prod(shape) * dtype.itemsize)
    classes = np.frombuffer(part, dtype).reshape(shape)
    expected = np.stack(np.unravel_index(np.arange(len(classes)), (1, *SIZES)), axis=1)
    wrong = (classes != expected).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{path.name}: latents_classes must enumerate the grid with the last factor fastest, "
            f"got {classes[row].tolist()} in row {row} instead of {expected[row].tolist()}"
        )


def _header(
    path: Path, name: str, file: IO[bytes], shape: tuple[int, ...], kinds: str
) -> np.dtype[Any]:
    """Read the header of an .npy file and check shape, dtype and order."""
    try:
        version = np.lib.format.read_magic(file)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        found, by_columns, dtype = reader(file)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path.name}: {name} is not an array ({error})") from error
    allowed = dtype.kind in kinds and (name != "imgs" or dtype.itemsize == 1)
    if found != shape or by_columns or not allowed:
        kind = "uint8 or bool" if name == "imgs" else "integers"
        order = " by columns" if by_columns else ""
        raise ValueError(
            f"{path.name}: {name} must have shape {shape} and hold {kind}, got {found} of "
            f"{dtype}{order}"
        )
    return np.dtype(dtype)


def _read(path: Path, name: str, file: IO[bytes], size: int) -> bytes:
    part = file.read(size)
    if len(part) < size:
        raise ValueError(f"{path.name}: {name} ends too early")
    return part
