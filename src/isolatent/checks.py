"""Argument checks: every message names the argument, what came, and what is allowed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "IsolatentWarning",
    "check_integer",
    "check_one_of",
    "check_real",
    "check_scale",
]


class IsolatentWarning(UserWarning):
    """Something was decided for the user, or cannot be trusted; never a mere notice."""


def check_integer(name: str, value: Any, *, at_least: int) -> int:
    """Return ``value`` as an int of at least ``at_least``.

    Example:
        >>> check_integer("n", 0, at_least=1)
        Traceback (most recent call last):
        ValueError: n must be an integer >= 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer >= {at_least}, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be an integer >= {at_least}, got {value!r}")
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
    bounds = [
        text
        for bound, text in ((above, f"> {above:g}"), (at_least, f">= {at_least:g}"))
        if bound != -math.inf
    ] + ([f"< {below:g}"] if below != math.inf else [])
    expected = " and ".join(["a finite number " + bounds[0], *bounds[1:]] if bounds else ["finite"])
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and above < number < below and number >= at_least):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return number


def check_scale(name: str, value: Any) -> float | tuple[float, ...]:
    """Return one positive number, or a tuple of them with one for each dimension.

    Example:
        >>> check_scale("std", [0.1, 0.2])
        (0.1, 0.2)
    """
    if isinstance(value, numbers.Real):
        return check_real(name, value, above=0)
    if hasattr(value, "tolist"):  # NumPy array or tensor
        value = value.tolist()
        if isinstance(value, float | int):
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
