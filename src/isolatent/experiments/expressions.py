"""Declarations as people write them, ``"Normal(std=0.1)"``, read without running Python."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np

from isolatent.worlds.declaration import KINDS, from_dict, to_dict

__all__ = ["declaration"]

NESTED = {"Product": "spaces", "Independent": "parts"}  # their arguments are declarations


def declaration(written: str | dict[str, Any]) -> dict[str, Any]:
    """The plain data of a space, a distribution or a mixing, complete with its defaults.

    Args:
        written: A call, such as ``"Box(10)"``, whose arguments are numbers, strings, lists, sums
            and multiples of lists, or ``linspace(first, last, count)``; or the dictionary that
            ``World.to_dict`` gives.

    Example:
        >>> declaration("Box(2)")
        {'kind': 'Box', 'n': 2, 'low': 0.0, 'high': 1.0}
        >>> declaration("AnisotropicNormal([5.0] * 2 + linspace(1, 3, 2))")["weights"]
        [5.0, 5.0, 1.0, 3.0]
    """
    spec = _read(written) if isinstance(written, str) else written
    return to_dict(from_dict(spec))


def _read(text: str) -> dict[str, Any]:
    try:
        return _call(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not a declaration such as 'Box(10)'") from error


def _call(node: ast.expr) -> dict[str, Any]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{ast.unparse(node)!r} is not a declaration such as 'Box(10)'")
    kind = node.func.id
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {sorted(KINDS)}, got {kind!r}")
    if kind in NESTED:
        return {"kind": kind, NESTED[kind]: [_call(argument) for argument in node.args]}
    values = [_value(argument) for argument in node.args]
    named = {keyword.arg: _value(keyword.value) for keyword in node.keywords}
    signature = inspect.signature(KINDS[kind])
    try:
        bound = signature.bind(*values, **named)  # type: ignore[arg-type]
    except TypeError as error:
        allowed = ", ".join(signature.parameters) or "no arguments"
        raise ValueError(f"{kind} takes {allowed}; {error} in {ast.unparse(node)!r}") from error
    return {"kind": kind, **bound.arguments}


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand)
        case ast.List():
            return [_value(element) for element in node.elts]
        case ast.BinOp(op=ast.Mult() | ast.Add()):
            left, right = _value(node.left), _value(node.right)
            if isinstance(left, list):
                return left * right if isinstance(node.op, ast.Mult) else left + right
        case ast.Call(func=ast.Name(id="linspace")):
            first, last, count = (_value(argument) for argument in node.args)
            return [float(value) for value in np.linspace(first, last, count)]
    raise ValueError(
        f"{ast.unparse(node)!r} must be a number, a string, a list, or linspace(first, last, count)"
    )
