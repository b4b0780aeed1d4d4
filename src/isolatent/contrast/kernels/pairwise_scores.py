r"""The scores of all pairs of rows and columns, and their reductions as the definition has them.

The dense reductions store all scores in one differentiable array. They are the oracle that the
other engines are tested against.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isolatent.checks import check_real

__all__ = [
    "PairwiseScores",
    "Reduction",
    "check_scores",
    "check_weights",
    "dense_infonce",
    "dense_scores",
    "reduce_dense",
]

Reduction = Literal["row_logsumexp", "row_softplus", "both_logsumexp"]


class PairwiseScores(NamedTuple):
    r"""The scores :math:`s_{ij} = -m_i d(u_i, v_j) - a_i - b_j`, not yet computed.

    Attributes:
        u: Rows (B, n), float32 or float64.
        v: Columns (M, n).
        p: The power of the distance :math:`d = \sum_k w_k |u_k - v_k|^p`, at least 1, or None for
            the inner product :math:`d = -\sum_k w_k u_k v_k`.
        weights: w > 0 (n,); None for 1.
        row_potential: a (B,); None for 0.
        column_potential: b (M,); None for 0.
        row_scale: Multipliers m > 0 of the distances of each row (B,); None for 1.
        skip: For each row the index of one column to leave out, or -1 (B,), int64; None for -1.
    """

    u: Tensor
    v: Tensor
    p: float | None
    weights: Tensor | None = None
    row_potential: Tensor | None = None
    column_potential: Tensor | None = None
    row_scale: Tensor | None = None
    skip: Tensor | None = None


def check_scores(scores: PairwiseScores) -> PairwiseScores:
    """Return the scores with p as a float, if shapes, dtypes, devices and values are valid.

    The values of u, v, potentials and weights are left to the engines.
    """
    u, v, p, weights, row_potential, column_potential, row_scale, skip = scores
    if u.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"u must be a tensor of float32 or float64, got {u.dtype}")
    if u.ndim != 2 or v.ndim != 2 or u.shape[1] != v.shape[1] or not (u.numel() and v.numel()):
        raise ValueError(
            "u and v must have shapes (B, n) and (M, n) with B, M and n at least 1, got "
            f"{tuple(u.shape)} and {tuple(v.shape)}"
        )
    (rows, n), columns = u.shape, len(v)
    expected = (
        ("v", v, (columns, n), u.dtype),
        ("weights", weights, (n,), u.dtype),
        ("row_potential", row_potential, (rows,), u.dtype),
        ("column_potential", column_potential, (columns,), u.dtype),
        ("row_scale", row_scale, (rows,), u.dtype),
        ("skip", skip, (rows,), torch.int64),
    )
    for name, x, shape, dtype in expected:
        if x is None:
            continue
        if x.dtype != dtype:
            raise TypeError(f"{name} must be a tensor of {dtype}, got {x.dtype}")
        if x.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(x.shape)}")
        if x.device != u.device:
            raise ValueError(f"{name} must be on u's device '{u.device}', got '{x.device}'")
    if u.device.type == "cpu":  # reading values from another device would wait for it
        if row_scale is not None and not _within(row_scale, 0, math.inf):
            row = int((~((row_scale > 0) & row_scale.isfinite())).nonzero()[0])
            raise ValueError(
                f"row_scale must be positive and finite, got {row_scale[row].item()} at {row}"
            )
        if skip is not None and not _within(skip, -2, len(v)):
            raise ValueError(f"skip must be -1 or a column below {len(v)}, got {skip.tolist()}")
    if p is None or (type(p) is float and 1 <= p < math.inf):
        return scores
    return scores._replace(p=check_real("p", p, at_least=1))


def check_weights(weights: Tensor | None) -> None:
    """Raise an error unless the weights are positive and finite, if they are on a CPU."""
    if weights is not None and weights.device.type == "cpu" and not _within(weights, 0, math.inf):
        raise ValueError(f"weights must be positive and finite, got {weights.tolist()}")


def _within(x: Tensor, above: float, below: float) -> bool:
    """Return whether all numbers are in an open interval; nan is not."""
    least, largest = x.detach().aminmax()
    return above < least.item() and largest.item() < below


def dense_scores(scores: PairwiseScores) -> Tensor:
    """Return all scores (B, M), with -inf for the pairs left out."""
    return _left_out(_all_scores(scores), scores.skip)


def _all_scores(scores: PairwiseScores) -> Tensor:
    u, v, p, weights, row_potential, column_potential, row_scale, _ = scores
    w = torch.ones_like(u[0]) if weights is None else weights
    s = (w * u) @ v.mT if p is None else -(w * (u[:, None] - v).abs() ** p).sum(-1)
    if row_scale is not None:
        s = s * row_scale[:, None]
    if row_potential is not None:
        s = s - row_potential[:, None]
    if column_potential is not None:
        s = s - column_potential
    return s


def _left_out(s: Tensor, skip: Tensor | None) -> Tensor:
    if skip is None:
        return s
    left_out = skip[:, None] == torch.arange(s.shape[1], device=s.device)
    return s.masked_fill(left_out, -torch.inf)  # its gradient is 0, also in an empty row


def reduce_dense(
    reduction: Reduction, scores: PairwiseScores, diagonal: bool
) -> tuple[Tensor, ...]:
    """Return the reduced values, differentiable any number of times.

    With ``diagonal`` the scores s_ii follow, whether or not they are left out of the sums.
    """
    s = _all_scores(scores)
    positive = (s.diagonal(),) if diagonal else ()
    s = _left_out(s, scores.skip)
    if reduction == "row_softplus":  # softplus(s) = log(e^s + 1)
        return torch.logaddexp(s, torch.zeros_like(s)).sum(1), *positive
    if reduction == "row_logsumexp":
        return s.logsumexp(1), *positive
    return s.logsumexp(1), s.logsumexp(0), *positive


def dense_infonce(scores: PairwiseScores, both: bool) -> Tensor:
    """Return `kernels.mean_infonce`, differentiable any number of times.

    s_ii is subtracted from each score, not from the log-sum-exp, whose rounding may exceed the
    difference.
    """
    s = _all_scores(scores)
    positive = s.diagonal()
    s = _left_out(s, scores.skip)
    rows = (s - positive[:, None]).logsumexp(1).mean()
    return 0.5 * (rows + (s - positive).logsumexp(0).mean()) if both else rows
