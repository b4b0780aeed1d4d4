"""Images as data of the commands: folders, videos and arrays of images."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray

from isolatent.checks import check_one_of
from isolatent.cli.data_options import parse_memory

if TYPE_CHECKING:
    from isolatent.pairs import AugmentedPairs, ImagePairs, Images
    from isolatent.training import ContrastiveICA

__all__ = [
    "IMAGE_ENCODER_NAMES",
    "ImageData",
    "check_image_options",
    "encode_images",
    "is_image_data",
    "read_for_model",
    "read_image_data",
    "some_images",
]

IMAGE_ENCODER_NAMES = ("pooled", "conv", "residual")
DEFAULT_SIZE = 64  # pixels of a side, for larger images
SHOWN = 4096  # images that a report is about
ENCODED_AT_A_TIME = 1024
SECONDS_BETWEEN_LINES = 10.0
# Directories that are one file of another format.
OTHER_DIRECTORIES = (".zarr", ".n5")


@dataclass(frozen=True)
class ImageData:
    """Images and the pairs of them to train on."""

    images: Images
    pairs: ImagePairs | AugmentedPairs
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return what the data are, for the first line of a fit."""
        n, channels, height, width = self.images.shape
        what = "two augmented views of each"
        if hasattr(self.pairs, "rows"):
            what = f"{len(self.pairs)} pairs"
            if self.images.groups is not None:
                what += f", {len(np.unique(self.images.groups))} sequences"
        return f"{n} images of {channels} × {height} × {width}, {what}"


def is_image_data(path: Path) -> bool:
    """Return whether a path is a folder, a video, or an .npy file of images in whole numbers.

    Arrays of images in floating point, which may be on any scale, are left to the reader of arrays.
    """
    from isolatent.pairs.readers import VIDEO_SUFFIXES

    suffix = path.suffix.lower()
    if path.is_dir():
        return suffix not in OTHER_DIRECTORIES
    if suffix != ".npy":
        return suffix in VIDEO_SUFFIXES
    if not path.is_file():
        return False
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array.ndim in (3, 4) and array.dtype.kind in "ub"
    except (ValueError, EOFError, AttributeError):
        return False  # which the reader of arrays explains


