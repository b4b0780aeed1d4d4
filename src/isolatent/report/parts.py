"""What the parts of a cell's section are made of."""

from __future__ import annotations

from isolatent.report.markup import Markup, element
from isolatent.report.page import Facts

__all__ = ["facts_list", "figure", "part"]

ONE_COLUMN = 90  # characters; a longer text takes the whole width


def facts_list(facts: Facts) -> Markup | None:
    """Labels and what they stand for."""
    if not facts:
        return None
    pairs = (
        element(
            "div",
            element("dt", label),
            element("dd", text),
            class_="wide" if len(text) > ONE_COLUMN else None,
        )
        for label, text in facts
    )
    return element("dl", *pairs, class_="facts")


def figure(key: str, caption: str, *pictures: Markup, class_: str | None = None) -> Markup:
    """Pictures with a caption, which also names them to who cannot see them."""
    return element(
        "figure",
        element("div", *pictures, class_=class_),
        element("figcaption", caption, id=f"{key}-caption"),
        aria_labelledby=f"{key}-caption",
    )


def part(title: str, *content: Markup | None) -> Markup:
    """Content under a heading."""
    return element("div", element("h3", title), *content, class_="part")
