"""Contrastive ICA as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.checks import check_integer, check_one_of
from isolatent.contrast import Dot, InfoNCE, Lp, Similarity
from isolatent.encoders import MLP, BoxHead, SphereHead, Whitening
from isolatent.evaluation import derive_guarantee
from isolatent.pairs import ArrayPairs, PairSource, WorldPairs
from isolatent.training.loop import Step, fit_encoder
from isolatent.training.recipe import Recipe
from isolatent.worlds import World

__all__ = ["ContrastiveICA"]

WHITENING_PAIRS = 8192  # pairs from which mean and covariance are estimated
TRANSFORM_BATCH = 8192
HELD_OUT = 0.1  # share of the pairs of two arrays
HELD_OUT_PAIRS = 4096  # more would make measuring slow, not surer
HOLD_OUT_FROM = 100  # pairs; fewer cannot spare any


class ContrastiveICA(TransformerMixin, BaseEstimator):
    r"""Recover latent factors from positive pairs.

    You declare what you believe about the world: the space of the latents, their marginal, and how
    positives are distributed around anchors. The similarity, the output head and the guarantee
    follow from it. An encoder :math:`f` is trained with InfoNCE so that
    :math:`e^{s(f(x'), f(x))}` matches the declared conditional; ``guarantee_`` says what that
    entails.

    Args:
        n_components: Number of factors n.
        space: ``"sphere"``, ``"box"`` or ``"euclidean"``.
        marginal: ``"uniform"``, or ``"unknown"`` if you do not believe so.
        conditional: ``"vmf"`` on the sphere, ``"normal"`` or ``"laplace"`` elsewhere.
        loss: ``"infonce"``, or any module called as ``loss(h, h_pos)``.
        encoder: ``"mlp"`` (whitened input, linear path beside a perceptron), or any module that
            maps observations to codes (N, n_components).
        recipe: A :class:`Recipe`; the default one if None.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.

    Attributes:
        encoder_: The trained encoder.
        loss_: The trained loss with its learned scale.
        guarantee_: What may be claimed; None if ``loss`` or ``encoder`` is your own module.
        history_: A :class:`Step` for each step, with the loss and what else is known after it.
        n_features_in_: Number of observed dimensions.

    Example:
        >>> import isolatent as iso
        >>> world = iso.World(
        ...     iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(10.0), iso.Linear(), seed=0
        ... )
        >>> model = iso.ContrastiveICA(3, recipe=iso.Recipe(steps=50, batch=128), random_state=0)
        >>> z_hat = model.fit(world).transform(world.sample_pairs(5)[0])
        >>> z_hat.shape
        (5, 3)
    """

    def __init__(
        self,
        n_components: int,
        *,
        space: str = "sphere",
        marginal: str = "uniform",
        conditional: str = "vmf",
        loss: str | nn.Module = "infonce",
        encoder: str | nn.Module = "mlp",
        recipe: Recipe | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.space = space
        self.marginal = marginal
        self.conditional = conditional
        self.loss = loss
        self.encoder = encoder
        self.recipe = recipe
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        on_step: Callable[[Step], None] = lambda step: None,
        quality: Callable[[nn.Module], float] | None = None,
    ) -> Self:
        """Train on pairs.

        Of two arrays a tenth of the pairs (at most 4096; none of fewer than 100) is held out, to
        stop training before it learns the rest by heart. A pair source is taken to be endless.

        Args:
            X: Observations (N, m); or a world or any pair source, and then no ``X_pos``.
            X_pos: The positive of each row of X.
            on_step: Called after every step, for progress displays and logs.
            quality: Scores an encoder where the truth is known; its figure is passed to
                ``on_step``.
        """
        n = check_integer("n_components", self.n_components, at_least=1)
        if n < 2 and self.space == "sphere":
            raise ValueError(f"n_components must be at least 2 on a sphere, got {n}")
        derive_guarantee(self.space, self.marginal, self.conditional)  # checks the beliefs
        recipe = Recipe() if self.recipe is None else self.recipe
        if not isinstance(recipe, Recipe):
            raise TypeError(f"recipe must be a Recipe or None, got {recipe!r}")
        source = _as_source(X, X_pos)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        generator = Generator().manual_seed(seed)
        held_out = None
        if isinstance(source, ArrayPairs) and len(source) >= HOLD_OUT_FROM:
            share = min(HELD_OUT, HELD_OUT_PAIRS / len(source))
            source, kept = source.split(share, generator)
            held_out = kept.all()
        x, _ = source.sample(WHITENING_PAIRS, generator)
        with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global stream
            torch.manual_seed(seed)
            encoder = self._make_encoder(x, n)
        loss = self._make_loss()
        dtype = _dtype_of(encoder)
        codes = encoder(x[:2].to(dtype))
        if codes.shape != (2, n):
            raise ValueError(
                f"encoder must map 2 observations to codes (2, n_components = {n}), "
                f"got {tuple(codes.shape)}"
            )
        self.history_: list[Step] = []

        def record(step: Step) -> None:
            self.history_.append(step)
            on_step(step)

        self.encoder_ = fit_encoder(
            encoder, loss, source, recipe, generator, record, quality, held_out, dtype
        )
        self.loss_ = loss
        self.n_features_in_ = x.shape[1]
        own = isinstance(self.loss, nn.Module) or isinstance(self.encoder, nn.Module)
        self.guarantee_ = (
            None
            if own
            else derive_guarantee(
                self.space, self.marginal, self.conditional, n, self.n_features_in_
            )
        )
        return self

    def transform(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Codes (N, n_components) of observations (N, m)."""
        check_is_fitted(self)
        array = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"X must hold real numbers, got dtype {array.dtype}")
        x = torch.from_numpy(array.astype(np.float64, copy=False))
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise ValueError(f"X must have shape (N, {self.n_features_in_}), got {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            row = int((~x.isfinite().all(1)).nonzero()[0])
            raise ValueError(f"X must be finite, but row {row} holds NaN or inf")
        dtype = _dtype_of(self.encoder_)
        with torch.no_grad():
            codes = [self.encoder_(part.to(dtype)) for part in x.split(TRANSFORM_BATCH)]
        out: np.ndarray[Any, Any] = torch.cat(codes).numpy()
        return out

    def _make_encoder(self, x: Tensor, n: int) -> nn.Module:
        if isinstance(self.encoder, nn.Module):
            return deepcopy(self.encoder)  # the one given stays as it is, and can be fitted again
        check_one_of("encoder", self.encoder, ["mlp"])
        head: dict[str, nn.Module] = {"sphere": SphereHead(), "box": BoxHead()}
        network = nn.Sequential(
            Whitening(x.shape[1]).fit([x]), MLP(x.shape[1], n), head.get(self.space, nn.Identity())
        )
        return network.to(x.dtype)

    def _make_loss(self) -> nn.Module:
        if isinstance(self.loss, nn.Module):
            return deepcopy(self.loss)
        check_one_of("loss", self.loss, ["infonce"])
        similarity: Similarity
        if self.conditional == "vmf":
            similarity = Dot(learn_scale=True)
        else:
            # The scale of the codes is free off the sphere, so the weight stays at one.
            similarity = Lp(p=1 if self.conditional == "laplace" else 2)
        return InfoNCE(similarity)


def _dtype_of(encoder: nn.Module) -> torch.dtype:
    for parameter in encoder.parameters():
        if parameter.is_floating_point() and parameter.requires_grad:
            return parameter.dtype
    raise ValueError(f"encoder must have parameters to train, got {encoder!r}")


def _as_source(X: Any, X_pos: Any) -> PairSource:
    if isinstance(X, World | PairSource):
        if X_pos is not None:
            raise ValueError("X_pos must be None when X is a world or a pair source")
        return WorldPairs(X) if isinstance(X, World) else X
    if X_pos is None:
        raise ValueError(
            "X_pos must be given when X is an array: contrastive learning needs pairs; "
            "for a recording use SeriesPairs(X, lag=...)"
        )
    if np.shape(X) != np.shape(X_pos):
        raise ValueError(
            f"X and X_pos must have the same shape, got {np.shape(X)} and {np.shape(X_pos)}"
        )
    return ArrayPairs(X, X_pos)
