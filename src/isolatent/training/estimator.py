"""Contrastive ICA as a scikit-learn estimator."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.checks import IsolatentWarning, check_integer, check_one_of
from isolatent.contrast import ContrastiveLoss, PosteriorInfoNCE
from isolatent.encoders import Axes, LinearAxes, Whitening
from isolatent.inference import dtype_of, encode_chunks
from isolatent.pairs import (
    ArrayPairs,
    Batch,
    FinitePairSource,
    PairSource,
    SeparateRecordings,
    SeriesPairs,
    UnpairedPairs,
    check_window,
)
from isolatent.theory import Beliefs, Guarantee
from isolatent.theory.assumptions import REACHES_OPTIMUM, Assumption
from isolatent.theory.axis_claims import AXIS_METHODS, with_axes
from isolatent.theory.world_beliefs import count_factors
from isolatent.training.assembly import (
    ENCODERS,
    Capacity,
    build_encoder,
    build_recording_encoders,
    default_capacity,
    guarantee_of,
    head_of,
    learned_weights,
    learns_size,
    saved_whitening,
    weight_errors_of,
)
from isolatent.training.axis_search import (
    AXES,
    AxesError,
    append_axes,
    find_axes,
    without_axes,
)
from isolatent.training.calibration import calibrate
from isolatent.training.contrastive import (
    HELD_OUT_PAIRS,
    HELD_OUT_SHARE,
    LARGEST_SHARE,
    MIN_PAIRS_TO_HOLD_OUT,
    ContrastiveTraining,
    Setup,
    check_batch,
    has_bound,
    score_pairs,
    set_up,
)
from isolatent.training.credible_regions import CredibleRegions
from isolatent.training.devices import Processes, connect
from isolatent.training.noise import (
    NOISE_RECIPE,
    FirstCodes,
    PosteriorSpread,
    build_noisy_encoder,
    build_objective,
    calibrate_noise,
    check_noise,
    check_noise_share,
    wrap_encoder,
)
from isolatent.training.progress import Step, steps_from_tensor, steps_to_tensor
from isolatent.training.recipe import Recipe
from isolatent.training.recordings import RecordingEstimator
from isolatent.training.relaxations import (
    AUTO,
    attach,
    check_relax,
    check_relaxable,
    describe_relaxations,
    measure_relaxations,
    relatedness,
)
from isolatent.training.restarts import (
    CAPACITIES,
    DEFAULT_START,
    FEWEST_PAIRS,
    LINEAR,
    UNPAIRED_CAPACITIES,
    Start,
    check_n_init,
    choose_start,
)
from isolatent.worlds import World

__all__ = ["ContrastiveICA"]

MIN_BATCHES_PER_EPOCH = 8  # unless a recipe sets the batch size
NO_INFORMATION = 0.01  # nats; pairs that share less are treated as unrelated
SCORE_BATCH_SIZE = 512
LEAST_HELD_OUT = 100  # pairs, that say anything about the information which pairs share
# A rule of thumb: with ten codes, 1 000 pairs are about the fewest with which a network is better
# than a linear encoder, whose weights are as many as codes times directions.
PAIRS_PER_SQUARED_CODE = 10
DEFAULT = "default"  # of relax and axes: as the data ask, unless beliefs are declared
ALIGNED = "signed permutation and scaling"
ONLY_FREE = "free codes alone may be mapped linearly"
ERROR_PAIRS = 16_384  # from which errors of learned weights are estimated


@dataclass(eq=False, repr=False, kw_only=True)
class ContrastiveICA(RecordingEstimator):
    r"""Recover latent factors from positive pairs.

    With ``space=None`` nothing is declared but the number of factors. Codes are free then, and
    compared by their squared distance; assumptions about the pairs are relaxed as held-out pairs
    ask, and axes are found as far as the independence of the factors, or their dynamics, support
    it.

    What is declared about the world is taken at its word, and more can be claimed: the space of the
    latents, their marginal, and how positives are distributed around anchors. The similarity, the
    output head and the guarantee follow from these :class:`isolatent.Beliefs`. An encoder :math:`f`
    is trained so that :math:`e^{s(f(x'), f(x))}` matches the conditional; ``guarantee_`` states
    what may then be claimed of the codes.

    Args:
        n_components: Number of factors n.
        space: ``"sphere"``, ``"box"``, ``"euclidean"``, ``"cubegrid"`` or ``"hollowball"``.
            None declares nothing; with a marginal or a conditional, it means ``"euclidean"``, and
            ``"sphere"`` if ``conditional="vmf"``.
        marginal: ``"uniform"``, ``"normal"``, or ``"unknown"``; the last two add learned
            potentials. By default ``"unknown"`` if nothing is declared; else ``"uniform"``, and
            ``"normal"`` if ``space="euclidean"``.
        conditional: ``"vmf"`` on the sphere, ``"normal"``, ``"laplace"``, ``"gennorm"`` or
            ``"anisotropic"``, a normal whose width differs between factors. By default ``"vmf"``
            on the sphere and ``"normal"`` elsewhere.
        p: Exponent of ``"gennorm"``.
        loss: ``"infonce"``, ``"aninfonce"``, ``"nce"``, ``"scl"``, ``"nwj"``, or any module called
            as ``loss(h, h_pos)``, such as an :class:`isolatent.Ensemble`.
        potentials: Potentials α and α̃ of a loss given by name: ``"none"``, ``"constant"``,
            ``"learned"``, or None for those that the loss needs under these beliefs.
        relax: Assumptions that are learned instead of taken for granted, any of ``"pairing"`` (some
            pairs are unrelated), ``"anchor_scale"`` (steps are wider in some places),
            ``"factor_scale"`` (some factors move more than others), ``"marginal"`` (the same as
            ``marginal="unknown"``) and ``"dynamics"`` (positives lie around a linear map of the
            anchor), or ``"auto"`` for those that held-out pairs support. ``"default"`` means
            ``"auto"`` if neither space, marginal nor conditional is declared, and none otherwise.
            ``"noise"`` (observations are ambiguous, so that each has a distribution of codes) is
            not among those that ``"auto"`` tries.
        noise_share: With ``"noise"``: the share of the spread within pairs that is noise of the
            observations, from 0 to 1, the rest being steps of the factors. 1 if both halves of a
            pair show the same factors. Pairs do not identify it. None means 1, with a warning: the
            widest posteriors that the pairs allow.
        axes: How to align free codes with single factors: ``"ica"`` by their independence,
            ``"dynamics"`` by their time scales and frequencies, ``"auto"`` by what the data support
            best, or None to leave the codes as they are. They are aligned only as far as checks
            confirm. ``"default"`` means ``"auto"`` if neither space, marginal nor conditional is
            declared, and None otherwise.
        encoder: ``"mlp"`` (whitened input, a linear path beside a perceptron), ``"paper"`` (that of
            `zimmermann2021`), ``"conv"`` (64 × 64 images), ``"pooled"`` (images, fast on a CPU),
            ``"residual"`` (images), or any module that maps observations to codes
            (N, n_components).
        counts: Whether observations are counts, such as spikes in a bin or photons: none is
            negative. Each is replaced by 2 √(x + 3/8), see :class:`isolatent.encoders.Anscombe`,
            whose noise is equally large everywhere if the counts are Poisson. For an encoder given
            by name.
        lag: For recordings: largest number of rows between an anchor and its positive, or the
            smallest and the largest.
        window: For recordings: odd number w of consecutive rows, centred on a row, that the encoder
            sees. Its input are the stacked rows, (w · m,); a linear layer over them is a temporal
            convolution. Windows stay within sessions, where the outermost row is repeated.
        n_init: Number of short runs from different initial weights, the best of which by held-out
            loss goes on; 1 for none. ``"auto"`` runs two, and more where they disagree; where the
            network overfits fewer than 50 000 pairs, networks of other capacities are compared
            first, a linear one among them, and fewer than 100 pairs get a linear one. For
            ``encoder="mlp"`` and pairs that are held out; with a recipe, and for several devices,
            ``"auto"`` means 1.
        recipe: Settings of the training, a :class:`Recipe`; None for the defaults.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the encoder in bfloat16.

    Attributes:
        encoder_: The trained encoder.
        loss_: The trained loss with its learned scale.
        beliefs_: The declared beliefs, complete.
        head_: Where the codes live: ``"sphere"``, ``"box"`` or ``"free"``.
        guarantee_: What may be claimed; prints as a card.
        relaxed_: The relaxations in use, by name.
        capacity_: Width and dropout of the hidden layers of ``encoder="mlp"``, and the weight of a
            decoder's error in its training; a width of 0 means a linear encoder. None for other
            encoders.
        gains_: With ``relax="auto"``: the gain of each relaxation on held-out pairs, in nats, and
            its standard error. A relaxation in use has its gain over those chosen before it.
        related_share_: With ``"pairing"``: the share of pairs that are related.
        related_share_interval_: Its 95 % interval.
        axes_: The :class:`isolatent.encoders.Axes` that were found, with what their checks said;
            None if none were looked for.
        dynamics_: Matrix, time scales and periods of the codes with their intervals, an
            :class:`isolatent.encoders.Dynamics`, where axes were looked for by dynamics.
        n_directions_: Number of directions of X that the encoder sees, after those of noise were
            dropped, see :class:`isolatent.encoders.Whitening`; all ``n_features_in_ * window`` if
            none were.
        history_: A :class:`isolatent.training.Step` for each step, with its loss.
        n_features_in_: Number of observed dimensions; of recordings with an encoder each, the
            largest.
        n_features_per_recording_: Number of observed dimensions of each recording, where each has
            an encoder.
        feature_names_in_: Names of the columns, if X had some.

    Example:
        >>> import isolatent as iso
        >>> world = iso.World(
        ...     iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(10.0), iso.Linear(), seed=0
        ... )
        >>> recipe = iso.Recipe(max_steps=50, batch_size=128)
        >>> model = iso.ContrastiveICA(3, space="sphere", recipe=recipe, random_state=0)
        >>> z_hat = model.fit(world).transform(world.sample_pairs(5)[0])
        >>> z_hat.shape
        (5, 3)
    """

    space: str | None = None
    marginal: str | None = None
    conditional: str | None = None
    p: float | None = None
    loss: str | nn.Module = "infonce"
    potentials: str | None = None
    relax: str | Sequence[str] = DEFAULT
    noise_share: float | None = None
    axes: str | None = DEFAULT
    encoder: str | nn.Module = "mlp"
    counts: bool = False
    lag: int | Sequence[int] = 1
    window: int = 1
    n_init: int | str = "auto"
    recipe: Recipe | None = None

    def fit(
        self,
        X: ArrayLike | Tensor | Sequence[ArrayLike | Tensor] | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        unpaired: ArrayLike | Tensor | None = None,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
        common: str | Sequence[ArrayLike] | None = None,
        separate: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: str | os.PathLike[str] | None = None,
        on_step: Callable[[Step], None] = lambda step: None,
        quality: Callable[[nn.Module], float] | None = None,
    ) -> Self:
        """Train on pairs.

        A tenth of the pairs, at least 100 and at most 4096, is held out for early stopping; a fifth
        of fewer than 500, and none of fewer than 20. A pair source is endless unless it has
        ``__len__`` and ``split``: see :class:`isolatent.pairs.FinitePairSource`.

        Args:
            X: Observations (N, m) with their positives in ``X_pos``; or, without ``X_pos``, a
                recording (T, m) whose rows have their positives at most ``lag`` rows later, or a
                list of recordings; or a world or any pair source. Rows of a
                recording that hold NaN are in no pair, which a warning says.
            X_pos: The positive of each row of X.
            unpaired: For X with X_pos: further observations (M, ...) without a partner,
                distributed as those in pairs. They are negatives of all pairs, the whitening is
                estimated from them as well, and a decoder that keeps encoders of few pairs from
                overfitting reconstructs them.
            groups: For recordings: one session id for each row. Pairs stay within a session.
            times: For recordings: the time of each row, increasing within each session; for a list
                of recordings a list. The time between the rows of a pair is its lag times the
                median interval, up to half of that interval; a longer interval ends a session.
            max_gap: For recordings: longest run of rows with NaN that is interpolated linearly.
            common: For a list of recordings: which of their rows show the same factors.
                ``"times"`` for rows at the same time; or a list of arrays with a label for each
                row, such as the frame of a film, where rows with equal labels do, and NaN is no
                label. There are pairs across recordings then, which give all codes one space.
            separate: For a list of recordings: whether each gets an encoder of its own; None for
                yes if their columns differ or if ``common`` is given.
            checkpoint: Directory for the state of the run, from which it can be resumed after a
                crash or Ctrl-C. Older checkpoints in it are replaced.
            resume: Such a directory; the run continues from its last intact checkpoint, to the same
                result as without the interruption. Data and parameters must be the same.
            on_step: Called after every step, for progress displays and logs.
            quality: Scores an encoder where the truth is known; its figure is passed to
                ``on_step``.
        """
        recipe, beliefs = self._check()
        self._warn_of_share()
        source = self._as_source(X, X_pos, groups, True, times, max_gap, common, separate)
        if self._is_noisy and (unpaired is not None or isinstance(source, SeparateRecordings)):
            what = "recordings with an encoder each" if unpaired is None else "unpaired="
            raise ValueError(f"relax must not contain 'noise' with {what}, got {self.relax!r}")
        if unpaired is not None:
            source = self._with_unpaired(source, X_pos, unpaired)
        self._check_order(source)
        if self.recipe is None and isinstance(source, FinitePairSource):
            # A small data set is overfitted within few epochs; smaller batches make more of them.
            processes = self.devices * self.num_nodes
            largest = max(2, len(source) // (MIN_BATCHES_PER_EPOCH * processes)) * processes
            recipe = replace(recipe, batch_size=min(recipe.batch_size, largest))
        if isinstance(source, SeparateRecordings) and recipe.batch_size < 2 * len(source.series):
            raise ValueError(
                f"recipe must have a batch_size of at least {2 * len(source.series)} for "
                f"{len(source.series)} recordings, two pairs of each, got {recipe.batch_size}"
            )

        def set_up_run(
            seed: int, processes: Processes
        ) -> tuple[ContrastiveTraining, PairSource, Batch]:
            start = self._choose_start(source, seed, recipe, beliefs, processes)
            n_pairs = len(source) if isinstance(source, FinitePairSource) else 0
            settings = start.recipe(recipe, n_pairs)
            run = self._set_up(source, seed, settings, beliefs, processes, start=start)
            return run.training, run.source, run.held_out

        run = self._train(
            set_up_run,
            self._identity(recipe),
            checkpoint=checkpoint,
            resume=resume,
            on_step=on_step,
            quality=wrap_encoder(quality, self.n_components) if self._is_noisy else quality,
        )
        self.__dict__.pop("_training", None)  # of an earlier partial_fit
        assert isinstance(run.training, ContrastiveTraining)
        assert run.held_out is not None
        self._set_fitted(run.training, run.modules, run.source, run.held_out, beliefs, self._axes())
        n_pairs = len(source) if isinstance(source, FinitePairSource) else None
        self._check_information(run.held_out, n_pairs)
        warned = self.guarantee_.warnings
        if isinstance(run.source, SeparateRecordings) and not run.source.is_shared:
            warned += (f"recordings: {self.guarantee_.recordings}",)
        if self.axes in AXIS_METHODS and self.head_ != "free":
            warned += (f"axes were {self.guarantee_.axes}",)
        for warning in warned:
            warnings.warn(warning, IsolatentWarning, stacklevel=2)
        return self

    def partial_fit(
        self,
        X: ArrayLike | Tensor | Sequence[ArrayLike | Tensor] | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
    ) -> Self:
        """Train one epoch on more pairs, at a constant rate; the first call starts a model.

        An epoch is as many steps as it takes to draw each pair once; one step for an endless
        source. After ``fit`` or ``load`` it starts anew, since those keep no optimiser.
        """
        recipe, beliefs = self._check()
        if self.axes not in (None, DEFAULT):
            raise ValueError(
                f"axes must be None for partial_fit, got {self.axes!r}: axes are found after a fit"
            )
        if self.relax != DEFAULT and check_relax(self.relax) is None:
            raise ValueError(
                "relax must name relaxations for partial_fit, got 'auto': the choice needs "
                "held-out pairs and a fit to the end"
            )
        if X_pos is None and isinstance(X, list | tuple) and len({np.shape(x)[1:] for x in X}) > 1:
            raise ValueError(
                "X must be recordings with the same columns for partial_fit: with an encoder each "
                "they need fit"
            )
        started = hasattr(self, "_training")
        source = self._as_source(X, X_pos, groups, not started, times, max_gap)
        self._check_order(source)
        if not started:
            processes = connect(self.accelerator, 1, 1, self.precision)
            seed = self._draw_seed()
            run = self._set_up(source, seed, recipe, beliefs, processes, partial=True)
            self._training = run.training
        training = self._training
        pairs = len(source) if isinstance(source, FinitePairSource) else recipe.batch_size
        for _ in range(math.ceil(pairs / recipe.batch_size)):
            batch = Batch.of(source.sample(recipe.batch_size, training.generator))
            number = training.number + 1
            training.schedule.cooling_from = training.schedule.total = number
            loss = training.advance(training.processes.share(batch))
            training.history.append(Step(number, number, loss, None, None))
        self.history_ = training.history
        sample = source.sample(min(HELD_OUT_PAIRS, max(pairs, 2)), training.generator)
        self._set_fitted(training, training.result(), source, Batch.of(sample), beliefs)
        return self

    @property
    def beliefs(self) -> Beliefs:
        """What is believed about the world: declared, or the default that needs no declaration."""
        return self._beliefs()

    @property
    def declaration(self) -> str:
        """What is declared about the world, in words."""
        return str(self._beliefs()) if self._declares else "nothing declared"

    @property
    def n_directions_(self) -> int:
        check_is_fitted(self, "encoder_")
        for module in self.encoder_.modules():
            if isinstance(module, Whitening):
                return max(
                    other.n_kept
                    for other in self.encoder_.modules()
                    if isinstance(other, Whitening)
                )
        return math.prod(self._window_shape)

    def code_module(self) -> nn.Module:
        check_is_fitted(self, "encoder_")
        return self.encoder_

    def transform(
        self,
        X: ArrayLike | Tensor,
        *,
        recording: int | None = None,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
        return_std: bool = False,
    ) -> Any:
        """Return the codes (N, n_components) of observations (N, ...), in the precision of X.

        Args:
            X: Observations. For a model that was fitted to a recording, a recording: its windows
                are those of ``fit``, and the codes of rows with NaN are NaN.
            recording: Number of the recording in the list that was fitted, where each has an
                encoder; None if X is such a list.
            groups: For recordings: one session id for each row.
            times: For recordings: the time of each row.
            max_gap: For recordings: longest run of rows with NaN that is interpolated.
            return_std: For ``relax=("noise",)``: whether to return the codes and the standard
                deviation of each under its posterior, both (N, n_components).
        """
        options: dict[str, Any] = {"groups": groups, "times": times, "max_gap": max_gap}
        if not return_std:
            return super().transform(X, recording=recording, **options)
        network = self._posterior_network("return_std=True")
        codes = super().transform(X, **options)
        return codes, self._transform_with(PosteriorSpread(network), X, **options)

    def credible_regions(
        self,
        X: ArrayLike | Tensor,
        level: float = 0.9,
        *,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
    ) -> CredibleRegions:
        """Return regions that hold the codes of observations with a probability.

        For a model with ``relax=("noise",)``.

        Args:
            X: Observations, as in :meth:`transform`.
            level: The probability, between 0 and 1.
            groups: For recordings, as in :meth:`transform`.
            times: For recordings.
            max_gap: For recordings.
        """
        options: dict[str, Any] = {"groups": groups, "times": times, "max_gap": max_gap}
        network = self._posterior_network("credible_regions")
        on_sphere = self.head_ == "sphere"
        spread = self._transform_with(PosteriorSpread(network, on_sphere), X, **options)
        codes = super().transform(X, **options)
        return CredibleRegions(codes, spread[:, 0] if on_sphere else spread, level, self.head_)

    @property
    def _is_noisy(self) -> bool:
        return "noise" in (self._relax() or ())

    def _posterior_network(self, what: str) -> nn.Sequential:
        """Return the encoder of posteriors; raise an error if there is none."""
        check_is_fitted(self, "encoder_")
        if "noise" not in self.relaxed_:
            raise ValueError(
                f"{what} needs a model of noisy observations: fit with relax=('noise',); here "
                f"relaxed_ is {self.relaxed_}"
            )
        assert isinstance(self.encoder_, nn.Sequential)
        network: nn.Sequential = self.encoder_[:-1]  # type: ignore[assignment]
        return network

    def _scored_network(self) -> nn.Module:
        """Return the network whose outputs the loss was trained with."""
        if "noise" in self.relaxed_:
            return self._posterior_network("score")
        return without_axes(self.encoder_)

    def _warn_of_share(self) -> None:
        if self._is_noisy and self.noise_share is None:
            warnings.warn(
                "noise_share was not given: all of the spread within pairs counts as noise, which "
                "gives the widest posteriors that pairs allow; give noise_share=1 if both halves "
                "of a pair show the same factors, and less if these move",
                IsolatentWarning,
                stacklevel=3,
            )

    def guarantee_for(self, world: Any) -> Guarantee:
        """Return what may be claimed if the data come from a given world.

        ``guarantee_`` follows from the declared beliefs; here the beliefs are those that hold in
        the world, so that declarations which are wrong show as a gap. After a fit the card also
        names the objective and the calibration, and has the warnings of the training.

        Args:
            world: A :class:`isolatent.World`, or a pair source with one.
        """
        declared = self._beliefs()
        loss = getattr(self, "loss_", self.loss)
        if isinstance(loss, str):
            relaxed = self._relax() or ()
            loss = build_objective(loss, declared, self.n_components, self.potentials, relaxed)
        guarantee = guarantee_of(
            Beliefs.of(world),
            loss,
            head=getattr(self, "head_", declared.head),
            learns_size=hasattr(self, "encoder_") and learns_size(self.encoder_),
            n_components=self.n_components,
            n_factors=count_factors(world),
        )
        if not hasattr(self, "guarantee_"):
            return guarantee
        fitted = self.guarantee_
        if self.axes_ is not None:
            guarantee = _with_axes(guarantee, self.axes_)
        else:
            guarantee = replace(guarantee, axes=fitted.axes)
        return _with_training(guarantee, fitted.objective, fitted.calibration, fitted.warnings)

    def score(
        self,
        X: ArrayLike | Tensor | Sequence[ArrayLike | Tensor] | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
    ) -> float:
        """Return a lower bound on the information that pairs share, in nats; higher is better.

        The bound is log B - InfoNCE, with B = 512 pairs or all if there are fewer, so it is at most
        6.2. For other losses, and where pairs carry negatives, the score is the negative loss.
        """
        check_is_fitted(self, "encoder_")
        source: Any = self._as_source(X, X_pos, groups, False, times, max_gap)
        generator = Generator().manual_seed(0)
        if isinstance(source, ArrayPairs) and len(source) <= HELD_OUT_PAIRS:
            pairs = Batch.of(source.all())
        else:
            pairs = Batch.of(source.sample(HELD_OUT_PAIRS, generator))
        check_batch(pairs, self.loss_)
        network = self._scored_network()
        return score_pairs(network, self.loss_, pairs, SCORE_BATCH_SIZE)[0]

    def relatedness(self, X: ArrayLike | Tensor, X_pos: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Return for each pair the probability (N,) that it is related, for ``relax="pairing"``.

        Args:
            X: Observations (N, ...).
            X_pos: The positive of each row of X.
        """
        check_is_fitted(self, "encoder_")
        if self.window > 1:
            raise ValueError(f"window must be 1 for relatedness of single rows, got {self.window}")
        pairing = getattr(self.loss_, "pairing", None)
        if pairing is None:
            raise AttributeError(
                "relatedness needs a model with pairing relaxed: fit with relax=('pairing',); "
                f"here relaxed_ is {self.relaxed_}"
            )
        network = without_axes(self.encoder_)
        parts = (torch.as_tensor(self._as_array(part, reset=False)) for part in (X, X_pos))
        h, h_pos = (encode_chunks(network, part) for part in parts)
        if h.shape != h_pos.shape:
            raise ValueError(
                f"X and X_pos must have equally many rows, got {len(h)} and {len(h_pos)}"
            )
        return relatedness(self.loss_, h, h_pos).numpy()

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
        return cls._load(Path(directory), {"encoder": encoder, "loss": loss})

    @property
    def _declares(self) -> bool:
        """Whether anything is declared about the world."""
        return any(
            value is not None for value in (self.space, self.marginal, self.conditional, self.p)
        )

    def _beliefs(self) -> Beliefs:
        if not self._declares:
            return Beliefs("euclidean", "unknown")
        space = self.space
        if space is None:
            space = "sphere" if self.conditional == "vmf" else "euclidean"
        return Beliefs(space, self.marginal, self.conditional, self.p)

    def _relax(self) -> tuple[str, ...] | None:
        """Return the relaxations, or None if they are to be chosen."""
        if isinstance(self.relax, str) and self.relax == DEFAULT:
            return () if self._declares or isinstance(self.loss, nn.Module) else None
        return check_relax(self.relax)

    def _axes(self) -> str | None:
        """Return how axes are to be found, if at all."""
        if self.axes == DEFAULT:
            return None if self._declares or self._is_noisy else "auto"
        if self.axes is None:
            return None
        if self.axes not in AXES:
            names = ", ".join(map(repr, (DEFAULT, *AXES)))
            raise ValueError(f"axes must be None or one of {names}, got {self.axes!r}")
        if self._is_noisy:
            raise ValueError(
                f"axes must be None with relax=('noise',), got {self.axes!r}: posteriors are known "
                "in the coordinates of the codes alone"
            )
        head = self._beliefs().head
        if self.axes != "auto" and head != "free" and isinstance(self.encoder, str):
            raise ValueError(
                f"axes must be None or 'auto' for space={self._beliefs().space!r}, got "
                f"{self.axes!r}: {ONLY_FREE}, such as those of space='euclidean'"
            )
        return self.axes

    def _check(self) -> tuple[Recipe, Beliefs]:
        """Check all parameters, before anything is done."""
        n = check_integer("n_components", self.n_components, at_least=1)
        for name in ("devices", "num_nodes"):
            check_integer(name, getattr(self, name), at_least=1)
        if n < 2 and self.space == "sphere":
            raise ValueError(f"n_components must be at least 2 on a sphere, got {n}")
        beliefs = self._beliefs()
        recipe = Recipe() if self.recipe is None else self.recipe
        if self.recipe is None and self._is_noisy:
            recipe = NOISE_RECIPE
        if not isinstance(recipe, Recipe):
            raise TypeError(f"recipe must be a Recipe or None, got {recipe!r}")
        relaxed = self._relax()
        processes = self.devices * self.num_nodes
        check_noise(relaxed or (), beliefs, self.loss, self.potentials, processes)
        check_noise_share(self.noise_share, relaxed or ())
        if "factor_scale" in (relaxed or ()) and beliefs.head == "free":
            raise ValueError(
                "relax must not contain 'factor_scale' for free codes, which can be stretched "
                f"instead, so that a weight changes nothing; got relax={self.relax!r}"
            )
        self._axes()
        check_window(self.window)
        check_n_init(self.n_init)
        if not isinstance(self.loss, nn.Module):
            build_objective(self.loss, beliefs, n, self.potentials, relaxed or ())
        else:
            check_relaxable(relaxed or (), self.loss)
            if self.potentials is not None:
                raise ValueError("potentials must be None when loss is a module: it brings its own")
        if not isinstance(self.encoder, nn.Module):
            check_one_of("encoder", self.encoder, ENCODERS)
        if not isinstance(self.counts, bool | np.bool_):
            raise TypeError(f"counts must be True or False, got {self.counts!r}")
        if self.counts and isinstance(self.encoder, nn.Module):
            raise ValueError(
                "counts must be False when encoder is a module: begin it with encoders.Anscombe()"
            )
        return recipe, beliefs

    def _with_unpaired(self, source: PairSource, X_pos: Any, unpaired: Any) -> UnpairedPairs:
        """Return pairs with further observations; raise an error where there cannot be any."""
        if X_pos is None or not isinstance(source, ArrayPairs):
            raise ValueError(
                "unpaired must be None without X_pos: rows of a recording all have a partner, and "
                "a world or a pair source has observations of its own"
            )
        if not isinstance(self.loss, str):
            loss = self.loss
            takes = isinstance(loss, ContrastiveLoss) and loss.negatives_from != "given"
            if not takes:
                raise ValueError(
                    "unpaired must be None for a loss whose negatives are not those of the batch, "
                    f"got {self.loss!r}"
                )
        if self.devices * self.num_nodes > 1:
            raise ValueError(
                f"unpaired must be None for several devices, got devices={self.devices}, "
                f"num_nodes={self.num_nodes}"
            )
        shape = np.shape(unpaired)
        if len(shape) != 1 + len(self._shape) or shape[1:] != self._shape:
            sizes = ", ".join(map(str, self._shape))
            raise ValueError(f"unpaired must have shape (M, {sizes}), as X has, got {shape}")
        try:
            array = self._as_array(unpaired, reset=False)
        except (TypeError, ValueError) as error:
            raise type(error)(f"unpaired: {error}") from error
        return UnpairedPairs(source.x, source.x_pos, array)

    def _check_order(self, source: PairSource) -> None:
        """Raise an error if dynamics are asked for of pairs whose positives follow no one map."""
        if self.axes == "dynamics" and not (
            isinstance(source, SeriesPairs) or getattr(source, "ordered", True)
        ):
            raise ValueError(
                "axes must be None, 'ica' or 'auto' for pairs without an order, got 'dynamics': it "
                f"needs positives that follow their anchors by one lag, got {source!r}"
            )
        if "dynamics" in (self._relax() or ()) and not getattr(source, "ordered", True):
            raise ValueError(
                "relax must not contain 'dynamics': it needs pairs whose positives follow their "
                f"anchors by one lag, such as lag=(3, 3) of a recording, got {source!r}"
            )

    def _identity(self, recipe: Recipe) -> dict[str, Any]:
        """Return the parameters that must be the same for a run to be the same."""
        names = (
            *("n_components", "space", "marginal", "conditional", "p"),
            *(
                "loss",
                "potentials",
                "relax",
                "noise_share",
                "axes",
                "encoder",
                "counts",
                "lag",
                "window",
                "n_init",
            ),
            "precision",
        )
        return {name: getattr(self, name) for name in names} | {"recipe": recipe.to_dict()}

    def _as_array(self, X: Any, reset: bool, missing: bool = False) -> np.ndarray[Any, Any]:
        array = super()._as_array(X, reset, missing)
        if reset and array.ndim == 2 and not isinstance(array, np.memmap):
            constant = np.flatnonzero(np.fmax.reduce(array) == np.fmin.reduce(array))  # not of NaN
            if len(constant):
                names = getattr(self, "feature_names_in_", np.arange(array.shape[1]))[constant]
                raise ValueError(f"X must vary in every column, but {[*names]} are constant")
        if self.counts and not isinstance(array, np.memmap) and (array < 0).any():
            raise ValueError(f"X must not be negative with counts=True, got {np.nanmin(array):g}")
        return array

    def _set_up(
        self,
        source: PairSource,
        seed: int,
        recipe: Recipe,
        beliefs: Beliefs,
        processes: Processes,
        partial: bool = False,
        start: Start = DEFAULT_START,
        trial: bool = False,
    ) -> Setup:
        """Set a run up, from its seed and its start alone; a trial relaxes what is named only."""
        relaxed = self._relax()
        share = LARGEST_SHARE if trial else HELD_OUT_SHARE
        if start.is_regularised and not trial and relaxed is not None:
            share /= 2  # its schedule hardly needs them, and relaxations are not chosen with them
        run = set_up(
            self.encoder,
            self.loss,
            source,
            seed,
            recipe,
            beliefs,
            self.n_components,
            potentials=self.potentials,
            relax=AUTO if relaxed is None and not partial and not trial else relaxed or (),
            processes=processes,
            holds_out=not partial,
            held_out_share=share,
            counts=bool(self.counts),
            start=start,
        )
        is_mlp = isinstance(self.encoder, str) and self.encoder == "mlp"
        capacity = start.capacity or default_capacity(self.n_components)
        self.capacity_ = capacity if is_mlp else None
        if self.window == 1 and self._columns is None:
            self._set_shape(run.shape)
        self._has_recording = isinstance(source, SeriesPairs | SeparateRecordings)
        self._check_size()
        return run

    def _choose_start(
        self,
        source: PairSource,
        seed: int,
        recipe: Recipe,
        beliefs: Beliefs,
        processes: Processes,
    ) -> Start:
        """Return the best start of several short runs, where there are some to compare."""
        n_init = check_n_init(self.n_init)
        built_in = isinstance(self.loss, str) and isinstance(self.encoder, str)
        if isinstance(source, SeparateRecordings):
            return Start()  # a decoder would need several networks, too
        once = n_init == 1 or (n_init is None and self.recipe is not None)
        once = once or self._is_noisy  # the candidates have no uncertainty
        if once or processes.size > 1 or not built_in or self.encoder != "mlp":
            return Start()
        if not isinstance(source, FinitePairSource) or len(source) < MIN_PAIRS_TO_HOLD_OUT:
            return Start()
        if len(source) < FEWEST_PAIRS and n_init is None:
            return Start(LINEAR)

        def set_up_trial(short: Recipe, start: Start) -> Setup:
            return self._set_up(source, seed, short, beliefs, processes, start=start, trial=True)

        unpaired = isinstance(source, UnpairedPairs)
        capacities = UNPAIRED_CAPACITIES if unpaired else CAPACITIES
        return choose_start(set_up_trial, recipe, seed, len(source), n_init, capacities)

    def _check_size(self) -> None:
        """Raise an error if there are more codes than an injective mixing allows.

        A sphere in n dimensions has n - 1 of its own, so n - 1 columns can show a part of it.
        """
        columns = self._fewest_columns
        most = columns + (self._beliefs().space == "sphere")
        if isinstance(self.encoder, str) and self.n_components > most:
            raise ValueError(
                f"n_components must be at most {most} for X with n_features={columns}, "
                f"got {self.n_components}: more factors cannot be mixed injectively"
            )

    def _set_fitted(
        self,
        training: ContrastiveTraining,
        modules: nn.ModuleDict,
        source: PairSource,
        held_out: Batch,
        beliefs: Beliefs,
        axes: str | None = None,
    ) -> None:
        """Calibrate the encoder, find axes, and derive what may be claimed."""
        encoder, loss = modules["network"], modules["loss"]
        if isinstance(loss, PosteriorInfoNCE):
            self._set_noisy(training, modules, held_out, beliefs)
            return
        warning = training.saturation_warning(modules, held_out)
        calibration = ""
        if isinstance(self.loss, str) and isinstance(self.encoder, str):
            calibration = calibrate(training, encoder, loss, source)
        self.encoder_, self.loss_, self.beliefs_ = encoder, loss, beliefs
        self.relaxed_, self.gains_ = self._relax() or (), {}
        if training.choice is not None:
            self.relaxed_ = training.choice.relaxed
            self.gains_ = {name: tuple(gain) for name, gain in training.choice.gains.items()}
        self.head_ = beliefs.head
        if isinstance(self.encoder, nn.Module):
            self.head_ = head_of(encoder, training.encode(encoder, held_out.x[:256]))
        weights, errors = learned_weights(loss, self.n_components), None
        learned: dict[str, Any] = {}
        if self.relaxed_ or (weights is not None and beliefs.space == "sphere"):
            count = ERROR_PAIRS  # and no pair twice, which would make errors too small
            if isinstance(source, FinitePairSource):
                count = min(count, len(source))
            pairs = Batch.of(source.sample(count, Generator().manual_seed(0)))
            h, h_pos = (training.encode(encoder, part) for part in (pairs.x, pairs.x_pos))
            if weights is not None and beliefs.space == "sphere" and pairs.negatives is None:
                errors = weight_errors_of(loss, h, h_pos)
            learned = measure_relaxations(loss, h, h_pos)
        self._set_learned(learned)
        guarantee = self._assumed(
            guarantee_of(
                beliefs,
                loss,
                head=self.head_,
                learns_size=learns_size(encoder),
                weights=weights,
                weight_errors=errors,
                n_components=self.n_components,
                n_features=self._fewest_columns,
            )
        )
        if isinstance(source, SeparateRecordings):
            guarantee = _with_recordings(guarantee, source)
        found, not_found = None, ""
        if axes is not None and isinstance(source, SeparateRecordings) and not source.is_shared:
            not_found = "not looked for: recordings do not share their codes"
        elif axes is not None and self.head_ != "free":
            not_found = f"not looked for: {ONLY_FREE}, and these lie on a {self.head_}"
        elif axes is not None and guarantee.equivalence == ALIGNED:
            not_found = "not looked for: the claim is about single codes already"
        elif axes is not None:
            try:
                found = find_axes(axes, loss, source, lambda x: training.encode(encoder, x))
            except AxesError as error:
                not_found = f"not found: {error}"
        self._set_axes(found)
        if found is not None and found.separates:
            layer = LinearAxes(self.n_components).set(found)
            self.encoder_ = append_axes(encoder, layer)
        warned: tuple[str, ...] = (warning,) if warning else ()
        if not_found.startswith("not found"):
            warned += (f"axes were {not_found}",)
        objective = training.describe_objective()
        guarantee = replace(guarantee, learned=describe_relaxations(learned))
        guarantee = replace(guarantee, axes=not_found)
        if found is not None:
            guarantee = _with_axes(guarantee, found)
        self.guarantee_ = _with_training(guarantee, objective, calibration, warned)

    def _set_noisy(
        self,
        training: ContrastiveTraining,
        modules: nn.ModuleDict,
        held_out: Batch,
        beliefs: Beliefs,
    ) -> None:
        """Calibrate an encoder of posteriors, and derive what may be claimed."""
        encoder, loss = modules["network"], modules["loss"]
        assert isinstance(encoder, nn.Sequential)
        assert isinstance(loss, PosteriorInfoNCE)
        warning = training.saturation_warning(modules, held_out)
        loss.eval()
        h, h_pos = (training.encode(encoder, part) for part in (held_out.x, held_out.x_pos))
        share = 1.0 if self.noise_share is None else self.noise_share
        head: Any = encoder[-1]
        measured = calibrate_noise(loss, head, h, h_pos, share)
        self.encoder_ = encoder.append(FirstCodes(self.n_components)).eval()
        self.loss_, self.beliefs_, self.head_ = loss, beliefs, beliefs.head
        self.relaxed_, self.gains_ = self._relax() or (), {}
        self._set_learned({"noise": measured})
        self._set_axes(None)
        guarantee = self._assumed(
            guarantee_of(
                beliefs,
                loss,
                n_components=self.n_components,
                n_features=math.prod(self._window_shape),
            )
        )
        warned: tuple[str, ...] = (warning,) if warning else ()
        if measured["share"] > share + 0.01:
            warned += (
                f"noise_share = {share:g} is less than pairs allow: {measured['least_share']:.2f} "
                "of the spread within them differs between observations, so it is noise",
            )
        guarantee = replace(guarantee, learned=describe_relaxations(self.learned_))
        calibration = f"spread of posteriors multiplied by {measured['factor']:.2f}"
        self.guarantee_ = _with_training(
            guarantee, training.describe_objective(), calibration, warned
        )

    def _assumed(self, guarantee: Guarantee) -> Guarantee:
        """Return a guarantee that calls nothing declared which the user did not declare."""
        if self._declares:
            return guarantee
        assumptions = tuple(
            replace(assumption, kind="default") if assumption.kind == "declared" else assumption
            for assumption in guarantee.assumptions
        )
        return replace(guarantee, assumptions=assumptions)

    def _set_learned(self, learned: Mapping[str, Any]) -> None:
        """Set the attributes that exist for some relaxations only."""
        self.learned_ = dict(learned)
        for name in ("related_share_", "related_share_interval_"):
            self.__dict__.pop(name, None)
        if "pairing" in learned:
            self.related_share_ = learned["pairing"]["related_share"]
            self.related_share_interval_ = tuple(learned["pairing"]["interval"])

    def _set_axes(self, axes: Axes | None) -> None:
        self.axes_ = axes
        self.dynamics_ = None if axes is None else axes.dynamics

    def _check_information(self, held_out: Batch, n_pairs: int | None) -> None:
        """Add a warning to the card if pairs share next to no information, or are too few."""
        found = []
        if has_bound(self.loss_, held_out) and len(held_out) >= LEAST_HELD_OUT:
            network = self._scored_network()
            information = score_pairs(network, self.loss_, held_out, SCORE_BATCH_SIZE)[0]
            if information < NO_INFORMATION:
                found.append(
                    f"pairs were found to share only {information:.3f} nats: either they are "
                    "unrelated, or the encoder did not learn what they share; do not trust the "
                    "codes"
                )
        needed = max(FEWEST_PAIRS, PAIRS_PER_SQUARED_CODE * self.n_components**2)
        if self.capacity_ == LINEAR and n_pairs is not None and n_pairs < needed:
            found.append(
                f"a linear encoder was trained: {n_pairs} pairs support no better one. "
                f"A network with n_components={self.n_components} needs about {needed} pairs"
            )
        if found:
            card = self.guarantee_
            self.guarantee_ = _with_training(
                card, card.objective, card.calibration, (*card.warnings, *found)
            )

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "encoder_")
        tensors = {f"encoder.{k}": v for k, v in self.encoder_.state_dict().items()}
        tensors |= {f"loss.{k}": v for k, v in self.loss_.state_dict().items()}
        return tensors | {"history": steps_to_tensor(self.history_)}

    def _record(self) -> dict[str, Any]:
        return {
            "guarantee": self.guarantee_.to_dict(),
            "head": self.head_,
            "recording": self._has_recording,
            "columns": None if self._columns is None else list(self._columns),
            "dtype": str(dtype_of(self.encoder_)).removeprefix("torch."),
            "relaxed": list(self.relaxed_),
            "gains": {name: list(gain) for name, gain in self.gains_.items()},
            "learned": self.learned_,
            "axes": None if self.axes_ is None else self.axes_.to_dict(),
            "capacity": None if self.capacity_ is None else list(self.capacity_),
        }

    def _restore_record(self, record: Mapping[str, Any]) -> None:
        self.guarantee_ = Guarantee.from_dict(record["guarantee"])
        self.beliefs_, self.head_ = self._beliefs(), record["head"]
        self._has_recording = record.get("recording", False)
        columns = record.get("columns")
        self._columns = None if columns is None else tuple(columns)
        self._dtype = getattr(torch, record["dtype"])
        self.relaxed_ = tuple(record["relaxed"])
        self.gains_ = {name: tuple(gain) for name, gain in record["gains"].items()}
        self._set_learned(record["learned"])
        capacity = record.get("capacity")
        self.capacity_ = None if capacity is None else Capacity(*capacity)
        axes = record.get("axes")
        self._set_axes(None if axes is None else Axes.from_dict(axes))

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.history_ = steps_from_tensor(tensors["history"])
        noisy = "noise" in self.relaxed_
        if isinstance(self.encoder, str):
            encoder = {
                k.removeprefix("encoder."): v for k, v in tensors.items() if k.startswith("encoder")
            }
            options: dict[str, Any] = {"counts": bool(self.counts)}
            place = (self.encoder, self._window_shape, self.beliefs_, self.n_components)
            if not noisy:
                options["factor_scale"] = "factor_scale" in self.relaxed_
                options["capacity"] = self.capacity_
            if self._columns is None:
                build = build_noisy_encoder if noisy else build_encoder
                whitening = saved_whitening(encoder, self._window_shape)
                self.encoder_ = build(*place, whitening=whitening, **options)
            else:
                widths = [self.window * columns for columns in self._columns]
                self.encoder_ = build_recording_encoders(
                    *(self.encoder, widths, self.beliefs_, self.n_components),
                    [
                        saved_whitening(_of_recording(encoder, k), (w,))
                        for k, w in enumerate(widths)
                    ],
                    **options,
                )
            self.encoder_.to(self._dtype)
        else:
            self.encoder_ = deepcopy(self.encoder)
            if noisy:
                self.encoder_ = build_noisy_encoder(
                    self.encoder, self._window_shape, self.beliefs_, self.n_components
                )
        if noisy:
            assert isinstance(self.encoder_, nn.Sequential)
            self.encoder_.append(FirstCodes(self.n_components))
        if self.axes_ is not None and self.axes_.separates:
            self.encoder_ = append_axes(self.encoder_, LinearAxes(self.n_components))
        self.encoder_.eval()
        if isinstance(self.loss, str):
            self.loss_ = build_objective(
                self.loss, self.beliefs_, self.n_components, self.potentials, self.relaxed_
            )
        else:
            self.loss_ = deepcopy(self.loss)
            if isinstance(self.loss_, ContrastiveLoss):
                attach(self.loss_, self.relaxed_, self.n_components, dtype_of(self.encoder_))
        for prefix, module in (("encoder.", self.encoder_), ("loss.", self.loss_)):
            module.load_state_dict(
                {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            )


def _of_recording(tensors: Mapping[str, Tensor], k: int) -> dict[str, Tensor]:
    """Return the tensors of the encoder of one recording, of those of all."""
    prefix = f"0.encoders.{k}."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _with_recordings(guarantee: Guarantee, source: SeparateRecordings) -> Guarantee:
    """Return a guarantee that says what the codes of several recordings share."""
    count = len(source.series)
    if not source.is_shared:
        text = (
            f"{count} encoders and one loss, but no pairs across all recordings: the claim is "
            "about each recording by itself, the map may be another one for each, and codes of "
            "different recordings must not be compared"
        )
        return replace(guarantee, recordings=text)
    text = f"{count} encoders and one space of codes: the map is the same for all recordings"
    moment = "time" if isinstance(source.common, str) else "label"
    shared = Assumption(f"rows of recordings with the same {moment} show the same factors", "faith")
    same = Assumption("factors have the same distribution in all recordings", "faith")
    assumptions = (*guarantee.assumptions, shared, same)
    return replace(guarantee, recordings=text, assumptions=assumptions)


def _with_axes(guarantee: Guarantee, axes: Axes) -> Guarantee:
    return with_axes(guarantee, axes.method, axes.blocks, axes.reason, axes.codes)


def _with_training(
    guarantee: Guarantee, objective: str, calibration: str, warned: tuple[str, ...]
) -> Guarantee:
    """Return a guarantee that also says how the model was trained.

    Training that ended with a warning contradicts the assumption that it reached the optimum.
    """
    assumptions = guarantee.assumptions
    if warned:
        assumptions = tuple(
            replace(assumption, text=f"{REACHES_OPTIMUM}: doubtful, see the warning")
            if assumption.text == REACHES_OPTIMUM
            else assumption
            for assumption in assumptions
        )
    return replace(
        guarantee,
        assumptions=assumptions,
        objective=objective,
        calibration=calibration,
        warnings=warned,
    )
