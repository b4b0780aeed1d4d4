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
    BlockReduction,
    BothLogSumExp,
    RowLogSumExp,
    RowSoftplus,
    backward_rows,
    forward_rows,
)
from isolatent.contrast.kernels.one_call import infonce_in_one_call
from isolatent.contrast.kernels.packing import log_sum, mean_gap, pack, pad_quotient, unpack
from isolatent.contrast.kernels.pairwise_scores import (
    PairwiseScores,
    Reduction,
    check_weights,
)
from isolatent.contrast.kernels.recompute import Gradients
from isolatent.parallel import map_ranges, max_threads

__all__ = ["backward", "forward", "infonce", "thread_count"]

Array = NDArray[Any]

ALONE = 2**20  # numbers of pairs below which a second thread costs more than it gains

_NO_COLUMN = np.empty(0, np.int64)
_EMPTY = {np.dtype(name): np.empty(0, name) for name in ("float32", "float64")}

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
    """Return the packed inputs; raise an error for nan, which maxima would drop, and for inf."""
    u, v, p, weights, a, b, row_scale, skip = scores
    rows = _array(u, None)
    empty = _EMPTY[rows.dtype]
    columns, *terms = (_array(x, empty) for x in (v, weights, a, b))
    packed, valid = pack(rows, columns, *terms, _array(skip, _NO_COLUMN), p is None)
    if not valid:
        _refuse_invalid(scores)
    pu, pa, *rest = packed
    return Packed(pu, pa, _pad_scale(row_scale, len(u)), *rest)


def _pad_scale(row_scale: Tensor | None, rows: int) -> Array | None:
    """Return the multipliers of the rows, padded by 1 to whole blocks."""
    if row_scale is None:
        return None
    return np.pad(row_scale.numpy(), (0, -rows % ROWS), constant_values=1)


def _array(x: Tensor | None, default: Any = None) -> Array:
    """Return the contiguous array of a tensor, or the default for None."""
    return default if x is None else np.ascontiguousarray(x.numpy())


def _refuse_invalid(scores: PairwiseScores) -> None:
    """Raise an error that names what is invalid."""
    check_weights(scores.weights)
    for name in ("u", "v"):
        finite = getattr(scores, name).isfinite().all(1)
        if not finite.all():
            row = int((~finite).nonzero()[0])
            raise ValueError(f"{name} must be finite, got nan or inf in row {row}")
    for name in ("row_potential", "column_potential"):
        x = getattr(scores, name)
        if x is not None and bool(x.isnan().any()):
            raise ValueError(f"{name} must not be nan, got nan at {int(x.isnan().nonzero()[0])}")


def forward(
    reduction: Reduction, scores: PairwiseScores, diagonal: bool
) -> tuple[tuple[Tensor, ...], State]:
    """Return the reduced values and the state for `backward`."""
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
    values = [total[:rows].copy() if reduction == "row_softplus" else log_sum(top, total, rows)]
    if reduction == "both_logsumexp":
        values.append(log_sum(column_top.ravel(), column_total.ravel(), columns))
    if diagonal:
        values.append(positive[:rows])
    return tuple(map(torch.from_numpy, values)), state


def backward(
    reduction: Reduction,
    scores: PairwiseScores,
    diagonal: bool,
    state: State,
    upstream: Sequence[Tensor],
) -> Gradients:
    """Return the gradients to all inputs."""
    packed, block_reduction, threads = state.packed, _BLOCK_REDUCTIONS[reduction], state.threads
    rows, columns, dtype = len(scores.u), len(scores.v), packed.u.dtype
    # Gradients of the values of rows and of their scores s_ii, then those to a and m.
    g, positive, ga, gm = np.zeros((4, len(packed.u)), dtype)
    if reduction == "row_softplus":
        g[:rows] = upstream[0].numpy()
    else:
        g = pad_quotient(_array(upstream[0]), state.total)
    column_top = h = packed.b  # read for both_logsumexp only
    if reduction == "both_logsumexp":
        h = pad_quotient(_array(upstream[1]), state.column_total.ravel())
        column_top, h = state.column_top, h.reshape(packed.b.shape)
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
    p = 0.0 if scores.p is None else scores.p
    by_column = gv[0] if threads == 1 else gv.sum(0)
    gradients = unpack(_array(scores.u), _array(scores.v), packed.w, p, gu, by_column)
    to_u, to_v, to_weights = map(torch.from_numpy, gradients)
    return Gradients(
        to_u,
        to_v,
        None if scores.weights is None else to_weights,
        None if scores.row_potential is None else torch.from_numpy(ga[:rows]),
        None if scores.column_potential is None else torch.from_numpy(gb.sum(0).ravel()[:columns]),
        None if scores.row_scale is None else torch.from_numpy(gm[:rows]),
    )


def infonce(
    scores: PairwiseScores, both: bool, with_gradients: bool
) -> tuple[Tensor, Gradients | None]:
    """Return the mean of log Σ_j e^s_ij - s_ii, and its gradients."""
    if thread_count(len(scores.u), len(scores.v)) == 1:
        return _infonce_alone(scores, both, with_gradients)
    reduction: Reduction = "both_logsumexp" if both else "row_logsumexp"
    (*sums, positive), state = forward(reduction, scores, diagonal=True)
    s = positive.numpy()
    value = mean_gap(state.top, state.total, s)
    if both:
        value = 0.5 * (value + mean_gap(state.column_top.ravel(), state.column_total.ravel(), s))
    result = torch.tensor(value, dtype=positive.dtype)
    if not with_gradients:
        return result, None
    g = torch.full_like(positive, 1 / len(positive))
    upstream = [g / len(sums)] * len(sums) + [-g]
    return result, backward(reduction, scores, True, state, upstream)


def _infonce_alone(
    scores: PairwiseScores, both: bool, with_gradients: bool
) -> tuple[Tensor, Gradients | None]:
    """Return `infonce` by one thread."""
    u, v, p, weights, a, b, row_scale, skip = scores
    rows, columns = _array(u), _array(v)
    empty = _EMPTY[rows.dtype]
    value, valid, gradients = infonce_in_one_call(
        form_of(p, rows.dtype),
        _BLOCK_REDUCTIONS["both_logsumexp" if both else "row_logsumexp"],
        both,
        0.0 if p is None else p,
        rows,
        columns,
        *(_array(x, empty) for x in (weights, a, b)),
        _pad_scale(row_scale, len(rows)),
        _array(skip, _NO_COLUMN),
        with_gradients,
    )
    if not valid:
        _refuse_invalid(scores)
    result = torch.scalar_tensor(value, dtype=u.dtype)
    if not with_gradients:
        return result, None
    gu, gv, gw, ga, gb, gm = gradients
    return result, Gradients(
        torch.from_numpy(gu),
        torch.from_numpy(gv),
        None if weights is None else torch.from_numpy(gw),
        None if a is None else torch.from_numpy(ga[: len(rows)]),
        None if b is None else torch.from_numpy(gb[: len(columns)]),
        None if row_scale is None else torch.from_numpy(gm[: len(rows)]),
    )
