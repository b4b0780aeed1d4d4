"""What may be claimed of a fitted contrastive ICA: calibration, axes and the card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sklearn.utils.validation import check_is_fitted
from torch import Generator, nn

from isolatent.contrast import PosteriorInfoNCE
from isolatent.encoders import Axes, LinearAxes, Whitening
from isolatent.pairs import Batch, FinitePairSource, PairSource, SeparateRecordings
from isolatent.streams import layers_from_stream, random_stream
from isolatent.theory import Beliefs, Guarantee
from isolatent.theory.assumptions import REACHES_OPTIMUM, Assumption
from isolatent.theory.axis_claims import with_axes
from isolatent.theory.guarantee import UNSUPPORTED
from isolatent.theory.world_beliefs import count_factors
from isolatent.training.assembly import (
    guarantee_of,
    head_of,
    learned_weights,
    learns_size,
)
from isolatent.training.axis_search import AxesError, append_axes, find_axes, without_axes
from isolatent.training.calibration import calibrate
from isolatent.training.capacity import LINEAR, Capacity
from isolatent.training.contrastive import ContrastiveTraining
from isolatent.training.measurements import (
    describe_relaxations,
    measure_relaxations,
    weight_errors_of,
)
from isolatent.training.noise import FirstCodes, build_objective, calibrate_noise
from isolatent.training.parameters import ONLY_FREE, ContrastiveParameters
from isolatent.training.restarts import FEWEST_PAIRS
from isolatent.training.support import (
    FEWEST_HELD_OUT,
    MOST_SUPPORT_PAIRS,
    Support,
    measure_support,
)

__all__ = ["SCORE_BATCH_SIZE", "FittedClaims", "with_training"]

SCORE_BATCH_SIZE = 512
# A rule of thumb: with ten codes, 1 000 pairs are about the fewest with which a network is better
# than a linear encoder, whose weights are as many as codes times directions.
PAIRS_PER_SQUARED_CODE = 10
ALIGNED = "signed permutation and scaling"
NOT_CHECKED = (
    "not checked, since partial_fit holds no pairs out; compare score with that of shuffled pairs, "
    "or diagnose the model, on pairs that it has not seen"
)
ERROR_PAIRS = 16_384  # from which errors of learned weights are estimated


class FittedClaims(ContrastiveParameters):
    """Calibrate a trained model, find its axes, and state what may be claimed of its codes."""

    encoder_: nn.Module
    loss_: nn.Module
    beliefs_: Beliefs
    head_: str
    guarantee_: Guarantee
    relaxed_: tuple[str, ...]
    capacity_: Capacity | None
    support_: Support | None

    @property
    def n_directions_(self) -> int:
        check_is_fitted(self, "encoder_")
        kept = [part.n_kept for part in self.encoder_.modules() if isinstance(part, Whitening)]
        return max(kept, default=math.prod(self._window_shape))

    def _describe_directions(self) -> str:
        """Say how many directions of the data the encoder sees; "" if it sees all."""
        kept, columns = self.n_directions_, math.prod(self._window_shape)
        if kept == columns:
            return ""
        return f"kept {kept} of {columns} directions: the others are noise or rounding errors"

    def expected_guarantee(self) -> Guarantee:
        """Return what may be claimed after a fit, as far as that is known before it.

        It follows from what is declared. What training finds, such as relaxations that the data ask
        for, axes, and warnings, is added to ``guarantee_``.

        Example:
            >>> import isolatent as iso
            >>> print(iso.ContrastiveICA(3, space="sphere").expected_guarantee().equivalence)
            orthogonal map
        """
        declared = self._beliefs()
        loss = self.loss
        if isinstance(loss, str):
            relaxed = self._relax() or ()
            with random_stream(Generator()), layers_from_stream():  # its weights are not kept
                loss = build_objective(loss, declared, self.n_components, self.potentials, relaxed)
        head = None if isinstance(self.encoder, nn.Module) else declared.head
        return self._assumed(
            guarantee_of(declared, loss, head=head, n_components=self.n_components)
        )

    def guarantee_for(self, world: Any) -> Guarantee:
        """Return what may be claimed if the data come from a given world.

        ``guarantee_`` follows from the declared beliefs; here the beliefs are those that hold in
        the world, so that declarations which are wrong show as a gap. After a fit the card also
        names the objective and the calibration, and has the warnings of the training.

        Args:
            world: A :class:`isolatent.World`, or a pair source with one.
        """
        declared = self._beliefs()
        loss = getattr(self, "loss_", self.loss)
        if isinstance(loss, str):
            relaxed = self._relax() or ()
            with random_stream(Generator()), layers_from_stream():
                loss = build_objective(loss, declared, self.n_components, self.potentials, relaxed)
        guarantee = guarantee_of(
            Beliefs.of(world),
            loss,
            head=getattr(self, "head_", declared.head),
            learns_size=hasattr(self, "encoder_") and learns_size(self.encoder_),
            n_components=self.n_components,
            n_factors=count_factors(world),
        )
        if not hasattr(self, "guarantee_"):
            return guarantee
        fitted = self.guarantee_
        if self.axes_ is not None:
            guarantee = _with_found_axes(guarantee, self.axes_)
        else:
            guarantee = replace(guarantee, axes=fitted.axes)
        guarantee = replace(guarantee, support=fitted.support, directions=fitted.directions)
        if fitted.withdrawn:
            guarantee = guarantee.withdraw(fitted.gap.removeprefix(f"{UNSUPPORTED}: "))
        return with_training(guarantee, fitted.objective, fitted.calibration, fitted.warnings)

    def _set_fitted(
        self,
        training: ContrastiveTraining,
        modules: nn.ModuleDict,
        source: PairSource,
        held_out: Batch,
        beliefs: Beliefs,
        axes: str | None = None,
    ) -> None:
        """Calibrate the encoder, find axes, and derive what may be claimed."""
        encoder, loss = modules["network"], modules["loss"]
        self.support_ = None  # until it is measured
        if isinstance(loss, PosteriorInfoNCE):
            self._set_noisy(training, modules, held_out, beliefs)
            return
        warning = training.saturation_warning(modules, held_out)
        calibration = ""
        if isinstance(self.loss, str) and isinstance(self.encoder, str):
            calibration = calibrate(training, encoder, loss, source)
        self.encoder_, self.loss_, self.beliefs_ = encoder, loss, beliefs
        self.relaxed_, self.gains_ = self._relax() or (), {}
        if training.choice is not None:
            self.relaxed_ = training.choice.relaxed
            self.gains_ = {name: tuple(gain) for name, gain in training.choice.gains.items()}
        self.head_ = beliefs.head
        if isinstance(self.encoder, nn.Module):
            self.head_ = head_of(encoder, training.encode(encoder, held_out.x[:256]))
        weights, errors = learned_weights(loss, self.n_components), None
        learned: dict[str, Any] = {}
        if self.relaxed_ or (weights is not None and beliefs.space == "sphere"):
            count = ERROR_PAIRS  # and no pair twice, which would make errors too small
            if isinstance(source, FinitePairSource):
                count = min(count, len(source))
            pairs = Batch.of(source.sample(count, Generator().manual_seed(0)))
            h, h_pos = (training.encode(encoder, part) for part in (pairs.x, pairs.x_pos))
            if weights is not None and beliefs.space == "sphere" and pairs.negatives is None:
                errors = weight_errors_of(loss, h, h_pos)
            learned = measure_relaxations(loss, h, h_pos)
        self._set_learned(learned)
        guarantee = self._assumed(
            guarantee_of(
                beliefs,
                loss,
                head=self.head_,
                learns_size=learns_size(encoder),
                weights=weights,
                weight_errors=errors,
                n_components=self.n_components,
                n_features=self._fewest_columns,
            )
        )
        if isinstance(source, SeparateRecordings):
            guarantee = _with_recordings(guarantee, source)
        found, not_found = None, ""
        if axes is not None and isinstance(source, SeparateRecordings) and not source.is_shared:
            not_found = "not looked for: recordings do not share their codes"
        elif axes is not None and self.head_ != "free":
            not_found = f"not looked for: {ONLY_FREE}, and these lie on a {self.head_}"
        elif axes is not None and guarantee.equivalence == ALIGNED:
            not_found = "not looked for: the claim is about single codes already"
        elif axes is not None:
            try:
                found = find_axes(axes, loss, source, lambda x: training.encode(encoder, x))
            except AxesError as error:
                not_found = f"not found: {error}"
        self._set_axes(found)
        if found is not None and found.separates:
            layer = LinearAxes(self.n_components).set(found)
            self.encoder_ = append_axes(encoder, layer)
        warned: tuple[str, ...] = (warning,) if warning else ()
        if not_found.startswith("not found"):
            warned += (f"axes were {not_found}",)
        objective = training.describe_objective()
        guarantee = replace(guarantee, learned=describe_relaxations(learned))
        guarantee = replace(guarantee, axes=not_found, directions=self._describe_directions())
        if found is not None:
            guarantee = _with_found_axes(guarantee, found)
        self.guarantee_ = with_training(guarantee, objective, calibration, warned)

    def _set_noisy(
        self,
        training: ContrastiveTraining,
        modules: nn.ModuleDict,
        held_out: Batch,
        beliefs: Beliefs,
    ) -> None:
        """Calibrate an encoder of posteriors, and derive what may be claimed."""
        encoder, loss = modules["network"], modules["loss"]
        assert isinstance(encoder, nn.Sequential)
        assert isinstance(loss, PosteriorInfoNCE)
        warning = training.saturation_warning(modules, held_out)
        loss.eval()
        h, h_pos = (training.encode(encoder, part) for part in (held_out.x, held_out.x_pos))
        share = 1.0 if self.noise_share is None else self.noise_share
        head: Any = encoder[-1]
        measured = calibrate_noise(loss, head, h, h_pos, share)
        self.encoder_ = encoder.append(FirstCodes(self.n_components)).eval()
        self.loss_, self.beliefs_, self.head_ = loss, beliefs, beliefs.head
        self.relaxed_, self.gains_ = self._relax() or (), {}
        self._set_learned({"noise": measured})
        self._set_axes(None)
        guarantee = self._assumed(
            guarantee_of(
                beliefs,
                loss,
                n_components=self.n_components,
                n_features=math.prod(self._window_shape),
            )
        )
        warned: tuple[str, ...] = (warning,) if warning else ()
        if measured["share"] > share + 0.01:
            warned += (
                f"noise_share = {share:g} is less than pairs allow: {measured['least_share']:.2f} "
                "of the spread within them differs between observations, so it is noise",
            )
        guarantee = replace(
            guarantee,
            learned=describe_relaxations(self.learned_),
            directions=self._describe_directions(),
        )
        calibration = f"spread of posteriors multiplied by {measured['factor']:.2f}"
        self.guarantee_ = with_training(
            guarantee, training.describe_objective(), calibration, warned
        )

    def _assumed(self, guarantee: Guarantee) -> Guarantee:
        """Return a guarantee that calls nothing declared which the user did not declare."""
        if self._declares:
            return guarantee
        assumptions = tuple(
            replace(assumption, kind="default") if assumption.kind == "declared" else assumption
            for assumption in guarantee.assumptions
        )
        return replace(guarantee, assumptions=assumptions)

    def _set_learned(self, learned: Mapping[str, Any]) -> None:
        """Set the attributes that exist for some relaxations only."""
        self.learned_ = dict(learned)
        for name in ("related_share_", "related_share_interval_"):
            self.__dict__.pop(name, None)
        if "pairing" in learned:
            self.related_share_ = learned["pairing"]["related_share"]
            self.related_share_interval_ = tuple(learned["pairing"]["interval"])

    def _set_axes(self, axes: Axes | None) -> None:
        self.axes_ = axes
        self.dynamics_ = None if axes is None else axes.dynamics

    def _check_support(self, held_out: Batch, source: PairSource, n_pairs: int | None) -> None:
        """Withdraw the claim unless held-out pairs support it, and warn of few pairs.

        Args:
            held_out: Pairs that were not trained with.
            source: Those that were.
            n_pairs: Number of all pairs; None if they are endless.
        """
        card, found = self.guarantee_, []
        count = MOST_SUPPORT_PAIRS
        if isinstance(source, FinitePairSource):
            count = min(count, len(source))
        fitting = Batch.of(source.sample(count, Generator().manual_seed(0)))
        network = self._scored_network()
        apart = n_pairs is None or not isinstance(source, FinitePairSource) or len(source) < n_pairs
        if apart:  # else what was held out are the pairs of the training
            self.support_ = measure_support(
                network, self.loss_, held_out, fitting, self.n_components
            )
        if self.support_ is None:
            reason = _not_measured(len(held_out) if apart else 0)
            found.append(reason)
            card = card.withdraw(reason)
        else:
            card = replace(card, support=str(self.support_))
            if reason := self.support_.reason:
                found.append(reason)
                if self.support_.is_null:  # there is nothing that anything else could be wrong with
                    card = replace(card, warnings=())
                card = card.withdraw(reason)
        needed = max(FEWEST_PAIRS, PAIRS_PER_SQUARED_CODE * self.n_components**2)
        if self.capacity_ == LINEAR and n_pairs is not None and n_pairs < needed:
            found.append(
                f"a linear encoder was trained: {n_pairs} pairs support no better one. "
                f"A network with n_components={self.n_components} needs about {needed} pairs"
            )
        if found:
            card = with_training(card, card.objective, card.calibration, (*card.warnings, *found))
        self.guarantee_ = card

    def _withdraw_unchecked(self) -> None:
        """Withdraw the claim of a partial fit, which holds no pairs out to check it with."""
        self.guarantee_ = self.guarantee_.withdraw(NOT_CHECKED)

    def _posterior_network(self, what: str) -> nn.Sequential:
        """Return the encoder of posteriors; raise an error if there is none."""
        check_is_fitted(self, "encoder_")
        if "noise" not in self.relaxed_:
            raise ValueError(
                f"{what} needs a model of noisy observations: fit with relax=('noise',); here "
                f"relaxed_ is {self.relaxed_}"
            )
        assert isinstance(self.encoder_, nn.Sequential)
        network: nn.Sequential = self.encoder_[:-1]  # type: ignore[assignment]
        return network

    def _scored_network(self) -> nn.Module:
        """Return the network whose outputs the loss was trained with."""
        if "noise" in self.relaxed_:
            return self._posterior_network("score")
        return without_axes(self.encoder_)


def _not_measured(held_out: int) -> str:
    """Return why held-out pairs say nothing about a fit."""
    if held_out >= FEWEST_HELD_OUT:
        why = "the loss bounds no information, and pairs of several recordings cannot be shuffled"
    else:
        why = (
            f"{held_out or 'no'} pairs were held out, and {FEWEST_HELD_OUT} are needed, which "
            f"{FEWEST_PAIRS} pairs give"
        )
    return f"nothing was measured: {why}; do not trust the codes without a check of your own"


def _with_recordings(guarantee: Guarantee, source: SeparateRecordings) -> Guarantee:
    """Return a guarantee that says what the codes of several recordings share."""
    count = len(source.series)
    if not source.is_shared:
        text = (
            f"{count} encoders and one loss, but no pairs across all recordings: the claim is "
            "about each recording by itself, the map may be another one for each, and codes of "
            "different recordings must not be compared"
        )
        return replace(guarantee, recordings=text)
    text = f"{count} encoders and one space of codes: the map is the same for all recordings"
    moment = "time" if isinstance(source.common, str) else "label"
    shared = Assumption(f"rows of recordings with the same {moment} show the same factors", "faith")
    same = Assumption("factors have the same distribution in all recordings", "faith")
    assumptions = (*guarantee.assumptions, shared, same)
    return replace(guarantee, recordings=text, assumptions=assumptions)


def _with_found_axes(guarantee: Guarantee, axes: Axes) -> Guarantee:
    return with_axes(guarantee, axes.method, axes.blocks, axes.reason, axes.codes)


def with_training(
    guarantee: Guarantee, objective: str, calibration: str, warned: tuple[str, ...]
) -> Guarantee:
    """Return a guarantee that also says how the model was trained.

    Training that ended with a warning contradicts the assumption that it reached the optimum.
    """
    assumptions = guarantee.assumptions
    if warned:
        assumptions = tuple(
            replace(assumption, text=f"{REACHES_OPTIMUM}: doubtful, see the warning")
            if assumption.text == REACHES_OPTIMUM
            else assumption
            for assumption in assumptions
        )
    return replace(
        guarantee,
        assumptions=assumptions,
        objective=objective,
        calibration=calibration,
        warnings=warned,
    )
