"""Tables: our scores beside the published ones, and the scores of a section."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from isolatent.experiments.results import (
    CLOSE,
    MIN_SEEDS,
    NOT_IDENTIFIED,
    OURS,
    ours_heading,
    ours_text,
    program_text,
    seeds_text,
    spread_text,
)
from isolatent.figure_data.scores import score_name
from isolatent.report import figures
from isolatent.report.content import Block, Figure, Figures, Note, Table, TableCell
from isolatent.report.page import Comparison, Score, Section
from isolatent.theory.code_axes import AXES_NOTE, CodeAxis, axis_rows, has_timed_blocks

__all__ = [
    "axes_blocks",
    "intervals_blocks",
    "relaxations_blocks",
    "results_blocks",
    "score_name",
    "scores_blocks",
]

NUMERIC_COLUMNS = ("Paper [%]", "Difference", "Seeds")


def results_blocks(
    comparisons: Sequence[Comparison], anchors: Mapping[str, str]
) -> Iterator[Block]:
    """Yield the table of our scores beside the published ones; every column can be sorted.

    Args:
        comparisons: One for each row of the table.
        anchors: The id of each section, to link to.
    """
    several = len({compared.row.experiment for compared in comparisons}) > 1
    centres = {compared.row.centre for compared in comparisons}
    mixed, ours = len(centres) > 1, f"O{ours_heading(centres)[1:]}"
    # The most important columns come first: a phone shows only the left of a wide table.
    columns = ["Row", "Verdict", ours, *NUMERIC_COLUMNS, "Score", "Objective", "Program"]
    columns += ["Experiment"] if several else []
    yield Note(
        f"{_centre_names(centres)} over seeds, in per cent. A published score is reached if ours "
        f"is above it, within the paper’s spread or within {CLOSE:g} points; rows in red did not "
        "reach it. Where the paper shows or claims that factors are not identified, a score below "
        f"{NOT_IDENTIFIED:g} % fails as published or claimed. Rows of fewer than {MIN_SEEDS} seeds "
        f"have no verdict. A verdict that starts with “{OURS.strip()}” is on an objective that is "
        "not the paper’s, so the row does not reproduce the published score. Stale seeds are of "
        "another program than today’s. Press a heading to sort.",
        style="muted",
    )
    yield Table(
        "Our scores beside the published ones",
        tuple(TableCell(name, number=name in (ours, *NUMERIC_COLUMNS)) for name in columns),
        tuple(_table_row(compared, anchors, several, mixed) for compared in comparisons),
        frozenset(k for k, compared in enumerate(comparisons) if compared.verdict.is_bad),
        sortable=True,
    )


def _centre_names(centres: set[str]) -> str:
    """Describe the centres and spreads of a table's scores."""
    if centres == {"median"}:
        return "Medians ± median absolute deviations (MAD)"
    means = "Means ± standard deviations"
    return f"{means}, or medians ± median absolute deviations," if len(centres) > 1 else means


def _table_row(
    compared: Comparison, anchors: Mapping[str, str], several: bool, mixed: bool
) -> tuple[TableCell, ...]:
    row, verdict = compared.row, compared.verdict
    name = compared.section.removeprefix(f"{row.experiment}: ")
    return (
        TableCell(name, anchor=anchors.get(compared.section, "")),
        TableCell(verdict.text, verdict.rank, verdict=verdict),
        _numeric(row.ours, ours_text(row, mixed)),
        _numeric(row.published, spread_text(row.published, row.spread)),
        _numeric(row.difference, _signed(row.difference)),
        _numeric(row.seeds, seeds_text(row)),
        TableCell(score_name(row.metric)),
        TableCell(row.objective or "–"),
        TableCell(program_text(row) or "–"),
        *([TableCell(row.experiment)] if several else []),
    )


def _numeric(value: float | None, text: str) -> TableCell:
    known = value is not None and math.isfinite(value)
    return TableCell(text or "–", repr(value) if known else "", number=True)


