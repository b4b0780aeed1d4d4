"""A section of the page: everything about one fitted model or one cell of an experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping

from isolatent.experiments.latent_traversal import DEAD
from isolatent.report import figures
from isolatent.report.axes import is_drawable
from isolatent.report.elements import Markup, element, facts_list, figure, join, part
from isolatent.report.figures import Line
from isolatent.report.page import Curve, Section
from isolatent.report.records import read_number
from isolatent.report.tables import (
    axes_part,
    intervals_part,
    relaxations_part,
    score_name,
    scores_part,
    verdict_mark,
)
from isolatent.theory.assumptions import ASSUMPTION_KINDS

__all__ = ["render_section"]

MAX_PANELS = 20  # of small multiples
RULED_COLUMNS = 9  # images in a row between which the style sheet draws lines
ALIGNMENTS = {
    "assignment": "after the optimal assignment, with positive signs",
    "linear": "after a linear regression fitted to other observations",
}
TRAVERSAL_KINDS = {
    "decoded": "the decoder’s output",
    "nearest": "the stored image with the nearest codes (the varied code has the largest weight)",
}


def render_section(section: Section, anchor: str, folded: bool) -> Markup:
    """Render a section.

    Args:
        section: The content.
        anchor: The id of the element, with which the ids inside begin.
        folded: Whether everything but heading, verdict and facts is hidden at first.
    """
    body: tuple[Markup | None, ...] = (
        scores_part(section),
        intervals_part(section),
        _training_part(section, anchor),
        _factors_part(section, anchor),
        _traversal_part(section, anchor),
        _codes_part(section, anchor),
        _weights_part(section, anchor),
        relaxations_part(section),
        axes_part(section),
        _guarantee_part(section),
        _command_part(section, anchor),
    )
    if folded and any(body):
        summary = element(
            "summary", f"Curves, factors, guarantee and specification of {section.name}"
        )
        body = (element("details", summary, *body, class_="fold"),)
    return element(
        "section",
        element("h2", section.name, id=f"{anchor}-name"),
        element("p", verdict_mark(section.verdict)) if section.verdict is not None else None,
        facts_list(section.facts),
        *(
            element("p", element("strong", "Run without a score: "), error, class_="error")
            for error in section.errors
        ),
        *body,
        id=anchor,
        class_="entry",
        aria_labelledby=f"{anchor}-name",
    )


def _training_part(section: Section, anchor: str) -> Markup | None:
    several = len(section.curves) > 1

    def lines(field: str, name: str, style: str = "first") -> list[Line]:
        style = f"{style} thin" if several else style
        measured = (_measured(curve, field) for curve in section.curves)
        return [Line(name, points, style) for points in measured if points]

    held_out, information = (
        lines("held_out", "held out", "second"),
        lines("information", "information"),
    )
    unit = " (nats)" if information else ""
    truth = ("true", section.truth[0]) if len(set(section.truth)) == 1 else None
    panels = [
        figures.lines(
            *(f"{anchor}-{title.lower()}", title, drawn, ("step", label)),
            level=truth if title == "Scale" else None,
        )
        for title, drawn, label in (
            ("Loss", lines("loss", "training") + held_out, f"loss{unit}"),
            ("Quality", lines("quality", "quality"), section.quality),
            ("Information", information, "information (nats)"),
            ("Scale", lines("scale", "learned"), "scale"),
        )
        if drawn
    ]
    if not panels:
        return None
    caption = "Training curves"
    if several:
        caption += f", one line for each of {len(section.curves)} runs"
    if held_out:
        caption += (
            ". The held-out loss contrasts all held-out pairs at once, so its level may differ "
            "from that of a training batch"
        )
    if information:
        caption += (
            ". Information is the lower bound log B − loss on the mutual information of a pair"
        )
    return part("Training", figure(f"{anchor}-training", f"{caption}.", *panels, class_="panels"))


def _measured(curve: Curve, field: str) -> list[tuple[float, float]]:
    """Return the steps at which a quantity was measured, and its values."""
    values = ((float(step["number"]), read_number(step.get(field))) for step in curve)
    return [(number, value) for number, value in values if value is not None]


def _factors_part(section: Section, anchor: str) -> Markup | None:
    """Return the correlation matrix, and scatter plots of true factors and aligned codes."""
    shown: list[Markup] = []
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
        shown.append(figure(f"{anchor}-correlations", caption, matrix, class_="matrix"))
    if section.scatter is not None:
        columns = list(zip(*(zip(*rows, strict=True) for rows in section.scatter), strict=False))
        panels = [
            figures.points(
                f"{anchor}-factor{k + 1}",
                f"Factor {k + 1}",
                true,
                code,
                ("true", "recovered"),
                f"Factor {k + 1}, {len(true)} points: recovered against true{how}.",
            )
            for k, (true, code) in enumerate(columns[:MAX_PANELS])
        ]
        caption = f"Recovered against true factors{how}." + _truncation(len(columns), "factors")
        shown.append(figure(f"{anchor}-scatter", caption, *panels, class_="small panels"))
    return part("True and recovered factors", *shown) if shown else None


def _codes_part(section: Section, anchor: str) -> Markup | None:
    """Return a histogram of each code."""
    if not section.codes:
        return None
    columns = list(zip(*section.codes, strict=True))
    panels = [
        figures.histogram(f"{anchor}-code{k + 1}", f"Code {k + 1}", column, f"code {k + 1}")
        for k, column in enumerate(columns[:MAX_PANELS])
    ]
    caption = f"Distribution of each code over {len(section.codes)} observations."
    caption += _truncation(len(columns), "codes")
    return part("Codes", figure(f"{anchor}-codes", caption, *panels, class_="small panels"))


def _truncation(count: int, what: str) -> str:
    return "" if count <= MAX_PANELS else f" The first {MAX_PANELS} of {count} {what}."


def _traversal_part(section: Section, anchor: str) -> Markup | None:
    """Return a row of images for each code, named by the factor with which it correlates most."""
    traversal = section.traversal
    if traversal is None or not traversal.rows:
        return None
    rows = [
        element(
            "div",
            element("p", f"Code {k + 1}{(label := _code_label(section, k))}"),
            element(
                "div",
                element(
                    "img",
                    src=f"data:image/png;base64,{row}",
                    alt=f"Traversal of code {k + 1}{label}",
                    width=str(traversal.columns * traversal.size),
                    height=str(traversal.size),
                ),
                class_="row nine" if traversal.columns == RULED_COLUMNS else "row",
            ),
        )
        for k, row in enumerate(traversal.rows)
    ]
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
    shown = figure(f"{anchor}-traversal", caption, *rows, class_="traversal")
    return part("Latent traversals", shown)


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


def _weights_part(section: Section, anchor: str) -> Markup | None:
    learned, truth = section.learned, section.truth
    if not learned or not all(map(is_drawable, (*learned, *truth))):
        return None
    if len(learned) == 1:
        true = f", true {truth[0]:.4g}" if len(set(truth)) == 1 else ""
        return part("Learned scale", element("p", f"learned {learned[0]:.4g}{true}"))
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
    return part("Learned weights", figure(key, caption, picture, class_="panels"))


def _guarantee_part(section: Section) -> Markup | None:
    card = section.guarantee
    if card is None:
        return None
    claim = card.get("equivalence")
    gap = str(card.get("gap") or "")
    if claim:
        head = join(
            "The recovered factors equal the true ones up to: ", element("strong", str(claim))
        )
    else:
        head = join(
            element("strong", "No guarantee: "), gap or "no theorem is known for these assumptions"
        )
    assumptions = [
        (str(a.get("kind")), str(a.get("text", "")))
        for a in card.get("assumptions") or ()
        if isinstance(a, Mapping)
    ]
    items = [
        element("li", element("span", ASSUMPTION_KINDS.get(kind, kind), class_="kind"), " ", text)
        for kind, text in assumptions
    ]
    blocks = card.get("blocks")
    facts = tuple(
        (label, str(text))
        for label, text in (
            ("Metric", score_name(str(card.get("metric") or ""))),
            ("Theorem", card.get("reference")),
            ("Gap", gap if claim else ""),
            ("Consequence", card.get("consequence")),
            *(("Learned", sentence) for sentence in card.get("learned") or ()),
            ("Axes", card.get("axes")),
            ("Blocks of codes", " ".join(str(list(b)) for b in blocks) if blocks else ""),
        )
        if text
    )
    return part(
        "Guarantee",
        element(
            "div",
            element("p", head, class_="claim"),
            join(element("p", "Assumptions:"), element("ul", *items, class_="checklist"))
            if items
            else None,
            facts_list(facts),
            class_="card" if claim else "card bad",
        ),
    )


def _command_part(section: Section, anchor: str) -> Markup | None:
    shown: list[Markup] = []
    if section.command:
        note = "Finished runs in a directory are skipped; --out names a new one."
        shown.append(
            element(
                "div",
                element(
                    "pre", element("code", section.command, id=f"{anchor}-command"), tabindex="0"
                ),
                element(
                    "button",
                    "Copy the command",
                    type="button",
                    class_="copy",
                    data_copy=f"{anchor}-command",
                    hidden=True,
                ),
                element("p", note, class_="muted") if " --out " in section.command else None,
                class_="command",
            )
        )
    if section.spec is not None:
        text = json.dumps(dict(section.spec), indent=2, ensure_ascii=False, default=str)
        shown.append(
            element(
                "details",
                element("summary", "Specification"),
                element("pre", element("code", text), tabindex="0"),
            )
        )
    return part("Command and specification", *shown) if shown else None
