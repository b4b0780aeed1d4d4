"""Random views of images as pairs, with the parameters of every draw."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_one_of, check_real
from isolatent.pairs.arrays import draw_distinct
from isolatent.pairs.images import Images
from isolatent.pairs.source import SplitError

__all__ = [
    "AUGMENTATIONS",
    "AugmentationParameters",
    "Augmentations",
    "AugmentedPairs",
    "KnownViews",
    "augment",
]

COLOUR_ONLY = ("saturation", "hue", "grayscale")
AUGMENTATIONS = ("crop", "flip", "brightness", "contrast", *COLOUR_ONLY)
LUMA = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)  # of red, green and blue
# From RGB to luma and two axes of chroma (YIQ), in which hue is an angle.
YIQ = torch.tensor(
    [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]],
    dtype=torch.float64,
)
VIEWS_AT_A_TIME = 256  # images augmented at a time, so that intermediate results stay in the cache


class AugmentationParameters(NamedTuple):
    """What was done to each of N images.

    Attributes:
        crop: Window (N, 4) as top, left, height and width, in shares of the image.
        flip: Whether the window was mirrored, left to right: (N,).
        brightness: Factor of all pixels (N,), 1 where it was not applied.
        contrast: Factor of the deviations from the mean luma (N,), 1 where it was not applied.
        saturation: Factor of the deviations from a pixel's luma (N,), 1 where it was not applied.
        hue: Turn of the hue in revolutions (N,), 0 where it was not applied.
        grayscale: Whether colours were replaced by their luma (N,).
    """

    crop: Tensor
    flip: Tensor
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    hue: Tensor
    grayscale: Tensor

    def applied(self) -> dict[str, Tensor]:
        """Return for each augmentation whether it was applied, (N,).

        Example:
            >>> drawn = Augmentations(hue=0.0).draw(100, Generator().manual_seed(0))
            >>> {name: int(which.sum()) for name, which in drawn.applied().items()}["hue"]
            0
        """
        return {
            "crop": (self.crop != torch.tensor([0.0, 0.0, 1.0, 1.0])).any(1),
            "flip": self.flip,
            "brightness": self.brightness != 1,
            "contrast": self.contrast != 1,
            "saturation": self.saturation != 1,
            "hue": self.hue != 0,
            "grayscale": self.grayscale,
        }

    def strengths(self) -> dict[str, Tensor]:
        """Return the continuous parameters by name, (N,) each.

        Position and size of the window are in shares of the image, colour factors are logarithms.
        """
        top, left, height, width = self.crop.T
        return {
            "crop_row": top + height / 2,
            "crop_column": left + width / 2,
            "crop_area": height * width,
            "brightness": self.brightness.log(),
            "contrast": self.contrast.log(),
            "saturation": self.saturation.log(),
            "hue": self.hue,
        }

    def rows(self, chosen: slice) -> AugmentationParameters:
        """Return the parameters of some of the images."""
        return AugmentationParameters(*(part[chosen] for part in self))


@dataclass(frozen=True)
class Augmentations:
    r"""Distributions of the parameters of random views.

    A view is a window of the image, resampled to the size of the image, perhaps mirrored, with
    other colours. Each of the colour changes is applied independently.

    Args:
        crop: Least share of the area that a window covers; 1 for the whole image. The share is
            uniform between it and 1, the logarithm of the ratio of the sides, relative to those of
            the image, between log 3/4 and log 4/3.
        flip: Probability of mirroring.
        brightness: Largest change b of the brightness: its factor is uniform on [1 - b, 1 + b].
        contrast: Largest change of the contrast.
        saturation: Largest change of the saturation.
        hue: Largest turn of the hue, in revolutions, at most 0.5.
        jitter: Probability with which brightness, contrast, saturation and hue are changed, each.
        grayscale: Probability of replacing colours by their luma.

    Example:
        >>> drawn = Augmentations().draw(4, Generator().manual_seed(0))
        >>> drawn.crop.shape, drawn.flip.tolist()
        (torch.Size([4, 4]), [False, False, True, True])
    """

    crop: float = 0.2
    flip: float = 0.5
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    jitter: float = 0.8
    grayscale: float = 0.2

    def __post_init__(self) -> None:
        check_real("crop", self.crop, above=0)
        if self.crop > 1:
            raise ValueError(f"crop must be a share of the area, at most 1, got {self.crop}")
        for name in ("flip", "jitter", "grayscale", "brightness", "contrast", "saturation", "hue"):
            most = 0.5 if name == "hue" else 1.0
            if check_real(name, getattr(self, name), at_least=0) > most:
                raise ValueError(f"{name} must be at most {most:g}, got {getattr(self, name)}")
        if all(not self.uses(name) for name in AUGMENTATIONS):
            raise ValueError("augmentations must change something: all of them are left out")

    @classmethod
    def only(cls, names: Sequence[str]) -> Augmentations:
        """Return the default strengths of some augmentations, without the others.

        Args:
            names: Some of ``AUGMENTATIONS``.

        Example:
            >>> Augmentations.only(["crop", "flip"]).grayscale
            0.0
        """
        for name in names:
            check_one_of("names", name, AUGMENTATIONS)
        left_out = {name: 1.0 if name == "crop" else 0.0 for name in set(AUGMENTATIONS) - {*names}}
        return cls(**left_out)

    @classmethod
    def for_channels(cls, channels: int) -> Augmentations:
        """Return all that suit images: those of colour only for three channels."""
        names = [name for name in AUGMENTATIONS if channels == 3 or name not in COLOUR_ONLY]
        return cls.only(names)

    def uses(self, name: str) -> bool:
        """Return whether images may be changed by an augmentation."""
        value = getattr(self, check_one_of("name", name, AUGMENTATIONS))
        if name == "crop":
            return bool(value < 1)
        jittered = name in ("brightness", "contrast", "saturation", "hue")
        return bool(value > 0 and (not jittered or self.jitter > 0))

    def check(self, channels: int) -> None:
        """Raise ValueError if images with so many channels cannot be changed like this."""
        if channels in (1, 3):
            unfit = [name for name in COLOUR_ONLY if channels == 1 and self.uses(name)]
        else:
            unfit = [name for name in AUGMENTATIONS[2:] if self.uses(name)]
        if unfit:
            raise ValueError(
                f"{unfit[0]} must be 0 for images with {channels} channels, got "
                f"{getattr(self, unfit[0])}; Augmentations.for_channels({channels}) has what fits"
            )

    def draw(self, count: int, generator: Generator) -> AugmentationParameters:
        """Draw the parameters of ``count`` views."""
        check_integer("count", count, at_least=1)
        check_generator("generator", generator)
        # As many numbers whatever is used, so that one augmentation does not change the others.
        u = torch.rand(14, count, generator=generator, device=generator.device).cpu()
        area = self.crop + (1 - self.crop) * u[0]
        ratio = torch.exp((2 * u[1] - 1) * math.log(4 / 3)) if self.crop < 1 else torch.ones(count)
        height, width = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
        crop = torch.stack([u[2] * (1 - height), u[3] * (1 - width), height, width], dim=1)

        def factor(most: float, size: Tensor, chance: Tensor, neutral: float) -> Tensor:
            drawn = neutral + most * (2 * size - 1)
            return torch.where(chance < (self.jitter if most else 0.0), drawn, neutral)

        return AugmentationParameters(
            crop=crop,
            flip=u[4] < self.flip,
            # A factor of zero would leave nothing of the image.
            brightness=factor(self.brightness, u[5], u[6], 1.0).clamp(min=0.01),
            contrast=factor(self.contrast, u[7], u[8], 1.0).clamp(min=0.01),
            saturation=factor(self.saturation, u[9], u[10], 1.0).clamp(min=0.01),
            hue=factor(self.hue, u[11], u[12], 0.0),
            grayscale=u[13] < self.grayscale,
        )


def augment(images: Tensor, parameters: AugmentationParameters) -> Tensor:
    r"""Return views of images.

    Windows are resampled by a triangle filter, which is as wide as a pixel of the window or of the
    view, whichever is larger: bilinear interpolation where the window is enlarged. Rows and columns
    are filtered one after the other, as products with small matrices. Colours change in the order
    brightness, contrast, saturation, hue, grayscale, by one affine map for each image, and are
    clipped to [0, 1] at the end. Hue turns the two axes of chroma of YIQ, which keeps the luma.

    Args:
        images: Images (N, C, H, W) with pixels in [0, 1].
        parameters: Their parameters, drawn by :meth:`Augmentations.draw`.

    Example:
        >>> images = torch.rand(4, 3, 32, 32)
        >>> drawn = Augmentations().draw(4, Generator().manual_seed(0))
        >>> augment(images, drawn).shape
        torch.Size([4, 3, 32, 32])
    """
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(
            f"images must be floats of shape (N, channels, height, width), got {images.dtype} of "
            f"shape {tuple(images.shape)}"
        )
    if len(images) != len(parameters.flip):
        raise ValueError(
            f"parameters must be those of {len(images)} images, got {len(parameters.flip)}"
        )
    parts = range(0, len(images), VIEWS_AT_A_TIME)
    views = [
        _augment(images[k : k + VIEWS_AT_A_TIME], parameters.rows(slice(k, k + VIEWS_AT_A_TIME)))
        for k in parts
    ]
    return torch.cat(views)


def _augment(images: Tensor, drawn: AugmentationParameters) -> Tensor:
    top, left, height, width = drawn.crop.to(images.dtype).T
    views = images
    if bool(drawn.flip.any()) or bool(drawn.applied()["crop"].any()):
        n, channels, rows, columns = images.shape
        down = _filters(top, height, rows).to(images)
        across = _filters(left, width, columns).to(images)
        across = torch.where(drawn.flip.view(-1, 1, 1), across.flip(1), across)
        # All channels of an image share its filters.
        views = torch.bmm(images.reshape(n, channels * rows, columns), across.mT)
        views = (down[:, None] @ views.view(n, channels, rows, columns)).contiguous()
    return _recolour(views, drawn)


def _filters(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Return matrices (N, size, size) that resample windows of an axis by a triangle filter."""
    # Coordinates in pixels, of the centres of the view's pixels.
    step = length[:, None]
    centres = start[:, None] * size + (torch.arange(size) + 0.5) * step
    pixels = torch.arange(size) + 0.5
    # Windows are at most as long as the image, so a pixel of the view is at most one of the image.
    weights = (1 - (centres[:, :, None] - pixels).abs()).clamp(min=0)
    return weights / weights.sum(2, keepdim=True)


