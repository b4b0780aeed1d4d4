"""Beliefs that hold in a world."""

from __future__ import annotations

from typing import Any

from isolatent.datasets import (
    FactorWorld,
    KittiMasks,
    LaplaceTransitions,
    RecordedTransitions,
    UniformFactorChange,
)
from isolatent.theory.beliefs import Beliefs, Uncovered
from isolatent.worlds import (
    AnisotropicNormal,
    Box,
    CubeGrid,
    Distribution,
    Euclidean,
    GeneralizedNormal,
    HollowBall,
    Laplace,
    Normal,
    Space,
    Sphere,
    Uniform,
    VonMisesFisher,
    World,
)

__all__ = ["beliefs_of", "count_factors"]

SPACE_NAMES: dict[type[Space], str] = {
    Sphere: "sphere",
    Box: "box",
    Euclidean: "euclidean",
    CubeGrid: "cubegrid",
    HollowBall: "hollowball",
}


def beliefs_of(source: Any) -> Beliefs:
    """Return the beliefs that hold in a world, or in the world of a pair source.

    Classes are compared exactly: a user's subclass of a space or distribution may be anything.
    """
    world = getattr(source, "world", source)
    if isinstance(world, FactorWorld):
        return _beliefs_of_factor_world(source, world)
    if isinstance(frames := getattr(source, "frames", source), KittiMasks):
        measured = Uncovered(f"{frames.n_factors} factors measured in recorded frames")
        return Beliefs(measured, "unknown", Uncovered("recorded steps, whose density is not known"))
    if not isinstance(world, World):
        raise TypeError(f"world must be a World or a pair source with one, got {source!r}")
    space = SPACE_NAMES.get(type(world.space)) or Uncovered(repr(world.space))
    marginal: str = Uncovered(repr(world.marginal))
    if type(world.marginal) is Uniform:
        marginal = "uniform"
    elif type(world.marginal) is Normal:
        marginal = "normal"
    if getattr(source, "augmentations", None) is not None:
        return Beliefs(space, marginal, Uncovered("that of augmented views, which is not known"))
    conditionals = getattr(source, "conditionals", None) or (world.conditional,)
    negatives = getattr(source, "negatives", None)
    if isinstance(negatives, Distribution):
        conditionals = [_less(one, negatives, world.space.n) for one in conditionals]
    found = [_conditional_of(one, space, world.space.n) for one in conditionals]
    if any(one != found[0] for one in found):
        if {one["conditional"] for one in found} == {"anisotropic"}:
            return Beliefs(space, marginal, "anisotropic")
        return Beliefs(space, marginal, Uncovered(" or ".join(map(repr, conditionals))))
    return Beliefs(space, marginal, **found[0])


def count_factors(world: Any) -> int:
    """Return the number of factors of a world, or of the world of a pair source."""
    world = getattr(world, "frames", getattr(world, "world", world))
    known = isinstance(world, FactorWorld | KittiMasks)
    return int(world.n_factors if known else world.n_latents)


def _less(conditional: Distribution, negatives: Distribution, n: int) -> Any:
    """Return the conditional whose weights the optimum has with negatives around the anchor.

    For anisotropic normals the weights are Λ⁺ - Λ⁻ (`rusak2025`, Corollary 3.1).
    """
    if type(conditional) is AnisotropicNormal and type(negatives) is AnisotropicNormal:
        pairs = zip(
            _per_factor(conditional.weights, n), _per_factor(negatives.weights, n), strict=True
        )
        differences = tuple(a - b for a, b in pairs)
        if min(differences) > 0:
            return AnisotropicNormal(differences)
    return f"{conditional!r} with negatives {negatives!r}"


def _conditional_of(conditional: Any, space: str, n: int) -> dict[str, Any]:
    """Return the fields of Beliefs that a conditional distribution determines."""
    if type(conditional) is VonMisesFisher:
        return {"conditional": "vmf"}
    if type(conditional) is AnisotropicNormal:
        weights = _per_factor(conditional.weights, n)
        if len(set(weights)) > 1:
            return {"conditional": "anisotropic", "weights": weights}
        # With equal weights, exp(-λ|z' - z|²/2) on a sphere is a vMF density.
        return {"conditional": "vmf" if space == "sphere" else "normal"}
    if type(conditional) in (GeneralizedNormal, Normal, Laplace):
        assert isinstance(conditional, GeneralizedNormal)
        p, scales = float(conditional.p), _per_factor(conditional.scale, n)
        if len(set(scales)) > 1 and p == 2:
            weights = tuple(2 / scale**2 for scale in scales)
            return {"conditional": "anisotropic", "weights": weights}
        if len(set(scales)) == 1:
            if p in (1.0, 2.0):
                return {"conditional": "laplace" if p == 1 else "normal"}
            return {"conditional": "gennorm", "p": p}
    described = conditional if isinstance(conditional, str) else repr(conditional)
    return {"conditional": Uncovered(described)}


def _beliefs_of_factor_world(source: Any, world: FactorWorld) -> Beliefs:
    """Return the beliefs that hold on a grid of factors, whose pairs come from transitions."""
    names = [
        name
        for name, categorical in zip(world.names, world.categorical, strict=True)
        if categorical
    ]
    space = f"a grid of {world.n_factors} factors"
    if getattr(source, "continuous", False):
        space = f"{world.n_factors} factors, some of them on a grid"
    if names:
        space += f" with the category {' and '.join(names)}"
    transitions = getattr(source, "transitions", None)
    if names and transitions is not None and not isinstance(transitions, UniformFactorChange):
        space += ", which is the same within a pair"
    conditional: str = Uncovered("of pairs: no transitions were given")
    if transitions is not None:
        conditional = Uncovered(repr(transitions))
    if isinstance(transitions, UniformFactorChange):
        conditional = Uncovered("a change to any other value, which depends on no distance")
    elif isinstance(transitions, RecordedTransitions):
        conditional = Uncovered("recorded steps, whose density is not known")
    elif isinstance(transitions, LaplaceTransitions):
        conditional = "laplace"
    return Beliefs(Uncovered(space), "uniform", conditional)


def _per_factor(value: float | tuple[float, ...], n: int) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, tuple) else (float(value),) * n
