"""β-VAE, SlowVAE, Ada-GVAE and Ada-ML-VAE."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Generator, Tensor

from isolatent.baselines.elbo import (
    Posterior,
    kl_to_standard_normal,
    mean_posterior,
    product_posterior,
    share,
    slow_divergence,
)
from isolatent.baselines.vae_networks import Autoencoder
from isolatent.baselines.variational import VariationalEstimator
from isolatent.checks import check_integer, check_real
from isolatent.pairs import ArrayPairs, PairSource
from isolatent.training.observations import is_source

__all__ = ["AdaGVAE", "AdaMLVAE", "BetaVAE", "SlowVAE"]


class BetaVAE(VariationalEstimator):
    r"""The VAE whose divergence has a weight; it does not know of pairs.

    .. math:: -E_q \log p(x|z) + \beta\, KL(q(z|x) \| N(0, 1))

    Both members of pairs are taken as observations. An array alone is rows in no order, not a
    recording as for the others. Nothing guarantees that its codes are the factors: without pairs
    or labels a rotation of them explains the data as well (`locatello2019`).

    Args:
        n_components: Codes n.
        beta: β.
        noise: For vectors: the decoder's standard deviation, as a share of each column's.
        max_steps: Optimiser steps.
        batch_size: Half the observations per step: pairs, as in the others.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4))
        >>> model = BetaVAE(2, max_steps=10, random_state=0).fit(x)
        >>> model.transform(x).shape, model.reconstruct(x).shape
        ((100, 2), (100, 4))
    """

    def _loss(self, model: Autoencoder, x: Tensor, noise: Tensor) -> Tensor:
        return _negative_elbo(model, model.posterior(x), x, noise, self.beta)

    def _as_source(self, X: Any, X_pos: Any, groups: Any, reset: bool) -> PairSource:
        if is_source(X) or X_pos is not None:
            return super()._as_source(X, X_pos, groups, reset)
        if groups is not None:
            raise ValueError("groups must be None: BetaVAE takes no recordings")
        return _Singles(self._as_array(X, reset))


class _PairVAE(VariationalEstimator):
    """A VAE that makes use of pairs; an array alone is a recording."""

    def __init__(
        self,
        n_components: int = 10,
        *,
        beta: float = 1.0,
        noise: float = 0.1,
        lag: int | Sequence[int] = 1,
        max_steps: int = 30_000,
        batch_size: int = 32,
        learning_rate: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            n_components,
            beta=beta,
            noise=noise,
            max_steps=max_steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            random_state=random_state,
        )
        self.lag = lag


class SlowVAE(_PairVAE):
    r"""The VAE whose codes change little and seldom within a pair (`klindt2021`).

    .. math:: 2 R + \beta (C_N - H) + \gamma (C_L - H)

    with R the mean reconstruction error of the two frames, H the entropy of a posterior,
    :math:`C_N` its cross-entropy to a standard normal and :math:`C_L` that to a Laplace density
    around the other frame's code; :func:`isolatent.baselines.elbo.slow_divergence` has the terms
    in full, and says what is counted once and what twice.

    Args:
        n_components: Codes n.
        beta: β, the weight of the normal prior.
        gamma: γ, the weight of the transition.
        rate: Rate λ of the Laplace transition.
        noise: For vectors: the decoder's standard deviation, as a share of each column's.
        lag: For recordings: how many rows apart a moment and its positive may be, or the shortest
            and the longest.
        max_steps: Optimiser steps; the paper has 300 000.
        batch_size: Pairs per step; twice as many observations.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4)).cumsum(0)
        >>> SlowVAE(2, max_steps=10, random_state=0).fit(x).transform(x).shape
        (100, 2)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        beta: float = 1.0,
        gamma: float = 10.0,
        rate: float = 6.0,
        noise: float = 0.1,
        lag: int | Sequence[int] = 1,
        max_steps: int = 30_000,
        batch_size: int = 32,
        learning_rate: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            n_components,
            beta=beta,
            noise=noise,
            lag=lag,
            max_steps=max_steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            random_state=random_state,
        )
        self.gamma = gamma
        self.rate = rate

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
    """A VAE that finds out for each pair which dimensions it shares, and averages those."""

    def _check(self) -> None:
        super()._check()
        check_integer("n_components", self.n_components, at_least=2)

    def _loss(self, model: Autoencoder, x: Tensor, noise: Tensor) -> Tensor:
        first, second = model.posterior(x).halves()
        return _negative_elbo(model, self._shared(first, second), x, noise, self.beta)

    @abstractmethod
    def _shared(self, first: Posterior, second: Posterior) -> Posterior:
        """The posteriors (2B, n) of both frames, with common dimensions averaged."""


class AdaGVAE(_AdaptiveVAE):
    r"""The VAE that averages what a pair shares: means, and variances (`locatello2020`).

    .. math:: \tfrac12 \sum_{x_k \in (x, x')}
        -E_{\tilde q_k} \log p(x_k|z) + \beta\, KL(\tilde q_k \| N(0, 1))

    with :math:`\tilde q_k` the posterior in which the dimensions that the frames share are replaced
    by their average. Shared are those whose :math:`\delta_i = 2 KL(q_i \| q'_i)` lies below the
    middle of the least and the greatest. The sum has a ½ so that it is a β-VAE's loss where nothing
    is shared.

    Args:
        n_components: Codes n, at least 2.
        beta: β.
        noise: For vectors: the decoder's standard deviation, as a share of each column's.
        lag: For recordings: how many rows apart a moment and its positive may be, or the shortest
            and the longest.
        max_steps: Optimiser steps.
        batch_size: Pairs per step; twice as many observations.
        learning_rate: Adam's rate.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4)).cumsum(0)
        >>> AdaGVAE(2, max_steps=10, random_state=0).fit(x).transform(x).shape
        (100, 2)
    """

    def _shared(self, first: Posterior, second: Posterior) -> Posterior:
        return share(first, second, mean_posterior)


class AdaMLVAE(_AdaptiveVAE):
    r"""Like :class:`AdaGVAE`, but shared dimensions get the product of both posteriors.

    The product is taken under a root, so that its variance is the harmonic mean of both variances;
    see :func:`isolatent.baselines.elbo.product_posterior`. Arguments are those of AdaGVAE.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 4)).cumsum(0)
        >>> AdaMLVAE(2, max_steps=10, random_state=0).fit(x).transform(x).shape
        (100, 2)
    """

    def _shared(self, first: Posterior, second: Posterior) -> Posterior:
        return share(first, second, product_posterior)


class _Singles:
    """Observations two by two that have nothing to do with each other."""

    def __init__(self, x: np.ndarray[Any, Any]) -> None:
        self._rows = ArrayPairs(x, x)

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        x, _ = self._rows.sample(2 * batch_size, generator)
        return x[:batch_size], x[batch_size:]


def _negative_elbo(
    model: Autoencoder, q: Posterior, x: Tensor, noise: Tensor, beta: float
) -> Tensor:
    """Reconstruction error and β times the divergence, averaged over observations."""
    error = model.error(q.sample(noise), x)
    return (error + beta * kl_to_standard_normal(q)).mean()
