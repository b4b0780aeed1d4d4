"""Random numbers of layers from a generator of their own, not from torch's global one.

torch's layers draw their first weights, and dropout its masks, from a generator that all threads of
a process share. Fits in several threads would then depend on each other, and change the numbers
that the caller draws next. Here a run has a *stream*, a generator that is current in its thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = [
    "Dropout",
    "copy_of_stream",
    "draws_globally",
    "layers_from_stream",
    "random_stream",
    "replayed",
    "stream_for",
]

_STREAM: ContextVar[Generator | None] = ContextVar("isolatent_stream", default=None)
_GLOBAL = threading.RLock()  # held while torch's global generator stands in for a stream
DRAWING = frozenset(
    {"uniform_", "normal_", "bernoulli_", "exponential_", "random_", "kaiming_uniform_"}
    | {"kaiming_normal_", "xavier_uniform_", "xavier_normal_", "trunc_normal_"}
    | {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"}
)
# Modules of torch whose layers draw no random numbers in a forward pass, but for a few classes.
QUIET = frozenset(
    {"activation", "batchnorm", "container", "conv", "distance", "flatten", "fold", "instancenorm"}
    | {"linear", "normalization", "padding", "pixelshuffle", "pooling", "sparse", "upsampling"}
)
LOUD = (nn.RReLU, nn.MultiheadAttention, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)


@contextmanager
def random_stream(generator: Generator) -> Iterator[None]:
    """Make a generator the stream of this thread.

    :class:`Dropout` draws from it, and what is built within :func:`layers_from_stream`.
    """
    token = _STREAM.set(generator)
    try:
        yield
    finally:
        _STREAM.reset(token)


def copy_of_stream() -> Generator:
    """Return a generator that goes on as the stream of this thread, or as the global one."""
    current, copied = _STREAM.get(), Generator()
    copied.set_state(torch.get_rng_state() if current is None else current.get_state())
    return copied


def layers_from_stream() -> AbstractContextManager[Any]:
    """Let layers that are built in this thread draw their weights from its stream.

    The weights are those that the global generator would give from the same state. Without a
    stream nothing changes.

    Example:
        >>> with random_stream(Generator().manual_seed(0)), layers_from_stream():
        ...     layer = nn.Linear(2, 2)
        >>> before = torch.get_rng_state()
        >>> _ = torch.manual_seed(0)
        >>> torch.equal(layer.weight, nn.Linear(2, 2).weight)
        True
        >>> _ = torch.set_rng_state(before)
    """
    generator = _STREAM.get()
    return nullcontext() if generator is None else _FromGenerator(generator)


class _FromGenerator(TorchFunctionMode):
    """Pass a generator to every function of torch, called in this thread, that draws."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        drawn = getattr(function, "__name__", "") in DRAWING
        if drawn and options.get("generator") is None and _is_on_cpu(args, options):
            options["generator"] = self.generator
        return function(*args, **options)


def _is_on_cpu(args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Return whether a function draws on the CPU, as a stream does."""
    device = options.get("device")
    if device is None and args and isinstance(args[0], Tensor):
        device = args[0].device
    return torch.device(torch.get_default_device() if device is None else device).type == "cpu"


class Dropout(nn.Dropout):
    """Dropout whose masks come from the stream of the thread, if it has one.

    The masks are drawn on the CPU, so that they are the same on every device.

    Example:
        >>> dropout, x = Dropout(0.5), torch.ones(1000)
        >>> with random_stream(Generator().manual_seed(0)):
        ...     share = float(dropout(x).mean())
        >>> 0.9 < share < 1.1
        True
    """

    def forward(self, x: Tensor) -> Tensor:
        """Set a share of the inputs to zero, and divide the others by the share that is left."""
        generator = _STREAM.get()
        if generator is None or not self.training or self.p in (0, 1):
            return super().forward(x)
        mask = torch.empty_like(x, device="cpu", requires_grad=False)
        mask.bernoulli_(1 - self.p, generator=generator).div_(1 - self.p)
        return x * mask.to(x.device)


def replayed(module: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws the same numbers from the stream each time it is called.

    For activations that are computed once more in the backward pass: a mask of dropout must be the
    same there.

    Example:
        >>> dropout = replayed(Dropout(0.5))
        >>> with random_stream(Generator().manual_seed(0)):
        ...     torch.equal(dropout(torch.ones(99)), dropout(torch.ones(99)))
        True
    """
    states: list[Tensor] = []

    def call(*args: Any) -> Any:
        if not states:
            current = _STREAM.get()
            if current is not None:
                states.append(current.get_state())
            return module(*args)
        again = Generator()  # also if the backward pass has no stream
        again.set_state(states[0])
        with random_stream(again):
            return module(*args)

    return call


def draws_globally(modules: Iterable[nn.Module]) -> bool:
    """Return whether modules may draw from torch's global generator in a forward pass.

    Layers of this library do not; those of a user may.

    Example:
        >>> draws_globally([nn.Linear(2, 2)]), draws_globally([nn.Dropout(0.1)])
        (False, True)
    """
    return any(_is_loud(part) for module in modules for part in module.modules())


def _is_loud(part: nn.Module) -> bool:
    where = type(part).__module__
    if where.startswith("isolatent.") or where == "torch.optim.swa_utils":
        return False
    package, _, name = where.rpartition(".")
    return package != "torch.nn.modules" or name not in QUIET or isinstance(part, LOUD)


def stream_for(generator: Generator, loud: bool) -> AbstractContextManager[None]:
    """Let layers draw from a generator while they are applied.

    Args:
        generator: The stream.
        loud: Whether layers draw from the global generator, as :func:`draws_globally` says. It
            stands in for the stream then: no other fit does the same meanwhile, and it is left as
            it was. Other threads that draw from it at the same time are the one exception.
    """
    return _global_stream(generator) if loud else random_stream(generator)


@contextmanager
def _global_stream(generator: Generator) -> Iterator[None]:
    with _GLOBAL, random_stream(generator):
        before = torch.get_rng_state()
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)
