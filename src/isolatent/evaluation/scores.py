"""How well codes recover known factors: up to a linear map (R²), or one by one (MCC)."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.checks import check_integer, check_one_of
from isolatent.evaluation.assignment import best_assignment
from isolatent.evaluation.columns import (
    Array,
    as_factors_and_codes,
    dense_ranks,
    mid_ranks,
    spread,
    standardise,
)
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import check_guarantee

__all__ = ["linear_r2", "mcc"]


@overload
def linear_r2(
    z: ArrayLike,
    h: ArrayLike,
    *,
    held_out: bool = ...,
    per_factor: Literal[False] = ...,
    seed: int = ...,
) -> float: ...
@overload
def linear_r2(
    z: ArrayLike, h: ArrayLike, *, held_out: bool = ..., per_factor: Literal[True], seed: int = ...
) -> Array: ...
def linear_r2(
    z: ArrayLike, h: ArrayLike, *, held_out: bool = True, per_factor: bool = False, seed: int = 0
) -> float | Array:
    r"""R² of the best affine map from codes to true factors, averaged over the factors.

    .. math::
        R^2 = \frac{1}{F} \sum_{f=1}^{F} \left( 1 -
            \frac{\sum_i (z_{if} - a_f^\top h_i - b_f)^2}{\sum_i (z_{if} - \bar z_f)^2} \right)

    where (a, b) is the ordinary least-squares fit. By default it is fitted on a random half of
    the rows, N // 2 of them, and the sums run over the other half. So 1 means recovery up to an
    invertible affine map, 0 means no better than predicting the mean, and a held-out score can be
    slightly negative. Collinear codes take the least-squares fit of minimum norm, which
    predicts the same; dead (constant) codes are ignored.

    References:
        Zimmermann et al. (2021), Contrastive Learning Inverts the Data Generating Process, ICML.

    Args:
        z: True factors, (N, F) or (N,).
        h: Codes, (N, C) or (N,). A fit needs at least C + 2 rows, since C + 1 are fitted without
            error whatever they are; a held-out score needs twice as many.
        held_out: Whether to score rows that were not fitted.
        per_factor: Whether to return the F values instead of their mean.
        seed: Chooses the halves; the same seed gives the same halves.

    Returns:
        The mean over factors as a float, or an array of F values.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> z = rng.normal(size=(1000, 2))
        >>> mixed = z @ [[1.0, 2.0], [0.5, -1.0]] + 3.0
        >>> round(linear_r2(z, mixed), 3), round(mcc(z, mixed), 3)
        (1.0, 0.674)
    """
    truth, error = linear_errors(z, h, held_out=held_out, seed=seed)
    scores = r2_of_errors(truth, error, np.ones(len(truth)))
    return scores if per_factor else float(scores.mean())


@overload
def mcc(
    z: ArrayLike,
    h: ArrayLike,
    *,
    method: Literal["pearson", "spearman"] = ...,
    per_factor: Literal[False] = ...,
    guarantee: Guarantee | None = ...,
) -> float: ...
@overload
def mcc(
    z: ArrayLike,
    h: ArrayLike,
    *,
    method: Literal["pearson", "spearman"] = ...,
    per_factor: Literal[True],
    guarantee: Guarantee | None = ...,
) -> Array: ...
def mcc(
    z: ArrayLike,
    h: ArrayLike,
    *,
    method: Literal["pearson", "spearman"] = "pearson",
    per_factor: bool = False,
    guarantee: Guarantee | None = None,
) -> float | Array:
    r"""Mean correlation coefficient: each factor with its own code, matched in the best way.

    .. math::
        \mathrm{MCC} = \frac{1}{F} \max_\pi \sum_{f=1}^{F} |\mathrm{corr}(z_f, h_{\pi(f)})|

    over one-to-one assignments π. With more codes than factors the surplus codes stay unmatched
    at no cost; with fewer, the factors left without a code count 0. Invariant to the order, the
    sign and the scale of the codes, and with ``"spearman"`` to any strictly monotone map of each.
    A dead (constant) code has correlation 0 with everything.

    References:
        Hyvärinen & Morioka (2016), Unsupervised Feature Extraction by Time-Contrastive Learning
        and Nonlinear ICA, NeurIPS.

    Args:
        z: True factors, (N, F) or (N,).
        h: Codes, (N, C) or (N,).
        method: ``"pearson"``, or ``"spearman"`` for the correlation of ranks (ties share theirs).
        per_factor: Whether to return the F values instead of their mean.
        guarantee: What is proven about the codes; a warning is given where it does not suffice.

    Returns:
        The mean over factors as a float, or an array of F values.

    Example:
        >>> z = np.array([[0.0, 3.0], [1.0, 1.0], [2.0, 4.0], [3.0, 1.0], [4.0, 5.0]])
        >>> round(mcc(z, -z[:, ::-1]), 6)
        1.0
        >>> mcc(z, np.exp(z[:, :1]), method="spearman", per_factor=True)
        array([1., 0.])
    """
    check_one_of("method", method, ["pearson", "spearman"])
    check_guarantee(f"mcc_{method}", guarantee)
    factors, codes = correlated_columns(z, h, method)
    correlation = np.abs(np.clip(factors.T @ codes / len(codes), -1.0, 1.0))
    matched, code_of = best_assignment(correlation)
    scores = np.zeros(factors.shape[1])
    scores[matched] = correlation[matched, code_of]
    return scores if per_factor else float(scores.mean())


def linear_errors(
    z: ArrayLike, h: ArrayLike, *, held_out: bool = True, seed: int
) -> tuple[Array, Array]:
    """Return the factors of the scored rows and the errors of their linear predictions."""
    factors, codes = map(standardise, as_factors_and_codes(z, h))
    fitted, scored = halves(len(codes), held_out, seed, fit_rows=codes.shape[1] + 2)
    truth = scored_factors(factors, scored)
    return truth, truth - least_squares(codes[fitted], factors[fitted], codes[scored])


def halves(
    rows: int, held_out: bool, seed: int, *, fit_rows: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows to fit and the rows to score; all of them twice if not ``held_out``."""
    check_integer("seed", seed, at_least=0)
    needed = 2 * fit_rows if held_out else fit_rows
    if rows < needed:
        raise ValueError(
            f"z and h must have at least {needed} rows for these codes with held_out={held_out}, "
            f"got {rows}; fewer can be fitted exactly whatever they are"
        )
    if not held_out:
        return np.arange(rows), np.arange(rows)
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[: rows // 2]), np.sort(order[rows // 2 :])


def scored_factors(factors: Array, scored: npt.NDArray[np.intp]) -> Array:
    """Return the factors of the scored rows, refusing one that is constant there."""
    truth = factors[scored]
    constant = np.flatnonzero(spread(truth, np.ones(len(truth)))[1] == 0)
    if len(constant):
        raise ValueError(
            f"z must vary in the held-out half, got column {constant[0]} constant there; it varies "
            "too rarely for this many rows: give more, another seed, or held_out=False"
        )
    return truth


def least_squares(codes: Array, factors: Array, new_codes: Array) -> Array:
    """Return the factors predicted from ``new_codes`` by the affine fit to ``codes, factors``."""
    code_mean, factor_mean = codes.mean(axis=0), factors.mean(axis=0)
    weights = np.linalg.lstsq(codes - code_mean, factors - factor_mean, rcond=None)[0]
    return np.asarray(factor_mean + (new_codes - code_mean) @ weights)


def r2_of_errors(truth: Array, error: Array, counts: Array) -> Array:
    """R² per factor when row i occurs ``counts[i]`` times; nan for a factor constant in them."""
    total = spread(truth, counts)[1]
    return np.asarray(1.0 - counts @ np.square(error) / np.where(total > 0, total, np.nan))


def correlated_columns(z: ArrayLike, h: ArrayLike, method: str) -> tuple[Array, Array]:
    """Return standardised factors and codes whose products are the asked-for correlations."""
    factors, codes = as_factors_and_codes(z, h)
    check_one_of("method", method, ["pearson", "spearman"])
    if len(codes) < 3:
        raise ValueError(f"z and h must have at least 3 rows for a correlation, got {len(codes)}")
    if method == "spearman":
        ones = np.ones(len(codes))
        factors = mid_ranks(dense_ranks(factors), ones)
        codes = mid_ranks(dense_ranks(codes), ones)
    return standardise(factors), standardise(codes)


def matched_pairs(
    z: ArrayLike, h: ArrayLike, *, method: str = "pearson"
) -> tuple[Array, Array, Array]:
    """Return matched factors, their codes and weights: ``mcc`` is Σ weight · corr(pair)."""
    factors, codes = correlated_columns(z, h, method)
    correlation = factors.T @ codes
    pair = matched, code_of = best_assignment(np.abs(correlation))
    signed = np.where(correlation[pair] < 0, -codes[:, code_of], codes[:, code_of])
    return factors[:, matched], signed, np.full(len(matched), 1 / factors.shape[1])
