r"""Reductions over all pairs of codes, without an array of all pairs.

With scores :math:`s_{ij} = -d(u_i, v_j) - a_i - b_j`, where d is :math:`-\sum_k w_k u_k v_k` for
``p=None`` and :math:`\sum_k w_k |u_k - v_k|^p` for a real p >= 1,

* `row_logsumexp` is :math:`\log\sum_j e^{s_{ij}}`,
* `row_softplus` is :math:`\sum_j \log(1 + e^{s_{ij}})`,
* `both_logsumexp` is the first over columns and over rows in one pass instead of two.

Gradients flow to u, v, the weights and both potentials. The engines compute the same numbers:

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

from typing import Literal

import torch
from torch import Tensor

from isolatent.checks import check_one_of, check_real
from isolatent.contrast.kernels import blockwise, dense
from isolatent.contrast.kernels.recompute import Pairs, Reduction, reduce_pairs

__all__ = ["ENGINES", "both_logsumexp", "choose_engine", "row_logsumexp", "row_softplus"]

ENGINES = ("auto", "dense", "blockwise", "numba")


def row_logsumexp(
    u: Tensor,
    v: Tensor,
    *,
    p: float | None,
    weights: Tensor | None = None,
    row_potential: Tensor | None = None,
    column_potential: Tensor | None = None,
    skip: Tensor | None = None,
    engine: str = "auto",
) -> Tensor:
    r"""The log-sum-exp :math:`\log\sum_j e^{s_{ij}}` of each row.

    Args:
        u: Rows (B, n), float32 or float64.
        v: Columns (M, n).
        p: The power of the distance, at least 1, or None for the dot product.
        weights: w > 0 (n,); None for 1.
        row_potential: a (B,); None for 0.
        column_potential: b (M,); None for 0.
        skip: For each row the index of one column that does not count, or -1 (B,), int64.
        engine: "auto", "dense", "blockwise" or "numba"; see the module.

    Returns:
        One value for each row (B,); -inf, with zero gradient, for a row without columns.

    Example:
        >>> u = torch.tensor([[0.0], [1.0]])
        >>> row_logsumexp(u, u, p=1, engine="dense")  # log(1 + e^-1), twice
        tensor([0.3133, 0.3133])
        >>> row_logsumexp(u, u, p=1, skip=torch.arange(2), engine="dense")
        tensor([-1., -1.])
    """
    pairs = _check(p, u, v, weights, row_potential, column_potential, skip)
    return _reduce("row_logsumexp", pairs, engine)[0]


def row_softplus(
    u: Tensor,
    v: Tensor,
    *,
    p: float | None,
    weights: Tensor | None = None,
    row_potential: Tensor | None = None,
    column_potential: Tensor | None = None,
    skip: Tensor | None = None,
    engine: str = "auto",
) -> Tensor:
    r"""The sum :math:`\sum_j \log(1 + e^{s_{ij}})` of each row (B,).

    Args are those of `row_logsumexp`.

    Example:
        >>> u = torch.tensor([[0.0], [1.0]])
        >>> row_softplus(u, u, p=1, engine="dense")  # log 2 + log(1 + e^-1)
        tensor([1.0064, 1.0064])
    """
    pairs = _check(p, u, v, weights, row_potential, column_potential, skip)
    return _reduce("row_softplus", pairs, engine)[0]


def both_logsumexp(
    u: Tensor,
    v: Tensor,
    *,
    p: float | None,
    weights: Tensor | None = None,
    row_potential: Tensor | None = None,
    column_potential: Tensor | None = None,
    skip: Tensor | None = None,
    engine: str = "auto",
) -> tuple[Tensor, Tensor]:
    r"""The log-sum-exp over columns (B,) and over rows (M,) of the same scores.

    Args are those of `row_logsumexp`; a skipped pair counts in neither.

    Example:
        >>> rows, columns = both_logsumexp(torch.eye(2), torch.eye(2)[:1], p=None, engine="dense")
        >>> rows, columns  # the scores are [[1], [0]]
        (tensor([1., 0.]), tensor([1.3133]))
    """
    pairs = _check(p, u, v, weights, row_potential, column_potential, skip)
    rows, columns = _reduce("both_logsumexp", pairs, engine)
    return rows, columns


def choose_engine(engine: str, u: Tensor) -> Literal["dense", "blockwise", "numba"]:
    """The engine that a name stands for: "auto" is numba for tensors on a CPU, else blockwise.

    Example:
        >>> choose_engine("auto", torch.zeros(2, 3))
        'numba'
    """
    check_one_of("engine", engine, ENGINES)
    on_cpu = u.device.type == "cpu"
    if engine == "auto":
        return "numba" if on_cpu else "blockwise"
    if engine == "numba":
        if not on_cpu:
            raise ValueError(
                f"engine='numba' works on CPU tensors only, got u on device '{u.device}'; "
                "use engine='blockwise' or 'auto'"
            )
        return "numba"
    return "dense" if engine == "dense" else "blockwise"


def _reduce(reduction: Reduction, pairs: Pairs, engine: str) -> tuple[Tensor, ...]:
    name = choose_engine(engine, pairs.u)
    if name == "dense":
        return dense.reduce_pairs(reduction, pairs)
    if name == "blockwise":
        return reduce_pairs(name, blockwise, reduction, pairs)
    # Here, not above: numba takes half a second to import, which only its users should pay.
    from isolatent.contrast.kernels import numba_engine

    return reduce_pairs(name, numba_engine, reduction, pairs)


def _check(
    p: float | None,
    u: Tensor,
    v: Tensor,
    weights: Tensor | None,
    row_potential: Tensor | None,
    column_potential: Tensor | None,
    skip: Tensor | None,
) -> Pairs:
    """The arguments as `Pairs`, with shapes and types as promised."""
    if u.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"u must be a tensor of float32 or float64, got {u.dtype}")
    if u.ndim != 2 or v.ndim != 2 or u.shape[1] != v.shape[1] or 0 in (*u.shape, *v.shape):
        raise ValueError(
            "u and v must have shapes (B, n) and (M, n) with B, M and n at least 1, got "
            f"{tuple(u.shape)} and {tuple(v.shape)}"
        )
    expected = (
        ("v", v, v.shape, u.dtype),
        ("weights", weights, u.shape[1:], u.dtype),
        ("row_potential", row_potential, u.shape[:1], u.dtype),
        ("column_potential", column_potential, v.shape[:1], u.dtype),
        ("skip", skip, u.shape[:1], torch.int64),
    )
    for name, x, shape, dtype in expected:
        if x is None:
            continue
        if x.dtype != dtype:
            raise TypeError(f"{name} must be a tensor of {dtype}, got {x.dtype}")
        if x.shape != shape:
            raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(x.shape)}")
        if x.device != u.device:
            raise ValueError(f"{name} must be on u's device '{u.device}', got '{x.device}'")
    if u.device.type == "cpu":  # elsewhere looking at values would wait for the device
        if weights is not None and not bool(((weights > 0) & weights.isfinite()).all()):
            raise ValueError(f"weights must be positive and finite, got {weights.tolist()}")
        if skip is not None and not bool(((skip >= -1) & (skip < len(v))).all()):
            raise ValueError(f"skip must be -1 or a column below {len(v)}, got {skip.tolist()}")
    if p is not None:
        p = check_real("p", p, at_least=1)
    return Pairs(p, u, v, weights, row_potential, column_potential, skip)
