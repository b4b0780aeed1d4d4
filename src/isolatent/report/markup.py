"""HTML and SVG in which nothing can be forgotten to be escaped."""

from __future__ import annotations

import html
import re
from typing import TypeAlias

__all__ = ["Content", "Markup", "element", "join"]

# What HTML cannot hold: control characters, halves of surrogate pairs, non-characters.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_VOID = {"meta", "link", "br", "hr", "wbr"}


class Markup(str):
    """Text that is markup already; any other string is escaped when it becomes content."""

    __slots__ = ()


Content: TypeAlias = "str | None"


def element(
    name: str, /, *content: Content, **attributes: str | int | float | bool | None
) -> Markup:
    """One element. ``None`` is left out, be it content or an attribute; True is a bare attribute.

    A trailing underscore is dropped from an attribute's name, and others become hyphens.

    Example:
        >>> element("a", "a < b", href="#x", class_="row", hidden=False, aria_label='"')
        '<a href="#x" class="row" aria-label="&quot;">a &lt; b</a>'
        >>> element("p", element("br"), None)
        '<p><br></p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{_escape(str(value))}"')
    if name in _VOID:
        return Markup(f"<{' '.join(words)}>")
    return Markup(f"<{' '.join(words)}>{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    """Content in a row; what is not markup is escaped."""
    return Markup(
        "".join(c if isinstance(c, Markup) else _escape(c) for c in content if c is not None)
    )


def _escape(text: str) -> str:
    return html.escape(_FORBIDDEN.sub("\ufffd", text), quote=True)
