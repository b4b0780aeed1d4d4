"""Contrast: WCAG 2 asks for 4.5 for text and for 3 for graphics."""

import re

import pytest

from isolatent.report.colours import HEAT_LEVELS, PALETTES, colour_style, contrast


@pytest.mark.parametrize("scheme", PALETTES)
def test_text_has_enough_contrast(scheme):
    palette = PALETTES[scheme]
    for ink, *backs in (
        ("ink", "surface", "panel", "plain-back"),
        ("muted", "surface", "panel"),
        ("link", "surface", "panel"),
        ("good", "good-back"),
        ("best", "best-back"),
        ("bad", "bad-back", "surface", "panel"),
    ):
        for back in backs:
            assert contrast(palette[ink], palette[back]) >= 4.5, (ink, back)
    for line in ("first", "second"):
        assert contrast(palette[line], palette["surface"]) >= 3


def test_numbers_on_a_heat_map_have_enough_contrast():
    levels = re.findall(r"--back: (#\w+); --front: (#\w+);", colour_style())
    assert len(levels) == 2 * (HEAT_LEVELS + 1)
    assert min(contrast(*pair) for pair in levels) >= 4.5
