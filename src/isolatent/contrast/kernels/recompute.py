"""The one autograd function behind the engines that recompute scores instead of storing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

__all__ = ["Engine", "Gradients", "Pairs", "Reduction", "reduce_pairs"]

Reduction = Literal["row_logsumexp", "row_softplus", "both_logsumexp"]


class Pairs(NamedTuple):
    """What defines the scores s_ij = -d(u_i, v_j) - a_i - b_j, and which of them do not count."""

    p: float | None  # None: d = -Σ_k w_k u_k v_k; else d = Σ_k w_k |u_k - v_k|^p
    u: Tensor  # (B, n)
    v: Tensor  # (M, n)
    weights: Tensor | None  # w (n,)
    row_potential: Tensor | None  # a (B,)
    column_potential: Tensor | None  # b (M,)
    skip: Tensor | None  # (B,), the column that row i leaves out, or -1


class Gradients(NamedTuple):
    """Gradients in the order of `Pairs`; None for an input that was not given."""

    u: Tensor
    v: Tensor
    weights: Tensor | None
    row_potential: Tensor | None
    column_potential: Tensor | None


class Engine(Protocol):
    """A module with a forward and a backward pass. What it keeps in between has no B × M array."""

    def forward(self, reduction: Reduction, pairs: Pairs) -> tuple[tuple[Tensor, ...], Any]:
        """The reduced values, and what `backward` wants to know again."""

    def backward(
        self, reduction: Reduction, pairs: Pairs, state: Any, upstream: Sequence[Tensor]
    ) -> Gradients:
        """Gradients from those of the values; may be called again with the same state."""


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, engine: Engine, reduction: Reduction, *pairs: Any) -> Any:
        detached: list[Any] = [x if x is None else x.detach() for x in pairs[1:]]
        values, ctx.state = engine.forward(reduction, Pairs(pairs[0], *detached))
        ctx.name, ctx.engine, ctx.reduction, ctx.p = name, engine, reduction, pairs[0]
        ctx.save_for_backward(*pairs[1:])
        return values

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        saved = ctx.saved_tensors
        # Scores must come out as they did in the forward pass, in full precision.
        with torch.no_grad(), torch.autocast(saved[0].device.type, enabled=False):
            detached: list[Any] = [x if x is None else x.detach() for x in saved]
            pairs = Pairs(ctx.p, *detached)
            ours = [g.detach() for g in upstream]
            gradients = list(ctx.engine.backward(ctx.reduction, pairs, ctx.state, ours))
        if torch.is_grad_enabled():  # create_graph=True: whoever goes on from here must be told
            given = [k for k, g in enumerate(gradients) if g is not None]
            sources = [x for x in (*upstream, *saved) if x is not None]
            marked = _Refuse.apply(ctx.name, len(given), *(gradients[k] for k in given), *sources)
            for k, g in zip(given, marked, strict=True):
                gradients[k] = g
        return None, None, None, None, *gradients, None


class _Refuse(torch.autograd.Function):
    """The identity on the first `count` tensors, which makes differentiating them an error.

    The gradients depend on all sources, but that graph was never recorded: without this a second
    derivative would come out as zero.
    """

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: Tensor) -> Any:
        ctx.name = name
        return tuple(x.view_as(x) for x in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise RuntimeError(
            f"engine={ctx.name!r}: the gradient of a pairwise reduction cannot be differentiated "
            "twice; use engine='dense'"
        )


def reduce_pairs(
    name: str, engine: Engine, reduction: Reduction, pairs: Pairs
) -> tuple[Tensor, ...]:
    """The values of a reduction, differentiable once in all floating inputs."""
    return _Recompute.apply(name, engine, reduction, *pairs)
