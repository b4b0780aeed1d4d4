"""The papers' experiments as data, a runner that resumes, and results beside published scores."""

from isolatent.experiments.augmentation_cells import (
    AugmentationCell,
    AugmentationModelSpec,
    AugmentationWorldSpec,
)
from isolatent.experiments.catalogue import find_experiment, list_experiments
from isolatent.experiments.cells import Cell, ModelSpec, Published, WorldSpec
from isolatent.experiments.display import ReproductionDisplay
from isolatent.experiments.execution import execute
from isolatent.experiments.experiment import Experiment, Run
from isolatent.experiments.frame_cells import FrameCell, FrameWorldSpec
from isolatent.experiments.image_cells import ImageCell, ImageModelSpec, ImageWorldSpec
from isolatent.experiments.results import Row, as_csv, as_markdown, export, tabulate, verdict
from isolatent.experiments.runner import Event, Summary, reproduce, select_cells
from isolatent.experiments.store import Store

__all__ = [
    "AugmentationCell",
    "AugmentationModelSpec",
    "AugmentationWorldSpec",
    "Cell",
    "Event",
    "Experiment",
    "FrameCell",
    "FrameWorldSpec",
    "ImageCell",
    "ImageModelSpec",
    "ImageWorldSpec",
    "ModelSpec",
    "Published",
    "ReproductionDisplay",
    "Row",
    "Run",
    "Store",
    "Summary",
    "WorldSpec",
    "as_csv",
    "as_markdown",
    "execute",
    "export",
    "find_experiment",
    "list_experiments",
    "reproduce",
    "select_cells",
    "tabulate",
    "verdict",
]
