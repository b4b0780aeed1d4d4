"""β-VAE, SlowVAE, Ada-GVAE and Ada-ML-VAE."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.baselines.elbo import (
    Posterior,
    kl_to_standard_normal,
    mean_posterior,
    product_posterior,
    share,
    slow_divergence,
)
from isolatent.baselines.vae_networks import Autoencoder, ImageAutoencoder, VectorAutoencoder
from isolatent.checks import check_integer, check_real, check_tensor
from isolatent.pairs import ArrayPairs, Batch, PairSource
from isolatent.streams import layers_from_stream, random_stream
from isolatent.theory import Guarantee
from isolatent.training import NetworkEstimator, Recipe, Step, Training
from isolatent.training.devices import Processes
from isolatent.training.observations import is_source
from isolatent.training.progress import ignore_step, steps_from_tensor, steps_to_tensor
from isolatent.worlds import World

__all__ = ["AdaGVAE", "AdaMLVAE", "BetaVAE", "SlowVAE", "VariationalEstimator"]

STANDARDISATION_PAIRS = 4096
NO_PAIRS = (
    "a β-VAE does not use pairs, and without them a rotation of its codes explains the data as well"
)
NO_CHECK = (
    "claims about VAEs hold for the optimal posterior and decoder, and nothing in the data shows "
    "whether training came near them"
)


@dataclass(eq=False, repr=False, kw_only=True)
class VariationalEstimator(NetworkEstimator):
    """A variational autoencoder with the interface of :class:`isolatent.ContrastiveICA`.

    Subclasses define the loss. Images (channels, 64, 64) with pixels in [0, 1] get the papers'
    convolutions and Bernoulli pixels; vectors get perceptrons and normal columns. Training is Adam
    at a constant rate for a given number of steps, as in the papers.

    Args:
        n_components: Number of codes n.
        beta: Weight of the divergence from the prior.
        noise: For vectors: standard deviation of the decoder, as a share of each column's.
        max_steps: Number of optimiser steps.
        batch_size: Pairs per step; twice as many observations.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the networks in bfloat16.

    Attributes:
        autoencoder_: The trained networks.
        guarantee_: States that nothing is guaranteed, and why.
        history_: A :class:`isolatent.training.Step` for each step.
        n_features_in_: Number of observed dimensions.
    """

    _gap: ClassVar[str] = NO_CHECK

    n_components: int = field(default=10, kw_only=False)
    beta: float = 1.0
    noise: float = 0.1
    max_steps: int = 30_000
    batch_size: int = 32
    learning_rate: float = 1e-4

    @abstractmethod
    def _loss(self, model: Autoencoder, x: Tensor, noise: Tensor) -> Tensor:
        """Return the loss of the first observations of pairs followed by the second ones.

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
        checkpoint: str | os.PathLike[str] | None = None,
        resume: str | os.PathLike[str] | None = None,
        on_step: Callable[[Step], None] = ignore_step,
    ) -> Self:
        """Train on pairs.

        Args:
            X: Observations with their positives in ``X_pos``; or a recording; or a world or any
                pair source.
            X_pos: The positive of each row of X.
            groups: For recordings: one session id for each row. Pairs stay within a session.
            checkpoint: Directory for the state of the run, from which it can be resumed.
            resume: Such a directory; the run continues from its last intact checkpoint.
            on_step: Called after every step, for progress displays and logs. By default a notebook
                shows one line for a long fit.
        """
        self._check()
        source = self._as_source(X, X_pos, groups, reset=True)
        recipe = Recipe(
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warmup=0,
            patience=self.max_steps,
            cooldown=0.0,
        )

        def set_up(seed: int, processes: Processes) -> tuple[Training, PairSource, None]:
            return self._set_up(source, seed, recipe, processes)

        where = ("random_state", "accelerator", "devices", "num_nodes", "verbose")
        parameters = self.get_params(deep=False)
        run = self._train(
            set_up,
            {name: value for name, value in parameters.items() if name not in where},
            checkpoint=checkpoint,
            resume=resume,
            on_step=on_step,
        )
        network = run.modules["network"]
        assert isinstance(network, Autoencoder)
        self.autoencoder_ = network
        self.guarantee_ = self.guarantee_for(None)
        return self

    def guarantee_for(self, world: Any) -> Guarantee:
        """Return what may be claimed of the codes in any world: nothing, and why."""
        return Guarantee(None, (), "", "", self._gap)

    def code_module(self) -> nn.Module:
        check_is_fitted(self, "autoencoder_")
        return self.autoencoder_.means()

    def decode(self, Z: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Return the observations (N, ...) that codes (N, n_components) stand for."""
        check_is_fitted(self, "autoencoder_")
        codes = check_tensor("Z", Z).detach().cpu().numpy()
        if codes.ndim != 2 or codes.shape[1] != self.n_components:
            raise ValueError(f"Z must have shape (N, {self.n_components}), got {codes.shape}")
        return self._map(codes, self.autoencoder_, self.autoencoder_.observe, name="Z")

    def reconstruct(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Return observations decoded from their codes."""
        return self.decode(self.transform(X))

    def _set_up(
        self, source: PairSource, seed: int, recipe: Recipe, processes: Processes
    ) -> tuple[Training, PairSource, None]:
        generator = Generator().manual_seed(seed)
        self._set_shape(tuple(Batch.of(source.sample(2, generator)).x.shape[1:]))
        with random_stream(Generator().manual_seed(seed)), layers_from_stream():
            model = self._build()
        if isinstance(model, VectorAutoencoder):
            model.standardise(Batch.of(source.sample(STANDARDISATION_PAIRS, generator)).x)
        training = _VariationalTraining(model, recipe, generator, processes=processes)
        training.loss_function = self._loss
        training.n_components = self.n_components
        return training, source, None

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "autoencoder_")
        tensors = {f"autoencoder.{k}": v for k, v in self.autoencoder_.state_dict().items()}
        return tensors | {"history": steps_to_tensor(self.history_)}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.history_ = steps_from_tensor(tensors.pop("history"))
        self.guarantee_ = self.guarantee_for(None)
        self.autoencoder_ = self._build().eval()
        self.autoencoder_.load_state_dict(
            {key.removeprefix("autoencoder."): value for key, value in tensors.items()}
        )

    def _check(self) -> None:
        """Check all parameters, before anything is done."""
        check_integer("n_components", self.n_components, at_least=1)
        check_real("beta", self.beta, at_least=0)
        check_real("noise", self.noise, above=0)
        check_integer("max_steps", self.max_steps, at_least=1)
        check_integer("batch_size", self.batch_size, at_least=2)
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


