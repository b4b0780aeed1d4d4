"""The autograd function of the engines that recompute scores instead of storing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from isolatent.contrast.kernels.pairwise_scores import PairwiseScores, Reduction

__all__ = ["Engine", "Gradients", "reduce_recomputed"]


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
        self, reduction: Reduction, scores: PairwiseScores
    ) -> tuple[tuple[Tensor, ...], Any]:
        """Return the reduced values and the state for `backward`."""

    def backward(
        self, reduction: Reduction, scores: PairwiseScores, state: Any, upstream: Sequence[Tensor]
    ) -> Gradients:
        """Return gradients, given those of the values; must leave the state as it was."""


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        engine: Engine,
        reduction: Reduction,
        p: float | None,
        *inputs: Tensor | None,
    ) -> Any:
        values, ctx.state = engine.forward(reduction, _detached(p, inputs))
        ctx.name, ctx.engine, ctx.reduction, ctx.p = name, engine, reduction, p
        ctx.save_for_backward(*inputs)
        return values

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        saved = ctx.saved_tensors
        # Scores must come out as they did in the forward pass, in full precision.
        with torch.no_grad(), torch.autocast(saved[0].device.type, enabled=False):
            scores = _detached(ctx.p, saved)
            ours = [g.detach() for g in upstream]
            gradients = list(ctx.engine.backward(ctx.reduction, scores, ctx.state, ours))
        if torch.is_grad_enabled():  # create_graph=True: a second derivative must be refused
            given = [k for k, g in enumerate(gradients) if g is not None]
            sources = [x for x in (*upstream, *saved) if x is not None]
            marked = _Refuse.apply(ctx.name, len(given), *(gradients[k] for k in given), *sources)
            for k, g in zip(given, marked, strict=True):
                gradients[k] = g
        return None, None, None, None, *gradients, None


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
    name: str, engine: Engine, reduction: Reduction, scores: PairwiseScores
) -> tuple[Tensor, ...]:
    """Return the values of a reduction, differentiable once in all floating inputs."""
    if scores.p is None and scores.row_scale is not None:
        scores = scores._replace(u=scores.u * scores.row_scale[:, None], row_scale=None)
    u, v, p, *rest = scores
    return _Recompute.apply(name, engine, reduction, p, u, v, *rest)
