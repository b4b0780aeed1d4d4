"""KITTI Masks: silhouettes of pedestrians in videos, and a stand-in where they are not at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from isolatent.checks import check_integer, check_real
from isolatent.datasets.array_pickles import read_array_pickle
from isolatent.datasets.packed_images import PackedImages
from isolatent.datasets.published_files import PathLike, Publication

__all__ = ["KittiMasks", "load_kitti_masks", "synthetic_kitti_masks"]

KITTI_MASKS = Publication(
    "KITTI Masks", "kitti_peds_v2.pickle, published by its authors as Zenodo record 3931823"
)
KITTI_FILE = "kitti_peds_v2.pickle"
MASK_SIDE = 64  # pixels
FACTOR_NAMES = ("y", "x", "area")
MIN_AREA, MAX_AREA = 60.0, 900.0  # pixels of a simulated figure, about
FIGURE_STEPS = np.array(
    [0.008, 0.012, 0.008]
)  # median step of y, x and size, as a share of their ranges
HALF_EXTENTS = (0.51, 0.31)  # of a figure, down and across, in units of its height

Array = NDArray[Any]


class KittiMasks:
    """Sequences of binary images, 64 × 64, and of three measured factors of each frame.

    Args:
        images: Frames of all sequences, one after the other.
        latents: Centre from above, centre from the left, and area of each frame, (N, 3).
        starts: First frame of each sequence, and N at the end.
        source: Where the frames come from.

    Example:
        >>> masks = synthetic_kitti_masks(sequences=3, seed=0)
        >>> masks, masks.observe([0, 1]).shape
        (KittiMasks(67 frames of 3 sequences, synthetic stand-in), torch.Size([2, 1, 64, 64]))
    """

    names = FACTOR_NAMES
    observation_shape = (1, MASK_SIDE, MASK_SIDE)

    def __init__(
        self, images: PackedImages, latents: Array, starts: NDArray[np.int64], source: str
    ) -> None:
        if latents.shape != (len(images), len(FACTOR_NAMES)):
            raise ValueError(
                f"latents must have shape ({len(images)}, {len(FACTOR_NAMES)}), one row for each "
                f"frame, got {latents.shape}"
            )
        if starts[0] != 0 or starts[-1] != len(images) or (np.diff(starts) < 1).any():
            raise ValueError(f"starts must rise from 0 to {len(images)}, got {starts}")
        self.images, self.latents, self.starts = images, latents, starts
        self.source = source

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.names)

    @property
    def n_sequences(self) -> int:
        """Number of sequences."""
        return len(self.starts) - 1

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.images)

    def observe(self, frames: ArrayLike | Tensor) -> Tensor:
        """Return frames (N,) as images (N, 1, 64, 64), float32, 0 or 1."""
        index = np.asarray(frames)
        return torch.from_numpy(self.images[index].astype(np.float32))[:, None]

    def __repr__(self) -> str:
        return f"KittiMasks({len(self)} frames of {self.n_sequences} sequences, {self.source})"


def load_kitti_masks(path: PathLike | None = None) -> KittiMasks:
    r"""Load the published KITTI Masks.

    The file is a pickle of lists, dictionaries and arrays; a reader that runs nothing refuses all
    else (:mod:`isolatent.datasets.array_pickles`). Frames are kept as bits, an eighth of their
    size in the file.

    Args:
        path: ``kitti_peds_v2.pickle``, or its directory; by default the directory in the
            environment variable ``ISOLATENT_DATA``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file has another layout than the published one.

    References:
        Klindt et al., 2021.
    """
    where = KITTI_MASKS.find(path, KITTI_FILE)
    content = read_array_pickle(where)
    wanted = ("pedestrians", "pedestrians_latents")
    if not isinstance(content, dict) or not set(wanted) <= set(content):
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{where.name}: must be a dictionary with {wanted}, got {found}")
    videos, latents = (content[name] for name in wanted)
    for name, values in zip(wanted, (videos, latents), strict=True):
        if not isinstance(values, list | tuple) or len(values) != len(videos) or not values:
            raise ValueError(
                f"{where.name}: {wanted[0]} and {name} must be lists of one length, at least 1"
            )
    bits, factors = [], []
    for k, (video, values) in enumerate(zip(videos, latents, strict=True)):
        bits.append(_pack_video(where, k, video))
        factors.append(_check_latents(where, k, values, len(video)))
    starts = np.cumsum([0, *map(len, bits)])
    images = PackedImages(np.concatenate(bits), (MASK_SIDE, MASK_SIDE))
    return KittiMasks(images, np.concatenate(factors), starts, where.name)


def _pack_video(path: Path, k: int, video: Any) -> NDArray[np.uint8]:
    shape = getattr(video, "shape", None)
    if shape is None or len(shape) != 3 or shape[1:] != (MASK_SIDE, MASK_SIDE) or not shape[0]:
        raise ValueError(
            f"{path.name}: pedestrians[{k}] must be an array (T, {MASK_SIDE}, {MASK_SIDE}), got "
            f"{type(video).__name__ if shape is None else shape}"
        )
    if video.dtype.kind not in "bu" or video.max() > 1:
        raise ValueError(
            f"{path.name}: pedestrians[{k}] must hold booleans, got {video.dtype} up to "
            f"{video.max()}"
        )
    return np.packbits(video.astype(bool).reshape(len(video), -1), axis=1)


def _check_latents(path: Path, k: int, values: Any, frames: int) -> NDArray[np.float32]:
    shape = getattr(values, "shape", None)
    if shape != (frames, len(FACTOR_NAMES)) or values.dtype.kind != "f":
        raise ValueError(
            f"{path.name}: pedestrians_latents[{k}] must be an array ({frames}, 3) of floats, one "
            f"row for each frame, got {type(values).__name__ if shape is None else shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{path.name}: pedestrians_latents[{k}] must be finite")
    return np.asarray(values, np.float32)


def synthetic_kitti_masks(sequences: int = 400, seed: int = 0, spread: float = 1.2) -> KittiMasks:
    r"""Simulate masks in the layout of KITTI Masks, where the published file is not at hand.

    Each sequence shows a walking figure: a head, a trunk, arms and legs, which swing as it walks.
    Position and area of the figure follow paths whose steps are sparse and heavy-tailed: the
    logarithm of the speed of each factor is a stationary autoregressive process, its direction is
    mostly kept, and it sometimes rests. Paths are reflected where the figure would leave the image.
    Lengths of sequences vary from 2 frames to some hundred. As in the published file, the
    factors are measured: the centre of the covered pixels and their number. Nothing is recorded,
    and reported results must state that the masks are synthetic.

    Args:
        sequences: Number of sequences.
        seed: Integer seed of the simulation.
        spread: Standard deviation of the logarithm of the speed: the larger, the heavier are the
            tails of the steps. At 0 all moving steps have one size.

    Example:
        >>> synthetic_kitti_masks(sequences=2, seed=1).latents.shape[1]
        3
    """
    check_integer("sequences", sequences, at_least=1)
    random = np.random.default_rng(check_integer("seed", seed, at_least=0))
    check_real("spread", spread, at_least=0)
    lengths = np.minimum(2 + random.geometric(1 / 35, sequences), 400)
    bits, latents = [], []
    for length in lengths:
        video = _draw_figures(*_paths(int(length), spread, random))
        bits.append(np.packbits(video.reshape(len(video), -1), axis=1))
        latents.append(_measure(video))
    starts = np.cumsum([0, *lengths])
    images = PackedImages(np.concatenate(bits), (MASK_SIDE, MASK_SIDE))
    return KittiMasks(images, np.concatenate(latents), starts, "synthetic stand-in")


def _paths(
    length: int, spread: float, random: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    """Return centre from above and left and height of a figure, all in pixels, and its phase."""
    # Positions from above and from the left, and size, each in [0, 1].
    state = random.random(3)
    speed, direction = random.normal(size=3), random.choice([-1.0, 1.0], 3)
    path = np.empty((length, 3))
    for t in range(length):
        path[t] = state
        speed = 0.9 * speed + np.sqrt(1 - 0.9**2) * random.normal(size=3)
        direction = np.where(random.random(3) < 0.05, -direction, direction)
        moves = random.random(3) < 0.7
        state = state + FIGURE_STEPS * np.exp(spread * speed) * direction * moves
    path = np.abs((path + 1) % 2 - 1)  # reflected at 0 and 1
    # The area is uniform rather than the height.
    height = np.sqrt((MIN_AREA + (MAX_AREA - MIN_AREA) * path[:, 2]) / 0.30)
    # A border of one pixel stays free, so that no figure is cut off.
    y, x = (
        1 + half * height + (MASK_SIDE - 2 - 2 * half * height) * path[:, k]
        for k, half in enumerate(HALF_EXTENTS)
    )
    phase = random.uniform(0, 2 * np.pi) + 0.5 * np.arange(length)
    return y, x, height, phase


def _draw_figures(y: Array, x: Array, height: Array, phase: Array) -> NDArray[np.bool_]:
    """Draw figures (T, 64, 64): a disc for the head, and thick lines for trunk and limbs."""
    row, column = (np.mgrid[:MASK_SIDE, :MASK_SIDE] + 0.5)[:, None]
    # Coordinates relative to the figure: up from -0.5 at the feet to 0.5, in units of its height.
    unit = height[:, None, None]
    up = (y[:, None, None] - row) / unit
    across = (column - x[:, None, None]) / unit
    swing = 0.25 * np.sin(phase)[:, None, None]
    mask = across**2 + (up - 0.42) ** 2 < 0.08**2
    mask |= _near_line(across, up, (0.0, 0.30), (0.0, 0.02), 0.10)
    for side in (-1.0, 1.0):
        mask |= _near_line(across, up, (0.0, 0.0), (0.42 * side * swing, -0.45), 0.055)
        mask |= _near_line(across, up, (0.07 * side, 0.28), (0.16 * side - 0.4 * swing, 0.0), 0.04)
    return mask


def _near_line(x: Array, y: Array, start: Any, end: Any, radius: float) -> NDArray[np.bool_]:
    """Return which points are closer than ``radius`` to a line from start to end."""
    (ax, ay), (bx, by) = start, end
    dx, dy = bx - ax, by - ay
    share = np.clip(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy), 0, 1)
    near: NDArray[np.bool_] = (x - ax - share * dx) ** 2 + (y - ay - share * dy) ** 2 < radius**2
    return near


def _measure(video: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the centre from above and from the left, and the area, of masks (T, 64, 64)."""
    area = video.sum(axis=(1, 2))
    position = np.arange(MASK_SIDE)
    y = (video.sum(axis=2) * position).sum(axis=1) / area
    x = (video.sum(axis=1) * position).sum(axis=1) / area
    return np.stack([y, x, area], axis=1).astype(np.float32)