class _VariationalTraining(Training):
    """Minimisation of a negative evidence lower bound by Adam at a constant rate."""

    loss_function: Callable[[Any, Tensor, Tensor], Tensor]
    n_components: int

    def loss(self, batch: Batch) -> Tensor:
        x = torch.cat([batch.x, batch.x_pos]).float()
        if isinstance(self.network, ImageAutoencoder):
            _check_pixels(x)
        with self.processes.autocast():
            return self.loss_function(self.network, x, self._noise(len(batch)).to(x.device))

    def _noise(self, pairs: int) -> Tensor:
        """Draw noise for the pairs of all processes; return that of this process's pairs."""
        size, rank = self.processes.size, self.processes.rank
        shape = (2, size, pairs, self.n_components)
        noise = torch.randn(2 * size * pairs, self.n_components, generator=self.generator)
        return noise.view(shape)[:, rank].reshape(2 * pairs, self.n_components)

    def _build_optimiser(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=self.recipe.learning_rate, fused=True)


class BetaVAE(VariationalEstimator):
    r"""The VAE whose divergence from the prior has a weight; it does not use pairs.

    .. math:: -E_q \log p(x|z) + \beta\, KL(q(z|x) \| N(0, 1))

    Both members of pairs are taken as observations. An array alone is a set of rows in no order,
    not a recording as for the others. Nothing guarantees that its codes are the factors: without
    pairs or labels a rotation of them explains the data as well (`locatello2019`).

    Args:
        n_components: Number of codes n.
        beta: β.
        noise: For vectors: standard deviation of the decoder, as a share of each column's.
        max_steps: Number of optimiser steps.
        batch_size: Half the observations per step: pairs, as in the others.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the networks in bfloat16.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4))
        >>> model = BetaVAE(2, max_steps=10, random_state=0).fit(x)
        >>> model.transform(x).shape, model.reconstruct(x).shape
        ((100, 2), (100, 4))
    """

    _gap = NO_PAIRS

    def _loss(self, model: Autoencoder, x: Tensor, noise: Tensor) -> Tensor:
        return _negative_elbo(model, model.posterior(x), x, noise, self.beta)

    def _as_source(self, X: Any, X_pos: Any, groups: Any, reset: bool) -> PairSource:
        if is_source(X) or X_pos is not None:
            return super()._as_source(X, X_pos, groups, reset)
        if groups is not None:
            raise ValueError("groups must be None: BetaVAE takes no recordings")
        return _UnrelatedRows(self._as_array(X, reset))


@dataclass(eq=False, repr=False, kw_only=True)
class _PairVAE(VariationalEstimator):
    """A VAE that uses pairs; an array alone is a recording.

    Args:
        lag: For recordings: largest number of rows between an anchor and its positive, or the
            smallest and the largest.

    The other arguments are those of :class:`VariationalEstimator`.
    """

    lag: int | Sequence[int] = 1


