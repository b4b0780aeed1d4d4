"""The engine on CPUs: packs tensors for the fused passes and shares the rows among threads.

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
from isolatent.contrast.kernels.fused import backward_rows, forward_rows
from isolatent.contrast.kernels.recompute import Gradients, Pairs, Reduction
from isolatent.contrast.kernels.reductions import ROWS, TILE, Both, Kind, LogSumExp, Softplus
from isolatent.parallel import map_ranges, max_threads

__all__ = ["backward", "forward", "thread_count"]

Array = NDArray[Any]

ALONE = 2**20  # numbers of pairs below which a second thread costs more than it gains

_KINDS: dict[Reduction, Kind] = {
    "row_logsumexp": LogSumExp(),
    "row_softplus": Softplus(),
    "both_logsumexp": Both(),
}


class Packed(NamedTuple):
    """The inputs, padded to whole blocks of rows and whole tiles of columns."""

    u: Array  # (rows, n), n rounded up to an even number
    a: Array  # (rows,)
    v: Array  # (tiles, n, TILE)
    b: Array  # (tiles, TILE)
    w: Array  # (n,)
    skip: Array  # (rows,)


class State(NamedTuple):
    """What the forward pass leaves for the backward pass; column statistics only for `Both`."""

    form: Form
    threads: int
    packed: Packed
    top: Array
    total: Array
    column_top: Array
    column_total: Array


def thread_count(rows: int, columns: int) -> int:
    """How many threads share the rows: torch's number, at most NUMBA_NUM_THREADS."""
    if rows * columns < ALONE:
        return 1
    return max(1, min(max_threads(), -(-rows // ROWS)))


def _pack(pairs: Pairs) -> Packed:
    (rows, n), columns = pairs.u.shape, len(pairs.v)
    height, width, tiles = rows + -rows % ROWS, n + n % 2, -(-columns // TILE)
    dtype = pairs.u.numpy().dtype
    weights = 1 if pairs.weights is None else pairs.weights.numpy()
    u, v = np.zeros((height, width), dtype), np.zeros((tiles * TILE, width), dtype)
    u[:rows, :n] = pairs.u.numpy() * weights if pairs.p is None else pairs.u.numpy()
    v[:columns, :n] = pairs.v.numpy()
    w = np.zeros(width, dtype)
    w[:n] = weights
    a, b = np.full(height, np.inf, dtype), np.full(tiles * TILE, np.inf, dtype)
    a[:rows] = 0 if pairs.row_potential is None else pairs.row_potential.numpy()
    b[:columns] = 0 if pairs.column_potential is None else pairs.column_potential.numpy()
    skip = np.full(height, -1, np.int64)
    skip[:rows] = -1 if pairs.skip is None else pairs.skip.numpy()
    packed_v = np.ascontiguousarray(v.reshape(tiles, TILE, width).transpose(0, 2, 1))
    return Packed(u, a, packed_v, b.reshape(tiles, TILE), w, skip)


def _refuse_unfinite(pairs: Pairs) -> None:
    """The maxima and exponentials of the fused loops would lose a nan silently."""
    for name in ("u", "v"):
        bad = ~torch.isfinite(getattr(pairs, name)).all(1)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise ValueError(f"{name} must be finite, got nan or inf in row {row}")
    for name in ("weights", "row_potential", "column_potential"):
        x = getattr(pairs, name)
        if x is not None and bool(x.isnan().any()):
            raise ValueError(f"{name} must not be nan, got nan at {int(x.isnan().nonzero()[0])}")


def forward(reduction: Reduction, pairs: Pairs) -> tuple[tuple[Tensor, ...], State]:
    """The reduced values and their state."""
    _refuse_unfinite(pairs)
    rows, columns, kind = len(pairs.u), len(pairs.v), _KINDS[reduction]
    packed = _pack(pairs)
    dtype = packed.u.dtype
    form, threads = form_of(pairs.p, dtype), thread_count(rows, columns)
    # The lowest top is finite, so that a row without columns has no inf - inf.
    top = np.full(len(packed.u), np.finfo(dtype).min, dtype)
    total = np.zeros_like(top)
    shape = packed.b.shape if reduction == "both_logsumexp" else (1, 1)
    tops = np.full((threads, *shape), np.finfo(dtype).min, dtype)  # each thread sees some rows only
    totals = np.zeros_like(tops)

    def work(t: int, first: int, last: int) -> None:
        forward_rows(form, kind, first, last, *packed, top, total, tops[t], totals[t])

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
    """The quotient g / total, and 0 where nothing was summed."""
    return np.divide(g, total, out=np.zeros_like(total), where=total > 0)


def backward(
    reduction: Reduction, pairs: Pairs, state: State, upstream: Sequence[Tensor]
) -> Gradients:
    """Gradients to all inputs."""
    packed, kind, threads = state.packed, _KINDS[reduction], state.threads
    (rows, n), columns = pairs.u.shape, len(pairs.v)
    g = np.zeros_like(packed.a)
    g[:rows] = upstream[0].numpy()
    if reduction != "row_softplus":
        g = _quotient(g, state.total)
    column_top, h = np.zeros_like(packed.b), np.zeros_like(packed.b)  # read for `Both` only
    if reduction == "both_logsumexp":
        h.ravel()[:columns] = upstream[1].numpy()
        column_top, h = state.column_top, _quotient(h, state.column_total)
    gu, ga = np.zeros_like(packed.u), np.zeros_like(packed.a)
    gv = np.zeros((threads, *packed.v.shape), gu.dtype)
    gb = np.zeros((threads, *packed.b.shape), gu.dtype)

    def work(t: int, first: int, last: int) -> None:
        backward_rows(
            *(state.form, kind, first, last, *packed),
            *(state.top, g, column_top, h, gu, ga, gv[t], gb[t]),
        )

    map_ranges(work, len(packed.u) // ROWS, threads)
    u_gradient = torch.from_numpy(gu[:rows, :n])
    flat = gv.sum(0).transpose(0, 2, 1).reshape(-1, packed.v.shape[1])
    v_gradient = torch.from_numpy(flat[:columns, :n])
    u_gradient, v_gradient, weights = _weighted(pairs, u_gradient, v_gradient)
    return Gradients(
        u_gradient,
        v_gradient,
        weights,
        None if pairs.row_potential is None else torch.from_numpy(ga[:rows]),
        None if pairs.column_potential is None else torch.from_numpy(gb.sum(0).ravel()[:columns]),
    )


def _weighted(pairs: Pairs, gu: Tensor, gv: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients to u, v and the weights from those of the passes, which lack the factor p w.

    s = Σ_k w_k u_k v_k is linear in u, so dL/dw_k = Σ_i u_ik gu_ik. And |x|^p is homogeneous in
    (u, v): by Euler's identity dL/dw_k = Σ_i gu_ik u_ik + Σ_j gv_jk v_jk with the gradients as they
    come. A common shift of u and v changes nothing, so they are centred, and summed in float64.
    """
    p, w = pairs.p, pairs.weights
    if p is None:
        if w is None:
            return gu, gv, None
        return gu * w, gv, (gu.double() * pairs.u).sum(0).to(w.dtype)
    if w is None:
        return gu * p, gv * p, None
    centre = pairs.u.double().mean(0)
    moment = (gu * (pairs.u - centre)).sum(0) + (gv * (pairs.v - centre)).sum(0)
    scale = p * w
    return gu * scale, gv * scale, moment.to(w.dtype)
