"""What the theory says of a cell before it is run."""

from __future__ import annotations

from typing import Any

from isolatent.evaluation import (
    Guarantee,
    derive_guarantee,
    matching_head,
    matching_similarity,
)
from isolatent.experiments.cells import Cell

__all__ = ["expected_guarantee"]

SPACE_NAMES = {
    "Sphere": "sphere",
    "Box": "box",
    "Euclidean": "euclidean",
    "HollowBall": "hollowball",
    "CubeGrid": "cubegrid",
}
CONDITIONAL_NAMES = {
    "VonMisesFisher": "vmf",
    "AnisotropicNormal": "anisotropic",
    "Normal": "normal",
    "Laplace": "laplace",
}


def expected_guarantee(cell: Cell, scale: dict[str, Any] | None = None) -> Guarantee:
    """The guarantee for the world as it is and the model as it is.

    An estimator derives its guarantee from what its user believes; here the world is known, so
    beliefs that do not hold show as a gap.

    Args:
        cell: The cell.
        scale: What was learned, as stored with a run; weights tell blocks apart.
    """
    world, model = cell.world, cell.model
    conditional, p = _conditional(world.conditional[0])
    similarity, similarity_p = matching_similarity(model.conditional, model.p)
    loss = "aninfonce" if model.loss == "ensemble" else model.loss
    learned = (scale or {}).get("learned")
    known = similarity == "weighted" and isinstance(learned, list) and len(world.conditional) == 1
    return derive_guarantee(
        SPACE_NAMES.get(world.space["kind"], "euclidean"),
        "uniform" if world.marginal["kind"] == "Uniform" else "unknown",
        conditional,
        p=p,
        similarity=similarity,
        similarity_p=similarity_p,
        loss=loss,
        potentials=model.potentials or "none",
        head=matching_head(model.space),
        weights=learned if known else None,
    )


def _conditional(way: dict[str, Any]) -> tuple[str, float | None]:
    if way["kind"] == "GeneralizedNormal":
        exponent = float(way["p"])
        return {1.0: ("laplace", None), 2.0: ("normal", None)}.get(exponent, ("gennorm", exponent))
    return CONDITIONAL_NAMES[way["kind"]], None
