"""Elementary functions that LLVM can vectorise inside the fused loops.

In float32 they are branch-free polynomials, fitted by least squares in the relative error over the
reduced range; each is right to about 1e-7. In float64 they are those of the C library.

Flags of fast arithmetic are chosen one by one, and infinities and nans keep their meaning: a sum
may be reordered (`SUMS`), but the range reductions here depend on the order (`EXACT`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

__all__ = ["EXACT", "SUMS", "exp", "like", "log1p", "maximum", "power"]

SUMS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
    "forceinline": True,
    "no_cpython_wrapper": True,  # never called from Python; saves compile time
    "no_cfunc_wrapper": True,
}
EXACT: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}

_MAGIC = 12582912.0  # 1.5 · 2²³: adding it to a float32 rounds to an integer, held in the low bits


@intrinsic
def like(context: Any, value: Any, x: Any) -> Any:
    """Return a constant in the type of x (numba would widen float32 · 1 to float64)."""
    return x(value, x), lambda c, builder, sig, args: c.cast(builder, args[0], sig.args[0], x)


@intrinsic
def maximum(context: Any, x: Any, y: Any) -> Any:
    """Return the larger of two numbers that are not nan.

    numba's own max is a comparison and a select without flags, which LLVM will not vectorise.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        name = "llvm.maxnum." + ("f32" if kind == ir.FloatType() else "f64")
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(kind, [kind, kind]), name
        )
        return builder.call(function, args, fastmath=("nnan", "nsz"))

    return x(x, x), build


@intrinsic
def _scale(context: Any, y: Any, t: Any) -> Any:
    """Return y · 2ⁿ in float32, where t = n + `_MAGIC`: add the low bits of t to y's exponent."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        shifted = builder.shl(builder.bitcast(args[1], word), ir.Constant(word, 23))
        return builder.bitcast(builder.add(builder.bitcast(args[0], word), shifted), ir.FloatType())

    return types.float32(types.float32, types.float32), build


def _split(part: str) -> Any:
    """Return an intrinsic from float32 x > 0 to one part of x = m · 2ᵉ with m in [√½, √2)."""

    def function(context: Any, x: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(32)
            bits = builder.bitcast(args[0], word)
            root = ir.Constant(word, 0x3F3504F3)  # √½
            e = builder.ashr(builder.sub(bits, root), ir.Constant(word, 23))
            if part == "exponent":
                return builder.sitofp(e, ir.FloatType())
            e = builder.shl(e, ir.Constant(word, 23))
            return builder.bitcast(builder.sub(bits, e), ir.FloatType())

        return types.float32(types.float32), build

    return intrinsic(function)


_exponent = _split("exponent")
_mantissa = _split("mantissa")


def exp(x: Any) -> Any:
    """Return e^x for x <= 88. In float32 it is 0 below -64 (e^-64 = 1.6e-28).

    Products with smaller numbers would be subnormal, which the processor handles tens of times
    slower; beside the largest term of a sum they are lost anyhow.
    """


@overload(exp, jit_options=EXACT, strict=False)
def _exp(x: Any) -> Any:
    if x == types.float64:
        return lambda x: math.exp(x)
    f = np.float32
    low, log2e, magic = f(-64.0), f(1.4426950408889634), f(_MAGIC)
    high, rest = f(0.693145751953125), f(1.428606765330187e-06)  # ln 2, the first part of 17 bits
    c2, c3, c4, c5, c6 = (
        f(0.500000000373584587),
        f(0.166665729386293096),
        f(0.0416665130544549359),
        f(0.00836384607967817025),
        f(0.00139309797787688487),
    )
    one, zero = f(1), f(0)

    def impl(x):  # e^x = 2ⁿ e^r with |r| <= ln(2)/2
        t = x * log2e + magic
        n = t - magic
        r = (x - n * high) - n * rest
        y = one + r + (r * r) * (c2 + r * (c3 + r * (c4 + r * (c5 + r * c6))))
        return _scale(y, t) if x > low else zero

    return impl


def log1p(y: Any) -> Any:
    """Return log(1 + y) for 0 <= y <= 1."""


@overload(log1p, jit_options=EXACT, strict=False)
def _log1p(y: Any) -> Any:
    if y == types.float64:
        return lambda y: math.log1p(y)
    f = np.float32
    two, small = f(2), f(1e-15)
    c0, c1, c2, c3, c4 = (
        f(2.00000000768175888),
        f(0.666663216413777732),
        f(0.400245952307037479),
        f(0.279651577451972689),
        f(0.281577783631090807),
    )

    def impl(y):  # log(1 + y) = 2 atanh z
        z = y / (two + y)
        h = z if z > small else small  # the square of a tiny z would be subnormal
        q = h * h
        return z * (c0 + q * (c1 + q * (c2 + q * (c3 + q * c4))))

    return impl


def power(x: Any, q: Any, coarse: Any) -> Any:
    """Return x^q for x >= 0 and q > 0.

    `coarse` is q rounded to 12 bits, so that its product with an exponent is exact.
    """


@overload(power, jit_options=EXACT, strict=False)
def _power(x: Any, q: Any, coarse: Any) -> Any:
    if x == types.float64:
        return lambda x, q, coarse: math.pow(x, q)
    f = np.float32
    zero, one, magic = f(0), f(1), f(_MAGIC)
    tiny, low, high = f(1.2e-38), f(-125), f(127)  # the range of normal numbers and exponents
    l0, l1, l2, l3 = (
        f(2.88539007963846311),
        f(0.961798972291303429),
        f(0.576700192818136298),
        f(0.432121623009167266),
    )
    c1, c2, c3, c4, c5, c6 = (
        f(0.69314718854004543),
        f(0.240226508268380618),
        f(0.0555035467491348678),
        f(0.00961806754535474377),
        f(0.00133921499529812719),
        f(0.000154593240446964904),
    )

    def impl(x, q, coarse):  # x^q = 2^(q e + q log2 m), the exponent in two parts: large + small
        e = _exponent(x)
        m = _mantissa(x)
        z = (m - one) / (m + one)  # log2 m = 2 atanh(z) / ln 2
        h = z * z
        small = (q - coarse) * e + q * (z * (l0 + h * (l1 + h * (l2 + h * l3))))
        large = coarse * e
        y = large + small
        t = (y if y < high else high) + magic
        r = (large - (t - magic)) + small
        y = one + r * (c1 + r * (c2 + r * (c3 + r * (c4 + r * (c5 + r * c6)))))
        return _scale(y, t) if (x > tiny) & (large + small > low) else zero

    return impl
