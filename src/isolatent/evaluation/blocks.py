"""Scores for recovery up to a map inside each block of factors (block-orthogonal guarantees)."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation.assignment import (
    Blocks,
    basis,
    block_score,
    check_blocks,
    check_rows,
    codes_of_blocks,
    few_rows,
    rows_needed,
)
from isolatent.evaluation.columns import Array, as_factors_and_codes, standardise
from isolatent.evaluation.scores import halves, least_squares, r2_of_errors, scored_factors

__all__ = ["block_mcc", "block_r2"]


@overload
def block_r2(
    z: ArrayLike,
    h: ArrayLike,
    blocks: Blocks,
    *,
    held_out: bool = ...,
    per_factor: Literal[False] = ...,
    seed: int = ...,
) -> float: ...
@overload
def block_r2(
    z: ArrayLike,
    h: ArrayLike,
    blocks: Blocks,
    *,
    held_out: bool = ...,
    per_factor: Literal[True],
    seed: int = ...,
) -> Array: ...
def block_r2(
    z: ArrayLike,
    h: ArrayLike,
    blocks: Blocks,
    *,
    held_out: bool = True,
    per_factor: bool = False,
    seed: int = 0,
) -> float | Array:
    r"""R² of each factor predicted only from the codes of its own block, averaged over factors.

    .. math::
        R^2 = \frac{1}{F} \sum_b \sum_{f \in b} R^2(z_f \mid h_{S_b})

    where S_b are the |b| codes that :func:`assign_codes` gives to block b, and R² is that of an
    affine least-squares fit as in :func:`linear_r2`. Assignment and fit are both made on one half
    of the rows and scored on the other, unless ``held_out`` is false. Invariant to the order of
    the codes and, for a given assignment, to invertible maps inside a block of codes. With one
    block of all factors and no more codes than factors it is :func:`linear_r2`. A block that got
    no code (fewer codes than factors) is predicted by its mean, which scores about 0.

    References:
        Rusak et al. (2025), InfoNCE: Identifying the Gap Between Theory and Practice, AISTATS.

    Args:
        z: True factors, (N, F) or (N,).
        h: Codes, (N, C) or (N,).
        blocks: The factors of each block, for example ``[[0, 1, 2], [3, 4]]``; each factor once.
        held_out: Whether to score rows that took no part in assignment and fit.
        per_factor: Whether to return the F values instead of their mean.
        seed: Chooses the halves, the same ones as in :func:`linear_r2`.

    Returns:
        The mean over factors as a float, or an array of F values.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 3))
        >>> rotated = z @ [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]
        >>> round(block_r2(z, rotated, [[0, 1], [2]]), 3)
        1.0
        >>> round(block_r2(z, rotated, [[0], [1], [2]]), 1)
        0.8
    """
    truth, error = block_errors(z, h, blocks, held_out=held_out, seed=seed)
    scores = r2_of_errors(truth, error, np.ones(len(truth)))
    return scores if per_factor else float(scores.mean())


@overload
def block_mcc(
    z: ArrayLike, h: ArrayLike, blocks: Blocks, *, per_block: Literal[False] = ...
) -> float: ...
@overload
def block_mcc(z: ArrayLike, h: ArrayLike, blocks: Blocks, *, per_block: Literal[True]) -> Array: ...
def block_mcc(
    z: ArrayLike, h: ArrayLike, blocks: Blocks, *, per_block: bool = False
) -> float | Array:
    r"""Mean canonical correlation of each block of factors with its own codes.

    .. math::
        \mathrm{MCC} = \sum_b \frac{|b|}{F} \, \frac{1}{r_b}
            \sum_{i=1}^{r_b} \rho_i(z_b, h_{S_b})

    where S_b are the |b| codes that :func:`assign_codes` gives to block b, ρ_1 ≥ ρ_2 ≥ … are the
    canonical correlations of the two sets of columns, and r_b is the rank of the block's factors
    (|b| unless some are collinear). Canonical correlations the codes cannot supply, because some
    are dead, collinear or missing, count 0.

    It is 1 when each block is recovered up to an invertible map, and lower when blocks are mixed.
    The larger the blocks, the more of them a mixture still reaches: random rotations of ten
    factors score about 0.79 with two blocks of five, and 0.59 with ten singletons.

    Invariant to the order, sign and scale of the codes, to invertible maps of the factors inside
    a block and, for a given assignment, of the codes inside a block. With singleton blocks it is
    ``mcc(z, h, method="pearson")``.

    References:
        Rusak et al. (2025), InfoNCE: Identifying the Gap Between Theory and Practice, AISTATS.

        Hotelling (1936), Relations Between Two Sets of Variates, Biometrika.

    Args:
        z: True factors, (N, F) or (N,).
        h: Codes, (N, C) or (N,).
        blocks: The factors of each block, for example ``[[0, 1, 2], [3, 4]]``; each factor once.
        per_block: Whether to return one value per block instead of their mean weighted by size.

    Returns:
        The mean over factors as a float, or an array with one value per block.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 3))
        >>> rotated = z @ [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]
        >>> round(block_mcc(z, rotated, [[0, 1], [2]]), 3)
        1.0
        >>> round(block_mcc(z, rotated, [[0, 2], [1]]), 1)
        0.9
    """
    factors, codes = map(standardise, as_factors_and_codes(z, h))
    members = check_blocks(blocks, factors.shape[1])
    check_rows(len(codes), members)
    r_factors, r_codes = few_rows(factors, codes)
    scores = np.array(
        [
            block_score(basis(r_factors[:, b]), basis(r_codes[:, s]))
            for b, s in zip(members, codes_of_blocks(r_factors, r_codes, members), strict=True)
        ]
    )
    sizes = [len(b) for b in members]
    return scores if per_block else float(np.average(scores, weights=sizes))


def block_errors(
    z: ArrayLike, h: ArrayLike, blocks: Blocks, *, held_out: bool = True, seed: int
) -> tuple[Array, Array]:
    """Return the factors of the scored rows and the errors of their within-block predictions."""
    factors, codes = map(standardise, as_factors_and_codes(z, h))
    members = check_blocks(blocks, factors.shape[1])
    fitted, scored = halves(len(codes), held_out, seed, fit_rows=rows_needed(members))
    truth = scored_factors(factors, scored)
    error = np.empty_like(truth)
    found = codes_of_blocks(*few_rows(factors[fitted], codes[fitted]), members)
    for b, s in zip(members, found, strict=True):
        predicted = least_squares(codes[fitted][:, s], factors[fitted][:, b], codes[scored][:, s])
        error[:, b] = truth[:, b] - predicted
    return truth, error


def block_pairs(z: ArrayLike, h: ArrayLike, blocks: Blocks) -> tuple[Array, Array, Array]:
    """Return pairs of canonical variates and weights: ``block_mcc`` is Σ weight · corr(pair)."""
    factors, codes = map(standardise, as_factors_and_codes(z, h))
    members = check_blocks(blocks, factors.shape[1])
    check_rows(len(codes), members)
    found = codes_of_blocks(*few_rows(factors, codes), members)
    left, right, weights = [], [], []
    for b, s in zip(members, found, strict=True):
        of_factors, of_codes = basis(factors[:, b]), basis(codes[:, s])
        rotation, _, rotation_codes = np.linalg.svd(of_factors.T @ of_codes, full_matrices=False)
        left.append(of_factors @ rotation)
        right.append(of_codes @ rotation_codes.T)
        share = len(b) / factors.shape[1] / of_factors.shape[1]
        weights.append(np.full(rotation.shape[1], share))
    return np.hstack(left), np.hstack(right), np.concatenate(weights)
