"""Bootstrap confidence intervals of the scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_integer, check_real
from isolatent.evaluation.blocks import block_mcc, block_r2, block_residuals, canonical_variates
from isolatent.evaluation.columns import Array, dense_ranks, mid_ranks, weighted_deviations
from isolatent.evaluation.linear import (
    linear_r2,
    linear_residuals,
    r2_from_residuals,
    split_rows,
)
from isolatent.evaluation.mcc import matched_columns, mcc

__all__ = ["Interval", "Statistic", "bootstrap"]


@dataclass(frozen=True)
class Interval:
    """A score with its confidence interval [low, high].

    Args:
        value: Score of the whole sample.
        low: Lower end.
        high: Upper end.
        confidence_level: Confidence level, for example 0.95.

    Example:
        >>> print(Interval(0.98712, 0.98513, 0.98921, confidence_level=0.95))
        0.987 [0.985, 0.989]
        >>> print(Interval(0.999976, 0.999971, 0.999981, confidence_level=0.95))
        0.999976 [0.999971, 0.999981]
    """

    value: float
    low: float
    high: float
    confidence_level: float

    def __str__(self) -> str:
        """Return the interval with three decimals, or up to six if the ends agree in fewer."""
        half_width = (self.high - self.low) / 2
        decimals = min(max(3, math.ceil(-math.log10(half_width))), 6) if half_width > 0 else 3
        return f"{self.value:.{decimals}f} [{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


class Statistic(NamedTuple):
    """A score as a function of row weights, as the bootstrap needs it.

    Attributes:
        value: Score of the sample.
        n_rows: Number of rows that are resampled.
        weighted: Map from row weights (n_rows,), the counts of a resample, to the score. Fits and
            assignments stay those of the sample.
    """

    value: float
    n_rows: int
    weighted: Callable[[Array], float]


def bootstrap(
    score: Callable[..., Any],
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    confidence_level: float = 0.95,
    n_resamples: int = 200,
    random_state: int = 0,
    block_rows: int = 1,
    groups: ArrayLike | None = None,
    **options: Any,
) -> Interval:
    r"""Return a score with its percentile bootstrap interval over the rows.

    .. math::
        [\,q_{(1 - \alpha)/2},\; q_{(1 + \alpha)/2}\,]
        \quad\text{of}\quad \mathrm{score}(n^{(1)}), …, \mathrm{score}(n^{(B)})

    where α is the confidence level, B the number of resamples, and row i has weight n_i,
    n ~ Multinomial(N; 1/N, …, 1/N). Whatever the score maximises over (the least-squares fit, the
    assignment of codes, the canonical directions) stays as chosen on the whole sample. At an
    optimum a small change of the choice changes the score only to second order, so the interval is
    right to first order; refitting would reward each resample for its repeated rows and shift the
    interval above the score. A held-out R² resamples only the scored rows, so that no row is both
    fitted and scored: the interval is for the score of *this* fit on new rows.

    The interval covers the sampling of rows, not retraining, and does not remove the bias of a
    score: without any relation the mcc of a finite sample is above 0, and so is its interval. A
    factor that is constant in a resample is left out of the mean of that resample.

    Rows must be independent; for neighbouring rows of a recording the interval is too narrow.
    ``block_rows`` draws stretches of rows instead, which should be longer than rows are alike, and
    ``groups`` whole sessions, which should be 20 or more.

    References:
        Efron & Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
        Politis & Romano (1992), A Circular Block-Resampling Procedure for Stationary Data.

    Args:
        score: ``linear_r2``, ``mcc``, ``block_r2`` or ``block_mcc``.
        factors: True factors, (N, F) or (N,).
        codes: Codes, (N, C) or (N,).
        confidence_level: Confidence level, in (0, 1).
        n_resamples: Number of resamples, at least 2.
        random_state: Seed of the resampling, and of the split of a held-out score; an integer
            >= 0.
        block_rows: For a recording: consecutive rows that are drawn together, the first row
            following the last; a twentieth of the rows is a choice that suits most. 1 draws single
            rows.
        groups: For several sessions or animals: the id of each row, (N,). Whole groups are drawn.
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
    confidence_level = check_real("confidence_level", confidence_level, above=0, below=1)
    check_integer("n_resamples", n_resamples, at_least=2)
    check_integer("random_state", random_state, at_least=0)
    rows = len(np.asarray(factors))
    check_integer("block_rows", block_rows, at_least=1)
    if block_rows >= max(rows, 2):
        raise ValueError(
            f"block_rows must be less than the number of rows, {rows}, got {block_rows}"
        )
    members = None if groups is None else _check_groups(groups, rows, block_rows)
    statistic = score_statistic(score, factors, codes, random_state, options)
    if statistic.n_rows < rows:  # the others are fitted
        held_out = split_rows(rows, True, random_state, min_rows=1)[1]
        members = None if members is None else members[held_out]
        block_rows = max(1, round(block_rows * statistic.n_rows / rows))
    return percentile_interval(
        statistic,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        random_state=random_state,
        block_rows=block_rows,
        groups=members,
    )


