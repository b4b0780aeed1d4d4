"""Experiments as data: cells, what was published for them, and their runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from isolatent import __version__
from isolatent.evaluation import CONDITIONALS, MARGINALS, POTENTIALS, SPACES, check_beliefs
from isolatent.experiments.expressions import declaration
from isolatent.training import Recipe
from isolatent.training.assembly import ENCODERS, LOSSES
from isolatent.worlds import Distribution, Mixing, Space, World
from isolatent.worlds.declaration import from_dict

__all__ = ["APPROACHES", "METRICS", "Cell", "Experiment", "ModelSpec", "Published", "Run"]

APPROACHES = ("identity", "supervised", "unsupervised")
METRICS = ("linear_r2", "mcc", "block_r2", "block_mcc")
MEASURES = ("total_variation", "gradient_noise")
# Beside the losses of the estimator: one AnInfoNCE for each way of making positives.
LOSS_NAMES = (*LOSSES, "ensemble")
# Fields of a cell on which its result does not depend: every run records all scores there are.
BESIDE = {"name", "metrics", "published", "matches", "limits", "note"}
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+=-]*"


def _declared(written: Any) -> dict[str, Any]:
    if not isinstance(written, str | dict):
        raise ValueError(f"a declaration is a call such as 'Box(10)' or a table, got {written!r}")
    try:
        return declaration(written)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _ways(written: Any) -> list[dict[str, Any]]:
    return [_declared(one) for one in (written if isinstance(written, list) else [written])]


def _published(written: Any) -> Any:
    """``99.42`` or ``[99.42, 0.05]`` in full."""
    if isinstance(written, list):
        if len(written) != 2:
            raise ValueError(f"must be a value, or a value and its spread, got {written!r}")
        return {"value": float(written[0]), "spread": float(written[1])}
    if isinstance(written, int | float) and not isinstance(written, bool):
        return {"value": float(written)}
    return written


def _by_metric(written: Any, metrics: Any) -> Any:
    """Published values by metric; a value that stands alone is that of the only metric."""
    if isinstance(written, dict) and "value" not in written:
        return written
    if not isinstance(metrics, list) or len(metrics) != 1:
        raise ValueError(f"published must name the metric of {written!r}: one of {metrics}")
    return {metrics[0]: written}


def _one_of(allowed: tuple[str, ...]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value not in allowed:
            names = ", ".join(map(repr, allowed))
            raise ValueError(f"must be one of {names}, got {value!r}")
        return value

    return BeforeValidator(check)


Declared = Annotated[dict[str, Any], BeforeValidator(_declared)]


class Spec(BaseModel):
    """Strict: no key that is not known, no value of another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Published(Spec):
    """A published score, in per cent.

    Attributes:
        value: The mean.
        spread: The standard deviation over seeds, if it was printed.
    """

    value: float
    spread: float | None = Field(default=None, ge=0)


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

    space: Annotated[str, _one_of(SPACES)]
    marginal: Annotated[str, _one_of(MARGINALS)] = "uniform"
    conditional: Annotated[str, _one_of(CONDITIONALS)]
    p: float | None = None
    loss: Annotated[str, _one_of(LOSS_NAMES)] = "infonce"
    potentials: Annotated[str, _one_of(POTENTIALS)] | None = None
    encoder: Annotated[str, _one_of(ENCODERS)] = "mlp"

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        check_beliefs(self.space, self.marginal, self.conditional, self.p)
        return self


