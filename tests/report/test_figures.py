"""Figures of arbitrary numbers, in plotly's schema, and subsampling."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.report.figures import (
    Line,
    bars,
    checked,
    curves_over,
    evenly_spaced,
    heat_map,
    intervals,
    lines,
    named_lines,
    packed,
    plain_text,
    points,
    seed_points,
    signed_map,
    thinned,
)

anything = st.floats(allow_nan=True, allow_infinity=True)
columns = st.lists(anything, min_size=1, max_size=30)
LABELS = ("x", "y")
SCALE = [[0, "#ffffff"], [1, "#000000"]]


def resolved(value):
    """Replace names of colours as the script of the page does."""
    if isinstance(value, dict):
        return {key: resolved(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item) for item in value]
    if isinstance(value, str) and value.startswith("var("):
        return "#123456"
    return SCALE if isinstance(value, str) and value.startswith("scale(") else value


def check_schema(figure):
    """Read a figure as JSON without NaN, and hold it to plotly's own schema."""
    data = json.loads(json.dumps([figure.data, figure.layout], allow_nan=False))
    traces, layout = resolved(data)
    return go.Figure(data=traces, layout=layout)


def some_figures(values, text="t"):
    ys = values[::-1]
    pairs, back = ([*zip(*p, strict=True)] for p in ((values, ys), (ys, values)))
    spans = [(text, value, (value, value)) for value in values]
    rows = [(text, values, values[0], None), (text, [], None, None)]
    named = [text] * len(values)
    gaps = [(text, [None] * len(values))] * 2
    return [
        lines("k", text, [Line(text, pairs), Line("b", back, "second")], LABELS, (text, values[0])),
        points("k", text, values, ys, LABELS, "d"),
        points("k", text, values, ys, LABELS, "d", diagonal=True),
        bars("k", text, values, (text, "y")),
        heat_map("k", text, [values, ys], LABELS, [text, text]),
        signed_map("k", text, [values, ys], LABELS, [text, text], named, 1.0, "unit"),
        named_lines("k", text, [(text, pairs)], LABELS),
        intervals("k", text, spans, text),
        intervals("k", text, spans, text, log=True),
        checked("k", text, named, values, ys, (0.5, True), text, ["var(--bad)"] * len(values)),
        curves_over("k", text, [*range(len(values))], gaps, text, [(text, 0, 1), (text, 1, 2)]),
        seed_points("k", text, rows, text),
    ]


@settings(max_examples=15, deadline=None)
@given(columns)
def test_any_numbers_make_valid_figures(values):
    for figure in some_figures(values):
        check_schema(figure)
        assert figure.description


def test_names_from_files_are_escaped_in_labels():
    """plotly reads some HTML in labels, links among them."""
    evil = "<a href='javascript:alert(1)'>&lt;</a>\u202e"
    for figure in some_figures([1.0, 2.0], evil):
        written = json.dumps([figure.data, figure.layout]).replace("<extra></extra>", "")
        assert "<" not in written
        assert "u202e" not in written
        assert "&lt;a href" in written
    assert plain_text("a\nb") == "a b"


def test_lines_show_their_values():
    figure = lines("k", "t", [Line("a", [(1.0, 2.0), (2.0, 4.0)])], LABELS, ("truth", 3.0))
    drawn, level = check_schema(figure).data
    assert (list(drawn.x), list(drawn.y)) == ([1, 2], [2, 4])
    assert list(level.y) == [3, 3]
    assert "a from 2 to 4" in figure.description


def test_seeds_and_published_scores_are_points():
    rows = [("first", [99.0, 98.0], 97.5, 0.5), ("second", [90.0], None, None)]
    paper, ours = check_schema(seed_points("k", "t", rows, "MCC [%]")).data
    assert [*zip(ours.x, ours.y, strict=True)] == [(99, 0), (98, 0), (90, 1)]
    assert (list(paper.x), list(paper.y), list(paper.error_x.array)) == ([97.5], [0], [0.5])


def test_intervals_without_an_end_are_marked():
    rows = [("a", 2.0, (1.0, 4.0)), ("b", 3.0, (2.0, float("inf")))]
    drawn = check_schema(intervals("k", "t", rows, "rows")).data
    assert list(drawn[0].x) == [1, 4]
    assert list(drawn[1].marker.symbol) == ["circle"]
    assert list(drawn[3].marker.symbol) == ["circle", "triangle-right"]


def test_packed_numbers_are_those_that_plotly_reads():
    figure = go.Figure({"data": [{"type": "scatter", "x": packed([1.5, -2.0])}]})
    assert figure.to_dict()["data"][0]["x"] == packed([1.5, -2.0])
    assert packed(np.arange(3))["dtype"] == "f4"


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
