"""From pairs to a fitted encoder: recipe, engine, progress and the estimator."""

from isolatent.training.checkpoints import Checkpoints, DamagedFileError
from isolatent.training.contrastive import ContrastiveTraining
from isolatent.training.credible_regions import CredibleRegions
from isolatent.training.devices import connect
from isolatent.training.engine import Training, train
from isolatent.training.estimator import ContrastiveICA
from isolatent.training.network_estimator import NetworkEstimator
from isolatent.training.paired import PairedTransformer
from isolatent.training.progress import (
    CsvLog,
    LoggerLog,
    ProgressDisplay,
    Step,
    tensorboard_log,
)
from isolatent.training.recipe import Recipe
from isolatent.training.support import Support

__all__ = [
    "Checkpoints",
    "ContrastiveICA",
    "ContrastiveTraining",
    "CredibleRegions",
    "CsvLog",
    "DamagedFileError",
    "LoggerLog",
    "NetworkEstimator",
    "PairedTransformer",
    "ProgressDisplay",
    "Recipe",
    "Step",
    "Support",
    "Training",
    "connect",
    "tensorboard_log",
    "train",
]
