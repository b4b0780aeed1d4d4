"""The autograd function of the engines that recompute scores instead of storing them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from isolatent.contrast.kernels.pairwise_scores import (
    PairwiseScores,
    Reduction,
    weighted_total,
)

__all__ = ["Engine", "Gradients", "reduce_recomputed", "without_autocast"]


class Gradients(NamedTuple):
    """Gradients to the inputs of `PairwiseScores`; None for an input that was not given."""

    u: Tensor
    v: Tensor
    weights: Tensor | None
    row_potential: Tensor | None
    column_potential: Tensor | None
    row_scale: Tensor | None


class Engine(Protocol):
    """A module with a forward and a backward pass, and a state in between without B × M array.

    Scores with p=None come without `row_scale`, which `reduce_recomputed` multiplies into u.
    """

    def forward(
        self, reduction: Reduction, scores: PairwiseScores, diagonal: bool
    ) -> tuple[tuple[Tensor, ...], Any]:
        """Return the reduced values, the scores s_ii if asked for, and the state for `backward`."""

    def backward(
        self,
        reduction: Reduction,
        scores: PairwiseScores,
        diagonal: bool,
        state: Any,
        upstream: Sequence[Tensor],
    ) -> Gradients:
        """Return gradients, given those of the values; must leave the state as it was."""


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which autocast is off, which takes time only where it is on."""
    if device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        engine: Engine,
        reduction: Reduction,
        diagonal: bool,
        factors: Sequence[float] | None,
        p: float | None,
        *inputs: Tensor | None,
    ) -> Any:
        values, ctx.state = engine.forward(reduction, _detached(p, inputs), diagonal)
        ctx.name, ctx.engine, ctx.p = name, engine, p
        ctx.reduction, ctx.diagonal, ctx.factors = reduction, diagonal, factors
        ctx.save_for_backward(*inputs)
        if factors is None:
            return values
        return weighted_total(values, factors)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        saved = ctx.saved_tensors
        # Scores must come out as they did in the forward pass, in full precision.
        with torch.no_grad(), without_autocast(saved[0].device):
            scores = _detached(ctx.p, saved)
            ours = [g.detach() for g in upstream]
            if ctx.factors is not None:  # of a sum over rows
                ours = [(c * ours[0]).expand(len(scores.u)) for c in ctx.factors]
            gradients = list(
                ctx.engine.backward(ctx.reduction, scores, ctx.diagonal, ctx.state, ours)
            )
        if torch.is_grad_enabled():  # create_graph=True: a second derivative must be refused
            given = [k for k, g in enumerate(gradients) if g is not None]
            sources = [x for x in (*upstream, *saved) if x is not None]
            marked = _Refuse.apply(ctx.name, len(given), *(gradients[k] for k in given), *sources)
            for k, g in zip(given, marked, strict=True):
                gradients[k] = g
        return None, None, None, None, None, None, *gradients, None


def _detached(p: float | None, inputs: Sequence[Tensor | None]) -> PairwiseScores:
    u, v, *rest = (None if x is None else x.detach() for x in inputs)
    return PairwiseScores(u, v, p, *rest)  # type: ignore[arg-type]  # u and v are always given


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


def reduce_recomputed(
    name: str,
    engine: Engine,
    reduction: Reduction,
    scores: PairwiseScores,
    diagonal: bool,
    factors: Sequence[float] | None,
) -> Any:
    """Return the values of a reduction, differentiable once in all floating inputs.

    With ``factors`` return their `weighted_total` instead, whose graph is a single node.
    """
    if scores.p is None and scores.row_scale is not None:
        scores = scores._replace(u=scores.u * scores.row_scale[:, None], row_scale=None)
    u, v, p, *rest = scores
    return _Recompute.apply(name, engine, reduction, diagonal, factors, p, u, v, *rest)
