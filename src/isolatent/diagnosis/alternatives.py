"""Test a space, an exponent and a number of codes against others, by short runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from isolatent.contrast import InfoNCE
from isolatent.diagnosis.agreement import agreement
from isolatent.diagnosis.held_out import HeldOut
from isolatent.diagnosis.p_values import of_best
from isolatent.diagnosis.trials import (
    Candidate,
    Lead,
    Shared,
    TrialRun,
    lead_of,
    prepare,
    shuffled_rows,
    train_trial,
    values_of,
    with_codes,
)
from isolatent.diagnosis.verdict import CANNOT_TELL, CONTRADICTED, NATS, SUPPORTED, Check
from isolatent.evaluation import linear_r2
from isolatent.training import ContrastiveICA

__all__ = ["base_of", "check_alternatives"]

# Steps of a run, and how many times as long the runs are that confirm a lead. With fewer, models
# that learn slowly look worse than the declared one, whatever is true.
ALTERNATIVE_STEPS, CONFIRMING = 400, 3
LEADS = {"conditional": 0.03, "space": 0.05, "n_components": 0.04}  # nats that contradict
ERRORS = 4.0  # standard errors, too
FREE_LOSS = 0.01  # nats that a code must bring, not to be one too many
OTHER_EXPONENTS = {1.0: (2.0,), 2.0: (1.0, 3.0)}
FURTHER_EXPONENTS = (1.0, 2.0)  # beside any other exponent
SATURATED = 0.9  # share of the largest information, from which on all alternatives look alike
FURTHER = 2  # codes more or fewer that are tried
Codes = np.ndarray[Any, Any]


def check_alternatives(
    model: ContrastiveICA,
    pairs: HeldOut,
    contradicted: Sequence[str],
    *,
    metric: str,
    seed: int,
) -> list[Check]:
    """Return checks of ``conditional``, ``space`` and ``n_components``.

    The declared model and its alternatives are trained anew on the same pairs, for as many steps,
    and compared on pairs that none has seen. An alternative that leads is trained longer, beside
    the declared one, before it contradicts it. Harm is one minus the agreement of their codes.

    Args:
        model: The fitted model.
        pairs: Pairs to train with, and pairs to test with.
        contradicted: Assumptions that were contradicted before; they are relaxed in all runs, since
            a broken assumption looks like several.
        metric: How codes are compared.
        seed: Seed of the runs.
    """
    testing = pairs.testing
    plain = testing.negatives is None and testing.tags is None and testing.blocks is None
    by_name = isinstance(model.loss, str) and isinstance(model.encoder, str)
    if not plain or not by_name or not isinstance(model.loss_, InfoNCE):
        return []
    if "noise" in model.relaxed_:
        return []
    base = base_of(model, contradicted)
    shared = prepare(model, pairs.source, testing, base.n_components + FURTHER, seed)
    fitted = values_of(model, shuffled_rows(testing, seed), shared.value_batch)
    runs = _Runs(shared, ALTERNATIVE_STEPS, seed, fitted)
    if (first := runs(base)) is None:
        return []
    checks = []
    if exponents := _exponents(base):
        checks.append(_compare("conditional", base, exponents, runs, metric))
    checks.append(_compare("space", base, _spaces(base, shared), runs, "linear_r2"))
    checks.append(_check_number(base, runs, shared))
    if float(np.mean(first.values)) > SATURATED * shared.most:
        checks = [_unsure(check) for check in checks]
    return checks


@dataclass
class _Runs:
    """Runs of candidates, each done once."""

    shared: Shared
    steps: int
    seed: int
    fitted: TrialRun
    done: dict[tuple[Candidate, int], TrialRun | None] = field(default_factory=dict)

    def __call__(self, candidate: Candidate, longer: bool = False) -> TrialRun | None:
        steps = self.steps * (CONFIRMING if longer else 1)
        key = (candidate, steps)
        if key not in self.done:
            self.done[key] = train_trial(candidate, self.shared, steps, self.seed)
        return self.done[key]

    def lead(self, candidate: Candidate, over: Candidate, longer: bool = False) -> Lead | None:
        """Return the lead of a candidate; None if one of the two diverged."""
        first, second = self(candidate, longer), self(over, longer)
        if first is None or second is None:
            return None
        return lead_of(first.values, second.values)

    def confirmed(self, candidate: Candidate, base: Candidate) -> Lead | None:
        """Return the lead of a longer run over the declared model, trained as long or to the end.

        Models with more freedom may be ahead only because they learn faster.
        """
        lead, run = self.lead(candidate, base, longer=True), self(candidate, longer=True)
        if lead is None or run is None:
            return None
        return min(lead, lead_of(run.values, self.fitted.values))


def base_of(model: ContrastiveICA, contradicted: Sequence[str] = ()) -> Candidate:
    """Return the declared model, without what was contradicted, and with any marginal."""
    beliefs = model.beliefs_
    relaxed = dict.fromkeys((*model.relaxed_, *contradicted))
    names = tuple(name for name in relaxed if name in ("pairing", "anchor_scale"))
    if "dynamics" in relaxed and beliefs.head == "free":
        names += ("dynamics",)
    conditional = beliefs.conditional
    if "factor_scale" in relaxed and beliefs.head != "free":
        names += ("factor_scale",) if conditional != "anisotropic" else ()
    p = model.p if conditional == "gennorm" else None
    return Candidate(str(beliefs.space), conditional, model.n_components, p, "unknown", names)


def _exponents(base: Candidate) -> list[Candidate]:
    """Return the same model with other exponents; on a sphere, and with weights, there are none."""
    p = base.beliefs.exponent
    if base.space == "sphere" or p is None or base.conditional == "anisotropic":
        return []
    if "factor_scale" in base.relax:
        return []
    others = OTHER_EXPONENTS.get(float(p), FURTHER_EXPONENTS)
    return [replace(base, conditional="gennorm", p=other) for other in others]


def _spaces(base: Candidate, shared: Shared) -> list[Candidate]:
    """Return the same number of codes in other spaces; on a sphere of a box, one more."""
    n, columns = base.n_components, shared.testing.x[:1].numel()
    free = tuple(name for name in base.relax if name != "factor_scale")
    found = []
    if base.space != "sphere" and n + 1 <= columns + 1:
        found.append(replace(base, space="sphere", conditional="vmf", p=None, n_components=n + 1))
    if base.space == "sphere" and n <= columns:
        found.append(replace(base, space="box", conditional="normal"))
    if base.space != "euclidean" and n <= columns:
        conditional = "normal" if base.space == "sphere" else base.conditional
        conditional = "normal" if conditional == "anisotropic" else conditional
        found.append(replace(base, space="euclidean", conditional=conditional, relax=free))
    # Dynamics are learned for free codes alone.
    return [
        one
        if one.space == "euclidean"
        else replace(one, relax=tuple(name for name in one.relax if name != "dynamics"))
        for one in found
    ]


def _compare(
    key: str, base: Candidate, others: Iterable[Candidate], runs: _Runs, metric: str
) -> Check:
    """Return a check by the alternative that leads most."""
    least = LEADS[key]
    found = [(lead, one) for one in others if (lead := runs.lead(one, base)) is not None]
    if not found:
        return Check(key, CANNOT_TELL, None, "there is no alternative to compare with")
    lead, best = max(found, key=lambda pair: pair[0].mean)
    if lead.exceeds(least, ERRORS):
        longer = runs.confirmed(best, base)
        lead = lead if longer is None else longer
    compare = partial(agreement, metric=metric)
    return _judge(key, lead, least, base, best, runs, compare, tried=len(found))


def _judge(
    key: str,
    lead: Lead,
    least: float,
    base: Candidate,
    other: Candidate,
    runs: _Runs,
    compare: Callable[[Codes, Codes], float],
    tried: int,
) -> Check:
    """Return a check by the lead of an alternative, the best of those tried."""
    what = _words(key, other)
    effect = f"{what} {'gains' if lead.mean > 0 else 'loses'} {abs(lead.mean):.3f} ± "
    effect += f"{lead.error:.3f} nats on held-out pairs"
    p_value = of_best(lead.p_value, tried) if lead.error > 0 else None
    if lead.exceeds(least, ERRORS):
        first, second = runs(base, longer=True), runs(other, longer=True)
        harm = None
        if first is not None and second is not None:
            harm = max(0.0, 1 - compare(first.codes, second.codes))
        return Check(key, CONTRADICTED, lead.mean, effect, p_value, harm, unit=NATS)
    precise = lead.mean + ERRORS / 2 * lead.error < 2 * least
    return Check(key, SUPPORTED if precise else CANNOT_TELL, lead.mean, effect, p_value, unit=NATS)


def _words(key: str, other: Candidate) -> str:
    if key == "conditional":
        return f"an exponent of {other.p:g}"
    if key == "space":
        factors = f" ({other.n_factors} factors)" if other.space == "sphere" else ""
        name = {"euclidean": "a plane", "box": "a box", "sphere": "a sphere"}
        return (
            f"{name.get(str(other.space), str(other.space))} of {other.n_components} codes"
            + factors
        )
    return f"{other.n_components} codes"


def _check_number(base: Candidate, runs: _Runs, shared: Shared) -> Check:
    """Compare with more codes, and with fewer."""
    n, key, least = base.n_components, "n_components", LEADS["n_components"]
    most = shared.testing.x[:1].numel() + (base.space == "sphere")
    best: tuple[Lead, Candidate] | None = None
    tried = 0
    for more in range(n + 1, min(most, n + FURTHER) + 1):
        other = with_codes(base, more)
        lead = runs.lead(other, base)
        if lead is None:
            continue
        tried += 1
        if best is None or lead.mean > best[0].mean:
            best = (lead, other)
        if not lead.exceeds(least, ERRORS):
            break  # a second code more hardly helps where the first does not
    if best is not None and best[0].exceeds(least, ERRORS):
        longer = runs.confirmed(best[1], base)
        best = (best[0] if longer is None else longer, best[1])
        if best[0].exceeds(least, ERRORS):
            return _judge(key, best[0], least, base, best[1], runs, _explained, tried)
    fewest = 2 if base.space == "sphere" else 1
    spare = None
    for fewer in range(n - 1, max(fewest, n - FURTHER) - 1, -1):
        other = with_codes(base, fewer)
        lost = runs.lead(base, other)
        if lost is None or lost.mean + 2 * lost.error > FREE_LOSS:
            break
        longer = runs.lead(base, other, longer=True)
        if longer is None or longer.mean + 2 * longer.error > FREE_LOSS:
            break
        spare = (longer, other)
    if spare is not None:
        lost, other = spare
        effect = (
            f"{other.n_components} codes know as much: {-lost.mean:.3f} ± {lost.error:.3f} nats"
        )
        first, second = runs(base, longer=True), runs(other, longer=True)
        assert first is not None
        assert second is not None
        harm = max(0.0, 1 - float(linear_r2(second.codes, first.codes)))
        return Check(key, CONTRADICTED, -lost.mean, effect, None, harm, unit=NATS)
    if best is None:
        return Check(key, CANNOT_TELL, None, "there are no columns for more codes")
    return _judge(key, best[0], least, base, best[1], runs, _explained, tried)


def _explained(few: Codes, many: Codes) -> float:
    """Return how much of more codes is linear in fewer."""
    return float(linear_r2(many, few))


def _unsure(check: Check) -> Check:
    if check.status != SUPPORTED:
        return check
    effect = f"{check.effect}, but the loss is saturated, so it can hardly tell"
    return replace(check, status=CANNOT_TELL, effect=effect)
