"""From pairs to a fitted encoder: recipe, loop, progress and the estimator."""

from isolatent.training.estimator import ContrastiveICA
from isolatent.training.loop import Step, fit_encoder
from isolatent.training.progress import ProgressDisplay
from isolatent.training.recipe import Recipe

__all__ = ["ContrastiveICA", "ProgressDisplay", "Recipe", "Step", "fit_encoder"]
