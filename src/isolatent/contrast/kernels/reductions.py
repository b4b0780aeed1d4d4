"""The reductions over a block of scores, and the derivative of each with respect to a score.

Like the forms they are types, and the overloads `reduce_block` and `_weight` tell them apart. A
block holds the scores of `ROWS` rows against one tile of `TILE` columns, row after row; every inner
loop runs over the columns of a tile with a constant count, which is what lets LLVM vectorise it.

A log-sum-exp is kept as (top, total) = (max s, Σ exp(s - top)): the backward pass then needs no
rounded logarithm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit
from numba.extending import overload

from isolatent.contrast.kernels.arithmetic import SUMS, exp, like, log1p, maximum

__all__ = ["ROWS", "TILE", "Both", "Kind", "LogSumExp", "Softplus", "reduce_block", "weigh_block"]

TILE = 256  # columns in a tile
ROWS = 4  # rows handled together, so that one load of v serves all; the loops spell them out


class LogSumExp(NamedTuple):
    """logsumexp_j s_ij."""

    unused: int = 0  # numba has no named tuples without a field


class Softplus(NamedTuple):
    """Σ_j softplus(s_ij)."""

    unused: int = 0


class Both(NamedTuple):
    """logsumexp_j s_ij and logsumexp_i s_ij."""

    unused: int = 0


Kind = LogSumExp | Softplus | Both


@njit(**SUMS)
def _absorb(s, at, top, total):
    """(top, total) together with one row of a block."""
    new = top
    for j in range(TILE):
        new = maximum(new, s[at + j])
    more = like(0, total)
    for j in range(TILE):
        more += exp(s[at + j] - new)
    return new, total * exp(top - new) + more


@njit(**SUMS)
def _absorb_columns(s, tile, top, total):
    """(top, total) of each column together with the four rows of a block."""
    one, two, three = TILE, 2 * TILE, 3 * TILE
    for j in range(TILE):
        s0, s1, s2, s3 = s[j], s[one + j], s[two + j], s[three + j]
        old = top[tile, j]
        new = maximum(old, maximum(maximum(s0, s1), maximum(s2, s3)))
        more = (exp(s0 - new) + exp(s1 - new)) + (exp(s2 - new) + exp(s3 - new))
        total[tile, j] = total[tile, j] * exp(old - new) + more
        top[tile, j] = new


@njit(**SUMS)
def _sum_softplus(s, at):
    """Σ softplus over one row of a block: softplus(x) = max(x, 0) + log(1 + e^-|x|)."""
    total = zero = like(0, s[at])
    for j in range(TILE):
        x = s[at + j]
        total += maximum(x, zero) + log1p(exp(-abs(x)))
    return total


def reduce_block(
    kind: Any,
    i: Any,
    tile: Any,
    s: Any,
    top: Any,
    total: Any,
    column_top: Any,
    column_total: Any,
) -> Any:
    """Add the scores s of rows i to i + 3 and a tile to the statistics of rows (and columns)."""


@overload(reduce_block, jit_options=SUMS, strict=False)
def _reduce_block(
    kind: Any,
    i: Any,
    tile: Any,
    s: Any,
    top: Any,
    total: Any,
    column_top: Any,
    column_total: Any,
) -> Any:
    def logsumexp(kind, i, tile, s, top, total, column_top, column_total):
        for r in range(ROWS):
            top[i + r], total[i + r] = _absorb(s, r * TILE, top[i + r], total[i + r])

    def both(kind, i, tile, s, top, total, column_top, column_total):
        for r in range(ROWS):
            top[i + r], total[i + r] = _absorb(s, r * TILE, top[i + r], total[i + r])
        _absorb_columns(s, tile, column_top, column_total)

    def softplus(kind, i, tile, s, top, total, column_top, column_total):
        for r in range(ROWS):
            total[i + r] += _sum_softplus(s, r * TILE)

    return {LogSumExp: logsumexp, Both: both, Softplus: softplus}[kind.instance_class]


def _weight(kind: Any, s: Any, top: Any, g: Any, column_top: Any, h: Any) -> Any:
    """dL/ds of a pair.

    g and h are the gradients of row and column, for a log-sum-exp already divided by the totals.
    """


@overload(_weight, jit_options=SUMS, strict=False)
def _weight_overload(kind: Any, s: Any, top: Any, g: Any, column_top: Any, h: Any) -> Any:
    def logsumexp(kind, s, top, g, column_top, h):
        return g * exp(s - top)

    def both(kind, s, top, g, column_top, h):
        return g * exp(s - top) + h * exp(s - column_top)

    def softplus(kind, s, top, g, column_top, h):  # g sigmoid(s), without a large exponential
        y = exp(-abs(s))
        one = like(1, y)
        return g * ((one if s > like(0, s) else y) / (one + y))

    return {LogSumExp: logsumexp, Both: both, Softplus: softplus}[kind.instance_class]


@njit(**SUMS)
def weigh_block(kind, i, tile, s, top, g, column_top, h, ga, gb):
    """Replace the scores of a block by dL/ds, and subtract them from the potentials' gradients."""
    one, two, three = TILE, 2 * TILE, 3 * TILE
    g0, g1, g2, g3 = g[i], g[i + 1], g[i + 2], g[i + 3]
    m0, m1, m2, m3 = top[i], top[i + 1], top[i + 2], top[i + 3]
    a0 = a1 = a2 = a3 = like(0, g0)
    for j in range(TILE):
        m, x = column_top[tile, j], h[tile, j]
        c0 = _weight(kind, s[j], m0, g0, m, x)
        c1 = _weight(kind, s[one + j], m1, g1, m, x)
        c2 = _weight(kind, s[two + j], m2, g2, m, x)
        c3 = _weight(kind, s[three + j], m3, g3, m, x)
        s[j] = c0
        s[one + j] = c1
        s[two + j] = c2
        s[three + j] = c3
        a0 += c0
        a1 += c1
        a2 += c2
        a3 += c3
        gb[j] -= (c0 + c1) + (c2 + c3)
    ga[i] -= a0
    ga[i + 1] -= a1
    ga[i + 2] -= a2
    ga[i + 3] -= a3
