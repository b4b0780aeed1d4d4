"""Encode many observations in chunks, on the device and in the precision of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

__all__ = ["chunk_slices", "device_of", "dtype_of", "encode_chunks"]

CHUNK_ROWS = 8192
CHUNK_NUMBERS = 2**22  # 1024 images of 64 x 64 pixels: activations of more would fill the memory


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
