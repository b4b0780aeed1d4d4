"""What templates can render: parts of a section, made of figures, tables, facts and texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from isolatent.report.page import Facts, Verdict

__all__ = [
    "Block",
    "Card",
    "Command",
    "Explorer",
    "FactList",
    "Figure",
    "Figures",
    "Mark",
    "Note",
    "Part",
    "Strip",
    "Strips",
    "Table",
    "TableCell",
    "clean",
]

# Characters that HTML forbids (controls, surrogates, noncharacters), and those that reverse the
# direction of the text around them.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def clean(text: str) -> str:
    r"""Replace characters that HTML forbids or that reverse the text around them.

    Example:
        >>> clean("a\x00b\u202ec")
        'a�b�c'
    """
    return _FORBIDDEN.sub("\ufffd", text)


@dataclass(frozen=True)
class Figure:
    """A figure in plotly's JSON schema.

    Attributes:
        key: Its id on the page.
        title: A short name.
        description: What it shows, for readers who cannot see it, and before it is drawn.
        data: The traces.
        layout: The layout; colours such as ``"var(--first)"`` are those of the style sheet.
        height: Height in pixels.
        links: The id of the explorer whose selection the figure shows.
    """

    key: str
    title: str
    description: str
    data: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]
    height: int = 250
    links: str = ""


@dataclass(frozen=True)
class Figures:
    """Figures side by side with one caption; ``layout`` is a class of the style sheet."""

    kind: ClassVar[str] = "figures"
    key: str
    caption: str
    figures: tuple[Figure, ...]
    layout: str = "panels"


@dataclass(frozen=True)
class Explorer:
    """Linked views of codes, with menus for axes and colours.

    Attributes:
        key: Its id on the page.
        caption: What is shown, and of how many rows.
        description: The same in words, for readers who cannot see it.
        data: Codes and colourings, as ``explorer.js`` reads them.
    """

    kind: ClassVar[str] = "explorer"
    key: str
    caption: str
    description: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Strip:
    """A row of images in one PNG file (base64), with its name."""

    name: str
    png: str
    width: int
    height: int


@dataclass(frozen=True)
class Strips:
    """Rows of images with one caption; ``columns`` images in each."""

    kind: ClassVar[str] = "strips"
    key: str
    caption: str
    strips: tuple[Strip, ...]
    columns: int


@dataclass(frozen=True)
class TableCell:
    """A cell of a table.

    Attributes:
        text: Its text.
        value: By what it is sorted: a number, ``""`` for a missing number, None for its text.
        anchor: Id of the section it links to.
        verdict: A verdict that stands in place of the text.
        number: Whether it is aligned to the right.
        strong: Whether it is emphasised.
    """

    text: str
    value: float | str | None = None
    anchor: str = ""
    verdict: Verdict | None = None
    number: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Attributes:
        label: The accessible name.
        heads: Headings of the columns, as cells.
        rows: The rows.
        bad: Indices of rows that need attention.
        sortable: Whether a press on a heading sorts the rows.
    """

    kind: ClassVar[str] = "table"
    label: str
    heads: tuple[TableCell, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    bad: frozenset[int] = frozenset()
    sortable: bool = False


@dataclass(frozen=True)
class FactList:
    """Labels and texts."""

    kind: ClassVar[str] = "facts"
    facts: Facts


@dataclass(frozen=True)
class Note:
    """A paragraph; ``strong`` is its emphasised beginning."""

    kind: ClassVar[str] = "note"
    text: str
    strong: str = ""
    style: str = ""


@dataclass(frozen=True)
class Mark:
    """An assumption with its mark.

    Attributes:
        status: ``"yes"``, ``"no"`` or ``"open"``: the tick, the cross, or neither.
        label: How the assumption is known, such as ``"declared"``.
        text: The assumption.
        found: What was found about it, if anything.
    """

    status: str
    label: str
    text: str
    found: str = ""


@dataclass(frozen=True)
class Card:
    """What may be claimed.

    Attributes:
        state: ``"good"``, ``"bad"`` or ``"open"``, the colour.
        lead: The beginning of the claim.
        claim: The claim, emphasised.
        marks: Assumptions with their marks.
        facts: Further facts.
    """

    kind: ClassVar[str] = "card"
    state: str
    lead: str
    claim: str
    marks: tuple[Mark, ...]
    facts: Facts


@dataclass(frozen=True)
class Command:
    """A command, a button that copies it, and settings as JSON."""

    kind: ClassVar[str] = "command"
    key: str
    command: str
    note: str
    settings: str


Block: TypeAlias = Figures | Explorer | Strips | Table | FactList | Note | Card | Command


@dataclass(frozen=True)
class Part:
    """Blocks under a heading."""

    title: str
    blocks: tuple[Block, ...]
