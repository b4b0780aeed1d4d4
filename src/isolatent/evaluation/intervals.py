"""Bootstrap confidence intervals of the scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_integer, check_real
from isolatent.evaluation.blocks import block_errors, block_mcc, block_pairs, block_r2
from isolatent.evaluation.columns import Array, dense_ranks, mid_ranks, spread
from isolatent.evaluation.scores import linear_errors, linear_r2, matched_pairs, mcc, r2_of_errors

__all__ = ["Interval", "bootstrap"]


@dataclass(frozen=True)
class Interval:
    """A value with the confidence interval [low, high] around it.

    Args:
        value: The score of the whole sample.
        low: Lower end.
        high: Upper end.
        level: The confidence level, for example 0.95.

    Example:
        >>> print(Interval(0.98712, 0.98513, 0.98921, level=0.95))
        0.987 [0.985, 0.989]
        >>> print(Interval(0.999976, 0.999971, 0.999981, level=0.95))
        0.999976 [0.999971, 0.999981]
    """

    value: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        """Three decimals, or as many (up to six) as it takes to tell the ends apart."""
        half_width = (self.high - self.low) / 2
        decimals = min(max(3, math.ceil(-math.log10(half_width))), 6) if half_width > 0 else 3
        return f"{self.value:.{decimals}f} [{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


class Resampled(NamedTuple):
    """A score, and what it would be if each of its rows had occurred another number of times.

    Attributes:
        value: The score of the sample.
        rows: How many rows can be resampled.
        of_counts: From counts (rows,) to the score, with every choice and fit as it was made.
    """

    value: float
    rows: int
    of_counts: Callable[[Array], float]


def bootstrap(
    score: Callable[..., Any],
    z: ArrayLike,
    h: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
    **options: Any,
) -> Interval:
    r"""Percentile bootstrap interval of a score over the rows.

    .. math::
        [\,q_{(1 - \mathrm{level})/2},\; q_{(1 + \mathrm{level})/2}\,]
        \quad\text{of}\quad \mathrm{score}(n^{(1)}), …, \mathrm{score}(n^{(\mathrm{resamples})})

    where row i counts n_i times, n ~ Multinomial(N; 1/N, …, 1/N). What the score chose to be as
    high as possible (the least-squares fit, the assignment of codes, the canonical directions)
    stays as chosen on the whole sample. Being optimal, a small change in it changes the score only
    to second order, so this is right to first order; refitting instead would reward each resample
    for its repeated rows and push the interval above the score. A held-out R² resamples only the
    rows that are scored, so that no row is ever both fitted and scored: the interval is for the
    score of *this* fit on new rows.

    The interval is about the sampling of rows alone, not about retraining, and does not remove a
    score's own bias: where there is no relation at all, the mcc of a finite sample is above 0, and
    so is its interval. Rows must be independent; for neighbouring moments of a time series it is
    too narrow. A factor that is constant in a resample is left out of that resample's mean.

    References:
        Efron & Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.

    Args:
        score: ``linear_r2``, ``mcc``, ``block_r2`` or ``block_mcc``.
        z: True factors, (N, F) or (N,).
        h: Codes, (N, C) or (N,).
        level: Confidence level, in (0, 1).
        resamples: How many resamples to draw.
        seed: Seed of the resampling, and of the score's halves where it has any.
        **options: Further keywords of the score, such as ``method="spearman"`` or ``blocks=…``.

    Returns:
        The score of the sample, exactly as ``score`` returns it, and its interval.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> z = rng.normal(size=(2000, 3))
        >>> h = z + 0.1 * rng.normal(size=z.shape)
        >>> print(bootstrap(mcc, z, h))
        0.9950 [0.9947, 0.9952]
    """
    level = check_real("level", level, above=0, below=1)
    check_integer("resamples", resamples, at_least=2)
    check_integer("seed", seed, at_least=0)
    return percentile_interval(
        Resampled(*resampled(score, z, h, seed, options)),
        level=level,
        resamples=resamples,
        seed=seed,
    )


def percentile_interval(score: Resampled, *, level: float, resamples: int, seed: int) -> Interval:
    """Return the score with the percentile interval of :func:`bootstrap` around it."""
    # Halves are drawn from `seed` itself; the resamples must not follow from the same numbers.
    rng = np.random.default_rng([seed, 1])
    rows = score.rows
    scores = [
        score.of_counts(
            np.bincount(rng.integers(rows, size=rows), minlength=rows).astype(np.float64)
        )
        for _ in range(resamples)
    ]
    if np.isnan(scores).all():
        raise ValueError("z must vary in resamples of its rows, got none in which it does")
    # Weibull's quantiles: a share p of new resamples is expected below q_p, however few were drawn.
    ends = (1 - level) / 2, (1 + level) / 2
    low, high = np.nanquantile(scores, ends, method="weibull")
    return Interval(score.value, float(low), float(high), level)


def resampled(
    score: Callable[..., Any], z: ArrayLike, h: ArrayLike, seed: int, options: dict[str, Any]
) -> tuple[float, int, Callable[[Array], float]]:
    """Return the score, how many rows there are to resample, and the score given their counts."""
    if several := options.keys() & {"per_factor", "per_block"}:
        raise ValueError(f"{min(several)} must be left out: an interval is of one number")
    if score is linear_r2 or score is block_r2:
        value = score(z, h, seed=seed, **options)
        errors_of = linear_errors if score is linear_r2 else block_errors
        truth, error = errors_of(z, h, seed=seed, **options)
        weights = np.full(truth.shape[1], 1 / truth.shape[1])
        return value, len(truth), lambda n: average(r2_of_errors(truth, error, n), weights)
    if score is mcc or score is block_mcc:
        value = score(z, h, **options)
        pairs_of = matched_pairs if score is mcc else block_pairs
        # A guarantee is warned of by the score, and changes no figure.
        chosen = {name: value for name, value in options.items() if name != "guarantee"}
        left, right, weights = pairs_of(z, h, **chosen)
        if options.get("method") != "spearman":
            return value, len(left), lambda n: average(correlations(left, right, n), weights)
        u, v = dense_ranks(left), dense_ranks(right)
        return (
            value,
            len(left),
            lambda n: average(correlations(mid_ranks(u, n), mid_ranks(v, n), n), weights),
        )
    raise ValueError(
        "score must be one of linear_r2, mcc, block_r2, block_mcc, with its options as keywords, "
        f"got {score!r}"
    )


def correlations(left: Array, right: Array, counts: Array) -> Array:
    """Return corr(left_j, right_j) when row i occurs ``counts[i]`` times.

    In a resample, a constant code (right) has correlation 0, a constant factor (left) nan.
    """
    left, left_squares = spread(left, counts)
    right, right_squares = spread(right, counts)
    squares = np.where(left_squares > 0, left_squares, np.nan)
    squares = squares * np.where(right_squares > 0, right_squares, np.inf)
    return np.asarray(counts @ (left * right) / np.sqrt(squares))


def average(scores: Array, weights: Array) -> float:
    """Return Σ weight · score, the weights of undefined (nan) scores going to the defined ones."""
    defined = ~np.isnan(scores)
    share = weights[defined].sum() / weights.sum() if len(weights) else 1.0
    return float(weights[defined] @ scores[defined] / share) if share > 0 else math.nan
