"""Colours of the page, light and dark; all text has a contrast of at least 4.5 (WCAG 2 AA)."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["HEAT_LEVELS", "PALETTES", "colour_style", "contrast", "heat_level"]

Colour: TypeAlias = str

PALETTES: dict[str, dict[str, Colour]] = {
    "light": {
        "surface": "#ffffff",
        "panel": "#f5f5f2",
        "ink": "#14140f",
        "muted": "#55544e",
        "rule": "#d9d8d1",
        "link": "#1a56b0",
        "first": "#2166c4",
        "second": "#c2500a",
        "heat": "#0b3d82",
        "good": "#0b6b2e",
        "good-back": "#e3f4e7",
        "best": "#1a4f9c",
        "best-back": "#e4eefb",
        "bad": "#a3161a",
        "bad-back": "#fde8e7",
        "plain-back": "#eeeeea",
    },
    "dark": {
        "surface": "#171716",
        "panel": "#21211f",
        "ink": "#f4f3ee",
        "muted": "#b9b8ae",
        "rule": "#403f3b",
        "link": "#8fbcff",
        "first": "#6ea8f5",
        "second": "#f29a5b",
        "heat": "#9cc7ff",
        "good": "#7ddc97",
        "good-back": "#12301b",
        "best": "#9cc4ff",
        "best-back": "#142945",
        "bad": "#ff9d97",
        "bad-back": "#421413",
        "plain-back": "#2c2c29",
    },
}
HEAT_LEVELS = 40


def heat_level(value: float) -> int:
    """Return the colour level, 0 to HEAT_LEVELS, of a value from 0 to 1."""
    return round(HEAT_LEVELS * min(1.0, max(0.0, value)))


def colour_style() -> str:
    """Return the palettes as CSS variables, and the classes ``h0`` ... of the heat map.

    A level is a mixture of the surface and the heat colour. Its text is black or white, whichever
    has the larger contrast, which is at least 4.58.
    """
    light, dark = (_style(palette) for palette in PALETTES.values())
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _style(palette: dict[str, Colour]) -> str:
    lines = [":root { " + " ".join(f"--{name}: {c};" for name, c in palette.items()) + " }"]
    for level in range(HEAT_LEVELS + 1):
        back = mix(palette["surface"], palette["heat"], level / HEAT_LEVELS)
        ink = max(("#000000", "#ffffff"), key=lambda c: contrast(c, back))
        lines.append(f".h{level} {{ --back: {back}; --front: {ink}; }}")
    return "\n".join(lines)


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Interpolate two colours; a share of 0 is the first, of 1 the second."""
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def contrast(first: Colour, second: Colour) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it, from 1 to 21.

    Example:
        >>> contrast("#ffffff", "#000000")
        21.0
    """
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def _channels(colour: Colour) -> list[int]:
    return [int(colour[k : k + 2], 16) for k in (1, 3, 5)]


def _luminance(colour: Colour) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _channels(colour))
    ]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
