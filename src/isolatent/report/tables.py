"""Tables: our scores beside the published ones, and the scores of a section."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
from isolatent.report.elements import Markup, element, join, part, scrolling
from isolatent.report.page import Comparison, Score, Section, Verdict
from isolatent.theory.code_axes import AXES_NOTE, axis_rows, has_timed_blocks

__all__ = [
    "axes_part",
    "intervals_part",
    "relaxations_part",
    "results_table",
    "score_name",
    "scores_part",
    "verdict_mark",
]

NUMERIC_COLUMNS = ("Paper [%]", "Difference", "Seeds")


def results_table(comparisons: Sequence[Comparison], anchors: Mapping[str, str]) -> Markup:
    """Return the table of our scores beside the published ones; every column can be sorted.

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
    heads = (
        element(
            "th",
            element(
                "button", name, element("span", aria_hidden="true", class_="arrow"), type="button"
            ),
            scope="col",
            class_="number" if name in (ours, *NUMERIC_COLUMNS) else None,
        )
        for name in columns
    )
    table = element(
        "table",
        element("caption", "Our scores beside the published ones", class_="unseen"),
        element("thead", element("tr", *heads)),
        element(
            "tbody", *(_table_row(compared, anchors, several, mixed) for compared in comparisons)
        ),
        class_="results",
        aria_describedby="results-rule",
    )
    rule = (
        f"{_centre_names(centres)} over seeds, in per cent. A published score is reached if ours "
        f"is above it, within the paper’s spread or within {CLOSE:g} points; rows in red did not "
        "reach it. Where the paper shows or claims that factors are not identified, a score below "
        f"{NOT_IDENTIFIED:g} % fails as published or claimed. Rows of fewer than {MIN_SEEDS} seeds "
        f"have no verdict. A verdict that starts with “{OURS.strip()}” is on an objective that is "
        "not the paper’s, so the row does not reproduce the published score. Stale seeds are of "
        "another program than today’s. Press a heading to sort."
    )
    return join(
        element("p", rule, id="results-rule", class_="muted"),
        scrolling("Our scores beside the published ones", table),
    )


def _centre_names(centres: set[str]) -> str:
    """Describe the centres and spreads of a table's scores."""
    if centres == {"median"}:
        return "Medians ± median absolute deviations (MAD)"
    means = "Means ± standard deviations"
    return f"{means}, or medians ± median absolute deviations," if len(centres) > 1 else means


def _table_row(
    compared: Comparison, anchors: Mapping[str, str], several: bool, mixed: bool
) -> Markup:
    row, verdict = compared.row, compared.verdict
    anchor = anchors.get(compared.section)
    name = compared.section.removeprefix(f"{row.experiment}: ")
    return element(
        "tr",
        element(
            "th", name if anchor is None else element("a", name, href=f"#{anchor}"), scope="row"
        ),
        element("td", verdict_mark(verdict), data_value=verdict.rank, class_="outcome"),
        _numeric(row.ours, ours_text(row, mixed)),
        _numeric(row.published, spread_text(row.published, row.spread)),
        _numeric(row.difference, _signed(row.difference)),
        _numeric(row.seeds, seeds_text(row)),
        element("td", score_name(row.metric), class_="name"),
        element("td", row.objective or "–"),
        element("td", program_text(row) or "–"),
        element("td", row.experiment) if several else None,
        class_="bad" if verdict.is_bad else None,
    )


def _numeric(value: float | None, text: str) -> Markup:
    known = value is not None and math.isfinite(value)
    return element("td", text or "–", class_="number", data_value=repr(value) if known else "")


def _signed(value: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


def verdict_mark(verdict: Verdict) -> Markup:
    """Return a verdict as symbol, words and colour."""
    symbol = element("span", verdict.symbol, aria_hidden="true")
    return element("span", symbol, " ", verdict.text, class_=f"verdict {verdict.kind}")


def scores_part(section: Section) -> Markup | None:
    """Return the table of scores: representations in rows, metrics in columns."""
    if not section.scores:
        return None
    table = _score_table({(s.label, score_name(s.metric)): s for s in section.scores})
    note = None
    if guaranteed := dict.fromkeys(s.metric for s in section.scores if s.guaranteed):
        listed = ", ".join(map(score_name, guaranteed))
        note = element("p", f"In bold: {listed}, the metric of the guarantee.")
    return part("Scores", scrolling(f"Scores of {section.name}", table), note)


def intervals_part(section: Section) -> Markup | None:
    """Return the table of intervals: metrics in rows, since they are many, runs in columns."""
    if not section.intervals:
        return None
    table = _score_table({(score_name(s.metric), s.label): s for s in section.intervals})
    note = (
        "Scores of each run with 95 % bootstrap intervals, in per cent. An interval covers the "
        "sampling of the test points; the variation between trainings is that between the runs."
    )
    shown = scrolling(f"Scores of each run of {section.name} with intervals", table)
    return part("Runs", shown, element("p", note))


def relaxations_part(section: Section) -> Markup | None:
    """Return the table of assumptions that were learned instead, or tried."""
    if not section.relaxations:
        return None
    compared = any(relaxation.gain for relaxation in section.relaxations)
    columns = ["Assumption", "Learned", *(["Gain (nats)"] if compared else [])]
    lines = (
        element(
            "tr",
            element("th", relaxation.name, scope="row"),
            element("td", (relaxation.learned or "learned") if relaxation.used else "as declared"),
            element("td", relaxation.gain or "–", class_="number") if compared else None,
        )
        for relaxation in section.relaxations
    )
    table = element(
        "table",
        element("thead", element("tr", *(element("th", name, scope="col") for name in columns))),
        element("tbody", *lines),
    )
    note = None
    if compared:
        note = element(
            "p",
            "Gains on held-out pairs ± standard errors: of a learned assumption over those learned "
            "before it, of the others when they were compared last.",
        )
    shown = scrolling(f"Assumptions learned by {section.name}", table)
    return part("Learned instead of assumed", shown, note)


def axes_part(section: Section) -> Markup | None:
    """Return the table of the axes of the codes."""
    if not section.axes:
        return None
    headings, *rows = axis_rows(section.axes)
    heads = (element("th", name.capitalize(), scope="col") for name in headings)
    lines = (
        element(
            "tr",
            element("th", code, scope="row"),
            *(element("td", text, class_="number") for text in texts),
        )
        for code, *texts in rows
    )
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *lines))
    notes = [f"Axes: {section.axes_choice}."] if section.axes_choice else []
    notes += [AXES_NOTE] if has_timed_blocks(section.axes) else []
    shown = scrolling(f"Axes of the codes of {section.name}", table)
    return part("Axes", shown, *(element("p", note) for note in notes))


def _score_table(scores: Mapping[tuple[str, str], Score]) -> Markup:
    """Return the table of scores by row and column."""
    rows = dict.fromkeys(row for row, _ in scores)
    columns = dict.fromkeys(column for _, column in scores)
    heads = (element("th", name, scope="col", class_="number") for name in columns)
    lines = (
        element(
            "tr",
            element("th", row, scope="row"),
            *(_score_cell(scores.get((row, column))) for column in columns),
        )
        for row in rows
    )
    return element(
        "table",
        element("thead", element("tr", element("td"), *heads)),
        element("tbody", *lines),
    )


def _score_cell(score: Score | None) -> Markup:
    if score is None:
        return element("td", "–", class_="number")
    text = element("strong", score.text) if score.guaranteed else score.text
    return element("td", text, class_="number")
