"""The content of a page as plain data, without models or tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field

from isolatent.theory import CodeAxis

if TYPE_CHECKING:
    from isolatent.diagnosis import Choice, Consistency, Diagnosis
    from isolatent.experiments import Row
    from isolatent.figure_data import EncodedRows, TraversalData

__all__ = [
    "APPROACH_LABELS",
    "VERDICT_SYMBOLS",
    "Comparison",
    "Curve",
    "Facts",
    "Headline",
    "LatentTraversal",
    "Matrix",
    "Page",
    "Relaxation",
    "Score",
    "Section",
    "Verdict",
]

Facts: TypeAlias = tuple[tuple[str, str], ...]  # labels and texts
Matrix: TypeAlias = tuple[tuple[float, ...], ...]
Curve: TypeAlias = tuple[
    Mapping[str, Any], ...
]  # fields of isolatent.training.Step after each step

# Labels of the representations that are scored.
APPROACH_LABELS = {
    "identity": "raw observations",
    "supervised": "supervised encoder",
    "unsupervised": "recovered",
}
# From the worst to the best.
VERDICT_SYMBOLS = {
    "failed": "✗",
    "missed": "✗",
    "missing": "–",
    "limit": "≈",
    "open": "–",
    "ours": "○",
    "reached": "✓",
    "above": "▲",
}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison with a published score.

    Attributes:
        kind: A key of ``VERDICT_SYMBOLS``.
        text: The outcome in words, which stand beside the symbol and the colour.
    """

    kind: str
    text: str

    @property
    def symbol(self) -> str:
        """A symbol that distinguishes the kinds without colour."""
        return VERDICT_SYMBOLS.get(self.kind, "–")

    @property
    def is_bad(self) -> bool:
        """Whether the published score was not reached, so that somebody should look into it."""
        return self.kind in ("missed", "failed", "missing")

    @property
    def rank(self) -> int:
        """The position among the kinds; the worst is 0."""
        return [*VERDICT_SYMBOLS].index(self.kind)


@dataclass(frozen=True)
class Headline:
    """The verdict on a fit, at the top of its page.

    Attributes:
        state: ``"good"``, ``"bad"`` or ``"open"``, where the data do not tell or were not asked.
        label: The verdict in one or two words.
        text: What was found and what may be claimed.
        advice: What to do.
        commands: Commands that do it.
    """

    state: str
    label: str
    text: str
    advice: str = ""
    commands: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """A symbol that distinguishes the states without colour."""
        return {"good": "✓", "bad": "✗"}.get(self.state, "?")


@dataclass(frozen=True)
class Score:
    """A score with its interval or spread.

    Attributes:
        metric: The metric's name in :mod:`isolatent.evaluation`.
        label: The representation that was scored, such as ``"recovered"``, or the run.
        text: The value with its interval or spread.
        guaranteed: Whether the guarantee is a statement about this metric.
    """

    metric: str
    label: str
    text: str
    guaranteed: bool = False


@dataclass(frozen=True)
class Relaxation:
    """An assumption that was learned instead, or that was tried.

    Attributes:
        name: The name of the relaxation and what it allows for.
        used: Whether it is part of the model.
        learned: What was learned, in words, if anything was measured.
        gain: Its gain on held-out pairs with the standard error, if it was compared.
    """

    name: str
    used: bool
    learned: str = ""
    gain: str = ""


@dataclass(frozen=True)
class LatentTraversal:
    """A row of images for each code, along which that code grows.

    Attributes:
        kind: ``"nearest"`` for stored images, ``"decoded"`` for images that a decoder made,
            ``"rendered"`` for images of a world at latents that the codes predict.
        rows: A PNG file in base64 for each code.
        columns: Number of images in a row.
        size: Side length of an image in pixels.
        spreads: The standard deviation of each code as a share of the largest, if known.
    """

    kind: str
    rows: Annotated[tuple[str, ...], Field(min_length=1)]
    columns: int
    size: int
    spreads: tuple[float, ...] = ()


@dataclass(frozen=True)
class Section:
    """A fitted model, or all runs of one cell of an experiment. Empty fields are not shown.

    Attributes:
        name: The heading, unique on the page.
        verdict: The outcome of the comparison with a paper.
        facts: Short statements, label and text.
        scores: Scores of codes whose true factors are known.
        intervals: The scores of each run with their confidence intervals; the label is the run.
        curves: The training steps of each run.
        quality: Name of the curves' ``quality``, for the axis.
        correlations: |corr| of true factors (rows) and aligned codes (columns). For a categorical
            factor, the square root of the share of variance between its values.
        scatter: True factors and aligned codes, rows by factors.
        factors: Names of the true factors, if they have any.
        categories: Names of the categorical factors.
        alignment: How the codes were aligned: ``"assignment"``, ``"linear"`` or empty.
        traversal: Images along each code.
        rows: Codes of rows with their sessions and times.
        columns: Values of further columns for each of these rows, by name, to colour codes by.
        is_recording: Whether rows follow each other in time.
        changes: What a decoder changes along each code.
        diagnosis: What was checked about the fit.
        choice: Which candidate beliefs were compared.
        agreement: How far runs agree, whose names are ``factors``.
        seeds: The scores of all runs in per cent, by the metric's name.
        published: The published scores with their spread, by the metric's name.
        learned: The learned scale (one number) or weights Λ̂.
        truth: The scale or weights of the world.
        relaxations: Assumptions that were learned instead, and those that were tried.
        axes: The axis of each code, where axes were found.
        axes_choice: Which method found the axes, and why it was taken.
        paired: Whether the learned weights are in the order of the true ones.
        guarantee: The result of ``Guarantee.to_dict``.
        spec: All settings of the run, as plain data.
        command: The command that repeats the run.
        errors: Runs without a score, and the reason of each.
    """

    name: str
    verdict: Verdict | None = None
    facts: Facts = ()
    scores: tuple[Score, ...] = ()
    intervals: tuple[Score, ...] = ()
    curves: tuple[Curve, ...] = ()
    quality: str = "score"
    correlations: Matrix = ()
    scatter: tuple[Matrix, Matrix] | None = None
    factors: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    alignment: str = ""
    traversal: LatentTraversal | None = None
    rows: EncodedRows | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    is_recording: bool = False
    changes: TraversalData | None = None
    diagnosis: Diagnosis | None = None
    choice: Choice | None = None
    agreement: Consistency | None = None
    seeds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    published: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)
    learned: tuple[float, ...] = ()
    truth: tuple[float, ...] = ()
    paired: bool = False
    guarantee: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] | None = None
    command: str | None = None
    errors: tuple[str, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    axes: tuple[CodeAxis, ...] = ()
    axes_choice: str = ""


@dataclass(frozen=True)
class Comparison:
    """A row of the table that compares our scores with the published ones.

    Attributes:
        section: The heading of its section on the page.
        row: The scores.
        verdict: The outcome.
    """

    section: str
    row: Row
    verdict: Verdict


@dataclass(frozen=True)
class Page:
    """A page: a summary in words, a table of comparisons if there are any, and the sections.

    ``headline`` is the verdict on a fit.
    """

    title: str
    summary: tuple[str, ...] = ()
    table: tuple[Comparison, ...] = ()
    sections: tuple[Section, ...] = ()
    facts: Facts = ()
    headline: Headline | None = None
