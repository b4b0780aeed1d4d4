"""From pairs to a fitted encoder: recipe, loop, progress and the estimator."""

from isolatent.training.checkpoints import Checkpoints, DamagedFileError
from isolatent.training.devices import connect
from isolatent.training.engine import Training, fit_encoder
from isolatent.training.estimator import ContrastiveICA
from isolatent.training.logs import CsvLog
from isolatent.training.progress import ProgressDisplay
from isolatent.training.recipe import Recipe
from isolatent.training.steps import Step

__all__ = [
    "Checkpoints",
    "ContrastiveICA",
    "CsvLog",
    "DamagedFileError",
    "ProgressDisplay",
    "Recipe",
    "Step",
    "Training",
    "connect",
    "fit_encoder",
]
