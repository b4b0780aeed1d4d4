"""Choose relaxations during training, by what they gain on held-out pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Generator, Tensor, nn

from isolatent.contrast import ContrastiveLoss, NetworkPotential
from isolatent.pairs import Batch, FinitePairSource, PairSource
from isolatent.theory import RELAXATIONS, Beliefs
from isolatent.training.dynamics_trial import (
    InitialState,
    gain_of_trial,
    may_lack_factors,
    train_with_dynamics,
)
from isolatent.training.recipe import MIN_WARMUPS
from isolatent.training.relaxations import (
    PROBE_STEPS,
    Gain,
    compare_relaxations,
    relaxations_of,
)

if TYPE_CHECKING:
    from isolatent.training.contrastive import ContrastiveTraining

__all__ = ["RelaxationChoice", "candidates_for"]

PAIRS = 16_384  # that relaxations are fitted with
EARLY_WARMUPS = 2  # after which relaxations are compared for the first time
EARLY = ("pairing", "anchor_scale", "dynamics")
EARLY_GAIN = 0.1  # of a relaxation then, in nats: smaller ones lose no factors, and can wait
EARLY_LEAD = 2.0  # ratio of the gain of pairing to that of a scale, which it may stand for
EARLY_STEPS = 40  # that relaxations are fitted for then
LATE_SHARE = 0.4  # of the steps allowed, after which all are compared at the latest
MAX_CHOSEN = 3


def candidates_for(loss: nn.Module, beliefs: Beliefs, source: PairSource) -> tuple[str, ...]:
    """Return the relaxations that can change what a loss says of pairs.

    Args:
        loss: The loss as declared.
        beliefs: What is believed about the world.
        source: Source of pairs; ``ordered = False`` excludes dynamics.
    """
    if not isinstance(loss, ContrastiveLoss):
        raise ValueError(f"relax must be () for the loss {type(loss).__name__}, got 'auto'")
    excluded = {*loss.undefined, *relaxations_of(loss)}
    potentials = (loss.potential, loss.potential_pos)
    if "potential" in loss.undefined or all(isinstance(m, NetworkPotential) for m in potentials):
        excluded.add("marginal")
    learned = getattr(loss.similarity, "log_weights", None)
    if beliefs.head == "free" or (learned is not None and learned.ndim == 1):
        excluded.add("factor_scale")
    if not getattr(source, "ordered", True):
        excluded.add("dynamics")
    return tuple(name for name in RELAXATIONS if name not in excluded)


class RelaxationChoice:
    """The choice of relaxations in a run: when to compare them, and what to continue with.

    Relaxations are compared on the codes of the network as it is: once early, when one is added if
    it is obvious, and each time the held-out loss has levelled off. The best is added then if its
    gain is significant, and training goes on, until none is. With dynamics, and with weights of the
    codes on a sphere, it starts anew, since a network without them loses factors; so it does with a
    scale of the anchors in a box, without which codes are distorted.

    Where observations have more dimensions than there are codes, a network without dynamics may
    have lost all factors that oscillate by then, in favour of slower ones. Therefore dynamics that
    do not gain on its codes are also compared by training a network with them for as many steps.

    Args:
        candidates: Names of relaxations.
        source: Source of the pairs to compare them with.
        network: The untrained network.
        loss: The loss as declared.
        n_components: Number of codes.
        head: Where codes live: ``"sphere"``, ``"box"`` or ``"free"``.
        may_lose_factors: Whether a network without weights of the codes may lose factors, on a
            sphere.
        provisional: Relaxations that are added early, and kept if they gain: free codes stretch
            where steps are narrow, and show no sign of it later. From the start on, they would let
            factors be lost.
        saturated_loss: Returns the loss to continue with where the loss with some relaxations is
            saturated, if there is one.

    Attributes:
        relaxed: Relaxations that were chosen, in this order.
        gains: Held-out gains, by name: of a chosen relaxation when it was chosen, of the others
            when they were compared last.
        is_open: Whether there will be another comparison.
    """

    def __init__(
        self,
        candidates: Sequence[str],
        source: PairSource,
        network: nn.Module,
        loss: nn.Module,
        n_components: int,
        *,
        head: str,
        may_lose_factors: bool,
        provisional: Sequence[str] = (),
        saturated_loss: Callable[[Sequence[str]], nn.Module | None] | None = None,
    ) -> None:
        self.candidates, self.source = tuple(candidates), source
        self.n_components, self.head = n_components, head
        self.may_lose_factors = may_lose_factors
        self.saturated_loss = saturated_loss
        self.initial = InitialState(network, loss)
        self.provisional = tuple(provisional)
        self.relaxed: tuple[str, ...] = ()
        self.gains: dict[str, Gain] = {}
        self.is_open = bool(candidates)
        self.compared_early = self.saturating = False

    def consider(self, training: ContrastiveTraining, held_out: Batch, step: int) -> None:
        """Compare relaxations if it is time to.

        Args:
            training: The run, whose held-out loss was just measured.
            held_out: Held-out pairs.
            step: The number of the step.
        """
        if not self.is_open:
            return
        recipe, schedule = training.recipe, training.schedule
        early, late = EARLY_WARMUPS * recipe.warmup, schedule.cooling_from
        if not self.has_chosen:  # a network that is hardly trained says little
            share = round(LATE_SHARE * recipe.max_steps)
            late = min(late, max(MIN_WARMUPS * recipe.warmup, share))
        left = [name for name in self.candidates if name not in self.relaxed]
        due = self.saturating or early <= step < late
        if left and not self.compared_early and due:
            self.compared_early = True
            self._compare_early(training, left, held_out, step)
            self.saturating = False
        elif step < late and step - training.started_at >= early:
            for name in set(self.provisional) - set(self.relaxed):
                self.relaxed = (*self.relaxed, name)
                training.relax([name], self.n_components)
        elif step >= late:
            self.is_open = self._compare(training, left, held_out, step)
        if not self.provisional:
            done = {*self.candidates} <= {*self.relaxed} or len(self.relaxed) >= MAX_CHOSEN
            self.is_open = self.is_open and not done

    @property
    def has_chosen(self) -> bool:
        """Whether a relaxation was added because it gained."""
        return bool({*self.relaxed} - {*self.provisional})

    def delays_saturation(self) -> bool:
        """Return whether dynamics are still to be compared before a saturated loss is replaced."""
        pending = self.is_open and "dynamics" in self.candidates and not self.compared_early
        self.saturating = self.saturating or pending
        return pending

    def saturate(self, training: ContrastiveTraining) -> None:
        """React to a saturated loss, which cannot tell relaxations apart any more.

        In a box weights of the codes are learned from now on: equal factors lose nothing by them,
        and others would be lost without.
        """
        self.is_open = False
        unused = "factor_scale" in self.candidates and "factor_scale" not in self.relaxed
        if self.head == "box" and unused and set(self.relaxed) <= {"pairing"}:
            self.relaxed = (*self.relaxed, "factor_scale")
            training.relax(["factor_scale"], self.n_components)

    def state(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "relaxed": list(self.relaxed),
            "gains": {name: list(gain) for name, gain in self.gains.items()},
            "is_open": self.is_open,
            "compared_early": self.compared_early,
            "saturating": self.saturating,
            "provisional": list(self.provisional),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.relaxed = tuple(state["relaxed"])
        self.gains = {name: Gain(*gain) for name, gain in state["gains"].items()}
        self.is_open, self.compared_early = state["is_open"], state["compared_early"]
        self.saturating = state["saturating"]
        self.provisional = tuple(state["provisional"])

    def _starts_anew(self, name: str, gain: Gain) -> bool:
        """Return whether codes without a relaxation are no start for those with it."""
        distorted = self.head == "box" and name == "anchor_scale" and gain.mean >= EARLY_GAIN
        lost = name == "factor_scale" and self.may_lose_factors
        return name == "dynamics" or lost or distorted

    def _drop(self, training: ContrastiveTraining, name: str, h: Tensor) -> None:
        """Continue without a provisional relaxation."""
        self.provisional = tuple(other for other in self.provisional if other != name)
        self.relaxed = tuple(other for other in self.relaxed if other != name)
        training.tighten(name, h)

    def _pairs(self, held_out: Batch) -> tuple[Batch, Batch]:
        """Return pairs to fit with, and others to compare with; an endless source has more."""
        if isinstance(self.source, FinitePairSource):
            count = min(PAIRS, len(self.source))
            return Batch.of(self.source.sample(count, Generator().manual_seed(0))), held_out
        first, second = (
            Batch.of(self.source.sample(PAIRS, Generator().manual_seed(seed))) for seed in (0, 1)
        )
        return first, second

    def _compare(
        self,
        training: ContrastiveTraining,
        names: Sequence[str],
        held_out: Batch,
        step: int,
        early: bool = False,
    ) -> bool:
        """Compare relaxations, continue with the best if it gains, and return whether it does."""
        network, loss = training.measured_network, training.modules["loss"]
        assert isinstance(loss, ContrastiveLoss)
        codes, held = (
            (training.encode(network, part.x), training.encode(network, part.x_pos))
            for part in self._pairs(held_out)
        )
        provisional = [] if early else [name for name in self.provisional if name in self.relaxed]
        gains, losses = compare_relaxations(
            loss, names, codes, held, self.head, provisional, EARLY_STEPS if early else PROBE_STEPS
        )
        self.gains |= gains
        others = {name: gain for name, gain in gains.items() if name not in provisional}
        best = _most_obvious(others) if early else _best(others)
        if best is None:
            for name in provisional:
                if not gains[name].is_significant:
                    self._drop(training, name, codes[0])
            return False
        if self._starts_anew(best, gains[best]):
            for name in provisional:  # it is added again, when codes are better
                self.relaxed = tuple(other for other in self.relaxed if other != name)
                training.tighten(name, codes[0])
            self._start_anew(training, best, held_out)
        else:
            self.relaxed = (*self.relaxed, best)
            training.relax([best], self.n_components)
            training.network.load_state_dict(network.state_dict())
            loss.load_state_dict(losses[best].state_dict())
            # Codes change by much if the gain is large, and need more than as many steps again.
            large = gains[best].mean >= EARLY_GAIN
            training.schedule.restart(None if large else step, continues=large)
            training.best = None
        return True

    def _start_anew(self, training: ContrastiveTraining, name: str, held_out: Batch) -> None:
        """Add a relaxation, and start from the untrained network."""
        self.relaxed = (*self.relaxed, name)
        training.relax([name], self.n_components)
        pairs = self._pairs(held_out)[0]
        self.initial.set(training.network, training.modules["loss"], pairs)
        training.start_anew()
        training.best = None

    def _compare_early(
        self, training: ContrastiveTraining, left: Sequence[str], held_out: Batch, step: int
    ) -> None:
        """Compare relaxations on codes that are still poor: dynamics first.

        A loss that saturates before that tells dynamics alone.
        """
        if "dynamics" in left and may_lack_factors(training, held_out, self.n_components):
            dynamics = self._compare(training, ["dynamics"], held_out, step, early=True)
            if dynamics or self._gains_if_trained(training, held_out, step):
                return
            left = [name for name in left if name != "dynamics"]
        compared = EARLY[-1:] if self.saturating else EARLY
        if names := [name for name in left if name in compared]:
            self._compare(training, names, held_out, step, early=True)

    def _gains_if_trained(self, training: ContrastiveTraining, held_out: Batch, step: int) -> bool:
        """Start anew with dynamics if a network that is trained with them gains."""
        trial = train_with_dynamics(
            *(training, self.initial, self.source, self._pairs(held_out)[0]),
            *(self.n_components, step),
        )
        gain = gain_of_trial(training, trial, held_out)
        if gain is None or gain.mean < EARLY_GAIN:
            return False
        self.gains["dynamics"] = gain
        self._start_anew(training, "dynamics", held_out)
        return True


def _best(gains: Mapping[str, Gain]) -> str | None:
    """Return the relaxation with the largest gain, if that is significant."""
    best = max(gains, key=lambda name: gains[name].mean, default=None)
    return best if best is not None and gains[best].is_significant else None


def _most_obvious(gains: Mapping[str, Gain]) -> str | None:
    """Return dynamics, or pairing, if it is obvious that they gain.

    A scale of the anchors is not added early: codes that are still poor would be lost by it.
    """
    obvious = {name for name, gain in gains.items() if gain.mean >= EARLY_GAIN}
    obvious = {name for name in obvious if gains[name].is_significant}
    if "dynamics" in obvious:
        return "dynamics"
    scale = gains.get("anchor_scale", Gain(0.0, 0.0)).mean
    leads = "pairing" in obvious and gains["pairing"].mean >= EARLY_LEAD * scale
    return "pairing" if leads else None
