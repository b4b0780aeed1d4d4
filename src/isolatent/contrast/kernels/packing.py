"""Copy tensors into the blocks and tiles of the fused passes, and gradients back.

Compiled, because at small batches some twenty calls of NumPy take longer than the passes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from isolatent.contrast.kernels.fused import ROWS, TILE

__all__ = ["log_sum", "mean_gap", "pack", "pad_quotient", "unpack"]


@njit(error_model="numpy", cache=True)
def pack(u, v, w, a, b, skip, is_dot):
    """Return (u, a, v, b, w, skip), padded as `Packed` has them, and whether they are valid.

    Valid are finite u and v, positive finite w, and a and b without nan. w, a, b and skip may be
    empty, for 1, 0, 0 and -1. Of an inner product w is multiplied into u.
    """
    (rows, n), columns = u.shape, len(v)
    height, width, tiles = rows + -rows % ROWS, n + n % 2, -(-columns // TILE)
    pu = np.zeros((height, width), u.dtype)
    pv = np.zeros((tiles, width, TILE), u.dtype)
    pw = np.zeros(width, u.dtype)
    pa = np.full(height, np.inf, u.dtype)
    pb = np.full((tiles, TILE), np.inf, u.dtype)
    ps = np.full(height, -1, np.int64)
    total = 0.0  # finite only if all its terms are
    invalid = 0
    for k in range(n):
        pw[k] = w[k] if len(w) else 1
        invalid += not 0 < pw[k] < np.inf
    for i in range(rows):
        for k in range(n):
            pu[i, k] = u[i, k] * pw[k] if is_dot else u[i, k]
            total += u[i, k]
        pa[i] = a[i] if len(a) else 0
        invalid += math.isnan(pa[i])
        if len(skip):
            ps[i] = skip[i]
    for j in range(columns):
        for k in range(n):
            pv[j // TILE, k, j % TILE] = v[j, k]
            total += v[j, k]
        pb[j // TILE, j % TILE] = b[j] if len(b) else 0
        invalid += math.isnan(pb[j // TILE, j % TILE])
    return (pu, pa, pv, pb, pw, ps), math.isfinite(total) and invalid == 0


@njit(error_model="numpy", cache=True)
def log_sum(top, total, count):
    """Return top + log(total) of the first rows or columns; -inf where nothing was summed."""
    value = np.empty(count, top.dtype)
    for i in range(count):
        value[i] = top[i] + math.log(total[i])
    return value


@njit(error_model="numpy", cache=True)
def mean_gap(top, total, positive):
    """Return the mean of top + log(total) - s_ii, in float64.

    The log-sum-exp would be rounded by more than the difference where scores are large. top - s_ii
    is exact for close scores, and neither term is negative where the total includes s_ii.
    """
    value = 0.0
    for i in range(len(positive)):
        value += (np.float64(top[i]) - positive[i]) + math.log(np.float64(total[i]))
    return value / len(positive)


@njit(error_model="numpy", cache=True)
def pad_quotient(g, total):
    """Return g / total, padded by 0, and 0 where nothing was summed."""
    value = np.zeros_like(total)
    for i in range(len(g)):
        if total[i] > 0:
            value[i] = g[i] / total[i]
    return value


@njit(error_model="numpy", cache=True)
def unpack(u, v, w, p, gu, gv):
    """Return the gradients to u, v and w, given those of the passes; p is 0 for an inner product.

    The passes leave out the factor p w. s = Σ_k w_k u_k v_k is linear in u, so
    dL/dw_k = Σ_i u_ik gu_ik. And |x|^p is homogeneous in (u, v): by Euler's identity
    dL/dw_k = Σ_i gu_ik u_ik + Σ_j gv_jk v_jk with the given gradients. Both hold with multipliers
    of the rows, which the given gradients include. A common shift of u and v changes nothing, so
    they are centred, and summed in float64.
    """
    (rows, n), columns = u.shape, len(v)
    to_u, to_v = np.empty((rows, n), u.dtype), np.empty((columns, n), u.dtype)
    centre, moment = np.zeros(n), np.zeros(n)
    if p != 0:
        for i in range(rows):
            for k in range(n):
                centre[k] += u[i, k] / rows
    for i in range(rows):
        for k in range(n):
            moment[k] += gu[i, k] * (u[i, k] - centre[k])
            to_u[i, k] = gu[i, k] * (w[k] if p == 0 else p * w[k])
    for j in range(columns):
        for k in range(n):
            g = gv[j // TILE, k, j % TILE]
            if p != 0:
                moment[k] += g * (v[j, k] - centre[k])
            to_v[j, k] = g if p == 0 else g * (p * w[k])
    return to_u, to_v, moment.astype(u.dtype)