class Cell(Spec):
    """One setting of an experiment; with a seed it is a run.

    Attributes:
        name: A short name, also of files.
        world: Where data come from.
        model: What is trained on them.
        recipe: Settings of :class:`isolatent.Recipe` that differ from the default ones.
        approaches: What is scored: ``"identity"``, the observations as they are; ``"supervised"``,
            the same encoder trained on true factors; ``"unsupervised"``, the model.
        metrics: The scores that the table shows, the one that matters most first; a single one may
            be written without brackets.
        blocks: The factors of each block, for block-aware scores.
        measure: What else is measured: ``"total_variation"`` between the marginal and the uniform
            density, ``"gradient_noise"`` of the trained model.
        published: For some approaches the published scores by metric, in per cent; of a single
            metric its name may be left out.
        matches: Whether the model's assumptions hold in the world, if the paper says.
        limits: The metrics of which the claim is that they *fail* here, or true for all.
        note: A remark for the reader of the table.
    """

    name: str = Field(pattern=rf"^{FILE_NAME}$")
    world: WorldSpec
    model: ModelSpec
    recipe: dict[str, int | float] = {}
    approaches: list[Annotated[str, _one_of(APPROACHES)]] = ["identity", "unsupervised"]
    metrics: list[Annotated[str, _one_of(METRICS)]] = Field(default=["linear_r2"], min_length=1)
    blocks: list[list[int]] | None = None
    measure: list[Annotated[str, _one_of(MEASURES)]] = []
    published: dict[
        Literal["identity", "supervised", "unsupervised"],
        dict[str, Annotated[Published, BeforeValidator(_published)]],
    ] = {}
    matches: bool | None = None
    limits: list[str] = []
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, written: Any) -> Any:
        """Write out what may be shortened: one metric, its published values, limits of all."""
        if not isinstance(written, dict):
            return written
        full = dict(written)
        metrics = full.get("metrics", ["linear_r2"])
        full["metrics"] = metrics = [metrics] if isinstance(metrics, str) else metrics
        if isinstance(full.get("published"), dict):
            full["published"] = {
                approach: _by_metric(values, metrics)
                for approach, values in full["published"].items()
            }
        if isinstance(limits := full.get("limits"), bool):
            full["limits"] = list(metrics) if limits else []
        return full

    @field_validator("recipe")
    @classmethod
    def _known_settings(cls, recipe: dict[str, int | float]) -> dict[str, int | float]:
        allowed = [field.name for field in fields(Recipe)]
        for name in recipe:
            if name not in allowed:
                raise ValueError(f"{name!r} must be one of {', '.join(map(repr, allowed))}")
        try:
            Recipe(**recipe)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(str(error)) from error
        return recipe

    @model_validator(mode="after")
    def _consistent(self) -> Cell:
        if missing := set(self.published) - set(self.approaches):
            raise ValueError(f"published holds {sorted(missing)}, which approaches does not")
        if self.blocks is not None:
            found = sorted(factor for block in self.blocks for factor in block)
            if found != [*range(self.world.n)]:
                raise ValueError(f"blocks must hold each of {self.world.n} factors once")
        elif blocks := [metric for metric in self.metrics if metric.startswith("block")]:
            raise ValueError(f"blocks must be given for metric {blocks[0]!r}")
        for key, named in (
            *((f"published.{approach}", values) for approach, values in self.published.items()),
            ("limits", self.limits),
        ):
            if unknown := [name for name in named if name not in self.metrics]:
                allowed = ", ".join(map(repr, self.metrics))
                raise ValueError(f"{key} must name metrics of the cell: {allowed}, got {unknown}")
        if self.model.loss == "ensemble" and len(self.world.conditional) < 2:
            raise ValueError("loss 'ensemble' needs several ways: give conditional as a list")
        if self.world.negatives is not None and self.model.loss != "aninfonce":
            raise ValueError(
                f"negatives go with loss 'aninfonce', whose weights they change, "
                f"got {self.model.loss!r}"
            )
        return self


class Run(Spec):
    """A cell with a seed.

    Attributes:
        experiment: The name of the experiment, such as ``"zimmermann2021/table1"``.
        cell: The cell.
        seed: Of the world and of the training.
        source: What the command ``isolatent reproduce`` takes to find the experiment again.
    """

    experiment: str
    cell: Cell
    seed: int = Field(ge=0)
    source: str

    @property
    def hash(self) -> str:
        """Changes with all that a result depends on: also the seed and the package's version.

        What a table says beside the result, such as the paper's figure or a note, can be mended
        without running anything again.
        """
        cell = what_matters(plain(self.cell))
        return hash_of({"cell": cell, "seed": self.seed, "version": __version__})

    @property
    def file(self) -> str:
        """Where the result belongs, below the directory of results."""
        folder = self.experiment.replace("/", "-")
        return f"runs/{folder}/{self.cell.name}-seed{self.seed}-{self.hash[:12]}.json"


class Experiment(Spec):
    """A named list of cells.

    Attributes:
        name: ``"<paper>/<table>"`` for shipped ones, the file's stem for others.
        title: What it is, in a line.
        note: What a reader must know before believing it.
        cells: The settings.
        source: What the command ``isolatent reproduce`` takes to find it again.
    """

    name: str = Field(pattern=rf"^{FILE_NAME}(/{FILE_NAME})?$")
    title: str
    note: str = ""
    cells: list[Cell] = Field(min_length=1)
    source: str = ""

    @field_validator("cells")
    @classmethod
    def _distinct(cls, cells: list[Cell]) -> list[Cell]:
        names = [cell.name for cell in cells]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"every cell needs a name of its own, but {twice} come twice")
        return cells

    def runs(self, seeds: list[int]) -> list[Run]:
        """Every cell with every seed; the first seed of all cells comes first."""
        source = self.source or self.name
        return [
            Run(experiment=self.name, cell=cell, seed=seed, source=source)
            for seed in seeds
            for cell in self.cells
        ]


def plain(spec: BaseModel) -> dict[str, Any]:
    """A spec as data for JSON and TOML: what is None is left out."""
    return spec.model_dump(mode="json", exclude_none=True)


def what_matters(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a cell, as plain data, on which its result depends."""
    return {key: value for key, value in cell.items() if key not in BESIDE}


def hash_of(data: Mapping[str, Any]) -> str:
    """SHA-256 of plain data; the order of keys does not matter."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