def _signed(value: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


def scores_blocks(section: Section) -> Iterator[Block]:
    """Yield the table of scores: representations in rows, metrics in columns."""
    if not section.scores:
        return
    scores = {(s.label, score_name(s.metric)): s for s in section.scores}
    yield _score_table(f"Scores of {section.name}", scores)
    if guaranteed := dict.fromkeys(s.metric for s in section.scores if s.guaranteed):
        yield Note(
            f"In bold: {', '.join(map(score_name, guaranteed))}, the metric of the guarantee."
        )


def intervals_blocks(section: Section) -> Iterator[Block]:
    """Yield the table of intervals: metrics in rows, since they are many, runs in columns."""
    if not section.intervals:
        return
    scores = {(score_name(s.metric), s.label): s for s in section.intervals}
    yield _score_table(f"Scores of each run of {section.name} with intervals", scores)
    yield Note(
        "Scores of each run with 95 % bootstrap intervals, in per cent. An interval covers the "
        "sampling of the test points; the variation between trainings is that between the runs."
    )


def relaxations_blocks(section: Section) -> Iterator[Block]:
    """Yield the table of assumptions that were learned instead, or tried."""
    if not section.relaxations:
        return
    compared = any(relaxation.gain for relaxation in section.relaxations)
    heads = [TableCell("Assumption"), TableCell("Learned")]
    heads += [TableCell("Gain (nats)", number=True)] if compared else []
    rows = tuple(
        (
            TableCell(relaxation.name),
            TableCell((relaxation.learned or "learned") if relaxation.used else "as declared"),
            *([TableCell(relaxation.gain or "–", number=True)] if compared else []),
        )
        for relaxation in section.relaxations
    )
    yield Table(f"Assumptions learned by {section.name}", tuple(heads), rows)
    if compared:
        yield Note(
            "Gains on held-out pairs ± standard errors: of a learned assumption over those learned "
            "before it, of the others when they were compared last."
        )


def axes_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the table of the axes of the codes, and their time scales and periods as intervals."""
    if not section.axes:
        return
    headings, *rows = axis_rows(section.axes)
    yield Table(
        f"Axes of the codes of {section.name}",
        tuple(TableCell(name.capitalize(), number=k > 0) for k, name in enumerate(headings)),
        tuple(tuple(TableCell(text, number=k > 0) for k, text in enumerate(row)) for row in rows),
    )
    if section.axes_choice:
        yield Note(f"Axes: {section.axes_choice}.")
    if has_timed_blocks(section.axes):
        yield Note(AXES_NOTE)
    pictures = tuple(_interval_figures(section.axes, anchor))
    if pictures:
        caption = "Estimates with intervals of 95 %; one without an end is open on that side."
        yield Figures(f"{anchor}-axes", caption, pictures)


def _interval_figures(axes: Sequence[CodeAxis], anchor: str) -> Iterator[Figure]:
    for field, title in (("time_scale", "Time scales"), ("period", "Periods")):
        known = [
            (f"code {axis.code}", getattr(axis, field), getattr(axis, f"{field}_interval"))
            for axis in axes
            if getattr(axis, f"{field}_interval") is not None
            and math.isfinite(getattr(axis, field))
        ]
        if known:
            label = f"{title.lower()[:-1]} [{axes[0].unit}]"
            yield figures.intervals(f"{anchor}-{field}", title, known, label, log=True)


def _score_table(label: str, scores: Mapping[tuple[str, str], Score]) -> Table:
    """Return the table of scores by row and column."""
    columns = dict.fromkeys(column for _, column in scores)
    return Table(
        label,
        (TableCell(""), *(TableCell(name, number=True) for name in columns)),
        tuple(
            (TableCell(row), *(_score_cell(scores.get((row, column))) for column in columns))
            for row in dict.fromkeys(row for row, _ in scores)
        ),
    )


def _score_cell(score: Score | None) -> TableCell:
    return (
        TableCell("–", number=True)
        if score is None
        else TableCell(score.text, number=True, strong=score.guaranteed)
    )
