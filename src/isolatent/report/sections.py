"""Sections of a page as blocks: a fitted model, one cell of an experiment, or the table of all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from isolatent.experiments.latent_traversal import DEAD
from isolatent.report import figures
from isolatent.report.agreements import agreement_blocks
from isolatent.report.choices import choice_blocks
from isolatent.report.content import (
    Block,
    Command,
    FactList,
    Figure,
    Figures,
    Note,
    Part,
    Strip,
    Strips,
    clean,
)
from isolatent.report.diagnosed import diagnosis_blocks
from isolatent.report.explorer import codes_blocks, factor_lines_blocks, over_time_blocks
from isolatent.report.figures import Line
from isolatent.report.guarantee_card import guarantee_card
from isolatent.report.page import Comparison, Curve, Section, Verdict
from isolatent.report.records import read_number
from isolatent.report.tables import (
    axes_blocks,
    intervals_blocks,
    relaxations_blocks,
    results_blocks,
    score_name,
    scores_blocks,
)

__all__ = ["Entry", "render_results", "render_section"]

MAX_PANELS = 20  # of small multiples
MAX_FIGURE_ROWS = 80  # of a figure
RULED_COLUMNS = 9  # images in a row between which the style sheet draws lines
ALIGNMENTS = {
    "assignment": "after the optimal assignment, with positive signs",
    "linear": "after a linear regression fitted to other observations",
}
SEEDS_CAPTION = "The score of each run, and the published score with its spread where there is one."
TRAVERSAL_KINDS = {
    "decoded": "the decoder’s output",
    "nearest": "the stored image with the nearest codes (the varied code has the largest weight)",
    "rendered": "rendered at the latents that an affine map of the codes predicts",
}


@dataclass(frozen=True)
class Entry:
    """A section as blocks: ``lead`` is always shown, ``parts`` are folded on long pages."""

    name: str
    anchor: str
    verdict: Verdict | None
    lead: tuple[Block, ...]
    parts: tuple[Part, ...]


def render_results(
    comparisons: Sequence[Comparison], sections: Sequence[Section], anchors: Mapping[str, str]
) -> tuple[Block, ...]:
    """Return the table of all comparisons and the scores of all runs as blocks."""
    return (
        *results_blocks(comparisons, anchors),
        *_overview_blocks(comparisons, {section.name: section for section in sections}),
    )


def _overview_blocks(
    comparisons: Sequence[Comparison], sections: Mapping[str, Section]
) -> Iterator[Block]:
    """Yield the scores of all runs of all rows as points, one figure for each metric."""
    by_metric: dict[str, list[Comparison]] = {}
    for compared in comparisons:
        by_metric.setdefault(compared.row.metric, []).append(compared)
    pictures: list[Figure] = []
    for metric, group in by_metric.items():
        rows = [
            (
                c.section.removeprefix(f"{c.row.experiment}: "),
                *(values, c.row.published, c.row.spread),
            )
            for c in group
            if (values := sections[c.section].seeds.get(metric, ())) or c.row.published is not None
        ]
        if 1 < len(rows) <= MAX_FIGURE_ROWS:
            name = score_name(metric)
            key = f"overview-{len(pictures)}"
            pictures.append(figures.seed_points(key, name, rows, f"{name} [%]"))
    if pictures:
        yield Figures("overview", SEEDS_CAPTION, tuple(pictures), "single")


def render_section(section: Section, anchor: str) -> Entry:
    """Return a section as blocks; ids inside begin with its anchor."""
    # What was found comes before how it was: the facts of a fit stand below its codes.
    facts: list[Block] = [FactList(section.facts)] if section.facts else []
    below = section.rows is not None
    lead = [] if below else facts
    lead += [Note(error, "Run without a score:", "error") for error in section.errors]
    parts = (
        ("Runs that were compared", agreement_blocks(section, anchor)),
        ("Candidates that were compared", choice_blocks(section, anchor)),
        ("Recovered factors", codes_blocks(section, anchor)),
        ("Factors over time", over_time_blocks(section, anchor)),
        ("Scores", [*scores_blocks(section), *_seed_blocks(section, anchor)]),
        ("Runs", intervals_blocks(section)),
        ("True and recovered factors", _factor_blocks(section, anchor)),
        ("Latent traversals", _traversal_blocks(section, anchor)),
        ("What each factor changes", factor_lines_blocks(section, anchor)),
        ("Diagnosis", diagnosis_blocks(section, anchor)),
        ("The fit in numbers", facts if below else ()),
        (_weights_title(section), _weight_blocks(section, anchor)),
        ("Learned instead of assumed", relaxations_blocks(section)),
        ("Axes", axes_blocks(section, anchor)),
        ("Training", _training_blocks(section, anchor)),
        ("Guarantee", guarantee_card(section)),
        ("Command and specification", _command_blocks(section, anchor)),
    )
    made = (Part(title, tuple(blocks)) for title, blocks in parts)
    shown = tuple(part for part in made if part.blocks)
    return Entry(section.name, anchor, section.verdict, tuple(lead), shown)


def _training_blocks(section: Section, anchor: str) -> Iterator[Block]:
    several = len(section.curves) > 1

    def lines(field: str, name: str, style: str = "first") -> list[Line]:
        measured = (_measured(curve, field) for curve in section.curves)
        return [Line(name, points, style, thin=several) for points in measured if points]

    held_out = lines("held_out", "held out", "second")
    information = lines("information", "training")
    shared = lines("held_out_information", "held out", "second")
    # Losses on different numbers of candidates are not comparable, bounds on information are.
    together = [] if information else held_out
    unit = " (nats)" if information else ""
    truth = ("true", section.truth[0]) if len(set(section.truth)) == 1 else None
    panels = tuple(
        figures.lines(
            *(f"{anchor}-{title.lower().replace(' ', '-')}", title, drawn, ("step", label)),
            level=truth if title == "Scale" else None,
        )
        for title, drawn, label in (
            ("Information", information + shared, "information (nats)"),
            ("Loss", lines("loss", "training") + together, f"loss{unit}"),
            ("Held-out loss", [] if together else held_out, f"loss{unit}"),
            ("Quality", lines("quality", "quality"), section.quality),
            ("Scale", lines("scale", "learned"), "scale"),
        )
        if drawn
    )
    if not panels:
        return
    caption = "Training curves"
    if several:
        caption += f", one line for each of {len(section.curves)} runs"
    if information:
        caption += (
            ". Information is the lower bound log B − loss on the mutual information of a pair, "
            "with B candidates: those of a batch, or all held-out pairs. So losses of batches and "
            "of held-out pairs are not comparable, and their information is"
        )
    yield from _overfitting_notes(section)
    yield Figures(f"{anchor}-training", f"{caption}.", panels)


def _overfitting_notes(section: Section) -> Iterator[Block]:
    """Yield a sentence where the held-out loss of the only run rises again."""
    from isolatent.figure_data import training_data

    if len(section.curves) != 1 or not _measured(section.curves[0], "loss"):
        return
    start = training_data({"curve": section.curves[0]}).overfits_from
    if start is not None:
        yield Note(
            f"From step {start} on the held-out loss rises while the loss of the batches falls. "
            f"The network of about step {start} is the one that was kept.",
            "Overfitting.",
            "warning",
        )


def _measured(curve: Curve, field: str) -> list[tuple[float, float]]:
    """Return the steps at which a quantity was measured, and its values."""
    values = ((float(step["number"]), read_number(step.get(field))) for step in curve)
    return [(number, value) for number, value in values if value is not None]


def _seed_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the scores of all seeds as points, beside the published ones."""
    rows = [
        (score_name(metric), values, *section.published.get(metric, (None, None)))
        for metric, values in section.seeds.items()
        if len(values) > 1 or metric in section.published
    ]
    if not rows:
        return
    figure = figures.seed_points(f"{anchor}-seeds", "Scores of all runs", rows, "score [%]")
    yield Figures(f"{anchor}-seeds", SEEDS_CAPTION, (figure,), "single")


