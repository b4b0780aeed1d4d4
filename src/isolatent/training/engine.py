"""The training engine: one loop, with checkpoints and early stopping, for every objective."""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from types import FrameType
from typing import Any, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import AveragedModel

from isolatent.files import DamagedFileError, reading
from isolatent.inference import dtype_of, encode_chunks
from isolatent.pairs import Batch, PairSource
from isolatent.streams import draws_globally, stream_for
from isolatent.training.checkpoints import Checkpoints, SavedState, describe_invalid
from isolatent.training.devices import Processes, average_gradients
from isolatent.training.orthogonal import OrthogonalAdamW, matrices_of_many_codes
from isolatent.training.progress import Step, steps_from_tensor, steps_to_tensor
from isolatent.training.recipe import Recipe, Schedule

__all__ = ["CheckpointRecord", "Training", "WeightAverage", "train"]

SECONDS_BETWEEN_CHECKPOINTS = 30.0
LOG_PARAMETERS = ("log_scale", "log_weights", "log_radius", "log_bound", "log_unrelated")

Tensors: TypeAlias = tuple[Tensor, ...] | list[Tensor]
WeightAverage: TypeAlias = Callable[[Tensors, Tensors, Tensor | int], None]


class CheckpointRecord(BaseModel):
    """The plain data of a checkpoint.

    Attributes:
        identity: What defines the run: parameters, seed, and a digest of the data.
        schedule: The state of the schedule.
        state: What else the objective needs.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    identity: dict[str, Any]
    schedule: dict[str, Any]
    state: dict[str, Any]


class Training(ABC):
    """The state of a training run; a checkpoint holds all of it.

    Subclasses define the objective: the loss of a batch, and how it is measured on held-out data.

    Args:
        network: The network that is trained, in place; its weights are averaged and measured.
        recipe: The settings.
        generator: Source of all randomness of the run.
        modules: Further modules that are trained with it, by name, such as a loss with a scale.
        processes: The processes that train together; by default this one alone.

    Attributes:
        history: The steps so far.
        stream: Random numbers of layers such as dropout, seeded as ``generator`` was.
        schedule: Learning rate and early stopping.
    """

    def __init__(
        self,
        network: nn.Module,
        recipe: Recipe,
        generator: Generator,
        *,
        modules: Mapping[str, nn.Module] | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.processes = processes or Processes()
        self.recipe, self.generator = recipe, generator
        self.network = network.to(self.processes.device)
        self.modules = {
            name: module.to(self.processes.device) for name, module in (modules or {}).items()
        }
        self.dtype = dtype_of(network)
        self.stream = Generator().manual_seed(generator.initial_seed())
        self._draws_globally = draws_globally([self.network, *self.modules.values()])
        self.optimiser = self._build_optimiser()
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        average = self._weight_average()
        self.averaged = None if average is None else AveragedModel(network, multi_avg_fn=average)
        if self.averaged is not None:
            self.averaged.eval()  # it is only ever measured
        self._averages: tuple[Sequence[Tensor], ...] | None = None
        self.best: nn.ModuleDict | None = None  # copies of the modules to keep
        self.schedule = Schedule(recipe)
        self.history: list[Step] = []

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of this process's part of a batch."""

    def held_out_loss(self, network: nn.Module, held_out: Batch) -> float:
        """Return the loss on held-out data."""
        raise NotImplementedError

    def held_out_chance(self, held_out: Batch) -> float | None:
        """Return the held-out loss of codes that carry no information, where it is known."""
        return None

    def is_measured(self, number: int) -> bool:
        """Return whether the held-out loss is measured after a step."""
        return False

    def state(self) -> dict[str, Any]:
        """Return what else a checkpoint must hold, as plain data."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027  # optional
        """Restore what :meth:`state` returned."""

    def chance_loss(self, batch: Batch) -> float | None:
        """Return the loss of codes that carry no information, where it is known."""
        return None

    def scale(self) -> float | None:
        """Return the learned scale of the similarity, if there is one."""
        return None

    def after_step(self, batch: Batch, loss: float) -> None:  # noqa: B027  # optional
        """React to the loss of a batch, once its step is done."""

    def _build_optimiser(self) -> torch.optim.Optimizer:
        """Return AdamW; logarithms of scales have a rate of their own and do not decay."""
        groups = _parameter_groups([self.network, *self.modules.values()], self.recipe)
        rate, matrices = self.recipe.learning_rate, matrices_of_many_codes(self.network)
        if "reconstruction" in self.modules:  # whose rates were chosen for AdamW
            matrices = []
        if not matrices:
            return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), fused=True)
        known = {id(weight) for weight in matrices}
        rest, logs = groups
        turned = {**rest, "params": matrices, "orthogonal": True}
        rest["params"] = [p for p in rest["params"] if id(p) not in known]
        return OrthogonalAdamW([rest, turned, logs], lr=rate, betas=(0.9, 0.99), fused=True)

    def add_parameters(self, module: nn.Module) -> None:
        """Train the parameters of a module as well, which was added to one of the modules."""
        for group in _parameter_groups([module], self.recipe):
            if group["params"]:
                self.optimiser.add_param_group(group)
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]

    def remove_parameters(self, module: nn.Module) -> None:
        """Stop training the parameters of a module, which is taken out of one of the modules."""
        removed = {id(parameter) for parameter in module.parameters()}
        for group in self.optimiser.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in removed]
        groups = [group for group in self.optimiser.param_groups if group["params"]]
        self.optimiser.param_groups[:] = groups
        for parameter in module.parameters():
            self.optimiser.state.pop(parameter, None)
        self.parameters = [p for group in groups for p in group["params"]]

    def _weight_average(self) -> WeightAverage | None:
        """Return the function that updates averaged weights, or None for no average."""
        return None

    @property
    def number(self) -> int:
        """Steps done."""
        return len(self.history)

    @property
    def measured_network(self) -> nn.Module:
        """The network with averaged weights, if there is an average."""
        return self.network if self.averaged is None else self.averaged.module

    def advance(self, batch: Batch) -> float:
        """Do one optimiser step on this process's part of a batch.

        Returns:
            The loss before the step, averaged over the processes.
        """
        rate = self.schedule.rate(self.number + 1)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("rate_factor", 1.0)
        with self.drawing(), self._diverging():
            value = self.loss(batch)
            for parameter in self.parameters:  # without the bookkeeping of zero_grad
                parameter.grad = None
            value.backward()
        average_gradients(self.parameters, self.processes)
        # The mean, so that all processes have the same history, and raise an error together.
        current = self.check_finite(self.processes.mean(float(value.detach())))
        self.optimiser.step()
        self._update_average()
        with self.drawing():
            self.after_step(batch, current)
        return current

    def drawing(self) -> AbstractContextManager[None]:
        """Return the context in which layers draw from the stream of the run."""
        return stream_for(self.stream, self._draws_globally)

    @contextmanager
    def _diverging(self) -> Iterator[None]:
        """Turn errors that follow from weights without bounds into FloatingPointError."""
        try:
            yield
        except (ValueError, RuntimeError) as error:
            if not any(_is_beyond_range(module) for _, module in self._trained_modules()):
                raise
            raise FloatingPointError(
                f"the weights grew without bounds by step {self.number + 1}; try a smaller "
                f"learning_rate than {self.recipe.learning_rate:g}, or check the data for extreme "
                f"values ({error})"
            ) from error

    def _update_average(self) -> None:
        """Average the weights, faster than :meth:`AveragedModel.update_parameters`."""
        if self.averaged is None:
            return
        if self.averaged.n_averaged == 0 or self._averages is None:
            self.averaged.update_parameters(self.network)
            modules = (self.averaged.module, self.network)
            self._averages = tuple(list(module.parameters()) for module in modules)
            return
        with torch.no_grad():
            assert self.averaged.multi_avg_fn is not None
            averages, weights = self._averages
            self.averaged.multi_avg_fn([*averages], [*weights], self.averaged.n_averaged)
            buffers = zip(self.averaged.module.buffers(), self.network.buffers(), strict=True)
            for kept, buffer in buffers:
                kept.copy_(buffer)
        self.averaged.n_averaged += 1

    def measure(self, held_out: Batch) -> float:
        """Return the held-out loss, and keep the modules if the schedule says so."""
        value = self.held_out_loss(self.measured_network, held_out)
        if self.schedule.measured(self.number + 1, value):
            self.best = self._copies()
        return value

    def check_finite(self, loss: float) -> float:
        """Return the loss if it is finite, and raise FloatingPointError otherwise."""
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss became {loss} at step {self.number + 1}; try a smaller "
                f"learning_rate than {self.recipe.learning_rate:g}, or check the data for extreme "
                "values"
            )
        return loss

    def encode(self, network: nn.Module, x: Tensor) -> Tensor:
        """Return the codes of many observations, without gradients."""
        return encode_chunks(network, x)

    def result(self) -> nn.ModuleDict:
        """Return the modules to keep: the best network and those trained with it."""
        best = self.best if self.best is not None else self._copies()
        best["network"].eval()
        return best

    def save(self, checkpoints: Checkpoints, identity: Mapping[str, Any]) -> None:
        """Write a checkpoint; of several processes the first one does."""
        if self.processes.rank == 0:
            record = {
                "identity": identity,
                "schedule": self.schedule.to_dict(),
                "state": self.state(),
            }
            checkpoints.write(self.number, self._tensors(), record)
        self.processes.wait()

    def restore(self, saved: SavedState, identity: Mapping[str, Any]) -> None:
        """Restore a checkpoint of the same run."""
        try:
            record = CheckpointRecord.model_validate(saved.record)
        except ValidationError as error:
            raise DamagedFileError(saved.path, describe_invalid(error)) from error
        _check_identity(record.identity, identity)
        with reading(saved.path):
            self._restore(saved.tensors, record)

    def _restore(self, tensors: Mapping[str, Tensor], record: CheckpointRecord) -> None:
        for name, module in self._trained_modules():
            module.load_state_dict(_with_prefix(f"{name}.", tensors))
        if best := _with_prefix("best.", tensors):
            self.best = self._copies()
            self.best.load_state_dict(best)
        state = self.optimiser.state_dict()
        for index, parameter in enumerate(self.parameters):
            if moments := _with_prefix(f"optimiser.{index}.", tensors):
                state["state"][index] = {k: _match_layout(v, parameter) for k, v in moments.items()}
        self.optimiser.load_state_dict(state)
        self.generator.set_state(tensors["generator"])
        self.stream.set_state(tensors["global_generator"])
        self.history = steps_from_tensor(tensors["history"])
        self.schedule.restore(record.schedule)
        self.set_state(record.state)

    def _copies(self) -> nn.ModuleDict:
        copies = {name: deepcopy(module) for name, module in self.modules.items()}
        return nn.ModuleDict({"network": deepcopy(self.measured_network), **copies})

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {
            "generator": self.generator.get_state(),
            "global_generator": self.stream.get_state(),  # which once stood in for the stream
            "history": steps_to_tensor(self.history),
        }
        for name, module in self._trained_modules():
            tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        if self.best is not None:
            tensors |= {f"best.{key}": value for key, value in self.best.state_dict().items()}
        for index, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{key}": value for key, value in moments.items()}
        return {key: value.clone() for key, value in tensors.items()}  # none share memory

    def _trained_modules(self) -> Iterator[tuple[str, nn.Module]]:
        yield "network", self.network
        yield from self.modules.items()
        if self.averaged is not None:
            yield "averaged", self.averaged


def train(
    training: Training,
    source: PairSource,
    held_out: Batch | None = None,
    *,
    on_step: Callable[[Step], None] = lambda step: None,
    quality: Callable[[nn.Module], float] | None = None,
    checkpoints: Checkpoints | None = None,
    identity: Mapping[str, Any] | None = None,
    save_every: float = SECONDS_BETWEEN_CHECKPOINTS,
) -> nn.ModuleDict:
    """Train until the schedule ends; return the modules to keep.

    Ctrl-C takes effect after the step that is under way; with checkpoints, the state is saved.

    Args:
        training: The run; it may have been restored from a checkpoint.
        source: Source of batches.
        held_out: Data that ``source`` does not draw, for early stopping.
        on_step: Called after every step.
        quality: Scores a network where the truth is known; called when the loss is measured.
        checkpoints: Where to keep the state of the run.
        identity: Plain data that define the run, kept in its checkpoints.
        save_every: Seconds between checkpoints.
    """
    recipe, schedule, processes = training.recipe, training.schedule, training.processes
    identity = identity or {}
    saved_at = time.monotonic()
    if checkpoints is not None and training.number == 0:
        training.save(checkpoints, identity)  # so that an early interruption can be resumed
    with _deferred_interrupt() as interrupted:
        while training.number < schedule.total:
            number = training.number + 1
            batch = Batch.of(source.sample(recipe.batch_size, training.generator))
            chance = training.chance_loss(batch)
            loss = training.advance(processes.share(batch))
            score = missed = shared = None
            due = training.is_measured(number)
            if held_out is not None and (due or number == schedule.total):
                most = training.held_out_chance(held_out)
                with training.drawing(), training._diverging():
                    missed = training.measure(held_out)
                shared = None if most is None else most - missed
                score = quality(training.measured_network) if quality is not None else None
            information = None if chance is None else chance - loss
            known = (loss, information, training.scale(), score, missed, shared)
            step = Step(number, schedule.total, *known)
            training.history.append(step)
            try:
                on_step(step)
            except KeyboardInterrupt:
                interrupted.set()
            if processes.size == 1:  # several must agree, and their clocks may differ
                due = time.monotonic() - saved_at >= save_every
            # Several processes must leave the loop together, so they compare flags now and then.
            stop = interrupted.is_set()
            if processes.size > 1:
                due = due or number % 100 == 0
                stop = due and processes.any(stop)
            if checkpoints is not None and (due or stop or number == schedule.total):
                training.save(checkpoints, identity)
                saved_at = time.monotonic()
            if stop:
                raise KeyboardInterrupt
    return training.result()


def _check_identity(saved: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Raise an error if a checkpoint is of another run, which says what differs."""
    for name, value in identity.items():
        other = saved.get(name)
        if other == value or name == "random_state":  # from which the seed was drawn
            continue
        if name == "data":
            known = isinstance(other, str) and other.partition(":")[0] == value.partition(":")[0]
            raise ValueError(
                "resume must hold a run with the same data, but these have changed since: X, X_pos "
                "or what belongs to them; fit anew, or with the data of that run"
                if known
                else "resume must hold a run of this version of isolatent: the data of that run "
                "cannot be recognised; fit anew"
            )
        if name == "seed" and "random_state" in identity and "random_state" in saved:
            name, value, other = "random_state", identity["random_state"], saved["random_state"]
        raise ValueError(
            f"resume must hold a run with the same {name}, {value!r}, but that run has {other!r}"
        )


