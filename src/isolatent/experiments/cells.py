"""Cells of an experiment: the fields of every cell, and cells whose world has known latents."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from torch import Generator, Tensor, nn

from isolatent.contrast import AnInfoNCE, Ensemble
from isolatent.datasets import RenderedScenes, load_3dident
from isolatent.experiments.expressions import parse_declaration
from isolatent.pairs import Augmentations, NearestLatentPairs, WorldPairs, WorldViews
from isolatent.theory import (
    CONDITIONALS,
    MARGINALS,
    POTENTIALS,
    SPACES,
    Beliefs,
    Guarantee,
    derive_guarantee,
)
from isolatent.training import ContrastiveICA, Recipe
from isolatent.training.assembly import ENCODERS, LOSS_CLASSES
from isolatent.training.axis_search import AXES
from isolatent.training.relaxations import AUTO, check_relax, needs_potentials
from isolatent.worlds import Distribution, Identity, Mixing, Space, World
from isolatent.worlds.declaration import from_dict

__all__ = [
    "APPROACHES",
    "LATENT_METRICS",
    "Cell",
    "CellFields",
    "ModelSpec",
    "Published",
    "Relax",
    "Spec",
    "WorldSpec",
    "check_augmentations",
    "one_of",
]

APPROACHES = ("identity", "supervised", "unsupervised")
LATENT_METRICS = ("linear_r2", "mcc", "block_r2", "block_mcc")
BLOCK_METRIC = re.compile(r"linear_r2_block([1-9]\d*)")
MEASURES = ("total_variation", "gradient_noise")
# The losses of the estimator, and an ensemble with one AnInfoNCE for each conditional.
LOSS_NAMES = (*LOSS_CLASSES, "ensemble")
CENTRES = ("mean", "median")
PUBLISHED_SCENES, PUBLISHED_SIZE = "3dident", 64  # images that are read, and their side in pixels
FILE_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.+=-]*"


def one_of(allowed: tuple[str, ...]) -> BeforeValidator:
    """Return a validator that accepts the allowed names only; its error lists them."""
    return BeforeValidator(lambda value: _check_choice(value, allowed))


def _check_choice(value: Any, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise ValueError(f"must be one of {names}, got {value!r}")
    return value


class Spec(BaseModel):
    """A frozen pydantic model without type coercion that rejects unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON and TOML; fields that are None are left out."""
        return self.model_dump(mode="json", exclude_none=True)


class Published(Spec):
    """A published score, in per cent.

    Attributes:
        value: The mean or median over seeds, according to the cell's ``centre``.
        spread: The standard deviation or median absolute deviation over seeds, if published.
    """

    value: float
    spread: float | None = Field(default=None, ge=0)


def _expand_published(written: Any) -> Any:
    """Expand the short forms ``99.42`` and ``[99.42, 0.05]`` of a published score."""
    if isinstance(written, dict | Published):
        return written
    parts = written if isinstance(written, list) else [written]
    if not all(map(_is_score, parts)) or len(parts) != (2 if isinstance(written, list) else 1):
        raise ValueError(
            f"must be a number, or a number and its spread, such as [99.4, 0.1], got {written!r}"
        )
    return dict(zip(("value", "spread"), map(float, parts), strict=False))


def _is_score(value: Any) -> bool:
    """Return whether ``value`` is a finite number in the range of a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _key_by_metric(approach: str, written: Any, metrics: Any) -> Any:
    """Return published scores by metric; a single score belongs to the only metric."""
    if isinstance(written, dict) and "value" not in written:
        return written
    if not isinstance(metrics, list) or len(metrics) != 1 or not isinstance(metrics[0], str):
        raise ValueError(
            f"published.{approach} must name the metric of {written!r}: one of {metrics}"
        )
    return {metrics[0]: written}


