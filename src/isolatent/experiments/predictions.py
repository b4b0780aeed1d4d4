"""What the theory says of a cell before it is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isolatent.experiments.cells import Cell
from isolatent.experiments.image_cells import ImageCell
from isolatent.theory import Guarantee, derive_guarantee, matching_head, matching_similarity

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


IMAGE_FACTORS = 5  # of sprites, the original ones, too
ON_A_GRID = (
    "the factors lie on a grid and shape is a category, but the theorems need a connected space"
)
PARTLY_ON_A_GRID = (
    "orientation lies on a grid and shape is a category, but the theorems need a connected space"
)
OF_A_VAE = (
    "what is claimed for the VAEs holds for the best posterior and decoder, "
    "and nothing in the data shows whether training came near them"
)
WITHOUT_PAIRS = (
    "a β-VAE does not look at pairs, and without them a rotation of its codes explains the images "
    "as well"
)
STEPS = {
    "uni": "factors that change take any other value, so that pairs tell no distances",
    "nat": "steps are as in a recording, so that their density has no known shape",
}
LAPLACE_STEPS = (
    "steps have Laplace weights, to which L1 distances are matched: with continuous factors in a "
    "box each would be found by itself (Zimmermann et al. 2021, Theorem 6)"
)
ROTATION = "L2 distances are the same after a rotation: each factor by itself is not to be expected"
NOT_MATCHED = "distances must match the Laplace weights of the steps: p = 1 instead of {:g}"
SHAPES_APART = "no pair joins two shapes, so that nothing ties the codes of one to those of another"


def expected_guarantee(cell: Cell | ImageCell, scale: dict[str, Any] | None = None) -> Guarantee:
    """The guarantee for the world as it is and the model as it is.

    An estimator derives its guarantee from what its user believes; here the world is known, so
    beliefs that do not hold show as a gap.

    Args:
        cell: The cell.
        scale: What was learned, as stored with a run; weights tell blocks apart.

    Example:
        >>> from isolatent.experiments import find_experiment
        >>> cells = {cell.name: cell for cell in find_experiment("zimmermann2020/dsprites").cells}
        >>> print(expected_guarantee(cells["uni_beta_vae"]))  # doctest: +NORMALIZE_WHITESPACE
        no guarantee: a β-VAE does not look at pairs, and without them a rotation of its codes
          explains the images as well
    """
    if isinstance(cell, ImageCell):
        return _of_images(cell)
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


def _of_images(cell: ImageCell) -> Guarantee:
    """Of images nothing is proven; the first reason, and what else is known."""
    if not cell.model.contrastive:
        why = WITHOUT_PAIRS if cell.model.method == "beta_vae" else OF_A_VAE
        return Guarantee(None, (), "", "", why)
    why = PARTLY_ON_A_GRID if cell.world.continuous else ON_A_GRID
    return Guarantee(None, (), "mcc", "", why, "; ".join(_besides(cell)))


def _besides(cell: ImageCell) -> Iterator[str]:
    power = 1.0 if cell.model.p is None else cell.model.p
    if cell.world.pairs != "lap":
        yield STEPS[cell.world.pairs]
    elif power == 1:
        yield LAPLACE_STEPS
    else:
        yield NOT_MATCHED.format(power)
    if power == 2:
        yield ROTATION
    if cell.world.pairs != "uni":
        yield SHAPES_APART
    if cell.model.n_components != IMAGE_FACTORS:
        yield f"there are {cell.model.n_components} codes for {IMAGE_FACTORS} factors"
    if cell.model.alpha is not None and cell.model.alpha != 0.5:
        yield "alignment and uniformity have the optimum of InfoNCE at weight 1/2 alone"
