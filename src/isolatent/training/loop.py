"""The training loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from isolatent.contrast import Dot, InfoNCE, Lp
from isolatent.pairs import PairSource
from isolatent.training.recipe import Recipe

__all__ = ["Step", "fit_encoder"]

MEASURE_EVERY = 0.05  # share of the run between two measurements of held-out loss and quality
PATIENCE = 4  # measurements without a better held-out loss after which a run is stopped


@dataclass(frozen=True)
class Step:
    """What is known after a step.

    Attributes:
        number: Steps done.
        total: Steps in all.
        loss: The loss of this step's batch.
        information: InfoNCE's bound log B - loss on the information a pair shares, in nats; None
            for other losses.
        scale: The similarity's scale, or the mean of its weights, if it has them.
        quality: A score of the averaged encoder on known factors, where it was just measured.
        held_out: The averaged encoder's loss on held-out pairs, where it was just measured.
    """

    number: int
    total: int
    loss: float
    information: float | None
    scale: float | None
    quality: float | None = None
    held_out: float | None = None


def fit_encoder(
    encoder: nn.Module,
    loss: nn.Module,
    source: PairSource,
    recipe: Recipe,
    generator: Generator,
    on_step: Callable[[Step], None] = lambda step: None,
    quality: Callable[[nn.Module], float] | None = None,
    held_out: tuple[Tensor, Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """Train ``encoder`` and ``loss`` in place; return the encoder with averaged weights.

    With held-out pairs, training stops once their loss no longer falls, and the encoder is the one
    for which it was least: a network can learn a few thousand pairs by heart.

    Args:
        encoder: Maps observations to codes.
        loss: Called as ``loss(h, h_pos)``; its parameters are trained too.
        source: Where pairs come from.
        recipe: The settings.
        generator: Source of all randomness of the run.
        on_step: Called after every step.
        quality: Scores an encoder where the truth is known; called now and then.
        held_out: Pairs that ``source`` does not give.
        dtype: What observations are converted to.
    """
    parameters = [*encoder.parameters(), *loss.parameters()]
    optimiser = torch.optim.AdamW(
        parameters, betas=(0.9, 0.99), weight_decay=recipe.weight_decay, fused=True
    )
    averaged = AveragedModel(encoder, multi_avg_fn=get_ema_multi_avg_fn(recipe.averaging))
    averaged.eval()  # it is only ever measured
    measure_every = max(1, round(recipe.steps * MEASURE_EVERY))
    best, least, worse = averaged.module, math.inf, 0
    for number in range(1, recipe.steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate_at(number - 1)
        x, x_pos = source.sample(recipe.batch, generator)
        value: Tensor = loss(*encoder(torch.cat([x, x_pos]).to(dtype)).chunk(2))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        averaged.update_parameters(encoder)
        current = float(value.detach())
        if not math.isfinite(current):
            raise FloatingPointError(
                f"the loss became {current} at step {number}; try a smaller learning_rate "
                f"than {recipe.learning_rate:g}, or check the data for extreme values"
            )
        measured = missed = None
        if number % measure_every == 0 or number == recipe.steps:
            measured = quality(averaged.module) if quality is not None else None
            if held_out is not None:
                with torch.no_grad():
                    missed = float(loss(*(averaged.module(part.to(dtype)) for part in held_out)))
                best, worse = (
                    (deepcopy(averaged.module), 0) if missed < least else (best, worse + 1)
                )
                least = min(least, missed)
        bound = math.log(recipe.batch) - current if isinstance(loss, InfoNCE) else None
        on_step(Step(number, recipe.steps, current, bound, _scale(loss), measured, missed))
        if worse == PATIENCE:
            break
    return best.eval()


def _scale(loss: nn.Module) -> float | None:
    similarity = getattr(loss, "similarity", None)
    if isinstance(similarity, Dot):
        return float(similarity.scale.detach())
    if isinstance(similarity, Lp):
        return float(similarity.weights.detach().mean())
    return None
