"""The fused passes over all pairs: one skeleton, compiled for each form and each reduction.

v is packed into tiles of TILE columns, each tile coordinate-major, and rows are taken ROWS at a
time. A block holds the scores of those rows against one tile, row after row (4 KB): it stays in the
first-level cache, and no rows × columns array exists. Padding rows and columns have the potential
+inf, so that their score is -inf and their weight exactly 0; an excluded pair is treated alike.

A log-sum-exp is stored as (top, total) = (max s, Σ exp(s - top)), so that the backward pass needs
no rounded logarithm.

Two properties of numba shape the loops. Arrays are indexed by range variables, `v[tile, k, j]`, and
inner loops have a constant count: LLVM cannot know that a computed flat index is not negative, and
Python's wrap-around then turns vector loads into single loads. And constants are typed by `like`.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from isolatent.contrast.kernels import arithmetic, forms
from isolatent.contrast.kernels.arithmetic import SUMS, exp, like, log1p, maximum, power
from isolatent.contrast.kernels.forms import LpForm, score, slope

__all__ = [
    "FILES",
    "ROWS",
    "TILE",
    "BlockReduction",
    "BothLogSumExp",
    "RowLogSumExp",
    "RowSoftplus",
    "backward_rows",
    "forward_rows",
]

TILE = 128  # columns in a tile
ROWS = 4  # rows in a block, so that one load of v serves all; the loops spell them out
CHUNK = 64  # blocks of rows whose gradient to v is summed before it joins the total (accuracy)


# Scores of a block


@njit(**SUMS)
def _start(a, i, b, tile, s):
    """Write -a - b of rows i to i + 3 and one tile into s."""
    one, two, three = TILE, 2 * TILE, 3 * TILE
    a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
    for j in range(TILE):
        x = -b[tile, j]
        s[j] = x - a0
        s[one + j] = x - a1
        s[two + j] = x - a2
        s[three + j] = x - a3


@njit(**SUMS)
def _subtract_all(form, u, i, v, w, tile, s):
    """Subtract the distances of rows i to i + 3 to one tile from s."""
    one, two, three = TILE, 2 * TILE, 3 * TILE
    for k in range(0, u.shape[1], 2):  # two coordinates at a time halve the loads and stores of s
        w0, w1 = w[k], w[k + 1]
        u00, u10, u20, u30 = u[i, k], u[i + 1, k], u[i + 2, k], u[i + 3, k]
        u01, u11, u21, u31 = u[i, k + 1], u[i + 1, k + 1], u[i + 2, k + 1], u[i + 3, k + 1]
        for j in range(TILE):
            x, y = v[tile, k, j], v[tile, k + 1, j]
            s[j] += score(form, u00, x, w0) + score(form, u01, y, w1)
            s[one + j] += score(form, u10, x, w0) + score(form, u11, y, w1)
            s[two + j] += score(form, u20, x, w0) + score(form, u21, y, w1)
            s[three + j] += score(form, u30, x, w0) + score(form, u31, y, w1)


# A power with a general exponent costs as much as ten multiplications, and score and slope need the
# same power. The backward pass of `LpForm` therefore stores the powers of a block in `kept`.


def _subtract_distances(form, u, i, v, w, tile, s, kept):
    """Subtract the distances of rows i to i + 3 to one tile from s; `kept` may be None."""


@overload(_subtract_distances, jit_options=SUMS, strict=False)
def _subtract_distances_overload(form, u, i, v, w, tile, s, kept):
    def plain(form, u, i, v, w, tile, s, kept):
        _subtract_all(form, u, i, v, w, tile, s)

    def keeping(form, u, i, v, w, tile, s, kept):
        for r in range(ROWS):
            for k in range(u.shape[1]):
                for j in range(TILE):
                    x = abs(u[i + r, k] - v[tile, k, j])
                    y = power(x, form.q, form.coarse)
                    kept[r, k, j] = y
                    s[r * TILE + j] -= (w[k] * x) * y

    return keeping if form.instance_class is LpForm and kept != types.none else plain


@njit(**SUMS)
def _scores(form, u, a, m, i, v, b, w, tile, s, terms, kept):
    """Write the scores of rows i to i + 3 against one tile into s.

    With multipliers m, -d is written into `terms`, which may be s; without, numba drops the branch.
    """
    if m is None:
        _start(a, i, b, tile, s)
        _subtract_distances(form, u, i, v, w, tile, s, kept)
    else:
        one, two, three = TILE, 2 * TILE, 3 * TILE
        for j in range(ROWS * TILE):
            terms[j] = like(0, m[i])
        _subtract_distances(form, u, i, v, w, tile, terms, kept)
        a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
        m0, m1, m2, m3 = m[i], m[i + 1], m[i + 2], m[i + 3]
        for j in range(TILE):
            x = -b[tile, j]
            s[j] = m0 * terms[j] + (x - a0)
            s[one + j] = m1 * terms[one + j] + (x - a1)
            s[two + j] = m2 * terms[two + j] + (x - a2)
            s[three + j] = m3 * terms[three + j] + (x - a3)


@njit(**SUMS)
def _exclude(i, skip, tile, s):
    """Drop the excluded pair of each of four rows if it lies in this tile."""
    for r in range(ROWS):
        j = skip[i + r] - tile * TILE
        if 0 <= j < TILE:
            s[r * TILE + j] = -np.inf


@njit(**SUMS)
def _read_diagonal(i, tile, s, diagonal):
    """Copy the scores s_ii of four rows that lie in this tile."""
    for r in range(ROWS):
        j = i + r - tile * TILE
        if 0 <= j < TILE:
            diagonal[i + r] = s[r * TILE + j]


@njit(**SUMS)
def _add_diagonal(i, tile, diagonal, c, ga, gb):
    """Add the gradients of the scores s_ii of four rows to those of a block."""
    for r in range(ROWS):
        j = i + r - tile * TILE
        if 0 <= j < TILE:
            x = diagonal[i + r]
            c[r * TILE + j] += x
            ga[i + r] -= x
            gb[j] -= x


# Reductions of a block, and their derivatives with respect to a score. Like the forms they are
# types, and differ only in the overloads `_reduce_block` and `_weight`.


class RowLogSumExp(NamedTuple):
    """logsumexp_j s_ij."""

    unused: int = 0  # numba has no named tuples without a field


class RowSoftplus(NamedTuple):
    """Σ_j softplus(s_ij)."""

    unused: int = 0


class BothLogSumExp(NamedTuple):
    """logsumexp_j s_ij and logsumexp_i s_ij."""

    unused: int = 0


BlockReduction = RowLogSumExp | RowSoftplus | BothLogSumExp


@njit(**SUMS)
def _absorb(s, at, top, total):
    """Return (top, total) of a row updated with one row of a block."""
    new = top
    for j in range(TILE):
        new = maximum(new, s[at + j])
    more = like(0, total)
    for j in range(TILE):
        more += exp(s[at + j] - new)
    return new, total * exp(top - new) + more


@njit(**SUMS)
def _absorb_columns(s, tile, top, total):
    """Update (top, total) of each column with the four rows of a block."""
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
    """Return Σ softplus over one row of a block: softplus(x) = max(x, 0) + log(1 + e^-|x|)."""
    total = zero = like(0, s[at])
    for j in range(TILE):
        x = s[at + j]
        total += maximum(x, zero) + log1p(exp(-abs(x)))
    return total


def _reduce_block(reduction, i, tile, s, top, total, column_top, column_total):
    """Add the scores s of rows i to i + 3 and a tile to the statistics of rows (and columns)."""


@overload(_reduce_block, jit_options=SUMS, strict=False)
def _reduce_block_overload(reduction, i, tile, s, top, total, column_top, column_total):
    def rows(reduction, i, tile, s, top, total, column_top, column_total):
        for r in range(ROWS):
            top[i + r], total[i + r] = _absorb(s, r * TILE, top[i + r], total[i + r])

    def both(reduction, i, tile, s, top, total, column_top, column_total):
        for r in range(ROWS):
            top[i + r], total[i + r] = _absorb(s, r * TILE, top[i + r], total[i + r])
        _absorb_columns(s, tile, column_top, column_total)

    def softplus(reduction, i, tile, s, top, total, column_top, column_total):
        for r in range(ROWS):
            total[i + r] += _sum_softplus(s, r * TILE)

    choice = {RowLogSumExp: rows, BothLogSumExp: both, RowSoftplus: softplus}
    return choice[reduction.instance_class]


def _weight(reduction, s, top, g, column_top, h):
    """Return dL/ds of a pair.

    g and h are the gradients of row and column, for a log-sum-exp already divided by the totals.
    """


@overload(_weight, jit_options=SUMS, strict=False)
def _weight_overload(reduction, s, top, g, column_top, h):
    def rows(reduction, s, top, g, column_top, h):
        return g * exp(s - top)

    def both(reduction, s, top, g, column_top, h):
        return g * exp(s - top) + h * exp(s - column_top)

    def softplus(reduction, s, top, g, column_top, h):  # g sigmoid(s), no large exponential
        y = exp(-abs(s))
        one = like(1, y)
        return g * ((one if s > like(0, s) else y) / (one + y))

    choice = {RowLogSumExp: rows, BothLogSumExp: both, RowSoftplus: softplus}
    return choice[reduction.instance_class]


@njit(**SUMS)
def _weigh_block(reduction, i, tile, s, top, g, column_top, h, ga, gb):
    """Replace the scores of a block by dL/ds, and subtract them from the potentials' gradients."""
    one, two, three = TILE, 2 * TILE, 3 * TILE
    g0, g1, g2, g3 = g[i], g[i + 1], g[i + 2], g[i + 3]
    m0, m1, m2, m3 = top[i], top[i + 1], top[i + 2], top[i + 3]
    a0 = a1 = a2 = a3 = like(0, g0)
    for j in range(TILE):
        m, x = column_top[tile, j], h[tile, j]
        c0 = _weight(reduction, s[j], m0, g0, m, x)
        c1 = _weight(reduction, s[one + j], m1, g1, m, x)
        c2 = _weight(reduction, s[two + j], m2, g2, m, x)
        c3 = _weight(reduction, s[three + j], m3, g3, m, x)
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


