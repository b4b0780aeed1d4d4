"""An upper bound: the same encoder, trained on the true factors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from isolatent.checks import check_integer, check_tensor
from isolatent.datasets import FactorWorld
from isolatent.encoders import Whitening
from isolatent.pairs import Batch, KnownPairs, PairSource, WorldPairs, check_rows_finite
from isolatent.streams import layers_from_stream, random_stream
from isolatent.theory import Beliefs
from isolatent.training import NetworkEstimator, Recipe, Step, Training
from isolatent.training.assembly import WHITENED, build_encoder, saved_whitening
from isolatent.training.devices import Processes
from isolatent.training.engine import WeightAverage
from isolatent.training.observations import is_source
from isolatent.training.progress import ignore_step, steps_from_tensor, steps_to_tensor
from isolatent.worlds import World

__all__ = ["SupervisedEncoder"]

HELD_OUT_POINTS = 4096
MEASURE_EVERY_STEPS = 50
AVERAGING_DECAY = 0.98  # of the exponential average of the weights
WHITENING_POINTS = 16_384


@runtime_checkable
class _KnowsFactors(Protocol):
    def sample_known(self, batch_size: int, generator: Generator) -> KnownPairs: ...


@dataclass(eq=False, repr=False, kw_only=True)
class SupervisedEncoder(NetworkEstimator):
    r"""The encoder of :class:`isolatent.ContrastiveICA`, trained to minimise :math:`E|f(x) - z|^2`.

    This is the *supervised* score of `zimmermann2021`: it shows whether the encoder could invert
    the mixing at all. Factors are rescaled to fit the output head, to [0, 1] in a box and to norm 1
    on a sphere, to which neither R² nor MCC is sensitive. On a grid of factors the targets are the
    indices, also those of categories. The learning rate falls along a half cosine, which starts
    where the error on held-out points no longer falls.

    Args:
        n_components: Number of factors n.
        space: Space of the codes, as in :class:`isolatent.ContrastiveICA`.
        encoder: Name of its encoder; for images ``"conv"``, ``"pooled"`` or ``"residual"``.
        max_steps: Largest number of steps; early stopping may end training sooner.
        batch_size: Points per step.
        learning_rate: Peak learning rate; the default is for vectors, and convolutions need a
            lower one, such as 1e-3.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the encoder in bfloat16.

    Attributes:
        encoder_: The trained encoder.
        error_: Least mean squared error on held-out points.
        history_: A :class:`isolatent.training.Step` for each step.
        n_features_in_: Number of observed dimensions.

    Example:
        >>> from isolatent.worlds import Box, Linear, Normal, Uniform
        >>> world = World(Box(2), Uniform(), Normal(0.1), Linear(), seed=0)
        >>> model = SupervisedEncoder(2, space="box", max_steps=30, batch_size=64)
        >>> model.fit(world).transform(world.sample_pairs(5)[0]).shape
        (5, 2)
    """

    space: str = "euclidean"
    encoder: str = "mlp"
    max_steps: int = 5000
    batch_size: int = 1024
    learning_rate: float = 2e-2
    random_state: int | np.random.RandomState | None = 0

    def fit(
        self,
        X: ArrayLike | Tensor | World | _KnowsFactors,
        Z: ArrayLike | Tensor | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: str | os.PathLike[str] | None = None,
        on_step: Callable[[Step], None] = ignore_step,
    ) -> Self:
        """Train on fresh points, or on observations X with their factors Z.

        Args:
            X: A world, or a source of pairs with known factors, such as
                :class:`isolatent.pairs.FactorPairs`, of which both members are used; or
                observations.
            Z: Factors (N, n_components) of observations.
            checkpoint: Directory for the state of the run, from which it can be resumed.
            resume: Such a directory; the run continues from its last intact checkpoint.
            on_step: Called after every step, for progress displays and logs. By default a notebook
                shows one line for a long fit.
        """
        # An upper bound must not stop where the error falls slowly, so the tolerance is 0.
        recipe = Recipe(
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            tolerance=0.0,
        )

        def set_up(seed: int, processes: Processes) -> tuple[Training, PairSource, Batch]:
            return self._set_up(X, Z, seed, recipe, processes)

        names = ("n_components", "space", "encoder", "precision")
        run = self._train(
            set_up,
            {name: getattr(self, name) for name in names} | {"recipe": recipe.to_dict()},
            checkpoint=checkpoint,
            resume=resume,
            on_step=on_step,
        )
        assert isinstance(run.training, _SupervisedTraining)
        self.encoder_, self.error_ = run.modules["network"], run.training.best_error
        return self

    def code_module(self) -> nn.Module:
        check_is_fitted(self, "encoder_")
        return self.encoder_

    def _set_up(
        self, X: Any, Z: Any, seed: int, recipe: Recipe, processes: Processes
    ) -> tuple[Training, PairSource, Batch]:
        generator = Generator().manual_seed(seed)
        points, held_out = self._points(X, Z, generator)
        if held_out.x_pos.shape[1:] != (self.n_components,):
            raise ValueError(
                f"n_components must be the number of factors, {held_out.x_pos.shape[1:].numel()}, "
                f"got {self.n_components}"
            )
        self._set_shape(tuple(held_out.x.shape[1:]))
        # Images are not whitened, and would fill the memory.
        images = held_out.x.ndim > 2
        sample = points.sample(HELD_OUT_POINTS if images else WHITENING_POINTS, generator)
        with random_stream(Generator().manual_seed(seed)), layers_from_stream():
            whitens = self.encoder in WHITENED and sample.x.ndim == 2
            encoder = self._build(Whitening(sample.x.shape[1]).fit([sample.x]) if whitens else None)
        training = _SupervisedTraining(encoder, recipe, generator, processes=processes)
        training.rescale = _rescaling(Beliefs(self.space).head, sample.x_pos)
        return training, points, held_out

    def _points(self, X: Any, Z: Any, generator: Generator) -> tuple[Any, Batch]:
        """Return a source of observations with their factors, and some to hold out."""
        if is_source(X) or isinstance(X, _KnowsFactors | FactorWorld):
            if Z is not None:
                raise ValueError("Z must be None when X is a world or a pair source")
            fresh = _FreshPoints(X)
            return fresh, fresh.sample(HELD_OUT_POINTS, generator)
        if Z is None:
            raise ValueError("Z must hold the true factors of X, got None")
        x = torch.from_numpy(np.array(self._as_array(X, True), np.float32))
        z = check_tensor("Z", Z).detach().cpu().float()
        if z.ndim != 2:
            raise ValueError(f"Z must have shape (N, {self.n_components}), got {tuple(z.shape)}")
        if len(x) != len(z):
            raise ValueError(f"X and Z must have as many rows, got {len(x)} and {len(z)}")
        if len(x) < 3:
            raise ValueError(f"X must have at least 3 rows, one of them to hold out, got {len(x)}")
        check_rows_finite("X", x.numpy())
        check_rows_finite("Z", z.numpy())
        count = min(HELD_OUT_POINTS, max(1, len(x) // 10))
        order = torch.randperm(len(x), generator=generator)
        held_out, kept = order[:count], order[count:]
        return _StoredPoints(x, z, kept), Batch(x[held_out], z[held_out])

    def _draw_seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):  # itself, as stored results have it
            return check_integer("random_state", self.random_state, at_least=0)
        return super()._draw_seed()

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "encoder_")
        tensors = {f"encoder.{k}": v for k, v in self.encoder_.state_dict().items()}
        return tensors | {
            "error": torch.tensor(self.error_, dtype=torch.float64),
            "history": steps_to_tensor(self.history_),
        }

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.error_ = float(tensors.pop("error"))
        self.history_ = steps_from_tensor(tensors.pop("history"))
        state = {key.removeprefix("encoder."): value for key, value in tensors.items()}
        self.encoder_ = self._build(saved_whitening(state, self._shape)).eval()
        self.encoder_.load_state_dict(state)

    def _build(self, whitening: Whitening | None) -> nn.Module:
        beliefs = Beliefs(self.space)
        return build_encoder(
            self.encoder, self._shape, beliefs, self.n_components, whitening=whitening
        )


class _SupervisedTraining(Training):
    """Regression of rescaled factors: a batch pairs observations with their factors."""

    rescale: Callable[[Tensor], Tensor]
    best_error = float("inf")

    def loss(self, batch: Batch) -> Tensor:
        with self.processes.autocast():
            codes = self.network(batch.x.to(self.dtype))
        return nn.functional.mse_loss(codes.to(self.dtype), self._targets(batch))

    def held_out_loss(self, network: nn.Module, held_out: Batch) -> float:
        codes = self.encode(network, held_out.x)
        return self.check_finite(float(nn.functional.mse_loss(codes, self._targets(held_out))))

    def measure(self, held_out: Batch) -> float:
        before = self.best
        error = super().measure(held_out)
        if self.best is not before:
            self.best_error = error
        return error

    def is_measured(self, number: int) -> bool:
        return number % MEASURE_EVERY_STEPS == 0

    def state(self) -> dict[str, Any]:
        return {"best_error": None if self.best is None else self.best_error}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if state["best_error"] is not None:
            self.best_error = state["best_error"]

    def _targets(self, batch: Batch) -> Tensor:
        return self.rescale(batch.x_pos).to(self.processes.device)

    def _weight_average(self) -> WeightAverage:
        average: WeightAverage = get_ema_multi_avg_fn(AVERAGING_DECAY)
        return average


class _FreshPoints:
    """Endless observations with their factors, from a world or from pairs with known factors."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, WorldPairs):
            source = source.world
        if not isinstance(source, World | _KnowsFactors):
            raise TypeError(
                f"X must be a World, a source with sample_known, such as FactorPairs(world, "
                f"LaplaceTransitions()), or observations with their factors Z, got {source!r}"
            )
        self.source = source

    def sample(self, batch_size: int, generator: Generator) -> Batch:
        if isinstance(self.source, World):
            z = self.source.sample_anchors(batch_size, generator)
            return Batch(self.source.mixing(z).float(), z.float())
        known = self.source.sample_known(-(-batch_size // 2), generator)
        x, z = torch.cat([known.x, known.x_pos]), torch.cat([known.y, known.y_pos])
        return Batch(x[:batch_size].float(), z[:batch_size].float())


class _StoredPoints:
    """Some rows of observations with their factors, drawn with replacement."""

    holds_data = True  # for digests

    def __init__(self, x: Tensor, z: Tensor, rows: Tensor) -> None:
        self.x, self.z, self.rows = x, z, rows

    def sample(self, batch_size: int, generator: Generator) -> Batch:
        count = len(self.rows)
        drawn = torch.randint(count, (min(batch_size, count),), generator=generator)
        rows = self.rows[drawn]
        return Batch(self.x[rows], self.z[rows])


def _rescaling(head: str, z: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the map of factors into the range of the output head."""
    if head == "box":
        low, high = z.amin(0), z.amax(0)
        width = torch.where(high > low, high - low, 1.0)  # a factor may have a single value
        return lambda z: (z - low.to(z.device)) / width.to(z.device)
    if head == "sphere":
        return lambda z: nn.functional.normalize(z, dim=1)
    return lambda z: z
