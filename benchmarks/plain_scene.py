"""The 3-D scene in plain NumPy: what the compiled renderer is compared with, in time and values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isolatent.datasets import scene3d, scene_raster

Array = NDArray[Any]


def render_plainly(latents: Array, size: int = 64) -> Array:
    """Return images (N, 3, size, size) of latents (N, 10), one after the other."""
    rays, floor, pixel = scene3d._camera(size)
    poses = scene3d._poses(latents)
    return np.stack(
        [_render(z, pose, rays, floor, pixel) for z, pose in zip(latents, poses, strict=True)]
    ).astype(np.float32)


def _step(x: Array) -> Array:
    x = np.clip(x, 0, 1)
    return np.asarray(x * x * (3 - 2 * x))


def _turn(angles: Array) -> Array:
    turns = []
    for axis, angle in enumerate(angles):
        c, s = np.cos(angle), np.sin(angle)
        turn = np.eye(3)
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn[i, i], turn[i, j], turn[j, i], turn[j, j] = c, -s, s, c
        turns.append(turn)
    return np.asarray(turns[2] @ turns[1] @ turns[0])


def _spot(points: Array, normals: Array, light: Array, axis: Array) -> Array:
    way = points - light
    way /= np.linalg.norm(way, axis=-1, keepdims=True)
    inner, outer = scene_raster.CONE_INNER, scene_raster.CONE_OUTER
    towards = np.maximum(-(way * normals).sum(-1), 0)
    return np.asarray(towards * _step((way @ axis - outer) / (inner - outer)))


def _render(z: Array, pose: Array, rays: Array, floor: Array, pixel: float) -> Array:
    centre, angles, light, axis = pose.reshape(4, 3)
    camera, parts, turn = scene3d.EYE, scene3d.OBJECT_PARTS, _turn(angles)
    middles = centre + parts[:, :3] @ turn.T
    to_unit = turn.T / parts[:, 3:6, None]  # (K, 3, 3)
    hue = 0.375 * (z[7:, None] + 1) - np.arange(3) / 3
    body, lamp, ground = 0.6 + 0.4 * np.cos(2 * np.pi * hue)

    up = np.array([0.0, 1.0, 0.0])
    spot = _spot(floor, up, light, axis)
    way = np.einsum("kab,ijb->kija", to_unit, floor - light)
    start = np.einsum("kab,kb->ka", to_unit, light - middles)[:, None, None]
    along = (start * way).sum(-1)
    closest = np.sqrt(np.maximum((start**2).sum(-1) - along**2 / (way**2).sum(-1), 0))
    spot *= np.prod(1 - _step(0.5 + (1 - closest) / scene_raster.PENUMBRA), axis=0)

    way = np.einsum("kab,ijb->kija", to_unit, rays)
    start = np.einsum("kab,kb->ka", to_unit, camera - middles)[:, None, None]
    square, along = (way**2).sum(-1), (start * way).sum(-1)
    over = 1 - np.maximum((start**2).sum(-1) - along**2 / square, 0)
    width = 1.5 * pixel * np.linalg.norm(centre - camera) / parts[:, 3:6].mean(1)[:, None, None]
    cover = _step(0.5 + (1 - np.sqrt(1 - over)) / width)
    root = np.sqrt(0.5 * (over + np.sqrt(over**2 + (0.5 * width) ** 2)))
    depth = (-along - root * np.sqrt(square)) / square
    normals = np.einsum("kab,kija->kijb", to_unit, start + depth[..., None] * way)
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    points = camera + depth[..., None] * rays
    bright = parts[:, 6, None, None]
    ambient = scene_raster.AMBIENT * (0.75 + 0.25 * normals[..., 1]) * bright
    lit = scene_raster.SPOT * _spot(points, normals, light, axis) * bright

    ahead = _step(0.5 + (depth[:, None] - depth) / scene_raster.MERGED)  # of k: the second
    hidden = 1 - cover * ahead
    hidden[np.arange(len(parts)), np.arange(len(parts))] = 1
    weight = cover * hidden.prod(axis=1)
    left = (1 - cover).prod(axis=0)
    total = np.maximum(weight.sum(0), 1e-300)
    shown = body[:, None, None] * (
        (weight * ambient).sum(0) + lamp[:, None, None] * (weight * lit).sum(0)
    )
    base = scene_raster.AMBIENT + scene_raster.SPOT * lamp[:, None, None] * spot
    return np.asarray(left * ground[:, None, None] * base + (1 - left) * shown / total)
