"""Which code belongs to which factor, or to which block of factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.checks import check_integer
from isolatent.evaluation.columns import Array, as_factors_and_codes, standardise

__all__ = ["Blocks", "Indices", "assign_codes", "best_assignment"]

Blocks: TypeAlias = Sequence[Sequence[int]]
Indices: TypeAlias = npt.NDArray[np.intp]


def assign_codes(z: ArrayLike, h: ArrayLike, blocks: Blocks) -> tuple[tuple[int, ...], ...]:
    r"""The codes that belong to each block of factors: |b| of them, no code twice.

    The assignment S starts as the best one when codes are judged one at a time,

    .. math::
        \max_S \sum_b \sum_{j \in S_b} R(h_j \mid z_b),

    R being the multiple correlation of a code with the factors of a block; this is solved exactly.
    A code's worth also depends on its companions (of two equal codes the second adds nothing), so
    the pair of codes whose exchange raises :func:`block_mcc` most is then exchanged, be it between
    two blocks or with a code that has no block, until no exchange raises it. For singleton blocks
    the start is already the optimum, and the same as in :func:`mcc`.

    Args:
        z: True factors, (N, F) or (N,).
        h: Codes, (N, C) or (N,). Surplus codes stay without a block; if codes are fewer than
            factors, some blocks get fewer than |b|, or none.
        blocks: The factors of each block, for example ``[[0, 1, 2], [3, 4]]``; each factor once.

    Returns:
        For each block the sorted indices of its codes.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(1000, 3))
        >>> assign_codes(z, z[:, [2, 0, 1]], [[0, 1], [2]])
        ((1, 2), (0,))
    """
    factors, codes = map(standardise, as_factors_and_codes(z, h))
    members = check_blocks(blocks, factors.shape[1])
    check_rows(len(codes), members)
    found = codes_of_blocks(*few_rows(factors, codes), members)
    return tuple(tuple(int(j) for j in s) for s in found)


def best_assignment(gain: Array) -> tuple[Indices, Indices]:
    """Return the rows and the columns of the one-to-one assignment of the largest total gain."""
    from scipy.optimize import linear_sum_assignment  # half a second to import

    rows, columns = linear_sum_assignment(gain, maximize=True)
    return rows, columns


def check_blocks(blocks: Any, factors: int) -> list[Indices]:
    """Return the blocks as index arrays that together hold each of the factors once."""
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
    if sorted(np.concatenate(members).tolist()) != list(range(factors)):
        raise ValueError(
            f"blocks must hold each factor from 0 to {factors - 1} exactly once, got {blocks!r}"
        )
    return members


def rows_needed(members: list[Indices]) -> int:
    """Return the rows below which k codes and k factors always share a direction: 2k + 1."""
    return 2 * max(map(len, members)) + 1


def check_rows(rows: int, members: list[Indices]) -> None:
    """Refuse so few rows that some canonical correlation is 1 whatever they hold."""
    if rows < rows_needed(members):
        raise ValueError(
            f"z and h must have at least {rows_needed(members)} rows for blocks of up to "
            f"{max(map(len, members))} factors, got {rows}"
        )


def few_rows(factors: Array, codes: Array) -> tuple[Array, Array]:
    """Return F + C rows or fewer whose columns have the correlations as their inner products."""
    both = standardise(np.hstack([factors, codes])) / np.sqrt(len(factors))
    both = np.asarray(np.linalg.qr(both, mode="r"))
    return both[:, : factors.shape[1]], both[:, factors.shape[1] :]


def basis(columns: Array) -> Array:
    """Return an orthonormal basis of the columns' span.

    Directions a million times smaller than the largest are the rounding of float32 data.
    """
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, size > 1e-6 * size.max(initial=0.0)])


def block_score(of_factors: Array, of_codes: Array) -> float:
    """Return the mean canonical correlation of two spans, given by orthonormal bases."""
    correlations = np.linalg.svd(of_factors.T @ of_codes, compute_uv=False).clip(max=1.0)
    return float(correlations.sum() / max(of_factors.shape[1], 1))


def codes_of_blocks(factors: Array, codes: Array, members: list[Indices]) -> list[Indices]:
    """Return the codes of each block, as :func:`assign_codes` defines them; see `few_rows`."""
    count = codes.shape[1]
    missing = factors.shape[1] - count
    if missing > 0:  # dead codes fill the places for which there is no code
        codes = np.hstack([codes, np.zeros((len(codes), missing))])
    bases = [basis(factors[:, b]) for b in members]
    worth = np.stack([np.linalg.norm(q.T @ codes, axis=0) for q in bases])  # R(h_j | z_b)
    block_of_place = np.repeat(np.arange(len(members)), [len(b) for b in members])
    place, code = best_assignment(worth[block_of_place])
    block_of = np.full(codes.shape[1], -1)
    block_of[code] = block_of_place[place]
    score = total_score(codes, bases, block_of)
    while True:
        exchanged = best_exchange(codes, bases, block_of)
        new_score = total_score(codes, bases, exchanged)
        if not new_score > score + 1e-9:  # a margin, so that rounding cannot exchange for ever
            return [np.flatnonzero(block_of[:count] == b) for b in range(len(members))]
        block_of, score = exchanged, new_score


def total_score(codes: Array, bases: list[Array], block_of: Indices) -> float:
    """Return F times ``block_mcc`` for the given assignment."""
    total = 0.0
    for b, q in enumerate(bases):
        own = codes[:, block_of == b]
        total += own.shape[1] * block_score(q, basis(own))
    return total


def best_exchange(codes: Array, bases: list[Array], block_of: Indices) -> Indices:
    """Return the assignment after the exchange of two codes that is best for ``block_mcc``."""
    gain = np.zeros((len(block_of), len(block_of)))  # of putting code c in the place of code a
    for b, q in enumerate(bases):
        own = np.flatnonzero(block_of == b)
        now = block_score(q, basis(codes[:, own]))
        for a in own:
            # The others span `kept`; what c adds to that span is its component outside of it.
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
