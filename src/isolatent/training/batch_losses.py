"""Losses of batches: encode a batch, apply a loss to its codes, and describe the loss."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from isolatent.contrast import (
    ConstantPotential,
    ContrastiveLoss,
    Ensemble,
    InfoNCE,
    PosteriorInfoNCE,
)
from isolatent.inference import encode_chunks
from isolatent.pairs import Batch
from isolatent.training.relaxations import relaxations_of

__all__ = [
    "all_observations",
    "describe_loss",
    "encode_batch",
    "encode_parts",
    "has_bound",
    "loss_of",
    "options_of",
    "score_pairs",
    "without_gathering",
]


def loss_of(loss: nn.Module, codes: Batch) -> Tensor:
    """Return the loss of codes, with their negatives, and with their tags if it takes tags."""
    if codes.blocks is not None:
        # One pair has no negatives; a loss of it would be an error.
        blocks = [block for block in codes.split_blocks() if len(block) > 1]
        if not blocks:
            raise ValueError("a batch must have a block of at least two pairs, got none")
        total = sum(len(block) for block in blocks)
        return torch.stack([loss_of(loss, b) * (len(b) / total) for b in blocks]).sum()
    options: dict[str, Tensor] = {}
    negatives = codes.unpaired if codes.negatives is None else codes.negatives
    if negatives is not None:
        options["negatives"] = negatives
    if codes.tags is not None and "tags" in options_of(loss):
        options["tags"] = codes.tags
    value: Tensor = loss(codes.x, codes.x_pos, **options)
    return value


def encode_parts(network: nn.Module, parts: list[Tensor]) -> list[Tensor]:
    """Return the codes of several sets of observations, without gradients."""
    return [encode_chunks(network, part) for part in parts]


def encode_batch(encode: Callable[[list[Tensor]], Sequence[Tensor]], batch: Batch) -> Batch:
    """Return the codes of a batch and of its negatives.

    Args:
        encode: Maps anchors, positives and, flattened, negatives to codes.
        batch: The observations.
    """
    parts = [batch.x, batch.x_pos]
    shape: tuple[int, ...] = ()
    if batch.negatives is not None:
        extra = batch.negatives.ndim - batch.x.ndim
        shape = batch.negatives.shape[: 1 + extra]
        parts.append(batch.negatives.flatten(0, extra))
    if batch.unpaired is not None:
        parts.append(batch.unpaired)
    h, h_pos, *rest = encode(parts)
    unpaired = None if batch.unpaired is None else rest.pop()
    tags, blocks = (
        None if part is None else part.to(h.device) for part in (batch.tags, batch.blocks)
    )
    negatives = rest[0].view(*shape, -1) if rest else None
    return Batch(h, h_pos, negatives, tags, unpaired, blocks)


def all_observations(batch: Batch) -> Tensor:
    """Return the observations of pairs, or their codes, and the unpaired ones, in one tensor."""
    parts = (batch.x, batch.x_pos, batch.unpaired)
    return torch.cat([part for part in parts if part is not None])


def has_bound(loss: nn.Module, batch: Batch) -> bool:
    """Return whether log B minus the loss is a lower bound on information.

    It is for InfoNCE whose negatives are the other positives of the batch.
    """
    across = isinstance(loss, InfoNCE) and loss.negatives_from == "across"
    across |= isinstance(loss, PosteriorInfoNCE)
    return across and batch.negatives is None


def describe_loss(loss: nn.Module) -> str:
    """Return the name of a loss, and of its potentials if it has some."""
    if isinstance(loss, Ensemble):
        return f"ensemble of {' and '.join(dict.fromkeys(map(describe_loss, loss.losses)))}"
    name = type(loss).__name__
    if not isinstance(loss, ContrastiveLoss):
        return name
    potentials = [module for module in (loss.potential, loss.potential_pos) if module is not None]
    parts = []
    if potentials:
        constant = all(isinstance(module, ConstantPotential) for module in potentials)
        parts.append(f"{'constant' if constant else 'learned'} potentials")
    parts += [f"learned {relaxation.replace('_', ' ')}" for relaxation in relaxations_of(loss)]
    if not parts:
        return name
    return f"{name} with {' and '.join([', '.join(parts[:-1]), parts[-1]] if parts[1:] else parts)}"


def score_pairs(
    network: nn.Module, loss: nn.Module, pairs: Batch, batch_size: int
) -> tuple[float, float]:
    """Return the mean over batches of log B - loss, and the mean of log B, its upper bound.

    Where log B - loss is no bound on information, the mean of -loss, and 0.
    """
    total = most = 0.0
    with torch.no_grad():
        for part in _parts(pairs, batch_size):
            codes = encode_batch(partial(encode_parts, network), part)
            value = float(loss_of(loss, codes))
            offset = math.log(part.n_candidates) if has_bound(loss, part) else 0.0
            total += (offset - value) * len(part) / len(pairs)
            most += offset * len(part) / len(pairs)
    return total, most


def mean_log_candidates(pairs: Batch, batch_size: int) -> float:
    """Return the mean of log B, as :func:`score_pairs` does for losses with a bound."""
    parts = _parts(pairs, batch_size)
    return sum(math.log(part.n_candidates) * len(part) / len(pairs) for part in parts)


def _parts(pairs: Batch, batch_size: int) -> Iterator[Batch]:
    """Yield parts of equal size, of at most ``batch_size`` pairs."""
    for rows in torch.arange(len(pairs)).tensor_split(math.ceil(len(pairs) / batch_size)):
        yield pairs.rows(slice(int(rows[0]), int(rows[-1]) + 1))


def options_of(loss: nn.Module) -> set[str]:
    """Return which of ``negatives`` and ``tags`` a loss takes."""
    parameters = inspect.signature(loss.forward).parameters
    optional = {"negatives", "tags"}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return optional
    return optional & set(parameters)


@contextmanager
def without_gathering(objective: nn.Module) -> Iterator[None]:
    """Compute the objective in this process alone, on pairs that all processes have."""
    if not isinstance(objective, ContrastiveLoss | Ensemble):
        yield
        return
    gather, objective.gather = objective.gather, False
    try:
        yield
    finally:
        objective.gather = gather
