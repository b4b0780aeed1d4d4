"""Images with a class each, as MNIST and CIFAR-10 have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

__all__ = ["LabelledImages"]


@dataclass(frozen=True, eq=False, repr=False)
class LabelledImages:
    """Images (N, channels, height, width) in bytes, and the class of each.

    Args:
        images: Images, uint8.
        labels: Index of the class of each image, int64 (N,).
        classes: Names of the classes.

    Example:
        >>> images = np.full((3, 1, 2, 2), 255, np.uint8)
        >>> data = LabelledImages(images, np.array([0, 1, 1]), ("off", "on"))
        >>> data, data.observe([2]).shape, float(data.observe().max())
        (LabelledImages(3 of (1, 2, 2), 2 classes), torch.Size([1, 1, 2, 2]), 1.0)
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4:
            raise ValueError(
                "images must be uint8 (N, channels, height, width), got "
                f"{self.images.dtype} {self.images.shape}"
            )
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype.kind not in "iu":
            raise ValueError(
                f"labels must be {len(self.images)} integers, one for each image, got "
                f"{self.labels.dtype} {self.labels.shape}"
            )
        allowed = range(len(self.classes))
        if len(self.labels) and (self.labels.min() < 0 or self.labels.max() >= len(allowed)):
            raise ValueError(
                f"labels must be from 0 to {len(allowed) - 1}, got values from "
                f"{self.labels.min()} to {self.labels.max()}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def observe(self, rows: ArrayLike | slice = slice(None)) -> Tensor:
        """Return the images of some rows, float32 in [0, 1]."""
        index: Any = rows if isinstance(rows, slice) else np.asarray(rows)
        return torch.from_numpy(self.images[index].astype(np.float32) / 255)

    def __repr__(self) -> str:
        shape = self.images.shape[1:]
        return f"LabelledImages({len(self)} of {shape}, {len(self.classes)} classes)"
