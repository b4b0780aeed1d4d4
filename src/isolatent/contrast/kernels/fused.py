"""The fused passes over all pairs: one skeleton, compiled for each form and each reduction.

v is packed into tiles of TILE columns, each tile coordinate-major, and rows are taken ROWS at a
time: the scores of those rows against one tile (4 KB) stay in the first-level cache, and no
rows × columns array exists. Padding rows and columns carry the potential +inf, so that their score
is -inf and their weight exactly 0; an excluded pair is treated alike.

Two habits of numba shape the loops. Arrays are indexed by range variables, `v[tile, k, j]`: of a
computed flat index LLVM cannot know that it is not negative, and Python's wrap-around then turns
vector loads into single ones. And what is constant is typed by `like`.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from isolatent.contrast.kernels import arithmetic, forms, reductions
from isolatent.contrast.kernels.arithmetic import SUMS, like, power
from isolatent.contrast.kernels.forms import Lp, score, slope
from isolatent.contrast.kernels.reductions import ROWS, TILE, reduce_block, weigh_block

__all__ = ["backward_rows", "forward_rows"]

CHUNK = 64  # blocks of rows whose gradient to v is summed before it joins the total (accuracy)


@njit(**SUMS)
def _scores(form, u, a, i, v, b, w, tile, s):
    """The scores of rows i to i + 3 against one tile, into s."""
    one, two, three = TILE, 2 * TILE, 3 * TILE
    a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
    for j in range(TILE):
        x = -b[tile, j]
        s[j] = x - a0
        s[one + j] = x - a1
        s[two + j] = x - a2
        s[three + j] = x - a3
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


@njit(**SUMS)
def _exclude(i, skip, tile, s):
    """Drop the excluded pair of each of four rows if it lies in this tile."""
    for r in range(ROWS):
        j = skip[i + r] - tile * TILE
        if 0 <= j < TILE:
            s[r * TILE + j] = -np.inf


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


# A power with a general exponent costs as much as ten multiplications, and score and slope need the
# same one. The backward pass of that form therefore keeps the powers of a block between the two.


def _scores_again(
    form: Any, u: Any, a: Any, i: Any, v: Any, b: Any, w: Any, tile: Any, s: Any, kept: Any
) -> Any:
    """`_scores` of the backward pass."""


@overload(_scores_again, jit_options=SUMS, strict=False)
def _scores_again_overload(
    form: Any, u: Any, a: Any, i: Any, v: Any, b: Any, w: Any, tile: Any, s: Any, kept: Any
) -> Any:
    def plain(form, u, a, i, v, b, w, tile, s, kept):
        _scores(form, u, a, i, v, b, w, tile, s)

    def keeping(form, u, a, i, v, b, w, tile, s, kept):
        for r in range(ROWS):
            for j in range(TILE):
                s[r * TILE + j] = -b[tile, j] - a[i + r]
            for k in range(u.shape[1]):
                for j in range(TILE):
                    x = abs(u[i + r, k] - v[tile, k, j])
                    y = power(x, form.q, form.coarse)
                    kept[r, k, j] = y
                    s[r * TILE + j] -= (w[k] * x) * y

    return keeping if form.instance_class is Lp else plain


def _gradients_again(
    form: Any, u: Any, i: Any, v: Any, tile: Any, c: Any, gu: Any, gv: Any, kept: Any
) -> Any:
    """`_gradients`, with the kept powers where there are any."""


@overload(_gradients_again, jit_options=SUMS, strict=False)
def _gradients_again_overload(
    form: Any, u: Any, i: Any, v: Any, tile: Any, c: Any, gu: Any, gv: Any, kept: Any
) -> Any:
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

    return keeping if form.instance_class is Lp else plain


def _kernels(sources: int) -> tuple[Any, Any]:
    """The two passes, compiled once for the given state of the sources.

    numba's cache on disk notices a change in this file only. The checksum of all files, held by the
    closures, is part of the cache's key: a change in any of them compiles anew.
    """

    @njit(error_model="numpy", nogil=True, cache=True)
    def forward_rows(
        form, kind, first, last, u, a, v, b, w, skip, top, total, column_top, column_total
    ):
        _ = sources
        s = np.empty(ROWS * TILE, u.dtype)
        for tile in range(len(v)):
            for block in range(first, last):
                i = block * ROWS
                _scores(form, u, a, i, v, b, w, tile, s)
                _exclude(i, skip, tile, s)
                reduce_block(kind, i, tile, s, top, total, column_top, column_total)

    @njit(error_model="numpy", nogil=True, cache=True)
    def backward_rows(
        form, kind, first, last, u, a, v, b, w, skip, top, g, column_top, h, gu, ga, gv, gb
    ):
        _ = sources
        s = np.empty(ROWS * TILE, u.dtype)
        kept = np.empty((ROWS, u.shape[1], TILE), u.dtype)
        pv = np.empty((v.shape[1], TILE), u.dtype)
        pb = np.empty(TILE, u.dtype)
        for chunk in range(first, last, CHUNK):
            for tile in range(len(v)):
                pv[:] = 0
                pb[:] = 0
                for block in range(chunk, min(chunk + CHUNK, last)):
                    i = block * ROWS
                    _scores_again(form, u, a, i, v, b, w, tile, s, kept)
                    _exclude(i, skip, tile, s)
                    weigh_block(kind, i, tile, s, top, g, column_top, h, ga, pb)
                    _gradients_again(form, u, i, v, tile, s, gu, pv, kept)
                for j in range(TILE):
                    gb[tile, j] += pb[j]
                for k in range(len(pv)):
                    for j in range(TILE):
                        gv[tile, k, j] += pv[k, j]

    return forward_rows, backward_rows


_FILES = (arithmetic.__file__, forms.__file__, reductions.__file__, __file__)

#: Both reduce the blocks of rows from `first` to `last` and release the GIL. `forward_rows` fills
#: (top, total); `backward_rows` adds to gu, ga (of its rows) and to gv, gb, which must be its own.
forward_rows, backward_rows = _kernels(
    zlib.crc32(b"".join(Path(name).read_bytes() for name in _FILES))
)
