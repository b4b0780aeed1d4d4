"""Codes brought into the order, sign and scale of the factors, as far as a guarantee allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.assignment import best_assignment
from isolatent.evaluation.columns import Array, as_factors_and_codes, standardise
from isolatent.evaluation.scores import halves, least_squares

__all__ = ["align_codes", "correlation_matrix"]


def align_codes(
    z: ArrayLike, h: ArrayLike, *, one_by_one: bool, seed: int = 0
) -> tuple[Array, Array]:
    r"""Factors, and beside each of them what was recovered of it.

    Args:
        z: True factors, (N, F) or (N,).
        h: Codes, (N, C) or (N,).
        one_by_one: Whether each factor gets one code of its own, by the assignment of
            :func:`mcc`, with the sign that correlates; a factor without one gets zeros. Otherwise
            it gets the affine map of all codes that :func:`linear_r2` fits.
        seed: Chooses the half of the rows that the affine map is fitted on; the other is returned.

    Returns:
        Factors and aligned codes, (M, F) both.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(100, 2))
        >>> factors, codes = align_codes(z, -2 * z[:, ::-1], one_by_one=True)
        >>> np.allclose(codes, 2 * z)
        True
    """
    factors, codes = as_factors_and_codes(z, h)
    if not one_by_one:
        fitted, shown = halves(len(codes), True, seed, fit_rows=codes.shape[1] + 2)
        return factors[shown], least_squares(codes[fitted], factors[fitted], codes[shown])
    correlation = standardise(factors).T @ standardise(codes)
    matched, code_of = best_assignment(np.abs(correlation))
    sign = np.where(correlation[matched, code_of] < 0, -1.0, 1.0)
    aligned = np.zeros_like(factors)
    aligned[:, matched] = sign * codes[:, code_of]
    return factors, aligned


def correlation_matrix(z: ArrayLike, h: ArrayLike) -> Array:
    """|corr| of each factor (rows) with each code (columns); 0 for a constant code.

    Example:
        >>> z = np.array([[0.0, 1.0], [1.0, -1.0], [2.0, 1.0]])
        >>> correlation_matrix(z, -z).round(3)
        array([[1., 0.],
               [0., 1.]])
    """
    factors, codes = map(standardise, as_factors_and_codes(z, h))
    return np.abs(np.clip(factors.T @ codes / len(codes), -1.0, 1.0))
