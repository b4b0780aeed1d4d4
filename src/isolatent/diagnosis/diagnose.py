"""Diagnose a fit: which of its assumptions do the data contradict, and does it matter?"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from torch import Tensor

from isolatent.checks import IsolatentWarning, check_integer
from isolatent.diagnosis.agreement import metric_for
from isolatent.diagnosis.alternatives import base_of, check_alternatives
from isolatent.diagnosis.controls import (
    Decoder,
    check_axes,
    check_information,
    check_optimum,
    check_residuals,
)
from isolatent.diagnosis.goodness_of_fit import check_against_rehearsals
from isolatent.diagnosis.held_out import (
    HeldOut,
    TooFewPairsError,
    hold_pairs_out,
    refit,
    source_of,
)
from isolatent.diagnosis.nested import check_relaxations_nested
from isolatent.diagnosis.rehearsal import Rehearsal, expected_score, rehearse, statistics_of
from isolatent.diagnosis.stationarity import check_stationarity
from isolatent.diagnosis.verdict import (
    CANNOT_TELL,
    CONTRADICTED,
    LEAST_SCORE,
    Check,
    Diagnosis,
    ExpectedScore,
    conclude,
)
from isolatent.inference import encode_chunks
from isolatent.pairs import Batch, PairSource
from isolatent.training import ContrastiveICA
from isolatent.training.axis_search import without_axes
from isolatent.worlds import World

__all__ = ["diagnose"]

LOSE_FACTORS = ("factor_scale", "dynamics")  # assumptions whose failure loses whole factors
LEAVE_OUT = ("space", "n_components")  # those whose failure leaves residuals that look like noise
FOUND_AGAIN = 0.5  # of what was unexplained: codes that leave out less hold what was lost
NOTHING_CHECKED = ("information", "optimum")


def diagnose(
    model: ContrastiveICA,
    x: ArrayLike | Tensor | World | PairSource,
    x_pos: ArrayLike | Tensor | None = None,
    *,
    groups: ArrayLike | None = None,
    times: ArrayLike | None = None,
    max_gap: int = 0,
    random_state: Any = 0,
    n_jobs: int = 1,
    n_rehearsals: int = 1,
) -> Diagnosis:
    """Tell whether a fit is to be believed, from data without ground truth.

    A quarter of the pairs is kept from everything that is trained here. A second run with another
    seed tells whether training reached one optimum, and what held-out pairs share. Assumptions that
    can be relaxed are relaxed, one on top of the other. A decoder tells factors that were left out
    from noise. A rehearsal, the same training on a sample of the declared world, gives the score to
    expect, and statistics of codes to compare those of the fit with. ``docs/diagnosis.md`` says
    what cannot be known.

    It trains two models like the given one and up to six short runs, so it takes two to four times
    as long as the fit.

    Args:
        model: A fitted model.
        x: Observations (N, ...) with their positives in ``x_pos``; a recording, a world or a pair
            source without. They may be the data of the fit.
        x_pos: The positive of each row of x.
        groups: For a recording: one session id for each row.
        times: For a recording: the time of each row; a pause ends a session, as in ``fit``.
        max_gap: For a recording: longest run of rows with NaN that is interpolated.
        random_state: Seed, as in scikit-learn.
        n_jobs: Number of processes, as in joblib: the rehearsal and the comparisons can run at the
            same time.
        n_rehearsals: Number of rehearsals, each as long as a fit. More than one show how far they
            differ among themselves.

    Example:
        >>> import isolatent as iso
        >>> world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
        >>> pairs = world.sample_pairs(300)
        >>> recipe = iso.Recipe(max_steps=20, batch_size=32, warmup=5)
        >>> model = iso.ContrastiveICA(2, space="box", recipe=recipe, random_state=0).fit(*pairs)
        >>> print(diagnose(model, *pairs))  # too few pairs to say anything
        Cannot tell: 300 pairs, of which a quarter must be at least 200.
          ? information   cannot tell  not checked
          ? optimum       cannot tell  not checked
          expected score  not to be had
    """
    if n_jobs != -1:
        check_integer("n_jobs", n_jobs, at_least=1)
    check_integer("n_rehearsals", n_rehearsals, at_least=1)
    seed = int(check_random_state(random_state).randint(2**31 - 2))
    source = source_of(model, x, x_pos, groups, times, max_gap)
    try:
        pairs = hold_pairs_out(model, source, seed)
    except TooFewPairsError as error:
        checks = tuple(Check(key, CANNOT_TELL, None, "not checked") for key in NOTHING_CHECKED)
        verdict = f"Cannot tell: {error}, of which a quarter must be at least 200."
        return Diagnosis(None, (), None, checks, verdict)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsolatentWarning)  # of the runs below; this is the verdict
        return _diagnose(model, pairs, seed, n_jobs, n_rehearsals)


def _diagnose(
    model: ContrastiveICA, pairs: HeldOut, seed: int, n_jobs: int, n_rehearsals: int
) -> Diagnosis:
    guarantee, metric = model.guarantee_, metric_for(model.guarantee_.metric)
    claim = guarantee.equivalence or guarantee.withdrawn or None
    testing = pairs.testing
    second = refit(model, pairs.source, seed)
    checks = [check_information(second._scored_network(), second.loss_, pairs)]
    if checks[0].status == CONTRADICTED:
        return conclude(checks, None, claim, guarantee.gap)
    codes, others = (encode_chunks(one.encoder_, testing.x).numpy() for one in (model, second))
    checks.append(_with_support(check_optimum(codes, others, metric), model, second))
    found = model.axes_ is not None and model.axes_.separates
    if found:
        checks.append(check_axes(codes, others))
    jobs = [delayed(_compare_models)(second, pairs, "linear_r2" if found else metric, seed)]
    decoder: Decoder | None = None
    if testing.x.ndim == 2:
        decoder = Decoder.fit(model.encoder_, pairs, model.head_, seed, counts=bool(model.counts))
        plain = testing.negatives is None and testing.tags is None
        if claim is not None and plain:
            seeds = range(seed + 1, seed + 1 + n_rehearsals)
            jobs += [delayed(rehearse)(model, pairs, decoder, one) for one in seeds]
    alone = pairs.n_pairs is None  # the generator of an endless source cannot be sent
    relaxed, *rehearsals = Parallel(n_jobs=1 if alone else n_jobs)(jobs)
    if len(rehearsals) == 1 and decoder is not None:
        rehearsals = _repeat_if_stuck(rehearsals[0], checks, model, pairs, decoder, seed + 2)
    expected = expected_score(rehearsals) if rehearsals else None
    checks += relaxed
    if decoder is not None:
        checks = _merge(checks, check_residuals(decoder))
    most = testing.x[:1].numel() + (model.beliefs_.space == "sphere")
    checks = _doubt_noise(checks)
    if model.n_components >= most and not _is_harmful(checks, "space"):
        checks = _explain_lost_factors(model, checks, decoder, pairs, seed)
    checks = _with_rehearsals(checks, (model, second), testing, rehearsals)
    return conclude(_judge(checks, expected), expected, claim, guarantee.gap)


def _repeat_if_stuck(
    first: Rehearsal,
    checks: Sequence[Check],
    model: ContrastiveICA,
    pairs: HeldOut,
    decoder: Decoder,
    seed: int,
) -> list[Rehearsal]:
    """Return the better of two rehearsals if the first one failed and both runs agree.

    It may have ended in a minimum of its own, in which both runs on the data would hardly agree.
    Where such pairs do not determine the codes, the second rehearsal fails as well.
    """
    agreements = [check.statistic for check in checks if check.key == "optimum"]
    agree = all(value is not None and value >= LEAST_SCORE for value in agreements)
    if first.score >= LEAST_SCORE or not agree:
        return [first]
    second = rehearse(model, pairs, decoder, seed)
    return [max(first, second, key=lambda rehearsal: rehearsal.score)]


def _compare_models(second: ContrastiveICA, pairs: HeldOut, metric: str, seed: int) -> list[Check]:
    """Return checks by other models: relaxed ones first, then other spaces, exponents, numbers."""
    network, steps = without_axes(second.encoder_), len(second.history_)
    checks = check_relaxations_nested(
        *(network, second.loss_, second.beliefs_, second.head_, pairs),
        steps=steps,
        metric=metric,
        seed=seed,
    )
    broken = [check.key for check in checks if check.status == CONTRADICTED]
    options: dict[str, Any] = {"metric": metric, "seed": seed}
    checks += check_alternatives(second, pairs, broken, **options)
    if isinstance(second.loss, str) and isinstance(second.encoder, str):
        stationary = check_stationarity(
            second, base_of(second, broken), pairs, steps=steps, **options
        )
        checks += [] if stationary is None else [stationary]
    return checks


def _with_rehearsals(
    checks: list[Check],
    models: Sequence[ContrastiveICA],
    testing: Batch,
    rehearsals: Sequence[Rehearsal],
) -> list[Check]:
    """Add what the statistics of codes show beside those of rehearsals."""
    rehearsed = [one.statistics for one in rehearsals if one.statistics is not None]
    if not rehearsed:
        return checks
    runs = [found for one in models if (found := statistics_of(one, testing)) is not None]
    if len(runs) < len(models):
        return checks
    left_out = fmean(one.unexplained for one in rehearsals)
    told = [
        replace(check, effect=f"{check.effect}, in a rehearsal {1 - left_out:.1%}")
        if check.key == "injective"
        else check
        for check in checks
    ]
    return _merge(told, check_against_rehearsals(told, runs, rehearsed))


def _with_support(optimum: Check, model: ContrastiveICA, second: ContrastiveICA) -> Check:
    """Contradict the optimum if the measurements of the fit, or of the second one, do.

    That the second one found nothing is for the check of information; that the fit itself did is
    said here alone.
    """
    first, other = model.support_, second.support_
    reason = "" if first is None else first.reason
    if not reason and other is not None and not other.is_null:
        reason = other.reason
    if not reason:
        return optimum
    return replace(optimum, status=CONTRADICTED, effect=f"{optimum.effect}; {reason}")


def _is_harmful(checks: list[Check], key: str) -> bool:
    return any(check.key == key and check.is_harmful for check in checks)


def _doubt_noise(checks: list[Check]) -> list[Check]:
    """Do not call noise what codes of the wrong space or number leave out."""
    if not any(_is_harmful(checks, key) for key in LEAVE_OUT):
        return checks
    effect = "factors that the codes leave out hide it"
    return [
        replace(check, status=CANNOT_TELL, effect=effect, harm=None)
        if check.key == "noise"
        else check
        for check in checks
    ]


def _merge(checks: list[Check], others: list[Check]) -> list[Check]:
    """Add checks; of two for one assumption the one that says more stays."""
    by_key = {check.key: check for check in checks}
    for check in others:
        before = by_key.get(check.key)
        weight = {CONTRADICTED: 2, CANNOT_TELL: 0}
        if before is None or weight.get(check.status, 1) > weight.get(before.status, 1):
            by_key[check.key] = check
    return [*by_key.values()]


def _explain_lost_factors(
    model: ContrastiveICA, checks: list[Check], decoder: Decoder | None, pairs: HeldOut, seed: int
) -> list[Check]:
    """Return checks for codes that are as many as columns, so that more codes cannot help.

    What codes leave out then are factors that training lost. Those that move far more than others,
    or that oscillate, are lost without the relaxation, and their lack cannot be seen at the codes:
    so a model is trained anew with it, and it is to blame if its codes hold what was lost.
    """
    by_key = {check.key: check for check in checks}
    lost = by_key.get("n_components")
    if decoder is None or lost is None or lost.status != CONTRADICTED:
        return checks
    effect = f"{lost.effect}, though codes are as many as columns: factors were lost"
    by_key["n_components"] = replace(lost, status=CANNOT_TELL, effect=effect)
    candidates = [key for key in LOSE_FACTORS if key in by_key]
    if any(by_key[key].is_harmful for key in candidates):
        return [*by_key.values()]
    for key in candidates:
        other = refit(model, pairs.source, seed, relax=(*model.relaxed_, key))
        found_by = Decoder.fit(other.encoder_, pairs, other.head_, seed, counts=bool(model.counts))
        left_out = found_by.unexplained
        if left_out < FOUND_AGAIN * decoder.unexplained:
            found = f"{effect}, and relaxing it finds them: {1 - left_out:.1%} are explained"
            by_key[key] = replace(
                by_key[key], status=CONTRADICTED, effect=found, p_value=None, harm=lost.harm
            )
            return [*by_key.values()]
    optimum = by_key["optimum"]
    by_key["optimum"] = replace(optimum, status=CONTRADICTED, effect=effect, harm=lost.harm)
    return [*by_key.values()]


def _judge(checks: list[Check], expected: ExpectedScore | None) -> list[Check]:
    """Let the harm of noise be what a rehearsal with noise loses."""
    if expected is None:
        return checks
    harm = 1 - expected.value
    return [
        replace(c, harm=harm) if c.key == "noise" and c.status == CONTRADICTED else c
        for c in checks
    ]
