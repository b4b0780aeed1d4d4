"""Binary images as packed bits, in memory and in a cache on disk.

A byte array takes eight times as much, and more where images are shifted copies of one another. The
cache is in the directory that the environment variable ``ISOLATENT_CACHE`` names, else in the
user's cache directory of the platform. Files are written atomically, and a file that is damaged or
was not written by this module is built again.
"""

from __future__ import annotations

import os
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from platformdirs import user_cache_path

from isolatent.checks import IsolatentWarning, check_integer
from isolatent.files import atomic_write, digest_data

__all__ = ["UNREADABLE", "PackedImages", "cache_directory", "cached_array"]

Array = NDArray[Any]

UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
"""Exceptions that reading a damaged .npz file raises."""


class PackedImages:
    r"""A boolean array (M·P, H, W) of M windows, each at P places.

    Image :math:`mP + p` is window :math:`m` with its upper left corner at place :math:`p`, and zero
    elsewhere. Images without such structure are windows of full size at a single place.

    Args:
        bits: The windows (M, h·w/8), packed by ``np.packbits``: row by row, the leftmost pixel in
            the highest bit.
        window: Height and width (h, w) of the windows; w is a multiple of 8.
        image: Height and width (H, W) of the images; by default those of the windows.
        places: Row and column (P, 2) of the windows' upper left corners; by default (0, 0).

    Example:
        >>> images = PackedImages(np.array([[255]], np.uint8), (1, 8), (2, 8), [(0, 0), (1, 0)])
        >>> images.shape, images.nbytes, images[1].astype(int).tolist()[1]
        ((2, 2, 8), 33, [1, 1, 1, 1, 1, 1, 1, 1])
    """

    dtype = np.dtype(bool)

    def __init__(
        self,
        bits: NDArray[np.uint8],
        window: tuple[int, int],
        image: tuple[int, int] | None = None,
        places: ArrayLike | None = None,
    ) -> None:
        h, w = (check_integer("window", side, at_least=1) for side in window)
        bits = np.asanyarray(bits)
        if bits.dtype != np.uint8 or bits.ndim != 2 or w % 8 or bits.shape[1] * 8 != h * w:
            raise ValueError(
                f"bits must be uint8 (M, h*w/8) for window={window} with w a multiple of 8, got "
                f"{bits.dtype} {bits.shape}"
            )
        self.window = (h, w)
        self.image = self.window if image is None else image
        corners = np.asarray([(0, 0)] if places is None else places, np.int64)
        room = np.subtract(self.image, self.window)
        if corners.ndim != 2 or corners.shape[1] != 2 or not len(corners):
            raise ValueError(f"places must have shape (P, 2), got {corners.shape}")
        if (corners < 0).any() or (corners > room).any():
            raise ValueError(f"places must keep windows {window} inside images of {self.image}")
        self.bits, self.places = bits, corners

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of images, height and width."""
        return (len(self), *self.image)

    @property
    def nbytes(self) -> int:
        """Number of bytes in memory."""
        return self.bits.nbytes + self.places.nbytes

    def __len__(self) -> int:
        return len(self.bits) * len(self.places)

    def __getitem__(self, index: Any) -> NDArray[np.bool_]:
        """Return the images at an integer, a slice, or an array of integers or booleans."""
        if isinstance(index, int | np.integer | slice):
            cells = np.asarray(range(len(self))[index])
        else:
            cells = np.asarray(index)
            if cells.dtype == bool:
                if cells.shape != (len(self),):
                    raise IndexError(f"index must have shape ({len(self)},), got {cells.shape}")
                cells = np.flatnonzero(cells)
        if cells.size and cells.dtype.kind not in "iu":
            raise IndexError(f"index must be integers, a slice or booleans, got {index!r}")
        wanted = cells.ravel().astype(np.int64)
        if ((wanted < -len(self)) | (wanted >= len(self))).any():
            raise IndexError(f"index must be below {len(self)}, got {wanted.min()}…{wanted.max()}")
        return self._unpack(wanted % len(self)).reshape(*cells.shape, *self.image)

    def _unpack(self, cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        window, place = np.divmod(cells, len(self.places))
        pixels = np.unpackbits(self.bits[window], axis=1).view(bool).reshape(-1, *self.window)
        if self.window == self.image:
            return pixels
        images = np.zeros((len(cells), *self.image), dtype=bool)
        # A view of every window of every image, so that one assignment fills all images.
        views = np.lib.stride_tricks.sliding_window_view(
            images, self.window, axis=(1, 2), writeable=True
        )
        row, column = self.places[place].T
        views[np.arange(len(cells)), row, column] = pixels
        return images

    def __repr__(self) -> str:
        return f"PackedImages({self.shape}, {self.nbytes} bytes)"


def cache_directory() -> Path:
    """Return the directory of cached arrays."""
    chosen = os.environ.get("ISOLATENT_CACHE")
    return Path(chosen) if chosen else user_cache_path("isolatent", appauthor=False)


def cached_array(name: str, key: str, build: Callable[[], Array]) -> Array:
    """Return the cached array of this name and key, or build and cache it.

    Args:
        name: Prefix of the file name.
        key: Hash of everything that the array depends on.
        build: Returns the array.
    """
    path = cache_directory() / f"{name}-{key[:16]}.npz"
    kept = _read(path, key)
    if kept is not None:
        return kept
    array = build()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial, partial.open("wb") as file:
            np.savez(file, array=array, key=key, digest=digest_data(array))
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written ({error}); the array is built at each call",
            IsolatentWarning,
            3,
        )
    return array


def _read(path: Path, key: str) -> Array | None:
    try:
        with np.load(path, allow_pickle=False) as archive:  # verifies the checksums of the zip file
            array: Array = archive["array"]
            whole = str(archive["key"]) == key and str(archive["digest"]) == digest_data(array)
    except (*UNREADABLE, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return array if whole else None
