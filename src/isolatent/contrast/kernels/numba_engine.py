"""The numba engine for CPUs: pack tensors for the fused passes, split the rows among threads.

The threads live for one pass (:mod:`isolatent.parallel`).
"""

from __future__ import annotations

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
    """Raise an error for nan, which the fused loops' maxima would drop silently, and for inf."""
    for name in ("u", "v"):
        bad = ~torch.isfinite(getattr(scores, name)).all(1)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise ValueError(f"{name} must be finite, got nan or inf in row {row}")
    for name in ("weights", "row_potential", "column_potential", "row_scale"):
        x = getattr(scores, name)
        if x is not None and bool(x.isnan().any()):
            raise ValueError(f"{name} must not be nan, got nan at {int(x.isnan().nonzero()[0])}")


def forward(reduction: Reduction, scores: PairwiseScores) -> tuple[tuple[Tensor, ...], State]:
    """Return the reduced values and the state for `backward`."""
    _refuse_nonfinite(scores)
    rows, columns, block_reduction = len(scores.u), len(scores.v), _BLOCK_REDUCTIONS[reduction]
    packed = _pack(scores)
    dtype = packed.u.dtype
    form, threads = form_of(scores.p, dtype), thread_count(rows, columns)
    # The initial top is finite, so that a row without columns has no inf - inf.
    top = np.full(len(packed.u), np.finfo(dtype).min, dtype)
    total = np.zeros_like(top)
    shape = packed.b.shape if reduction == "both_logsumexp" else (1, 1)
    tops = np.full((threads, *shape), np.finfo(dtype).min, dtype)  # each thread sees some rows only
    totals = np.zeros_like(tops)

    def work(t: int, first: int, last: int) -> None:
        forward_rows(form, block_reduction, first, last, *packed, top, total, tops[t], totals[t])

    map_ranges(work, len(packed.u) // ROWS, threads)
    column_top = tops.max(0)
    column_total = (totals * np.exp(tops - column_top)).sum(0)
    state = State(form, threads, packed, top, total, column_top, column_total)
    if reduction == "row_softplus":
        return (torch.from_numpy(total[:rows].copy()),), state
    with np.errstate(divide="ignore"):  # log 0 = -inf is the answer for a row without columns
        row = torch.from_numpy((top + np.log(total))[:rows])
        if reduction == "row_logsumexp":
            return (row,), state
        column = torch.from_numpy((column_top + np.log(column_total)).ravel()[:columns])
    return (row, column), state


def _quotient(g: Array, total: Array) -> Array:
    """Return g / total, and 0 where nothing was summed."""
    return np.divide(g, total, out=np.zeros_like(total), where=total > 0)


def backward(
    reduction: Reduction, scores: PairwiseScores, state: State, upstream: Sequence[Tensor]
) -> Gradients:
    """Return the gradients to all inputs."""
    packed, block_reduction, threads = state.packed, _BLOCK_REDUCTIONS[reduction], state.threads
    (rows, n), columns = scores.u.shape, len(scores.v)
    g = np.zeros_like(packed.a)
    g[:rows] = upstream[0].numpy()
    if reduction != "row_softplus":
        g = _quotient(g, state.total)
    column_top, h = np.zeros_like(packed.b), np.zeros_like(packed.b)  # for both_logsumexp only
    if reduction == "both_logsumexp":
        h.ravel()[:columns] = upstream[1].numpy()
        column_top, h = state.column_top, _quotient(h, state.column_total)
    gu, ga, gm = np.zeros_like(packed.u), np.zeros_like(packed.a), np.zeros_like(packed.a)
    gv = np.zeros((threads, *packed.v.shape), gu.dtype)
    gb = np.zeros((threads, *packed.b.shape), gu.dtype)

    def work(t: int, first: int, last: int) -> None:
        backward_rows(
            *(state.form, block_reduction, first, last, *packed),
            *(state.top, g, column_top, h, (gu, ga, gm, gv[t], gb[t])),
        )

    map_ranges(work, len(packed.u) // ROWS, threads)
    u_gradient = torch.from_numpy(gu[:rows, :n])
    flat = gv.sum(0).transpose(0, 2, 1).reshape(-1, packed.v.shape[1])
    v_gradient = torch.from_numpy(flat[:columns, :n])
    u_gradient, v_gradient, weights = _weighted(scores, u_gradient, v_gradient)
    return Gradients(
        u_gradient,
        v_gradient,
        weights,
        None if scores.row_potential is None else torch.from_numpy(ga[:rows]),
        None if scores.column_potential is None else torch.from_numpy(gb.sum(0).ravel()[:columns]),
        None if scores.row_scale is None else torch.from_numpy(gm[:rows]),
    )


def _weighted(
    scores: PairwiseScores, gu: Tensor, gv: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return gradients to u, v and the weights, given those of the passes without factor p w.

    s = Σ_k w_k u_k v_k is linear in u, so dL/dw_k = Σ_i u_ik gu_ik. And |x|^p is homogeneous in
    (u, v): by Euler's identity dL/dw_k = Σ_i gu_ik u_ik + Σ_j gv_jk v_jk with the given gradients.
    Both hold with multipliers of the rows, which the given gradients include. A common shift of u
    and v changes nothing, so they are centred, and summed in float64.
    """
    p, w = scores.p, scores.weights
    if p is None:
        if w is None:
            return gu, gv, None
        return gu * w, gv, (gu.double() * scores.u).sum(0).to(w.dtype)
    if w is None:
        return gu * p, gv * p, None
    centre = scores.u.double().mean(0)
    moment = (gu * (scores.u - centre)).sum(0) + (gv * (scores.v - centre)).sum(0)
    scale = p * w
    return gu * scale, gv * scale, moment.to(w.dtype)
