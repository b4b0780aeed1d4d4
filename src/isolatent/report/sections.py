"""What is shown of each cell."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from isolatent.report import figures
from isolatent.report.axes import is_drawable
from isolatent.report.elements import Markup, element, facts_list, figure, join, part
from isolatent.report.figures import Line
from isolatent.report.matrix import heat_map
from isolatent.report.page import Cell, Curve
from isolatent.report.scores import intervals_part, scores_part
from isolatent.report.strips import strips_part
from isolatent.report.table import score_name, verdict_mark

__all__ = ["cell_section"]

KINDS = {"declared": "declared", "checkable": "checkable", "faith": "on faith"}
MOST_PANELS = 20  # of small multiples


def cell_section(cell: Cell, anchor: str, folded: bool) -> Markup:
    """Everything about one cell; ``folded`` hides all but its heading and verdict at first."""
    parts = [
        shown
        for shown in (
            scores_part(cell),
            intervals_part(cell),
            _training(cell, anchor),
            _factors(cell, anchor),
            strips_part(cell, anchor),
            _codes(cell, anchor),
            _weights(cell, anchor),
            _guarantee(cell, anchor),
            _rerun(cell, anchor),
        )
        if shown is not None
    ]
    body: tuple[Markup, ...] = tuple(parts)
    if folded and parts:
        about = element("summary", f"Curves, factors, guarantee and specification of {cell.name}")
        body = (element("details", about, *parts, class_="fold"),)
    return element(
        "section",
        element("h2", cell.name, id=f"{anchor}-name"),
        element("p", verdict_mark(cell.verdict)) if cell.verdict is not None else None,
        facts_list(cell.facts),
        *(
            element("p", element("strong", "A run gave no score: "), error, class_="error")
            for error in cell.errors
        ),
        *body,
        id=anchor,
        class_="cell",
        aria_labelledby=f"{anchor}-name",
    )


def _training(cell: Cell, anchor: str) -> Markup | None:
    curves = [curve for curve in cell.curves if curve.moments]
    in_nats = any(m.information is not None for curve in curves for m in curve.moments)
    several = len(curves) > 1

    def drawn(field: str, name: str, style: str = "first") -> list[Line]:
        return [line for curve in curves if (line := _line(curve, field, name, style, several))]

    unit = " (nats)" if in_nats else ""
    truth = ("true", cell.truth[0]) if len(set(cell.truth)) == 1 else None
    panels = []
    for title, found, label, level in (
        (
            "Loss",
            drawn("loss", "training") + drawn("held_out", "held out", "second"),
            f"loss{unit}",
            None,
        ),
        ("Quality", drawn("quality", "quality"), cell.quality, None),
        ("Information", drawn("information", "information"), "information (nats)", None),
        ("Scale", drawn("scale", "learned"), "scale", truth),
    ):
        if found:
            key = f"{anchor}-{title.lower()}"
            panels.append(figures.lines(key, title, found, ("step", label), level=level))
    if not panels:
        return None
    caption = "Training, step by step"
    if several:
        caption += f": one line for each of {len(curves)} runs"
    if any(m.held_out is not None for curve in curves for m in curve.moments):
        caption += (
            ". Held-out pairs are told apart among all of them at once, so that their loss may lie "
            "at another level than that of a training batch"
        )
    if in_nats:
        caption += ". Information is what a pair is known to share, at least: log B − loss"
    return part("Training", figure(f"{anchor}-training", f"{caption}.", *panels, class_="panels"))


def _line(curve: Curve, field: str, name: str, style: str, several: bool) -> Line | None:
    known = [
        (float(m.number), float(value))
        for m in curve.moments
        if (value := getattr(m, field)) is not None and math.isfinite(value)
    ]
    if not known:
        return None
    xs, ys = zip(*known, strict=True)
    return Line(name, xs, ys, f"{style} thin" if several else style)


def _factors(cell: Cell, anchor: str) -> Markup | None:
    shown: list[Markup] = []
    how = f", {cell.alignment}" if cell.alignment else ""
    if cell.correlations and cell.correlations[0]:
        matrix = heat_map(
            f"{anchor}-correlations",
            "Correlations of true and recovered factors",
            cell.correlations,
            ("true factor", "code" if cell.strips else "recovered factor"),
            cell.factors,
        )
        caption = f"|Correlation| of each true factor with each recovered one{how}."
        if cell.strips:
            caption = "|Rank correlation| of each true factor with each code."
            if cell.categories:
                caption += (
                    f" Of a category ({', '.join(cell.categories)}), the root of the share of the "
                    "variance of a code’s ranks that lies between its values."
                )
        shown.append(figure(f"{anchor}-correlations", caption, matrix, class_="matrix"))
    if cell.scatter is not None and cell.scatter.true and cell.scatter.codes:
        columns = list(
            zip(
                zip(*cell.scatter.true, strict=True),
                zip(*cell.scatter.codes, strict=True),
                strict=False,
            )
        )
        panels = [
            figures.points(
                f"{anchor}-factor{k + 1}",
                f"Factor {k + 1}",
                true,
                code,
                ("true", "recovered"),
                f"Factor {k + 1}, {len(true)} points: recovered against true{how}.",
            )
            for k, (true, code) in enumerate(columns[:MOST_PANELS])
        ]
        caption = f"Each true factor against the recovered one{how}."
        shown.append(
            figure(
                f"{anchor}-scatter",
                caption + _left_out(len(columns), "factors"),
                *panels,
                class_="small panels",
            )
        )
    return part("True and recovered factors", *shown) if shown else None


def _codes(cell: Cell, anchor: str) -> Markup | None:
    if not cell.codes:
        return None
    columns = list(zip(*cell.codes, strict=True))
    panels = [
        figures.histogram(f"{anchor}-code{k + 1}", f"Code {k + 1}", column, f"code {k + 1}")
        for k, column in enumerate(columns[:MOST_PANELS])
    ]
    caption = f"Distribution of each code over {len(cell.codes)} observations."
    return part(
        "Codes",
        figure(
            f"{anchor}-codes",
            caption + _left_out(len(columns), "codes"),
            *panels,
            class_="small panels",
        ),
    )


def _left_out(count: int, what: str) -> str:
    return "" if count <= MOST_PANELS else f" The first {MOST_PANELS} of {count} {what}."


def _weights(cell: Cell, anchor: str) -> Markup | None:
    learned, truth = cell.learned, cell.truth
    if not learned or not all(map(is_drawable, (*learned, *truth))):
        return None
    if len(learned) == 1:
        true = f", true {truth[0]:.4g}" if len(set(truth)) == 1 else ""
        return part("Learned scale", element("p", f"learned {learned[0]:.4g}{true}"))
    key = f"{anchor}-weights"
    if len(truth) == len(learned):
        if not cell.paired:
            truth, learned = tuple(sorted(truth)), tuple(sorted(learned))
        pairs = zip(truth, learned, strict=True)
        described = ", ".join(f"{a:.3g} learned as {b:.3g}" for a, b in list(pairs)[:40])
        picture = figures.points(
            key,
            "Weights Λ̂",
            truth,
            learned,
            ("true weight", "learned weight"),
            f"Learned weights against true ones: {described}.",
            diagonal=True,
        )
        order = "of each factor" if cell.paired else "both sorted"
        caption = f"Learned weights Λ̂ against the true ones, {order}; on the line they agree."
    else:
        picture = figures.bars(key, "Weights Λ̂", learned, ("code", "learned weight"))
        caption = "Learned weights Λ̂, one for each code."
    return part("Learned weights", figure(key, caption, picture, class_="panels"))


def _guarantee(cell: Cell, anchor: str) -> Markup | None:
    card = cell.guarantee
    if card is None:
        return None
    claim = card.get("equivalence")
    gap = str(card.get("gap") or "")
    if claim:
        head = join(
            "The recovered factors are the true ones up to: ", element("strong", str(claim))
        )
    else:
        head = join(element("strong", "No guarantee: "), gap or "no theorem is known for this")
    assumptions = [a for a in card.get("assumptions") or () if isinstance(a, Mapping)]
    items = [
        element(
            "li",
            element("span", KINDS.get(str(a.get("kind")), str(a.get("kind"))), class_="kind"),
            " ",
            str(a.get("text", "")),
        )
        for a in assumptions
    ]
    blocks = card.get("blocks")
    rest = tuple(
        (label, str(text))
        for label, text in (
            ("Score that counts", score_name(str(card.get("metric") or ""))),
            ("Theorem", card.get("reference")),
            ("Gap", gap if claim else ""),
            ("Besides", card.get("consequence")),
            ("Blocks of codes", " ".join(str(list(b)) for b in blocks) if blocks else ""),
        )
        if text
    )
    return part(
        "What may be claimed",
        element(
            "div",
            element("p", head, class_="claim"),
            join(element("p", "If all of this holds:"), element("ul", *items, class_="checklist"))
            if items
            else None,
            facts_list(rest),
            class_="card" if claim else "card bad",
        ),
    )


def _rerun(cell: Cell, anchor: str) -> Markup | None:
    shown: list[Markup] = []
    if cell.command:
        told = "A run that is finished in a directory is not done again there; hence --out."
        shown.append(
            element(
                "div",
                element("pre", element("code", cell.command, id=f"{anchor}-command"), tabindex="0"),
                element(
                    "button",
                    "Copy the command",
                    type="button",
                    class_="copy",
                    data_copy=f"{anchor}-command",
                    hidden=True,
                ),
                element("p", told, class_="muted") if " --out " in cell.command else None,
                class_="command",
            )
        )
    if cell.spec is not None:
        text = json.dumps(_plain(cell.spec), indent=2, ensure_ascii=False)
        shown.append(
            element(
                "details",
                element("summary", "Specification"),
                element("pre", element("code", text), tabindex="0"),
            )
        )
    return part("To run it again", *shown) if shown else None


def _plain(value: Any) -> Any:
    """What JSON can hold; anything else as its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
