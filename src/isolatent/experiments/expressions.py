"""Parse declarations written as calls, such as ``"Normal(std=0.1)"``, without evaluating them."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np

import isolatent.datasets  # noqa: F401  # defines SpriteMixing, which declared_classes() then lists
from isolatent.checks import check_integer, check_real
from isolatent.worlds.declaration import declared_classes, from_dict, to_dict

__all__ = ["parse_declaration"]

NESTED = {"Product": "spaces", "Independent": "parts"}  # classes whose arguments are declarations
MAX_LIST_LENGTH = 10_000  # of all lists in a declaration together
MAX_INTEGER = 10_000  # such as dimensions, layers or cells of a grid
MAX_DEPTH = 20


def parse_declaration(written: str | dict[str, Any], base: type[Any] = object) -> dict[str, Any]:
    """Return the plain data of a space, distribution or mixing, with all its defaults.

    Args:
        written: A call, such as ``"Box(10)"``, whose arguments are numbers, strings, lists, sums
            and multiples of lists, or ``linspace(first, last, count)``; or a dictionary as
            ``World.to_dict`` returns it.
        base: The base class whose subclasses are allowed names in the error for an unknown name.

    Example:
        >>> parse_declaration("Box(2)")
        {'kind': 'Box', 'n': 2, 'low': 0.0, 'high': 1.0}
        >>> parse_declaration("AnisotropicNormal([5.0] * 2 + linspace(1, 3, 2))")["weights"]
        [5.0, 5.0, 1.0, 3.0]
    """
    if isinstance(written, str):
        try:
            spec = _parse_call(ast.parse(written.strip(), mode="eval").body, base)
        except (SyntaxError, RecursionError, MemoryError) as error:  # the last two if nested deeply
            raise ValueError(f"{written!r} is not a declaration such as 'Box(10)'") from error
    else:
        spec = written
        if isinstance(kind := spec.get("kind"), str):
            _find_class(kind, base)
    _check_size(spec)
    return to_dict(from_dict(spec))


def _check_size(spec: Any) -> None:
    """Raise an error for a declaration that asks for more than any world needs, and for memory."""
    waiting, count = [(spec, "", 0)], 0
    while waiting:
        value, name, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"a declaration must be nested at most {MAX_DEPTH} levels deep")
        if isinstance(value, dict):
            waiting += [(item, str(key), depth + 1) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            if count + len(value) > MAX_LIST_LENGTH:
                raise ValueError(
                    f"{name or 'a declaration'} must hold at most {MAX_LIST_LENGTH} numbers"
                )
            waiting += [(item, name, depth + 1) for item in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            check_integer(name, value, at_least=-MAX_INTEGER, at_most=MAX_INTEGER)
        count += 1


def _find_class(kind: str, base: type[Any]) -> type[Any]:
    known = declared_classes()
    if kind not in known:
        allowed = ", ".join(repr(name) for name in sorted(known) if issubclass(known[name], base))
        raise ValueError(f"kind must be one of {allowed}, got {kind!r}")
    return known[kind]


def _parse_call(node: ast.expr, base: type[Any]) -> dict[str, Any]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{ast.unparse(node)!r} is not a declaration such as 'Box(10)'")
    kind = node.func.id
    declared = _find_class(kind, base)
    if kind in NESTED:
        if node.keywords:
            raise ValueError(f"{kind} takes declarations only, got {ast.unparse(node)!r}")
        return {"kind": kind, NESTED[kind]: [_parse_call(argument, base) for argument in node.args]}
    values = [_parse_value(argument) for argument in node.args]
    named = {keyword.arg: _parse_value(keyword.value) for keyword in node.keywords}
    signature = inspect.signature(declared)
    try:
        bound = signature.bind(*values, **named)  # type: ignore[arg-type]
    except TypeError as error:
        allowed = ", ".join(signature.parameters) or "no arguments"
        raise ValueError(f"{kind} takes {allowed}; {error} in {ast.unparse(node)!r}") from error
    return {"kind": kind, **bound.arguments}


def _parse_value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.UnaryOp(op=ast.USub()) if isinstance(
            value := _parse_value(node.operand), int | float
        ):
            return -value
        case ast.List():
            return [_parse_value(element) for element in node.elts]
        case ast.BinOp(op=ast.Mult() | ast.Add()):
            left, right = _parse_value(node.left), _parse_value(node.right)
            if isinstance(left, list) and isinstance(node.op, ast.Add) and isinstance(right, list):
                return left + right
            if isinstance(left, list) and isinstance(node.op, ast.Mult):
                most = MAX_LIST_LENGTH // max(1, len(left))
                return left * check_integer(
                    "the multiple of a list", right, at_least=0, at_most=most
                )
        case ast.Call(func=ast.Name(id="linspace"), args=[first, last, count], keywords=[]):
            return _linspace(_parse_value(first), _parse_value(last), _parse_value(count))
    raise ValueError(
        f"{ast.unparse(node)!r} must be a number, a string, a list, or linspace(first, last, count)"
    )


def _linspace(first: Any, last: Any, count: Any) -> list[float]:
    check_real("first of linspace", first)
    check_real("last of linspace", last)
    check_integer("count of linspace", count, at_least=1, at_most=MAX_LIST_LENGTH)
    return [float(value) for value in np.linspace(first, last, count)]
