"""Cells of an experiment whose world is a set of recorded frames with measured factors."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from isolatent.datasets import KittiMasks, load_kitti_masks, synthetic_kitti_masks
from isolatent.experiments.cells import CellFields, Spec, one_of
from isolatent.experiments.image_cells import ImageModelSpec, check_recipe_of
from isolatent.pairs import FramePairs
from isolatent.theory import Beliefs, Guarantee

__all__ = ["FrameCell", "FrameWorldSpec"]

FRAME_SETS = ("kitti_masks", "kitti_standin")
STAND_IN_SEQUENCES, STAND_IN_SEED = 1000, 0  # half as many sequences as were published


@lru_cache(maxsize=1)
def _stand_in(**steps: float) -> KittiMasks:
    return synthetic_kitti_masks(STAND_IN_SEQUENCES, STAND_IN_SEED, **steps)


class FrameWorldSpec(Spec):
    """The frames of a cell and how pairs of them are drawn.

    Attributes:
        frames: ``"kitti_masks"``, the published file, read from the directory that the environment
            variable ``ISOLATENT_DATA`` names, or ``"kitti_standin"``, a simulation of it
            (:func:`~isolatent.datasets.synthetic_kitti_masks`).
        max_lag: Largest number of frames between anchor and positive.
        spread: How heavy the tails of the simulated steps are, by default as
            :func:`~isolatent.datasets.synthetic_kitti_masks` has it.
    """

    frames: Annotated[str, one_of(FRAME_SETS)]
    max_lag: int = Field(default=1, ge=1)
    spread: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.spread is not None and self.frames != "kitti_standin":
            raise ValueError(f"spread requires frames 'kitti_standin', got {self.frames!r}")
        return self

    def build(self) -> FramePairs:
        """Return the source of pairs."""
        if self.frames == "kitti_masks":
            return FramePairs(load_kitti_masks(), self.max_lag)
        steps = self.model_dump(include={"spread"}, exclude_none=True)
        return FramePairs(_stand_in(**steps), self.max_lag)

    def beliefs(self) -> Beliefs:
        """Return what is known of the frames without reading any file."""
        return Beliefs.of(synthetic_kitti_masks(1))


class FrameCell(CellFields):
    """Recorded frames and a model to train on them; a cell and a seed make a run.

    The only metric is MCC by rank correlation, on frames drawn from all sequences.

    Attributes:
        world: The frames and how pairs of them are drawn.
        model: The model that is trained.
        recipe: Parameters of :class:`isolatent.Recipe` for contrastive encoders, or ``max_steps``,
            ``batch_size`` and ``learning_rate`` of a VAE.
    """

    world: FrameWorldSpec
    model: ImageModelSpec
    approaches: list[Annotated[str, one_of(("unsupervised",))]] = Field(default=["unsupervised"])
    metrics: list[Annotated[str, one_of(("mcc",))]] = Field(default=["mcc"], min_length=1)

    @model_validator(mode="after")
    def _check_recipe_of_model(self) -> Self:
        check_recipe_of(self.model, dict(self.recipe))
        return self

    def estimator(self, seed: int) -> Any:
        """Return the model, not yet fitted."""
        return self.model.build(dict(self.recipe), seed)

    def guarantee(self) -> Guarantee:
        """Return what theory claims for the model with these frames, before it is trained."""
        return self.model.guarantee(self.world.beliefs(), len(KittiMasks.names))
