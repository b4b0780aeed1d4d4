"""Contrastive training: set up a run from pairs and beliefs, and its objective."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute

from isolatent.checks import IsolatentWarning
from isolatent.contrast import (
    ConstantPotential,
    ContrastiveLoss,
    Dot,
    Ensemble,
    InfoNCE,
    LinearDynamics,
    Lp,
    NetworkPotential,
    PosteriorInfoNCE,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
    SphereMoments,
)
from isolatent.contrast.posteriors import posterior_size
from isolatent.encoders import Anscombe, PrincipalAxes, Whitening
from isolatent.inference import dtype_of, encode_chunks
from isolatent.pairs import Batch, FinitePairSource, PairSource, SplitError, UnpairedPairs
from isolatent.pairs.separate_recordings import SeparateRecordings
from isolatent.theory import Beliefs
from isolatent.training.assembly import (
    WHITENED,
    build_encoder,
    build_recording_encoders,
    build_saturated_loss,
    may_lose_factors,
)
from isolatent.training.checkpoints import SavedState
from isolatent.training.devices import Processes
from isolatent.training.engine import Training, WeightAverage
from isolatent.training.noise import build_noisy_encoder, build_objective
from isolatent.training.recipe import Recipe, Schedule
from isolatent.training.reconstruction import Reconstruction, inputs_of
from isolatent.training.relaxation_choice import RelaxationChoice, candidates_for
from isolatent.training.relaxations import (
    attach,
    check_relax,
    check_relaxable,
    detach,
    relatedness,
    relaxations_of,
)
from isolatent.training.restarts import DEFAULT_START, Start

__all__ = [
    "ContrastiveTraining",
    "Setup",
    "check_batch",
    "describe_loss",
    "encode_batch",
    "encode_parts",
    "has_bound",
    "hold_out",
    "loss_of",
    "score_pairs",
    "set_up",
]

HELD_OUT_SHARE, LARGEST_SHARE = 0.1, 0.2
HELD_OUT_PAIRS = 4096  # more would slow measurements down without making them more precise
LEAST_HELD_OUT_PAIRS = 100  # which may be more than the share
MIN_PAIRS_TO_HOLD_OUT = 20  # with fewer pairs the training pairs are measured
WHITENING_BATCHES, WHITENING_BATCH_SIZE = 4, 4096
FLOAT32_RATIO = 1e3  # largest ratio of a column's mean to its standard deviation in float32
# Steps between two measurements of the held-out loss, by the step from which on they apply: often
# at first, since a small data set is overfitted within a few hundred steps.
MEASURE_EVERY = ((1000, 100), (200, 25), (0, 10))
MIN_AVERAGING_STEPS = 50
CODE_MODULES = ("potential", "potential_pos", "anchor_scale", "dynamics")  # of a loss
MOMENTS_WEIGHT = 0.1  # of the penalty that keeps codes uniform on a sphere, at first
# Of Recipe.saturation, for losses with a weight for each code: where some factors vary widely,
# InfoNCE is better for them than the loss that would replace it.
LATER_SATURATION = 0.2
LEVEL_DECAY = 0.9  # of the running mean of the loss that detects saturation


class ContrastiveTraining(Training):
    """Training of an encoder with a contrastive loss.

    Args:
        encoder: Maps observations to codes; trained in place.
        loss: Called as ``loss(h, h_pos)``, with ``negatives=`` and ``tags=`` where batches have
            them and its signature takes them; its parameters are trained too.
        recipe: The settings.
        generator: Source of all randomness of the run.
        saturated_loss: The loss to continue with once ``loss``, an InfoNCE, is saturated: so close
            to zero that its gradient vanishes.
        choice: The relaxations to choose from; None for no choice.
        moments: Whether to keep codes uniform on the sphere at first, by a penalty that falls to
            zero over ``recipe.patience`` steps, see :class:`isolatent.contrast.SphereMoments`. The
            losses that are recorded do not include it.
        processes: The processes that train together; by default this one alone.
        can_overfit: Whether pairs are drawn more than once, and others are held out: the loss then
            counts as saturated only if it is on these as well, and is overfitted otherwise.
        reconstruction: Error of a decoder that is minimised, too; recorded losses leave it out.

    Attributes:
        saturated_at: The last step with ``loss``, after which ``saturated_loss`` is minimised; None
            where ``loss`` is minimised to the end.
    """

    def __init__(
        self,
        encoder: nn.Module,
        loss: nn.Module,
        recipe: Recipe,
        generator: Generator,
        saturated_loss: nn.Module | None = None,
        choice: RelaxationChoice | None = None,
        processes: Processes | None = None,
        *,
        moments: bool = False,
        can_overfit: bool = False,
        reconstruction: Reconstruction | None = None,
    ) -> None:
        modules = {"loss": loss}
        if reconstruction is not None:
            modules["reconstruction"] = reconstruction
        super().__init__(encoder, recipe, generator, modules=modules, processes=processes)
        self.saturated_loss: nn.Module | None = None
        self._set_saturated_loss(saturated_loss)
        if isinstance(loss, ContrastiveLoss | Ensemble) and self.processes.size > 1:
            loss.gather = True
        self.moments = SphereMoments(gather=self.processes.size > 1) if moments else None
        self.saturated_at: int | None = None
        self.choice = choice
        self.can_overfit = can_overfit
        self._is_overfitted = can_overfit  # as far as is known
        self.started_at = 0  # the step before which training had started anew
        self._level: float | None = None  # running mean of the loss of related pairs
        self._information: float | None = None  # of related pairs, where some are unrelated

    def _set_saturated_loss(self, loss: nn.Module | None) -> None:
        """Set the loss to continue with; it leaves out as many pairs as the one before."""
        if isinstance(loss, SaturatedInfoNCE):
            loss.unrelated = getattr(self.saturated_loss, "unrelated", loss.unrelated)
        self.saturated_loss = None if loss is None else loss.to(self.processes.device)
        if isinstance(loss, ContrastiveLoss | Ensemble) and self.processes.size > 1:
            loss.gather = True

    @property
    def objective(self) -> nn.Module:
        """The loss that is minimised now."""
        if self.saturated_at is None or self.saturated_loss is None:
            return self.modules["loss"]
        return self.saturated_loss

    @property
    def saturation(self) -> float:
        """The share of log B below which the loss counts as saturated."""
        loss = self.saturated_loss
        later = isinstance(loss, SaturatedAnInfoNCE) and loss.geometry == "sphere"
        return self.recipe.saturation * (LATER_SATURATION if later else 1.0)

    @property
    def is_narrow(self) -> bool:
        """Whether InfoNCE fell below a share ``recipe.saturation`` of log B."""
        most = self.recipe.saturation * math.log(self.recipe.batch_size)
        return self.saturated_at is not None or (self._level is not None and self._level < most)

    def loss(self, batch: Batch) -> Tensor:
        codes = encode_batch(self._encode, batch)
        value = loss_of(self.objective, codes)
        if self.saturated_at is None and getattr(self.objective, "pairing", None) is not None:
            self._track_related(codes)
        weight = MOMENTS_WEIGHT * (1 - (self.number - self.started_at) / self.recipe.patience)
        if self.moments is not None and weight > 0:
            value = _add_gradient(value, weight * self.moments(codes.x, codes.x_pos))
        if reconstruction := self.modules.get("reconstruction"):
            seen, h = (_all_observations(part) for part in (batch, codes))
            x = seen.to(self.processes.device, self.dtype)
            error = reconstruction(inputs_of(self.network, x), h)
            value = _add_gradient(value, error)
        return value

    def _track_related(self, codes: Batch) -> None:
        """Update the share of unrelated pairs, and the information that the others share."""
        if not isinstance(self.saturated_loss, SaturatedInfoNCE):
            return
        h, h_pos = codes.x.detach(), codes.x_pos.detach()
        share = 1 - self.processes.mean(float(relatedness(self.objective, h, h_pos).mean()))
        before = self.saturated_loss.unrelated
        self.saturated_loss.unrelated = LEVEL_DECAY * before + (1 - LEVEL_DECAY) * min(share, 0.95)
        self._information = self.processes.mean(self.saturated_loss.information(h, h_pos))

    def held_out_loss(self, network: nn.Module, held_out: Batch) -> float:
        if isinstance(self.objective, PosteriorInfoNCE):  # stores all pairs of a batch
            found, most = score_pairs(network, self.objective, held_out, self.recipe.batch_size)
            return most - found
        codes = encode_batch(partial(encode_parts, network), held_out)
        with torch.no_grad(), _without_gathering(self.objective):
            return float(loss_of(self.objective, codes))

    def is_measured(self, number: int) -> bool:
        return number % next(every for start, every in MEASURE_EVERY if number > start) == 0

    def chance_loss(self, batch: Batch) -> float | None:
        """Return log B for InfoNCE with B candidates of each anchor, and None for other losses."""
        if not has_bound(self.objective, batch):
            return None
        share = self.recipe.batch_size / len(batch)  # of this process
        return math.log(share * batch.n_candidates)

    def scale(self) -> float | None:
        similarity = getattr(self.modules["loss"], "similarity", None)
        if isinstance(similarity, Dot):
            return float(similarity.scale.detach())
        if isinstance(similarity, Lp):
            return float(similarity.weights.detach().mean())
        return None

    def after_step(self, batch: Batch, loss: float) -> None:
        """Switch to the saturated loss once InfoNCE is saturated."""
        chance = self.chance_loss(batch)
        if chance is None:
            return
        if self._information is not None:  # unrelated pairs keep the loss above zero
            settled = self.number - self.started_at >= 2 * self.recipe.warmup
            loss = max(0.0, chance - self._information) if settled else chance
        if self._level is None:
            self._level = loss
        else:
            self._level = LEVEL_DECAY * self._level + (1 - LEVEL_DECAY) * loss
        if self.saturated_loss is None or self._level >= self.saturation * chance:
            return
        if self._is_overfitted:
            return
        if self.choice is None or not self.choice.delays_saturation():
            self.saturated_at = self.number + 1
            chosen = self.choice is not None and self.choice.has_chosen
            self.schedule.restart(self.saturated_at if chosen else None)
            if self.choice is not None:
                self.choice.saturate(self)
            self.best = None

    def measure(self, held_out: Batch) -> float:
        """Return the held-out loss, and choose relaxations when it is time to."""
        value = super().measure(held_out)
        if self.can_overfit and self.saturated_at is None:
            self._is_overfitted = self._fails_on(held_out)
        if self.choice is not None:
            self.choice.consider(self, held_out, self.number + 1)
        return value

    def _fails_on(self, held_out: Batch) -> bool:
        """Return whether a loss that is saturated on training pairs is not on held-out pairs.

        Unrelated pairs keep the held-out loss above zero, so nothing is said where some are.
        """
        if self._information is not None or not has_bound(self.objective, held_out):
            return False
        with _without_gathering(self.objective):
            network, size = self.network.eval(), self.recipe.batch_size
            found, most = score_pairs(network, self.objective, held_out, size)
        self.network.train()
        return most - found >= self.saturation * most

    def relax(self, names: Sequence[str], n_components: int) -> None:
        """Attach relaxations to the loss, and train them too."""
        loss = self.modules["loss"]
        assert isinstance(loss, ContrastiveLoss)
        for name in names:
            self.add_parameters(nn.ModuleList(attach(loss, [name], n_components, self.dtype)))
            if self.best is not None:
                kept = self.best["loss"]
                assert isinstance(kept, ContrastiveLoss)
                attach(kept, [name], n_components, self.dtype)
        build = None if self.choice is None else self.choice.saturated_loss
        self._set_saturated_loss(None if build is None else build(relaxations_of(loss)))
        if "factor_scale" in names and self.choice is not None and self.choice.may_lose_factors:
            self.moments = SphereMoments(gather=self.processes.size > 1)
            averaged = [] if self.averaged is None else [self.averaged.module]
            for network in (self.network, *averaged):
                assert isinstance(network, nn.Sequential)
                network.append(PrincipalAxes(n_components).to(self.processes.device, self.dtype))
            self._averages = None  # they lack the new layer

    def tighten(self, name: str, h: Tensor) -> None:
        """Take a relaxation out of the loss; h are codes of anchors."""
        loss = self.modules["loss"]
        assert isinstance(loss, ContrastiveLoss)
        self.remove_parameters(getattr(loss, name))
        for module in [loss] if self.best is None else [loss, self.best["loss"]]:
            assert isinstance(module, ContrastiveLoss)
            detach(module, name, h)
        build = None if self.choice is None else self.choice.saturated_loss
        self._set_saturated_loss(None if build is None else build(relaxations_of(loss)))

    def start_anew(self) -> None:
        """Forget the optimiser's moments, the averaged weights and the schedule."""
        self.optimiser.state.clear()
        if self.averaged is not None:
            self.averaged.n_averaged.zero_()
        self.schedule.restart()
        self.started_at, self._level = self.number + 1, None

    def restore(self, saved: SavedState, identity: Mapping[str, Any]) -> None:
        state = saved.record["state"].get("choice")
        if self.choice is not None and state is not None:
            self.relax(state["relaxed"], self.choice.n_components)
        super().restore(saved, identity)

    def describe_objective(self) -> str:
        """Return the name of the loss, and of the one that training ended with, if another."""
        name = describe_loss(self.modules["loss"])
        if self.moments is not None:
            name += ", codes kept uniform at first"
        if "reconstruction" in self.modules:
            name += ", with the error of a decoder that reconstructs the observations"
        if self.choice is not None and not self.choice.candidates:
            name += " (no relaxations were compared: there are too few pairs to hold some out)"
        if self.saturated_at is None or self.saturated_at >= self.number:
            return name
        if self.choice is not None and set(self.choice.candidates) - set(self.choice.gains):
            name += " (not all relaxations were compared: a saturated loss cannot tell them apart)"
        return f"{name}, then alignment and entropy from step {self.saturated_at + 1} (saturated)"

    def saturation_warning(self, modules: nn.ModuleDict, held_out: Batch) -> str:
        """Return a warning if training ended with a saturated InfoNCE, and "" otherwise.

        InfoNCE is saturated if it is below a share :attr:`saturation` of log B on batches of
        training and of held-out pairs. On training pairs alone it may be overfitted instead.

        Args:
            modules: The result of the training.
            held_out: Held-out pairs.
        """
        loss, share, size = modules["loss"], self.saturation, self.recipe.batch_size
        replaced = self.saturated_at is not None and self.saturated_at < self.number
        if replaced or self._level is None or not has_bound(loss, held_out) or len(held_out) < 2:
            return ""
        if self._level >= share * math.log(size):
            return ""
        found, most = score_pairs(modules["network"], loss, held_out, size)
        if most - found >= share * most:
            return ""
        relaxed = " and ".join(relaxations_of(loss))
        reason = f". The loss that would replace it does not take {relaxed}" if relaxed else ""
        return (
            f"{describe_loss(loss)} saturated at {found:.2f} of at most {most:.2f} nats: nearly "
            "all negatives are farther away than the positive, so next to no gradient is left to "
            "reach the optimum that the theorem is about, and the codes may be far from it"
            f"{reason}"
        )

    def state(self) -> dict[str, Any]:
        return {
            "saturated_at": self.saturated_at,
            "level": self._level,
            "is_overfitted": self._is_overfitted,
            "started_at": self.started_at,
            "unrelated": getattr(self.saturated_loss, "unrelated", None),
            "choice": None if self.choice is None else self.choice.state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.saturated_at, self._level = state["saturated_at"], state["level"]
        self.started_at = state["started_at"]
        self._is_overfitted = state["is_overfitted"]
        if isinstance(self.saturated_loss, SaturatedInfoNCE):
            self.saturated_loss.unrelated = state["unrelated"]
        if self.choice is not None:
            self.choice.set_state(state["choice"])

    def result(self) -> nn.ModuleDict:
        best = super().result()
        if isinstance(best["loss"], ContrastiveLoss | Ensemble):
            best["loss"].gather = False
        return best

    def _weight_average(self) -> WeightAverage:
        return partial(_average_weights, share=self.recipe.averaging)

    def _encode(self, parts: list[Tensor]) -> Sequence[Tensor]:
        """Return codes; in chunks, activations are recomputed in the backward pass."""
        observed = torch.cat(parts).to(self.processes.device, self.dtype)
        chunk_size = self.recipe.chunk_size
        with self.processes.autocast():
            if chunk_size is None or len(observed) <= chunk_size:
                codes = self.network(observed)
            else:
                chunks = observed.split(chunk_size)
                codes = torch.cat(
                    [recompute(self.network, chunk, use_reentrant=False) for chunk in chunks]
                )
        return codes.to(self.dtype).split([len(part) for part in parts])


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
    if codes.tags is not None and "tags" in _options_of(loss):
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


def _all_observations(batch: Batch) -> Tensor:
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
    parts = math.ceil(len(pairs) / batch_size)
    total = most = 0.0
    with torch.no_grad():
        for rows in torch.arange(len(pairs)).tensor_split(parts):
            part = pairs.rows(slice(int(rows[0]), int(rows[-1]) + 1))
            codes = encode_batch(partial(encode_parts, network), part)
            value = float(loss_of(loss, codes))
            offset = math.log(part.n_candidates) if has_bound(loss, part) else 0.0
            total += (offset - value) * len(part) / len(pairs)
            most += offset * len(part) / len(pairs)
    return total, most


def _options_of(loss: nn.Module) -> set[str]:
    parameters = inspect.signature(loss.forward).parameters
    optional = {"negatives", "tags"}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return optional
    return optional & set(parameters)


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
    relaxed = check_relax(relax)
    noisy = "noise" in (relaxed or ())
    generator = Generator().manual_seed(seed)
    every = source
    source, held_out = hold_out(source, generator, holds_out, held_out_share)
    nothing_held_out = isinstance(source, FinitePairSource) and source is every
    first = Batch.of(source.sample(WHITENING_BATCH_SIZE, generator))
    x = first.x
    reconstruction = None
    with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global stream
        torch.manual_seed(seed if start.seed is None else start.seed)
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
    elif "negatives" not in _options_of(loss):
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


def _average_weights(
    averaged: Sequence[Tensor], current: Sequence[Tensor], done: Tensor | int, share: float
) -> None:
    """Update an exponential average over a share of the steps so far."""
    memory = max(MIN_AVERAGING_STEPS, share * float(done))
    torch._foreach_lerp_([*averaged], [*current], 1 / memory)


def _add_gradient(value: Tensor, penalty: Tensor) -> Tensor:
    """Return the value, with the gradient of a penalty added to its own."""
    return value + (penalty - penalty.detach())


@contextmanager
def _without_gathering(objective: nn.Module) -> Iterator[None]:
    """Compute the objective in this process alone, on pairs that all processes have."""
    if not isinstance(objective, ContrastiveLoss | Ensemble):
        yield
        return
    gather, objective.gather = objective.gather, False
    try:
        yield
    finally:
        objective.gather = gather
