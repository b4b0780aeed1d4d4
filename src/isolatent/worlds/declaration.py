"""Conversion of spaces, distributions and mixings to plain data and back."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from isolatent.worlds.distributions import Distribution, Independent
from isolatent.worlds.mixings import Mixing
from isolatent.worlds.spaces import Product, Space

__all__ = ["declared_classes", "from_dict", "to_dict"]

Declared = Space | Distribution | Mixing


def declared_classes() -> dict[str, type[Any]]:
    """Return the concrete spaces, distributions and mixings by class name, users' own included.

    A class is found once its module has been imported.

    Example:
        >>> declared_classes()["Box"]
        <class 'isolatent.worlds.spaces.Box'>
    """
    found: dict[str, type[Any]] = {}
    classes: list[type[Any]] = [Space, Distribution, Mixing]
    for kind in classes:
        classes += kind.__subclasses__()  # which the loop then visits
        if not inspect.isabstract(kind) and not kind.__name__.startswith("_"):
            found.setdefault(kind.__name__, kind)
    return found


def to_dict(declared: Declared) -> dict[str, Any]:
    """Return the class name, under ``kind``, and the constructor's arguments.

    Example:
        >>> from isolatent.worlds import Box
        >>> to_dict(Box(2))
        {'kind': 'Box', 'n': 2, 'low': 0.0, 'high': 1.0}
    """
    if isinstance(declared, Mixing):
        arguments = declared.arguments
    else:
        arguments = {f.name: getattr(declared, f.name) for f in fields(declared) if f.init}  # type: ignore[arg-type]
    spec: dict[str, Any] = {"kind": type(declared).__name__}
    for name, value in arguments.items():
        if isinstance(value, tuple):  # of numbers, or the parts of a product
            spec[name] = [to_dict(item) if isinstance(item, Declared) else item for item in value]
        elif value is not None:  # TOML has no null, and None is always a default
            spec[name] = value
    return spec


def from_dict(spec: dict[str, Any]) -> Any:
    """Build the object that :func:`to_dict` described.

    Example:
        >>> from_dict({"kind": "VonMisesFisher", "kappa": 10.0})
        VonMisesFisher(kappa=10.0)
    """
    if not isinstance(spec, dict) or "kind" not in spec:
        raise ValueError(f"a declaration must be a dict with the key 'kind', got {spec!r}")
    arguments = {name: value for name, value in spec.items() if name != "kind"}
    known = declared_classes()
    kind = known.get(spec["kind"]) if isinstance(spec["kind"], str) else None
    if kind is None:
        raise ValueError(
            f"kind must be one of {sorted(known)}, got {spec['kind']!r}; import the module of any "
            "other class first, such as isolatent.datasets for SpriteMixing"
        )
    if kind in (Product, Independent):
        name = "spaces" if kind is Product else "parts"
        children = arguments.get(name)
        if set(arguments) != {name} or not isinstance(children, list | tuple):
            raise ValueError(f"{spec['kind']} takes a list under '{name}' alone, got {spec!r}")
        return kind(*(from_dict(child) for child in children))
    try:
        return kind(**arguments)
    except TypeError as error:
        raise TypeError(f"{spec['kind']}: {error}") from error
