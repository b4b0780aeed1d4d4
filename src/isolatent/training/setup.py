"""Set up a run from pairs and beliefs: hold pairs out, fit the whitening, build the modules."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from isolatent.checks import IsolatentWarning
from isolatent.contrast import ContrastiveLoss, Ensemble, LinearDynamics, NetworkPotential
from isolatent.contrast.posteriors import posterior_size
from isolatent.encoders import Anscombe, Whitening
from isolatent.inference import dtype_of
from isolatent.pairs import Batch, FinitePairSource, PairSource, SplitError, UnpairedPairs
from isolatent.pairs.separate_recordings import SeparateRecordings
from isolatent.streams import (
    draws_globally,
    layers_from_stream,
    random_stream,
    stream_for,
)
from isolatent.theory import Beliefs
from isolatent.training.assembly import (
    WHITENED,
    build_encoder,
    build_recording_encoders,
    build_saturated_loss,
    may_lose_factors,
)
from isolatent.training.batch_losses import encode_parts, options_of
from isolatent.training.capacity import DEFAULT_START, Start
from isolatent.training.contrastive import ContrastiveTraining
from isolatent.training.devices import Processes
from isolatent.training.noise import build_noisy_encoder, build_objective
from isolatent.training.recipe import Recipe, Schedule
from isolatent.training.reconstruction import Reconstruction
from isolatent.training.relaxation_choice import RelaxationChoice, candidates_for
from isolatent.training.relaxations import attach, check_relax, check_relaxable

__all__ = ["Setup", "check_batch", "hold_out", "set_up", "start_from"]

HELD_OUT_SHARE, LARGEST_SHARE = 0.1, 0.2
HELD_OUT_PAIRS = 4096  # more would slow measurements down without making them more precise
LEAST_HELD_OUT_PAIRS = 100  # which may be more than the share
MIN_PAIRS_TO_HOLD_OUT = 20  # with fewer pairs the training pairs are measured
WHITENING_BATCHES, WHITENING_BATCH_SIZE = 4, 4096
FLOAT32_RATIO = 1e3  # largest ratio of a column's mean to its standard deviation in float32
CODE_MODULES = ("potential", "potential_pos", "anchor_scale", "dynamics")  # of a loss


class Setup(NamedTuple):
    """A run that is ready to start.

    Attributes:
        training: The run.
        source: Source of training pairs.
        held_out: Pairs for early stopping.
        shape: Shape of an observation.
    """

    training: ContrastiveTraining
    source: PairSource
    held_out: Batch
    shape: tuple[int, ...]


def set_up(
    encoder: str | nn.Module,
    loss: str | nn.Module,
    source: PairSource,
    seed: int,
    recipe: Recipe,
    beliefs: Beliefs,
    n_components: int,
    *,
    potentials: str | None = None,
    relax: Any = (),
    processes: Processes | None = None,
    holds_out: bool = True,
    held_out_share: float = HELD_OUT_SHARE,
    counts: bool = False,
    start: Start = DEFAULT_START,
) -> Setup:
    """Hold pairs out, estimate the whitening, and build encoder and loss."""
    # Layers draw their first weights from a stream of the run.
    stream = Generator().manual_seed(seed if start.seed is None else start.seed)
    with random_stream(stream), layers_from_stream():
        return _set_up(
            *(encoder, loss, source, seed, recipe, beliefs, n_components),
            potentials=potentials,
            relax=relax,
            processes=processes,
            holds_out=holds_out,
            held_out_share=held_out_share,
            counts=counts,
            start=start,
            stream=stream,
        )


def _set_up(
    encoder: str | nn.Module,
    loss: str | nn.Module,
    source: PairSource,
    seed: int,
    recipe: Recipe,
    beliefs: Beliefs,
    n_components: int,
    *,
    potentials: str | None,
    relax: Any,
    processes: Processes | None,
    holds_out: bool,
    held_out_share: float,
    counts: bool,
    start: Start,
    stream: Generator,
) -> Setup:
    relaxed = check_relax(relax)
    noisy = "noise" in (relaxed or ())
    generator = Generator().manual_seed(seed)
    every = source
    source, held_out = hold_out(source, generator, holds_out, held_out_share)
    nothing_held_out = isinstance(source, FinitePairSource) and source is every
    first = Batch.of(source.sample(WHITENING_BATCH_SIZE, generator))
    x = first.x
    reconstruction = None
    if isinstance(encoder, str):
        whitening = None
        if isinstance(source, SeparateRecordings):
            network = _build_separate(
                *(encoder, source, beliefs, n_components, generator, counts),
                factor_scale="factor_scale" in (relaxed or ()),
                capacity=start.capacity,
            )
        elif encoder in WHITENED and x.ndim == 2:
            whitening = Whitening(x.shape[1]).to(_training_dtype(x))
            _fit_whitening(whitening, source, n_components, generator, counts)
        if noisy:
            network = build_noisy_encoder(
                *(encoder, tuple(x.shape[1:]), beliefs, n_components),
                whitening=whitening,
                counts=counts,
            )
        elif not isinstance(source, SeparateRecordings):
            network = build_encoder(
                *(encoder, tuple(x.shape[1:]), beliefs, n_components),
                factor_scale="factor_scale" in (relaxed or ()),
                whitening=whitening,
                counts=counts,
                capacity=start.capacity,
            )
        if start.capacity is not None and start.capacity.reconstruction > 0:
            assert whitening is not None
            reconstruction = Reconstruction(
                *(n_components, whitening.n_kept),
                width=start.capacity.width,
                weight=start.capacity.reconstruction,
            ).to(_training_dtype(x))
        network.to(_dtype_for(source, x))
    else:
        network = deepcopy(encoder)  # so that the estimator can be fitted again
        if noisy:
            network = build_noisy_encoder(encoder, tuple(x.shape[1:]), beliefs, n_components)
    if isinstance(loss, str):
        objective: nn.Module = build_objective(
            loss, beliefs, n_components, potentials, relaxed or ()
        )
        for name in CODE_MODULES:
            if (module := getattr(objective, name, None)) is not None:
                module.to(dtype_of(network))
    else:
        objective = deepcopy(loss)
        if relaxed:
            check_relaxable(relaxed, objective)
            attach(objective, relaxed, n_components)  # type: ignore[arg-type]
    with stream_for(stream, draws_globally([network])):
        codes = _first_codes(network, x)
    n_outputs = posterior_size(n_components, beliefs.head) if noisy else n_components
    if codes.shape != (2, n_outputs):
        raise ValueError(
            f"encoder must map 2 observations to codes (2, n_components = {n_components}), "
            f"got {tuple(codes.shape)}"
        )
    if torch.equal(x, first.x_pos):
        raise ValueError(
            "X_pos must differ from X: pairs of equal observations carry no information"
        )
    saturated_for = None
    if isinstance(loss, str) and isinstance(encoder, str) and not noisy:
        saturated_for = partial(
            build_saturated_loss, loss, beliefs, n_components, potentials, recipe.batch_size
        )
    with stream_for(stream, draws_globally([network])):
        start_dynamics(objective, network, first)
    choice = None
    if relaxed is None:
        candidates = candidates_for(objective, beliefs, source)
        if nothing_held_out:
            candidates = ()
        provisional: tuple[str, ...] = ()
        if beliefs.head == "free" and "anchor_scale" in candidates and _has_potentials(objective):
            provisional = ("anchor_scale",)
        alone = isinstance(encoder, str) and may_lose_factors(loss, beliefs, ("factor_scale",))
        choice = RelaxationChoice(
            *(candidates, source, network, objective, n_components),
            head=beliefs.head if isinstance(encoder, str) else "free",
            may_lose_factors=alone,
            provisional=provisional,
            saturated_loss=saturated_for,
        )
    moments = isinstance(encoder, str) and may_lose_factors(loss, beliefs, relaxed or ())
    saturated = None if saturated_for is None else saturated_for(relaxed or ())
    training = ContrastiveTraining(
        *(network, objective, recipe, generator, saturated, choice, processes),
        moments=moments,
        can_overfit=isinstance(source, FinitePairSource) and not nothing_held_out,
        reconstruction=reconstruction,
    )
    if start.is_regularised:
        training.schedule = Schedule(recipe, early_stopping=False)
    check_batch(first, objective)
    return Setup(training, source, held_out, tuple(x.shape[1:]))


def _fit_whitening(
    whitening: Whitening,
    source: PairSource,
    n_components: int,
    generator: Generator,
    counts: bool,
) -> None:
    """Estimate a whitening, by pairs if there are enough of them for two disjoint sets."""
    transformed: nn.Module = Anscombe() if counts else nn.Identity()

    def draw(part: PairSource, batches: int) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(batches):
            batch = Batch.of(part.sample(WHITENING_BATCH_SIZE, generator))
            yield transformed(batch.x), transformed(batch.x_pos)

    unpaired: Iterator[Tensor] | None = None
    if isinstance(source, UnpairedPairs):
        most = WHITENING_BATCHES * WHITENING_BATCH_SIZE
        unpaired = map(transformed, source.unpaired_batches(WHITENING_BATCH_SIZE, most))
    parts: tuple[PairSource, PairSource] | None = (source, source)
    n_pairs = WHITENING_BATCHES * WHITENING_BATCH_SIZE
    if isinstance(source, FinitePairSource):
        n_pairs = min(n_pairs, len(source))
        try:
            parts = source.split(0.5, generator)
        except SplitError:
            parts = None
    if parts is None or whitening.n_features <= n_components:
        if unpaired is None:
            whitening.fit(x for x, _ in draw(source, WHITENING_BATCHES))
        else:  # each pair once, so that it counts as much as an unpaired observation
            pairs = source.sample(min(n_pairs, WHITENING_BATCH_SIZE), generator)
            whitening.fit(chain([transformed(Batch.of(pairs).x)], unpaired))
        return
    first, second = (draw(part, WHITENING_BATCHES // 2) for part in parts)
    whitening.fit_pairs(first, second, n_components, n_pairs, unpaired or ())


def _build_separate(
    name: str,
    source: SeparateRecordings,
    beliefs: Beliefs,
    n_components: int,
    generator: Generator,
    counts: bool,
    **options: Any,
) -> nn.Module:
    """Build an encoder for each recording, with a whitening of its own."""
    whitenings: list[Whitening | None] = [None] * len(source.series)
    for k, series in enumerate(source.series if name in WHITENED else ()):
        whitening = Whitening(source.widths[k]).to(source.dtype)
        _fit_whitening(whitening, series, n_components, generator, counts)
        whitenings[k] = whitening
    return build_recording_encoders(
        *(name, source.widths, beliefs, n_components, whitenings), counts=counts, **options
    )


def start_from(training: ContrastiveTraining, encoder: nn.Module) -> None:
    """Let a run start from the weights and the whitening of an encoder of an earlier fit.

    What is estimated after training, such as the calibration of a head, starts anew.
    """
    network, averaged = training.network, training.averaged
    found = dict(encoder.named_parameters())
    for target in [network] if averaged is None else [network, averaged.module]:
        mine = dict(target.named_parameters())
        whitenings = [
            [m for m in part.modules() if isinstance(m, Whitening)] for part in (target, encoder)
        ]
        shapes = [{k: p.shape for k, p in part.items()} for part in (mine, found)]
        same = shapes[0] == shapes[1] and len(whitenings[0]) == len(whitenings[1])
        if not same or any(m.n_features != w.n_features for m, w in zip(*whitenings, strict=True)):
            raise ValueError(
                "warm_start must be False: the encoder of the earlier fit has other layers than "
                "the new one, or its whitening kept another number of directions"
            )
        with torch.no_grad():
            for name, parameter in mine.items():
                parameter.copy_(found[name])
            for new, old in zip(*whitenings, strict=True):
                new.mean.copy_(old.mean)
                new.matrix = old.matrix.clone().to(new.matrix)


def _has_potentials(loss: nn.Module) -> bool:
    slots = (getattr(loss, name, None) for name in ("potential", "potential_pos"))
    return all(isinstance(slot, NetworkPotential) for slot in slots)


def start_dynamics(loss: nn.Module, network: nn.Module, pairs: Batch) -> None:
    """Let linear dynamics start from a regression of the codes of an untrained network."""
    dynamics = getattr(loss, "dynamics", None)
    if isinstance(dynamics, LinearDynamics):
        dynamics.start(*encode_parts(network, [pairs.x, pairs.x_pos]))


def _first_codes(network: nn.Module, x: Tensor) -> Tensor:
    """Return the codes of two observations, to check the encoder."""
    try:
        with torch.no_grad():
            codes: Tensor = network(x[:2].to(dtype_of(network)))
    except RuntimeError as error:
        raise ValueError(
            f"encoder must take observations of shape {tuple(x[:2].shape)}: {error}"
        ) from error
    return codes


def hold_out(
    source: PairSource,
    generator: Generator,
    holds_out: bool = True,
    share: float = HELD_OUT_SHARE,
) -> tuple[PairSource, Batch]:
    """Return the source to train on, and pairs for early stopping."""
    if not isinstance(source, FinitePairSource):
        if hasattr(source, "__len__"):
            warnings.warn(
                f"{type(source).__name__} has __len__ but no split, so it is taken to be endless: "
                "no pairs are held out, and overfitting goes unnoticed",
                IsolatentWarning,
                stacklevel=2,
            )
        return source, Batch.of(source.sample(HELD_OUT_PAIRS, generator))
    kept: Any = source
    if holds_out and len(source) >= MIN_PAIRS_TO_HOLD_OUT:
        share = max(share, min(LARGEST_SHARE, LEAST_HELD_OUT_PAIRS / len(source)))
        share = min(share, HELD_OUT_PAIRS / len(source))
        with suppress(SplitError):  # a recording hardly longer than its lag
            source, kept = source.split(share, generator)
    if len(kept) > HELD_OUT_PAIRS:
        return source, Batch.of(kept.sample(HELD_OUT_PAIRS, generator))
    every = kept.all() if hasattr(kept, "all") else kept.sample(len(kept), generator)
    return source, Batch.of(every)


def check_batch(batch: Batch, loss: nn.Module) -> None:
    """Raise an error, before training, if the loss cannot take what batches carry."""
    members = [*loss.losses] if isinstance(loss, Ensemble) else [loss]
    contrastive = [member for member in members if isinstance(member, ContrastiveLoss)]
    if batch.negatives is None:
        if any(member.negatives_from == "given" for member in contrastive):
            raise ValueError(
                "X must be a pair source with negatives for a loss with negatives_from='given'"
            )
    elif "negatives" not in options_of(loss):
        raise ValueError(f"loss must take negatives=, which these pairs carry, got {loss!r}")
    elif batch.negatives.ndim > batch.x.ndim and any(member.symmetric for member in contrastive):
        raise ValueError(
            "loss must be a module with symmetric=False, such as InfoNCE(Dot(), symmetric=False): "
            "these pairs carry negatives that belong to their anchors"
        )
    if isinstance(loss, Ensemble):
        if batch.tags is None:
            raise ValueError(
                "X must be a pair source with tags for an Ensemble: one loss for each tag"
            )
        known = batch.tags.unique().tolist()
        if not 0 <= known[0] <= known[-1] < len(members):
            raise ValueError(f"tags must be from 0 to {len(members) - 1}, got {known}")


def _dtype_for(source: PairSource, x: Tensor) -> torch.dtype:
    """Return the precision of training; with several recordings, the longest that one needs."""
    if not isinstance(source, SeparateRecordings):
        return _training_dtype(x)
    parts = (x[x[:, 0] == k, 1 : 1 + width] for k, width in enumerate(source.widths))
    needed = {_training_dtype(part) for part in parts}
    return torch.float64 if torch.float64 in needed else torch.float32


def _training_dtype(x: Tensor) -> torch.dtype:
    """Return float32, unless columns vary too little around their means for its digits."""
    rows = x.flatten(1).double()
    varying = rows.std(0) > 0
    short = bool((rows.mean(0).abs() <= FLOAT32_RATIO * rows.std(0))[varying].all())
    return torch.float32 if short else x.dtype
