"""Contrast: WCAG 2 asks for 4.5 for text and for 3 for graphics."""

import re
from importlib import resources

import pytest

STYLE = resources.files("isolatent.report").joinpath("templates", "style.css").read_text("utf-8")
BLOCKS = re.findall(r":root(?::not\(.printed\))? \{\s*(--[^}]*)\}", STYLE)
PALETTES = {
    scheme: dict(re.findall(r"--([\w-]+): (#\w{6});", block))
    for scheme, block in zip(("light", "dark"), BLOCKS, strict=True)
}


def luminance(colour):
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(*colours):
    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", PALETTES)
def test_text_has_enough_contrast(scheme):
    palette = PALETTES[scheme]
    for ink, *backs in (
        ("ink", "surface", "panel", "plain-back", "good-back", "bad-back", "warn-back"),
        ("muted", "surface", "panel"),
        ("link", "surface", "panel"),
        ("good", "good-back", "panel", "surface"),
        ("best", "best-back"),
        ("bad", "bad-back", "surface", "panel"),
        ("warn", "warn-back", "surface"),
    ):
        for back in backs:
            assert contrast(palette[ink], palette[back]) >= 4.5, (ink, back)


@pytest.mark.parametrize("scheme", PALETTES)
def test_graphics_have_enough_contrast(scheme):
    palette = PALETTES[scheme]
    for line in ("first", "second", "heat", *(f"c{k}" for k in range(1, 9))):
        assert contrast(palette[line], palette["surface"]) >= 3, line


def test_both_schemes_have_the_same_names():
    assert set(PALETTES["light"]) == set(PALETTES["dark"])