def _is_beyond_range(module: nn.Module) -> bool:
    """Return whether squares of weights, or exponentials of logarithms, overflow or vanish."""
    for name, parameter in module.named_parameters():
        values = parameter.detach()
        most = math.sqrt(torch.finfo(values.dtype).max)
        if name.rpartition(".")[2] in LOG_PARAMETERS:
            values = values.exp()
            if bool((values == 0).any()):
                return True
        if not bool((values.abs() < most).all()):
            return True
    return False


def _parameter_groups(modules: Sequence[nn.Module], recipe: Recipe) -> list[dict[str, Any]]:
    named = [pair for m in modules for pair in m.named_parameters() if pair[1].requires_grad]
    logs = [p for name, p in named if name.rpartition(".")[2] in LOG_PARAMETERS]
    rest = [p for name, p in named if name.rpartition(".")[2] not in LOG_PARAMETERS]
    return [
        {"params": rest, "weight_decay": recipe.weight_decay, "rate_factor": 1.0},
        {"params": logs, "weight_decay": 0.0, "rate_factor": recipe.scale_rate},
    ]


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event; the second one interrupts at once.

    An exception at any moment could leave a step half done, and be lost while kernels compile. The
    signal is left alone where it does not mean Ctrl-C: where it is ignored, as in scripts for
    ``command &``, or has a handler of the user's own.
    """
    interrupted = threading.Event()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupted
        return

    def handle(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}


def _match_layout(moment: Tensor, parameter: Tensor) -> Tensor:
    """Return a moment with the memory layout of its parameter, which a fused step relies on."""
    same = moment.shape == parameter.shape and moment.ndim > 1
    return torch.empty_like(parameter).copy_(moment) if same else moment