def _factor_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the correlation matrix, and scatter plots of true factors and aligned codes."""
    alignment = ALIGNMENTS.get(section.alignment, section.alignment)
    how = f", {alignment}" if alignment else ""
    if section.correlations and section.correlations[0]:
        matrix = figures.heat_map(
            f"{anchor}-correlations",
            "Correlations of true and recovered factors",
            section.correlations,
            ("true factor", "code" if section.traversal else "recovered factor"),
            section.factors,
        )
        caption = f"|Correlation| of each true factor with each recovered factor{how}."
        if section.traversal:
            caption = "|Rank correlation| of each true factor with each code."
            if section.categories:
                caption += (
                    f" For a categorical factor ({', '.join(section.categories)}): the square root "
                    "of the share of the variance of a code’s ranks between categories."
                )
        yield Figures(f"{anchor}-correlations", caption, (matrix,), "matrix")
    if section.scatter is not None:
        columns = list(zip(*(zip(*rows, strict=True) for rows in section.scatter), strict=False))
        panels = tuple(
            figures.points(
                f"{anchor}-factor{k + 1}",
                f"Factor {k}",
                true,
                code,
                ("true", "recovered"),
                f"Factor {k}, {len(true)} points: recovered against true{how}.",
            )
            for k, (true, code) in enumerate(columns[:MAX_PANELS])
        )
        caption = f"Recovered against true factors{how}."
        if len(columns) > MAX_PANELS:
            caption += f" The first {MAX_PANELS} of {len(columns)} factors."
        yield Figures(f"{anchor}-scatter", caption, panels, "small panels")


def _traversal_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield a row of images for each code, named by the factor with which it correlates most."""
    traversal = section.traversal
    if traversal is None or not traversal.rows:
        return
    strips = tuple(
        Strip(
            f"Code {k}{_code_label(section, k)}",
            row,
            traversal.columns * traversal.size,
            traversal.size,
        )
        for k, row in enumerate(traversal.rows)
    )
    caption = (
        "Each row varies one code from its 2nd to its 98th percentile and keeps the other codes at "
        "those of a central image. Each image is "
        f"{TRAVERSAL_KINDS.get(traversal.kind, traversal.kind)}."
    )
    if section.correlations and section.factors:
        caption += " The label names the factor with the largest correlation."
    if min(traversal.spreads, default=1.0) < DEAD:
        caption += (
            f" A code is inactive if its standard deviation is below {100 * DEAD:g} % of the "
            "largest; its correlations carry little information."
        )
    yield Strips(f"{anchor}-traversal", caption, strips, traversal.columns)


