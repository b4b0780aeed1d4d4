"""Linear R²: how well an affine map of the codes predicts the factors."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_integer
from isolatent.evaluation.columns import (
    Array,
    Indices,
    as_factors_and_codes,
    standardise,
    weighted_deviations,
)

__all__ = ["linear_r2"]


@overload
def linear_r2(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    held_out: bool = ...,
    per_factor: Literal[False] = ...,
    random_state: int = ...,
) -> float: ...
@overload
def linear_r2(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    held_out: bool = ...,
    per_factor: Literal[True],
    random_state: int = ...,
) -> Array: ...
def linear_r2(
    factors: ArrayLike,
    codes: ArrayLike,
    *,
    held_out: bool = True,
    per_factor: bool = False,
    random_state: int = 0,
) -> float | Array:
    r"""Return R² of the best affine map from codes to true factors, averaged over the factors.

    .. math::
        R^2 = \frac{1}{F} \sum_{f=1}^{F} \left( 1 -
            \frac{\sum_i (z_{if} - a_f^\top h_i - b_f)^2}{\sum_i (z_{if} - \bar z_f)^2} \right)

    where z are the factors, h the codes and (a, b) the ordinary least-squares fit. By default the
    map is fitted on a random half of the rows, N // 2 of them, and the sums run over the other
    half. So 1 means recovery up to an invertible affine map, 0 means no better than predicting the
    mean, and a held-out score can be slightly negative. Collinear codes use the least-squares fit
    of minimum norm, which predicts the same; dead (constant) codes are ignored.

    References:
        Zimmermann et al. (2021), Contrastive Learning Inverts the Data Generating Process, ICML.

    Args:
        factors: True factors z, (N, F) or (N,).
        codes: Codes h, (N, C) or (N,). A fit needs at least C + 2 rows, since any C + 1 rows are
            fitted without error; a held-out score needs twice as many.
        held_out: Whether to score rows that were not used for fitting.
        per_factor: Whether to return the F values instead of their mean.
        random_state: Seed of the split into halves, an integer >= 0.

    Returns:
        The mean over factors as a float, or an array of F values.

    Example:
        >>> from isolatent.evaluation import mcc
        >>> rng = np.random.default_rng(0)
        >>> z = rng.normal(size=(1000, 2))
        >>> mixed = z @ [[1.0, 2.0], [0.5, -1.0]] + 3.0
        >>> round(linear_r2(z, mixed), 3), round(mcc(z, mixed), 3)
        (1.0, 0.674)
    """
    truth, residuals = linear_residuals(
        factors, codes, held_out=held_out, random_state=random_state
    )
    scores = r2_from_residuals(truth, residuals, np.ones(len(truth)))
    return scores if per_factor else float(scores.mean())


def linear_residuals(
    factors: ArrayLike, codes: ArrayLike, *, held_out: bool = True, random_state: int
) -> tuple[Array, Array]:
    """Return the factors of the scored rows and the residuals of their linear predictions."""
    z, h = map(standardise, as_factors_and_codes(factors, codes))
    fitted, scored = split_rows(len(h), held_out, random_state, min_rows=h.shape[1] + 2)
    truth = scored_factors(z, scored)
    return truth, truth - predict_linear(h[fitted], z[fitted], h[scored])


def split_rows(
    n_rows: int, held_out: bool, random_state: int, *, min_rows: int
) -> tuple[Indices, Indices]:
    """Return the rows to fit and the rows to score; all rows for both if not ``held_out``."""
    check_integer("random_state", random_state, at_least=0)
    needed = 2 * min_rows if held_out else min_rows
    if n_rows < needed:
        raise ValueError(
            f"factors and codes must have at least {needed} rows for these codes with "
            f"held_out={held_out}, got {n_rows}; fewer rows are always fitted without error"
        )
    if not held_out:
        return np.arange(n_rows), np.arange(n_rows)
    order = np.random.default_rng(random_state).permutation(n_rows)
    return np.sort(order[: n_rows // 2]), np.sort(order[n_rows // 2 :])


def scored_factors(factors: Array, scored: Indices) -> Array:
    """Return the factors of the scored rows; raise an error if one is constant there."""
    truth = factors[scored]
    constant = np.flatnonzero(weighted_deviations(truth, np.ones(len(truth)))[1] == 0)
    if len(constant):
        raise ValueError(
            f"factors must vary in the held-out half, got column {constant[0]} constant there; it "
            "varies too rarely for this many rows: pass more rows, another random_state, or "
            "held_out=False"
        )
    return truth


def predict_linear(codes: Array, factors: Array, new_codes: Array) -> Array:
    """Return the factors predicted from ``new_codes`` by the affine fit to ``codes, factors``."""
    code_mean, factor_mean = codes.mean(axis=0), factors.mean(axis=0)
    weights = np.linalg.lstsq(codes - code_mean, factors - factor_mean, rcond=None)[0]
    return np.asarray(factor_mean + (new_codes - code_mean) @ weights)


def r2_from_residuals(truth: Array, residuals: Array, counts: Array) -> Array:
    """Return R² per factor for row weights ``counts``; nan for a factor constant under them."""
    total = weighted_deviations(truth, counts)[1]
    return np.asarray(1.0 - counts @ np.square(residuals) / np.where(total > 0, total, np.nan))
