"""Train a network with dynamics on trial, where one without may have lost factors."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from torch import Generator, Tensor, nn

from isolatent.contrast import ContrastiveLoss, LinearDynamics, NetworkPotential
from isolatent.inference import encode_chunks
from isolatent.pairs import Batch, PairSource
from isolatent.streams import copy_of_stream, random_stream
from isolatent.training.measurements import measure_relaxations
from isolatent.training.progress import Step
from isolatent.training.relaxations import Gain, attach, compare_losses

if TYPE_CHECKING:
    from isolatent.training.contrastive import ContrastiveTraining

__all__ = ["InitialState", "gain_of_trial", "may_lack_factors", "train_with_dynamics"]

MIN_ANGLE = 0.1  # radians per lag, by which codes turn that a network without dynamics loses


class InitialState:
    """The first values of a network and a loss, to start from again with more relaxations.

    Args:
        network: The untrained network.
        loss: The loss as declared.
    """

    def __init__(self, network: nn.Module, loss: nn.Module) -> None:
        self.network, self.loss = (_copy_state(module) for module in (network, loss))

    def set(self, network: nn.Module, loss: nn.Module, pairs: Batch) -> None:
        """Set modules to these values; dynamics, to those of a regression of pairs."""
        network.load_state_dict(self.network, strict=False)
        loss.load_state_dict(self.loss, strict=False)
        dynamics = getattr(loss, "dynamics", None)
        if isinstance(dynamics, LinearDynamics):
            dynamics.start(*(encode_chunks(network, part) for part in (pairs.x, pairs.x_pos)))


def may_lack_factors(training: ContrastiveTraining, held_out: Batch, n_components: int) -> bool:
    """Return whether codes may lack factors for want of dynamics, and of nothing else.

    As many codes as observed dimensions lack none. Dynamics bring potentials with them, which must
    not be what gains.
    """
    loss: Any = training.modules["loss"]
    potentials = (loss.potential, loss.potential_pos)
    learned = all(isinstance(module, NetworkPotential) for module in potentials)
    return learned and held_out.x[0].numel() > n_components


def train_with_dynamics(
    training: ContrastiveTraining,
    initial: InitialState,
    source: PairSource,
    pairs: Batch,
    n_components: int,
    steps: int,
) -> ContrastiveTraining:
    """Return a run with dynamics, from the first values of the network of another run.

    Args:
        training: The run without dynamics.
        initial: Its first values.
        source: Source of training pairs.
        pairs: Pairs by which dynamics start.
        n_components: Number of codes.
        steps: How many steps to train for.
    """
    network, loss = deepcopy(training.network), deepcopy(training.modules["loss"])
    assert isinstance(loss, ContrastiveLoss)
    stream = copy_of_stream()  # so that the trial leaves no trace in the run
    with random_stream(stream):
        attach(loss, ["dynamics"], n_components, training.dtype)
    initial.set(network, loss, pairs)
    recipe, processes = training.recipe, training.processes
    generator = Generator().manual_seed(0)
    trial = type(training)(network, loss, recipe, generator, processes=processes)
    trial.stream.set_state(stream.get_state())
    for number in range(1, steps + 1):
        batch = Batch.of(source.sample(recipe.batch_size, generator))
        value = trial.advance(processes.share(batch))
        trial.history.append(Step(number, steps, value, None, None))
    return trial


def gain_of_trial(
    training: ContrastiveTraining, trial: ContrastiveTraining, held_out: Batch
) -> Gain | None:
    """Return the gain of a run with dynamics on held-out pairs; None if it may be due to luck.

    Only where codes turn: where none does, a network with dynamics may just have learned faster.
    """
    compared = [
        (run.modules["loss"], run.encode(run.measured_network, held_out.x),
         run.encode(run.measured_network, held_out.x_pos))
        for run in (training, trial)
    ]  # fmt: skip
    gain = compare_losses(*compared)
    angles = measure_relaxations(*compared[1])["dynamics"]["angles"]
    turns = max(map(abs, angles)) > MIN_ANGLE
    return gain if turns and gain.is_significant else None


def _copy_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}
