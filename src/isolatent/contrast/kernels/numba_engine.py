"""The numba engine for CPUs: pack tensors for the fused passes, split the rows among threads.

The threads live for one pass (:mod:`isolatent.parallel`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isolatent.contrast.kernels.forms import Form, form_of
from isolatent.contrast.kernels.fused import (
    ROWS,
    TILE,
    BlockReduction,
    BothLogSumExp,
    RowLogSumExp,
    RowSoftplus,
    backward_rows,
    forward_rows,
)
from isolatent.contrast.kernels.pairwise_scores import PairwiseScores, Reduction
from isolatent.contrast.kernels.recompute import Gradients
from isolatent.parallel import map_ranges, max_threads

__all__ = ["backward", "forward", "thread_count"]

Array = NDArray[Any]

ALONE = 2**20  # numbers of pairs below which a second thread costs more than it gains

_BLOCK_REDUCTIONS: dict[Reduction, BlockReduction] = {
    "row_logsumexp": RowLogSumExp(),
    "row_softplus": RowSoftplus(),
    "both_logsumexp": BothLogSumExp(),
}


class Packed(NamedTuple):
    """The inputs, padded to whole blocks of rows and whole tiles of columns."""

    u: Array  # (rows, n), n rounded up to an even number
    a: Array  # (rows,)
    m: Array | None  # (rows,)
    v: Array  # (tiles, n, TILE)
    b: Array  # (tiles, TILE)
    w: Array  # (n,)
    skip: Array  # (rows,)


class State(NamedTuple):
    """State of the forward pass for the backward pass; columns only for `both_logsumexp`."""

    form: Form
    threads: int
    packed: Packed
    top: Array
    total: Array
    column_top: Array
    column_total: Array


def thread_count(rows: int, columns: int) -> int:
    """Return the number of threads that share the rows: torch's, at most NUMBA_NUM_THREADS."""
    if rows * columns < ALONE:
        return 1
    return max(1, min(max_threads(), -(-rows // ROWS)))


def _pack(scores: PairwiseScores) -> Packed:
    (rows, n), columns = scores.u.shape, len(scores.v)
    height, width, tiles = rows + -rows % ROWS, n + n % 2, -(-columns // TILE)
    dtype = scores.u.numpy().dtype
    weights = 1 if scores.weights is None else scores.weights.numpy()
    u, v = np.zeros((height, width), dtype), np.zeros((tiles * TILE, width), dtype)
    u[:rows, :n] = scores.u.numpy() * weights if scores.p is None else scores.u.numpy()
    v[:columns, :n] = scores.v.numpy()
    w = np.zeros(width, dtype)
    w[:n] = weights
    a, b = np.full(height, np.inf, dtype), np.full(tiles * TILE, np.inf, dtype)
    a[:rows] = 0 if scores.row_potential is None else scores.row_potential.numpy()
    b[:columns] = 0 if scores.column_potential is None else scores.column_potential.numpy()
    m = None
    if scores.row_scale is not None:
        m = np.ones(height, dtype)
        m[:rows] = scores.row_scale.numpy()
    skip = np.full(height, -1, np.int64)
    skip[:rows] = -1 if scores.skip is None else scores.skip.numpy()
    packed_v = np.ascontiguousarray(v.reshape(tiles, TILE, width).transpose(0, 2, 1))
    return Packed(u, a, m, packed_v, b.reshape(tiles, TILE), w, skip)


def _refuse_nonfinite(scores: PairwiseScores) -> None:
    """Raise an error for nan, which the fused loops' maxima would drop silently, and for inf.

    A sum is finite only if all its terms are; the rows are searched where it is not.
    """
    for name in ("u", "v"):
        x = getattr(scores, name)
        if not math.isfinite(x.sum().item()) and not bool((finite := x.isfinite().all(1)).all()):
            row = int((~finite).nonzero()[0])
            raise ValueError(f"{name} must be finite, got nan or inf in row {row}")
    for name in ("weights", "row_potential", "column_potential", "row_scale"):
        x = getattr(scores, name)
        if x is not None and math.isnan(x.sum().item()) and bool(x.isnan().any()):
            raise ValueError(f"{name} must not be nan, got nan at {int(x.isnan().nonzero()[0])}")


def forward(
    reduction: Reduction, scores: PairwiseScores, diagonal: bool
) -> tuple[tuple[Tensor, ...], State]:
    """Return the reduced values and the state for `backward`."""
    _refuse_nonfinite(scores)
    rows, columns, block_reduction = len(scores.u), len(scores.v), _BLOCK_REDUCTIONS[reduction]
    packed = _pack(scores)
    height, dtype = len(packed.u), packed.u.dtype
    form, threads = form_of(scores.p, dtype), thread_count(rows, columns)
    # The initial top is finite, so that a row without columns has no inf - inf.
    lowest = np.finfo(dtype).min
    top, total = np.full(height, lowest, dtype), np.zeros(height, dtype)
    positive = np.empty(height, dtype)
    shape = packed.b.shape if reduction == "both_logsumexp" else (1, 1)
    tops = np.full((threads, *shape), lowest, dtype)  # each thread sees some rows only
    totals = np.zeros((threads, *shape), dtype)

    def work(t: int, first: int, last: int) -> None:
        forward_rows(
            *(form, block_reduction, first, last, *packed),
            *(top, total, tops[t], totals[t], positive),
        )

    map_ranges(work, height // ROWS, threads)
    column_top, column_total = tops[0], totals[0]
    if threads > 1:
        column_top = tops.max(0)
        column_total = (totals * np.exp(tops - column_top)).sum(0)
    state = State(form, threads, packed, top, total, column_top, column_total)
    values = []
    if reduction == "row_softplus":
        values.append(total[:rows].copy())
    else:
        values.append(_log_sum(top, total)[:rows])
    if reduction == "both_logsumexp":
        values.append(_log_sum(column_top, column_total).ravel()[:columns])
    if diagonal:
        values.append(positive[:rows])
    return tuple(map(torch.from_numpy, values)), state


def _log_sum(top: Array, total: Array) -> Array:
    with np.errstate(divide="ignore"):  # log 0 = -inf is the answer for a row without columns
        return top + np.log(total)


def _quotient(g: Array, total: Array) -> Array:
    """Return g / total, and 0 where nothing was summed."""
    return np.divide(g, total, out=np.zeros_like(total), where=total > 0)


def backward(
    reduction: Reduction,
    scores: PairwiseScores,
    diagonal: bool,
    state: State,
    upstream: Sequence[Tensor],
) -> Gradients:
    """Return the gradients to all inputs."""
    packed, block_reduction, threads = state.packed, _BLOCK_REDUCTIONS[reduction], state.threads
    (rows, n), columns, dtype = scores.u.shape, len(scores.v), packed.u.dtype
    # Gradients of the values of rows and of their scores s_ii, then those to a and m.
    g, positive, ga, gm = np.zeros((4, len(packed.u)), dtype)
    g[:rows] = upstream[0].numpy()
    if reduction != "row_softplus":
        g = _quotient(g, state.total)
    column_top = h = packed.b  # not read, but for both_logsumexp
    if reduction == "both_logsumexp":
        h = np.zeros(packed.b.shape, dtype)
        h.ravel()[:columns] = upstream[1].numpy()
        column_top, h = state.column_top, _quotient(h, state.column_total)
    if diagonal:
        positive[:rows] = upstream[-1].numpy()
    gu = np.zeros(packed.u.shape, dtype)
    gv = np.zeros((threads, *packed.v.shape), dtype)
    gb = np.zeros((threads, *packed.b.shape), dtype)

    def work(t: int, first: int, last: int) -> None:
        backward_rows(
            *(state.form, block_reduction, first, last, *packed),
            *(state.top, g, column_top, h, positive, (gu, ga, gm, gv[t], gb[t])),
        )

    map_ranges(work, len(packed.u) // ROWS, threads)
    by_column = (gv[0] if threads == 1 else gv.sum(0)).transpose(0, 2, 1)
    v_gradient = by_column.reshape(-1, packed.v.shape[1])[:columns, :n]
    return Gradients(
        *_weighted(scores, gu[:rows, :n], v_gradient),
        None if scores.row_potential is None else torch.from_numpy(ga[:rows]),
        None if scores.column_potential is None else torch.from_numpy(gb.sum(0).ravel()[:columns]),
        None if scores.row_scale is None else torch.from_numpy(gm[:rows]),
    )


def _weighted(scores: PairwiseScores, gu: Array, gv: Array) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return gradients to u, v and the weights, given those of the passes without factor p w.

    s = Σ_k w_k u_k v_k is linear in u, so dL/dw_k = Σ_i u_ik gu_ik. And |x|^p is homogeneous in
    (u, v): by Euler's identity dL/dw_k = Σ_i gu_ik u_ik + Σ_j gv_jk v_jk with the given gradients.
    Both hold with multipliers of the rows, which the given gradients include. A common shift of u
    and v changes nothing, so they are centred, and summed in float64.
    """
    p, u, v = scores.p, scores.u.numpy(), scores.v.numpy()
    w = None if scores.weights is None else scores.weights.numpy()
    to_u = to_v = moment = None
    if p is None:
        to_u, to_v = w, None
        moment = None if w is None else _moment(gu, u)
    else:
        to_u = to_v = p if w is None else p * w
        if w is not None:
            centre = u.mean(0, dtype=np.float64)
            moment = _moment(gu, u - centre) + _moment(gv, v - centre)
    return (
        torch.from_numpy(gu if to_u is None else gu * to_u),
        torch.from_numpy(gv if to_v is None else gv * to_v),
        None if moment is None else torch.from_numpy(moment.astype(gu.dtype)),
    )


def _moment(g: Array, x: Array) -> Array:
    """Return Σ_i g_ik x_ik for each k, in float64."""
    return np.einsum("ik,ik->k", g, x, dtype=np.float64)
