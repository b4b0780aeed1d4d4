"""Compare a fit with its rehearsals: what differs beyond their spread is evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from isolatent.diagnosis.p_values import Difference, difference_of
from isolatent.diagnosis.verdict import CANNOT_TELL, CONTRADICTED, SUPPORTED, Check

__all__ = ["KOLMOGOROV", "LENGTHS", "VARIANCE", "check_against_rehearsals"]

KOLMOGOROV = "Kolmogorov-Smirnov distance"
VARIANCE = "share of the variance of the codes"
LENGTHS = "share of the lengths of steps"
# Standard errors that a difference must exceed, beside its least size: alone, and as one of three.
ERRORS, ERRORS_TOGETHER = 3.0, 2.0
# What a fold shows together, each beyond its rehearsals by at least as much.
MARGINAL, STEPS, INFORMATION, DEPENDENCE = 0.02, 0.015, 0.05, 0.05
MARGINAL_IN_BOX = 0.01  # where centre and sides fit in any case
SYMPTOMS = ("marginal", "optimum")  # contradictions that do not explain what differs
WRONG_STEPS = 0.04  # Kolmogorov-Smirnov distance that alone contradicts the conditional
NO_HARM = 0.0  # that codes were found to suffer from what no other check contradicts
BY_PLACE = 0.05  # share of the lengths of steps that their places explain
Statistics = Mapping[str, np.ndarray[Any, Any]]


class _Evidence(NamedTuple):
    """A statistic of the fit, that of its rehearsals, and their difference.

    The last one is that of the runs and rehearsals that differ least: so it holds for all.
    """

    value: float
    rehearsed: float
    difference: Difference
    least: float

    def exceeds(self, least: float, errors: float = ERRORS) -> bool:
        return self.difference.mean > max(least, errors * self.difference.error)


def check_against_rehearsals(
    checks: Sequence[Check],
    runs: Sequence[Statistics],
    rehearsals: Sequence[Statistics],
) -> list[Check]:
    """Return checks of ``marginal``, ``conditional``, ``anchor_scale`` and ``injective``.

    Where something else than the marginal and the optimum is contradicted already, it explains what
    differs, and the status is ``cannot tell``. If steps differ, they contradict the scale of the
    anchors where it is their place that tells their length, and else the conditional. A fold is
    told from another marginal by what comes with it: on a sphere steps differ, too, and pairs share
    less; in a box codes depend on each other.

    Args:
        checks: What is known without rehearsals.
        runs: Statistics of two or more runs on the data, on pairs to test with.
        rehearsals: The same statistics of rehearsals, on pairs of their worlds.
    """
    found = {name: _compare(name, runs, rehearsals) for name in runs[0]}
    marginal, steps, place = found["marginal"], found["steps"], found["place"]
    explained = any(c.status == CONTRADICTED and c.key not in SYMPTOMS for c in checks)
    is_box = "dependence" in found
    is_off = marginal.exceeds(MARGINAL_IN_BOX if is_box else MARGINAL)
    folded, harm = is_off and not explained, marginal.difference.mean
    if is_box:
        folded = folded and found["dependence"].least > DEPENDENCE
        harm += found["dependence"].value ** 2
    else:
        less = _compare("information", rehearsals, runs)
        folded = folded and steps.exceeds(STEPS, ERRORS_TOGETHER) and less.exceeds(INFORMATION)
    wrong = steps.exceeds(WRONG_STEPS)
    moved = wrong and place.exceeds(BY_PLACE) and not explained

    def status(is_off: bool) -> str:
        if not is_off:
            return SUPPORTED
        return CANNOT_TELL if explained else CONTRADICTED

    lies = f"codes are {marginal.value:.1%} of their variance off the declared marginal, in a "
    lies += f"rehearsal {marginal.rehearsed:.1%}"
    goes = f"steps are {steps.value:.3f} off the declared conditional (Kolmogorov-Smirnov), in a "
    goes += f"rehearsal {steps.rehearsed:.3f}"
    off_steps = status(wrong and not (moved or folded))
    result = [
        _check("marginal", status(is_off and not folded), marginal, lies, VARIANCE, NO_HARM),
        _check("conditional", off_steps, steps, goes, KOLMOGOROV, NO_HARM),
    ]
    if moved:
        tells = f"{goes}; {place.value:.0%} of their length follows from their place"
        result.append(_check("anchor_scale", CONTRADICTED, place, tells, LENGTHS))
    if folded:
        also = f"{lies}; {goes}"
        if is_box:
            also = f"{lies}; they correlate up to {found['dependence'].value:.2f}"
        result.append(_check("injective", CONTRADICTED, marginal, also, VARIANCE, harm))
    return result


def _compare(name: str, runs: Sequence[Statistics], rehearsals: Sequence[Statistics]) -> _Evidence:
    values, rehearsed = ([one[name] for one in kind] for kind in (runs, rehearsals))
    value, mean = (float(np.mean([part.mean() for part in kind])) for kind in (values, rehearsed))
    nearest = min(float(part.mean()) for part in values)
    least = nearest - max(float(part.mean()) for part in rehearsed)
    return _Evidence(value, mean, difference_of(values, rehearsed), least)


def _check(
    key: str, status: str, found: _Evidence, effect: str, unit: str, harm: float | None = None
) -> Check:
    difference = found.difference
    return Check(
        *(key, status, found.value, effect, difference.p_value),
        harm if status == CONTRADICTED else None,
        error=difference.error,
        unit=unit,
        rehearsed=found.rehearsed,
    )
