"""Contrastive training: the objective of a run, and when another one replaces it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute

from isolatent.contrast import (
    ContrastiveLoss,
    Dot,
    Ensemble,
    Lp,
    PosteriorInfoNCE,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
    SphereMoments,
)
from isolatent.encoders import PrincipalAxes
from isolatent.pairs import Batch
from isolatent.streams import random_stream, replayed
from isolatent.training.batch_losses import (
    all_observations,
    describe_loss,
    encode_batch,
    encode_parts,
    has_bound,
    loss_of,
    mean_log_candidates,
    score_pairs,
    without_gathering,
)
from isolatent.training.devices import Processes
from isolatent.training.engine import CheckpointRecord, Training, WeightAverage
from isolatent.training.recipe import Recipe
from isolatent.training.reconstruction import Reconstruction, inputs_of
from isolatent.training.relaxation_choice import RelaxationChoice
from isolatent.training.relaxations import attach, detach, relatedness, relaxations_of

__all__ = ["ContrastiveTraining"]

# Steps between two measurements of the held-out loss, by the step from which on they apply: often
# at first, since a small data set is overfitted within a few hundred steps.
MEASURE_EVERY = ((1000, 100), (200, 25), (0, 10))
MIN_AVERAGING_STEPS = 50
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
            seen, h = (all_observations(part) for part in (batch, codes))
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
        with torch.no_grad(), without_gathering(self.objective):
            return float(loss_of(self.objective, codes))

    def is_measured(self, number: int) -> bool:
        return number % next(every for start, every in MEASURE_EVERY if number > start) == 0

    def chance_loss(self, batch: Batch) -> float | None:
        """Return log B for InfoNCE with B candidates of each anchor, and None for other losses."""
        if not has_bound(self.objective, batch):
            return None
        share = self.recipe.batch_size / len(batch)  # of this process
        return math.log(share * batch.n_candidates)

    def held_out_chance(self, held_out: Batch) -> float | None:
        """Return log B with all held-out pairs as candidates, and None for losses without bound."""
        if not has_bound(self.objective, held_out):
            return None
        if isinstance(self.objective, PosteriorInfoNCE):  # in parts, as the loss
            return mean_log_candidates(held_out, self.recipe.batch_size)
        return math.log(held_out.n_candidates)

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
        if chance is None or self.saturated_at is not None:
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
        with without_gathering(self.objective):
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

    def _restore(self, tensors: Mapping[str, Tensor], record: CheckpointRecord) -> None:
        state = record.state.get("choice")
        if self.choice is not None and state is not None:
            with random_stream(self.stream):  # weights that are replaced
                self.relax(state["relaxed"], self.choice.n_components)  # in the order of the run
        super()._restore(tensors, record)

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
        wide = not isinstance(self.saturated_loss, SaturatedInfoNCE)
        then = "a smaller scale" if wide else "alignment and entropy"
        return f"{name}, then {then} from step {self.saturated_at + 1} (saturated)"

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
                    [
                        recompute(replayed(self.network), chunk, use_reentrant=False)
                        for chunk in chunks
                    ]
                )
        return codes.to(self.dtype).split([len(part) for part in parts])


def _average_weights(
    averaged: Sequence[Tensor], current: Sequence[Tensor], done: Tensor | int, share: float
) -> None:
    """Update an exponential average over a share of the steps so far."""
    memory = max(MIN_AVERAGING_STEPS, share * float(done))
    torch._foreach_lerp_([*averaged], [*current], 1 / memory)


def _add_gradient(value: Tensor, penalty: Tensor) -> Tensor:
    """Return the value, with the gradient of a penalty added to its own."""
    return value + (penalty - penalty.detach())
