"""A section of the page: everything about one fitted model or one cell of an experiment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from isolatent.report import figures
from isolatent.report.axes import is_drawable
from isolatent.report.elements import Markup, element, facts_list, figure, join, part
from isolatent.report.factors import codes_part, factors_part, traversal_part
from isolatent.report.figures import Line
from isolatent.report.page import Curve, Section
from isolatent.report.tables import intervals_part, score_name, scores_part, verdict_mark
from isolatent.theory.assumptions import ASSUMPTION_KINDS

__all__ = ["render_section"]


def render_section(section: Section, anchor: str, folded: bool) -> Markup:
    """Render a section.

    Args:
        section: The content.
        anchor: The id of the element, with which the ids inside begin.
        folded: Whether everything but heading, verdict and facts is hidden at first.
    """
    parts = [
        shown
        for shown in (
            scores_part(section),
            intervals_part(section),
            _training_part(section, anchor),
            factors_part(section, anchor),
            traversal_part(section, anchor),
            codes_part(section, anchor),
            _weights_part(section, anchor),
            _guarantee_part(section),
            _command_part(section, anchor),
        )
        if shown is not None
    ]
    body: tuple[Markup, ...] = tuple(parts)
    if folded and parts:
        summary = element(
            "summary", f"Curves, factors, guarantee and specification of {section.name}"
        )
        body = (element("details", summary, *parts, class_="fold"),)
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
    curves = [curve for curve in section.curves if curve.points]
    in_nats = any(p.information is not None for curve in curves for p in curve.points)
    several = len(curves) > 1

    def lines(field: str, name: str, style: str = "first") -> list[Line]:
        return [line for curve in curves if (line := _line(curve, field, name, style, several))]

    unit = " (nats)" if in_nats else ""
    truth = ("true", section.truth[0]) if len(set(section.truth)) == 1 else None
    panels = []
    for title, drawn, label, level in (
        (
            "Loss",
            lines("loss", "training") + lines("held_out", "held out", "second"),
            f"loss{unit}",
            None,
        ),
        ("Quality", lines("quality", "quality"), section.quality, None),
        ("Information", lines("information", "information"), "information (nats)", None),
        ("Scale", lines("scale", "learned"), "scale", truth),
    ):
        if drawn:
            key = f"{anchor}-{title.lower()}"
            panels.append(figures.lines(key, title, drawn, ("step", label), level=level))
    if not panels:
        return None
    caption = "Training curves"
    if several:
        caption += f", one line for each of {len(curves)} runs"
    if any(p.held_out is not None for curve in curves for p in curve.points):
        caption += (
            ". The held-out loss contrasts all held-out pairs at once, so its level may differ "
            "from that of a training batch"
        )
    if in_nats:
        caption += (
            ". Information is the lower bound log B − loss on the mutual information of a pair"
        )
    return part("Training", figure(f"{anchor}-training", f"{caption}.", *panels, class_="panels"))


def _line(curve: Curve, field: str, name: str, style: str, several: bool) -> Line | None:
    known = [
        (float(point.number), float(value))
        for point in curve.points
        if (value := getattr(point, field)) is not None and math.isfinite(value)
    ]
    if not known:
        return None
    xs, ys = zip(*known, strict=True)
    return Line(name, xs, ys, f"{style} thin" if several else style)


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
    assumptions = [a for a in card.get("assumptions") or () if isinstance(a, Mapping)]
    items = [
        element(
            "li",
            element(
                "span", ASSUMPTION_KINDS.get(str(a.get("kind")), str(a.get("kind"))), class_="kind"
            ),
            " ",
            str(a.get("text", "")),
        )
        for a in assumptions
    ]
    blocks = card.get("blocks")
    facts = tuple(
        (label, str(text))
        for label, text in (
            ("Metric", score_name(str(card.get("metric") or ""))),
            ("Theorem", card.get("reference")),
            ("Gap", gap if claim else ""),
            ("Consequence", card.get("consequence")),
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
