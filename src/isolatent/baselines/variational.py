"""What the estimators of the VAE family share: training, codes, decoding and storage."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.baselines.storage import Stored
from isolatent.baselines.vae_networks import Autoencoder, ImageAutoencoder, VectorAutoencoder
from isolatent.checks import check_integer, check_real, check_tensor
from isolatent.pairs import PairSource
from isolatent.training.observations import TakesObservations
from isolatent.training.steps import Step, steps_from_tensor, steps_to_tensor
from isolatent.worlds import World

__all__ = ["VariationalEstimator"]

LOOK = 4096  # pairs from which means and standard deviations of columns are taken


class VariationalEstimator(
    Stored, TakesObservations, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """A variational autoencoder with the interface of :class:`isolatent.ContrastiveICA`.

    Subclasses say what is minimised. Images (channels, 64, 64) with pixels in [0, 1] get the
    papers' convolutions and Bernoulli pixels; vectors get perceptrons and normal columns. Training
    is Adam at a constant rate for a given number of steps, as in the papers.

    Args:
        n_components: Codes n.
        beta: Weight of the divergence from the prior.
        noise: For vectors: the decoder's standard deviation, as a share of each column's.
        max_steps: Optimiser steps.
        batch_size: Pairs per step; twice as many observations.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.

    Attributes:
        autoencoder_: The trained networks.
        history_: A :class:`isolatent.training.Step` for each step.
        n_features_in_: Number of observed dimensions.
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        beta: float = 1.0,
        noise: float = 0.1,
        max_steps: int = 30_000,
        batch_size: int = 32,
        learning_rate: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.noise = noise
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    @abstractmethod
    def _loss(self, model: Autoencoder, x: Tensor, noise: Tensor) -> Tensor:
        """What is minimised, for the first observations of pairs followed by the second ones.

        Args:
            model: The networks.
            x: Observations (2B, ...).
            noise: Standard normal numbers (2B, n), to draw codes with.
        """

    def fit(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> Self:
        """Train on pairs.

        Args:
            X: Observations with their positives in ``X_pos``; or a recording; or a world or any
                pair source.
            X_pos: The positive of each row of X.
            groups: For recordings: one session id for each row. Pairs stay within a session.
            on_step: Called after every step, for progress displays and logs.
        """
        self._check()
        source = self._as_source(X, X_pos, groups, reset=True)
        seed = self._draw_seed()
        generator = Generator().manual_seed(seed)
        x, _ = source.sample(2, generator)
        self._set_shape(tuple(x.shape[1:]))
        with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global stream
            torch.manual_seed(seed)
            model = self._build()
        if isinstance(model, VectorAutoencoder):
            model.standardise(source.sample(LOOK, generator)[0])
        images = isinstance(model, ImageAutoencoder)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate, fused=True)
        self.history_: list[Step] = []
        for number in range(1, self.max_steps + 1):
            pair = source.sample(self.batch_size, generator)
            both = torch.cat(pair).float()
            if images:
                _check_pixels(both)
            noise = torch.randn(len(both), self.n_components, generator=generator)
            loss = self._loss(model, both, noise)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step = Step(number, self.max_steps, float(loss.detach()), None, None)
            if not math.isfinite(step.loss):
                raise FloatingPointError(
                    f"the loss became {step.loss} at step {number}; try a smaller learning_rate "
                    f"than {self.learning_rate:g}, or check the data for extreme values"
                )
            self.history_.append(step)
            on_step(step)
        self.autoencoder_ = model.eval()
        return self

    def transform(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Codes (N, n_components) of observations: the means of their posteriors."""
        module = self.code_module()
        return self._map(self._as_array(X, reset=False), module, module)

    def code_module(self) -> nn.Module:
        """The module that computes :meth:`transform`: observations as tensors to codes."""
        check_is_fitted(self, "autoencoder_")
        return self.autoencoder_.means()

    def decode(self, Z: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Observations (N, ...) that codes (N, n_components) stand for."""
        check_is_fitted(self, "autoencoder_")
        codes = check_tensor("Z", Z).detach().cpu().numpy()
        if codes.ndim != 2 or codes.shape[1] != self.n_components:
            raise ValueError(f"Z must have shape (N, {self.n_components}), got {codes.shape}")
        return self._map(codes, self.autoencoder_.observe, self.autoencoder_, name="Z")

    def reconstruct(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """What is left of observations in their codes."""
        return self.decode(self.transform(X))

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "autoencoder_")
        tensors = {f"autoencoder.{k}": v for k, v in self.autoencoder_.state_dict().items()}
        return tensors | {"history": steps_to_tensor(self.history_)}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.history_ = steps_from_tensor(tensors.pop("history"))
        self.autoencoder_ = self._build().eval()
        self.autoencoder_.load_state_dict(
            {key.removeprefix("autoencoder."): value for key, value in tensors.items()}
        )

    def _check(self) -> None:
        """Everything that can be wrong with the parameters, before anything is done."""
        check_integer("n_components", self.n_components, at_least=1)
        check_real("beta", self.beta, at_least=0)
        check_real("noise", self.noise, above=0)
        check_integer("max_steps", self.max_steps, at_least=1)
        check_integer("batch_size", self.batch_size, at_least=1)
        check_real("learning_rate", self.learning_rate, above=0)

    def _build(self) -> Autoencoder:
        if len(self._shape) == 1:
            return VectorAutoencoder(self.n_components, self._shape[0], self.noise)
        if len(self._shape) != 3 or self._shape[1:] != (64, 64):
            raise ValueError(
                "X must have shape (N, features) or (N, channels, 64, 64), "
                f"got (N, {', '.join(map(str, self._shape))})"
            )
        return ImageAutoencoder(self.n_components, self._shape[0])


def _check_pixels(x: Tensor) -> None:
    low, high = (float(bound) for bound in x.aminmax())
    if not 0 <= low <= high <= 1:
        raise ValueError(f"X must hold pixels in [0, 1], got some in [{low:g}, {high:g}]")
