"""The distances: what one coordinate adds to a score, and the derivative of that.

A form is a type, not a value, so that numba compiles its arithmetic into the fused loops; two small
overloads, `score` and `slope`, are all that tells the forms apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from isolatent.contrast.kernels.arithmetic import SUMS, like, power

__all__ = ["Dot", "Form", "form_of", "score", "slope"]


class Dot(NamedTuple):
    """d = -u·v; weights are multiplied into u beforehand."""

    p: float  # unused: numba has no named tuples without a field


class L1(NamedTuple):
    """p = 1."""

    p: float


class L2(NamedTuple):
    """p = 2."""

    p: float


class L3(NamedTuple):
    """p = 3."""

    p: float


class L4(NamedTuple):
    """p = 4."""

    p: float


class L1Half(NamedTuple):
    """p = 1.5, where one square root does."""

    p: float


class L2Half(NamedTuple):
    """p = 2.5, where one square root does."""

    p: float


class Lp(NamedTuple):
    """Any other p > 1; q = p - 1, and coarse is q rounded to 12 bits (see `power`)."""

    p: float
    q: float
    coarse: float


Form = Dot | L1 | L2 | L3 | L4 | L1Half | L2Half | Lp

_EXACT: dict[float, Callable[[float], Form]] = {
    1.0: L1,
    1.5: L1Half,
    2.0: L2,
    2.5: L2Half,
    3.0: L3,
    4.0: L4,
}


def form_of(p: float | None, dtype: np.dtype[Any]) -> Form:
    """The form of a power, or of the dot product for None, with its numbers in a dtype."""
    real = dtype.type
    if p is None:
        return Dot(real(1))
    if p in _EXACT:
        return _EXACT[p](real(p))
    q = p - 1
    step = 2.0 ** (math.floor(math.log2(q)) - 11)
    return Lp(real(p), real(q), real(round(q / step) * step))


def score(form: Any, u: Any, v: Any, w: Any) -> Any:
    """What one coordinate adds to s: u v, or -w |u - v|^p."""


@overload(score, jit_options=SUMS, strict=False)
def _score(form: Any, u: Any, v: Any, w: Any) -> Any:
    def dot(form, u, v, w):
        return u * v

    def l1(form, u, v, w):
        return -w * abs(u - v)

    def l2(form, u, v, w):
        x = u - v
        return (-w * x) * x

    def l3(form, u, v, w):
        x = u - v
        return (-w * abs(x)) * (x * x)

    def l4(form, u, v, w):
        x = u - v
        y = x * x
        return (-w * y) * y

    def l1_half(form, u, v, w):
        x = abs(u - v)
        return (-w * x) * math.sqrt(x)

    def l2_half(form, u, v, w):
        x = abs(u - v)
        return (-w * x) * (x * math.sqrt(x))

    def lp(form, u, v, w):
        x = abs(u - v)
        return (-w * x) * power(x, form.q, form.coarse)

    choice = {Dot: dot, L1: l1, L2: l2, L3: l3, L4: l4, L1Half: l1_half, L2Half: l2_half, Lp: lp}
    return choice[form.instance_class]


def slope(form: Any, c: Any, u: Any, v: Any) -> Any:
    """The derivatives of c s in u and v without p w: c |x|^(p-1) sign(x), x = v - u."""


@overload(slope, jit_options=SUMS, strict=False)
def _slope(form: Any, c: Any, u: Any, v: Any) -> Any:
    def dot(form, c, u, v):
        return c * v, c * u

    def l1(form, c, u, v):
        g = c if v > u else (-c if v < u else like(0, c))
        return g, -g

    def l2(form, c, u, v):
        g = c * (v - u)
        return g, -g

    def l3(form, c, u, v):
        x = v - u
        g = (c * x) * abs(x)
        return g, -g

    def l4(form, c, u, v):
        x = v - u
        g = (c * x) * (x * x)
        return g, -g

    def l1_half(form, c, u, v):
        x = v - u
        g = c * math.copysign(math.sqrt(abs(x)), x)
        return g, -g

    def l2_half(form, c, u, v):
        x = v - u
        g = (c * x) * math.sqrt(abs(x))
        return g, -g

    def lp(form, c, u, v):
        x = v - u
        g = c * math.copysign(power(abs(x), form.q, form.coarse), x)
        return g, -g

    choice = {Dot: dot, L1: l1, L2: l2, L3: l3, L4: l4, L1Half: l1_half, L2Half: l2_half, Lp: lp}
    return choice[form.instance_class]
