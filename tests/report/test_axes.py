"""Axes: scales and ticks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolatent.report.axes import Axis, span, ticks


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_and_within(low, width):
    low, high = span([low, low + width])
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 7
    slack = 1e-6 * (high - low)
    assert all(low - slack <= mark <= high + slack for mark in marks)
    assert marks == sorted(set(marks))


def test_an_axis_maps_its_ends_to_its_ends():
    axis = Axis(-1.0, 3.0, 200.0, 20.0)
    assert (axis.at(-1), axis.at(3), axis.at(1)) == (200, 20, pytest.approx(110))
