r"""Compiled ray caster of an object in a room, with a camera that orbits the object.

The ray through a pixel is :math:`o + t d`. Intersections with bodies are in closed form; the room
has a floor y = 0 and four walls. Every surface is Lambertian, with the shade
:math:`a + (1 - a) \max(0, n \cdot l)` for its normal n and a light l that moves with the camera,
so a body of revolution looks the same from all azimuths.
"""

from __future__ import annotations

import math

from numba import njit

__all__ = ["cast", "empty_rooms"]

OPTIONS = {"error_model": "numpy", "nogil": True, "cache": True}
NEVER = 1e30
AMBIENT = 0.35
LIGHT = (0.37, 0.74, 0.56)  # unit vector, to the right of the camera, above and behind it
WALL = 5.0  # distance of the walls from the centre; they are rotated by 45° around it
DIAGONAL = math.sqrt(0.5)
CUBE, CYLINDER, SPHERE = 0, 1, 2  # 3 is the capsule


@njit(**OPTIONS)
def _ball(oy, ox, oz, dx, dy, dz, middle, radius):
    """Return the t at which a ray enters the ball around (0, middle, 0)."""
    py = oy - middle
    b = ox * dx + py * dy + oz * dz
    c = ox * ox + py * py + oz * oz - radius * radius
    below = b * b - c
    if below < 0.0:
        return NEVER
    t = -b - math.sqrt(below)
    return t if t > 0.0 else NEVER


@njit(**OPTIONS)
def _side(ox, oz, dx, dz, radius):
    """Return the t at which a ray enters the infinite cylinder around the vertical axis."""
    a = dx * dx + dz * dz
    b = ox * dx + oz * dz
    below = b * b - a * (ox * ox + oz * oz - radius * radius)
    if below < 0.0 or a < 1e-12:
        return NEVER
    return (-b - math.sqrt(below)) / a


@njit(**OPTIONS)
def _meet(kind, radius, height, ox, oy, oz, dx, dy, dz):
    """Return the distance to a body on the floor at the origin, and its normal there."""
    if kind == SPHERE:
        t = _ball(oy, ox, oz, dx, dy, dz, radius, radius)
        x, y, z = ox + t * dx, oy + t * dy - radius, oz + t * dz
        return t, x / radius, y / radius, z / radius
    if kind == CUBE:
        # Slab method: the last of the three entries, if it is before the first exit.
        ax, bx = (-radius - ox) / dx, (radius - ox) / dx
        ay, by = (0.0 - oy) / dy, (height - oy) / dy
        az, bz = (-radius - oz) / dz, (radius - oz) / dz
        enter_x, enter_y, enter_z = min(ax, bx), min(ay, by), min(az, bz)
        t = max(enter_x, enter_y, enter_z)
        if t > min(max(ax, bx), max(ay, by), max(az, bz)) or t <= 0.0:
            return NEVER, 0.0, 0.0, 0.0
        if t == enter_x:
            return t, -math.copysign(1.0, dx), 0.0, 0.0
        if t == enter_y:
            return t, 0.0, -math.copysign(1.0, dy), 0.0
        return t, 0.0, 0.0, -math.copysign(1.0, dz)
    t = _side(ox, oz, dx, dz, radius)
    if t >= NEVER:
        return NEVER, 0.0, 0.0, 0.0
    y = oy + t * dy
    low, high = (0.0, height) if kind == CYLINDER else (radius, height - radius)
    if t > 0.0 and low <= y <= high:
        return t, (ox + t * dx) / radius, 0.0, (oz + t * dz) / radius
    if kind == CYLINDER:
        t = (height - oy) / dy  # only the top is visible: the camera is above the floor
        x, z = ox + t * dx, oz + t * dz
        if t > 0.0 and dy < 0.0 and x * x + z * z <= radius * radius:
            return t, 0.0, 1.0, 0.0
        return NEVER, 0.0, 0.0, 0.0
    t, middle = NEVER, 0.0
    for end in (radius, height - radius):
        at = _ball(oy, ox, oz, dx, dy, dz, end, radius)
        if at < t:
            t, middle = at, end
    return t, (ox + t * dx) / radius, (oy + t * dy - middle) / radius, (oz + t * dz) / radius


