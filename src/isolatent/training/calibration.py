"""What is best estimated when the encoder is done."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor, nn

from isolatent.encoders import PrincipalAxes, Straightening
from isolatent.pairs import PairSource
from isolatent.training.engine import Training

__all__ = ["finish", "fit_loss", "set_scale"]

CLOSED_FORM_PAIRS = 65_536
EVALUATIONS = 40  # of the loss on all pairs, at most
FIT_PAIRS = 16_384
FIT_BATCHES = 32  # at most


def finish(training: Training, encoder: nn.Module, loss: nn.Module, source: PairSource) -> None:
    """Straighten the coordinates or find the axes, where the encoder has the layer for it."""
    last = [*encoder.modules()][-1]
    saturated = training.saturated_at is not None
    if not saturated and not isinstance(last, PrincipalAxes):
        return
    pairs = source.sample(CLOSED_FORM_PAIRS, Generator().manual_seed(0))
    h, h_pos = (training.encode_all(encoder, part) for part in pairs)
    if isinstance(last, Straightening | PrincipalAxes):
        last.fit(h, h_pos)
        h, h_pos = last(h), last(h_pos)
    if saturated:
        set_scale(loss, h, h_pos)
    else:
        fit_loss(loss, h, h_pos, training.recipe.batch_size)


def set_scale(loss: nn.Module, h: Tensor, h_pos: Tensor) -> None:
    r"""Set a saturated loss's scale to the most likely one for these codes.

    For a conditional that is narrow against its space that is known in closed form: it is
    :math:`n / (p\, E\sum_k |h'_k - h_k|^p)` for an Lp distance; a vMF is then normal in n - 1
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


def fit_loss(loss: nn.Module, h: Tensor, h_pos: Tensor, batch: int) -> None:
    """Minimise a loss over its own parameters, in batches of the size it was trained with."""
    count = max(1, min(FIT_BATCHES, min(FIT_PAIRS, len(h)) // batch))
    rows = slice(0, min(len(h), count * batch))
    batches = [*zip(h[rows].tensor_split(count), h_pos[rows].tensor_split(count), strict=True)]
    optimiser = torch.optim.LBFGS(
        loss.parameters(), max_iter=EVALUATIONS, max_eval=EVALUATIONS, line_search_fn="strong_wolfe"
    )

    def total() -> Tensor:
        optimiser.zero_grad()
        value = sum(loss(a, b) for a, b in batches) / count
        value.backward()
        return value

    optimiser.step(total)
