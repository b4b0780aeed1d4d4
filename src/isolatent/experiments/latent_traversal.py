"""What each code does, as pictures: images along one code while the others stay."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Generator, Tensor

from isolatent.experiments.views import sample_factors
from isolatent.pairs import FactorPairs

__all__ = ["DEAD", "png", "strips"]

POOL = 50_000  # images to choose the nearest from
FIRM = 3.0  # how many times as much as the others the moved code counts in distances
COLUMNS = 9
ENDS = (2.0, 98.0)  # percentiles between which a code is moved
DEAD = 0.1  # a code whose standard deviation is less than this share of the largest
STRIP_SEED = 2_000_003

Array = NDArray[Any]


def strips(model: Any, pairs: FactorPairs, seed: int) -> dict[str, Any]:
    """Images along each code, from its 2nd to its 98th percentile.

    The other codes stay at those of one image in the middle of all. A model with a decoder draws
    what it thinks of (``"decoded"``); of an encoder alone the image whose codes are nearest is
    shown (``"nearest"``), in units of each code's standard deviation, the moved code counting three
    times: where several codes know one factor, it could not move otherwise. Codes that are almost
    dead count in units of the largest one instead: in their own, noise would choose the images.

    Returns:
        ``kind``; ``rows``, a PNG in base64 for each code; ``spreads``, the standard deviation of
        each as a share of the largest; the ``columns`` of each row, and their ``size`` in pixels.
    """
    y = sample_factors(pairs, POOL, Generator().manual_seed(seed + STRIP_SEED))
    codes = np.concatenate(
        [np.asarray(model.transform(pairs.observe(part))) for part in y.split(2048)]
    )
    deviations = codes.std(0).astype(np.float64)
    largest = deviations.max() or 1.0
    scale = np.where(deviations < DEAD * largest, largest, deviations)
    middle = codes[np.square((codes - np.median(codes, 0)) / scale).sum(1).argmin()]
    wanted = np.repeat(middle[None], codes.shape[1] * COLUMNS, 0)
    for k in range(codes.shape[1]):
        moved = slice(k * COLUMNS, (k + 1) * COLUMNS)
        low, high = np.percentile(codes[:, k], ENDS)
        wanted[moved, k] = np.linspace(low, high, COLUMNS)
    if hasattr(model, "decode"):
        kind, images = "decoded", np.asarray(model.decode(wanted))
    else:
        weights = 1 / np.repeat(scale[None], codes.shape[1], 0)
        np.fill_diagonal(weights, FIRM / scale)
        chosen = [
            _nearest(codes, point, weights[row // COLUMNS]) for row, point in enumerate(wanted)
        ]
        kind, images = "nearest", pairs.observe(y[chosen]).numpy()
    tiles = images.reshape(codes.shape[1], COLUMNS, *images.shape[1:])
    return {
        "kind": kind,
        "spreads": [float(f"{share:.3g}") for share in deviations / largest],
        "columns": COLUMNS,
        "size": int(images.shape[-1]),
        "rows": [base64.b64encode(png(_joined(row))).decode() for row in tiles],
    }


def _nearest(codes: Array, point: Array, weights: Array) -> int:
    return int(np.square((codes - point) * weights).sum(1).argmin())


def _joined(tiles: Array) -> Array:
    """Images (columns, C, H, W) side by side as one picture (H, width, C), in bytes."""
    columns, channels, height, width = tiles.shape
    picture = tiles.transpose(2, 0, 3, 1).reshape(height, columns * width, channels)
    return np.round(255 * np.clip(picture, 0, 1)).astype(np.uint8)


def png(picture: Array | Tensor) -> bytes:
    r"""A picture (height, width, 1 or 3), of bytes, as a PNG file.

    Example:
        >>> png(np.zeros((2, 3, 1), np.uint8))[:4]
        b'\x89PNG'
    """
    pixels = np.asarray(picture)
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with "not filtered"
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
