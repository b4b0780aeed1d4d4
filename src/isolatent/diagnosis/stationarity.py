"""Test whether a recording is the same from its first half to its second."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import nn

from isolatent.diagnosis.agreement import agreement
from isolatent.diagnosis.held_out import HeldOut
from isolatent.diagnosis.trials import Candidate, Shared, train_trial
from isolatent.diagnosis.verdict import CANNOT_TELL, CONTRADICTED, SUPPORTED, Check
from isolatent.inference import encode_chunks
from isolatent.pairs import ArrayPairs, SeriesPairs
from isolatent.training import ContrastiveICA

__all__ = ["check_stationarity", "compare_step_widths"]

MOST_STEP_PAIRS = 16_384
FEWEST_HALF_PAIRS = 800  # of a half, that a network can be trained with
PARTS, PIECES = 4, 5  # of the recording, and pieces of each part, by which its spread is known
LEVEL, LEAST_RATIO = 1e-4, 1.5  # of p-values, and of step widths of two parts
LEAST_LOSS = 0.05  # of agreement, of halves in time against halves at random
RATIO, LOST = "ratio of step widths", "agreement lost"  # units
STEP_SHARE, FEWEST_STEPS, MOST_STEPS = 0.2, 150, 600


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

    Two things are compared: how wide steps of the codes are in four parts of the recording; and how
    far models agree that are trained on its first and on its second half, against models that are
    trained on every other stretch of it.

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
    if x.ndim != 2:
        changed = p_value < LEVEL and ratio > LEAST_RATIO
        status = CONTRADICTED if changed else SUPPORTED
        return Check(key, status, ratio, effect, p_value, unit=RATIO)
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
    return Check(key, SUPPORTED, lost, effect, p_value, unit=LOST)


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
