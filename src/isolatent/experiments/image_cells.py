"""Cells whose worlds are images with known factors."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_serializer, field_validator, model_validator
from torch import nn

from isolatent.baselines import AdaGVAE, AdaMLVAE, BetaVAE, SlowVAE
from isolatent.contrast import AlignUniform
from isolatent.datasets import (
    FactorWorld,
    LaplaceTransitions,
    RecordedTransitions,
    Sprites,
    UniformFactorChange,
    load_dsprites,
    read_transitions,
    synthetic_transitions,
)
from isolatent.experiments.cells import check_recipe
from isolatent.experiments.settings import Setting, Spec, one_of
from isolatent.pairs import FactorPairs
from isolatent.training import ContrastiveICA, Recipe

__all__ = ["IMAGE_METRICS", "METHODS", "ImageCell", "ImageModelSpec", "ImageWorldSpec"]

IMAGES = ("sprites", "dsprites")
PAIRS = ("uni", "lap", "nat")
CONTRASTIVE = ("alignuniform", "infonce")
VAES = {"beta_vae": BetaVAE, "slow_vae": SlowVAE, "ada_gvae": AdaGVAE, "ada_mlvae": AdaMLVAE}
ENCODERS = ("conv", "pooled")
METHODS = (*CONTRASTIVE, *VAES)
VAE_SETTINGS = ("max_steps", "batch_size", "learning_rate")
IMAGE_METRICS = (
    *("beta_vae", "factor_vae", "mig", "disentanglement", "completeness", "informativeness"),
    *("modularity", "explicitness", "sap", "mcc"),
)


class ImageWorldSpec(Spec):
    """Where images and their pairs come from.

    Attributes:
        images: ``"sprites"``, rendered here, or ``"dsprites"``, the original file, which must be in
            the directory that ``ISOLATENT_DATA`` names.
        pairs: ``"uni"``, ``"lap"`` or ``"nat"``: see :mod:`isolatent.pairs`.
        rate: For ``"lap"``: the rate of the transitions, by default 1.
        transitions: For ``"nat"``: a CSV file of recorded ones, by a path from the directory of the
            TOML file or, if it is not there, from the current one. Results have its name and the
            SHA-256 of its contents, on which they depend. Without it a made-up table stands in, of
            which results say so.
        continuous: For ``"nat"``: whether position and scale take values between those of the grid.
    """

    images: Annotated[str, one_of(IMAGES)]
    pairs: Annotated[str, one_of(PAIRS)]
    rate: float | None = Field(default=None, gt=0)
    transitions: str | None = None
    continuous: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.pairs != "nat" and (self.continuous or self.transitions is not None):
            raise ValueError(f"continuous and transitions go with pairs 'nat', got {self.pairs!r}")
        if self.pairs != "lap" and self.rate is not None:
            raise ValueError(f"rate goes with pairs 'lap', got {self.pairs!r}")
        if self.continuous and self.images != "sprites":
            raise ValueError(f"continuous goes with images 'sprites', got {self.images!r}")
        return self

    @field_serializer("transitions", when_used="json-unless-none")
    def _told(self, transitions: str) -> str:
        """The file without its directory, which is none of a result's business; its contents are.

        What is no file, as this text itself once it is read again, stays as it is.
        """
        path = Path(transitions).expanduser()
        if not path.is_file():
            return path.name
        with path.open("rb") as file:
            return f"{path.name} sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"

    def build(self) -> FactorPairs:
        """The pairs; their ``world`` is the world."""
        world: FactorWorld = Sprites() if self.images == "sprites" else load_dsprites()
        if self.pairs == "uni":
            return FactorPairs(world, UniformFactorChange())
        if self.pairs == "lap":
            return FactorPairs(world, LaplaceTransitions(1.0 if self.rate is None else self.rate))
        return FactorPairs(world, self._recorded(), continuous=self.continuous)

    def _recorded(self) -> RecordedTransitions:
        if self.transitions is None:
            return synthetic_transitions()
        return read_transitions(os.path.expanduser(self.transitions))


class ImageModelSpec(Spec):
    """What is trained on images.

    Attributes:
        method: ``"alignuniform"`` (L_AU) or ``"infonce"`` for a contrastive encoder, or one of the
            VAEs.
        n_components: Codes.
        p: Of the contrastive losses: the power of their norm, by default 1.
        alpha: Of L_AU: the share of uniformity.
        encoder: Of the contrastive losses: ``"conv"``, as the VAEs have, or ``"pooled"``, which
            costs a small part of it.
        beta: Of the VAEs.
    """

    method: Annotated[str, one_of(METHODS)]
    n_components: int = Field(default=10, ge=2)
    p: float | None = Field(default=None, ge=1)
    alpha: float | None = Field(default=None, gt=0, lt=1)
    encoder: Annotated[str, one_of(ENCODERS)] = "conv"
    beta: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _settings_of_the_method(self) -> Self:
        if self.alpha is not None and self.method != "alignuniform":
            raise ValueError(f"alpha goes with method 'alignuniform', got {self.method!r}")
        if self.alpha is None and self.method == "alignuniform":
            raise ValueError("alpha must be given for method 'alignuniform'")
        if self.p is not None and not self.contrastive:
            raise ValueError(f"p goes with {' and '.join(CONTRASTIVE)}, got {self.method!r}")
        if self.encoder != "conv" and not self.contrastive:
            raise ValueError(f"encoder of {self.method!r} must be 'conv', got {self.encoder!r}")
        if self.beta is not None and self.method not in VAES:
            raise ValueError(f"beta goes with the methods {', '.join(VAES)}, got {self.method!r}")
        return self

    @property
    def contrastive(self) -> bool:
        """Whether it is an encoder alone, without a decoder."""
        return self.method in CONTRASTIVE

    def build(self, recipe: dict[str, Any], seed: int) -> Any:
        """The estimator, not yet trained."""
        if not self.contrastive:
            options: dict[str, Any] = {} if self.beta is None else {"beta": self.beta}
            return VAES[self.method](self.n_components, random_state=seed, **options, **recipe)
        power = 1.0 if self.p is None else self.p
        conditional, p = {1.0: ("laplace", None), 2.0: ("normal", None)}.get(
            power, ("gennorm", power)
        )
        loss: str | nn.Module = "infonce"
        if self.alpha is not None:
            loss = AlignUniform(alpha=self.alpha, p=power, include_self=True)
        return ContrastiveICA(
            self.n_components,
            space="euclidean",
            conditional=conditional,
            p=p,
            loss=loss,
            encoder=self.encoder,
            recipe=Recipe(**recipe),
            random_state=seed,
            accelerator="cpu",
        )


class ImageCell(Setting):
    """A world of images and a model of it; with a seed it is a run.

    Attributes:
        world: Where images and their pairs come from.
        model: What is trained on them.
        recipe: Settings of :class:`isolatent.Recipe` for contrastive encoders, or ``max_steps``,
            ``batch_size`` and ``learning_rate`` of a VAE.
    """

    world: ImageWorldSpec
    model: ImageModelSpec
    approaches: list[Annotated[str, one_of(("unsupervised",))]] = Field(default=["unsupervised"])
    metrics: list[Annotated[str, one_of(IMAGE_METRICS)]] = Field(default=["mcc"], min_length=1)

    @field_validator("recipe")
    @classmethod
    def _known_settings(cls, recipe: dict[str, int | float]) -> dict[str, int | float]:
        return check_recipe(recipe)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.world.continuous and self.metrics != ["mcc"]:
            raise ValueError(f"metrics of continuous factors must be 'mcc', got {self.metrics}")
        unknown = set(self.recipe) - set(VAE_SETTINGS)
        if unknown and not self.model.contrastive:
            raise ValueError(
                f"recipe of {self.model.method!r} must have some of {', '.join(VAE_SETTINGS)}, "
                f"got {sorted(unknown)}"
            )
        return self
