"""Whether a published figure was reached."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MARGIN", "Estimate", "Verdict", "compare", "failed"]

MARGIN = 0.01  # a difference that is none, where the paper states no larger spread


@dataclass(frozen=True)
class Estimate:
    """A score over seeds.

    Attributes:
        mean: Their mean.
        spread: Their standard deviation; None if it is not known.
        seeds: How many there were; None if it is not known.
    """

    mean: float
    spread: float | None = None
    seeds: int | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate | None:
        """The mean and the standard deviation (n - 1) of the finite values, if there are any.

        Example:
            >>> Estimate.of([0.25, 0.75])
            Estimate(mean=0.5, spread=0.3535533905932738, seeds=2)
        """
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return None
        spread = statistics.stdev(finite) if len(finite) > 1 else None
        return cls(statistics.fmean(finite), spread, len(finite))

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + ("" if self.spread is None else f" ± {self.spread:.4f}")


@dataclass(frozen=True)
class Verdict:
    """What came of a comparison.

    Attributes:
        kind: ``"reached"``, ``"above"``, ``"missed"``, ``"limit"``, ``"failed"`` or ``"open"``.
        text: The same in words, which stand beside the symbol and the colour.
    """

    kind: str
    text: str

    @property
    def symbol(self) -> str:
        """A sign that tells the kinds apart without colour."""
        return {"reached": "✓", "above": "▲", "missed": "✗", "failed": "✗", "limit": "≈"}.get(
            self.kind, "–"
        )

    @property
    def is_bad(self) -> bool:
        """Whether a person should look into it."""
        return self.kind in ("missed", "failed")


def compare(ours: Estimate | None, published: Estimate | None, limits: bool = False) -> Verdict:
    """Compare our mean with a published one; it is reached if at most a margin below.

    The margin is the published spread, or ``MARGIN`` where that is larger. Our own spread does not
    widen it: runs that differ much do not reach more.

    Args:
        ours: Our score; None if there is none.
        published: The paper's.
        limits: Whether the paper shows the row as one that this score does *not* identify, so that
            neither more nor less is a fault.

    Example:
        >>> compare(Estimate(0.91), Estimate(0.99)).text
        'not reached: 0.0800 below the paper'
        >>> compare(Estimate(0.985), Estimate(0.99)).text
        'reached'
    """
    if ours is None:
        return Verdict("failed", "not reached: no score came out of the runs")
    if published is None:
        return Verdict("open", "the paper has no figure")
    margin = max(MARGIN, published.spread or 0.0)
    difference = ours.mean - published.mean
    side = 0 if abs(difference) <= margin + 1e-9 else int(math.copysign(1, difference))
    words = f"{abs(difference):.4f} {'above' if difference > 0 else 'below'} the paper"
    if limits:
        same = "as in the paper" if side == 0 else words
        return Verdict("limit", f"{same}; shown there as not identified")
    if side > 0:
        return Verdict("above", f"reached: {words}")
    return (
        Verdict("reached", "reached") if side == 0 else Verdict("missed", f"not reached: {words}")
    )


def failed(error: str) -> Verdict:
    """The verdict on runs that ended in an error."""
    return Verdict("failed", f"not reached: {error}")
