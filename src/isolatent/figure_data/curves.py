"""Training curves, and where overfitting starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isolatent.figure_data.rows import Array, read_number
from isolatent.training import Step

__all__ = ["Curve", "TrainingData", "training_data"]

MEASURED = ("loss", "held_out", "information", "held_out_information", "scale", "quality")
MIN_MEASURED = 5  # held-out losses, without which overfitting is not told
LAST = 3  # of them must all be above the lowest
NOISE = 3.0  # deviations of the held-out loss
LEAST_RISE = 0.02  # of the fall of the held-out loss before


@dataclass(frozen=True)
class Curve:
    """A quantity at the steps where it was measured.

    Attributes:
        steps: Numbers of the steps (K,).
        values: Values (K,).
    """

    steps: Array
    values: Array


@dataclass(frozen=True)
class TrainingData:
    """Training curves of one run.

    Attributes:
        loss: Loss of the batches.
        smooth_loss: The same as a moving average.
        held_out: Loss of the averaged network on held-out pairs.
        information: Lower bound log B - loss on the information that a pair shares, in nats.
        held_out_information: The same of held-out pairs, all of which are candidates. Losses on
            different numbers of candidates are not comparable, these bounds are.
        scale: Scale of the similarity.
        quality: Score against known factors.
        changed_at: Step at which the objective became the saturated one; None if it did not.
            Losses before and after it have different levels.
        lowest: Step with the lowest held-out loss since then, whose network is kept; None without
            held-out pairs.
        overfits_from: That step, if the held-out loss rises after it and stays above; None if not.
    """

    loss: Curve
    smooth_loss: Curve
    held_out: Curve
    information: Curve
    held_out_information: Curve
    scale: Curve
    quality: Curve
    changed_at: int | None
    lowest: int | None
    overfits_from: int | None


def training_data(run: Any) -> TrainingData:
    """Return the training curves of a run.

    Args:
        run: A fitted model, its ``history_``, or a stored record or its ``"curve"``.

    Example:
        >>> falls = [{"number": k, "loss": 1 / k, "held_out": abs(k - 5) / 9} for k in range(1, 13)]
        >>> training_data(falls).overfits_from
        5
    """
    history = run
    if isinstance(run, Mapping):
        history = run.get("curve")
    elif not isinstance(run, Sequence):
        if not hasattr(run, "history_"):
            raise TypeError(
                f"run must be a fitted model, its history_ or a record, got {type(run).__name__}"
                + (" without history_: call fit first" if hasattr(run, "fit") else "")
            )
        history = run.history_
    steps = [
        dataclasses.asdict(step) if isinstance(step, Step) else step
        for step in history or ()
        if isinstance(step, Step | Mapping)
    ]
    curves = {name: _curve(steps, name) for name in MEASURED}
    if not len(curves["loss"].steps):
        raise ValueError("run must have at least one step with a loss, got none")
    changed_at = _changed_at(curves["loss"], curves["information"])
    lowest, overfits = _overfitting(curves["held_out"], changed_at)
    return TrainingData(
        curves["loss"],
        smoothed(curves["loss"]),
        curves["held_out"],
        curves["information"],
        curves["held_out_information"],
        curves["scale"],
        curves["quality"],
        changed_at,
        lowest,
        overfits,
    )


def _curve(steps: Sequence[Mapping[str, Any]], name: str) -> Curve:
    found = [
        (number, value)
        for step in steps
        if (number := read_number(step.get("number"))) is not None
        and (value := read_number(step.get(name))) is not None
    ]
    pairs = np.array(found, dtype=np.float64).reshape(-1, 2)
    return Curve(pairs[:, 0].astype(np.intp), pairs[:, 1])


def smoothed(curve: Curve) -> Curve:
    """Return a moving average over a fiftieth of the steps, shorter at both ends."""
    half = len(curve.values) // 100
    totals = np.r_[0.0, np.cumsum(curve.values)]
    index = np.arange(len(curve.values))
    reach = np.minimum(half, np.minimum(index, index[::-1]))
    low, high = index - reach, index + reach + 1
    return Curve(curve.steps, (totals[high] - totals[low]) / (high - low))


def _changed_at(loss: Curve, information: Curve) -> int | None:
    """Return the first step without a bound on information, which InfoNCE has until it saturates.

    It is None for losses that never have one.
    """
    if not len(information.steps):
        return None
    later = loss.steps[loss.steps > information.steps[-1]]
    return int(later[0]) if len(later) else None


def _overfitting(held_out: Curve, changed_at: int | None) -> tuple[int | None, int | None]:
    """Return the step with the lowest held-out loss, and whether it starts overfitting."""
    since = held_out.steps >= (changed_at or 0)
    if not since.any():
        return None, None
    steps, values = held_out.steps[since], held_out.values[since]
    best = int(values.argmin())
    lowest = int(steps[best])
    if len(values) < MIN_MEASURED or best > len(values) - 1 - LAST:
        return lowest, None
    # Second differences of a smooth curve are small: what they show is noise.
    noise = float(np.median(np.abs(np.diff(values, 2)))) / 1.65
    least = max(NOISE * noise, LEAST_RISE * float(values[0] - values[best]))
    rises = bool((values[-LAST:] - values[best] > least).all())
    return lowest, lowest if rises else None
