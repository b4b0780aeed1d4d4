"""Argument checks; every message names the argument, the allowed values and the given value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Generator, Tensor

__all__ = [
    "IsolatentWarning",
    "check_generator",
    "check_integer",
    "check_one_of",
    "check_real",
    "check_scale",
    "check_tensor",
    "set_fields",
]


class IsolatentWarning(UserWarning):
    """Warning about a default that affects results, or about results that cannot be trusted."""


def check_generator(name: str, value: Any) -> Generator:
    """Return ``value`` if it is a torch generator.

    Example:
        >>> check_generator("generator", 7)
        Traceback (most recent call last):
        TypeError: generator must be a torch.Generator, got 7
    """
    from torch import Generator  # here, so that importing the other checks stays fast

    if not isinstance(value, Generator):
        raise TypeError(f"{name} must be a torch.Generator, got {value!r}")
    return value


def check_integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Return ``value`` as an int in the stated range, both ends included.

    Example:
        >>> check_integer("n", 0, at_least=1)
        Traceback (most recent call last):
        ValueError: n must be an integer >= 1, got 0
    """
    expected = f"an integer >= {at_least}" + ("" if at_most is None else f" and <= {at_most}")
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    if value < at_least or (at_most is not None and int(value) > at_most):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return int(value)


def check_real(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
) -> float:
    """Return ``value`` as a finite float inside the stated range.

    Example:
        >>> check_real("kappa", -1.0, above=0)
        Traceback (most recent call last):
        ValueError: kappa must be a finite number > 0, got -1.0
    """
    limits = ((">", above), (">=", at_least), ("<", below))
    bounds = [f"{sign} {limit:g}" for sign, limit in limits if math.isfinite(limit)]
    expected = "a finite number " + " and ".join(bounds) if bounds else "finite"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and above < number < below and number >= at_least):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return number


def check_scale(name: str, value: Any) -> float | tuple[float, ...]:
    """Return one positive number, or a tuple of positive numbers, one per dimension.

    Example:
        >>> check_scale("std", [0.1, 0.2])
        (0.1, 0.2)
    """
    if hasattr(value, "tolist"):  # NumPy scalar, array or tensor
        value = value.tolist()
    if isinstance(value, numbers.Real):
        return check_real(name, value, above=0)
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) == 0:
        raise TypeError(
            f"{name} must be a positive number or a sequence of them, one per dimension, "
            f"got {value!r}"
        )
    return tuple(check_real(f"{name}[{k}]", v, above=0) for k, v in enumerate(value))


def check_one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of the allowed names.

    Example:
        >>> check_one_of("method", "kendall", ["pearson", "spearman"])
        Traceback (most recent call last):
        ValueError: method must be one of 'pearson', 'spearman', got 'kendall'
    """
    names = list(allowed)
    if value not in names:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, got {value!r}")
    return str(value)


def check_tensor(name: str, value: Any) -> Tensor:
    """Return an array, tensor or nested list of numbers as a float32 or float64 tensor.

    Tensors stay on their device; float64 and integers become float64, shorter floats float32.

    Example:
        >>> check_tensor("z", [[1, 2]])
        tensor([[1., 2.]], dtype=torch.float64)
    """
    import numpy as np
    import torch

    if not isinstance(value, torch.Tensor):
        try:
            array = np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from error
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{name} must be an array of real numbers, got {value!r}")
        short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        # Copy in native byte order: torch supports neither other byte orders nor long doubles.
        value = torch.from_numpy(array.astype(np.float32 if short else np.float64))
    if value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"{name} must be real, got a tensor of {value.dtype}")
    if value.dtype in (torch.float32, torch.float64):
        return value
    return value.to(torch.float32 if value.is_floating_point() else torch.float64)


def set_fields(instance: Any, **values: Any) -> None:
    """Set checked arguments of a frozen dataclass.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Scale:
        ...     value: float
        ...     def __post_init__(self):
        ...         set_fields(self, value=check_real("value", self.value, above=0))
        >>> Scale(2)
        Scale(value=2.0)
    """
    for name, value in values.items():
        object.__setattr__(instance, name, value)
