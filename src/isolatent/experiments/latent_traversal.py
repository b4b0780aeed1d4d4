"""Latent traversals: images along one code while the other codes stay fixed."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from isolatent.pairs import FactorPairs, FramePairs
from isolatent.worlds import World

__all__ = [
    "DEAD",
    "encode_png",
    "latent_traversal",
    "rendered_traversal",
    "sample_test_factors",
]

CANDIDATES = 50_000  # images among which the nearest is searched
MOVED_WEIGHT = 3.0  # weight of the moved code in distances, relative to the other codes
COLUMNS = 9
PERCENTILES = (2.0, 98.0)  # of a code, between which it is moved
DEAD = 0.1  # a code is dead if its standard deviation is below this share of the largest
TRAVERSAL_SEED = 2_000_003
COLOUR_SIZE = 32  # pixels of a side, to which coloured images are averaged, for small records

Array = NDArray[Any]


def latent_traversal(model: Any, pairs: FactorPairs | FramePairs, seed: int) -> dict[str, Any]:
    """Return images along each code, from its 2nd to its 98th percentile.

    The other codes stay at those of the image nearest to the median of all codes. A model with a
    decoder decodes each point (``"decoded"``). For an encoder without decoder, the image with the
    nearest codes is shown (``"nearest"``): distances are in units of each code's standard
    deviation, and the moved code has weight 3, since it could not move otherwise where several
    codes encode the same factor. Dead codes are measured in units of the largest standard
    deviation: in their own unit, noise would determine the images.

    Args:
        model: A fitted estimator with ``transform`` and, optionally, ``decode``.
        pairs: The pairs on which the model was trained.
        seed: Seed of the images.

    Returns:
        ``kind``, ``"decoded"`` or ``"nearest"``; ``rows``, a PNG in base64 for each code;
        ``spreads``, the standard deviation of each code as a share of the largest; ``columns``, the
        number of images in a row; ``size``, the width of an image in pixels.
    """
    y = sample_test_factors(pairs, CANDIDATES, Generator().manual_seed(seed + TRAVERSAL_SEED))
    codes = np.concatenate(
        [np.asarray(model.transform(pairs.observe(part))) for part in y.split(2048)]
    )
    wanted, scale = _moved_codes(codes)
    if hasattr(model, "decode"):
        return _as_strips("decoded", np.asarray(model.decode(wanted)), codes)
    weights = 1 / np.repeat(scale[None], codes.shape[1], 0)
    np.fill_diagonal(weights, MOVED_WEIGHT / scale)
    chosen = [
        np.square((codes - point) * weights[row // COLUMNS]).sum(1).argmin()
        for row, point in enumerate(wanted)
    ]
    return _as_strips("nearest", pairs.observe(y[chosen]).numpy(), codes)


def rendered_traversal(world: World, z: Array, codes: Array) -> dict[str, Any] | None:
    """Return images along each code in a world that renders them; None if it has no images.

    Each point is rendered at the latents that an affine map of the codes predicts, which the
    guarantee of a fit with an affine map makes the right ones. What a code does not determine
    linearly does not move.

    Args:
        world: The world.
        z: Latents (N, n).
        codes: Codes (N, C) of their observations.

    Returns:
        As :func:`latent_traversal`, with ``kind`` ``"rendered"``. Coloured images are averaged to
        at most 32 × 32 pixels.
    """
    if (shape := world.mixing.image_shape) is None:
        return None
    wanted = _moved_codes(codes)[0]
    ones = np.ones((len(codes), 1))
    fitted = np.linalg.lstsq(np.hstack([codes, ones]), z, rcond=None)[0]
    latents = np.hstack([wanted, np.ones((len(wanted), 1))]) @ fitted
    images = world.observe(world.space.project(latents)).reshape(len(wanted), *shape).float()
    if shape[0] > 1 and shape[-1] > COLOUR_SIZE:
        images = torch.nn.functional.adaptive_avg_pool2d(images, COLOUR_SIZE)
    return _as_strips("rendered", images.numpy(), codes)


def _moved_codes(codes: Array) -> tuple[Array, Array]:
    """Return points (codes · columns, C) along each code, and the unit of each code's distances."""
    deviations = codes.std(0).astype(np.float64)
    largest = deviations.max() or 1.0
    scale = np.where(deviations < DEAD * largest, largest, deviations)
    middle = codes[np.square((codes - np.median(codes, 0)) / scale).sum(1).argmin()]
    wanted = np.repeat(middle[None], codes.shape[1] * COLUMNS, 0)
    for k in range(codes.shape[1]):
        moved = slice(k * COLUMNS, (k + 1) * COLUMNS)
        low, high = np.percentile(codes[:, k], PERCENTILES)
        wanted[moved, k] = np.linspace(low, high, COLUMNS)
    return wanted, scale


def _as_strips(kind: str, images: Array, codes: Array) -> dict[str, Any]:
    """Return images (codes · columns, channels, height, width) as a row for each code."""
    deviations = codes.std(0).astype(np.float64)
    shares = deviations / (deviations.max() or 1.0)
    tiles = images.reshape(codes.shape[1], COLUMNS, *images.shape[1:])
    return {
        "kind": kind,
        "spreads": [float(f"{share:.3g}") for share in shares],
        "columns": COLUMNS,
        "size": int(images.shape[-1]),
        "rows": [base64.b64encode(encode_png(_concatenate(row))).decode() for row in tiles],
    }


def sample_test_factors(
    pairs: FactorPairs | FramePairs, count: int, generator: Generator
) -> Tensor:
    """Draw the factors of ``count`` images like those the model was trained on.

    These are values with the distribution of the pairs' first elements if the pairs are continuous,
    otherwise uniform indices into the grid. Of recorded frames these are their numbers, each at
    most once.

    Example:
        >>> import torch, isolatent as iso
        >>> moves = iso.datasets.synthetic_transitions()
        >>> pairs = FactorPairs(iso.datasets.Sprites(), moves, continuous=True)
        >>> y = sample_test_factors(pairs, 4, torch.Generator().manual_seed(0))
        >>> y.dtype, pairs.observe(y).shape
        (torch.float64, torch.Size([4, 1, 64, 64]))
    """
    if isinstance(pairs, FramePairs):
        order = torch.randperm(len(pairs.frames), generator=generator)
        return order[:count]
    if not pairs.continuous:
        return pairs.world.sample_factors(count, generator)
    transitions: Any = pairs.transitions  # RecordedTransitions, as FactorPairs has checked
    values: Tensor = transitions.sample_values(pairs.world, count, generator)[0]
    return values


def _concatenate(tiles: Array) -> Array:
    """Return images (columns, C, H, W) side by side as one uint8 image (H, columns · W, C)."""
    columns, channels, height, width = tiles.shape
    picture = tiles.transpose(2, 0, 3, 1).reshape(height, columns * width, channels)
    return np.round(255 * np.clip(picture, 0, 1)).astype(np.uint8)


def encode_png(image: Array | Tensor) -> bytes:
    r"""Return a uint8 image (height, width, 1 or 3) as a PNG file.

    Example:
        >>> encode_png(np.zeros((2, 3, 1), np.uint8))[:4]
        b'\x89PNG'
    """
    pixels = np.asarray(image)
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each starts with filter type 0
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