class CellFields(Spec):
    """The fields of every cell, whatever its world.

    Attributes:
        name: A short name, used in file names, too.
        recipe: Training parameters that differ from the defaults.
        approaches: The approaches that are scored.
        metrics: The metrics that the table shows, the most important first; a single metric may be
            written without brackets.
        published: Published scores by approach and metric, in per cent; with a single metric its
            name may be left out.
        centre: How scores are aggregated over seeds, in the paper and here: ``"mean"``, with the
            standard deviation, or ``"median"``, with the median absolute deviation.
        comparable: Whether the paper's settings are known and used, up to the recipe. Otherwise
            published scores are shown, but ours are not judged by them.
        matches: Whether the model's assumptions hold in the world, if the paper says so.
        limits: The metrics that are claimed to *fail* in this cell; True stands for all of them.
        note: A remark shown beside the table.
    """

    name: str = Field(pattern=rf"^{FILE_NAME_PATTERN}$")
    recipe: dict[str, int | float] = {}
    approaches: list[str] = Field(min_length=1)
    metrics: list[str] = Field(min_length=1)
    published: dict[
        Literal["identity", "supervised", "unsupervised"],
        dict[str, Annotated[Published, BeforeValidator(_expand_published)]],
    ] = {}
    centre: Annotated[str, one_of(CENTRES)] = "mean"
    comparable: bool = True
    matches: bool | None = None
    limits: list[str] = []
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _expand_short_forms(cls, written: Any) -> Any:
        """Expand a single metric, its published scores and Boolean limits."""
        if not isinstance(written, dict):
            return written
        full = dict(written)
        metrics = full.get("metrics", cls.model_fields["metrics"].default)
        full["metrics"] = metrics = [metrics] if isinstance(metrics, str) else metrics
        if isinstance(full.get("published"), dict):
            full["published"] = {
                approach: _key_by_metric(approach, values, metrics)
                for approach, values in full["published"].items()
            }
        if isinstance(limits := full.get("limits"), bool):
            full["limits"] = list(metrics) if limits else []
        return full

    @field_validator("recipe")
    @classmethod
    def _check_recipe(cls, recipe: dict[str, int | float]) -> dict[str, int | float]:
        allowed = [field.name for field in fields(Recipe)]
        for name in recipe:
            if name not in allowed:
                raise ValueError(f"{name!r} must be one of {', '.join(map(repr, allowed))}")
        try:
            Recipe(**recipe)  # type: ignore[arg-type]
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from error
        return recipe

    @field_validator("approaches")
    @classmethod
    def _sort_approaches(cls, approaches: list[str]) -> list[str]:
        """Remove duplicates and sort, so that tables and hashes do not depend on the order."""
        return sorted(set(approaches))  # identity, supervised, unsupervised

    @field_validator("metrics")
    @classmethod
    def _check_distinct_metrics(cls, metrics: list[str]) -> list[str]:
        if len(set(metrics)) < len(metrics):
            raise ValueError(f"metrics must differ, got {metrics}")
        return metrics

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        """Check that ``published`` and ``limits`` name approaches and metrics of this cell."""
        if missing := set(self.published) - set(self.approaches):
            raise ValueError(f"published names {sorted(missing)}, missing from approaches")
        for key, named in (
            *((f"published.{approach}", values) for approach, values in self.published.items()),
            ("limits", self.limits),
        ):
            if unknown := [name for name in named if name not in self.metrics]:
                allowed = ", ".join(map(repr, self.metrics))
                raise ValueError(f"{key} must name metrics of the cell: {allowed}, got {unknown}")
        return self


def _declared(written: Any, base: type[Any]) -> dict[str, Any]:
    if not isinstance(written, str | dict):
        raise ValueError(f"must be a call such as 'Box(10)' or a table, got {written!r}")
    try:
        return parse_declaration(written, base)
    except Exception as error:  # of the constructor of a class, which may be a user's own
        raise ValueError(str(error)) from error


def _declaration(base: type[Any]) -> BeforeValidator:
    return BeforeValidator(lambda written: _declared(written, base))


