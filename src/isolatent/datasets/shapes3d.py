"""A Shapes3D-like world of an object in a room, rendered on demand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isolatent.datasets.factor_grid import FactorWorld
from isolatent.parallel import map_ranges, max_threads

__all__ = ["Shapes3D"]

SIZE = 64
ROOMS_PER_THREAD = 256  # least number, 10 ms of work, for which another thread pays off
OBJECT_RADIUS = np.array([0.62, 0.65, 0.8, 0.55])  # cube (half a side), cylinder, sphere, capsule
HEIGHT = np.array([1.24, 1.4, 1.6, 1.9])
CAMERA = np.array([0.0, 2.2, 4.6])
TARGET = np.array([0.0, 0.85, 0.0])
HALF_VIEW = math.tan(math.radians(26))

Array = NDArray[Any]


class Shapes3D(FactorWorld):
    r"""A Shapes3D-like world: 480 000 images, 3 × 64 × 64, of an object in a corner of a room.

    The factors are those of Shapes3D, in its order: hue of floor, wall and object (10 values each,
    from 0 to 0.9 of the colour wheel), scale (8 from 0.75 to 1.25), shape (cube, cylinder, sphere,
    capsule) and orientation, the azimuth of the camera (15 from -30° to 30°). The images are
    rendered here; :class:`FactorArray` can hold the published ones.

    References:
        Burgess, Kim: 3D shapes dataset, 2018.

    Example:
        >>> world = Shapes3D()
        >>> len(world), world.observe([[0, 3, 6, 7, 1, 7]]).shape
        (480000, torch.Size([1, 3, 64, 64]))
    """

    observation_shape = (3, SIZE, SIZE)

    def __init__(self) -> None:
        hues = np.arange(10) / 10
        super().__init__(
            sizes=(10, 10, 10, 8, 4, 15),
            names=("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"),
            categorical=(False, False, False, False, True, False),
            values=(
                *(hues, hues, hues, np.linspace(0.75, 1.25, 8)),
                *(np.arange(4), np.radians(np.linspace(-30, 30, 15))),
            ),
        )

    def _observe(self, factors: Tensor) -> Tensor:
        from isolatent.datasets.raycaster import cast, empty_rooms  # numba takes a second to import

        *hues, scale, shape, orientation = factors.numpy().T
        sizes, rays = self.values[3][scale], camera_rays()
        colours = np.stack([_colours(self.values[0][hue]) for hue in hues], axis=1)
        # The empty room is the same in all images of one orientation.
        seen, view = np.unique(orientation, return_inverse=True)
        azimuths = self.values[5][seen]
        shade, reach = np.empty((2, len(seen), SIZE, SIZE))
        empty_rooms(azimuths, rays, CAMERA, shade, reach)
        columns = (
            np.ascontiguousarray(shape),
            sizes * OBJECT_RADIUS[shape],
            sizes * HEIGHT[shape],
            view,
        )
        out = np.empty((len(factors), *self.observation_shape), np.float32)

        def work(_: int, first: int, last: int) -> None:
            room = (azimuths, shade, reach, rays, CAMERA)
            cast(*columns, colours, *room, first, last, out)

        map_ranges(work, len(out), min(max_threads(), len(out) // ROOMS_PER_THREAD))
        return torch.from_numpy(out)

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + "; Shapes3D-like)"


def camera_rays() -> Array:
    """Return unit vectors (64, 64, 3) from the camera through the centre of each pixel."""
    forward = (TARGET - CAMERA) / np.linalg.norm(TARGET - CAMERA)
    right = np.array([1.0, 0.0, 0.0])
    up = np.cross(right, forward)
    across = (np.arange(SIZE) + 0.5 - SIZE / 2) / (SIZE / 2) * HALF_VIEW
    rays = forward + across[None, :, None] * right - across[:, None, None] * up
    return rays / np.linalg.norm(rays, axis=2, keepdims=True)


def _colours(hue: Array) -> NDArray[np.float32]:
    """Return saturated colours (N, 3) of hues in [0, 1): red, green and blue at 0, 1/3, 2/3."""
    distance = np.abs((hue[:, None] - np.array([0, 1 / 3, 2 / 3]) + 0.5) % 1 - 0.5)
    return np.clip(2 - 6 * distance, 0, 1).astype(np.float32)
