r"""Outlines of the sprites as polygons, in units of pixels of a 64 × 64 image.

All three have the area :math:`2 R^2` of the square in a circle of radius R = 15.5 pixels, and stay
inside that circle when they turn around their centroid. The circle's centre moves over 31 pixels
in the middle of the image, so no sprite reaches the border. Arcs are cut into so many edges that
the polygon stays within 0.01 pixels of them; each outline is scaled to have the area exactly.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["AREA", "RADIUS", "SHAPES", "SYMMETRY", "outlines"]

SHAPES = ("square", "ellipse", "heart")
SYMMETRY = {"square": math.pi / 2, "ellipse": math.pi, "heart": 2 * math.pi}
"""The smallest turn that maps each shape onto itself."""

RADIUS = 15.5
AREA = 2 * RADIUS**2
ARC = 96  # edges of a full turn
LENGTHS = 1.5  # the ellipse's long axis over the short one

Points = NDArray[np.float64]


def _square() -> Points:
    return np.array([(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])


def _ellipse() -> Points:
    angle = 2 * np.pi * np.arange(ARC) / ARC
    return np.stack([LENGTHS * np.cos(angle), np.sin(angle)], axis=1)


def _heart() -> Points:
    """A square on its tip, with half a disc on each of its upper edges."""
    half = np.pi * np.arange(ARC // 2 + 1) / (ARC // 2)
    right = np.pi / -4 + half  # from the right corner to the notch
    left = np.pi / 4 + half[1:]  # from the notch to the left corner
    middle = math.sqrt(0.5)  # of the discs, whose radius is 1
    lobes = [
        np.stack([side * middle + np.cos(a), middle + np.sin(a)], axis=1)
        for side, a in ((1, right), (-1, left))
    ]
    return np.concatenate([[(0.0, -2 * middle)], *lobes])


def area_and_centroid(points: Points) -> tuple[float, Points]:
    r"""Area :math:`\tfrac12\sum_k c_k`, :math:`c_k = x_k y_{k+1} - x_{k+1} y_k`, and centroid."""
    following = np.roll(points, -1, axis=0)
    cross = points[:, 0] * following[:, 1] - following[:, 0] * points[:, 1]
    area = float(cross.sum()) / 2
    return area, ((points + following) * cross[:, None]).sum(axis=0) / (6 * area)


@cache
def outlines() -> tuple[Points, NDArray[np.int64]]:
    """The corners (n, 2) of all outlines, x to the right and y upward, and where each begins."""
    made = []
    for shape in (_square(), _ellipse(), _heart()):
        area, centroid = area_and_centroid(shape)
        made.append((shape - centroid) * math.sqrt(AREA / area))
    begins = np.cumsum([0, *map(len, made)])
    return np.concatenate(made), begins
