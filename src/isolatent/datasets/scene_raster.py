r"""Compiled renderer of an object above a floor, lit by a spotlight; continuous in all it is given.

The object is a union of ellipsoids. In the coordinates in which an ellipsoid is the unit ball, a
ray :math:`o + t d` comes as close to its centre as :math:`\rho`, :math:`\rho^2 = |o|^2 - (o \cdot
d)^2 / |d|^2`. Images of rays that hit or miss would jump where an edge crosses the centre of a
pixel. So an ellipsoid *covers* a pixel by a share that falls smoothly from 1 to 0 over the width of
a pixel, as ρ rises past 1; which of two surfaces is in front is a share as well, where they are
closer than ``MERGED``; shadows have penumbras; and the cone of the spotlight has a soft border.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["render_scenes"]

OPTIONS = {"error_model": "numpy", "nogil": True, "cache": True}
PARTS = 5
MERGED = 0.18  # distance along a ray within which neither of two surfaces is wholly in front
PENUMBRA = 0.35  # width of the border of shadows, in units of the radius of what casts them
REACH = 1.57  # radius of a ball around the object
AMBIENT, SPOT = 0.38, 0.62  # light from everywhere and of the spotlight; they sum to 1
CONE_INNER, CONE_OUTER = math.cos(math.radians(20)), math.cos(math.radians(33))


@njit(**OPTIONS)
def _step(x):
    """Return 0 below 0, 1 above 1, and a cubic with a continuous slope between."""
    x = min(max(x, 0.0), 1.0)
    return x * x * (3.0 - 2.0 * x)


@njit(**OPTIONS)
def _hue(h, k):
    """Return the channel k of a colour of full value, for h in [-1, 1], from red to violet."""
    return 0.6 + 0.4 * math.cos(2.0 * math.pi * (0.375 * (h + 1.0) - k / 3.0))


@njit(**OPTIONS)
def _rotation(a, b, c, out):
    """Write the rotation by a around x, then b around y, then c around z."""
    ca, sa, cb, sb, cc, sc = (
        *(math.cos(a), math.sin(a), math.cos(b)),
        *(math.sin(b), math.cos(c), math.sin(c)),
    )
    out[0, 0], out[0, 1], out[0, 2] = cc * cb, cc * sb * sa - sc * ca, cc * sb * ca + sc * sa
    out[1, 0], out[1, 1], out[1, 2] = sc * cb, sc * sb * sa + cc * ca, sc * sb * ca - cc * sa
    out[2, 0], out[2, 1], out[2, 2] = -sb, cb * sa, cb * ca


@njit(**OPTIONS)
def _spot(px, py, pz, nx, ny, nz, light, axis):
    """Return how much light of the spotlight falls on a point with this normal."""
    vx, vy, vz = px - light[0], py - light[1], pz - light[2]
    length = math.sqrt(vx * vx + vy * vy + vz * vz)
    inside = (vx * axis[0] + vy * axis[1] + vz * axis[2]) / length
    towards = -(vx * nx + vy * ny + vz * nz) / length
    if inside <= CONE_OUTER or towards <= 0.0:
        return 0.0
    return towards * _step((inside - CONE_OUTER) / (CONE_INNER - CONE_OUTER))


@njit(**OPTIONS)
def _lit(px, py, pz, light, near, to_unit, light_in):
    """Return the share of the spotlight that passes the object on its way to a point."""
    vx, vy, vz = px - light[0], py - light[1], pz - light[2]
    along = (near[0] * vx + near[1] * vy + near[2] * vz) / (vx * vx + vy * vy + vz * vz)
    rx, ry, rz = near[0] - along * vx, near[1] - along * vy, near[2] - along * vz
    if rx * rx + ry * ry + rz * rz > (REACH * (1.0 + PENUMBRA)) ** 2:
        return 1.0
    passed = 1.0
    for k in range(PARTS):
        dx = to_unit[k, 0, 0] * vx + to_unit[k, 0, 1] * vy + to_unit[k, 0, 2] * vz
        dy = to_unit[k, 1, 0] * vx + to_unit[k, 1, 1] * vy + to_unit[k, 1, 2] * vz
        dz = to_unit[k, 2, 0] * vx + to_unit[k, 2, 1] * vy + to_unit[k, 2, 2] * vz
        ox, oy, oz = light_in[k, 0], light_in[k, 1], light_in[k, 2]
        dd = dx * dx + dy * dy + dz * dz
        od = ox * dx + oy * dy + oz * dz
        closest = math.sqrt(max(ox * ox + oy * oy + oz * oz - od * od / dd, 0.0))
        passed *= 1.0 - _step(0.5 + (1.0 - closest) / PENUMBRA)
    return passed


@njit(**OPTIONS)
def render_scenes(latents, poses, object_parts, rays, floor, camera, pixel, first, last, out):
    """Write images first … last - 1 into out (N, 3, S, S).

    Args:
        latents: Latents (N, 10), of which the hues, the last three, are read.
        poses: Position of the object, its three angles, position of the spotlight and the direction
            of its axis (N, 12).
        object_parts: For each ellipsoid its centre, its radii and its brightness (5, 7).
        rays: Unit vectors (S, S, 3) from the camera through the pixels.
        floor: Where they meet the floor y = 0, (S, S, 3).
        camera: Position of the camera (3,).
        pixel: Angle between the rays of two pixels.
        first: First image.
        last: Image after the last.
        out: The images.
    """
    size = rays.shape[0]
    turn = np.empty((3, 3))
    to_unit = np.empty((PARTS, 3, 3))  # from the world to coordinates where a part is a unit ball
    eye_in, light_in = np.empty((PARTS, 3)), np.empty((PARTS, 3))
    eye_square, width = np.empty(PARTS), np.empty(PARTS)
    cover, depth, shade = np.empty(PARTS), np.empty(PARTS), np.empty((PARTS, 2))
    near, ball = np.empty(3), np.empty(3)
    colours = np.empty((3, 3))  # of the object, the spotlight and the floor
    for n in range(first, last):
        centre, light, axis = poses[n, 0:3], poses[n, 6:9], poses[n, 9:12]
        _rotation(poses[n, 3], poses[n, 4], poses[n, 5], turn)
        for i in range(3):
            near[i], ball[i] = centre[i] - light[i], centre[i] - camera[i]
            for k in range(3):
                colours[i, k] = _hue(latents[n, 7 + i], k)
        away = math.sqrt(ball[0] ** 2 + ball[1] ** 2 + ball[2] ** 2)
        for k in range(PARTS):
            mean = 0.0
            for i in range(3):
                radius = object_parts[k, 3 + i]
                mean += radius / 3.0
                for j in range(3):
                    to_unit[k, i, j] = turn[j, i] / radius
            for i in range(3):
                eye, lamp = 0.0, 0.0
                for j in range(3):
                    at = centre[j]
                    for m in range(3):
                        at += turn[j, m] * object_parts[k, m]
                    eye += to_unit[k, i, j] * (camera[j] - at)
                    lamp += to_unit[k, i, j] * (light[j] - at)
                eye_in[k, i], light_in[k, i] = eye, lamp
            eye_square[k] = eye_in[k, 0] ** 2 + eye_in[k, 1] ** 2 + eye_in[k, 2] ** 2
            width[k] = 1.5 * pixel * away / mean  # of the border of a part, in its unit
        for i in range(size):
            for j in range(size):
                px, py, pz = floor[i, j, 0], floor[i, j, 1], floor[i, j, 2]
                spot = _spot(px, py, pz, 0.0, 1.0, 0.0, light, axis)
                if spot > 0.0:
                    spot *= _lit(px, py, pz, light, near, to_unit, light_in)
                rx, ry, rz = rays[i, j, 0], rays[i, j, 1], rays[i, j, 2]
                left = 1.0  # share of the pixel that no part covers
                along = ball[0] * rx + ball[1] * ry + ball[2] * rz
                if away * away - along * along < (REACH + 4.0 * pixel * away) ** 2:
                    for k in range(PARTS):
                        dx = to_unit[k, 0, 0] * rx + to_unit[k, 0, 1] * ry + to_unit[k, 0, 2] * rz
                        dy = to_unit[k, 1, 0] * rx + to_unit[k, 1, 1] * ry + to_unit[k, 1, 2] * rz
                        dz = to_unit[k, 2, 0] * rx + to_unit[k, 2, 1] * ry + to_unit[k, 2, 2] * rz
                        ox, oy, oz = eye_in[k, 0], eye_in[k, 1], eye_in[k, 2]
                        dd = dx * dx + dy * dy + dz * dz
                        od = ox * dx + oy * dy + oz * dz
                        square = max(eye_square[k] - od * od / dd, 0.0)
                        cover[k] = _step(0.5 + (1.0 - math.sqrt(square)) / width[k])
                        if cover[k] <= 0.0:
                            continue
                        left *= 1.0 - cover[k]
                        # The root of 1 - ρ², rounded at the border, where its slope is infinite.
                        over, rounding = 1.0 - square, 0.5 * width[k]
                        root = math.sqrt(0.5 * (over + math.sqrt(over * over + rounding**2)))
                        t = (-od - root * math.sqrt(dd)) / dd
                        ux, uy, uz = ox + t * dx, oy + t * dy, oz + t * dz
                        nx = to_unit[k, 0, 0] * ux + to_unit[k, 1, 0] * uy + to_unit[k, 2, 0] * uz
                        ny = to_unit[k, 0, 1] * ux + to_unit[k, 1, 1] * uy + to_unit[k, 2, 1] * uz
                        nz = to_unit[k, 0, 2] * ux + to_unit[k, 1, 2] * uy + to_unit[k, 2, 2] * uz
                        length = math.sqrt(nx * nx + ny * ny + nz * nz)
                        nx, ny, nz = nx / length, ny / length, nz / length
                        qx, qy, qz = camera[0] + t * rx, camera[1] + t * ry, camera[2] + t * rz
                        depth[k] = t
                        shade[k, 0] = AMBIENT * (0.75 + 0.25 * ny) * object_parts[k, 6]
                        falls = _spot(qx, qy, qz, nx, ny, nz, light, axis)
                        shade[k, 1] = SPOT * falls * object_parts[k, 6]
                total, ambient, lamp = 0.0, 0.0, 0.0
                if left < 1.0:
                    for k in range(PARTS):
                        if cover[k] <= 0.0:
                            continue
                        weight = cover[k]
                        for m in range(PARTS):
                            if m != k and cover[m] > 0.0:
                                ahead = _step(0.5 + (depth[k] - depth[m]) / MERGED)
                                weight *= 1.0 - cover[m] * ahead
                        total += weight
                        ambient += weight * shade[k, 0]
                        lamp += weight * shade[k, 1]
                share = (1.0 - left) / total if total > 0.0 else 0.0
                for c in range(3):
                    ground = colours[2, c] * (AMBIENT + SPOT * spot * colours[1, c])
                    body = colours[0, c] * (ambient + lamp * colours[1, c])
                    out[n, c, i, j] = left * ground + share * body
