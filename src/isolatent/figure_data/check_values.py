"""A diagnosis as numbers to draw: what each check observed, and what it compared that with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isolatent.diagnosis.alternatives import LEADS
from isolatent.diagnosis.controls import INDEPENDENT, SHARED, UNEXPLAINED
from isolatent.diagnosis.verdict import (
    AGREEMENT,
    HARMFUL,
    LEAST_SCORE,
    NATS,
    SHARE,
    Check,
    Diagnosis,
    ExpectedScore,
)
from isolatent.figure_data.rows import Array
from isolatent.training.support import NO_INFORMATION

__all__ = ["CheckData", "DiagnosisData", "diagnosis_data"]

# The quantity of a check, what was measured, and the limit that it should be above or below.
MEASUREMENTS: dict[str, tuple[str, str, float, bool]] = {
    "information": (NATS, "pairs", NO_INFORMATION, True),
    "optimum": (AGREEMENT, "two runs", LEAST_SCORE**2, True),
    "axes": (AGREEMENT, "axes of two runs", LEAST_SCORE**2, True),
    "n_components": (SHARE, "shared by pairs, not in the codes", SHARED, False),
    "injective": (SHARE, "not explained by the codes", UNEXPLAINED, False),
    "noise": (SHARE, "noise", INDEPENDENT, False),
}
# The same where the unit of the check is another one.
COMPARISONS: dict[str, tuple[str, float | None]] = {
    "conditional": ("another exponent", LEADS["conditional"]),
    "space": ("another space", LEADS["space"]),
    "n_components": ("another number of codes", None),  # more may not gain, fewer must lose
    "stationarity": ("parts of the recording", None),
}
RELAXABLE = ("pairing", "anchor_scale", "factor_scale", "marginal", "dynamics")


@dataclass(frozen=True)
class CheckData:
    """What one check observed.

    Attributes:
        key: Name of the assumption.
        status: ``"supported"``, ``"contradicted"`` or ``"cannot tell"``.
        quantity: What is measured, with its unit; empty if nothing was.
        labels: What the values are of, such as ``"as declared"`` and ``"relaxed"``.
        values: The values (K,); none if nothing was measured.
        errors: Their standard errors (K,); NaN where there is none.
        limit: Value that the first one should not cross; None if there is none.
        limit_is_least: Whether the first value should be above the limit.
        effect: What was found, in words.
        p_value: Probability of so large a statistic if the assumption holds, or None.
        harm: How far the codes suffer, from 0 to 1, or None.
        is_harmful: Whether the assumption is contradicted and the codes suffer.
    """

    key: str
    status: str
    quantity: str
    labels: tuple[str, ...]
    values: Array
    errors: Array
    limit: float | None
    limit_is_least: bool
    effect: str
    p_value: float | None
    harm: float | None
    is_harmful: bool


@dataclass(frozen=True)
class DiagnosisData:
    """A diagnosis as numbers to draw.

    Attributes:
        holds: Whether the claim holds; None if the data cannot tell.
        verdict: One sentence.
        checks: What each check observed.
        expected_score: The score to expect against the factors, from a rehearsal, or None.
        least_score: The score from which on a claim counts as holding.
        harmful: The harm from which on codes count as changed.
    """

    holds: bool | None
    verdict: str
    checks: tuple[CheckData, ...]
    expected_score: ExpectedScore | None
    least_score: float
    harmful: float


def diagnosis_data(diagnosis: Diagnosis) -> DiagnosisData:
    """Return what each check of a diagnosis observed, and what it compared that with.

    An assumption that can be relaxed is compared with its relaxation, by the gain on held-out
    pairs; information with that of shuffled pairs; the others with a limit.

    Args:
        diagnosis: The result of :func:`isolatent.diagnose`.

    Example:
        >>> check = Check("pairing", "contradicted", 1.05, "1.05 nats", 0.0, 0.06, error=0.1)
        >>> (data,) = diagnosis_data(Diagnosis(False, ("pairing",), None, (check,), "")).checks
        >>> data.labels, data.values.tolist(), data.errors.tolist()
        (('as declared', 'relaxed'), [0.0, 1.05], [nan, 0.1])
    """
    if not isinstance(diagnosis, Diagnosis):
        raise TypeError(f"diagnosis must be a Diagnosis, got {type(diagnosis).__name__}")
    return DiagnosisData(
        diagnosis.holds,
        diagnosis.verdict,
        tuple(map(_check, diagnosis.checks)),
        diagnosis.expected_score,
        LEAST_SCORE,
        HARMFUL,
    )


def _check(check: Check) -> CheckData:
    quantity, name, limit, is_least = MEASUREMENTS.get(check.key, ("", check.key, None, False))
    # Without a unit, as of older files, only a key that is always measured in one tells it.
    if check.key in COMPARISONS and check.unit != quantity:
        name, limit = COMPARISONS[check.key]
        quantity, limit = check.unit, limit if check.unit else None
    labels: tuple[str, ...] = (name,)
    values, errors = [check.statistic], [check.error]
    if check.rehearsed is not None:
        quantity, labels, limit = check.unit, ("pairs", "rehearsal"), None
        values, errors = [check.statistic, check.rehearsed], [check.error, None]
    elif check.key in RELAXABLE:
        quantity, labels = f"gain, {NATS}", ("as declared", "relaxed")
        values, errors = [0.0, check.statistic], [None, check.error]
    elif check.reference is not None:
        labels, values, errors = (
            ("pairs", "shuffled pairs"),
            [*values, max(0.0, check.reference)],
            [*errors, None],
        )
    if check.statistic is None:
        quantity, labels, values, errors = "", (), [], []
    return CheckData(
        check.key,
        check.status,
        quantity,
        labels,
        np.array(values, dtype=np.float64),
        np.array([np.nan if error is None else error for error in errors]),
        limit,
        is_least,
        check.effect,
        check.p_value,
        check.harm,
        check.is_harmful,
    )
