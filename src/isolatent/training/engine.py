"""The training loop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint as recompute

from isolatent.contrast import ContrastiveLoss, Dot, InfoNCE, Lp
from isolatent.pairs import PairSource
from isolatent.training.assembly import dtype_of
from isolatent.training.checkpoints import Checkpoints, Saved
from isolatent.training.devices import Processes, average_gradients
from isolatent.training.recipe import Recipe
from isolatent.training.schedule import Pace
from isolatent.training.steps import Step, steps_from_tensor, steps_to_tensor

__all__ = ["Training", "fit_encoder"]

# Steps between two measurements of held-out loss and quality, from which step on: often at first,
# since a small set of pairs is learned by heart in a few hundred steps.
MEASURE_EVERY = ((1000, 100), (200, 25), (0, 10))
SHORTEST_MEMORY = 50  # steps, of the average of the weights
SAVE_EVERY = 30.0  # seconds between checkpoints
LOGARITHMS = ("log_scale", "log_weights", "log_radius", "log_bound")  # parameters of that kind
PART = 8192  # observations that are encoded at a time where no gradient is needed


class Training:
    """All that changes while an encoder is trained; a checkpoint holds all of it.

    Args:
        encoder: Maps observations to codes; trained in place.
        loss: Called as ``loss(h, h_pos)``; its parameters are trained too.
        recipe: The settings.
        generator: Source of all randomness of the run.
        saturated_loss: What the encoder is trained with once ``loss``, an InfoNCE, is saturated:
            so close to zero that it has next to no gradient.
        processes: Where this runs.
    """

    def __init__(
        self,
        encoder: nn.Module,
        loss: nn.Module,
        recipe: Recipe,
        generator: Generator,
        saturated_loss: nn.Module | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.processes = processes or Processes()
        device = self.processes.device
        self.encoder, self.loss = encoder.to(device), loss.to(device)
        self.saturated_loss = None if saturated_loss is None else saturated_loss.to(device)
        for module in (self.loss, self.saturated_loss):
            if isinstance(module, ContrastiveLoss) and self.processes.size > 1:
                module.gather = True
        self.recipe, self.generator = recipe, generator
        self.dtype = dtype_of(encoder)
        self.parameters, logarithms = _parameters(encoder, loss)
        self.optimiser = torch.optim.AdamW(
            [
                {"params": self.parameters, "weight_decay": recipe.weight_decay, "times": 1.0},
                {"params": logarithms, "weight_decay": 0.0, "times": recipe.scale_rate},
            ],
            lr=recipe.learning_rate,
            betas=(0.9, 0.99),
            fused=True,
        )
        self.parameters += logarithms
        self.averaged = AveragedModel(
            encoder, multi_avg_fn=partial(_average, share=recipe.averaging)
        )
        self.averaged.eval()  # it is only ever measured
        self.best: nn.ModuleDict | None = None  # encoder and loss, those to keep
        self.saturated_at: int | None = None  # the step from which on saturated_loss is minimised
        self._level: float | None = None  # of the loss, averaged over steps
        self.pace = Pace(recipe)
        self.history: list[Step] = []

    @property
    def number(self) -> int:
        """Steps done."""
        return len(self.history)

    def advance(self, x: Tensor, x_pos: Tensor) -> float:
        """One optimiser step on a batch of pairs; return the loss before it."""
        rate = self.pace.rate(self.number + 1)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["times"]
        value: Tensor = self.objective(*self._encode(x, x_pos))
        self.optimiser.zero_grad()
        value.backward()
        average_gradients(self.parameters, self.processes)
        current = float(value.detach())
        if not math.isfinite(current):
            raise FloatingPointError(
                f"the loss became {current} at step {self.number + 1}; try a smaller "
                f"learning_rate than {self.recipe.learning_rate:g}, or check the data for extreme "
                "values"
            )
        self.optimiser.step()
        self.averaged.update_parameters(self.encoder)
        self._watch(current)
        return current

    @property
    def objective(self) -> nn.Module:
        """What is minimised now."""
        if self.saturated_at is None or self.saturated_loss is None:
            return self.loss
        return self.saturated_loss

    @property
    def chance(self) -> float | None:
        """What the loss is when codes say nothing; None if that is not known."""
        return _chance(self.objective, self.recipe.batch_size)

    def measure(self, held_out: tuple[Tensor, Tensor]) -> float:
        """The averaged encoder's loss on held-out pairs; the encoder is kept if that says so."""
        h, h_pos = (self.encode_all(self.averaged.module, part) for part in held_out)
        with torch.no_grad(), _alone(self.objective):
            value = float(self.objective(h, h_pos))
        if self.pace.measured(self.number + 1, value):
            self.best = self._present()
        return value

    def encode_all(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """Codes of many observations, without gradients."""
        with torch.no_grad():
            parts = [encoder(part.to(self.processes.device, self.dtype)) for part in x.split(PART)]
        return torch.cat(parts)

    def save(self, checkpoints: Checkpoints, identity: Mapping[str, Any]) -> None:
        """Write a checkpoint; of several processes the first does."""
        if self.processes.rank == 0:
            record = {
                "identity": identity,
                "pace": self.pace.to_dict(),
                "saturated_at": self.saturated_at,
                "level": self._level,
            }
            checkpoints.write(self.number, self._tensors(), record)
        self.processes.wait()

    def restore(self, saved: Saved, identity: Mapping[str, Any]) -> None:
        """Go back to a checkpoint of the same run."""
        for name, value in identity.items():
            if saved.record["identity"].get(name) != value:
                raise ValueError(
                    f"resume must hold a run with the same {name}, {value!r}, "
                    f"but that run has {saved.record['identity'].get(name)!r}"
                )
        tensors = saved.tensors
        for name, module in self._modules():
            module.load_state_dict(_under(f"{name}.", tensors))
        best = _under("best.", tensors)
        if best:
            self.best = self._present()
            self.best.load_state_dict(best)
        state = self.optimiser.state_dict()
        trained = [p for group in self.optimiser.param_groups for p in group["params"]]
        for index, parameter in enumerate(trained):
            moments = _under(f"optimiser.{index}.", tensors)
            if moments:
                state["state"][index] = {k: _laid_out(v, parameter) for k, v in moments.items()}
        self.optimiser.load_state_dict(state)
        self.generator.set_state(tensors["generator"])
        torch.set_rng_state(tensors["global_generator"])
        self.history = steps_from_tensor(tensors["history"])
        self.pace.restore(saved.record["pace"])
        self.saturated_at, self._level = saved.record["saturated_at"], saved.record["level"]

    def result(self) -> tuple[nn.Module, nn.Module]:
        """The encoder and the loss to keep."""
        best = self.best if self.best is not None else self._present()
        loss = best["loss"]
        if isinstance(loss, ContrastiveLoss):
            loss.gather = False
        return best["encoder"].eval(), loss

    def _present(self) -> nn.ModuleDict:
        return nn.ModuleDict(
            {"encoder": deepcopy(self.averaged.module), "loss": deepcopy(self.loss)}
        )

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {
            "generator": self.generator.get_state(),
            "global_generator": torch.get_rng_state(),  # for layers such as dropout
            "history": steps_to_tensor(self.history),
        }
        for name, module in self._modules():
            tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        if self.best is not None:
            tensors |= {f"best.{key}": value for key, value in self.best.state_dict().items()}
        for index, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{key}": value for key, value in moments.items()}
        return {key: value.clone() for key, value in tensors.items()}  # none share memory

    def _modules(self) -> Iterator[tuple[str, nn.Module]]:
        yield "encoder", self.encoder
        yield "loss", self.loss
        yield "averaged", self.averaged

    def _encode(self, x: Tensor, x_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Codes of a batch; in parts, each part's activations are computed again backwards."""
        both = torch.cat([x, x_pos]).to(self.processes.device, self.dtype)
        with self.processes.autocast():
            if self.recipe.chunk_size is None or len(both) <= self.recipe.chunk_size:
                codes = self.encoder(both)
            else:
                parts = both.split(self.recipe.chunk_size)
                codes = torch.cat(
                    [recompute(self.encoder, part, use_reentrant=False) for part in parts]
                )
        # A source may give more rows beside each anchor than its positive, such as negatives.
        h, h_pos = codes.to(self.dtype).split([len(x), len(x_pos)])
        return h, h_pos

    def _watch(self, current: float) -> None:
        """Go over to the saturated form of the loss once it is that."""
        chance = self.chance
        if chance is None or self.saturated_loss is None:
            return
        self._level = current if self._level is None else 0.9 * self._level + 0.1 * current
        if self._level < self.recipe.saturation * chance:
            self.saturated_at = self.number + 1
            self.pace.forget()  # the loss is another from now on
            self.best = None


def fit_encoder(
    training: Training,
    source: PairSource,
    held_out: tuple[Tensor, Tensor],
    *,
    on_step: Callable[[Step], None] = lambda step: None,
    quality: Callable[[nn.Module], float] | None = None,
    checkpoints: Checkpoints | None = None,
    identity: Mapping[str, Any] | None = None,
    save_every: float = SAVE_EVERY,
) -> tuple[nn.Module, nn.Module]:
    """Train until the held-out loss no longer falls; return the encoder and loss to keep.

    Weights are averaged over the last steps. Ctrl-C is honoured after the step that is under way;
    with checkpoints, what was done until then is saved.

    Args:
        training: What is trained; it may have been restored from a checkpoint.
        source: Where pairs come from.
        held_out: Pairs that ``source`` does not give.
        on_step: Called after every step.
        quality: Scores an encoder where the truth is known; called now and then.
        checkpoints: Where to keep the state of the run.
        identity: Plain data that fix the run, kept in its checkpoints.
        save_every: Seconds between checkpoints.
    """
    recipe, pace, processes = training.recipe, training.pace, training.processes
    identity = identity or {}
    saved_at = time.monotonic()
    if checkpoints is not None and training.number == 0:
        training.save(checkpoints, identity)  # so that there is something to resume at any moment
    with _patient_interrupt() as interrupted:
        while training.number < pace.total:
            number = training.number + 1
            x, x_pos = source.sample(recipe.batch_size, training.generator)
            bound = training.chance
            current = training.advance(processes.share(x), processes.share(x_pos))
            measured = missed = None
            due = _is_measured(number)
            if due or number == pace.total:
                missed = training.measure(held_out)
                measured = quality(training.averaged.module) if quality is not None else None
            bound = None if bound is None else bound - current
            scale = _scale(training.loss)
            step = Step(number, pace.total, current, bound, scale, measured, missed)
            training.history.append(step)
            try:
                on_step(step)
            except KeyboardInterrupt:
                interrupted.set()
            if processes.size == 1:  # several must agree, and a clock would not make them
                due = time.monotonic() - saved_at >= save_every
            last = number == pace.total
            # Several processes must leave the loop together, so they ask each other now and then.
            stop = interrupted.is_set()
            if processes.size > 1:
                stop = due and processes.any(stop)
            if checkpoints is not None and (due or last or stop):
                training.save(checkpoints, identity)
                saved_at = time.monotonic()
            if stop:
                raise KeyboardInterrupt
    return training.result()


def _average(
    averaged: Sequence[Tensor], current: Sequence[Tensor], done: Tensor, share: float
) -> None:
    """Update an exponential average whose memory is a share of the steps so far."""
    memory = max(SHORTEST_MEMORY, share * float(done))
    torch._foreach_lerp_([*averaged], [*current], 1 / memory)


def _is_measured(number: int) -> bool:
    return number % next(every for start, every in MEASURE_EVERY if number > start) == 0


@contextmanager
def _patient_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event; the second one interrupts at once.

    An exception at any moment could leave a step half done, and be lost while kernels compile.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _alone(objective: nn.Module) -> Iterator[None]:
    """The objective as it is for one process, on pairs that all of them have."""
    gathering = isinstance(objective, ContrastiveLoss) and objective.gather
    if isinstance(objective, ContrastiveLoss):
        objective.gather = False
    try:
        yield
    finally:
        if isinstance(objective, ContrastiveLoss):
            objective.gather = gathering


def _parameters(*modules: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trainable parameters that are not logarithms of scales, and those that are."""
    named = [pair for m in modules for pair in m.named_parameters() if pair[1].requires_grad]
    logarithms = [p for name, p in named if name.rpartition(".")[2] in LOGARITHMS]
    rest = [p for name, p in named if name.rpartition(".")[2] not in LOGARITHMS]
    return rest, logarithms


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}


def _laid_out(moment: Tensor, parameter: Tensor) -> Tensor:
    """A moment in the same order in memory as its parameter, which a fused step relies on."""
    same = moment.shape == parameter.shape and moment.ndim > 1
    return torch.empty_like(parameter).copy_(moment) if same else moment


def _chance(loss: nn.Module, batch: int) -> float | None:
    """What InfoNCE is when codes say nothing: log B; None for other losses."""
    if not isinstance(loss, InfoNCE) or loss.negatives_from != "across":
        return None
    return math.log(batch)


def _scale(loss: nn.Module) -> float | None:
    similarity = getattr(loss, "similarity", None)
    if isinstance(similarity, Dot):
        return float(similarity.scale.detach())
    if isinstance(similarity, Lp):
        return float(similarity.weights.detach().mean())
    return None