# Gradients of a block


@njit(**SUMS)
def _scale_row(m, at, terms, c):
    """Multiply c = dL/ds of one row of a block by m, and return dL/dm."""
    total = like(0, m)
    for j in range(TILE):
        x = c[at + j]
        total += x * terms[at + j]
        c[at + j] = m * x
    return total


@njit(**SUMS)
def _gradients(form, u, i, v, tile, c, gu, gv):
    """Add the gradients of four rows and one tile, given c = dL/ds (without the factor p w)."""
    one, two, three = TILE, 2 * TILE, 3 * TILE
    for k in range(u.shape[1]):
        u0, u1, u2, u3 = u[i, k], u[i + 1, k], u[i + 2, k], u[i + 3, k]
        g0 = g1 = g2 = g3 = like(0, u0)
        for j in range(TILE):
            x = v[tile, k, j]
            x0, y0 = slope(form, c[j], u0, x)
            x1, y1 = slope(form, c[one + j], u1, x)
            x2, y2 = slope(form, c[two + j], u2, x)
            x3, y3 = slope(form, c[three + j], u3, x)
            g0 += x0
            g1 += x1
            g2 += x2
            g3 += x3
            gv[k, j] += (y0 + y1) + (y2 + y3)
        gu[i, k] += g0
        gu[i + 1, k] += g1
        gu[i + 2, k] += g2
        gu[i + 3, k] += g3


