"""Forms of a score: the term of one coordinate, and its derivative.

A form is a type, not a value, so that numba compiles its arithmetic into the fused loops. Forms
differ only in two small overloads, `score` and `slope`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from isolatent.contrast.kernels.arithmetic import SUMS, like, power

__all__ = ["DotForm", "Form", "form_of", "score", "slope"]


class DotForm(NamedTuple):
    """d = -u·v; weights are multiplied into u beforehand."""

    p: float  # unused: numba has no named tuples without a field


def _dot_score(form, u, v, w):
    return u * v


def _dot_slope(form, c, u, v):
    return c * v, c * u


class L1Form(NamedTuple):
    """p = 1."""

    p: float


def _l1_score(form, u, v, w):
    return -w * abs(u - v)


def _l1_slope(form, c, u, v):
    g = c if v > u else (-c if v < u else like(0, c))
    return g, -g


class L1Point5Form(NamedTuple):
    """p = 1.5, computed with one square root."""

    p: float


def _l1_point5_score(form, u, v, w):
    x = abs(u - v)
    return (-w * x) * math.sqrt(x)


def _l1_point5_slope(form, c, u, v):
    x = v - u
    g = c * math.copysign(math.sqrt(abs(x)), x)
    return g, -g


class L2Form(NamedTuple):
    """p = 2."""

    p: float


def _l2_score(form, u, v, w):
    x = u - v
    return (-w * x) * x


def _l2_slope(form, c, u, v):
    g = c * (v - u)
    return g, -g


class L2Point5Form(NamedTuple):
    """p = 2.5, computed with one square root."""

    p: float


def _l2_point5_score(form, u, v, w):
    x = abs(u - v)
    return (-w * x) * (x * math.sqrt(x))


def _l2_point5_slope(form, c, u, v):
    x = v - u
    g = (c * x) * math.sqrt(abs(x))
    return g, -g


class L3Form(NamedTuple):
    """p = 3."""

    p: float


def _l3_score(form, u, v, w):
    x = u - v
    return (-w * abs(x)) * (x * x)


def _l3_slope(form, c, u, v):
    x = v - u
    g = (c * x) * abs(x)
    return g, -g


class L4Form(NamedTuple):
    """p = 4."""

    p: float


def _l4_score(form, u, v, w):
    x = u - v
    y = x * x
    return (-w * y) * y


def _l4_slope(form, c, u, v):
    x = v - u
    g = (c * x) * (x * x)
    return g, -g


class LpForm(NamedTuple):
    """Any other p > 1; q = p - 1, and coarse is q rounded to 12 bits (see `power`)."""

    p: float
    q: float
    coarse: float


def _lp_score(form, u, v, w):
    x = abs(u - v)
    return (-w * x) * power(x, form.q, form.coarse)


def _lp_slope(form, c, u, v):
    x = v - u
    g = c * math.copysign(power(abs(x), form.q, form.coarse), x)
    return g, -g


Form = DotForm | L1Form | L1Point5Form | L2Form | L2Point5Form | L3Form | L4Form | LpForm

_SCORES_AND_SLOPES: dict[Any, tuple[Any, Any]] = {
    DotForm: (_dot_score, _dot_slope),
    L1Form: (_l1_score, _l1_slope),
    L1Point5Form: (_l1_point5_score, _l1_point5_slope),
    L2Form: (_l2_score, _l2_slope),
    L2Point5Form: (_l2_point5_score, _l2_point5_slope),
    L3Form: (_l3_score, _l3_slope),
    L4Form: (_l4_score, _l4_slope),
    LpForm: (_lp_score, _lp_slope),
}

_SPECIAL_POWERS: dict[float, Any] = {
    1.0: L1Form,
    1.5: L1Point5Form,
    2.0: L2Form,
    2.5: L2Point5Form,
    3.0: L3Form,
    4.0: L4Form,
}


@cache
def form_of(p: float | None, dtype: np.dtype[Any]) -> Form:
    """Return the form of a power, or of the inner product for None, with numbers of a dtype."""
    real = dtype.type
    if p is None:
        return DotForm(real(1))
    if p in _SPECIAL_POWERS:
        form: Form = _SPECIAL_POWERS[p](real(p))
        return form
    q = p - 1
    step = 2.0 ** (math.floor(math.log2(q)) - 11)
    return LpForm(real(p), real(q), real(round(q / step) * step))


def score(form: Any, u: Any, v: Any, w: Any) -> Any:
    """Return the term of one coordinate in s: u v, or -w |u - v|^p."""


@overload(score, jit_options=SUMS, strict=False)
def _score(form: Any, u: Any, v: Any, w: Any) -> Any:
    return _SCORES_AND_SLOPES[form.instance_class][0]


def slope(form: Any, c: Any, u: Any, v: Any) -> Any:
    """Return the derivatives of c s in u and v, without the factor p w.

    They are ±c |x|^(p-1) sign(x) with x = v - u, and c v and c u for the inner product.
    """


@overload(slope, jit_options=SUMS, strict=False)
def _slope(form: Any, c: Any, u: Any, v: Any) -> Any:
    return _SCORES_AND_SLOPES[form.instance_class][1]
