"""Test whether a recording is the same from its first half to its second, and in all sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import nn

from isolatent.diagnosis.agreement import agreement
from isolatent.diagnosis.held_out import HeldOut
from isolatent.diagnosis.p_values import of_best
from isolatent.diagnosis.trials import Candidate, Shared, train_trial
from isolatent.diagnosis.verdict import CANNOT_TELL, CONTRADICTED, SUPPORTED, Check
from isolatent.inference import encode_chunks
from isolatent.pairs import ArrayPairs, SeriesPairs
from isolatent.training import ContrastiveICA

__all__ = ["Sessions", "check_stationarity", "compare_sessions", "compare_step_widths"]

MOST_STEP_PAIRS = 16_384
FEWEST_HALF_PAIRS = 800  # of a half, that a network can be trained with
PARTS, PIECES = 4, 5  # of the recording, and pieces of each part, by which its spread is known
LEVEL, LEAST_RATIO = 1e-4, 1.5  # of p-values, and of step widths of two parts
LEAST_SHIFT = 0.5  # standard deviations of a code between sessions
MOST_SESSIONS, SESSION_PAIRS = 50, 100  # that are compared, and fewest pairs of one
LEAST_LOSS = 0.05  # of agreement, of halves in time against halves at random
RATIO, LOST = "ratio of step widths", "agreement lost"  # units
SHIFT = "standard deviations of a code"
STEP_SHARE, FEWEST_STEPS, MOST_STEPS = 0.2, 150, 600


class Sessions(NamedTuple):
    """How sessions of a recording differ.

    Attributes:
        ratio: Largest ratio of step widths of two sessions.
        ratio_p: Its p-value.
        shift: Standard deviation between the means of a code over sessions, in standard deviations
            of the code, for the code where it is largest.
        shift_p: Its p-value.
        n_sessions: Number of sessions that were compared.
    """

    ratio: float
    ratio_p: float
    shift: float
    shift_p: float
    n_sessions: int

    @property
    def wider(self) -> bool:
        """Whether steps are wider in one session than in another."""
        return self.ratio > LEAST_RATIO and self.ratio_p < LEVEL

    @property
    def elsewhere(self) -> bool:
        """Whether codes of some sessions are elsewhere than those of others."""
        return self.shift > LEAST_SHIFT and self.shift_p < LEVEL

    def __str__(self) -> str:
        return (
            f"between {self.n_sessions} sessions steps differ up to {self.ratio:.2f} times in "
            f"width, and means of a code by {self.shift:.2f} standard deviations"
        )


def compare_sessions(
    codes: np.ndarray[Any, Any], steps: np.ndarray[Any, Any], session: np.ndarray[Any, Any]
) -> Sessions | None:
    """Return how sessions differ; None if fewer than two are long enough.

    Each session is cut into five pieces. The logarithm of the mean squared step, and the mean of
    each code, are compared between sessions by an analysis of variance, whose error is the spread
    between pieces. Of the codes the one with the smallest p-value counts, which is corrected for
    their number.

    Args:
        codes: Codes (T, n) of the anchors, in their order.
        steps: Squared lengths (T,) of their steps.
        session: Number (T,) of the session of each.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> codes, session = rng.normal(size=(4000, 2)), np.repeat(np.arange(4), 1000)
        >>> same = compare_sessions(codes, rng.chisquare(2, size=4000), session)
        >>> same.wider, same.elsewhere
        (False, False)
        >>> codes[session == 2] += 3
        >>> compare_sessions(codes, rng.chisquare(2, size=4000), session).elsewhere
        True
    """
    numbers, lengths = np.unique(session, return_counts=True)
    longest = np.argsort(-lengths, kind="stable")[:MOST_SESSIONS]
    kept = [number for number in numbers[longest] if (session == number).sum() >= SESSION_PAIRS]
    if len(kept) < 2:
        return None
    pieces = [np.array_split(np.flatnonzero(session == number), PIECES) for number in kept]
    widths = np.array([[np.log(steps[rows].mean()) for rows in parts] for parts in pieces])
    means = np.array([[codes[rows].mean(0) for rows in parts] for parts in pieces])  # (S, 5, n)
    centers = widths.mean(1)
    ratio = float(np.exp((centers.max() - centers.min()) / 2))
    between = means.mean(1).var(0, ddof=1) - means.var(1, ddof=1).mean(0) / PIECES
    spread = np.maximum(codes.var(0), 1e-12)
    p_values = [float(stats.f_oneway(*column).pvalue) for column in np.moveaxis(means, 2, 0)]
    return Sessions(
        ratio,
        float(stats.f_oneway(*widths).pvalue),
        float(np.sqrt(np.maximum(between, 0) / spread).max()),
        of_best(min(p_values), len(p_values)),
        len(kept),
    )


def compare_step_widths(steps: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the largest ratio of step widths between parts of a recording, and its p-value.

    The recording is cut in four parts, and each into five pieces. A logarithm of the mean squared
    step is compared between parts by an analysis of variance, whose error is the spread between
    pieces: neighbouring steps need not be independent.

    Args:
        steps: Squared lengths of steps (T,), in their order.

    Example:
        >>> steps = np.random.default_rng(0).chisquare(3, size=4000)
        >>> compare_step_widths(steps)[1] > 0.01
        True
        >>> steps[2000:] *= 9
        >>> ratio, p_value = compare_step_widths(steps)
        >>> round(ratio), p_value < 1e-6
        (3, True)
    """
    pieces = np.array([np.log(part.mean()) for part in np.array_split(steps, PARTS * PIECES)])
    parts = pieces.reshape(PARTS, PIECES)
    means = parts.mean(1)
    ratio = float(np.exp((means.max() - means.min()) / 2))
    return ratio, float(stats.f_oneway(*parts).pvalue)


