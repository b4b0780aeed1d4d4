"""Spaces, distributions and mixings as plain data, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from isolatent.worlds.distributions import Distribution, GaussianCopula, Independent, Uniform
from isolatent.worlds.generalized_normal import GeneralizedNormal, Laplace, Normal
from isolatent.worlds.mixings import FlowMixing, Identity, InvertibleMLP, Linear, Mixing
from isolatent.worlds.spaces import Box, CubeGrid, Euclidean, HollowBall, Product, Space, Sphere
from isolatent.worlds.spherical import AnisotropicNormal, ShellNormal, VonMisesFisher
from isolatent.worlds.sprite_mixing import SpriteMixing

__all__ = ["from_dict", "to_dict"]

Declared = Space | Distribution | Mixing

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Sphere, Box, Euclidean, HollowBall, CubeGrid, Product),
        *(Uniform, GaussianCopula, Independent, GeneralizedNormal, Normal, Laplace),
        *(VonMisesFisher, AnisotropicNormal, ShellNormal),
        *(Identity, Linear, InvertibleMLP, FlowMixing, SpriteMixing),
    )
}


def to_dict(declared: Declared) -> dict[str, Any]:
    """The class's name under ``kind``, and the arguments of its constructor.

    Example:
        >>> to_dict(Box(2))
        {'kind': 'Box', 'n': 2, 'low': 0.0, 'high': 1.0}
    """
    kind = type(declared).__name__
    if isinstance(declared, Product):
        return {"kind": kind, "spaces": [to_dict(space) for space in declared.spaces]}
    if isinstance(declared, Independent):
        return {"kind": kind, "parts": [to_dict(part) for part in declared.parts]}
    if isinstance(declared, Mixing):
        arguments = declared.arguments
    else:
        arguments = {f.name: getattr(declared, f.name) for f in fields(declared) if f.init}  # type: ignore[arg-type]
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in arguments.items()}
    # TOML has no null, and None is always a default.
    return {"kind": kind} | {k: v for k, v in plain.items() if v is not None}


def from_dict(spec: dict[str, Any]) -> Any:
    """Make what :func:`to_dict` described.

    Example:
        >>> from_dict({"kind": "VonMisesFisher", "kappa": 10.0})
        VonMisesFisher(kappa=10.0)
    """
    if not isinstance(spec, dict) or "kind" not in spec:
        raise ValueError(f"a declaration must be a dict with the key 'kind', got {spec!r}")
    arguments = {name: value for name, value in spec.items() if name != "kind"}
    kind = KINDS.get(spec["kind"]) if isinstance(spec["kind"], str) else None
    if kind is None:
        raise ValueError(f"kind must be one of {sorted(KINDS)}, got {spec['kind']!r}")
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
