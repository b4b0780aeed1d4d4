"""How much a perceptron can learn, and where its training starts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from isolatent.training.recipe import Recipe

__all__ = ["DEFAULT_START", "LINEAR", "Capacity", "Start", "default_capacity"]

MIN_WIDTH, WIDTH_PER_CODE = 128, 4  # of the hidden layers of the default perceptron
# Small steps and large batches end in worse minima of regularised networks, which go on to learn
# long after the held-out loss seems to have levelled off: so they have no early stopping.
SMALL_BATCHES = (64, 256)
BATCHES_PER_EPOCH = 32
REGULARISED_RATE, REGULARISED_EPOCHS, REGULARISED_STEPS = 4e-2, 300, 10_000
# Much dropout is noise enough: with small steps and small batches on top networks stay worse.
MUCH_DROPOUT, DROPOUT_BATCH, DROPOUT_EPOCHS = 0.3, 256, 600
LINEAR_STEPS = 2000  # of a linear encoder


class Capacity(NamedTuple):
    """How much the perceptron ``"mlp"`` can learn, and so overfit.

    Args:
        width: Width of its two hidden layers; 0 for none: a linear encoder.
        dropout: Share of hidden units that are set to zero in each step of training.
        reconstruction: Weight of the error of a decoder, see
            :class:`isolatent.training.reconstruction.Reconstruction`.
    """

    width: int
    dropout: float = 0.0
    reconstruction: float = 0.0


def default_capacity(n_components: int) -> Capacity:
    """Return the capacity of the perceptron for many pairs."""
    return Capacity(max(MIN_WIDTH, WIDTH_PER_CODE * n_components))


LINEAR = Capacity(0)


class Start(NamedTuple):
    """Where training starts.

    Args:
        capacity: Capacity of the perceptron; None for the default.
        seed: Seed of the first weights; None for that of the whole run.
    """

    capacity: Capacity | None = None
    seed: int | None = None

    @property
    def is_regularised(self) -> bool:
        """Whether a decoder or dropout keep the network from overfitting."""
        return self.capacity is not None and self.capacity[1:] != (0.0, 0.0)

    def recipe(self, recipe: Recipe, n_pairs: int) -> Recipe:
        """Return the settings for this capacity: small batches if it is regularised."""
        if self.capacity is None or self.capacity == LINEAR:
            steps = recipe.max_steps if self.capacity is None else LINEAR_STEPS
            return replace(recipe, max_steps=min(recipe.max_steps, steps))
        if not self.is_regularised:
            return recipe
        if self.capacity.dropout >= MUCH_DROPOUT:
            size, epochs, rate = DROPOUT_BATCH, DROPOUT_EPOCHS, recipe.learning_rate
        else:
            low, high = SMALL_BATCHES
            size = max(low, min(high, n_pairs // BATCHES_PER_EPOCH))
            epochs, rate = REGULARISED_EPOCHS, REGULARISED_RATE
        size = min(recipe.batch_size, size)
        steps = min(REGULARISED_STEPS, epochs * n_pairs // size, recipe.max_steps)
        return replace(recipe, batch_size=size, learning_rate=rate, max_steps=steps)


DEFAULT_START = Start()
