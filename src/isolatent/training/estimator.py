"""Contrastive ICA as a scikit-learn estimator."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.checks import IsolatentWarning, check_integer, check_one_of
from isolatent.contrast import InfoNCE
from isolatent.files import to_plain
from isolatent.pairs import ArrayPairs, PairSource, SeriesPairs
from isolatent.theory import check_beliefs
from isolatent.training.assembly import (
    ENCODERS,
    Beliefs,
    build_loss,
    dtype_of,
    guarantee_of,
    head_of,
)
from isolatent.training.calibration import finish
from isolatent.training.checkpoints import Checkpoints
from isolatent.training.devices import Processes, connect
from isolatent.training.engine import Training, fit_encoder
from isolatent.training.observations import TakesObservations
from isolatent.training.recipe import Recipe
from isolatent.training.setup import HELD_OUT_PAIRS, HOLD_OUT_FROM, prepare
from isolatent.training.steps import Step
from isolatent.training.storage import load_model, save_model
from isolatent.worlds import World

__all__ = ["ContrastiveICA"]

FEWEST_BATCHES = 8  # that a pass over the pairs is made of, unless a recipe says otherwise
NO_INFORMATION = 0.01  # nats; pairs that share less than this are as good as unrelated
SCORE_BATCH = 512  # pairs that are told apart at a time by `score`


class ContrastiveICA(
    TakesObservations, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Recover latent factors from positive pairs.

    You declare what you believe about the world: the space of the latents, their marginal, and how
    positives are distributed around anchors. The similarity, the output head and the guarantee
    follow from it. An encoder :math:`f` is trained so that :math:`e^{s(f(x'), f(x))}` matches the
    declared conditional; ``guarantee_`` says what that entails.

    Args:
        n_components: Number of factors n.
        space: ``"sphere"``, ``"box"``, ``"euclidean"``, ``"cubegrid"`` or ``"hollowball"``.
        marginal: ``"uniform"``, ``"normal"``, or ``"unknown"`` if you cannot say; the last two add
            learned potentials.
        conditional: ``"vmf"`` on the sphere, ``"normal"``, ``"laplace"``, ``"gennorm"`` or
            ``"anisotropic"``, a normal whose width differs between factors.
        p: The exponent of ``"gennorm"``.
        loss: ``"infonce"``, ``"aninfonce"``, ``"nce"``, ``"scl"``, ``"nwj"``, or any module called
            as ``loss(h, h_pos)``.
        potentials: α and α̃ of a loss given by its name: ``"none"``, ``"constant"``, ``"learned"``,
            or None for what the loss needs under these beliefs.
        encoder: ``"mlp"`` (whitened input, a linear path beside a perceptron), ``"paper"`` (that of
            `zimmermann2021`), ``"conv"`` (64 × 64 images), ``"pooled"`` (images, fast on a CPU),
            ``"residual"`` (images), or any module that maps observations to codes
            (N, n_components).
        lag: For recordings: how many rows apart a moment and its positive may be, or the shortest
            and the longest.
        recipe: A :class:`Recipe`; the default one if None.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Devices, or processes on the CPU, on this machine.
        num_nodes: Machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the encoder in bfloat16.

    Attributes:
        encoder_: The trained encoder.
        loss_: The trained loss with its learned scale.
        guarantee_: What may be claimed; prints as a card.
        history_: A :class:`Step` for each step, with the loss and what else is known after it.
        n_features_in_: Number of observed dimensions.
        feature_names_in_: Names of the columns, if X had some.

    Example:
        >>> import isolatent as iso
        >>> world = iso.World(
        ...     iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(10.0), iso.Linear(), seed=0
        ... )
        >>> recipe = iso.Recipe(max_steps=50, batch_size=128)
        >>> model = iso.ContrastiveICA(3, recipe=recipe, random_state=0)
        >>> z_hat = model.fit(world).transform(world.sample_pairs(5)[0])
        >>> z_hat.shape
        (5, 3)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        space: str = "sphere",
        marginal: str = "uniform",
        conditional: str = "vmf",
        p: float | None = None,
        loss: str | nn.Module = "infonce",
        potentials: str | None = None,
        encoder: str | nn.Module = "mlp",
        lag: int | Sequence[int] = 1,
        recipe: Recipe | None = None,
        random_state: int | np.random.RandomState | None = None,
        accelerator: str = "auto",
        devices: int = 1,
        num_nodes: int = 1,
        precision: str = "32-true",
    ) -> None:
        self.n_components = n_components
        self.space = space
        self.marginal = marginal
        self.conditional = conditional
        self.p = p
        self.loss = loss
        self.potentials = potentials
        self.encoder = encoder
        self.lag = lag
        self.recipe = recipe
        self.random_state = random_state
        self.accelerator = accelerator
        self.devices = devices
        self.num_nodes = num_nodes
        self.precision = precision

    def fit(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: str | os.PathLike[str] | None = None,
        on_step: Callable[[Step], None] = lambda step: None,
        quality: Callable[[nn.Module], float] | None = None,
    ) -> Self:
        """Train on pairs.

        A tenth of the pairs (at most 4096) is held out, to see when training no longer gains; of
        fewer than 100 pairs none can be spared. A pair source of your own is taken to be endless.

        Args:
            X: Observations (N, m) with their positives in ``X_pos``; or, without ``X_pos``, a
                recording (T, m) whose rows have their positives at most ``lag`` rows later; or a
                world or any pair source.
            X_pos: The positive of each row of X.
            groups: For recordings: one session id for each row. Pairs stay within a session.
            checkpoint: A directory in which to keep the state of the run, so that it can be
                resumed after a crash or Ctrl-C. Older checkpoints in it are replaced.
            resume: Such a directory; the run goes on from its last good checkpoint, to the same
                result as without the break. Data and parameters must be the same.
            on_step: Called after every step, for progress displays and logs.
            quality: Scores an encoder where the truth is known; its figure is passed to
                ``on_step``.
        """
        recipe, beliefs = self._check()
        if checkpoint is not None and resume is not None:
            raise ValueError("checkpoint and resume exclude each other: resume also writes there")
        source = self._as_source(X, X_pos, groups, reset=True)
        if self.recipe is None and isinstance(source, ArrayPairs | SeriesPairs):
            # Few pairs are learned by heart in few steps; smaller batches see more of them.
            together = self.devices * self.num_nodes
            batch = max(2, len(source) // (FEWEST_BATCHES * together)) * together
            recipe = replace(recipe, batch_size=min(recipe.batch_size, batch))
        place = resume if resume is not None else checkpoint
        checkpoints = None if place is None else Checkpoints(place)
        saved = None if resume is None or checkpoints is None else checkpoints.latest()
        seed = self._draw_seed()
        if saved is not None and not isinstance(self.random_state, Integral):
            seed = saved.record["identity"]["seed"]  # repeat what was drawn from no seed
        processes = connect(self.accelerator, self.devices, self.num_nodes, self.precision)
        seed = processes.agree(seed)
        training, source, held_out = self._prepare(source, seed, recipe, beliefs, processes)
        identity = self._identity(seed, recipe) | {"data": _digest(held_out)}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if saved is not None:
                training.restore(saved, identity)
            elif checkpoints is not None and processes.rank == 0:
                checkpoints.clear()
            processes.wait()

            def record(step: Step) -> None:
                if processes.rank == 0:
                    on_step(step)

            encoder, loss = fit_encoder(
                training,
                source,
                held_out,
                on_step=record,
                quality=quality,
                checkpoints=checkpoints,
                identity=identity,
            )
        self.history_ = training.history
        self.__dict__.pop("_training", None)  # of an earlier partial_fit
        self._finish(encoder, loss, training, source, held_out, beliefs)
        self._warn_if_nothing_was_found(held_out)
        return self

    def partial_fit(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Train one pass over more pairs, at a constant rate; the first call starts a model.

        A pass is as many steps as it takes to draw each pair once; 1 for an endless source. After
        ``fit`` or ``load`` it starts anew, since those keep no optimiser.
        """
        recipe, beliefs = self._check()
        started = hasattr(self, "_training")
        source = self._as_source(X, X_pos, groups, reset=not started)
        if not started:
            seed = self._draw_seed()
            processes = connect(self.accelerator, 1, 1, self.precision)
            self._training, _, _ = self._prepare(source, seed, recipe, beliefs, processes, False)
        training = self._training
        pairs = len(source) if isinstance(source, ArrayPairs | SeriesPairs) else recipe.batch_size
        for _ in range(math.ceil(pairs / recipe.batch_size)):
            x, x_pos = source.sample(recipe.batch_size, training.generator)
            training.pace.cooling_from = training.pace.total = training.number + 1
            loss = training.advance(x, x_pos)
            number = training.number + 1
            training.history.append(Step(number, number, loss, None, None))
        self.history_ = training.history
        pair = source.sample(min(HELD_OUT_PAIRS, max(pairs, 2)), training.generator)
        self._finish(*training.result(), training, source, pair, beliefs)
        return self

    def transform(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Codes (N, n_components) of observations (N, m), in batches and in X's precision."""
        check_is_fitted(self, "encoder_")
        return self._map(self._as_array(X, reset=False), self.encoder_, self.encoder_)

    def code_module(self) -> nn.Module:
        """The module that computes :meth:`transform`: observations as tensors to codes."""
        check_is_fitted(self, "encoder_")
        return self.encoder_

    def score(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> float:
        """How much a pair tells, at least, in nats: log B - InfoNCE on these pairs; more is better.

        B is 512 pairs, or all if there are fewer, so it is at most 6.2. For other losses than
        InfoNCE it is the negative loss.
        """
        check_is_fitted(self, "encoder_")
        source = self._as_source(X, X_pos, groups, reset=False)
        generator = Generator().manual_seed(0)
        if isinstance(source, ArrayPairs) and len(source) <= HELD_OUT_PAIRS:
            x, x_pos = source.all()
        else:
            x, x_pos = source.sample(HELD_OUT_PAIRS, generator)
        dtype = dtype_of(self.encoder_)
        device = next(self.encoder_.parameters()).device
        parts = math.ceil(len(x) / SCORE_BATCH)
        total = 0.0
        with torch.no_grad():
            for a, b in zip(x.tensor_split(parts), x_pos.tensor_split(parts), strict=True):
                value = float(self.loss_(*(self.encoder_(v.to(device, dtype)) for v in (a, b))))
                offset = math.log(len(a)) if isinstance(self.loss_, InfoNCE) else 0.0
                total += (offset - value) * len(a) / len(x)
        return total

    def save(self, directory: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write ``model.safetensors`` and ``model.json``; other files in the directory stay."""
        check_is_fitted(self, "encoder_")
        save_model(self, Path(directory), overwrite)

    @classmethod
    def load(
        cls,
        directory: str | os.PathLike[str],
        *,
        encoder: nn.Module | None = None,
        loss: nn.Module | None = None,
    ) -> Self:
        """Read what :meth:`save` wrote.

        Args:
            directory: Where the model is.
            encoder: A module like the one given to the constructor, if one was: code is not saved.
            loss: The same for the loss.
        """
        return load_model(cls, Path(directory), encoder, loss)

    def _check(self) -> tuple[Recipe, Beliefs]:
        """Everything that can be wrong with the parameters, before anything is done."""
        n = check_integer("n_components", self.n_components, at_least=1)
        if n < 2 and self.space == "sphere":
            raise ValueError(f"n_components must be at least 2 on a sphere, got {n}")
        check_beliefs(self.space, self.marginal, self.conditional, self.p)
        recipe = Recipe() if self.recipe is None else self.recipe
        if not isinstance(recipe, Recipe):
            raise TypeError(f"recipe must be a Recipe or None, got {recipe!r}")
        beliefs = Beliefs(self)
        if not isinstance(self.loss, nn.Module):
            build_loss(self.loss, beliefs)
        elif self.potentials is not None:
            raise ValueError("potentials must be None when loss is a module: it brings its own")
        if not isinstance(self.encoder, nn.Module):
            check_one_of("encoder", self.encoder, ENCODERS)
        return recipe, beliefs

    def _identity(self, seed: int, recipe: Recipe) -> dict[str, Any]:
        """What must be the same for a run to be the same."""
        names = (
            *("n_components", "space", "marginal", "conditional", "p"),
            *("loss", "potentials", "encoder", "lag", "precision"),
        )
        values = {name: getattr(self, name) for name in names}
        plain = {k: repr(v) if isinstance(v, nn.Module) else v for k, v in values.items()}
        return to_plain({"seed": seed, **plain, "recipe": recipe.to_dict()})

    def _as_array(self, X: Any, reset: bool) -> np.ndarray[Any, Any]:
        array = super()._as_array(X, reset)
        if reset and array.ndim == 2 and not isinstance(array, np.memmap):
            constant = np.flatnonzero(array.max(0) == array.min(0))
            if len(constant):
                names = getattr(self, "feature_names_in_", np.arange(array.shape[1]))[constant]
                raise ValueError(f"X must vary in every column, but {[*names]} are constant")
        return array

    def _prepare(
        self,
        source: PairSource,
        seed: int,
        recipe: Recipe,
        beliefs: Beliefs,
        processes: Processes,
        hold_out: bool = True,
    ) -> tuple[Training, PairSource, tuple[Tensor, Tensor]]:
        """Everything a run needs, from its seed alone."""
        training, source, held_out, shape = prepare(
            self.encoder, self.loss, source, seed, recipe, beliefs, processes, hold_out
        )
        self._set_shape(shape)
        return training, source, held_out

    def _finish(
        self,
        encoder: nn.Module,
        loss: nn.Module,
        training: Training,
        source: PairSource,
        held_out: tuple[Tensor, Tensor],
        beliefs: Beliefs,
    ) -> None:
        """Do what is known in closed form, and say what may be claimed."""
        if isinstance(self.loss, str) and isinstance(self.encoder, str):
            finish(training, encoder, loss, source)
        self.encoder_, self.loss_ = encoder, loss
        head = None
        if isinstance(self.encoder, nn.Module):
            head = head_of(encoder, training.encode_all(encoder, held_out[0][:256]))
        self.guarantee_ = guarantee_of(beliefs, self.loss, loss, head, self.n_features_in_)

    def _warn_if_nothing_was_found(self, held_out: tuple[Tensor, Tensor]) -> None:
        if not isinstance(self.loss_, InfoNCE) or len(held_out[0]) < HOLD_OUT_FROM:
            return
        found = self.score(ArrayPairs(*held_out))
        if found < NO_INFORMATION:
            warnings.warn(
                f"pairs were found to share only {found:.3f} nats: either they are unrelated, or "
                "the encoder did not learn what they share; do not trust the codes",
                IsolatentWarning,
                stacklevel=3,
            )


def _digest(held_out: tuple[Tensor, Tensor]) -> str:
    """What tells one set of data from another, as far as the held-out pairs show it."""
    parts = (part.contiguous().cpu().numpy().tobytes() for part in held_out)
    return hashlib.sha256(b"".join(parts)).hexdigest()