def _recolour(images: Tensor, drawn: AugmentationParameters) -> Tensor:
    """Apply the affine map of colours of each image, and clip."""
    n, channels = images.shape[:2]
    changed = drawn.applied()
    if not any(bool(changed[name].any()) for name in AUGMENTATIONS[2:]):
        return images
    gain = (drawn.brightness * drawn.contrast).to(images.dtype)
    means = images.mean((2, 3))
    if channels == 1:
        offset = (drawn.brightness * (1 - drawn.contrast)).to(images.dtype)[:, None] * means
        return (gain.view(n, 1, 1, 1) * images + offset.view(n, 1, 1, 1)).clamp(0, 1)
    if channels != 3:
        raise ValueError(f"images must have 1 or 3 channels to change colours, got {channels}")
    matrix = colour_matrices(drawn.saturation, drawn.hue, drawn.grayscale).to(images.dtype)
    luma = means @ LUMA.to(images.dtype)
    # Of a gray offset all matrices leave what it is.
    offset = (drawn.brightness * (1 - drawn.contrast)).to(images.dtype) * luma
    mapped = torch.baddbmm(
        offset.view(n, 1, 1), gain.view(n, 1, 1) * matrix, images.reshape(n, 3, -1)
    )
    return mapped.clamp_(0, 1).view_as(images)


