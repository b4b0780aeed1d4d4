"""What each code does, in pictures."""

from __future__ import annotations

from isolatent.experiments.latent_traversal import DEAD
from isolatent.report.elements import Markup, element, figure, part
from isolatent.report.page import Cell

__all__ = ["strips_part"]

NINE = 9  # images in a row, between which the style sheet draws lines
SHOWN = {
    "decoded": "what the decoder draws for them",
    "nearest": "the image, of many, whose codes are nearest (the moved one counts most)",
}


def strips_part(cell: Cell, anchor: str) -> Markup | None:
    """A row of images for each code, named by the factor with which it goes."""
    strips = cell.strips
    if strips is None or not strips.rows:
        return None
    rows = [
        element(
            "div",
            element("p", f"Code {k + 1}{(does := _does(cell, k))}"),
            element(
                "div",
                element(
                    "img",
                    src=f"data:image/png;base64,{row}",
                    alt=f"Images while code {k + 1} grows{does}",
                    width=str(strips.columns * strips.size),
                    height=str(strips.size),
                ),
                class_="strip nine" if strips.columns == NINE else "strip",
            ),
        )
        for k, row in enumerate(strips.rows)
    ]
    caption = (
        "Each code from its 2nd to its 98th percentile, left to right, the others as in one image "
        f"in the middle; shown is {SHOWN.get(strips.kind, strips.kind)}."
    )
    if cell.correlations and cell.factors:
        caption += " Beside a code stands the factor with which it correlates most."
    if any(map(_is_dead, strips.spreads)):
        caption += (
            f" A code is almost dead if its standard deviation is below {100 * DEAD:g} % of the "
            "largest: it says next to nothing, whatever it correlates with."
        )
    shown = figure(f"{anchor}-strips", caption, *rows, class_="strips")
    return part("What each code does", shown)


def _is_dead(spread: float) -> bool:
    return spread < DEAD


def _does(cell: Cell, code: int) -> str:
    """That a code is almost dead, or the factor with which it correlates most."""
    spreads = cell.strips.spreads if cell.strips is not None else ()
    if code < len(spreads) and _is_dead(spreads[code]):
        return f": almost dead, {spreads[code]:.2g} of the largest standard deviation"
    column = [row[code] for row in cell.correlations if code < len(row)]
    if not column or len(cell.factors) != len(column):
        return ""
    best = max(range(len(column)), key=column.__getitem__)
    return f": {cell.factors[best]} ({column[best]:.2f})"
