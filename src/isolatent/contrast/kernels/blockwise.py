"""The blockwise engine: plain torch in tiles of rows, on any device, with memory for a few tiles.

A log-sum-exp is stored as top = max s and total = Σ exp(s - top). The backward pass recomputes s
and takes exp(s - top) / total, which avoids the rounding of a large logarithm.

Distances are sums over coordinates of direct differences. For p = 2 the expansion
|u|² + |v|² - 2u·v would be one matrix product, but its error is ε|u|² even for the close pairs,
which matter most in the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isolatent.contrast.kernels.pairwise_scores import PairwiseScores, Reduction
from isolatent.contrast.kernels.recompute import Gradients

__all__ = ["CPU_TILE_BYTES", "TILE_BYTES", "backward", "forward", "infonce"]

# Size of one (rows, M) array, of which at most four exist at a time: small enough for the caches of
# a CPU, large enough to keep another device busy.
CPU_TILE_BYTES = 4 * 2**20
TILE_BYTES = 32 * 2**20


class State(NamedTuple):
    """top and total of each row (B,) and, for `both_logsumexp`, of each column (M,)."""

    top: Tensor
    total: Tensor
    column_top: Tensor
    column_total: Tensor


def _tiles(scores: PairwiseScores) -> Iterator[slice]:
    budget = CPU_TILE_BYTES if scores.v.device.type == "cpu" else TILE_BYTES
    rows = max(1, budget // (len(scores.v) * scores.v.element_size()))
    return (slice(i, min(i + rows, len(scores.u))) for i in range(0, len(scores.u), rows))


def _power_(x: Tensor, q: float) -> Tensor:
    """Return |x|^q with |x|⁰ = 1, overwriting x; on a CPU `pow` costs tens of products."""
    x.abs_()
    if q == 1:
        return x
    if q in (1.5, 2.5):
        return x.mul_(x.sqrt()) if q == 1.5 else x.mul_(x * x.sqrt())
    if q in (2, 3, 4):
        square = x * x
        return square.mul_(x if q == 3 else square) if q > 2 else square
    return x.pow_(q)


def _terms(scores: PairwiseScores, rows: slice) -> Tensor:
    """Return -d of one tile of rows (rows, M)."""
    u, v, p, w, *_ = scores
    if p is None:
        return (u[rows] if w is None else u[rows] * w) @ v.mT
    terms = u.new_zeros(rows.stop - rows.start, len(v))
    for k in range(u.shape[1]):
        power = _power_(u[rows, k, None] - v[:, k], p)
        terms.sub_(power if w is None else power.mul_(w[k]))
    return terms


def _scores(scores: PairwiseScores, rows: slice, terms: Tensor) -> Tensor:
    """Return the scores of one tile of rows; without a `row_scale`, `terms` are overwritten."""
    _, _, _, _, a, b, m, _ = scores
    s = terms if m is None else terms * m[rows, None]
    if a is not None:
        s.sub_(a[rows, None])
    if b is not None:
        s.sub_(b)
    return s


def _exclude_(scores: PairwiseScores, rows: slice, s: Tensor) -> Tensor:
    """Return the scores of one tile of rows with -inf for the pairs left out, overwriting them."""
    skip = scores.skip
    if skip is not None:  # gather and scatter: no mask of the size of s, no wait for a GPU
        column = skip[rows, None].clamp_min(0)
        kept = s.gather(1, column).masked_fill_(skip[rows, None] >= 0, -torch.inf)
        s.scatter_(1, column, kept)
    return s


def _absorb(s: Tensor, dim: int, top: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Return (top, total) updated with the scores s along one dimension."""
    new = torch.maximum(top, s.amax(dim))
    more = (s - new.unsqueeze(dim)).exp_().sum(dim)
    return new, total * (top - new).exp() + more


def forward(
    reduction: Reduction, scores: PairwiseScores, diagonal: bool
) -> tuple[tuple[Tensor, ...], State]:
    """Return the reduced values and the state for `backward`."""
    rows, columns = len(scores.u), len(scores.v)
    # The initial top is finite, so that a row without columns has no inf - inf.
    lowest = torch.finfo(scores.u.dtype).min
    top, total = scores.u.new_full((rows,), lowest), scores.u.new_zeros(rows)
    column_top, column_total = scores.u.new_full((columns,), lowest), scores.u.new_zeros(columns)
    positive = [scores.u.new_empty(rows)] if diagonal else []
    for tile in _tiles(scores):
        s = _scores(scores, tile, _terms(scores, tile))
        for part in positive:
            part[tile] = s.diagonal(tile.start)
        s = _exclude_(scores, tile, s)
        if reduction == "row_softplus":
            total[tile] = torch.logaddexp(s, s.new_zeros(())).sum(1)
            continue
        top[tile], total[tile] = _absorb(s, 1, top[tile], total[tile])
        if reduction == "both_logsumexp":
            column_top, column_total = _absorb(s, 0, column_top, column_total)
    state = State(top, total, column_top, column_total)
    if reduction == "row_softplus":
        return (total, *positive), state
    values = [top + total.log()]
    if reduction == "both_logsumexp":
        values.append(column_top + column_total.log())
    return (*values, *positive), state


