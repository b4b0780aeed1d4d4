"""What is best estimated when the encoder is done."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["fit_loss", "set_scale"]

EVALUATIONS = 40  # of the loss on all pairs, at most
FIT_PAIRS = 16_384


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
    count = max(1, min(FIT_PAIRS, len(h)) // batch)
    batches = [
        *zip(h[:FIT_PAIRS].tensor_split(count), h_pos[:FIT_PAIRS].tensor_split(count), strict=True)
    ]
    optimiser = torch.optim.LBFGS(
        loss.parameters(), max_iter=EVALUATIONS, max_eval=EVALUATIONS, line_search_fn="strong_wolfe"
    )

    def total() -> Tensor:
        optimiser.zero_grad()
        value = sum(loss(a, b) for a, b in batches) / count
        value.backward()
        return value

    optimiser.step(total)
