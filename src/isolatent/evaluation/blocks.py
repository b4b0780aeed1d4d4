"""Block scores: recovery up to a map inside each block of factors, and the codes of each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from isolatent.checks import check_integer
from isolatent.evaluation.columns import Array, Indices, as_factors_and_codes, standardise
from isolatent.evaluation.linear import (
    predict_linear,
    r2_from_residuals,
    scored_factors,
    split_rows,
)
from isolatent.evaluation.mcc import best_assignment

__all__ = ["Blocks", "assign_codes", "block_mcc", "block_r2"]

Blocks: TypeAlias = Sequence[Sequence[int]]


@overload
def block_r2(
    factors: ArrayLike,
    codes: ArrayLike,
    blocks: Blocks,
    *,
    held_out: bool = ...,
    per_factor: Literal[False] = ...,
    random_state: int = ...,
) -> float: ...
@overload
def block_r2(
    factors: ArrayLike,
    codes: ArrayLike,
    blocks: Blocks,
    *,
    held_out: bool = ...,
    per_factor: Literal[True],
    random_state: int = ...,
) -> Array: ...
def block_r2(
    factors: ArrayLike,
    codes: ArrayLike,
    blocks: Blocks,
    *,
    held_out: bool = True,
    per_factor: bool = False,
    random_state: int = 0,
) -> float | Array:
    r"""Return the mean R² of factors, each predicted from the codes of its own block only.

    .. math::
        R^2 = \frac{1}{F} \sum_b \sum_{f \in b} R^2(z_f \mid h_{S_b})

    where z are the factors, h the codes, S_b the |b| codes that :func:`assign_codes` gives to block
    b, and R² is the score of an affine least-squares fit as in :func:`linear_r2`. Assignment and
    fit use one half of the rows and are scored on the other, unless ``held_out`` is false.
    Invariant to the order of the codes and, for a given assignment, to invertible maps inside a
    block of codes. With one block of all factors and no more codes than factors it equals
    :func:`linear_r2`. A block without a code (fewer codes than factors) is predicted by its mean,
    which scores about 0.

    References:
        Rusak et al. (2025), InfoNCE: Identifying the Gap Between Theory and Practice, AISTATS.

    Args:
        factors: True factors z, (N, F) or (N,).
        codes: Codes h, (N, C) or (N,).
        blocks: The factors of each block, for example ``[[0, 1, 2], [3, 4]]``; each factor once.
        held_out: Whether to score rows that were used neither for assignment nor for fitting.
        per_factor: Whether to return the F values instead of their mean.
        random_state: Seed of the split into halves, an integer >= 0; the same halves as in
            :func:`linear_r2`.

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
    truth, residuals = block_residuals(
        factors, codes, blocks, held_out=held_out, random_state=random_state
    )
    scores = r2_from_residuals(truth, residuals, np.ones(len(truth)))
    return scores if per_factor else float(scores.mean())