def check_image_options(options: Mapping[str, Any], images: bool) -> None:
    """Raise an error if options are for images and the data are not, or the other way round."""
    for_images = ("pairs", "augment", "image_size", "grayscale")
    for_tables = (
        *("data_pos", "session", "counts", "columns", "drop", "time", "positive_suffix", "array"),
    )
    unfit = for_tables if images else for_images
    for name in unfit:
        if options[name]:
            what = "tables and arrays of rows" if images else "a folder of images or a video"
            where = "DATA_POS" if name == "data_pos" else f"--{name.replace('_', '-')}"
            raise ValueError(f"{where} is for {what}, got DATA {options['data']}")
    if not images:
        return
    if options["encoder"] is not None:
        check_one_of("--encoder", options["encoder"], IMAGE_ENCODER_NAMES)
    parse_size(options["image_size"])
    given = [name for name in ("pairs", "augment", "lag") if options[name] is not None]
    if len(given) > 1:
        raise ValueError(
            f"--{given[0]} and --{given[1]} exclude each other: each says what a pair is"
        )


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Return height and width of --image-size.

    Example:
        >>> parse_size("64"), parse_size("48x64")
        ((64, 64), (48, 64))
    """
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"--image-size must be a number of pixels, or two as 48x64, got {text!r}")
    return int(parts[0]), int(parts[-1])


def read_image_data(
    options: Mapping[str, Any], lag: tuple[int, int], quiet: bool = False
) -> ImageData:
    """Read the images of ``fit`` and make pairs of them.

    Args:
        options: The options of the command.
        lag: The shortest and the longest lag.
        quiet: Whether to print no progress.
    """
    from isolatent.pairs import AugmentedPairs, ImagePairs, read_image_pairs

    images = _read(
        options["data"],
        parse_size(options["image_size"]),
        True if options["grayscale"] else None,
        quiet,
        options["max_memory"],
    )
    notes: tuple[str, ...] = ()
    if options["encoder"] is None and _may_be_trials(options["data"]):
        notes = (
            "whole numbers with three axes are taken for images; if the axes are trials, time and "
            "columns, use --encoder mlp",
        )
    if options["augment"] is not None:
        views = AugmentedPairs(images, _augmentations(options, images.shape[1]))
        return ImageData(images, views, notes)
    if options["pairs"] is not None:
        return ImageData(images, read_image_pairs(images, options["pairs"]), notes)
    longest = len(images)
    if images.groups is not None:
        longest = int(np.unique(images.groups, return_counts=True)[1].max())
    if lag[1] >= longest:
        raise ValueError(
            f"--lag must be shorter than the longest sequence, {longest} images, got {lag[1]}"
        )
    return ImageData(images, ImagePairs.from_sequences(images, lag), notes)


def _may_be_trials(data: Path) -> bool:
    """Return whether images are an array with the axes that trials have, too."""
    if data.suffix.lower() != ".npy":
        return False
    return int(np.load(data, mmap_mode="r", allow_pickle=False).ndim) == 3


def _augmentations(options: Mapping[str, Any], channels: int) -> Any:
    from isolatent.pairs.augmentations import AUGMENTATIONS, Augmentations

    if options["augment"] == "all":
        return Augmentations.for_channels(channels)
    names = [name.strip() for name in options["augment"].split(",")]
    for name in names:
        check_one_of(
            "--augment", name, ("all", *AUGMENTATIONS) if len(names) == 1 else AUGMENTATIONS
        )
    return Augmentations.only(names)


def read_for_model(model: ContrastiveICA, data: Path, max_memory: str | None = None) -> Images:
    """Read images in the size that a model was fitted to, more of them than memory to disk."""
    shape = model.observation_shape_
    if len(shape) != 3:
        raise ValueError(f"{data}: must be a file like the training data, got images")
    channels, height, width = shape
    size = None if data.suffix.lower() == ".npy" else (height, width)
    images = _read(data, size, {1: True, 3: False}.get(channels), True, max_memory)
    if images.shape[1:] != shape:
        expected, got = (" × ".join(map(str, sizes)) for sizes in (shape, images.shape[1:]))
        raise ValueError(
            f"{data}: must hold images of {expected} like the training data, got {got}"
        )
    return images


def encode_images(model: ContrastiveICA, images: Images) -> NDArray[Any]:
    """Return the codes of all images, which are read a part at a time."""
    parts = range(0, len(images), ENCODED_AT_A_TIME)
    return np.concatenate(
        [model.transform(images.read(slice(k, k + ENCODED_AT_A_TIME)).numpy()) for k in parts]
    )


def some_images(images: Images) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return evenly spaced images, at most 4096, and their row numbers."""
    rows = np.unique(np.linspace(0, len(images) - 1, min(len(images), SHOWN)).round().astype(int))
    return images.read(rows).numpy(), rows


def _read(
    data: Path,
    size: tuple[int, int] | None,
    grayscale: bool | None,
    quiet: bool,
    max_memory: str | None,
) -> Images:
    from isolatent.pairs import Images, read_images
    from isolatent.pairs.images import MEMORY, default_size

    memory = MEMORY if max_memory is None else parse_memory(max_memory)
    if data.suffix.lower() == ".npy":
        if size is not None or (grayscale and not quiet):
            raise ValueError("--image-size and --grayscale are for files of images, not for arrays")
        try:
            return Images(np.load(data, mmap_mode="r", allow_pickle=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{data.name}: {error}") from error
    if size is None:
        size = default_size(data, DEFAULT_SIZE)
    printed = time.monotonic()

    def report(done: int, total: int, per_second: float) -> None:
        nonlocal printed
        now = time.monotonic()
        if not quiet and (done == total or now - printed >= SECONDS_BETWEEN_LINES):
            of = f" of {total}" if total else ""
            typer.echo(f"decoded {done}{of} images, {per_second:.0f} images/s", err=True)
            printed = now

    return read_images(data, size=size, grayscale=grayscale, memory=memory, report=report)
