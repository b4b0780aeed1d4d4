"""Small cards of HTML that notebooks show in the place of a text; everything in them is escaped.

A card has neither scripts nor a style sheet. Its colours are those of the page around it, so that
it fits light and dark themes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from markupsafe import Markup

__all__ = ["Row", "card"]

# Green, red and amber that can be read on white and on black.
CARD_COLOURS = {"yes": "#2a9d5c", "no": "#d1495b", "open": "#b58900", "": "inherit"}
BORDERS = CARD_COLOURS | {"": "rgba(127,127,127,.6)"}
TICKS = {"yes": "✓", "no": "✗", "open": "?", "": ""}
LINE = "1px solid rgba(127,127,127,.35)"
# Controls, which HTML forbids, and characters that reverse the direction of the text around them.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)

Row: TypeAlias = tuple[str, str] | tuple[str, str, str]


def card(
    title: str,
    lead: str,
    rows: Sequence[Row] = (),
    *,
    status: str = "",
    folded: Sequence[Row] = (),
    summary: str = "Details",
) -> str:
    """Return a card as HTML.

    Args:
        title: What is shown, such as ``"Guarantee"``.
        lead: The most important sentence.
        rows: Labels and texts; a third element ``"yes"``, ``"no"`` or ``"open"`` is a tick, a cross
            or a question mark.
        status: Colour of the card: ``"yes"`` for green, ``"no"`` for red, ``"open"`` for amber, and
            empty for none.
        folded: Further rows, hidden until ``summary`` is clicked.
        summary: Name of these rows.

    Example:
        >>> "&lt;b&gt;" in card("Guarantee", "<b>affine</b> map", [("score", "mcc")])
        True
    """
    parts = [
        _element("div", title, "font-size:.85em;opacity:.75"),
        _element("div", lead, f"font-weight:600;margin:.15em 0 .4em;color:{CARD_COLOURS[status]}"),
        _table(rows),
    ]
    if folded:
        head = Markup("<summary style='cursor:pointer;font-size:.9em'>{}</summary>").format(summary)
        parts.append(Markup("<details>{}{}</details>").format(head, _table(folded)))
    style = (
        f"border:{LINE};border-left:.3em solid {BORDERS[status]};border-radius:.3em;"
        "padding:.5em .8em;margin:.3em 0;max-width:60em;overflow-wrap:anywhere;font-family:inherit"
    )
    return str(Markup("<div style='{}'>{}</div>").format(style, Markup("").join(parts)))


def _table(rows: Sequence[Row]) -> Markup:
    lines = []
    marked = any(mark for _, _, *mark in rows)
    for label, text, *mark in rows:
        cells = [_cell(label, "opacity:.75;white-space:nowrap"), _cell(text)]
        if marked:
            kind = mark[0] if mark else ""
            cells.insert(0, _cell(TICKS[kind], f"color:{CARD_COLOURS[kind]};font-weight:600"))
        lines.append(Markup("<tr style='background:none'>{}</tr>").format(Markup("").join(cells)))
    if not lines:
        return Markup("")
    style = "border-collapse:collapse;margin:0;font-size:.9em;color:inherit"
    return Markup("<table style='{}'>{}</table>").format(style, Markup("").join(lines))


def _cell(text: str, style: str = "") -> Markup:
    usual = "padding:.1em .8em .1em 0;text-align:left;vertical-align:top;border:0;"
    return _element("td", text, usual + style)


def _element(tag: str, text: str, style: str) -> Markup:
    """Return an element whose text cannot change the direction of what is around it."""
    shown = Markup("<bdi>{}</bdi>").format(FORBIDDEN.sub("\ufffd", text))
    return Markup(f"<{tag} style='{{}}'>{{}}</{tag}>").format(style, shown)
