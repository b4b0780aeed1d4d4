"""The explorer in a notebook: what its menus draw."""

import json

import numpy as np
import pytest

from isolatent.figure_data import encode_rows
from isolatent.report import explore

pytest.importorskip("plotly")

HOSTILE = "<script>alert(1)</script>"


def codes(n=3, count=40):
    return np.random.default_rng(0).normal(size=(count, n))


def close(drawn, values):
    return np.allclose(np.array(drawn, dtype=float), values, rtol=1e-4, atol=1e-9)


def menu(figure, name):
    (found,) = (one for one in figure.layout.updatemenus if one.name == name)
    return {button.label: button for button in found.buttons}


def test_axes_are_chosen_by_menus():
    z = codes()
    figure = explore(z, components=(2, 0))
    (trace,) = figure.data
    assert trace.type == "scattergl"
    assert close(trace.x, z[:, 2])
    assert close(trace.y, z[:, 0])
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("code 2", "code 0")
    change, layout = menu(figure, "y")["y: code 1"].args
    assert close(change["y"][0], z[:, 1])
    assert layout == {"yaxis.title.text": "code 1"}


def test_three_dimensions_have_no_menus_of_axes():
    z = codes()
    figure = explore(z, components=(0, 2, 1))
    (trace,) = figure.data
    assert trace.type == "scatter3d"
    assert close(trace.z, z[:, 1])
    assert figure.layout.scene.zaxis.title.text == "code 1"
    assert [one.name for one in figure.layout.updatemenus] == ["colour"]


def test_colours_are_chosen_by_a_menu():
    z, groups = codes(), np.repeat(["b", "a"], 20)
    speed = np.r_[np.nan, np.arange(39.0)]
    days = np.arange("2024-01-01", "2024-02-10", dtype="datetime64[D]")
    figure = explore(z, groups=groups, times=days, columns={"speed": speed, HOSTILE: groups})
    buttons = menu(figure, "colour")
    assert [*buttons][:3] == ["time", "session", "speed"]
    assert close(figure.data[0].marker.color, np.arange(40) * 86_400.0)
    session = buttons["session"].args[0]
    assert close(session["marker.color"][0], np.repeat([0, 1], 20))
    assert session["marker.colorbar"][0]["ticktext"] == ["b", "a"]
    scale = session["marker.colorscale"][0]
    assert [place for place, _ in scale] == [0, 0.5, 0.5, 1]
    assert len({colour for _, colour in scale}) == 2
    assert (session["marker.cmin"], session["marker.cmax"]) == ([-0.5], [1.5])
    colour = buttons["speed"].args[0]["marker.color"][0]
    assert colour[0] is None
    assert close(colour[1:], speed[1:])
    assert close(buttons["code 2"].args[0]["marker.color"][0], z[:, 2])
    assert figure.data[0].customdata[39] == "row 39, session a, time 2024-02-09"
    assert "<script" not in figure.to_json()


def test_what_is_left_out_is_stated_and_all_is_plain_json():
    z = codes(2, 500)
    z[3] = np.nan
    figure = explore(encode_rows(z), max_points=100, random_state=1)
    assert figure.layout.title.text == "100 of 499 rows, drawn at random with seed 1"
    assert len(figure.data[0].x) == 100
    assert len(json.dumps(json.loads(figure.to_json()))) < 40_000


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (codes(1), {}, "codes must have at least 2 columns to be explored, got 1"),
        (codes(2), {"components": (0, 1, 2)}, "components must be from 0 to 1"),
        (codes(2), {"columns": {"speed": [1, 2]}}, "one value per row"),
    ],
)
def test_what_cannot_be_explored_is_refused(values, options, message):
    with pytest.raises(ValueError, match=message):
        explore(values, **options)
