"""A 3DIdent-like scene with ten continuous factors, as a mixing that renders it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from isolatent.checks import check_integer
from isolatent.parallel import map_ranges, max_threads
from isolatent.worlds import Mixing

__all__ = ["SCENE_LATENTS", "Scene3D"]

SCENE_LATENTS = (
    *("x", "y", "z", "rotation_x", "rotation_y", "rotation_z"),
    *("spotlight_angle", "object_hue", "spotlight_hue", "background_hue"),
)
"""Names of the latents, in their order."""

SCENE_TOLERANCE = 1e-4  # how far a latent may lie outside [-1, 1]
SCENES_PER_THREAD = 32  # least number for which another thread pays off
EYE, LOOKED_AT = np.array([0.0, 6.0, 5.8]), np.array([0.0, 1.2, -0.1])
HALF_ANGLE = math.radians(24.5)  # of the view
# Position of the object's centre: its middle, and how far it moves to each side.
PLACE = np.array([[0.0, 0.0, 2.05], [1.10, 1.10, 0.45]])  # to the right, to the front, up
LARGEST_TURN = math.radians(60)
LARGEST_LIGHT_ANGLE = math.radians(45)
LIGHT_DISTANCE, LIGHT_DEPTH, LIGHT_TARGET = 6.0, 1.5, np.array([0.0, 1.2, -0.1])
# Centre, radii and brightness of each ellipsoid: a body with head, beak, hump and tail. The object
# is inside of a ball of the radius REACH of the renderer.
OBJECT_PARTS = np.array(
    [
        [0.00, 0.00, 0.00, 0.78, 0.54, 0.51, 0.80],
        [0.63, 0.51, 0.15, 0.38, 0.38, 0.38, 1.00],
        [1.05, 0.45, 0.39, 0.36, 0.14, 0.18, 0.55],
        [-0.30, 0.45, 0.39, 0.30, 0.23, 0.26, 0.45],
        [-0.93, -0.12, -0.33, 0.45, 0.15, 0.30, 0.65],
    ]
)

Array = NDArray[Any]


class Scene3D(Mixing):
    r"""A mixing that renders an object, :math:`g: [-1, 1]^{10} \to [0, 1]^{3 \times s \times s}`.

    The latents are the factors of 3DIdent, each from -1 to 1: position of the object to the right
    (x), to the front (y) and up (z); its rotations around three axes, by up to 60° to either side;
    the angle at which a spotlight stands above the scene; and the hues of the object, of the
    spotlight and of the floor, from red over green to violet, which is not the whole circle of
    hues. The object consists of five ellipsoids and has no symmetry. Perspective, shading, the cone
    of the spotlight and the shadow of the object on the floor are rendered, so that g is injective.
    It is continuous: edges, shadows and the cone have soft borders. It has no closed inverse, and
    :meth:`inverse` raises NotImplementedError.

    The images are *like* those of 3DIdent, whose object is a teapot and which are made by a path
    tracer; :func:`load_3dident` reads the published ones.

    Args:
        size: Height and width of the images in pixels, at least 16; 64 or 128 are usual.
        flat: Whether images are rows of numbers (N, 3 · size · size), for encoders that whiten
            their input. Images of 16 or 32 pixels keep much of the scene at a small part of the
            cost.

    References:
        Zimmermann et al., 2021.

    Example:
        >>> import isolatent as iso
        >>> mixing = Scene3D(size=32)
        >>> world = iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(0.1), mixing, seed=0)
        >>> world.sample_pairs(3)[0].shape
        torch.Size([3, 3, 32, 32])
    """

    def __init__(self, size: int = 64, flat: bool = False) -> None:
        super().__init__()
        self.size = check_integer("size", size, at_least=16, at_most=1024)
        if not isinstance(flat, bool):
            raise TypeError(f"flat must be a boolean, got {flat!r}")
        self.flat = flat
        self.image_shape = (3, self.size, self.size)

    def _observed(self, n: int) -> int:
        if n != len(SCENE_LATENTS):
            raise ValueError(
                f"n must be {len(SCENE_LATENTS)} for {self!r}, one latent for each of "
                f"{SCENE_LATENTS}, got {n}"
            )
        return 3 * self.size * self.size

    def _draw(self, n: int, n_observed: int, generator: Generator) -> None:
        pass

    def _mix(self, z: Tensor) -> Tensor:
        from isolatent.datasets.scene_raster import render_scenes  # numba takes a second to import

        inside = z.clamp(-1, 1)
        if not bool(((z - inside).abs() <= SCENE_TOLERANCE).all()):
            raise ValueError(
                f"z must lie in [-1, 1] for {self!r}, got {float(z.min())} … {float(z.max())}"
            )
        latents = np.ascontiguousarray(inside.cpu().numpy())
        poses, (rays, floor, pixel) = _poses(latents), _camera(self.size)
        out = np.empty((len(latents), 3, self.size, self.size), np.float32)

        def work(_: int, first: int, last: int) -> None:
            view = (rays, floor, EYE, pixel)
            render_scenes(latents, poses, OBJECT_PARTS, *view, first, last, out)

        map_ranges(work, len(out), min(max_threads(), len(out) // SCENES_PER_THREAD))
        images = torch.from_numpy(out).to(z.device)
        return images.flatten(1) if self.flat else images

    def _unmix(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{self!r} has no inverse in closed form")

    def inverse(self, x: Tensor) -> Tensor:
        """Raise NotImplementedError."""
        return self._unmix(x)


def _poses(latents: Array) -> Array:
    """Return position and angles of the object, and position and axis of the spotlight (N, 12)."""
    right, front, up = (PLACE[0] + PLACE[1] * latents[:, :3]).T
    angle = LARGEST_LIGHT_ANGLE * latents[:, 6]
    light = np.stack(
        [
            LIGHT_DISTANCE * np.sin(angle),
            LIGHT_DISTANCE * np.cos(angle),
            np.full_like(angle, LIGHT_DEPTH),
        ],
        axis=1,
    )
    axis = LIGHT_TARGET - light
    axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    turns = LARGEST_TURN * latents[:, 3:6]
    return np.concatenate([np.stack([right, up, front], axis=1), turns, light, axis], axis=1)


@lru_cache(maxsize=8)
def _camera(size: int) -> tuple[Array, Array, float]:
    """Return rays (S, S, 3) through the pixels, where they meet the floor, and a pixel's angle."""
    forward = (LOOKED_AT - EYE) / np.linalg.norm(LOOKED_AT - EYE)
    right = np.array([1.0, 0.0, 0.0])
    up = np.cross(right, forward)
    half = math.tan(HALF_ANGLE)
    across = (np.arange(size) + 0.5 - size / 2) / (size / 2) * half
    rays = forward + across[None, :, None] * right - across[:, None, None] * up
    rays = rays / np.linalg.norm(rays, axis=2, keepdims=True)
    floor = EYE - EYE[1] / rays[..., 1:2] * rays
    return rays, floor, 2 * half / size
