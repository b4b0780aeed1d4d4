"""The outlines of the sprites have equal areas and their centroid at the origin."""

from itertools import pairwise

import numpy as np
import pytest

from isolatent.datasets.sprite_raster import AREA, RADIUS, area_and_centroid, outlines


def test_outlines_have_one_area_and_turn_inside_one_circle():
    points, begins = outlines()
    for first, last in pairwise(begins):
        area, centroid = area_and_centroid(points[first:last])
        assert area == pytest.approx(AREA)
        assert abs(centroid).max() < 1e-12
        assert np.linalg.norm(points[first:last], axis=1).max() <= RADIUS + 1e-12