@overload
def block_mcc(
    factors: ArrayLike, codes: ArrayLike, blocks: Blocks, *, per_block: Literal[False] = ...
) -> float: ...
@overload
def block_mcc(
    factors: ArrayLike, codes: ArrayLike, blocks: Blocks, *, per_block: Literal[True]
) -> Array: ...
def block_mcc(
    factors: ArrayLike, codes: ArrayLike, blocks: Blocks, *, per_block: bool = False
) -> float | Array:
    r"""Return the mean canonical correlation of each block of factors with its own codes.

    .. math::
        \mathrm{MCC} = \sum_b \frac{|b|}{F} \, \frac{1}{r_b}
            \sum_{i=1}^{r_b} \rho_i(z_b, h_{S_b})

    where S_b are the |b| codes that :func:`assign_codes` gives to block b, ρ_1 ≥ ρ_2 ≥ … are the
    canonical correlations of the two sets of columns, and r_b is the rank of the block's factors
    (|b| unless some are collinear). If codes are dead, collinear or missing, the canonical
    correlations they lack count 0.

    The score is 1 if each block is recovered up to an invertible map, and lower if blocks are
    mixed. It is more lenient for larger blocks: random rotations of ten factors score about 0.79
    with two blocks of five, and 0.59 with ten singletons.

    Invariant to the order, sign and scale of the codes, to invertible maps of the factors inside
    a block and, for a given assignment, of the codes inside a block. With singleton blocks it
    equals ``mcc(factors, codes, method="pearson")``.

    References:
        Rusak et al. (2025), InfoNCE: Identifying the Gap Between Theory and Practice, AISTATS.

        Hotelling (1936), Relations Between Two Sets of Variates, Biometrika.

    Args:
        factors: True factors z, (N, F) or (N,).
        codes: Codes h, (N, C) or (N,).
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
    z, h, members = _read(factors, codes, blocks)
    z, h = reduce_rows(z, h)
    scores = np.array(
        [
            mean_canonical_correlation(basis(z[:, b]), basis(h[:, s]))
            for b, s in zip(members, codes_of_blocks(z, h, members), strict=True)
        ]
    )
    sizes = [len(b) for b in members]
    return scores if per_block else float(np.average(scores, weights=sizes))


def assign_codes(
    factors: ArrayLike, codes: ArrayLike, blocks: Blocks
) -> tuple[tuple[int, ...], ...]:
    r"""Return the codes that belong to each block of factors: |b| codes, no code twice.

    The search starts from the assignment S that is optimal for single codes,

    .. math::
        \max_S \sum_b \sum_{j \in S_b} R(h_j \mid z_b),

    where R is the multiple correlation of a code with the factors of a block; it is found exactly.
    The value of a code also depends on the other codes of its block (the second of two equal codes
    adds nothing). So the exchange of two codes that raises :func:`block_mcc` most, between two
    blocks or with an unassigned code, is made until no exchange raises it. For singleton blocks the
    start is already optimal, and the same assignment as in :func:`mcc`.

    Args:
        factors: True factors z, (N, F) or (N,).
        codes: Codes h, (N, C) or (N,). Surplus codes stay unassigned; with fewer codes than
            factors, some blocks get fewer than |b| codes, or none.
        blocks: The factors of each block, for example ``[[0, 1, 2], [3, 4]]``; each factor once.

    Returns:
        For each block the sorted indices of its codes.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 3))
        >>> assign_codes(z, z[:, [2, 0, 1]], [[0, 1], [2]])
        ((1, 2), (0,))
    """
    z, h, members = _read(factors, codes, blocks)
    found = codes_of_blocks(*reduce_rows(z, h), members)
    return tuple(tuple(int(j) for j in s) for s in found)


def block_residuals(
    factors: ArrayLike,
    codes: ArrayLike,
    blocks: Blocks,
    *,
    held_out: bool = True,
    random_state: int,
) -> tuple[Array, Array]:
    """Return the factors of the scored rows and the residuals of their within-block predictions."""
    z, h = map(standardise, as_factors_and_codes(factors, codes))
    members = check_blocks(blocks, z.shape[1])
    fitted, scored = split_rows(len(h), held_out, random_state, min_rows=_min_rows(members))
    truth = scored_factors(z, scored)
    residuals = np.empty_like(truth)
    found = codes_of_blocks(*reduce_rows(z[fitted], h[fitted]), members)
    for b, s in zip(members, found, strict=True):
        predicted = predict_linear(h[fitted][:, s], z[fitted][:, b], h[scored][:, s])
        residuals[:, b] = truth[:, b] - predicted
    return truth, residuals


def canonical_variates(
    factors: ArrayLike, codes: ArrayLike, blocks: Blocks
) -> tuple[Array, Array, Array]:
    """Return pairs of canonical variates and weights: ``block_mcc`` is Σ weight · corr(pair)."""
    z, h, members = _read(factors, codes, blocks)
    found = codes_of_blocks(*reduce_rows(z, h), members)
    left, right, weights = [], [], []
    for b, s in zip(members, found, strict=True):
        of_factors, of_codes = basis(z[:, b]), basis(h[:, s])
        rotation, _, rotation_codes = np.linalg.svd(of_factors.T @ of_codes, full_matrices=False)
        left.append(of_factors @ rotation)
        right.append(of_codes @ rotation_codes.T)
        share = len(b) / z.shape[1] / of_factors.shape[1]
        weights.append(np.full(rotation.shape[1], share))
    return np.hstack(left), np.hstack(right), np.concatenate(weights)


def _read(
    factors: ArrayLike, codes: ArrayLike, blocks: Blocks
) -> tuple[Array, Array, list[Indices]]:
    """Return standardised factors and codes and the checked blocks.

    With fewer than 2k + 1 rows, k codes and k factors always share a direction, so that a canonical
    correlation is 1 for any values: this raises an error.
    """
    z, h = map(standardise, as_factors_and_codes(factors, codes))
    members = check_blocks(blocks, z.shape[1])
    if len(h) < _min_rows(members):
        raise ValueError(
            f"factors and codes must have at least {_min_rows(members)} rows for blocks of up to "
            f"{max(map(len, members))} factors, got {len(h)}"
        )
    return z, h, members


def _min_rows(members: list[Indices]) -> int:
    return 2 * max(map(len, members)) + 1


def check_blocks(blocks: Any, n_factors: int) -> list[Indices]:
    """Return the blocks as index arrays that together hold each factor once."""
    if not isinstance(blocks, Sequence) or isinstance(blocks, str) or len(blocks) == 0:
        raise TypeError(f"blocks must be a sequence of sequences of factors, got {blocks!r}")
    members = []
    for k, block in enumerate(blocks):
        if not isinstance(block, Sequence | np.ndarray) or isinstance(block, str):
            raise TypeError(f"blocks[{k}] must be a sequence of factor indices, got {block!r}")
        if len(block) == 0:
            raise ValueError(f"blocks[{k}] must hold at least one factor, got {block!r}")
        members.append(
            np.array(
                [check_integer(f"blocks[{k}][{i}]", f, at_least=0) for i, f in enumerate(block)]
            )
        )
    if sorted(np.concatenate(members).tolist()) != list(range(n_factors)):
        raise ValueError(
            f"blocks must hold each factor from 0 to {n_factors - 1} exactly once, got {blocks!r}"
        )
    return members


def reduce_rows(factors: Array, codes: Array) -> tuple[Array, Array]:
    """Return at most F + C rows with the same correlations between columns, as inner products.

    They are the triangular factor of a QR decomposition of the standardised columns.
    """
    both = standardise(np.hstack([factors, codes])) / np.sqrt(len(factors))
    both = np.asarray(np.linalg.qr(both, mode="r"))
    return both[:, : factors.shape[1]], both[:, factors.shape[1] :]


def basis(columns: Array) -> Array:
    """Return an orthonormal basis of the columns' span.

    Directions a million times smaller than the largest are the rounding of float32 data.
    """
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, size > 1e-6 * size.max(initial=0.0)])


def mean_canonical_correlation(of_factors: Array, of_codes: Array) -> float:
    """Return the mean canonical correlation of two spans, given by orthonormal bases."""
    correlations = np.linalg.svd(of_factors.T @ of_codes, compute_uv=False).clip(max=1.0)
    return float(correlations.sum() / max(of_factors.shape[1], 1))


def codes_of_blocks(factors: Array, codes: Array, members: list[Indices]) -> list[Indices]:
    """Return the codes of each block as :func:`assign_codes` does, from reduced rows."""
    n_codes = codes.shape[1]
    missing = factors.shape[1] - n_codes
    if missing > 0:  # pad with dead codes
        codes = np.hstack([codes, np.zeros((len(codes), missing))])
    bases = [basis(factors[:, b]) for b in members]
    correlation = np.stack([np.linalg.norm(q.T @ codes, axis=0) for q in bases])  # R(h_j | z_b)
    block_of_slot = np.repeat(np.arange(len(members)), [len(b) for b in members])
    slot, code = best_assignment(correlation[block_of_slot])
    block_of = np.full(codes.shape[1], -1)
    block_of[code] = block_of_slot[slot]
    score = total_score(codes, bases, block_of)
    while True:
        exchanged = best_exchange(codes, bases, block_of)
        new_score = total_score(codes, bases, exchanged)
        if not new_score > score + 1e-9:  # a margin, so that rounding errors do not cycle
            return [np.flatnonzero(block_of[:n_codes] == b) for b in range(len(members))]
        block_of, score = exchanged, new_score


def total_score(codes: Array, bases: list[Array], block_of: Indices) -> float:
    """Return F times ``block_mcc`` for the given assignment."""
    total = 0.0
    for b, q in enumerate(bases):
        own = codes[:, block_of == b]
        total += own.shape[1] * mean_canonical_correlation(q, basis(own))
    return total


def best_exchange(codes: Array, bases: list[Array], block_of: Indices) -> Indices:
    """Return the assignment after the exchange of two codes that raises ``block_mcc`` most."""
    gain = np.zeros((len(block_of), len(block_of)))  # of replacing code a by code c
    for b, q in enumerate(bases):
        own = np.flatnonzero(block_of == b)
        now = mean_canonical_correlation(q, basis(codes[:, own]))
        for a in own:
            # `kept` spans the other codes; code c adds its component orthogonal to that span.
            kept = basis(codes[:, own[own != a]])
            added = codes - kept @ (kept.T @ codes)
            size = np.linalg.norm(added, axis=0)
            added = added / np.where(size > 1e-6, size, np.inf)
            products = np.empty((len(block_of), q.shape[1], kept.shape[1] + 1))
            products[:, :, :-1] = q.T @ kept
            products[:, :, -1] = (q.T @ added).T
            correlations = np.linalg.svd(products, compute_uv=False)
            gain[a] = len(own) * (correlations.sum(axis=1) / max(q.shape[1], 1) - now)
    gain += gain.T
    gain[block_of[:, None] == block_of] = -np.inf
    pair = np.array(divmod(int(gain.argmax()), len(block_of)))
    exchanged = block_of.copy()
    exchanged[pair] = block_of[pair[::-1]]
    return exchanged
