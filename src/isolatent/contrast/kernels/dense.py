"""The oracle: every score in one differentiable array, written as in the definition."""

from __future__ import annotations

import torch
from torch import Tensor

from isolatent.contrast.kernels.recompute import Pairs, Reduction

__all__ = ["reduce_pairs", "scores"]


def scores(pairs: Pairs) -> Tensor:
    """s_ij = -d(u_i, v_j) - a_i - b_j (B, M), with -inf for the pairs left out."""
    p, u, v, weights, row_potential, column_potential, skip = pairs
    w = torch.ones_like(u[0]) if weights is None else weights
    s = (w * u) @ v.mT if p is None else -(w * (u[:, None] - v).abs() ** p).sum(-1)
    if row_potential is not None:
        s = s - row_potential[:, None]
    if column_potential is not None:
        s = s - column_potential
    if skip is not None:
        left_out = skip[:, None] == torch.arange(len(v), device=v.device)
        s = s.masked_fill(left_out, -torch.inf)  # its gradient is 0, also in an empty row
    return s


def reduce_pairs(reduction: Reduction, pairs: Pairs) -> tuple[Tensor, ...]:
    """The reduced values, differentiable any number of times."""
    s = scores(pairs)
    if reduction == "row_softplus":
        return (torch.logaddexp(s, torch.zeros_like(s)).sum(1),)  # softplus(s) = log(e^s + 1)
    if reduction == "row_logsumexp":
        return (s.logsumexp(1),)
    return s.logsumexp(1), s.logsumexp(0)
