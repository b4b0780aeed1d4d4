"""What a page shows, as plain data: no model, no tensor, nothing to compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from isolatent.report.verdicts import Verdict

if TYPE_CHECKING:
    from isolatent.experiments import Row as Result

__all__ = [
    "Cell",
    "Curve",
    "Facts",
    "Matrix",
    "Moment",
    "Page",
    "Row",
    "Scatter",
    "Score",
    "Strips",
]

Facts: TypeAlias = tuple[tuple[str, str], ...]
Matrix: TypeAlias = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Moment:
    """What was known after a step of training; None where it was not measured."""

    number: int
    loss: float | None = None
    held_out: float | None = None
    information: float | None = None
    scale: float | None = None
    quality: float | None = None


@dataclass(frozen=True)
class Curve:
    """One run's moments, and its name in the legend."""

    name: str
    moments: tuple[Moment, ...]


@dataclass(frozen=True)
class Score:
    """A score of some codes.

    Attributes:
        name: Its name in :mod:`isolatent.evaluation`.
        of: What was scored, such as ``"recovered"``.
        text: The figure with its interval or spread.
        promised: Whether it is the one that the guarantee is about.
    """

    name: str
    of: str
    text: str
    promised: bool = False


@dataclass(frozen=True)
class Scatter:
    """True factors and what was recovered of each, rows by factors."""

    true: Matrix
    codes: Matrix


@dataclass(frozen=True)
class Strips:
    """A row of images for each code.

    Attributes:
        kind: ``"nearest"``, stored images, or ``"decoded"``, what a decoder draws.
        rows: A PNG file in base64 for each code.
        columns: Images along each.
        size: Pixels of one image's side.
        spreads: The standard deviation of each code as a share of the largest, if it is known.
    """

    kind: str
    rows: tuple[str, ...]
    columns: int
    size: int
    spreads: tuple[float, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A fit, or all runs of one row of a table. What is empty or None is not shown.

    Attributes:
        name: Its heading, unique on the page.
        verdict: What came of the comparison with a paper.
        facts: Short statements, label and text.
        scores: Scores, where the truth is known.
        intervals: The scores of each run with their intervals; ``of`` is the run.
        curves: Training, one curve for each run.
        quality: What the curves' quality is, for the axis.
        correlations: |corr| of true (rows) and aligned recovered (columns) factors; of a category,
            the root of the share of variance between its values.
        scatter: Factors and aligned codes.
        factors: The names of the true factors, if they have any.
        categories: Those whose values have no order.
        alignment: How codes were aligned, in words.
        strips: What each code does, in pictures.
        codes: Codes, rows by columns, where there is no truth to show them against.
        learned: The learned scale (one number) or weights Λ̂.
        truth: The world's.
        paired: Whether the learned weights are in the order of the true ones.
        guarantee: What ``Guarantee.to_dict`` gives.
        spec: Everything the run depends on, as plain data.
        command: What reruns it.
        errors: Which runs gave no score, and why.
    """

    name: str
    verdict: Verdict | None = None
    facts: Facts = ()
    scores: tuple[Score, ...] = ()
    intervals: tuple[Score, ...] = ()
    curves: tuple[Curve, ...] = ()
    quality: str = "score"
    correlations: Matrix = ()
    scatter: Scatter | None = None
    factors: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    alignment: str = ""
    strips: Strips | None = None
    codes: Matrix = ()
    learned: tuple[float, ...] = ()
    truth: tuple[float, ...] = ()
    paired: bool = False
    guarantee: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] | None = None
    command: str | None = None
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row of the table of ours beside the paper's.

    Attributes:
        cell: The heading of its cell on the page.
        result: The figures.
        verdict: What they say.
    """

    cell: str
    result: Result
    verdict: Verdict


@dataclass(frozen=True)
class Page:
    """A page: a summary in words, a table if there is something to compare with, and the cells."""

    title: str
    summary: tuple[str, ...] = ()
    table: tuple[Row, ...] = ()
    cells: tuple[Cell, ...] = ()
    facts: Facts = ()
