r"""Compiled rasteriser of polygons: exact covered areas, or bits at the pixel centres.

Both write the outline as differences along each row, which a running sum then fills. An edge that
goes down (up) through a row adds (subtracts) the area to its right. With
:math:`G(t) = \int_{-\infty}^t \min(\max(s, 0), 1) ds`, an edge whose x runs from a to b on its way
through a share d of the row covers of the pixel [c, c + 1] to its right the mean

.. math:: d \, \frac{G(c + 1 - a) - G(c + 1 - b)}{b - a}.

Sums of differences in float64 are exact to about 1e-15, so pixels outside are zero up to rounding;
values below 1e-9 are set to zero.

The outlines of the three sprites are polygons, in units of pixels of a 64 × 64 image. All have the
area :math:`2 R^2` of the square in a circle of radius R = 15.5 pixels, and stay inside that circle
when rotated around their centroid. The centre of the circle moves over 31 pixels in the middle of
the image, so no sprite reaches the border. Polygons stay within 0.01 pixels of the arcs that they
approximate, and each outline is scaled to the exact area.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["AREA", "RADIUS", "cover", "fill", "outlines"]

OPTIONS = {"error_model": "numpy", "nogil": True, "cache": True}
MIN_WIDTH = 1e-7  # of an edge within a row, below which its x is taken as constant
MIN_COVERED = 1e-9  # area below which a pixel is set to zero

RADIUS = 15.5
AREA = 2 * RADIUS**2
ARC = 96  # edges of a full circle
ASPECT = 1.5  # of the ellipse's axes

Points = NDArray[np.float64]


def _square() -> Points:
    return np.array([(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])


def _ellipse() -> Points:
    angle = 2 * np.pi * np.arange(ARC) / ARC
    return np.stack([ASPECT * np.cos(angle), np.sin(angle)], axis=1)


def _heart() -> Points:
    """Return a square standing on a corner with a half-disc on each of its upper edges."""
    half = np.pi * np.arange(ARC // 2 + 1) / (ARC // 2)
    right = np.pi / -4 + half  # from the right corner to the notch
    left = np.pi / 4 + half[1:]  # from the notch to the left corner
    middle = math.sqrt(0.5)  # coordinates of the centres of the discs, whose radius is 1
    lobes = [
        np.stack([side * middle + np.cos(a), middle + np.sin(a)], axis=1)
        for side, a in ((1, right), (-1, left))
    ]
    return np.concatenate([[(0.0, -2 * middle)], *lobes])


def area_and_centroid(points: Points) -> tuple[float, Points]:
    r"""Return area :math:`\tfrac12\sum_k x_k y_{k+1} - x_{k+1} y_k` and centroid of a polygon."""
    following = np.roll(points, -1, axis=0)
    cross = points[:, 0] * following[:, 1] - following[:, 0] * points[:, 1]
    area = float(cross.sum()) / 2
    return area, ((points + following) * cross[:, None]).sum(axis=0) / (6 * area)


@cache
def outlines() -> tuple[Points, NDArray[np.int64]]:
    """Return the corners (n, 2) of all outlines, x right and y up, and the start of each."""
    made = []
    for shape in (_square(), _ellipse(), _heart()):
        area, centroid = area_and_centroid(shape)
        made.append((shape - centroid) * math.sqrt(AREA / area))
    begins = np.cumsum([0, *map(len, made)])
    return np.concatenate(made), begins


@njit(**OPTIONS)
def _ramp(t):
    """Return G(t), the integral of the unit ramp."""
    if t <= 0.0:
        return 0.0
    return 0.5 * t * t if t < 1.0 else t - 0.5


@njit(**OPTIONS)
def _place(points, begin, end, scale, angle, x, y, placed):
    """Rotate, scale and shift an outline, with y downward; return its bounds in pixels."""
    cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
    left = right = x
    top = bottom = y
    for k in range(begin, end):
        u, v = points[k, 0], points[k, 1]
        placed[k - begin, 0] = px = x + cosine * u - sine * v
        placed[k - begin, 1] = py = y - sine * u - cosine * v
        left, right = min(left, px), max(right, px)
        top, bottom = min(top, py), max(bottom, py)
    # One more column to the right, where the differences of the last pixel end.
    return int(left), int(right) + 2, int(top), int(bottom) + 1


@njit(**OPTIONS)
def _add_edge(ax, ay, bx, by, differences):
    """Add the area to the right of an edge to the differences."""
    if ay == by:
        return
    sign = 1.0 if by > ay else -1.0
    if by < ay:
        ax, ay, bx, by = bx, by, ax, ay
    slope = (bx - ax) / (by - ay)
    for row in range(int(ay), math.ceil(by)):
        first, last = max(ay, float(row)), min(by, row + 1.0)
        share = sign * (last - first)
        p, q = ax + slope * (first - ay), ax + slope * (last - ay)
        low, high = min(p, q), max(p, q)
        start, stop = int(low), int(high)
        before = 0.0
        for column in range(start, stop + 1):
            t = column + 1.0 - low
            if high - low < MIN_WIDTH:
                covered = min(max(column + 1.0 - 0.5 * (low + high), 0.0), 1.0)
            else:
                covered = (_ramp(t) - _ramp(column + 1.0 - high)) / (high - low)
            differences[row, column] += share * (covered - before)
            before = covered
        differences[row, stop + 1] += share * (1.0 - before)


@njit(**OPTIONS)
def cover(points, begins, shape, scale, angle, x, y, first, last, out):
    """Write the covered share of each pixel of images first … last - 1 into out (N, S, S), zero."""
    size = out.shape[1]
    placed = np.empty((len(points), 2))
    differences = np.zeros((size + 1, size + 2))
    for n in range(first, last):
        begin, end = begins[shape[n]], begins[shape[n] + 1]
        left, right, top, bottom = _place(
            points, begin, end, scale[n], angle[n], x[n], y[n], placed
        )
        corners = end - begin
        for k in range(corners):
            after = k + 1 if k + 1 < corners else 0
            _add_edge(placed[k, 0], placed[k, 1], placed[after, 0], placed[after, 1], differences)
        for row in range(top, bottom):
            total = 0.0
            for column in range(left, right):
                total += differences[row, column]
                differences[row, column] = 0.0
                if abs(total) > MIN_COVERED and column < size and row < size:
                    out[n, row, column] = min(abs(total), 1.0)


@njit(**OPTIONS)
def fill(points, begins, shape, scale, angle, x, y, first, last, out):
    """Write 1 where a pixel's centre lies in the shape, into images first … last - 1 of out."""
    size = out.shape[1]
    placed = np.empty((len(points), 2))
    crossed = np.zeros((size + 1, size + 2), dtype=np.uint8)
    for n in range(first, last):
        begin, end = begins[shape[n]], begins[shape[n] + 1]
        # Whole pixels are added last, so that the bits of a shape do not depend on its position.
        whole_x, whole_y = math.floor(x[n]), math.floor(y[n])
        middle = size // 2
        left, right, top, bottom = _place(
            points, begin, end, scale[n], angle[n],
            middle + (x[n] - whole_x), middle + (y[n] - whole_y), placed,
        )  # fmt: skip
        corners = end - begin
        for k in range(corners):
            after = k + 1 if k + 1 < corners else 0
            ax, ay, bx, by = placed[k, 0], placed[k, 1], placed[after, 0], placed[after, 1]
            if ay > by:
                ax, ay, bx, by = bx, by, ax, ay
            # Rows whose centre is in [ay, by), so that a corner on a centre line counts once.
            for row in range(math.ceil(ay - 0.5), math.ceil(by - 0.5)):
                at = ax + (bx - ax) * ((row + 0.5 - ay) / (by - ay))
                crossed[row, math.ceil(at - 0.5)] ^= 1
        down, across = int(whole_y) - middle, int(whole_x) - middle
        for row in range(top, bottom):
            inside = 0
            for column in range(left, right):
                inside ^= crossed[row, column]
                crossed[row, column] = 0
                if inside:
                    out[n, row + down, column + across] = 1
