"""What is known after a step of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import torch
from torch import Tensor

__all__ = ["Step", "steps_from_tensor", "steps_to_tensor"]


@dataclass(frozen=True)
class Step:
    """What is known after a step.

    Attributes:
        number: Steps done.
        total: Steps in all, as far as is known: it falls when the held-out loss stops falling.
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


def steps_to_tensor(steps: Sequence[Step]) -> Tensor:
    """A table (steps, fields) in which NaN stands for None."""
    rows = [[math.nan if v is None else float(v) for v in astuple(step)] for step in steps]
    return torch.tensor(rows, dtype=torch.float64).view(len(rows), len(fields(Step)))


def steps_from_tensor(table: Tensor) -> list[Step]:
    """The steps that :func:`steps_to_tensor` was given."""
    return [
        Step(int(number), int(total), loss, *(None if math.isnan(v) else v for v in rest))
        for number, total, loss, *rest in table.tolist()
    ]
