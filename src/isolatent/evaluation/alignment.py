"""Align codes with factors in order, sign and scale, as far as a guarantee allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.columns import Array, as_factors_and_codes, standardise
from isolatent.evaluation.linear import predict_linear, split_rows
from isolatent.evaluation.mcc import best_assignment

__all__ = ["align_codes"]


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