@njit(**OPTIONS)
def _room(ox, oy, oz, dx, dy, dz):
    """Return the distance to floor or walls, whether it is the floor, and its normal."""
    t, floor, nx, nz = NEVER, False, 0.0, 0.0
    if dy < 0.0:
        t, floor = -oy / dy, True
    # Along the two axes of the walls, which are rotated by 45°.
    for sign in (1.0, -1.0):
        o, d = DIAGONAL * (ox + sign * oz), DIAGONAL * (dx + sign * dz)
        wall = (math.copysign(WALL, d) - o) / d
        if wall < t:
            inward = -math.copysign(DIAGONAL, d)
            t, floor, nx, nz = wall, False, inward, sign * inward
    return t, floor, nx, nz


@njit(**OPTIONS)
def _around(x, z, azimuth):
    """Return x and z of a vector rotated around the vertical axis."""
    c, s = math.cos(azimuth), math.sin(azimuth)
    return c * x + s * z, c * z - s * x


@njit(**OPTIONS)
def _shade(nx, ny, nz, lx, lz):
    return AMBIENT + (1.0 - AMBIENT) * max(nx * lx + ny * LIGHT[1] + nz * lz, 0.0)


@njit(**OPTIONS)
def empty_rooms(azimuths, rays, camera, shade, reach):
    """Fill shade and reach (K, S, S) of the empty room for each azimuth.

    ``reach`` is the distance of a point of the floor from the origin, and -1 for points of a wall.
    """
    for k in range(len(azimuths)):
        ox, oz = _around(camera[0], camera[2], azimuths[k])
        lx, lz = _around(LIGHT[0], LIGHT[2], azimuths[k])
        for i in range(rays.shape[0]):
            for j in range(rays.shape[1]):
                dx, dz = _around(rays[i, j, 0], rays[i, j, 2], azimuths[k])
                t, floor, nx, nz = _room(ox, camera[1], oz, dx, rays[i, j, 1], dz)
                shade[k, i, j] = _shade(nx, 1.0 if floor else 0.0, nz, lx, lz)
                reach[k, i, j] = math.sqrt((ox + t * dx) ** 2 + (oz + t * dz) ** 2)
                if not floor:
                    reach[k, i, j] = -1.0


@njit(**OPTIONS)
def cast(
    kind, radius, height, view, colours, azimuths, shades, reaches, rays, camera, first, last, out
):
    """Write images first … last - 1 into out (N, 3, S, S).

    ``colours`` (N, 3, 3) are those of floor, wall and object; ``view`` (N,) is the index of the
    camera's azimuth in ``azimuths`` (K,), of which ``shades`` and ``reaches`` show the room;
    ``rays`` (S, S, 3) are unit vectors from the position ``camera`` (3,) at azimuth zero.
    """
    size = rays.shape[0]
    for n in range(first, last):
        k = view[n]
        c, s = math.cos(azimuths[k]), math.sin(azimuths[k])
        ox, oz = _around(camera[0], camera[2], azimuths[k])
        lx, lz = _around(LIGHT[0], LIGHT[2], azimuths[k])
        oy = camera[1]
        bound = math.hypot(radius[n] * (1.5 if kind[n] == CUBE else 1.0), 0.5 * height[n])
        for i in range(size):
            for j in range(size):
                rx, dy, rz = rays[i, j, 0], rays[i, j, 1], rays[i, j, 2]
                dx, dz = c * rx + s * rz, c * rz - s * rx
                surface, shade = 1, shades[k, i, j]
                t = _ball(oy, ox, oz, dx, dy, dz, 0.5 * height[n], bound)
                if t < NEVER:
                    t, nx, ny, nz = _meet(kind[n], radius[n], height[n], ox, oy, oz, dx, dy, dz)
                if t < NEVER:
                    surface, shade = 2, _shade(nx, ny, nz, lx, lz)
                elif reaches[k, i, j] >= 0.0:
                    # The floor is darker close to the object, up to twice its radius.
                    near = 2.0 - reaches[k, i, j] / radius[n]
                    surface, shade = 0, shade * (1.0 - 0.5 * min(max(near, 0.0), 1.0))
                for channel in range(3):
                    out[n, channel, i, j] = colours[n, surface, channel] * shade