def _quotient(g: Tensor, total: Tensor) -> Tensor:
    """Return g / total, and 0 where nothing was summed."""
    return torch.where(total > 0, g / total, 0)


def _slopes_(
    reduction: Reduction, s: Tensor, rows: slice, state: State, upstream: Sequence[Tensor]
) -> Tensor:
    """Return dL/ds of one tile, given the scores s, which are overwritten."""
    if reduction == "row_softplus":  # softplus' = sigmoid
        return s.sigmoid_().mul_(upstream[0][rows, None])
    columns = None
    if reduction == "both_logsumexp":
        h = _quotient(upstream[1], state.column_total)
        columns = (s - state.column_top).exp_().mul_(h)
    g = _quotient(upstream[0][rows], state.total[rows])
    c = s.sub_(state.top[rows, None]).exp_().mul_(g[:, None])
    return c if columns is None else c.add_(columns)


def backward(
    reduction: Reduction,
    scores: PairwiseScores,
    diagonal: bool,
    state: State,
    upstream: Sequence[Tensor],
) -> Gradients:
    """Return the gradients to all inputs, computed one tile at a time."""
    u, v, p, w, a, b, m, _ = scores
    gu, gv, gw = torch.zeros_like(u), torch.zeros_like(v), torch.zeros_like(u[0])
    ga, gb, gm = u.new_zeros(len(u)), u.new_zeros(len(v)), u.new_zeros(len(u))
    for rows in _tiles(scores):
        terms = _terms(scores, rows)
        s = _exclude_(scores, rows, _scores(scores, rows, terms))
        c = _slopes_(reduction, s, rows, state, upstream)
        if diagonal:
            c.diagonal(rows.start).add_(upstream[-1][rows])
        ga[rows] = -c.sum(1)
        gb -= c.sum(0)
        if m is not None:
            gm[rows] = terms.mul_(c).sum(1)
            c.mul_(m[rows, None])
        del terms  # no fifth tile beside the four below
        if p is None:  # s = Σ_k w_k u_k v_k
            pulled = c @ v
            gu[rows] = pulled if w is None else pulled * w
            gv += c.mT @ (u[rows] if w is None else u[rows] * w)
            gw += (u[rows] * pulled).sum(0)
            continue
        for k in range(u.shape[1]):  # s = -Σ_k w_k |x|^p with x = u_k - v_k, m being in c
            x = u[rows, k, None] - v[:, k]
            slope = x * c if p == 2 else x.sign().mul_(c)  # c |x|^(p-1) sign(x)
            if p not in (1, 2):
                slope.mul_(_power_(x.clone(), p - 1))
            gu[rows, k] = -p * slope.sum(1)
            gv[:, k] += p * slope.sum(0)
            if w is not None:
                gw[k] -= slope.mul_(x).sum()
    if p is not None and w is not None:
        gu, gv = gu * w, gv * w
    return Gradients(
        gu,
        gv,
        None if w is None else gw,
        None if a is None else ga,
        None if b is None else gb,
        None if m is None else gm,
    )


def infonce(
    scores: PairwiseScores, both: bool, with_gradients: bool
) -> tuple[Tensor, Gradients | None]:
    """Return the mean of log Σ_j e^s_ij - s_ii, and its gradients."""
    reduction: Reduction = "both_logsumexp" if both else "row_logsumexp"
    (*sums, positive), state = forward(reduction, scores, diagonal=True)
    # Not the log-sum-exp minus s_ii: its rounding may exceed the difference. top - s_ii is exact
    # for close scores, and neither term is negative where the sum includes s_ii.
    value = ((state.top - positive) + state.total.log()).mean()
    if both:
        columns = ((state.column_top - positive) + state.column_total.log()).mean()
        value = 0.5 * (value + columns)
    if not with_gradients:
        return value, None
    g = positive.new_full((), 1 / len(positive)).expand_as(positive)
    upstream = [g / len(sums)] * len(sums) + [-g]
    return value, backward(reduction, scores, True, state, upstream)