def _metric(value: Any) -> Any:
    """Accept a name in ``LATENT_METRICS``, or R² of one block: ``"linear_r2_block1"``."""
    if isinstance(value, str) and BLOCK_METRIC.fullmatch(value):
        return value
    return _check_choice(value, (*LATENT_METRICS, "linear_r2_block1"))


def _ways(written: Any) -> list[dict[str, Any]]:
    ways = written if isinstance(written, list) else [written]
    return [_declared(way, Distribution) for way in ways]


def check_augmentations(written: dict[str, float]) -> dict[str, float]:
    """Return parameters of :class:`~isolatent.pairs.Augmentations`, if it takes them."""
    allowed = [field.name for field in fields(Augmentations)]
    for name in written:
        if name not in allowed:
            raise ValueError(f"{name!r} must be one of {', '.join(map(repr, allowed))}")
    try:
        Augmentations(**written)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return written


def _stored(written: Any) -> Any:
    if written == PUBLISHED_SCENES:
        return written
    if isinstance(written, bool) or not isinstance(written, int) or written < 2:
        raise ValueError(
            f"must be an integer >= 2, or {PUBLISHED_SCENES!r} for the published images, got "
            f"{written!r}"
        )
    return written


class WorldSpec(Spec):
    """The world of a cell; each part is a declaration.

    Attributes:
        space: Space of the latents.
        marginal: Distribution of the anchors.
        conditional: Distribution of positives around their anchors; or a list of several, each of
            which makes an equal share of the pairs.
        mixing: Map from latents to observations.
        negatives: Distribution of negatives around their anchor, if batches carry such negatives.
        negatives_per_anchor: Number of these negatives for each anchor.
        stored: Number of images that are rendered once and stored; pairs are those with the nearest
            latents (:class:`~isolatent.pairs.NearestLatentPairs`). ``"3dident"`` for the published
            images, reduced to 64 pixels, from the directory that the environment variable
            ``ISOLATENT_DATA`` names. By default images are rendered as they are drawn.
        augmentations: Parameters of :class:`~isolatent.pairs.Augmentations` that differ from its
            defaults, if both images of a pair are augmented. The views of one scene have a very
            narrow conditional.
    """

    space: Annotated[dict[str, Any], _declaration(Space)]
    marginal: Annotated[dict[str, Any], _declaration(Distribution)]
    conditional: Annotated[list[dict[str, Any]], BeforeValidator(_ways)] = Field(min_length=1)
    mixing: Annotated[dict[str, Any], _declaration(Mixing)] = Field(
        default_factory=lambda: parse_declaration("InvertibleMLP(layers=3)"), validate_default=True
    )
    negatives: Annotated[dict[str, Any], _declaration(Distribution)] | None = None
    negatives_per_anchor: int = Field(default=16, ge=1)
    stored: Annotated[int | str, BeforeValidator(_stored)] | None = None
    augmentations: Annotated[dict[str, float], AfterValidator(check_augmentations)] | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        space = from_dict(self.space)
        if self.stored is not None and (self.negatives is not None or len(self.conditional) > 1):
            raise ValueError("stored takes one conditional and no negatives")
        if self.augmentations is not None and (
            self.stored is not None or self.negatives is not None or len(self.conditional) > 1
        ):
            raise ValueError("augmentations take one conditional, no negatives, and nothing stored")
        parts: list[tuple[str, type[Any], dict[str, Any] | None]] = [
            ("space", Space, self.space),
            ("mixing", Mixing, self.mixing),
            ("marginal", Distribution, self.marginal),
            *(("conditional", Distribution, way) for way in self.conditional),
            ("negatives", Distribution, self.negatives),
        ]
        for name, base, spec in parts:
            if spec is None:
                continue
            if not isinstance(part := from_dict(spec), base):
                raise ValueError(f"{name} must be a {base.__name__}, got {part!r}")
            if base is Distribution:
                try:
                    part.check(space)
                except Exception as error:
                    raise ValueError(f"{name}: {error}") from error
        return self

    @property
    def n(self) -> int:
        """Number of latents."""
        return int(from_dict(self.space).n)

    def build(
        self, seed: int, mixing: Mixing | None = None
    ) -> WorldPairs | NearestLatentPairs | WorldViews:
        """Return the pairs of the world; their attribute ``world`` is the world.

        Args:
            seed: Seed of the world.
            mixing: Mixing instead of the declared one; nothing is stored then.
        """
        space, marginal = from_dict(self.space), from_dict(self.marginal)
        ways = [from_dict(way) for way in self.conditional]
        world = World(
            space,
            marginal,
            ways[0],
            from_dict(self.mixing) if mixing is None else mixing,
            seed=seed,
        )
        if self.stored is not None and mixing is None:
            if isinstance(self.stored, str):
                return NearestLatentPairs(load_3dident(size=PUBLISHED_SIZE), world)
            return NearestLatentPairs(RenderedScenes.of(world, self.stored), world)
        if self.augmentations is not None:
            return WorldViews(world, Augmentations(**self.augmentations))
        return WorldPairs(
            world,
            conditionals=ways if len(ways) > 1 else None,
            negatives=None if self.negatives is None else from_dict(self.negatives),
            n_negatives=self.negatives_per_anchor,
        )

    def described(self) -> WorldPairs | NearestLatentPairs | WorldViews:
        """Return pairs of which beliefs are known, and that take little time to build."""
        # Augmentations need images.
        return self.build(0, mixing=Identity() if self.augmentations is None else None)

    def test_set(self, world: World, seed: int, points: int) -> tuple[Tensor, Tensor]:
        """Return latents and observations for scoring, which no model was trained on.

        Args:
            world: The world, with its mixing.
            seed: Seed of the latents.
            points: Number of them; at most half as many if they are images.
        """
        generator = Generator().manual_seed(seed)
        if self.stored == PUBLISHED_SCENES:
            published = load_3dident(part="test", size=PUBLISHED_SIZE)
            order = torch.randperm(len(published), generator=generator)[: points // 2]
            latents = torch.from_numpy(published.latents[order.numpy()]).float()
            return latents, published.observe(order)
        if len(world.observe(world.space.center()[None]).shape) > 2:
            points //= 2
        z = world.sample_anchors(points, generator)
        return z, world.observe(z)


def _relax(written: Any) -> Any:
    """Accept ``"auto"`` or names of relaxations, which are put in their usual order."""
    names = check_relax(written)
    return AUTO if names is None else list(names)


Relax = Annotated[str | list[str], BeforeValidator(_relax)]


class ModelSpec(Spec):
    """The beliefs and the loss of a model; the names are those of ``ContrastiveICA``.

    A model without space declares nothing but the number of factors. Relaxations and axes that are
    not written are those of the estimator's default: ``"auto"`` for such a model, none for others.
    """

    space: Annotated[str, one_of(SPACES)] | None = None
    marginal: Annotated[str, one_of(MARGINALS)] | None = None
    conditional: Annotated[str, one_of(CONDITIONALS)] | None = None
    p: float | None = None
    loss: Annotated[str, one_of(LOSS_NAMES)] = "infonce"
    potentials: Annotated[str, one_of(POTENTIALS)] | None = None
    relax: Relax | None = None
    axes: Annotated[str, one_of(AXES)] | None = None
    encoder: Annotated[str, one_of(ENCODERS)] = "mlp"

    @model_validator(mode="before")
    @classmethod
    def _complete_beliefs(cls, written: Any) -> Any:
        """Fill in the marginal and the conditional that beliefs imply where none is written."""
        if not isinstance(written, dict) or written.get("space") not in SPACES:
            return written
        implied = Beliefs(written["space"])
        defaults = {"marginal": implied.marginal, "conditional": implied.conditional}
        given = {key: value for key, value in written.items() if (key, value) != ("relax", [])}
        return defaults | given

    @model_validator(mode="after")
    def _check_beliefs(self) -> Self:
        declared = {key: getattr(self, key) for key in ("marginal", "conditional", "p")}
        for key, value in declared.items():
            if self.space is None and value is not None:
                raise ValueError(f"space must be given where {key} is, got {key} = {value!r}")
        head = self.beliefs.head  # refuses contradictions
        if self.axes not in (None, "auto") and head != "free":
            raise ValueError(
                f"axes of space {self.space!r} must be 'auto' or left out, got {self.axes!r}: "
                "free codes alone may be mapped linearly"
            )
        return self

    @property
    def beliefs(self) -> Beliefs:
        """What the model believes about the world."""
        if self.space is None:
            return ContrastiveICA(1).beliefs
        return Beliefs(self.space, self.marginal, self.conditional, self.p)

    @property
    def relaxations(self) -> tuple[str, ...]:
        """Relaxations that the model has from the start."""
        return () if self.relax in (None, AUTO) else tuple(self.relax or ())

    @property
    def choices(self) -> dict[str, Any]:
        """Parameters of the estimator for the relaxations and axes that are written."""
        written = {"relax": self.relax, "axes": self.axes}
        return {name: value for name, value in written.items() if value is not None}


class Cell(CellFields):
    """A world of latents and a model of it; with a seed it is a run.

    Attributes:
        world: The world.
        model: The model that is trained on it.
        recipe: Settings of :class:`isolatent.Recipe` that differ from the defaults.
        approaches: Codes to score: ``"identity"``, the observations themselves; ``"supervised"``,
            the same encoder trained on true factors; ``"unsupervised"``, the model.
        blocks: Factors of each block, for block-aware scores.
        measure: Further measurements: ``"total_variation"`` between the marginal and the uniform
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

    @model_validator(mode="after")
    def _check_cell(self) -> Self:
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

    def estimator(self, seed: int) -> ContrastiveICA:
        """Return the model, not yet fitted."""
        n, loss = self.world.n, self._loss()
        return ContrastiveICA(
            n,
            space=self.model.space,
            marginal=self.model.marginal,
            conditional=self.model.conditional,
            p=self.model.p,
            loss=loss,
            potentials=self.model.potentials if isinstance(loss, str) else None,
            encoder=self.model.encoder,
            recipe=Recipe(**self.recipe) if self.recipe else None,  # type: ignore[arg-type]
            random_state=seed,
            accelerator="cpu",
            **self.model.choices,
        )

    def _loss(self) -> str | nn.Module:
        if self.model.loss == "ensemble":
            return Ensemble([AnInfoNCE(self.world.n) for _ in self.world.conditional])
        if self.world.negatives is not None:
            return AnInfoNCE(self.world.n, symmetric=False, negatives_from="given")
        return self.model.loss

    def guarantee(self) -> Guarantee:
        """Return what theory claims for the model in this world, before it is trained.

        An estimator derives its guarantee from declared beliefs; here the world is known, so
        beliefs that do not hold show as a gap. Axes and automatic relaxations are known after
        training, and are no part of it.
        """
        declared, by_name = self.model.beliefs, isinstance(self._loss(), str)
        loss = "aninfonce" if self.model.loss == "ensemble" else self.model.loss
        weighted = loss == "aninfonce" or declared.similarity == "weighted"
        potentials = (self.model.potentials or declared.potentials(loss)) if by_name else "none"
        relaxed = self.model.relaxations
        if needs_potentials(relaxed):
            potentials = "learned"
        return derive_guarantee(
            Beliefs.of(self.world.described()),
            similarity="weighted" if weighted else declared.similarity,
            similarity_p=2.0 if weighted else declared.exponent,
            loss=loss,
            potentials=potentials,
            head=declared.head,
            relaxed=[name for name in relaxed if name != "marginal"],  # which is the potentials
            n_components=self.world.n,
            n_factors=self.world.n,
        )