def colour_matrices(saturation: Tensor, hue: Tensor, grayscale: Tensor) -> Tensor:
    """Return matrices (N, 3, 3) that change saturation and hue, and keep the luma of each colour.

    Example:
        >>> (matrix,) = colour_matrices(torch.ones(1), torch.full((1,), 0.1), torch.zeros(1).bool())
        >>> torch.allclose(LUMA @ matrix, LUMA)
        True
    """
    angle = 2 * math.pi * hue.double()
    chroma = torch.where(grayscale, 0.0, saturation.double())
    cos, sin, zero = chroma * angle.cos(), chroma * angle.sin(), torch.zeros_like(chroma)
    turn = torch.stack(
        [
            *(torch.ones_like(chroma), zero, zero),
            *(zero, cos, sin),  # from red to green, as on the colour wheel
            *(zero, -sin, cos),
        ],
        dim=1,
    ).view(-1, 3, 3)
    return torch.linalg.inv(YIQ) @ turn @ YIQ


class KnownViews(NamedTuple):
    """Two views of each image, how they were made, and the rows of the images."""

    x: Tensor
    x_pos: Tensor
    parameters: AugmentationParameters
    parameters_pos: AugmentationParameters
    rows: np.ndarray[Any, Any]


class AugmentedPairs:
    """Pairs of two random views of one image: a finite pair source.

    Images are drawn without replacement within a batch. Anchor and positive are distributed alike,
    so no dynamics can be learned from them.

    Args:
        images: The images.
        augmentations: Distributions of the views; by default all that suit the images.

    Example:
        >>> images = Images(np.random.default_rng(0).random((50, 3, 32, 32)))
        >>> pairs = AugmentedPairs(images, Augmentations.only(["crop", "hue"]))
        >>> known = pairs.sample_known(8, Generator().manual_seed(0))
        >>> known.x.shape, known.parameters.hue.shape
        (torch.Size([8, 3, 32, 32]), torch.Size([8]))
    """

    ordered = False

    def __init__(self, images: Images, augmentations: Augmentations | None = None) -> None:
        if not isinstance(images, Images):
            raise TypeError(f"images must be Images, got {type(images).__name__}")
        if augmentations is None:
            augmentations = Augmentations.for_channels(images.shape[1])
        if not isinstance(augmentations, Augmentations):
            raise TypeError(f"augmentations must be Augmentations, got {augmentations!r}")
        augmentations.check(images.shape[1])
        self.images, self.augmentations = images, augmentations
        self._rows = np.arange(len(images))

    def __len__(self) -> int:
        return len(self._rows)

    def split(self, share: float, generator: Generator) -> tuple[AugmentedPairs, AugmentedPairs]:
        """Split the images at random: most of them, and ``share`` of them."""
        check_real("share", share, above=0, below=1)
        check_generator("generator", generator)
        cut = round(len(self) * (1 - share))
        if not 2 <= cut <= len(self) - 2:
            raise SplitError(
                f"share must leave at least 2 of the {len(self)} images on either side, got {share}"
            )
        order = torch.randperm(len(self), generator=generator, device=generator.device).cpu()
        most, rest = copy.copy(self), copy.copy(self)
        most._rows = np.sort(self._rows[order[:cut].numpy()])
        rest._rows = np.sort(self._rows[order[cut:].numpy()])
        return most, rest

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs of views."""
        known = self.sample_known(batch_size, generator)
        return known.x, known.x_pos

    def sample_known(self, batch_size: int, generator: Generator) -> KnownViews:
        """Draw the pairs that ``sample`` draws, with the parameters of both views."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        rows = self._rows[draw_distinct(len(self), batch_size, generator)]
        images = self.images.read(rows)
        first, second = (self.augmentations.draw(batch_size, generator) for _ in range(2))
        return KnownViews(augment(images, first), augment(images, second), first, second, rows)

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self.augmentations, field.name):g}"
            for field in fields(self.augmentations)
        ]
        return f"AugmentedPairs({len(self)} images, {', '.join(changed)})"
