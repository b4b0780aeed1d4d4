"""Images that differ by a shift share the first two convolutions of their encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from isolatent.datasets import PackedImages
from isolatent.encoders import ConvEncoder
from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.inference import prepared

__all__ = ["shared_encoder"]

STRIDE = 4  # of two convolutions, each of which halves the image
MARGIN = 16  # black pixels around a window, more than two convolutions see beyond it


def shared_encoder(module: nn.Module, images: PackedImages) -> Callable[[int], Array] | None:
    r"""Return a function from the number of a window to the codes at all its places, (P, C).

    Write :math:`b` for the first layer's response to black and :math:`\delta` for what a sprite
    adds to it. The second convolution is linear, and so is

    .. math:: w * (b + \delta) = w * b + w * \delta,

    where only the first term knows of the image's border, and the second moves with the sprite in
    steps of four pixels. So :math:`w * \delta` is computed for the 16 positions within a step, and
    shifted for all others; the layers that follow are computed for each image. The first two are
    more than half of a :class:`ConvEncoder`.

    None is returned if the module does not start with two such convolutions, or if sprites reach
    the border, where a part of :math:`\delta` would be cut off.
    """
    layers = _in_a_row(module)
    windows = np.unpackbits(images.bits, axis=1).reshape(-1, *images.window)
    if not _starts_with_two_halvings(layers) or not _stay_inside(windows, images):
        return None
    first, after = nn.Sequential(*layers[:2]), prepared(nn.Sequential(*layers[3:]))
    second: Any = layers[2]
    weight, phases = next(module.parameters()), _Phases(images)
    around = [side + 2 * MARGIN for side in images.window]
    with torch.inference_mode():
        black = first(weight.new_zeros(1, 1, *around))
        border = second(first(weight.new_zeros(1, 1, *images.image))).permute(0, 2, 3, 1)

    def added(window: Tensor, down: int, right: int) -> Tensor:
        """What a window in the middle adds to each cell of the second layer: (cells, channels)."""
        sides = MARGIN + right, MARGIN - right, MARGIN + down, MARGIN - down
        delta = first(pad(window, sides)[None, None]) - black
        moved = conv2d(delta, second.weight, None, second.stride, second.padding)[0]
        return pad(moved, phases.extra).flatten(1).T.contiguous()

    def encode(number: int) -> Array:
        window = torch.from_numpy(windows[number]).to(weight)
        parts = []
        with torch.inference_mode():
            for down, right, cells in phases.groups:
                shown = added(window, down, right)[cells].add_(border)
                parts.append(after(shown.permute(0, 3, 1, 2)))
        return torch.cat(parts)[phases.order].cpu().double().numpy()

    return encode


class _Phases:
    """Places in groups that are whole steps apart.

    Attributes:
        groups: Offset down and right within a step, and for each place and each cell of its image
            (n, rows, columns) the cell of what was computed with the window in the middle.
        order: Where each place is among those of all groups.
        extra: What has to be added to that on each side, for :func:`pad`.
    """

    def __init__(self, images: PackedImages) -> None:
        middle = MARGIN // STRIDE
        room = np.subtract(images.image, images.window) // STRIDE
        more = np.maximum(0, room - middle)
        self.extra = [int(side) for side in (more[1], more[1], more[0], more[0])]
        offsets, steps = images.places % STRIDE, images.places // STRIDE
        kinds, kind = np.unique(offsets, axis=0, return_inverse=True)
        rows = [np.flatnonzero(kind == k) for k in range(len(kinds))]
        row, column = (
            start[:, None] + np.arange(side // STRIDE)
            for start, side in zip((middle + more - steps).T, images.image, strict=True)
        )
        across = images.window[1] // STRIDE + 2 * (middle + more[1])
        cells = torch.from_numpy(row[:, :, None] * across + column[:, None, :])
        self.groups = [
            (int(down), int(right), cells[members])
            for (down, right), members in zip(kinds, rows, strict=True)
        ]
        self.order = torch.from_numpy(np.argsort(np.concatenate(rows)))


def _in_a_row(module: nn.Module) -> list[nn.Module]:
    """The layers of a module, one after the other, as far as they are."""
    if isinstance(module, nn.Sequential):
        return [layer for part in module for layer in _in_a_row(part)]
    return _in_a_row(module.network) if isinstance(module, ConvEncoder) else [module]


def _starts_with_two_halvings(layers: list[nn.Module]) -> bool:
    """Whether layers start as those of a :class:`ConvEncoder` of one channel do."""
    if [type(layer) for layer in layers[:3]] != [nn.Conv2d, nn.ReLU, nn.Conv2d]:
        return False
    known: Any = ConvEncoder(1).network[0]
    names = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
    convolutions: list[Any] = [layers[0], layers[2]]
    return convolutions[0].in_channels == 1 and all(
        getattr(layer, name) == getattr(known, name) for layer in convolutions for name in names
    )


def _stay_inside(windows: npt.NDArray[np.uint8], images: PackedImages) -> bool:
    """Whether a pixel at least is black between every sprite and the border."""
    if any(side % STRIDE for side in (*images.window, *images.image)):
        return False
    for axis in range(2):
        lit, corners = np.flatnonzero(windows.any(axis=(0, 2 - axis))), images.places[:, axis]
        if not len(lit) or corners.min() + lit[0] < 1:
            return False
        if corners.max() + lit[-1] > images.image[axis] - 2:
            return False
    return True
