"""Agreement between runs, up to the class of maps that a guarantee leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from isolatent.cards import card
from isolatent.checks import check_integer
from isolatent.diagnosis.agreement import agreement, metric_for, varying_columns
from isolatent.evaluation import Interval, linear_r2, mcc
from isolatent.evaluation.intervals import percentile_interval, score_statistic
from isolatent.theory import Guarantee
from isolatent.training import ContrastiveICA

__all__ = ["Consistency", "consistency"]

SHIFTS, LEAST_SHIFT = 20, 0.1  # of the control, and the share of the rows that each is at least
LEAST_ROWS = 10  # that runs must share
BLOCKS, RESAMPLES, LEVEL = 20, 200, 0.95  # of the bootstrap


@dataclass(frozen=True)
class Consistency:
    """How far runs agree, and how far they would by chance.

    Attributes:
        value: Mean agreement over all pairs of runs, from 0 to 1.
        low: Mean lower end of its bootstrap intervals of 95 %.
        high: Mean upper end.
        control: What codes without any relation have: the largest of 20 agreements after one run
            of each pair is shifted in time, by a tenth of the rows or more, its end followed by its
            beginning. The mean over all pairs of runs.
        pairs: The agreement of each pair of runs, an :class:`isolatent.evaluation.Interval`, by
            their numbers.
        metric: How codes are compared: ``"linear_r2"`` or ``"mcc"``.

    Example:
        >>> interval = Interval(0.9, 0.85, 0.95, 0.95)
        >>> str(Consistency(0.9, 0.85, 0.95, 0.02, {(0, 1): interval}, "mcc"))
        'mcc 0.900 [0.850, 0.950], by chance 0.020'
    """

    value: float
    low: float
    high: float
    control: float
    pairs: dict[tuple[int, int], Interval]
    metric: str

    def __str__(self) -> str:
        ends = f"[{self.low:.3f}, {self.high:.3f}]"
        return f"{self.metric} {self.value:.3f} {ends}, by chance {self.control:.3f}"

    def _repr_html_(self) -> str:
        runs = [
            (f"runs {i} and {j}", f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]")
            for (i, j), one in self.pairs.items()
        ]
        by_chance = self.low <= self.control
        lead = "the runs agree no more than by chance" if by_chance else str(self)
        mean = [("mean", str(self))] if by_chance else []
        return card("Consistency", lead, [*mean, *runs], status="no" if by_chance else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        pairs = [{"runs": list(key), **asdict(value)} for key, value in self.pairs.items()]
        return asdict(self) | {"pairs": pairs}


def consistency(
    runs: Sequence[ArrayLike | ContrastiveICA],
    guarantee: Guarantee | None = None,
    *,
    x: ArrayLike | None = None,
    random_state: int = 0,
) -> Consistency:
    """Return how far runs agree, up to the maps that the guarantee leaves open.

    Codes of different runs, animals or sessions are compared by the score of the guarantee: a
    linear map, or one-to-one up to sign and scale. Agreement does not mean that codes are right:
    runs can share a bias. Without any relation it is at its control.

    Rows may be those of a recording, in their order: slow codes agree by chance, as two random
    walks do, and their neighbouring rows are no independent evidence. So the control shifts whole
    runs in time instead of shuffling rows, and the bootstrap draws stretches of a twentieth of the
    rows. What is slower than these, such as one trend over all rows, looks like agreement. For
    independent rows both are as valid as with single rows, and a little less precise. Codes that
    are constant are left out.

    Args:
        runs: Codes (N, n) of two or more runs for the same rows, or fitted models with ``x``.
        guarantee: What is claimed about the codes; by default that of the first model, and an
            affine map for codes.
        x: Observations that the models encode.
        random_state: Seed of the bootstrap and of the shifts of the control, an integer >= 0.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(500, 2))
        >>> result = consistency([z, z @ [[1.0, 2.0], [0.0, 1.0]]])
        >>> round(result.value, 3), result.control < 0.05
        (1.0, True)
    """
    check_integer("random_state", random_state, at_least=0)
    if isinstance(runs, str | Mapping) or not isinstance(runs, Iterable):
        raise TypeError(f"runs must be a sequence of codes or of models, got {type(runs).__name__}")
    runs = list(runs)
    if len(runs) < 2:
        raise ValueError(f"runs must be two or more, got {len(runs)}")
    models = [run for run in runs if isinstance(run, ContrastiveICA)]
    if models and len(models) < len(runs):
        raise TypeError("runs must be all models or all codes, got some of each")
    if models and x is None:
        raise ValueError("x must be given for models: the observations that they encode")
    if not models and x is not None:
        raise ValueError("x must be None for codes: there is no model to encode it")
    if models and guarantee is None:
        guarantee = models[0].guarantee_
    if guarantee is not None and not isinstance(guarantee, Guarantee):
        raise TypeError(f"guarantee must be a Guarantee or None, got {guarantee!r}")
    observed: Any = x
    found: list[Any] = [model.transform(observed) for model in models] if models else runs
    codes = [np.asarray(part, dtype=np.float64) for part in found]
    for k, part in enumerate(codes):
        if part.ndim != 2 or len(part) != len(codes[0]):
            raise ValueError(
                f"runs must be codes (N, n) of the same rows, got {codes[0].shape} for run 0 and "
                f"{part.shape} for run {k}"
            )
        if np.isinf(part).any():
            raise ValueError(
                f"runs must hold numbers, or NaN for rows without codes, got inf in run {k}"
            )
    usable = np.isfinite(np.concatenate(codes, axis=1)).all(axis=1)  # rows with NaN have no codes
    if usable.sum() < LEAST_ROWS:
        raise ValueError(
            f"runs must have at least {LEAST_ROWS} rows without NaN in common, got "
            f"{int(usable.sum())} of {len(codes[0])}"
        )
    codes = [part[usable] for part in codes]
    metric = "linear_r2" if guarantee is None else metric_for(guarantee.metric)
    rng = np.random.default_rng(random_state)
    shifts = _shifts(len(codes[0]), rng)
    pairs, controls = {}, []
    for i, j in combinations(range(len(codes)), 2):
        pairs[i, j] = _compare(codes[i], codes[j], metric, random_state)
        controls.append(
            max(agreement(codes[i], np.roll(codes[j], by, axis=0), metric) for by in shifts)
        )
    values = [*pairs.values()]
    return Consistency(
        fmean(one.value for one in values),
        fmean(one.low for one in values),
        fmean(one.high for one in values),
        fmean(controls),
        pairs,
        metric,
    )


def _shifts(rows: int, rng: np.random.Generator) -> list[int]:
    """Return by how many rows the control shifts: at random, and never nearly to the same place."""
    least = max(1, math.ceil(LEAST_SHIFT * rows))
    allowed = np.arange(least, rows - least + 1)
    if not len(allowed):
        return [0]
    return [int(by) for by in rng.choice(allowed, min(SHIFTS, len(allowed)), replace=False)]


def _compare(
    first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], metric: str, seed: int
) -> Interval:
    """Return the agreement with its interval: of a linear R² the lower of both directions."""
    a, b = varying_columns(first), varying_columns(second)
    if a.shape[1] == 0 or b.shape[1] == 0:
        return Interval(0.0, 0.0, 0.0, LEVEL)
    if metric == "mcc":
        return _interval(mcc, a, b, seed)
    both = [_interval(linear_r2, *codes, seed) for codes in ((a, b), (b, a))]
    return min(both, key=lambda interval: interval.value)


def _interval(
    score: Callable[..., Any], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], seed: int
) -> Interval:
    """Return a score with its bootstrap interval over stretches of rows."""
    return percentile_interval(
        score_statistic(score, a, b, seed, {}),
        confidence_level=LEVEL,
        n_resamples=RESAMPLES,
        random_state=seed,
        block_rows=max(1, len(a) // BLOCKS),
    )
