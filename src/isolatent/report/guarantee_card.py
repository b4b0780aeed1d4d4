"""The card of a guarantee: the claim, and its assumptions with ticks and crosses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isolatent.diagnosis import Check, Diagnosis
from isolatent.report.content import Block, Card, Mark
from isolatent.report.page import Section
from isolatent.report.tables import score_name
from isolatent.theory.assumptions import ASSUMPTION_KINDS, REACHES_OPTIMUM

__all__ = ["guarantee_card", "marks_of"]

STEP_CHECKS = ("conditional", "pairing", "anchor_scale", "factor_scale", "dynamics")
# A part of an assumption's text, and the checks that speak to it.
CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (REACHES_OPTIMUM, ("information", "optimum")),
    ("marginal on", ("marginal",)),
    ("spread uniformly", ("marginal",)),
    ("conditional,", STEP_CHECKS),
    ("follow the conditional", STEP_CHECKS),
    ("as many codes as factors", ("n_components",)),
    ("smooth and injective", ("injective",)),
)
STATUS_MARKS = {"supported": "yes", "contradicted": "no"}


def marks_of(card: Mapping[str, Any], diagnosis: Diagnosis | None) -> tuple[Mark, ...]:
    """Return the assumptions of a card with what a diagnosis says about each.

    An assumption is contradicted if one of its checks is, and supported if all that were made
    support it.

    Args:
        card: The result of ``Guarantee.to_dict``.
        diagnosis: The checks; without them all is open, except what training warned of.
    """
    checks = {} if diagnosis is None else {check.key: check for check in diagnosis.checks}
    warned = bool(card.get("warnings"))
    marks = []
    for assumption in card.get("assumptions") or ():
        if not isinstance(assumption, Mapping):
            continue
        text, kind = str(assumption.get("text", "")), str(assumption.get("kind"))
        keys = next((keys for part, keys in CHECKS if part in text), ())
        status, found = _judge([checks[key] for key in keys if key in checks])
        if status == "open" and warned and text.startswith(REACHES_OPTIMUM):
            status = "no"
        marks.append(Mark(status, ASSUMPTION_KINDS.get(kind, kind), text, found))
    return tuple(marks)


def _judge(checks: list[Check]) -> tuple[str, str]:
    """Return the status of an assumption, and the effects of the checks that decide it."""
    by_status: dict[str, list[str]] = {}
    for check in checks:
        by_status.setdefault(check.status, []).append(check.effect)
    if "contradicted" in by_status:
        return "no", "; ".join(by_status["contradicted"])
    if set(by_status) == {"supported"}:
        return "yes", ""
    return "open", "; ".join(by_status.get("cannot tell", ()))


def guarantee_card(section: Section) -> Iterator[Block]:
    """Yield the card of a section's guarantee, if there is one."""
    card = section.guarantee
    if card is None:
        return
    claim, gap = card.get("equivalence"), str(card.get("gap") or "")
    lead = "The recovered factors equal the true ones up to:" if claim else ""
    text = str(claim) if claim else f"No guarantee: {gap or 'no theorem is known'}"
    diagnosis, state = section.diagnosis, "open"
    if not claim or card.get("warnings") or (diagnosis is not None and diagnosis.holds is False):
        state = "bad"
    elif diagnosis is not None and diagnosis.holds:
        state = "good"
    blocks = card.get("blocks")
    facts = tuple(
        (label, str(text))
        for label, text in (
            *(("Warning", sentence) for sentence in card.get("warnings") or ()),
            ("Metric", score_name(str(card.get("metric") or ""))),
            ("Theorem", card.get("reference")),
            ("Gap", gap if claim else ""),
            ("Consequence", card.get("consequence")),
            *(("Learned", sentence) for sentence in card.get("learned") or ()),
            ("Axes", card.get("axes")),
            ("Blocks of codes", " ".join(str(list(b)) for b in blocks) if blocks else ""),
            ("Trained", card.get("objective")),
            ("Calibrated", card.get("calibration")),
            ("Input", card.get("directions")),
            ("Recordings", card.get("recordings")),
            ("Held-out pairs", card.get("support")),
            ("Claim without this", card.get("withdrawn")),
        )
        if text
    )
    yield Card(state, lead, text, marks_of(card, diagnosis), facts)
