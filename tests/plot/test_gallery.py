"""The gallery has a small picture of each plot, and a section that shows it."""

import re
from pathlib import Path

import pytest

from isolatent import plot

DOCS = Path(plot.__file__).parents[3] / "docs"
LARGEST = 30_000  # bytes


@pytest.mark.parametrize("name", plot.__all__)
def test_each_plot_has_a_picture(name):
    section = re.search(
        rf"^## {name}\n(.*?)(?=^## |\Z)", (DOCS / "plot.md").read_text(), re.S | re.M
    )
    assert f"](gallery/{name}.png)" in section[1]
    assert f".. image:: gallery/{name}.png" in getattr(plot, name).__doc__


def test_pictures_are_small_and_drawn_by_the_command():
    drawn = set(re.findall(r"^def draw_(\w+)", (DOCS / "draw_gallery.py").read_text(), re.M))
    pictures = {path.stem: path.stat().st_size for path in (DOCS / "gallery").glob("*.png")}
    assert set(pictures) == drawn
    assert max(pictures.values()) < LARGEST
