"""Cells whose worlds are made of latents, distributions and a mixing."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from isolatent.experiments.expressions import declaration
from isolatent.experiments.settings import Setting, Spec, check_one_of, one_of
from isolatent.theory import CONDITIONALS, MARGINALS, POTENTIALS, SPACES, check_beliefs
from isolatent.training import Recipe
from isolatent.training.assembly import ENCODERS, LOSSES
from isolatent.worlds import Distribution, Mixing, Space, World
from isolatent.worlds.declaration import from_dict

__all__ = ["APPROACHES", "METRICS", "Cell", "ModelSpec", "WorldSpec", "check_recipe"]

APPROACHES = ("identity", "supervised", "unsupervised")
METRICS = ("linear_r2", "mcc", "block_r2", "block_mcc")
BLOCK_METRIC = re.compile(r"linear_r2_block([1-9]\d*)")
MEASURES = ("total_variation", "gradient_noise")
# Beside the losses of the estimator: one AnInfoNCE for each way of making positives.
LOSS_NAMES = (*LOSSES, "ensemble")


def _declared(written: Any) -> dict[str, Any]:
    if not isinstance(written, str | dict):
        raise ValueError(f"a declaration is a call such as 'Box(10)' or a table, got {written!r}")
    try:
        return declaration(written)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _metric(value: Any) -> Any:
    """One of ``METRICS``, or R² of the factors of one block, such as ``"linear_r2_block1"``."""
    if isinstance(value, str) and BLOCK_METRIC.fullmatch(value):
        return value
    return check_one_of(value, (*METRICS, "linear_r2_block1"))


def _ways(written: Any) -> list[dict[str, Any]]:
    return [_declared(one) for one in (written if isinstance(written, list) else [written])]


Declared = Annotated[dict[str, Any], BeforeValidator(_declared)]


class WorldSpec(Spec):
    """Where the data of a cell come from; each part is a declaration.

    Attributes:
        space: Where the latents live.
        marginal: How anchors are distributed.
        conditional: How positives are, around their anchors: one way, or a list of several, each
            of which makes as many of the pairs.
        mixing: How latents are observed.
        negatives: How each anchor's own negatives are distributed around it, if it has such.
        negatives_per_anchor: How many of them.
    """

    space: Declared
    marginal: Declared
    conditional: Annotated[list[dict[str, Any]], BeforeValidator(_ways)] = Field(min_length=1)
    mixing: Declared = Field(
        default_factory=lambda: declaration("InvertibleMLP(layers=3)"), validate_default=True
    )
    negatives: Declared | None = None
    negatives_per_anchor: int = Field(default=16, ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> WorldSpec:
        space = from_dict(self.space)
        parts = [("marginal", self.marginal), *(("conditional", way) for way in self.conditional)]
        if self.negatives is not None:
            parts.append(("negatives", self.negatives))
        for name, spec, kind in (
            ("space", self.space, Space),
            ("mixing", self.mixing, Mixing),
            *((name, spec, Distribution) for name, spec in parts),
        ):
            if not isinstance(made := from_dict(spec), kind):
                raise ValueError(f"{name} must be a {kind.__name__}, got {made!r}")
        for name, spec in parts:
            try:
                from_dict(spec).check(space)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name}: {error}") from error
        return self

    @property
    def n(self) -> int:
        """Number of latents."""
        return int(from_dict(self.space).n)

    def build(self, seed: int) -> list[World]:
        """One world for each way of making positives; they share latents and mixing."""
        space, marginal = from_dict(self.space), from_dict(self.marginal)
        return [
            World(space, marginal, from_dict(way), from_dict(self.mixing), seed=seed)
            for way in self.conditional
        ]


class ModelSpec(Spec):
    """What the model believes and minimises; the names are those of ``ContrastiveICA``."""

    space: Annotated[str, one_of(SPACES)]
    marginal: Annotated[str, one_of(MARGINALS)] = "uniform"
    conditional: Annotated[str, one_of(CONDITIONALS)]
    p: float | None = None
    loss: Annotated[str, one_of(LOSS_NAMES)] = "infonce"
    potentials: Annotated[str, one_of(POTENTIALS)] | None = None
    encoder: Annotated[str, one_of(ENCODERS)] = "mlp"

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        check_beliefs(self.space, self.marginal, self.conditional, self.p)
        return self


class Cell(Setting):
    """A world of latents and a model of it; with a seed it is a run.

    Attributes:
        world: Where data come from.
        model: What is trained on them.
        recipe: Settings of :class:`isolatent.Recipe` that differ from the default ones.
        approaches: What is scored: ``"identity"``, the observations as they are; ``"supervised"``,
            the same encoder trained on true factors; ``"unsupervised"``, the model.
        blocks: The factors of each block, for block-aware scores.
        measure: What else is measured: ``"total_variation"`` between the marginal and the uniform
            density, ``"gradient_noise"`` of the trained model.
    """

    world: WorldSpec
    model: ModelSpec
    approaches: list[Annotated[str, one_of(APPROACHES)]] = Field(
        default=["identity", "unsupervised"], min_length=1
    )
    metrics: list[Annotated[str, BeforeValidator(_metric)]] = Field(
        default=["linear_r2"], min_length=1
    )
    blocks: list[list[int]] | None = None
    measure: list[Annotated[str, one_of(MEASURES)]] = Field(default=[])

    @field_validator("recipe")
    @classmethod
    def _known_settings(cls, recipe: dict[str, int | float]) -> dict[str, int | float]:
        return check_recipe(recipe)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.blocks is not None:
            found = sorted(factor for block in self.blocks for factor in block)
            if found != [*range(self.world.n)]:
                raise ValueError(f"blocks must hold each of {self.world.n} factors once")
        elif blocks := [metric for metric in self.metrics if "block" in metric]:
            raise ValueError(f"blocks must be given for metric {blocks[0]!r}")
        for metric in self.metrics:
            known = BLOCK_METRIC.fullmatch(metric)
            if known and int(known[1]) > len(self.blocks or ()):
                raise ValueError(f"blocks must be as many as {metric!r} counts")
        if self.model.loss == "ensemble" and len(self.world.conditional) < 2:
            raise ValueError("loss 'ensemble' needs several ways: give conditional as a list")
        if self.world.negatives is not None and self.model.loss != "aninfonce":
            raise ValueError(
                f"negatives go with loss 'aninfonce', whose weights they change, "
                f"got {self.model.loss!r}"
            )
        return self


def check_recipe(recipe: dict[str, int | float]) -> dict[str, int | float]:
    """Settings of :class:`isolatent.Recipe`."""
    allowed = [field.name for field in fields(Recipe)]
    for name in recipe:
        if name not in allowed:
            raise ValueError(f"{name!r} must be one of {', '.join(map(repr, allowed))}")
    try:
        Recipe(**recipe)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(str(error)) from error
    return recipe