def check_stationarity(
    model: ContrastiveICA, base: Candidate, pairs: HeldOut, metric: str, steps: int, seed: int
) -> Check | None:
    """Return a check for a recording, None for pairs without an order in time.

    Three things are compared: how wide steps of the codes are in four parts of the recording; how
    far models agree that are trained on its first and on its second half, against models that are
    trained on every other stretch of it; and, of several sessions, how wide steps are and where
    codes are in each. Sessions that differ may have been in other states, with one mixing: so they
    contradict the assumption, and its harm is what models of the halves disagree by.

    Args:
        model: The fitted model.
        base: What is declared.
        pairs: The pairs.
        metric: How codes are compared.
        steps: Steps of the fit.
        seed: Seed of the runs.
    """
    source: Any = pairs.source
    if not isinstance(source, SeriesPairs):
        return None
    key = "stationarity"
    if len(source) < 2 * FEWEST_HALF_PAIRS:
        return Check(key, CANNOT_TELL, None, f"halves of {len(source)} pairs are too short")
    rows = np.unique(np.linspace(0, len(source) - 1, min(len(source), MOST_STEP_PAIRS)).astype(int))
    x, x_pos = source.all(rows)
    h, h_pos = (_codes(model.encoder_, part) for part in (x, x_pos))
    squared = np.maximum(((h_pos - h) ** 2).sum(1), 1e-12)
    ratio, p_value = compare_step_widths(squared)
    effect = f"steps are {ratio:.2f} times wider in one part of the recording than in another"
    sessions = compare_sessions(h, squared, source.sessions()[rows])
    if sessions is not None:
        effect += f"; {sessions}"
    if x.ndim != 2:
        changed = p_value < LEVEL and ratio > LEAST_RATIO
        check = Check(key, SUPPORTED, ratio, effect, p_value, unit=RATIO)
        return replace(check, status=CONTRADICTED) if changed else _with_sessions(check, sessions)
    length = max(FEWEST_STEPS, min(MOST_STEPS, round(STEP_SHARE * steps)))
    late = np.arange(len(x)) >= len(x) / 2
    stretches = np.arange(len(x)) * 2 * PARTS // len(x) % 2 == 1
    found = [
        _agreement_of_halves(model, base, x, x_pos, half, pairs, metric, length, seed)
        for half in (late, stretches)
    ]
    if None in found:
        effect += "; training on halves diverged"
        return Check(key, CANNOT_TELL, ratio, effect, p_value, unit=RATIO)
    halves, mixed = (float(value or 0.0) for value in found)
    lost = max(0.0, mixed - halves)
    effect += f"; models of its first and second half agree up to {halves:.3f}, of mixed halves "
    effect += f"{mixed:.3f}"
    if lost > LEAST_LOSS:
        return Check(key, CONTRADICTED, lost, effect, p_value, lost, unit=LOST)
    if p_value < LEVEL and ratio > LEAST_RATIO:
        return Check(key, CONTRADICTED, ratio, effect, p_value, lost, unit=RATIO)
    check = _with_sessions(Check(key, SUPPORTED, lost, effect, p_value, unit=LOST), sessions)
    return replace(check, harm=lost) if check.status == CONTRADICTED else check


def _with_sessions(check: Check, sessions: Sessions | None) -> Check:
    """Contradict what parts of the recording support, if sessions differ."""
    if sessions is None or not (sessions.wider or sessions.elsewhere):
        return check
    value, unit = (sessions.ratio, RATIO) if sessions.wider else (sessions.shift, SHIFT)
    p_value = of_best(min(sessions.ratio_p, sessions.shift_p), 2)
    return replace(check, status=CONTRADICTED, statistic=value, p_value=p_value, unit=unit)


def _codes(network: nn.Module, x: torch.Tensor) -> np.ndarray[Any, Any]:
    codes: np.ndarray[Any, Any] = encode_chunks(network, x).cpu().double().numpy()
    return codes


def _agreement_of_halves(
    model: ContrastiveICA,
    base: Candidate,
    x: torch.Tensor,
    x_pos: torch.Tensor,
    second: np.ndarray[Any, Any],
    pairs: HeldOut,
    metric: str,
    steps: int,
    seed: int,
) -> float | None:
    """Train one model on each half of the pairs, and compare their codes of all held-out pairs."""
    codes = []
    for half in (~second, second):
        chosen = torch.from_numpy(np.flatnonzero(half))
        source = ArrayPairs(x[chosen].numpy(), x_pos[chosen].numpy())
        shared = Shared(source, pairs.testing, x.shape[1], model)
        run = train_trial(base, shared, steps, seed)
        if run is None:
            return None
        codes.append(run.codes)
    return agreement(codes[0], codes[1], metric)
