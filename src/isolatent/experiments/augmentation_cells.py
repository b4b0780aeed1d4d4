"""Cells of an experiment on photographs, whose pairs are augmented views."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Self

import torch
from pydantic import AfterValidator, Field, model_validator

from isolatent.datasets import LabelledImages, load_cifar10
from isolatent.encoders import ProjectedEncoder
from isolatent.experiments.cells import CellFields, Spec, check_augmentations, one_of
from isolatent.pairs import Augmentations, AugmentedPairs, Images
from isolatent.theory import Guarantee
from isolatent.training import ContrastiveICA, Recipe

__all__ = [
    "AUGMENTATION_METRICS",
    "AugmentationCell",
    "AugmentationModelSpec",
    "AugmentationWorldSpec",
]

PHOTOGRAPHS = {"cifar10": load_cifar10}
CONDITIONAL_OF_LOSS = {
    "infonce": "vmf",
    "aninfonce": "anisotropic",
}  # and the conditionals they stand for
LAYERS = ("backbone", "projector")
# Of each layer: accuracy of the class, mean accuracy of which augmentations were applied, and mean
# R² of how strongly.
AUGMENTATION_METRICS = tuple(
    f"{what}_{layer}" for what in ("class", "applied", "strength") for layer in LAYERS
)
NO_TRUTH = (
    "the factors of photographs are not known, and augmentations change some of them only: no "
    "theorem says which are identified"
)


class AugmentationWorldSpec(Spec):
    """Photographs, and how pairs of views are made of them.

    Attributes:
        photographs: ``"cifar10"``, read from the directory that the environment variable
            ``ISOLATENT_DATA`` names.
        augmentations: Parameters of :class:`isolatent.pairs.Augmentations` that differ from its
            defaults.
    """

    photographs: Annotated[str, one_of(tuple(PHOTOGRAPHS))]
    augmentations: Annotated[dict[str, float], AfterValidator(check_augmentations)] = Field(
        default={}
    )

    def views(self) -> Augmentations:
        """Return the distribution of the views that are trained on."""
        return Augmentations(**self.augmentations)

    def evaluated_views(self) -> Augmentations:
        """Return the distribution of the views that readouts are fitted to and scored on.

        Each change is applied to half of the images, so that chance is an accuracy of one half.
        """
        return Augmentations(**(asdict(self.views()) | {"jitter": 0.5, "grayscale": 0.5}))

    def load(self, part: str) -> LabelledImages:
        """Return the photographs for ``"train"`` or ``"test"``."""
        return PHOTOGRAPHS[self.photographs](None, part)

    def pairs(self, photographs: LabelledImages) -> AugmentedPairs:
        """Return the source of pairs that are trained on."""
        return AugmentedPairs(Images(photographs.images), self.views())


class AugmentationModelSpec(Spec):
    """A residual network with a projector, and its loss.

    Attributes:
        loss: ``"infonce"`` or ``"aninfonce"``.
        n_components: Number of codes of the projector.
        widths: Channels of each stage of the backbone.
        blocks: Residual blocks per stage.
        n_features: Features of the backbone.
    """

    loss: Annotated[str, one_of(tuple(CONDITIONAL_OF_LOSS))]
    n_components: int = Field(default=64, ge=2)
    widths: list[int] = Field(default=[32, 64, 128], min_length=1)
    blocks: int = Field(default=1, ge=1)
    n_features: int = Field(default=128, ge=2)

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        if wrong := [width for width in self.widths if width < 8 or width % 8]:
            raise ValueError(f"widths must be multiples of 8, got {wrong[0]}")
        return self

    def build(self, recipe: dict[str, Any], seed: int) -> ContrastiveICA:
        """Return the estimator, not yet fitted."""
        with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global stream
            torch.manual_seed(seed)
            encoder = ProjectedEncoder(
                self.n_components,
                widths=self.widths,
                blocks=self.blocks,
                n_features=self.n_features,
            )
        return ContrastiveICA(
            self.n_components,
            space="sphere",
            conditional=CONDITIONAL_OF_LOSS[self.loss],
            loss=self.loss,
            encoder=encoder,
            recipe=Recipe(**recipe),
            random_state=seed,
            accelerator="cpu",
        )


class AugmentationCell(CellFields):
    """Photographs with augmentations and a model to train on them.

    Attributes:
        world: The photographs and their views.
        model: The model that is trained.
    """

    world: AugmentationWorldSpec
    model: AugmentationModelSpec
    approaches: list[Annotated[str, one_of(("unsupervised",))]] = Field(default=["unsupervised"])
    metrics: list[Annotated[str, one_of(AUGMENTATION_METRICS)]] = Field(
        default=["class_backbone", "applied_backbone"], min_length=1
    )

    def estimator(self, seed: int) -> ContrastiveICA:
        """Return the model, not yet fitted."""
        return self.model.build(dict(self.recipe), seed)

    def guarantee(self) -> Guarantee:
        """Return that nothing is claimed, and why."""
        return Guarantee(None, (), "", "", NO_TRUTH)
