"""Figures of arbitrary numbers, and subsampling."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolatent.report.figures import (
    Line,
    bars,
    evenly_spaced,
    heat_map,
    histogram,
    lines,
    points,
    thinned,
)

anything = st.floats(allow_nan=True, allow_infinity=True)
columns = st.lists(anything, min_size=1, max_size=30)
LABELS = ("x", "y")


@given(columns)
def test_any_numbers_can_be_drawn(values):
    ys = values[::-1]
    for drawn in (
        lines(
            "k",
            "t",
            [
                Line("a", [*zip(values, ys, strict=True)]),
                Line("b", [*zip(ys, values, strict=True)], "second"),
            ],
            LABELS,
        ),
        points("k", "t", values, ys, LABELS, "d"),
        points("k", "t", values, ys, LABELS, "d", diagonal=True),
        histogram("k", "t", values, "v"),
        heat_map("k", "t", [values, ys], LABELS),
    ):
        drawing = re.sub(r"<(title|desc|text).*?</\1>", "", drawn)
        assert not re.search(r"nan|inf|\de[+-]?\d", drawing)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30))
def test_bars_can_be_drawn(values):
    assert bars("k", "t", values, LABELS).count("Z") == len(values)


@given(st.integers(1, 500), st.integers(1, 100))
def test_thinning_keeps_means_and_order(count, most):
    xs = list(range(count))
    thin = thinned([(x, 2.0 * x) for x in xs], most)
    assert len(thin) == min(count, most)
    thin_xs, thin_ys = zip(*thin, strict=True)
    assert list(thin_xs) == sorted(thin_xs)
    assert thin_ys == pytest.approx(tuple(2 * x for x in thin_xs))
    chosen = evenly_spaced(count, most)
    assert len(chosen) == len(set(chosen)) == min(count, most)
    assert max(chosen) < count