@dataclass(eq=False, repr=False, kw_only=True)
class SlowVAE(_PairVAE):
    r"""The VAE whose codes change little and seldom within a pair (`klindt2021`).

    .. math:: 2 R + \beta (C_N - H) + \gamma (C_L - H)

    with R the mean reconstruction error of the two frames, H the entropy of a posterior,
    :math:`C_N` its cross-entropy to a standard normal and :math:`C_L` that to a Laplace density
    around the other frame's code; :func:`isolatent.baselines.elbo.slow_divergence` has the terms
    in full, and says what is counted once and what twice.

    Args:
        n_components: Number of codes n.
        beta: β, the weight of the normal prior.
        gamma: γ, the weight of the transition.
        rate: Rate λ of the Laplace transition.
        noise: For vectors: standard deviation of the decoder, as a share of each column's.
        lag: For recordings: largest number of rows between an anchor and its positive, or the
            smallest and the largest.
        max_steps: Number of optimiser steps; the paper has 300 000.
        batch_size: Pairs per step; twice as many observations.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the networks in bfloat16.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4)).cumsum(0)
        >>> SlowVAE(2, max_steps=10, random_state=0).fit(x).transform(x).shape
        (100, 2)
    """

    gamma: float = 10.0
    rate: float = 6.0

    def _check(self) -> None:
        super()._check()
        check_real("gamma", self.gamma, at_least=0)
        check_real("rate", self.rate, above=0)

    def _loss(self, model: Autoencoder, x: Tensor, noise: Tensor) -> Tensor:
        q = model.posterior(x)
        error = model.error(q.sample(noise), x).mean()
        first, second = q.halves()
        return 2 * error + slow_divergence(first, second, self.beta, self.gamma, self.rate).mean()


class _AdaptiveVAE(_PairVAE):
    """A VAE that infers for each pair which dimensions it shares, and averages those."""

    def _check(self) -> None:
        super()._check()
        check_integer("n_components", self.n_components, at_least=2)

    def _loss(self, model: Autoencoder, x: Tensor, noise: Tensor) -> Tensor:
        first, second = model.posterior(x).halves()
        return _negative_elbo(model, self._shared(first, second), x, noise, self.beta)

    @abstractmethod
    def _shared(self, first: Posterior, second: Posterior) -> Posterior:
        """Return the posteriors (2B, n) of both frames, with shared dimensions averaged."""


class AdaGVAE(_AdaptiveVAE):
    r"""The VAE that averages the shared dimensions of a pair: means and variances.

    .. math:: \tfrac12 \sum_{x_k \in (x, x')}
        -E_{\tilde q_k} \log p(x_k|z) + \beta\, KL(\tilde q_k \| N(0, 1))

    with :math:`\tilde q_k` the posterior in which the dimensions that the frames share are replaced
    by their average (`locatello2020`). Shared are those whose :math:`\delta_i = 2 KL(q_i \| q'_i)`
    lies below the middle of the least and the greatest. The sum has a ½ so that it is a β-VAE's
    loss where nothing is shared.

    Args:
        n_components: Number of codes n, at least 2.
        beta: β.
        noise: For vectors: standard deviation of the decoder, as a share of each column's.
        lag: For recordings: largest number of rows between an anchor and its positive, or the
            smallest and the largest.
        max_steps: Number of optimiser steps.
        batch_size: Pairs per step; twice as many observations.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the networks in bfloat16.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4)).cumsum(0)
        >>> AdaGVAE(2, max_steps=10, random_state=0).fit(x).transform(x).shape
        (100, 2)
    """

    def _shared(self, first: Posterior, second: Posterior) -> Posterior:
        return share(first, second, mean_posterior)


class AdaMLVAE(_AdaptiveVAE):
    r"""Like :class:`AdaGVAE`, with the product of both posteriors in shared dimensions.

    The square root of the product is taken, so that its variance is the harmonic mean of both
    variances; see :func:`isolatent.baselines.elbo.product_posterior`. Arguments are those of
    :class:`AdaGVAE`.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4)).cumsum(0)
        >>> AdaMLVAE(2, max_steps=10, random_state=0).fit(x).transform(x).shape
        (100, 2)
    """

    def _shared(self, first: Posterior, second: Posterior) -> Posterior:
        return share(first, second, product_posterior)


class _UnrelatedRows:
    """Observations in pairs of unrelated rows."""

    def __init__(self, x: np.ndarray[Any, Any]) -> None:
        self._rows = ArrayPairs(x, x)

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        x, _ = self._rows.sample(2 * batch_size, generator)
        return x[:batch_size], x[batch_size:]


def _negative_elbo(
    model: Autoencoder, q: Posterior, x: Tensor, noise: Tensor, beta: float
) -> Tensor:
    """Return reconstruction error and β times the divergence, averaged over observations."""
    error = model.error(q.sample(noise), x)
    return (error + beta * kl_to_standard_normal(q)).mean()


def _check_pixels(x: Tensor) -> None:
    low, high = (float(bound) for bound in x.aminmax())
    if not 0 <= low <= high <= 1:
        raise ValueError(f"X must hold pixels in [0, 1], got some in [{low:g}, {high:g}]")
