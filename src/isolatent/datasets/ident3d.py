"""Reader of the published folder of 3DIdent."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from isolatent.checks import check_integer, check_one_of
from isolatent.datasets.published_files import PathLike, Publication

__all__ = ["Ident3D", "load_3dident"]

IDENT3D = Publication("3DIdent", "published by its authors as Zenodo record 4502485")
IDENT3D_PARTS = ("train", "test")
LATENTS_FILE = "raw_latents.npy"
IMAGES_FOLDER = "images"
IDENT3D_SIDE = 224  # pixels
IDENT3D_LATENTS = (
    *("x", "y", "z", "rotation_1", "rotation_2", "rotation_3"),
    *("spotlight_angle", "object_hue", "spotlight_hue", "background_hue"),
)
LATENT_SLACK = 1e-4  # how far a stored latent may lie outside [-1, 1]
READERS = 4  # threads that decode images; they wait for the disk part of the time
LISTED_NAMES = 3  # of files that do not belong, in a message

Array = NDArray[Any]


class Ident3D:
    """The published images of one part of 3DIdent, read from disk as they are asked for.

    Args:
        folder: Folder with ``raw_latents.npy`` and ``images``.
        size: Side to which images are reduced by averaging; by default they stay 224 pixels.

    Attributes:
        latents: The ten latents of each image, memory-mapped, in [-1, 1].
        names: Names of the latents.

    Raises:
        ValueError: If latents and names of images do not fit together.
    """

    names = IDENT3D_LATENTS

    def __init__(self, folder: PathLike, size: int | None = None) -> None:
        self.folder = Path(folder)
        self.size = IDENT3D_SIDE
        if size is not None:
            self.size = check_integer("size", size, at_least=8, at_most=IDENT3D_SIDE)
        self.latents = _read_latents(self.folder / LATENTS_FILE)
        self._digits = _check_names(self.folder / IMAGES_FOLDER, len(self.latents))

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """Shape of an image."""
        return (3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.latents)

    def observe(self, rows: ArrayLike | Tensor) -> Tensor:
        """Return the images of rows (N,), float32 (N, 3, size, size) in [0, 1]."""
        wanted = np.asarray(rows)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            raise ValueError(f"rows must be integers (N,), got {wanted.dtype} {wanted.shape}")
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(
                f"rows must be from 0 to {len(self) - 1}, got {wanted.min()} … {wanted.max()}"
            )
        out = np.empty((len(wanted), *self.observation_shape), np.float32)

        def read(k: int) -> None:
            out[k] = self._read(int(wanted[k]))

        with ThreadPoolExecutor(READERS) as pool:
            for _ in pool.map(read, range(len(wanted))):
                pass
        return torch.from_numpy(out)

    def _read(self, row: int) -> NDArray[np.float32]:
        from PIL import Image, UnidentifiedImageError

        path = self.folder / IMAGES_FOLDER / f"{row:0{self._digits}d}.png"
        try:
            with Image.open(path, formats=["PNG"]) as image:
                if image.size != (IDENT3D_SIDE, IDENT3D_SIDE):
                    raise ValueError(
                        f"must be {IDENT3D_SIDE} x {IDENT3D_SIDE} pixels, got "
                        f"{image.size[0]} x {image.size[1]}"
                    )
                pixels = image.convert("RGB")
        except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
            raise ValueError(f"{IMAGES_FOLDER}/{path.name}: not a PNG image ({error})") from error
        except (OSError, ValueError) as error:
            raise ValueError(f"{IMAGES_FOLDER}/{path.name}: {error}") from error
        if self.size != IDENT3D_SIDE:
            pixels = pixels.resize((self.size, self.size), Image.Resampling.BOX)
        planes = np.asarray(pixels, np.float32).transpose(2, 0, 1)
        return np.asarray(planes / 255, np.float32)

    def __repr__(self) -> str:
        return f"Ident3D({len(self)} images of {self.observation_shape}, {self.folder.name})"


def load_3dident(
    path: PathLike | None = None, part: str = "train", *, size: int | None = None
) -> Ident3D:
    r"""Open the published 3DIdent images: 250 000 for training or 25 000 for tests.

    Images are read from disk as they are asked for, never all at once; reading them requires
    Pillow (``isolatent[images]``).

    Args:
        path: The folder with ``raw_latents.npy`` and ``images``, or a directory that holds the
            folders ``train`` and ``test``; by default the directory in the environment variable
            ``ISOLATENT_DATA``.
        part: ``"train"`` or ``"test"``, where the path holds both.
        size: Side to which images are reduced by averaging; by default they stay 224 pixels.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If the folder has another layout than the published one; files that do not
            belong in it are named.

    References:
        Zimmermann et al., 2021.
    """
    check_one_of("part", part, IDENT3D_PARTS)
    parts = Publication(
        IDENT3D.dataset, IDENT3D.origin, (part, f"3dident/{part}", f"3DIdent/{part}")
    )
    found = parts.find(path, LATENTS_FILE)
    return Ident3D(found.parent, size)


def _read_latents(path: Path) -> Array:
    """Return the latents (N, 10) of the file, memory-mapped."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: does not exist; it is part of 3DIdent ({IDENT3D.origin})")
    try:
        latents: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path.name}: not a complete .npy file of numbers ({error})") from error
    shape = (len(IDENT3D_LATENTS),)
    if latents.ndim != 2 or latents.shape[1:] != shape or latents.dtype.kind != "f":
        raise ValueError(
            f"{path.name}: must hold floats (N, {shape[0]}), got {latents.dtype} {latents.shape}"
        )
    # Written so that NaN fails.
    if len(latents) < 2 or not bool((np.abs(latents) <= 1 + LATENT_SLACK).all()):
        raise ValueError(f"{path.name}: must have at least 2 rows of latents in [-1, 1]")
    return latents


def _check_names(folder: Path, count: int) -> int:
    """Check that a folder has images 0 to count - 1 and nothing else; return the digits of names.

    Names are checked here, contents where they are read: opening all files would take minutes.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: does not exist; expected the images of 3DIdent")
    names = [entry.name for entry in os.scandir(folder)]
    strays = sorted(name for name in names if not re.fullmatch(r"\d+\.png", name))
    if strays:
        more = len(strays) - LISTED_NAMES
        listed = ", ".join(strays[:LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")
        raise ValueError(
            f"{IMAGES_FOLDER}: must hold images with numbers as their names only, got {listed}"
        )
    lengths = {len(name) for name in names}
    digits = max(lengths, default=5) - len(".png")
    missing = np.setdiff1d(np.arange(count), [int(name[:-4]) for name in names])
    if len(lengths) > 1 or len(missing) or len(names) != count:
        first = f"; {missing[0]:0{digits}d}.png is missing" if len(missing) else ""
        raise ValueError(
            f"{IMAGES_FOLDER}: must hold one image for each of the {count} rows of {LATENTS_FILE}, "
            f"numbered from 0 with as many digits each, got {len(names)} images{first}"
        )
    return digits
