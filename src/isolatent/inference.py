"""Call a module many times without gradients: compiled, or in chunks of rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = [
    "chunk_slices",
    "compile_for_inference",
    "device_of",
    "dtype_of",
    "encode_chunks",
    "evaluation_mode",
    "has_known_layers",
]

CHUNK_ROWS = 8192
CHUNK_NUMBERS = 2**22  # 1024 images of 64 x 64 pixels: activations of more would fill the memory


def has_known_layers(module: nn.Module) -> bool:
    """Return whether a module consists of layers of torch and of this library only.

    In evaluation mode these layers do not branch on their input and are thread-safe. User-defined
    layers may be neither.
    """
    return all(
        type(part).__module__.startswith(("torch.nn.", "isolatent.")) for part in module.modules()
    )


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode without gradients, and restore the modes of its parts."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, training in modes:
            part.training = training


def compile_for_inference(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a function that computes the module's output in evaluation mode.

    A module of known layers is traced and frozen at the first call: oneDNN then reorders the
    weights once and fuses each ReLU into its convolution, which halves the time of a convolutional
    encoder. Other modules are called directly, since a trace does not follow branches that depend
    on the data.

    Example:
        >>> module = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> x = torch.ones(5, 2)
        >>> torch.allclose(compile_for_inference(module)(x), module(x))
        True
    """
    known = has_known_layers(module)
    frozen: list[Callable[[Tensor], Tensor]] = []

    def call(x: Tensor) -> Tensor:
        if frozen:
            with torch.inference_mode():
                return frozen[0](x)
        with evaluation_mode(module):
            output: Tensor = module(x)
            if known:
                frozen.append(_freeze(module, x))
        return output

    return call


def _freeze(module: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    with warnings.catch_warnings():
        # Ignore that tracing is deprecated and that shape checks are not traced.
        warnings.simplefilter("ignore")
        return torch.jit.optimize_for_inference(torch.jit.trace(module, x))


def chunk_slices(n_rows: int, row_size: int) -> Iterator[slice]:
    """Yield slices that cover ``n_rows`` rows of ``row_size`` numbers each.

    Example:
        >>> [*chunk_slices(10_000, 3)]
        [slice(0, 8192, None), slice(8192, 10000, None)]
    """
    rows = max(1, min(CHUNK_ROWS, CHUNK_NUMBERS // max(1, row_size)))
    for start in range(0, n_rows, rows):
        yield slice(start, min(start + rows, n_rows))


def encode_chunks(
    module: nn.Module, x: Tensor, function: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return the codes of observations (N, ...), without gradients.

    Args:
        module: The module whose device and precision observations are converted to.
        x: The observations.
        function: What to apply to each chunk, by default the module itself.
    """
    dtype, device = dtype_of(module), device_of(module)
    apply = module if function is None else function
    with torch.no_grad():
        return torch.cat(
            [apply(x[rows].to(device, dtype)) for rows in chunk_slices(len(x), x[:1].numel())]
        )


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the precision of the parameters that are trained."""
    for parameter in module.parameters():
        if parameter.is_floating_point() and parameter.requires_grad:
            return parameter.dtype
    raise ValueError(f"encoder must have parameters to train, got {module!r}")


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module."""
    return next(module.parameters()).device
