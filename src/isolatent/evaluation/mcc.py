"""Match codes with factors: the mean correlation coefficient, and codes aligned with factors."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_one_of
from isolatent.evaluation.columns import (
    Array,
    Indices,
    as_factors_and_codes,
    dense_ranks,
    mid_ranks,
    standardise,
)
from isolatent.evaluation.linear import predict_linear, split_rows
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["align_codes", "best_assignment", "correlation_matrix", "mcc"]


@overload
def mcc(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    method: Literal["pearson", "spearman"] = ...,
    per_factor: Literal[False] = ...,
    guarantee: Guarantee | None = ...,
) -> float: ...
@overload
def mcc(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    method: Literal["pearson", "spearman"] = ...,
    per_factor: Literal[True],
    guarantee: Guarantee | None = ...,
) -> Array: ...
def mcc(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    method: Literal["pearson", "spearman"] = "pearson",
    per_factor: bool = False,
    guarantee: Guarantee | None = None,
) -> float | Array:
    r"""Return the mean correlation coefficient under the best one-to-one assignment of codes.

    .. math::
        \mathrm{MCC} = \frac{1}{F} \max_\pi \sum_{f=1}^{F} |\mathrm{corr}(z_f, h_{\pi(f)})|

    over one-to-one assignments π of codes h to factors z. With more codes than factors the surplus
    codes stay unassigned at no cost; with fewer, factors without a code count 0. Invariant to the
    order, the sign and the scale of the codes, and with ``"spearman"`` to any strictly monotone map
    of each. A dead (constant) code has correlation 0 with every factor.

    References:
        Hyvärinen & Morioka (2016), Unsupervised Feature Extraction by Time-Contrastive Learning
        and Nonlinear ICA, NeurIPS.

    Args:
        factors: True factors z, (N, F) or (N,).
        codes: Codes h, (N, C) or (N,).
        method: ``"pearson"``, or ``"spearman"`` for the correlation of ranks (mean ranks of ties).
        per_factor: Whether to return the F values instead of their mean.
        guarantee: The guarantee proven for the codes; warn if the score is not invariant to what
            it leaves open.

    Returns:
        The mean over factors as a float, or an array of F values.

    Example:
        >>> z = np.array([[0.0, 3.0], [1.0, 1.0], [2.0, 4.0], [3.0, 1.0], [4.0, 5.0]])
        >>> round(mcc(z, -z[:, ::-1]), 6)
        1.0
        >>> mcc(z, np.exp(z[:, :1]), method="spearman", per_factor=True)
        array([1., 0.])
    """
    z, h = standardised_columns(factors, codes, method)
    check_guarantee(f"mcc_{method}", guarantee)
    correlation = np.abs(np.clip(z.T @ h / len(h), -1.0, 1.0))
    matched, code_of = best_assignment(correlation)
    scores = np.zeros(z.shape[1])
    scores[matched] = correlation[matched, code_of]
    return scores if per_factor else float(scores.mean())


def align_codes(
    factors: ArrayLike, codes: ArrayLike, *, one_by_one: bool, random_state: int = 0
) -> tuple[Array, Array]:
    r"""Return factors and, in the same order, the codes that recover them.

    Args:
        factors: True factors, (N, F) or (N,).
        codes: Codes, (N, C) or (N,).
        one_by_one: Whether to give each factor one code by the assignment of :func:`mcc`, with the
            sign of their correlation; a factor without a code gets zeros. Otherwise each factor
            gets the affine map of all codes that :func:`linear_r2` fits.
        random_state: Seed of the half of the rows that the affine map is fitted on, an integer
            >= 0; the other half is returned.

    Returns:
        Factors and aligned codes, both (M, F).

    Example:
        >>> z = np.random.default_rng(0).normal(size=(100, 2))
        >>> factors, codes = align_codes(z, -2 * z[:, ::-1], one_by_one=True)
        >>> np.allclose(codes, 2 * z)
        True
    """
    z, h = as_factors_and_codes(factors, codes)
    if not one_by_one:
        fitted, rest = split_rows(len(h), True, random_state, min_rows=h.shape[1] + 2)
        return z[rest], predict_linear(h[fitted], z[fitted], h[rest])
    correlation = standardise(z).T @ standardise(h)
    matched, code_of = best_assignment(np.abs(correlation))
    sign = np.where(correlation[matched, code_of] < 0, -1.0, 1.0)
    aligned = np.zeros_like(z)
    aligned[:, matched] = sign * h[:, code_of]
    return z, aligned


def correlation_matrix(factors: ArrayLike, codes: ArrayLike) -> Array:
    """Return |corr| of each factor (rows) with each code (columns); 0 for a constant code.

    Example:
        >>> z = np.array([[0.0, 1.0], [1.0, -1.0], [2.0, 1.0]])
        >>> correlation_matrix(z, -z).round(3)
        array([[1., 0.],
               [0., 1.]])
    """
    z, h = map(standardise, as_factors_and_codes(factors, codes))
    return np.abs(np.clip(z.T @ h / len(h), -1.0, 1.0))


def best_assignment(gain: Array) -> tuple[Indices, Indices]:
    """Return the rows and the columns of the one-to-one assignment of the largest total gain."""
    from scipy.optimize import linear_sum_assignment  # half a second to import

    rows, columns = linear_sum_assignment(gain, maximize=True)
    return rows, columns


def standardised_columns(factors: ArrayLike, codes: ArrayLike, method: str) -> tuple[Array, Array]:
    """Return standardised factors and codes (their ranks for ``"spearman"``).

    Their inner products, divided by the number of rows, are the correlations of ``method``.
    """
    z, h = as_factors_and_codes(factors, codes)
    check_one_of("method", method, ["pearson", "spearman"])
    if len(h) < 3:
        raise ValueError(
            f"factors and codes must have at least 3 rows for a correlation, got {len(h)}"
        )
    if method == "spearman":
        ones = np.ones(len(h))
        z = mid_ranks(dense_ranks(z), ones)
        h = mid_ranks(dense_ranks(h), ones)
    return standardise(z), standardise(h)


def matched_columns(
    factors: ArrayLike, codes: ArrayLike, *, method: str = "pearson"
) -> tuple[Array, Array, Array]:
    """Return matched factors, their codes and weights: ``mcc`` is Σ weight · corr(pair)."""
    z, h = standardised_columns(factors, codes, method)
    correlation = z.T @ h
    pair = matched, code_of = best_assignment(np.abs(correlation))
    signed = np.where(correlation[pair] < 0, -h[:, code_of], h[:, code_of])
    return z[:, matched], signed, np.full(len(matched), 1 / z.shape[1])
