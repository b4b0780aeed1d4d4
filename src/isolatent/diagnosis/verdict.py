"""What a diagnosis says: checks of single assumptions, and the verdict that follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from isolatent.cards import Row, card

__all__ = [
    "AGREEMENT",
    "ASSUMPTION_KEYS",
    "LEAST_SCORE",
    "NATS",
    "SHARE",
    "Check",
    "Diagnosis",
    "ExpectedScore",
    "conclude",
]

# What data can speak to, by the names that relaxations have where there is one.
ASSUMPTION_KEYS = (
    *("information", "optimum", "marginal", "conditional", "anchor_scale", "factor_scale"),
    *("n_components", "injective", "noise", "pairing", "space", "dynamics", "axes"),
    "stationarity",
)
SUPPORTED, CONTRADICTED, CANNOT_TELL = "supported", "contradicted", "cannot tell"
# Units of statistics.
NATS, AGREEMENT, SHARE = "nats on held-out pairs", "agreement", "share of the observations"
HARMFUL = 0.03  # one minus an agreement, from which on codes count as changed
LEAST_SCORE = 0.95  # expected against the factors, below which the claim does not hold
DECISIVE = ("information", "optimum")  # without which nothing else can hold
# What a broken assumption is called, and what to do about it.
SENTENCES = {
    "information": (
        "the pairs share no information that the codes hold",
        "check that rows of x and x_pos belong together",
    ),
    "optimum": (
        "such pairs and training do not determine the codes",
        "give more pairs or more steps, or declare fewer codes",
    ),
    "pairing": ("some of the pairs look unrelated", "fit with relax=('pairing',)"),
    "anchor_scale": (
        "steps are wider at some places than at others",
        "fit with relax=('anchor_scale',)",
    ),
    "factor_scale": (
        "some factors move more than others",
        "fit with relax=('factor_scale',) or conditional='anisotropic'",
    ),
    "marginal": ("the marginal is not the declared one", "fit with relax=('marginal',)"),
    "dynamics": (
        "positives do not lie around their anchor",
        "fit with relax=('dynamics',)",
    ),
    "n_components": (
        "the number of codes is not that of the factors",
        "fit with a larger n_components if pairs share what these leave out, and else with fewer",
    ),
    "injective": (
        "different factors show the same observations",
        "add columns that tell them apart; no method can tell it from the pairs alone",
    ),
    "conditional": (
        "steps are not distributed as declared",
        "declare another conditional; isolatent.choose compares them",
    ),
    "space": (
        "another space explains the pairs better",
        "declare another space; isolatent.choose compares them",
    ),
    "stationarity": (
        "the recording is not the same from its beginning to its end",
        "fit parts of it, and compare them with isolatent.consistency",
    ),
    "noise": (
        "observations hold noise that pairs do not share",
        "expect no more than the expected score; relax=('noise',) gives codes with their "
        "uncertainty",
    ),
    "axes": (
        "another run finds other axes in the same codes",
        "read the codes as one block, or give more pairs",
    ),
}


@dataclass(frozen=True)
class Check:
    """What the data say about one assumption.

    Attributes:
        key: Name of the assumption, one of ``ASSUMPTION_KEYS``.
        status: ``"supported"``, ``"contradicted"`` or ``"cannot tell"``.
        statistic: The number that the check rests on.
        effect: The same in words, with its unit.
        p_value: Probability of so large a statistic if the assumption holds; None where it is not
            known.
        harm: How far the codes are from those without the assumption, or from the factors, from 0
            to 1: one minus an agreement. None where it is not known.
        error: Standard error of the statistic; None where it is not known.
        reference: The same statistic of shuffled pairs; None for checks that do not shuffle.
        unit: What the statistic is measured in; empty where it is not known. One assumption can be
            checked in several ways: the number of codes by nats, or by a share of the observations.
        rehearsed: The same statistic in a rehearsal; None for checks without one.

    Example:
        >>> Check("pairing", "contradicted", 1.05, "1.05 nats", 0.0, 0.06).is_harmful
        True
    """

    key: str
    status: str
    statistic: float | None
    effect: str
    p_value: float | None = None
    harm: float | None = None
    error: float | None = None
    reference: float | None = None
    unit: str = ""
    rehearsed: float | None = None

    @property
    def is_harmful(self) -> bool:
        """Whether the assumption is contradicted, and the codes suffer."""
        if self.status != CONTRADICTED:
            return False
        return self.key in DECISIVE or (self.harm is not None and self.harm > HARMFUL)

    @property
    def may_be_harmful(self) -> bool:
        """Whether the assumption is contradicted, and what that does to the codes is not known."""
        return self.status == CONTRADICTED and self.harm is None and self.key not in DECISIVE

    def __str__(self) -> str:
        mark = {SUPPORTED: "✓", CONTRADICTED: "✗"}.get(self.status, "?")
        return f"{mark} {self.key:<13} {self.status:<12} {self.effect}{self.figures}"

    @property
    def figures(self) -> str:
        """P value and harm in words; empty where neither is known."""
        p = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        return p + ("" if self.harm is None else f", harm {self.harm:.3f}")


@dataclass(frozen=True)
class ExpectedScore:
    """The score that a fit is expected to have if everything else holds.

    Attributes:
        value: The score of a rehearsal against its known factors.
        low: Lower end of the interval.
        high: Upper end of the interval.
        metric: Name of the score.
    """

    value: float
    low: float
    high: float
    metric: str

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Diagnosis:
    """Whether a fit is to be believed, and why.

    Attributes:
        holds: Whether the guaranteed claim holds for these data; None if they cannot tell.
        broken: Contradicted assumptions, most harmful first.
        expected_score: The score to expect against the true factors; None if it is not to be had.
        checks: A :class:`Check` for each assumption that was checked.
        verdict: One sentence: what is broken, what it does to the codes, and what to do.

    Example:
        >>> check = Check("information", "contradicted", 0.001, "0.001 nats", 0.4, 1.0)
        >>> diagnosis = conclude([check], None, "orthogonal map")
        >>> diagnosis.holds, diagnosis.broken
        (False, ('information',))
    """

    holds: bool | None
    broken: tuple[str, ...]
    expected_score: ExpectedScore | None
    checks: tuple[Check, ...]
    verdict: str

    def __str__(self) -> str:
        lines = [self.verdict, *(f"  {check}" for check in self.checks)]
        expected = "not to be had" if self.expected_score is None else str(self.expected_score)
        return "\n".join([*lines, f"  expected score  {expected}"])

    def _repr_html_(self) -> str:
        marks = {SUPPORTED: "yes", CONTRADICTED: "no", CANNOT_TELL: "open"}
        status = {True: "yes", False: "no", None: "open"}[self.holds]
        rows: list[Row] = [
            (check.key, check.effect + check.figures, marks[check.status]) for check in self.checks
        ]
        expected = "not to be had" if self.expected_score is None else str(self.expected_score)
        rows.append(("expected score", expected))
        return card("Diagnosis", self.verdict, rows, status=status)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain data for JSON."""
        return {
            "holds": self.holds,
            "broken": list(self.broken),
            "expected_score": None if self.expected_score is None else asdict(self.expected_score),
            "checks": [_finite(asdict(check)) for check in self.checks],
            "verdict": self.verdict,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Diagnosis:
        """Return the diagnosis that :meth:`to_dict` described."""
        score = record["expected_score"]
        return cls(
            record["holds"],
            tuple(record["broken"]),
            None if score is None else ExpectedScore(**score),
            tuple(Check(**check) for check in record["checks"]),
            record["verdict"],
        )


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """Replace infinities and NaN, which JSON does not have, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }


def conclude(
    checks: Sequence[Check], expected: ExpectedScore | None, equivalence: str | None, gap: str = ""
) -> Diagnosis:
    """Return the diagnosis that follows from checks.

    Args:
        checks: A check for each assumption.
        expected: The expected score, if there is one.
        equivalence: What the guarantee leaves open; None if nothing is claimed.
        gap: Why nothing is claimed.
    """
    expected = _with_harm(expected, checks)
    checks = _with_expected(checks, expected)
    contradicted = [check for check in checks if check.status == CONTRADICTED]
    ranked = sorted(contradicted, key=_rank)
    broken = tuple(check.key for check in ranked)
    told = {check.key: check.status for check in checks}
    harmful = [check for check in ranked if check.is_harmful]
    if harmful:
        holds: bool | None = False
    elif equivalence is None:
        holds = False
    else:
        unsure = CANNOT_TELL in (told.get(key, CANNOT_TELL) for key in DECISIVE)
        holds = None if unsure or any(check.may_be_harmful for check in contradicted) else True
    # A rehearsal shows what noise and the training cost, and nothing of other broken assumptions.
    spoiled = any(c.key not in ("noise", "optimum") for c in harmful) or holds is None
    score = None if spoiled or equivalence is None else expected
    verdict = _verdict(holds, ranked, score, equivalence, gap)
    return Diagnosis(holds, broken, score, tuple(checks), verdict)


def _with_harm(expected: ExpectedScore | None, checks: Sequence[Check]) -> ExpectedScore | None:
    """Subtract from a rehearsal, in which all holds, what it cannot show.

    Runs that disagree by more than the rehearsal misses, and harm by broken assumptions.
    """
    if expected is None:
        return None
    missed = {check.key: check.harm for check in checks if check.harm is not None}
    lost = max(0.0, missed.get("optimum", 0.0) - (1 - expected.value))
    lost += sum(
        check.harm or 0.0
        for check in checks
        if check.status == CONTRADICTED and check.key not in (*DECISIVE, "noise", "axes")
    )
    value = max(0.0, expected.value - lost)
    return replace(expected, value=value, low=max(0.0, expected.low - 2 * lost))


def _with_expected(checks: Sequence[Check], expected: ExpectedScore | None) -> list[Check]:
    """Contradict the optimum if a low score is to be expected though nothing else is harmful."""
    if expected is None or expected.value >= LEAST_SCORE or any(c.is_harmful for c in checks):
        return [*checks]
    effect = f"no more than {expected} is to be expected from such pairs and training"
    return [
        replace(c, status=CONTRADICTED, effect=effect, harm=1 - expected.value)
        if c.key == "optimum"
        else c
        for c in checks
    ]


def _rank(check: Check) -> tuple[bool, int, bool, float]:
    """Sort what is harmful before what is not, and a cause before its effect."""
    severity = 0 if check.is_harmful else 1 if check.may_be_harmful else 2
    apart = check.key != "information", severity, check.key == "optimum"
    return (*apart, -(check.harm or 0.0))


def _verdict(
    holds: bool | None,
    ranked: Sequence[Check],
    score: ExpectedScore | None,
    equivalence: str | None,
    gap: str,
) -> str:
    if equivalence is None and not any(check.is_harmful for check in ranked):
        listed = ", ".join(check.key for check in ranked)
        extent = "" if any(check.may_be_harmful for check in ranked) else ", but harmless"
        also = f" (contradicted{extent}: {listed})" if listed else ""
        return f"Nothing is claimed about these codes: {gap}{also}."
    if not ranked:
        if holds is None:
            return "Cannot tell: there are too few pairs, or training did not show enough."
        end = "" if score is None else f"; expect {score}"
        return f"No assumption is contradicted; the codes hold up to {equivalence}{end}."
    first = ranked[0]
    what, advice = SENTENCES.get(first.key, (f"{first.key} is contradicted", "change it"))
    more = ", ".join(check.key for check in ranked[1:])
    also = f" (also: {more})" if more else ""
    if first.key == "information":
        does = "nothing was found in them"
    elif first.is_harmful:
        does = "the codes are not to be believed as they are"
    elif first.may_be_harmful:
        does = "what that does to the codes is not known"
    else:
        does = "the codes change little"
    text = f"{what}{also}, {first.effect}: {does}; {advice}."
    return text[0].upper() + text[1:]
