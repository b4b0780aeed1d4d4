"""The explorer, time courses and what a decoder makes of codes: the data that pages hold."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from isolatent.figure_data import encode_rows, traversal_data
from isolatent.report import Section
from isolatent.report.explorer import (
    MAX_EXPLORED,
    codes_blocks,
    factor_lines_blocks,
    over_time_blocks,
)


def decode(array):
    return np.frombuffer(
        base64.b64decode(array["bdata"]), {"f4": "<f4", "u1": "u1"}[array["dtype"]]
    )


def explorer(codes, columns=None, **known):
    rows = encode_rows(codes, **known)
    (block,) = codes_blocks(Section("s", rows=rows, columns=columns or {}), "a")
    return block


@pytest.fixture(scope="module")
def codes():
    return np.random.default_rng(0).normal(size=(500, 3))


def test_the_explorer_holds_the_codes(codes):
    data = explorer(codes).data
    for k in range(3):
        np.testing.assert_allclose(decode(data["points"][k]), codes[:, k], rtol=1e-6)
    assert decode(data["rows"]).tolist() == list(range(500))
    assert "all" not in data


def test_colours_are_those_of_rows_sessions_columns_and_codes(codes):
    column = np.linspace(5.0, 9.0, 500)
    column[7] = np.nan
    groups = np.repeat(["b", "a"], 250)
    data = explorer(codes, {"speed": column}, groups=groups).data
    given = {one["name"]: one for one in data["colourings"]}
    assert list(given) == ["row", "session", "speed", "code 0", "code 1", "code 2"]
    assert given["session"]["labels"] == ["b", "a"]
    assert decode(given["session"]["values"]).tolist() == [0] * 250 + [1] * 250
    speed, levels = given["speed"], decode(given["speed"]["values"]).astype(float)
    assert (speed["low"], speed["high"], levels[7]) == (5, 9, 255)
    known = np.isfinite(column)
    shown = speed["low"] + levels[known] / 254 * (speed["high"] - speed["low"])
    np.testing.assert_allclose(shown, column[known], atol=4 / 254)


def test_a_column_keeps_its_name(codes):
    data = explorer(codes, {"time": np.arange(500.0)}).data
    assert [one["name"] for one in data["colourings"]][:2] == ["row", "time"]


def test_rows_without_codes_are_left_out(codes):
    some = codes.copy()
    some[::2] = np.nan
    assert decode(explorer(some).data["rows"]).tolist() == list(range(1, 500, 2))
    assert list(codes_blocks(Section("s", rows=encode_rows(np.full((3, 2), np.nan))), "a")) == []


def test_of_many_rows_some_are_points_and_all_are_in_the_density():
    codes = np.random.default_rng(0).normal(size=(20_000, 2))
    block = explorer(codes)
    assert len(decode(block.data["points"][0])) == MAX_EXPLORED
    every = block.data["all"]
    levels = decode(every["codes"][1]).astype(float)
    assert len(levels) == 20_000
    shown = every["low"][1] + levels / 254 * (every["high"][1] - every["low"][1])
    np.testing.assert_allclose(shown, codes[:, 1], atol=0.02)
    assert "4,000 of 20,000 rows" in block.caption


def test_a_recording_has_a_time_course_of_its_sessions(codes):
    rows = encode_rows(codes, groups=np.repeat(["x", "y"], 250))
    assert list(over_time_blocks(Section("s", rows=rows), "a")) == []  # rows in no order
    (block,) = over_time_blocks(Section("s", rows=rows, is_recording=True), "a")
    (figure,) = block.figures
    assert [trace["name"] for trace in figure.data] == ["x", "y"] * 3
    assert figure.links == "a-codes"
    drawn = figure.data[1]
    assert drawn["x"][:2] == [250, 251]
    np.testing.assert_allclose(drawn["y"][:250], codes[250:, 0], rtol=1e-3)
    assert drawn["y"][250] is None  # a gap before the next session


def test_a_decoder_shows_what_each_code_changes():
    z = np.random.default_rng(0).normal(size=(600, 2))
    x = np.stack([z[:, 0], z[:, 1], z[:, 1]], axis=1)
    rows = encode_rows(z)
    changes = traversal_data(rows, x, column_names=["first", "second", "third"])
    matrix, lines = factor_lines_blocks(Section("s", rows=rows, changes=changes), "a")
    effects = np.abs(matrix.figures[0].data[0]["z"])
    assert (effects > 1).tolist() == [[True, False, False], [False, True, True]]
    assert f"{changes.explained:.0%} of the variance" in matrix.caption
    assert len(lines.figures) == 2
    assert lines.figures[0].data[0]["name"] == "first"


def test_a_decoder_of_images_gives_a_strip_for_each_code():
    z = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    images = np.zeros((300, 1, 6, 8))
    images[:, 0, :3] = z[:, 0, None, None]  # the first code brightens the upper half
    images[:, 0, 3:] = z[:, 1, None, None]
    rows = encode_rows(z)
    (strips,) = factor_lines_blocks(Section("s", changes=traversal_data(rows, images)), "a")
    assert [strip.name for strip in strips.strips] == ["Code 0", "Code 1"]
    first, second = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(strip.png)))) for strip in strips.strips
    )
    assert first.shape == (6, 9 * 8)
    for strip, half in ((first, slice(0, 3)), (second, slice(3, 6))):
        steps = strip[half].reshape(3, 9, 8).mean(axis=(0, 2))
        assert (np.diff(steps) > 0).all()  # brighter from left to right
        assert steps[-1] - steps[0] > 150
    assert "of the variance of held-out observations" in strips.caption


@pytest.mark.parametrize(("own", "which"), [(True, "these"), (False, "held-out")])
def test_it_is_said_which_observations_a_decoder_explains(codes, own, which):
    decode = (lambda h: 2 * h) if own else None
    changes = traversal_data(encode_rows(codes), 2 * codes, decode=decode)
    matrix, _ = factor_lines_blocks(Section("s", changes=changes), "a")
    assert f"of the variance of {which} observations" in matrix.caption


def test_stretches_of_time_can_be_selected_and_many_sessions_have_names():
    """The time course has the tools to select with, and names sessions beyond its legend."""
    for count in (3, 40):
        groups = np.repeat([f"s{k}" for k in range(count)], 10)
        rows = encode_rows(np.random.default_rng(0).normal(size=(10 * count, 2)), groups=groups)
        section = Section("s", rows=rows, is_recording=True)
        ((figure,),) = (block.figures for block in over_time_blocks(section, "a"))
        assert figure.links == "a-codes"
        assert figure.layout["dragmode"] == "select"
        assert figure.layout["selectdirection"] == "h"
        named = {trace["name"] for trace in figure.data}
        told = {name for trace in figure.data for name in trace.get("text", ())}
        assert (named | told) >= {f"s{k}" for k in range(count)}


def test_in_space_fewer_points_are_drawn_than_in_the_plane():
    """The nearest hide those behind them; the caption says how many there are."""
    many = encode_rows(np.random.default_rng(0).normal(size=(3000, 3)))
    (block,) = codes_blocks(Section("s", rows=many), "a")
    assert block.data["most_in_space"] < 3000
    assert "In space at most 2,000 of them are drawn." in block.caption
    (block,) = codes_blocks(Section("s", rows=encode_rows(many.codes[:, :2])), "a")
    assert "most_in_space" not in block.data
