"""An upper bound: the same encoder, trained on the true factors."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from isolatent.baselines.storage import Stored
from isolatent.checks import check_integer, check_tensor
from isolatent.datasets import FactorWorld
from isolatent.encoders import Whitening
from isolatent.pairs import KnownPairs, check_rows_finite
from isolatent.training import Recipe
from isolatent.training.assembly import Beliefs, build_encoder
from isolatent.training.observations import TakesObservations, is_source
from isolatent.training.schedule import Pace
from isolatent.worlds import World

__all__ = ["SupervisedEncoder"]

HELD_OUT = 4096
MEASURE_EVERY = 50
MEMORY = 0.98  # of the average of the weights
WHITENING = 16_384
PART = 2**22  # numbers that are encoded at a time: 1024 images of 64 x 64 pixels

Points = tuple[Tensor, Tensor]  # observations and their factors


@runtime_checkable
class _KnowsFactors(Protocol):
    def sample_known(self, batch_size: int, generator: Generator) -> KnownPairs: ...


class SupervisedEncoder(
    Stored, TakesObservations, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""The encoder of :class:`isolatent.ContrastiveICA`, trained to minimise :math:`E|f(x) - z|^2`.

    This is the *supervised* score of `zimmermann2021`: it says whether the encoder could invert the
    mixing at all. Factors are rescaled to fit the output head: to [0, 1] in a box, to norm 1 on a
    sphere; neither R² nor MCC can see that. On a grid of factors they are the indices, also those
    of categories. Training has AdamW with a half-cosine at its end, which starts where the error on
    held-out points no longer falls.

    Args:
        n_components: Number of factors n.
        space: Where the codes live, as in :class:`isolatent.ContrastiveICA`.
        encoder: Its ``encoder``, by name; for images ``"conv"``, ``"pooled"`` or
            ``"residual"``.
        max_steps: Steps at most; training stops before if the error no longer falls at all.
        batch_size: Points per step.
        learning_rate: Peak learning rate; the default is for vectors, and convolutions need a
            lower one, such as 1e-3.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.

    Attributes:
        encoder_: The trained encoder.
        error_: The least mean squared error on held-out points.
        n_features_in_: Number of observed dimensions.

    Example:
        >>> from isolatent.worlds import Box, Linear, Normal, Uniform
        >>> world = World(Box(2), Uniform(), Normal(0.1), Linear(), seed=0)
        >>> model = SupervisedEncoder(2, space="box", max_steps=30, batch_size=64)
        >>> model.fit(world).transform(world.sample_pairs(5)[0]).shape
        (5, 2)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        space: str = "euclidean",
        encoder: str = "mlp",
        max_steps: int = 5000,
        batch_size: int = 1024,
        learning_rate: float = 2e-2,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.space = space
        self.encoder = encoder
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(
        self, X: ArrayLike | Tensor | World | _KnowsFactors, Z: ArrayLike | Tensor | None = None
    ) -> Self:
        """Train on fresh points, or on observations X with their factors Z.

        Args:
            X: A world, or a source of pairs with known factors, such as
                :class:`isolatent.pairs.FactorPairs`, of which both members serve; or observations.
            Z: The factors (N, n_components) of observations.
        """
        seed = self._draw_seed()
        # An upper bound must not stop where the error falls slowly, so the tolerance is 0.
        recipe = Recipe(
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            tolerance=0.0,
        )
        generator = Generator().manual_seed(seed)
        draw, (held_x, held_z) = self._points(X, Z, generator)
        if held_z.shape[1:] != (self.n_components,):
            raise ValueError(
                f"n_components must be the number of factors, {held_z.shape[1:].numel()}, got "
                f"{self.n_components}"
            )
        self._set_shape(tuple(held_x.shape[1:]))
        # Images are not whitened, and would fill the memory.
        x, z = draw(WHITENING if held_x.ndim == 2 else HELD_OUT, generator)
        rescale = _rescaling(self.space, z)
        with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global stream
            torch.manual_seed(seed)
            encoder = self._build()
        for module in encoder.modules():
            if isinstance(module, Whitening):
                module.fit([x])
        averaged = AveragedModel(encoder, multi_avg_fn=get_ema_multi_avg_fn(MEMORY))
        averaged.eval()
        optimiser = torch.optim.AdamW(
            encoder.parameters(), betas=(0.9, 0.99), weight_decay=recipe.weight_decay, fused=True
        )
        pace = Pace(recipe)
        best, self.error_, number = deepcopy(encoder), math.inf, 0
        while number < pace.total:
            number += 1
            for group in optimiser.param_groups:
                group["lr"] = pace.rate(number)
            x, z = draw(recipe.batch_size, generator)
            error = nn.functional.mse_loss(encoder(x), rescale(z))
            optimiser.zero_grad()
            error.backward()
            optimiser.step()
            averaged.update_parameters(encoder)
            self._check_loss(float(error.detach()), number)
            if number % MEASURE_EVERY == 0 or number == pace.total:
                codes = _encode(averaged.module, held_x)
                missed = float(nn.functional.mse_loss(codes, rescale(held_z)))
                self._check_loss(missed, number)
                if pace.measured(number, missed):
                    best, self.error_ = deepcopy(averaged.module), missed
        self.encoder_ = best.eval()
        return self

    def transform(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Codes (N, n_components) of observations (N, m), or of images, in their precision."""
        encoder = self.code_module()
        return self._map(self._as_array(X, reset=False), partial(_encode, encoder), encoder)

    def code_module(self) -> nn.Module:
        """The module that computes :meth:`transform`: observations as tensors to codes."""
        check_is_fitted(self, "encoder_")
        return self.encoder_

    def _check_loss(self, loss: float, number: int) -> None:
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss became {loss} at step {number}; try a smaller learning_rate than "
                f"{self.learning_rate:g}, or check the data for extreme values"
            )

    def _points(
        self, X: Any, Z: Any, generator: Generator
    ) -> tuple[Callable[[int, Generator], Points], Points]:
        """A function that draws observations and their factors, and some to hold out."""
        if is_source(X) or isinstance(X, _KnowsFactors | FactorWorld):
            if Z is not None:
                raise ValueError("Z must be None when X is a world or a pair source")
            fresh = _fresh(X)
            return fresh, fresh(HELD_OUT, generator)
        if Z is None:
            raise ValueError("Z must hold the true factors of X, got None")
        x = torch.from_numpy(np.array(self._as_array(X, True), np.float32))
        z = check_tensor("Z", Z).detach().cpu().float()
        if z.ndim != 2:
            raise ValueError(f"Z must have shape (N, {self.n_components}), got {tuple(z.shape)}")
        if len(x) != len(z):
            raise ValueError(f"X and Z must have as many rows, got {len(x)} and {len(z)}")
        if len(x) < 2:
            raise ValueError(f"X must have at least 2 rows, one of them to hold out, got {len(x)}")
        check_rows_finite("X", x.numpy())
        check_rows_finite("Z", z.numpy())
        held = min(HELD_OUT, max(1, len(x) // 10))
        order = torch.randperm(len(x), generator=generator)
        aside, kept = order[:held], order[held:]

        def stored(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
            rows = kept[torch.randint(len(kept), (min(count, len(kept)),), generator=generator)]
            return x[rows], z[rows]

        return stored, (x[aside], z[aside])

    def _draw_seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):  # itself: stored results were seeded so
            return check_integer("random_state", self.random_state, at_least=0)
        return super()._draw_seed()

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "encoder_")
        tensors = {f"encoder.{k}": v for k, v in self.encoder_.state_dict().items()}
        return tensors | {"error": torch.tensor(self.error_, dtype=torch.float64)}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.error_ = float(tensors.pop("error"))
        self.encoder_ = self._build().eval()
        self.encoder_.load_state_dict(
            {key.removeprefix("encoder."): value for key, value in tensors.items()}
        )

    def _build(self) -> nn.Module:
        beliefs = SimpleNamespace(
            n_components=self.n_components,
            space=self.space,
            marginal="uniform",
            conditional="normal",
            p=None,
            potentials=None,
        )
        return build_encoder(self.encoder, self._shape, Beliefs(beliefs))


def _fresh(source: Any) -> Callable[[int, Generator], Points]:
    """A function that draws endless points from a world, or from pairs with known factors."""
    if isinstance(source, World):

        def of_world(count: int, generator: Generator) -> Points:
            z = source.sample_anchors(count, generator)
            return source.mixing(z).float(), z.float()

        return of_world
    if not isinstance(source, _KnowsFactors):
        raise TypeError(
            f"X must be a World, a source with sample_known, such as FactorPairs(world, "
            f"LaplaceTransitions()), or observations with their factors Z, got {source!r}"
        )

    def of_pairs(count: int, generator: Generator) -> Points:
        known = source.sample_known(-(-count // 2), generator)
        x, z = torch.cat([known.x, known.x_pos]), torch.cat([known.y, known.y_pos])
        return x[:count].float(), z[:count].float()

    return of_pairs


def _encode(encoder: nn.Module, x: Tensor) -> Tensor:
    """Codes of observations, in parts, since images take much memory inside the encoder."""
    rows = max(1, PART // max(1, x[:1].numel()))
    with torch.no_grad():
        return torch.cat([encoder(part) for part in x.split(rows)])


def _rescaling(space: str, z: Tensor) -> Any:
    if space == "box":
        low, high = z.amin(0), z.amax(0)
        width = torch.where(high > low, high - low, 1.0)  # a factor may have a single value
        return lambda z: (z - low) / width
    if space == "sphere":
        return lambda z: nn.functional.normalize(z, dim=1)
    return lambda z: z
