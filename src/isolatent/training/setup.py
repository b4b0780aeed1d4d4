"""Everything a run needs, from its seed alone."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from isolatent.contrast import ContrastiveLoss
from isolatent.encoders import Whitening
from isolatent.pairs import ArrayPairs, NothingToHoldOut, PairSource, SeriesPairs
from isolatent.training.assembly import (
    Beliefs,
    build_encoder,
    build_loss,
    build_saturated_loss,
    dtype_of,
)
from isolatent.training.devices import Processes
from isolatent.training.engine import Training
from isolatent.training.recipe import Recipe

__all__ = ["HELD_OUT_PAIRS", "HOLD_OUT_FROM", "Prepared", "prepare"]

HELD_OUT = 0.1  # share of the pairs
HELD_OUT_PAIRS = 4096  # more would make measuring slow, not surer
HOLD_OUT_FROM = 100  # pairs; of fewer, those that are trained with are measured, too
WHITENING_BATCHES, WHITENING_BATCH = 4, 4096  # of pairs, for mean and covariance
DIGITS = 1e3  # mean over standard deviation of a column up to which float32 will do


class Prepared(NamedTuple):
    """What is trained, on which pairs, measured on which, and the shape of an observation."""

    training: Training
    source: PairSource
    held_out: tuple[Tensor, Tensor]
    shape: tuple[int, ...]


def prepare(
    encoder: str | nn.Module,
    loss: str | nn.Module,
    source: PairSource,
    seed: int,
    recipe: Recipe,
    beliefs: Beliefs,
    processes: Processes,
    hold_out: bool = True,
) -> Prepared:
    """Hold pairs out, make encoder and loss, and estimate the whitening."""
    generator = Generator().manual_seed(seed)
    source, held_out = _split(source, generator, hold_out)
    x, x_pos = source.sample(WHITENING_BATCH, generator)
    shape = tuple(x.shape[1:])
    with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global stream
        torch.manual_seed(seed)
        made, objective = _make(encoder, loss, x, beliefs)
        if isinstance(encoder, str):
            for module in made.modules():
                if isinstance(module, Whitening):
                    batches = range(WHITENING_BATCHES)
                    module.fit(source.sample(WHITENING_BATCH, generator)[0] for _ in batches)
        with torch.no_grad():
            codes = made(x[:2].to(dtype_of(made)))
    if codes.shape != (2, beliefs.n):
        raise ValueError(
            f"encoder must map 2 observations to codes (2, n_components = {beliefs.n}), "
            f"got {tuple(codes.shape)}"
        )
    if torch.equal(x, x_pos):
        raise ValueError("X_pos must differ from X: pairs of equal observations tell nothing")
    saturated = None
    if isinstance(loss, str) and isinstance(encoder, str):
        saturated = build_saturated_loss(loss, beliefs, recipe.batch_size)
    training = Training(made, objective, recipe, generator, saturated, processes)
    return Prepared(training, source, held_out, shape)


def _split(
    source: PairSource, generator: Generator, hold_out: bool
) -> tuple[PairSource, tuple[Tensor, Tensor]]:
    """The pairs to train on and those to measure on."""
    if not isinstance(source, ArrayPairs | SeriesPairs):  # taken to be endless
        return source, source.sample(HELD_OUT_PAIRS, generator)
    kept = source
    if hold_out and len(source) >= HOLD_OUT_FROM:
        share = min(HELD_OUT, HELD_OUT_PAIRS / len(source))
        with suppress(NothingToHoldOut):  # a recording hardly longer than its lag
            source, kept = source.split(share, generator)
    few = len(kept) <= HELD_OUT_PAIRS
    return source, kept.all() if few else kept.sample(HELD_OUT_PAIRS, generator)


def _make(
    encoder: str | nn.Module, loss: str | nn.Module, x: Tensor, beliefs: Beliefs
) -> tuple[nn.Module, nn.Module]:
    """Modules by their names; those that were given are copied, so they can be fitted again."""
    if isinstance(encoder, str):
        made = build_encoder(encoder, tuple(x.shape[1:]), beliefs).to(_training_dtype(x))
    else:
        made = deepcopy(encoder)
    if not isinstance(loss, str):
        return made, deepcopy(loss)
    objective: ContrastiveLoss = build_loss(loss, beliefs)
    for potential in (objective.potential, objective.potential_pos):
        if potential is not None:
            potential.to(dtype_of(made))
    return made, objective


def _training_dtype(x: Tensor) -> torch.dtype:
    """float32, unless columns vary so little around their means that it would lose their digits."""
    rows = x.flatten(1).double()
    varying = rows.std(0) > 0
    short = bool((rows.mean(0).abs() <= DIGITS * rows.std(0))[varying].all())
    return torch.float32 if short else x.dtype
