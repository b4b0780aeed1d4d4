"""How a verdict on a row is shown: a sign, a colour, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isolatent.experiments import Row

__all__ = ["KINDS", "Verdict", "judge", "worst"]

# The worst first.
KINDS = {
    "failed": "✗",
    "missed": "✗",
    "missing": "–",
    "limit": "≈",
    "open": "–",
    "reached": "✓",
    "above": "▲",
}
KIND_OF = {
    "worse": "missed",
    "better": "above",
    "fails as published": "limit",
    "identified here, not in the paper": "missed",
    "fails as claimed": "limit",
    "identified, against the claim": "open",  # of a claim without a figure nothing is missed
    "nothing published": "open",
    "missing": "missing",
    "diverged": "failed",
    "failed": "failed",
}  # and those that begin with "within" are reached


@dataclass(frozen=True)
class Verdict:
    """What came of a comparison.

    Attributes:
        kind: One of ``KINDS``.
        text: The same in words, which stand beside the symbol and the colour.
    """

    kind: str
    text: str

    @property
    def symbol(self) -> str:
        """A sign that tells the kinds apart without colour."""
        return KINDS.get(self.kind, "–")

    @property
    def is_bad(self) -> bool:
        """Whether a person should look into it: the row was not reached."""
        return self.kind in ("missed", "failed", "missing")


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that a person should see first."""
    return min(verdicts, key=lambda verdict: [*KINDS].index(verdict.kind))


def judge(row: Row) -> Verdict:
    """The verdict of :func:`isolatent.experiments.verdict` on a row, and on runs without a score.

    Where nothing was published, a run that diverged or is still missing misses nothing.
    """
    kind = KIND_OF.get(row.verdict, "reached")
    lost = row.runs - row.seeds
    if kind in ("missing", "failed"):
        harmless = row.published is None and row.verdict != "failed"
        return Verdict("open" if harmless else kind, row.verdict)
    if lost:
        told = f"{row.verdict}; {lost} of {row.runs} runs gave no score"
        return Verdict("failed" if row.published is not None else kind, told)
    return Verdict(kind, row.verdict)