def _gradients_again(form, u, i, v, tile, c, gu, gv, kept):
    """Add `_gradients`, with the stored powers of `LpForm`."""


@overload(_gradients_again, jit_options=SUMS, strict=False)
def _gradients_again_overload(form, u, i, v, tile, c, gu, gv, kept):
    def plain(form, u, i, v, tile, c, gu, gv, kept):
        _gradients(form, u, i, v, tile, c, gu, gv)

    def keeping(form, u, i, v, tile, c, gu, gv, kept):
        for r in range(ROWS):
            for k in range(u.shape[1]):
                total = like(0, gu[i, k])
                for j in range(TILE):
                    x = v[tile, k, j] - u[i + r, k]
                    g = c[r * TILE + j] * math.copysign(kept[r, k, j], x)
                    total += g
                    gv[k, j] -= g
                gu[i + r, k] += total

    return keeping if form.instance_class is LpForm else plain


def _kernels(sources: int) -> tuple[Any, Any]:
    """Return the forward and the backward pass, compiled for a checksum of the source files.

    numba's cache on disk is invalidated by a change in this file only. The checksum of all files is
    a variable of the closures and so part of the cache's key.
    """

    @njit(error_model="numpy", nogil=True, cache=True)
    def forward_rows(
        form,
        reduction,
        first,
        last,
        u,
        a,
        m,
        v,
        b,
        w,
        skip,
        top,
        total,
        column_top,
        column_total,
        diagonal,
    ):
        _ = sources
        s = np.empty(ROWS * TILE, u.dtype)
        for tile in range(len(v)):
            for block in range(first, last):
                i = block * ROWS
                _scores(form, u, a, m, i, v, b, w, tile, s, s, None)
                _read_diagonal(i, tile, s, diagonal)
                _exclude(i, skip, tile, s)
                _reduce_block(reduction, i, tile, s, top, total, column_top, column_total)

    @njit(error_model="numpy", nogil=True, cache=True)
    def backward_rows(
        form,
        reduction,
        first,
        last,
        u,
        a,
        m,
        v,
        b,
        w,
        skip,
        top,
        g,
        column_top,
        h,
        diagonal,
        gradients,
    ):
        _ = sources
        gu, ga, gm, gv, gb = gradients
        s = np.empty(ROWS * TILE, u.dtype)
        terms = s if m is None else np.empty_like(s)
        kept = np.empty((ROWS, u.shape[1], TILE), u.dtype)
        pv = np.empty((v.shape[1], TILE), u.dtype)
        pb = np.empty(TILE, u.dtype)
        for chunk in range(first, last, CHUNK):
            for tile in range(len(v)):
                pv[:] = 0
                pb[:] = 0
                for block in range(chunk, min(chunk + CHUNK, last)):
                    i = block * ROWS
                    _scores(form, u, a, m, i, v, b, w, tile, s, terms, kept)
                    _exclude(i, skip, tile, s)
                    _weigh_block(reduction, i, tile, s, top, g, column_top, h, ga, pb)
                    _add_diagonal(i, tile, diagonal, s, ga, pb)
                    if m is not None:
                        for r in range(ROWS):
                            gm[i + r] += _scale_row(m[i + r], r * TILE, terms, s)
                    _gradients_again(form, u, i, v, tile, s, gu, pv, kept)
                for j in range(TILE):
                    gb[tile, j] += pb[j]
                for k in range(len(pv)):
                    for j in range(TILE):
                        gv[tile, k, j] += pv[k, j]

    return forward_rows, backward_rows


FILES = (arithmetic.__file__, forms.__file__, __file__)

#: Both process the blocks of rows from `first` to `last` and release the GIL. m is None for
#: multipliers of 1, and compiled apart. `forward_rows` fills (top, total) and the scores s_ii.
#: `backward_rows` takes the gradients of these as `diagonal`; it adds to gu, ga and gm of its rows,
#: and to gv and gb, which no other thread may use.
forward_rows, backward_rows = _kernels(
    zlib.crc32(b"".join(Path(name).read_bytes() for name in FILES))
)
