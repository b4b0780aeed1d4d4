"""The autograd function of the engines that recompute scores instead of storing them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from isolatent.contrast.kernels.pairwise_scores import PairwiseScores, Reduction

__all__ = ["Engine", "Gradients", "infonce_recomputed", "reduce_recomputed", "without_autocast"]


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

    def infonce(
        self, scores: PairwiseScores, both: bool, with_gradients: bool
    ) -> tuple[Tensor, Gradients | None]:
        """Return `mean_infonce` and its gradients, or None for them."""


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
        p: float | None,
        *inputs: Tensor | None,
    ) -> Any:
        values, ctx.state = engine.forward(reduction, _detached(p, inputs), diagonal)
        ctx.name, ctx.engine, ctx.p = name, engine, p
        ctx.reduction, ctx.diagonal = reduction, diagonal
        ctx.save_for_backward(*inputs)
        return values

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        saved = ctx.saved_tensors
        # Scores must come out as they did in the forward pass, in full precision.
        with torch.no_grad(), without_autocast(saved[0].device):
            scores = _detached(ctx.p, saved)
            ours = [g.detach() for g in upstream]
            gradients = ctx.engine.backward(ctx.reduction, scores, ctx.diagonal, ctx.state, ours)
        if torch.is_grad_enabled():  # create_graph=True
            gradients = _refused(ctx.name, gradients, (*upstream, *saved))
        return None, None, None, None, None, *gradients, None


class _Infonce(torch.autograd.Function):
    """`mean_infonce`, whose gradients are computed along with the value.

    A scalar's gradients are known up to the factor that arrives in the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        engine: Engine,
        both: bool,
        with_gradients: bool,
        p: float | None,
        *inputs: Tensor | None,
    ) -> Any:
        value, ctx.gradients = engine.infonce(_detached(p, inputs), both, with_gradients)
        ctx.name = name
        ctx.save_for_backward(*inputs)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        g = upstream[0].detach()
        gradients: Sequence[Tensor | None]
        needed = ctx.needs_input_grad[5:]  # fixed weights are not
        gradients = [
            x * g if need else None for x, need in zip(ctx.gradients, needed, strict=False)
        ]
        if torch.is_grad_enabled():  # create_graph=True
            gradients = _refused(ctx.name, gradients, (*upstream, *ctx.saved_tensors))
        return None, None, None, None, None, *gradients, None


def _refused(
    name: str, gradients: Sequence[Tensor | None], sources: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return gradients which it is an error to differentiate."""
    given = [g for g in gradients if g is not None]
    used = [x for x in sources if x is not None]
    marked = iter(_Refuse.apply(name, len(given), *given, *used))
    return [None if g is None else next(marked) for g in gradients]


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
) -> Any:
    """Return the values of a reduction, differentiable once in all floating inputs."""
    u, v, p, *rest = _scaled(scores)
    return _Recompute.apply(name, engine, reduction, diagonal, p, u, v, *rest)


def infonce_recomputed(name: str, engine: Engine, scores: PairwiseScores, both: bool) -> Tensor:
    """Return `mean_infonce`, differentiable once in all floating inputs."""
    u, v, p, *rest = _scaled(scores)
    differentiable = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (u, v, *rest)
    )
    value: Tensor = _Infonce.apply(name, engine, both, differentiable, p, u, v, *rest)
    return value


def _scaled(scores: PairwiseScores) -> PairwiseScores:
    """Return the scores with `row_scale` multiplied into u, if they are inner products."""
    if scores.p is not None or scores.row_scale is None:
        return scores
    return scores._replace(u=scores.u * scores.row_scale[:, None], row_scale=None)
