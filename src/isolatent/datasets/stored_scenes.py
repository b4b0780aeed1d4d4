"""Images that are stored with their continuous latents, whoever rendered them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor

from isolatent.checks import check_integer
from isolatent.datasets.published_files import PathLike
from isolatent.files import atomic_write
from isolatent.worlds import World

__all__ = ["RenderedScenes", "StoredScenes"]

RENDERED_AT_A_TIME = 1024  # images: 50 MB at 64 x 64 pixels
LATENTS_NAME, IMAGES_NAME = "raw_latents.npy", "images.npy"

Array = NDArray[Any]


@runtime_checkable
class StoredScenes(Protocol):
    """Protocol of stored images with their latents, of which any rows can be observed.

    Attributes:
        latents: The latents of each image, (N, n).

    Example:
        >>> isinstance(RenderedScenes(np.zeros((2, 3)), np.zeros((2, 1, 8, 8), np.uint8)), StoredScenes)
        True
    """  # noqa: E501

    latents: Array

    def observe(self, rows: ArrayLike | Tensor) -> Tensor:
        """Return the images of some rows, float32 in [0, 1]."""
        ...


class RenderedScenes:
    """Images rendered once and stored in bytes, in memory or in a file.

    Args:
        latents: Latents (N, n).
        images: Images (N, channels, height, width), uint8; may be memory-mapped.

    Example:
        >>> import isolatent as iso
        >>> mixing = iso.datasets.Scene3D(size=16)
        >>> world = iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(0.1), mixing, seed=0)
        >>> stored = RenderedScenes.of(world, 20)
        >>> stored, stored.observe([0, 3]).shape
        (RenderedScenes(20 images of (3, 16, 16)), torch.Size([2, 3, 16, 16]))
    """

    def __init__(self, latents: Array, images: NDArray[np.uint8]) -> None:
        if images.dtype != np.uint8 or images.ndim != 4:
            raise ValueError(
                "images must be uint8 (N, channels, height, width), got "
                f"{images.dtype} {images.shape}"
            )
        if latents.ndim != 2 or len(latents) != len(images) or latents.dtype.kind != "f":
            raise ValueError(
                f"latents must be floats ({len(images)}, n), one row for each image, got "
                f"{latents.dtype} {latents.shape}"
            )
        self.latents, self.images = latents, images

    @classmethod
    def of(
        cls, world: World, count: int, *, folder: PathLike | None = None, seed: int | None = None
    ) -> Self:
        """Draw latents from the marginal of a world, and render and store their images.

        Args:
            world: A world whose mixing renders images with values in [0, 1].
            count: Number of images.
            folder: An empty or missing directory for the file of images and that of latents; by
                default images stay in memory.
            seed: Seed of the latents; by default that of the world.
        """
        check_integer("count", count, at_least=2)
        seed = world.seed if seed is None else check_integer("seed", seed, at_least=0)
        latents = world.sample_anchors(count, Generator(world.device).manual_seed(seed))
        first = world.observe(latents[:1])
        if first.ndim != 4 or not bool((first >= 0).all()) or not bool((first <= 1).all()):
            raise ValueError(
                "world must show images (channels, height, width) with values in [0, 1], got "
                f"{tuple(first.shape[1:])} from {float(first.min()):g} to {float(first.max()):g}"
            )
        shape = (count, *first.shape[1:])
        known = latents.cpu().numpy()
        if folder is None:
            images = np.empty(shape, np.uint8)
            _fill(images, world, latents)
            return cls(known, images)
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        if any(where.iterdir()):
            raise ValueError(f"folder must be empty or missing, got {where}, which has files")
        with atomic_write(where / IMAGES_NAME) as partial:
            mapped = np.lib.format.open_memmap(partial, "w+", np.uint8, shape)
            _fill(mapped, world, latents)
            mapped.flush()
        with atomic_write(where / LATENTS_NAME) as partial, partial.open("wb") as file:
            np.save(file, known)
        return cls.open(where)

    @classmethod
    def open(cls, folder: PathLike) -> Self:
        """Open a directory that :meth:`of` wrote; images are read as they are asked for."""
        where = Path(folder)
        arrays = []
        for name in (LATENTS_NAME, IMAGES_NAME):
            if not (where / name).is_file():
                raise FileNotFoundError(f"{where / name}: does not exist")
            try:
                arrays.append(np.load(where / name, mmap_mode="r", allow_pickle=False))
            except (ValueError, EOFError, OSError) as error:
                raise ValueError(
                    f"{name}: not a complete .npy file of numbers ({error})"
                ) from error
        return cls(np.asarray(arrays[0]), arrays[1])

    def __len__(self) -> int:
        return len(self.images)

    def observe(self, rows: ArrayLike | Tensor) -> Tensor:
        """Return the images of rows (N,), float32 in [0, 1]."""
        return torch.from_numpy(self.images[np.asarray(rows)].astype(np.float32) / 255)

    def __repr__(self) -> str:
        return f"RenderedScenes({len(self)} images of {self.images.shape[1:]})"


def _fill(images: NDArray[np.uint8], world: World, latents: Tensor) -> None:
    for start in range(0, len(images), RENDERED_AT_A_TIME):
        rows = slice(start, start + RENDERED_AT_A_TIME)
        shown = world.observe(latents[rows])
        images[rows] = (255 * shown).round().to(torch.uint8).cpu().numpy()
