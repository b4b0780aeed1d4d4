"""Calibrate a trained encoder and its loss in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor, nn

from isolatent.encoders import PrincipalAxes, Straightening
from isolatent.pairs import Batch, PairSource
from isolatent.training.contrastive import ContrastiveTraining

__all__ = ["calibrate", "fit_loss", "set_scale"]

CLOSED_FORM_PAIRS = 65_536
LOSS_PAIRS = 16_384
MAX_BATCHES = 32
MAX_EVALUATIONS = 40  # of the loss on all pairs


def calibrate(
    training: ContrastiveTraining, encoder: nn.Module, loss: nn.Module, source: PairSource
) -> str:
    """Straighten the coordinates or find the axes, where the encoder has the layer for it.

    Returns:
        A description of what was applied; empty if nothing was.
    """
    last = [*encoder.modules()][-1]
    saturated = training.saturated_at is not None
    if not saturated and not isinstance(last, PrincipalAxes):
        return ""
    pairs = Batch.of(source.sample(CLOSED_FORM_PAIRS, Generator().manual_seed(0)))
    h, h_pos = (training.encode(encoder, part) for part in (pairs.x, pairs.x_pos))
    applied = []
    if isinstance(last, Straightening | PrincipalAxes):
        last.fit(h, h_pos)
        h, h_pos = last(h), last(h_pos)
        straight = isinstance(last, Straightening)
        applied.append("coordinates straightened" if straight else "turned to principal axes")
    if saturated:
        set_scale(loss, h, h_pos)
    else:
        fit_loss(loss, h, h_pos, training.recipe.batch_size)
    return ", ".join([*applied, "scale of the loss estimated"])


def set_scale(loss: nn.Module, h: Tensor, h_pos: Tensor) -> None:
    r"""Set the scale of a saturated loss to its maximum-likelihood value.

    For a conditional that is narrow against its space the value has a closed form:
    :math:`n / (p\, E\sum_k |h'_k - h_k|^p)` for an Lp distance; a narrow vMF is normal in n - 1
    dimensions.
    """
    similarity: Any = loss.similarity
    with torch.no_grad():
        if similarity.p is None:
            scale = (h.shape[1] - 1) / (h - h_pos).square().sum(1).mean()
            similarity.log_scale.fill_(scale.log())
        else:
            power = (h - h_pos).abs().pow(similarity.p).sum(1).mean()
            similarity.log_weights.fill_((h.shape[1] / (similarity.p * power)).log())


def fit_loss(loss: nn.Module, h: Tensor, h_pos: Tensor, batch_size: int) -> None:
    """Minimise a loss over its own parameters, in batches of the size it was trained with."""
    count = max(1, min(MAX_BATCHES, min(LOSS_PAIRS, len(h)) // batch_size))
    rows = slice(0, min(len(h), count * batch_size))
    batches = [*zip(h[rows].tensor_split(count), h_pos[rows].tensor_split(count), strict=True)]
    optimiser = torch.optim.LBFGS(
        loss.parameters(),
        max_iter=MAX_EVALUATIONS,
        max_eval=MAX_EVALUATIONS,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = sum(loss(a, b) for a, b in batches) / count
        value.backward()
        return value

    optimiser.step(closure)
