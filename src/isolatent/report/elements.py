"""HTML and SVG elements, escaped by MarkupSafe, and the blocks that a section is made of."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from isolatent.report.page import Facts

__all__ = ["Markup", "element", "facts_list", "figure", "join", "number", "part", "scrolling"]

# Characters that HTML forbids: controls, surrogates and noncharacters.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_VOID = {"meta", "link", "br", "hr", "wbr"}  # elements without an end tag
MAX_COLUMN_LENGTH = 90  # characters; a longer fact takes the whole width


def element(
    name: str, /, *content: str | None, **attributes: str | int | float | bool | None
) -> Markup:
    """Return one element; strings that are not ``Markup`` are escaped.

    Content and attributes that are ``None`` are left out, and so are attributes that are ``False``;
    ``True`` gives an attribute without a value. Floats are lengths, see :func:`number`. In the name
    of an attribute, a trailing underscore is dropped and other underscores become hyphens.

    Example:
        >>> print(element("a", "a < b", href="#x", class_="row", hidden=False, aria_label='"'))
        <a href="#x" class="row" aria-label="&#34;">a &lt; b</a>
        >>> print(element("p", element("br"), None))
        <p><br></p>
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        text = number(value) if isinstance(value, float) else str(value)
        words.append(key if value is True else f'{key}="{_escape(text)}"')
    if name in _VOID:
        return Markup(f"<{' '.join(words)}>")
    return Markup(f"<{' '.join(words)}>{join(*content)}</{name}>")


def number(value: float) -> str:
    """Format a length for SVG, to a tenth of a pixel.

    Example:
        >>> number(12.0), number(3.14159)
        ('12', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")


def join(*content: str | None) -> Markup:
    """Concatenate content; strings that are not ``Markup`` are escaped."""
    return Markup("").join(_escape(item) for item in content if item is not None)


def _escape(text: str) -> Markup:
    return escape(text if isinstance(text, Markup) else _FORBIDDEN.sub("\ufffd", text))


def facts_list(facts: Facts) -> Markup | None:
    """Return a description list of labels and texts, or None without facts."""
    if not facts:
        return None
    pairs = (
        element(
            "div",
            element("dt", label),
            element("dd", text),
            class_="wide" if len(text) > MAX_COLUMN_LENGTH else None,
        )
        for label, text in facts
    )
    return element("dl", *pairs, class_="facts")


def figure(key: str, caption: str, *pictures: Markup, class_: str | None = None) -> Markup:
    """Return pictures with a caption, which is also the accessible name of the figure."""
    return element(
        "figure",
        element("div", *pictures, class_=class_),
        element("figcaption", caption, id=f"{key}-caption"),
        aria_labelledby=f"{key}-caption",
    )


def part(title: str, *content: Markup | None) -> Markup:
    """Return content under a heading."""
    return element("div", element("h3", title), *content, class_="part")


def scrolling(label: str, table: Markup) -> Markup:
    """Return a box in which a wide table scrolls; it takes the focus, so that keys scroll it."""
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")
