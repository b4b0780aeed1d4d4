r"""Reductions over all pairs of codes, without an array of all pairs.

A `PairwiseScores` holds what defines the scores :math:`s_{ij} = -m_i d(u_i, v_j) - a_i - b_j`,
where d is :math:`-\sum_k w_k u_k v_k` for ``p=None`` and :math:`\sum_k w_k |u_k - v_k|^p` for
p >= 1.

* `row_logsumexp` is :math:`\log\sum_j e^{s_{ij}}`,
* `row_softplus` is :math:`\sum_j \log(1 + e^{s_{ij}})`,
* `both_logsumexp` is the log-sum-exp over columns and over rows, in one pass instead of two,
* `paired_logsumexp` is either of the two and the scores :math:`s_{ii}`, in the same pass,
* `mean_infonce` is the mean of either minus that of the scores :math:`s_{ii}`.

Gradients flow to u, v, the weights w, the potentials a and b, and the multipliers m. The engines
compute the same numbers:

| engine | where | memory |
|---|---|---|
| dense | any device; differentiable twice | B × M × n |
| blockwise | any device, plain torch in tiles of rows | four tiles of 4 MB (GPU: 32 MB) |
| numba | CPUs, compiled on first use and cached on disk | (B + M) × n for each thread |

**Accuracy.** In float64 engines differ by 1e-10 of a result's largest entry, in float32 by 1e-5,
as long as scores are of ordinary size. A float32 score carries an error of some ε|s| (ε = 1.2e-7),
hence so does a log-sum-exp, and the softmax weights in its gradient are off by the factor
1 ± ε|s|: scores of 1e4 leave three digits. Differences u - v are taken directly, so a common offset
of u and v costs nothing unless p is None. In float32 numba counts terms below e^-64 = 1.6e-28 as 0,
and its gradient of the weights loses digits to outliers: a row at 1e6 on both sides leaves four.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from isolatent.checks import check_one_of
from isolatent.contrast.kernels import blockwise
from isolatent.contrast.kernels.pairwise_scores import (
    PairwiseScores,
    Reduction,
    check_scores,
    check_weights,
    dense_infonce,
    reduce_dense,
)
from isolatent.contrast.kernels.recompute import Engine, infonce_recomputed, reduce_recomputed

__all__ = [
    "ENGINES",
    "PairwiseScores",
    "both_logsumexp",
    "choose_engine",
    "mean_infonce",
    "paired_logsumexp",
    "row_logsumexp",
    "row_softplus",
]

ENGINES = ("auto", "dense", "blockwise", "numba")


def row_logsumexp(scores: PairwiseScores, engine: str = "auto") -> Tensor:
    r"""Return the log-sum-exp :math:`\log\sum_j e^{s_{ij}}` of each row.

    Args:
        scores: The scores to reduce.
        engine: "auto", "dense", "blockwise" or "numba"; see the module.

    Returns:
        One value for each row (B,); -inf, with zero gradient, for a row without columns.

    Example:
        >>> import torch
        >>> u = torch.tensor([[0.0], [1.0]])
        >>> row_logsumexp(PairwiseScores(u, u, p=1), engine="dense")  # log(1 + e^-1), twice
        tensor([0.3133, 0.3133])
        >>> row_logsumexp(PairwiseScores(u, u, p=1, skip=torch.arange(2)), engine="dense")
        tensor([-1., -1.])
    """
    values: tuple[Tensor] = _reduce("row_logsumexp", scores, engine)
    return values[0]


def row_softplus(scores: PairwiseScores, engine: str = "auto") -> Tensor:
    r"""Return the sum :math:`\sum_j \log(1 + e^{s_{ij}})` of each row (B,).

    Args:
        scores: The scores to reduce.
        engine: "auto", "dense", "blockwise" or "numba"; see the module.

    Example:
        >>> import torch
        >>> u = torch.tensor([[0.0], [1.0]])
        >>> row_softplus(PairwiseScores(u, u, p=1), engine="dense")  # log 2 + log(1 + e^-1)
        tensor([1.0064, 1.0064])
    """
    values: tuple[Tensor] = _reduce("row_softplus", scores, engine)
    return values[0]


def both_logsumexp(scores: PairwiseScores, engine: str = "auto") -> tuple[Tensor, Tensor]:
    r"""Return the log-sum-exps over columns (B,) and over rows (M,) of the same scores.

    Args:
        scores: The scores to reduce; a skipped pair counts in neither.
        engine: "auto", "dense", "blockwise" or "numba"; see the module.

    Example:
        >>> import torch
        >>> scores = PairwiseScores(torch.eye(2), torch.eye(2)[:1], p=None)  # [[1], [0]]
        >>> both_logsumexp(scores, engine="dense")
        (tensor([1., 0.]), tensor([1.3133]))
    """
    rows, columns = _reduce("both_logsumexp", scores, engine)
    return rows, columns


def paired_logsumexp(
    scores: PairwiseScores, engine: str = "auto", *, both: bool
) -> tuple[list[Tensor], Tensor]:
    r"""Return log-sum-exps, and the scores :math:`s_{ii}` of the pairs of equal index.

    Args:
        scores: The scores to reduce, with as many columns as rows or more.
        engine: "auto", "dense", "blockwise" or "numba"; see the module.
        both: Whether to reduce over rows (M,) as well as over columns (B,).

    Returns:
        One or two log-sum-exps, and the scores (B,), also of the pairs that the sums leave out.

    Example:
        >>> import torch
        >>> scores = PairwiseScores(torch.eye(2), torch.eye(2), p=1)  # [[0, -2], [-2, 0]]
        >>> paired_logsumexp(scores, engine="dense", both=False)
        ([tensor([0.1269, 0.1269])], tensor([-0., -0.]))
    """
    *sums, positive = _reduce(*_paired(scores, both), engine, diagonal=True)
    return sums, positive


def mean_infonce(scores: PairwiseScores, engine: str = "auto", *, both: bool) -> Tensor:
    r"""Return the mean of :math:`\log\sum_j e^{s_{ij}} - s_{ii}`, as one node of the graph.

    Args:
        scores: The scores to reduce, with as many columns as rows, or more unless ``both``.
        engine: "auto", "dense", "blockwise" or "numba"; see the module.
        both: Whether to average with the same of the transposed scores.

    Example:
        >>> import torch
        >>> scores = PairwiseScores(torch.eye(2), torch.eye(2), p=1)  # [[0, -2], [-2, 0]]
        >>> mean_infonce(scores, engine="dense", both=True)
        tensor(0.1269)
    """
    rows, columns = len(scores.u), len(scores.v)
    if both and rows != columns:
        raise ValueError(f"v must have as many rows as u, got {columns} and {rows}")
    _paired(scores, both)
    scores, name, module = _checked(scores, engine)
    if module is None:
        return dense_infonce(scores, both)
    return infonce_recomputed(name, module, scores, both)


def _paired(scores: PairwiseScores, both: bool) -> tuple[Reduction, PairwiseScores]:
    if len(scores.v) < len(scores.u):
        raise ValueError(
            f"v must have as many rows as u or more, got {len(scores.v)} and {len(scores.u)}"
        )
    return "both_logsumexp" if both else "row_logsumexp", scores


def choose_engine(engine: str, u: Tensor) -> str:
    """Return the engine for a name: "auto" is numba for tensors on a CPU, else blockwise.

    Example:
        >>> import torch
        >>> choose_engine("auto", torch.zeros(2, 3))
        'numba'
    """
    check_one_of("engine", engine, ENGINES)
    on_cpu = u.device.type == "cpu"
    if engine == "auto":
        return "numba" if on_cpu else "blockwise"
    if engine == "numba" and not on_cpu:
        raise ValueError(
            f"engine='numba' works on CPU tensors only, got u on device '{u.device}'; "
            "use engine='blockwise' or 'auto'"
        )
    return engine


def _reduce(
    reduction: Reduction,
    scores: PairwiseScores,
    engine: str,
    diagonal: bool = False,
) -> Any:
    """Return the values of a reduction, and the scores s_ii if asked for."""
    scores, name, module = _checked(scores, engine)
    if module is None:
        return reduce_dense(reduction, scores, diagonal)
    return reduce_recomputed(name, module, reduction, scores, diagonal)


def _checked(scores: PairwiseScores, engine: str) -> tuple[PairwiseScores, str, Engine | None]:
    """Return valid scores, the name of the engine and its module, None for "dense"."""
    scores = check_scores(scores)
    name, module = _engine(engine, scores.u)
    if name != "numba":  # numba checks them in compiled code
        check_weights(scores.weights)
    return scores, name, module


def _engine(engine: str, u: Tensor) -> tuple[str, Engine | None]:
    """Return the name of an engine and its module, None for "dense"."""
    name = choose_engine(engine, u)
    if name == "dense":
        return name, None
    if name == "blockwise":
        return name, cast(Engine, blockwise)
    # Here, not above: importing numba takes half a second.
    from isolatent.contrast.kernels import numba_engine

    return name, cast(Engine, numba_engine)