def _check_groups(groups: ArrayLike, rows: int, block_rows: int) -> Array:
    """Return the number of the group of each row."""
    ids = np.asarray(groups)
    if ids.shape != (rows,):
        raise ValueError(f"groups must hold one id for each of the {rows} rows, got {ids.shape}")
    if block_rows > 1:
        raise ValueError(
            f"block_rows must be 1 with groups, which are drawn whole, got {block_rows}"
        )
    members = np.unique(ids, return_inverse=True)[1]
    if members.max() < 1:
        raise ValueError("groups must hold two or more ids, got one")
    return np.asarray(members)


def percentile_interval(
    statistic: Statistic,
    *,
    confidence_level: float,
    n_resamples: int,
    random_state: int,
    block_rows: int = 1,
    groups: Array | None = None,
) -> Interval:
    """Return the statistic with its percentile interval, as defined in :func:`bootstrap`.

    With ``block_rows`` above 1, stretches of so many rows are drawn instead of single ones, the
    first following the last: for rows that are alike when they are near each other. With
    ``groups``, the number of the group of each row, whole groups are drawn.
    """
    # Splits use `random_state` itself; the resamples must be independent of them.
    rng = np.random.default_rng([random_state, 1])
    rows = statistic.n_rows
    within = np.arange(block_rows)

    def counts() -> Array:
        if groups is not None:
            n_groups = int(groups.max()) + 1
            drawn = rng.integers(n_groups, size=n_groups)
            return np.bincount(drawn, minlength=n_groups).astype(np.float64)[groups]
        starts = rng.integers(rows, size=-(-rows // block_rows))
        drawn = (starts[:, None] + within).ravel() % rows
        return np.bincount(drawn, minlength=rows).astype(np.float64)

    scores = [statistic.weighted(counts()) for _ in range(n_resamples)]
    if np.isnan(scores).all():
        raise ValueError("factors must vary in resamples of the rows, got none in which they do")
    # Weibull quantiles: the expected share of resamples below q_p is p for any number of them.
    ends = (1 - confidence_level) / 2, (1 + confidence_level) / 2
    low, high = np.nanquantile(scores, ends, method="weibull")
    return Interval(statistic.value, float(low), float(high), confidence_level)


def score_statistic(
    score: Callable[..., Any],
    factors: ArrayLike,
    codes: ArrayLike,
    random_state: int,
    options: dict[str, Any],
) -> Statistic:
    """Return one of the four scores of :func:`bootstrap` as a function of row weights."""
    if several := options.keys() & {"per_factor", "per_block"}:
        raise ValueError(f"{min(several)} must be left out: an interval is of one number")
    if score in (linear_r2, block_r2):
        value = score(factors, codes, random_state=random_state, **options)
        residuals_of = linear_residuals if score is linear_r2 else block_residuals
        left, residuals = residuals_of(factors, codes, random_state=random_state, **options)
        weights = np.full(left.shape[1], 1 / left.shape[1])

        def scores(n: Array) -> Array:
            return r2_from_residuals(left, residuals, n)

    elif score in (mcc, block_mcc):
        value = score(factors, codes, **options)
        pairs_of = matched_columns if score is mcc else canonical_variates
        # A guarantee only makes `score` warn; it changes no number.
        rest = {name: option for name, option in options.items() if name != "guarantee"}
        left, right, weights = pairs_of(factors, codes, **rest)
        spearman = options.get("method") == "spearman"
        ranks = [dense_ranks(columns) for columns in (left, right)] if spearman else []

        def scores(n: Array) -> Array:
            u, v = (mid_ranks(dense, n) for dense in ranks) if spearman else (left, right)
            return weighted_correlations(u, v, n)

    else:
        raise ValueError(
            "score must be one of linear_r2, mcc, block_r2, block_mcc, with its options as "
            f"keywords, got {score!r}"
        )
    return Statistic(value, len(left), lambda n: nan_average(scores(n), weights))


def mean_statistic(values: ArrayLike) -> Statistic:
    """Return the mean of values (..., N) as a function of the weights of the N points."""
    terms = np.asarray(values, dtype=np.float64)
    return Statistic(
        float(terms.mean()), terms.shape[-1], lambda n: float((terms @ n).mean() / n.sum())
    )


def weighted_correlations(left: Array, right: Array, counts: Array) -> Array:
    """Return corr(left_j, right_j) for row weights ``counts``.

    A code (right) that is constant under the weights has correlation 0, a factor (left) nan.
    """
    left, left_squares = weighted_deviations(left, counts)
    right, right_squares = weighted_deviations(right, counts)
    squares = np.where(left_squares > 0, left_squares, np.nan)
    squares = squares * np.where(right_squares > 0, right_squares, np.inf)
    return np.asarray(counts @ (left * right) / np.sqrt(squares))


def nan_average(scores: Array, weights: Array) -> float:
    """Return Σ weight · score over the defined scores, their weights rescaled to the same sum."""
    defined = ~np.isnan(scores)
    share = weights[defined].sum() / weights.sum() if len(weights) else 1.0
    return float(weights[defined] @ scores[defined] / share) if share > 0 else math.nan