def _code_label(section: Section, code: int) -> str:
    """Say that a code is inactive, or name the factor with which it correlates most."""
    spreads = section.traversal.spreads if section.traversal is not None else ()
    if code < len(spreads) and spreads[code] < DEAD:
        return f": inactive, {spreads[code]:.2g} of the largest standard deviation"
    column = [row[code] for row in section.correlations if code < len(row)]
    if not column or len(section.factors) != len(column):
        return ""
    best = max(range(len(column)), key=column.__getitem__)
    return f": {section.factors[best]} ({column[best]:.2f})"


def _weights_title(section: Section) -> str:
    return "Learned scale" if len(section.learned) == 1 else "Learned weights"


def _weight_blocks(section: Section, anchor: str) -> Iterator[Block]:
    learned, truth = section.learned, section.truth
    if not learned or not all(map(figures.is_drawable, (*learned, *truth))):
        return
    if len(learned) == 1:
        true = f", true {truth[0]:.4g}" if len(set(truth)) == 1 else ""
        yield Note(f"learned {learned[0]:.4g}{true}")
        return
    key = f"{anchor}-weights"
    if len(truth) == len(learned):
        if not section.paired:
            truth, learned = tuple(sorted(truth)), tuple(sorted(learned))
        pairs = zip(truth, learned, strict=True)
        described = ", ".join(f"{a:.3g} learned as {b:.3g}" for a, b in list(pairs)[:40])
        picture = figures.points(
            key,
            "Weights Λ̂",
            truth,
            learned,
            ("true weight", "learned weight"),
            f"Learned against true weights: {described}.",
            diagonal=True,
        )
        order = "one point for each factor" if section.paired else "both sorted"
        caption = f"Learned against true weights Λ̂, {order}; points on the line agree."
    else:
        picture = figures.bars(key, "Weights Λ̂", learned, ("code", "learned weight"))
        caption = "Learned weights Λ̂ of the codes."
    yield Figures(key, caption, (picture,))


def _command_blocks(section: Section, anchor: str) -> Iterator[Block]:
    if not section.command and section.spec is None:
        return
    note = "Finished runs in a directory are skipped; --out names a new one."
    settings = ""
    if section.spec is not None:
        settings = json.dumps(dict(section.spec), indent=2, ensure_ascii=False, default=str)
    command = section.command or ""
    yield Command(anchor, clean(command), note if " --out again" in command else "", settings)
