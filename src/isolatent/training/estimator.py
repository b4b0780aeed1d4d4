"""Contrastive ICA as a scikit-learn estimator."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.checks import IsolatentWarning, check_tensor
from isolatent.inference import encode_chunks
from isolatent.pairs import (
    ArrayPairs,
    Batch,
    FinitePairSource,
    PairSource,
    SeparateRecordings,
    SeriesPairs,
)
from isolatent.streams import layers_from_stream, random_stream
from isolatent.theory import Beliefs
from isolatent.theory.axis_claims import AXIS_METHODS
from isolatent.training.axis_search import without_axes
from isolatent.training.batch_losses import score_pairs
from isolatent.training.capacity import DEFAULT_START, Start, default_capacity
from isolatent.training.claims import SCORE_BATCH_SIZE
from isolatent.training.contrastive import ContrastiveTraining
from isolatent.training.credible_regions import CredibleRegions
from isolatent.training.decoder import CodeDecoder
from isolatent.training.devices import Processes, connect
from isolatent.training.noise import PosteriorSpread, wrap_encoder
from isolatent.training.notebook import ShownInNotebooks
from isolatent.training.paired import routes_positives, split_stacked
from isolatent.training.parameters import DEFAULT
from isolatent.training.progress import Step, ignore_step
from isolatent.training.recipe import Recipe
from isolatent.training.relaxations import AUTO, check_relax, relatedness
from isolatent.training.restarts import check_n_init, choose_start
from isolatent.training.restoring import StoredModel
from isolatent.training.setup import (
    HELD_OUT_PAIRS,
    HELD_OUT_SHARE,
    LARGEST_SHARE,
    Setup,
    check_batch,
    set_up,
    start_from,
)
from isolatent.worlds import World

if TYPE_CHECKING:
    from isolatent.diagnosis import Diagnosis

__all__ = ["ContrastiveICA"]

LEAST_TO_DECODE = 20  # observations of a decoder
MIN_BATCHES_PER_EPOCH = 8  # unless a recipe sets the batch size


@dataclass(eq=False, repr=False, kw_only=True)
class ContrastiveICA(ShownInNotebooks, StoredModel):
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
        n_components: Number of codes n. They are as many as factors, but for a sphere, on which n
            codes are n - 1 factors.
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
        relax: Assumptions that are learned instead of taken for granted, a name or several:
            ``"pairing"`` (some pairs are unrelated), ``"anchor_scale"`` (steps are wider in some
            places), ``"factor_scale"`` (some factors move more than others), ``"marginal"`` (the
            same as ``marginal="unknown"``) and ``"dynamics"`` (positives lie around a linear map of
            the anchor), or ``"auto"`` for those that held-out pairs support. ``"default"`` means
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
        encoder: ``"mlp"`` (whitened input, a linear path beside a perceptron), ``"deep"`` (the same
            with three hidden layers of twice the width, for mixings that need more), ``"paper"``
            (that of `zimmermann2021`), ``"conv"`` (images), ``"pooled"`` (images, fast on a
            CPU),
            ``"residual"`` (images), or any module that maps observations to codes
            (N, n_components). A pair of modules is for two views with columns of their own, X and
            X_pos, and one space of codes.
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
            first, a linear one among them, and fewer than 100 pairs get a linear one. With a
            recipe, even one that sets ``max_steps`` alone, ``"auto"`` means 1, and the network and
            the batches are those for many pairs. So it does where runs cannot be compared, and
            another number than 1 is refused: for other encoders than ``"mlp"``, a loss that is a
            module, endless sources such as worlds, fewer than 20 pairs, several devices, recordings
            with an encoder each, and with ``"noise"``.
        warm_start: Whether ``fit`` starts from the encoder of an earlier fit instead of new
            weights, for data that differ little. The whitening is that of the earlier fit, too.
            The encoder must be of the same kind and size, and short runs are left out.
        recipe: Settings of the training, a :class:`Recipe`; None for the defaults.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"cpu"``, ``"cuda"``, ``"mps"``, or ``"auto"``, which means the CPU.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run the encoder in bfloat16.
        verbose: Whether to show what will be claimed, and then the progress of training, on
            standard error.

    Attributes:
        encoder_: The trained encoder.
        loss_: The trained loss with its learned scale.
        beliefs_: The declared beliefs, complete.
        head_: Where the codes live: ``"sphere"``, ``"box"`` or ``"free"``.
        guarantee_: What may be claimed; prints as a card. It claims nothing, and says why, where
            held-out pairs do not support the fit.
        support_: A :class:`isolatent.training.Support`: what held-out pairs share, against chance,
            training pairs and a linear code. None where fewer than 20 pairs were held out, which
            fewer than 100 pairs give: nothing is claimed then.
        relaxed_: The relaxations in use, by name.
        capacity_: Width and dropout of the hidden layers of ``encoder="mlp"``, and the weight of a
            decoder's error in its training; a width of 0 means a linear encoder. None for other
            encoders.
        gains_: With ``relax="auto"``: the gain of each relaxation on held-out pairs, in nats, and
            its standard error. A relaxation in use has its gain over those chosen before it.
        related_share_: With ``"pairing"``: the share of pairs that are related.
        related_share_interval_: Its 95 % interval; errors of training are not in it.
        axes_: The :class:`isolatent.encoders.Axes` that were found, with what their checks said;
            None if none were looked for.
        dynamics_: Matrix, time scales and periods of the codes with their intervals, an
            :class:`isolatent.encoders.Dynamics`, where axes were looked for by dynamics.
        n_directions_: Number of directions of X that the encoder sees, after those of noise were
            dropped, see :class:`isolatent.encoders.Whitening`; all ``n_features_in_ * window`` if
            none were.
        history_: A :class:`isolatent.training.Step` for each step, with its loss.
        decoder_: The decoder that :meth:`fit_decoder` fitted.
        decoder_explained_: Share of the variance of observations that it explains.
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

    @routes_positives
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
        on_step: Callable[[Step], None] = ignore_step,
        quality: Callable[[nn.Module], float] | None = None,
    ) -> Self:
        """Train on pairs.

        A tenth of the pairs, at least 100 and at most 4096, is held out for early stopping; a fifth
        of fewer than 500, and none of fewer than 20. A pair source is endless unless it has
        ``__len__`` and ``split``: see :class:`isolatent.pairs.FinitePairSource`.

        Args:
            X: Observations (N, m) with their positives in ``X_pos``; or stacked pairs (N, 2, m),
                which a pipeline can transform, see :class:`isolatent.PairedTransformer`; or,
                without ``X_pos``, a recording (T, m) whose rows have their positives at most
                ``lag`` rows later, a list of recordings, or trials of equal length (trials, T, m),
                each of them a session; or a world, any pair source, or a PyTorch ``Dataset`` or
                ``DataLoader`` of pairs. Rows of a recording that hold NaN are in no pair, which a
                warning says.
            X_pos: The positive of each row of X; with ``encoder=(a, b)`` it may have other columns.
            unpaired: For X with X_pos: further observations (M, ...) without a partner,
                distributed as those in pairs. They are negatives of all pairs, the whitening is
                estimated from them as well, and a decoder that keeps encoders of few pairs from
                overfitting reconstructs them.
            groups: For recordings: one session id for each row, or, if X is a data frame, the
                name of the column that holds them. Pairs stay within a session.
            times: For recordings: the time of each row, increasing within each session, or the name
                of a column; for a list of recordings a list. The time between the rows of a pair is
                its lag times the median interval, up to half of that interval; a longer interval
                ends a session.
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
            on_step: Called after every step, for progress displays and logs. By default a notebook
                shows one line for a long fit.
            quality: Scores an encoder where the truth is known; its figure is passed to
                ``on_step``.
        """
        recipe, beliefs = self._check()
        if self._takes_stacks and groups is None and times is None:
            X, X_pos = split_stacked(X, X_pos)
        self._warn_of_share()
        source = self._as_source(X, X_pos, groups, True, times, max_gap, common, separate)
        if self._is_noisy and (unpaired is not None or isinstance(source, SeparateRecordings)):
            what = "recordings with an encoder each" if unpaired is None else "unpaired="
            raise ValueError(f"relax must not contain 'noise' with {what}, got {self.relax!r}")
        if unpaired is not None:
            source = self._with_unpaired(source, X_pos, unpaired)
        self._check_order(source)
        self._check_starts(source)
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

        earlier = self._earlier_fit()

        def set_up_run(
            seed: int, processes: Processes
        ) -> tuple[ContrastiveTraining, PairSource, Batch]:
            if earlier is None:
                start = self._choose_start(source, seed, recipe, beliefs, processes)
            else:
                start = Start(self.capacity_)
            n_pairs = len(source) if isinstance(source, FinitePairSource) else 0
            settings = start.recipe(recipe, n_pairs)
            run = self._set_up(source, seed, settings, beliefs, processes, start=start)
            if earlier is not None:
                start_from(run.training, earlier)
            return run.training, run.source, run.held_out

        if self.verbose:
            print(f"to be claimed: {self.expected_guarantee()}", file=sys.stderr)

        run = self._train(
            set_up_run,
            self._identity(recipe),
            checkpoint=checkpoint,
            resume=resume,
            on_step=on_step,
            quality=wrap_encoder(quality, self.n_components) if self._is_noisy else quality,
        )
        for name in ("_training", "decoder_", "decoder_explained_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        assert isinstance(run.training, ContrastiveTraining)
        assert run.held_out is not None
        self._set_fitted(run.training, run.modules, run.source, run.held_out, beliefs, self._axes())
        n_pairs = len(source) if isinstance(source, FinitePairSource) else None
        self._check_support(run.held_out, run.source, n_pairs)
        warned = self.guarantee_.warnings
        found_nothing = self.support_ is not None and self.support_.is_null
        if isinstance(run.source, SeparateRecordings) and not run.source.is_shared:
            warned += (f"recordings: {self.guarantee_.recordings}",)
        if self.axes in AXIS_METHODS and self.head_ != "free" and not found_nothing:
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
        source. After ``fit`` or ``load`` it starts anew, since those keep no optimiser. There are
        no short runs to start with, whatever ``n_init`` is. No pairs are held out, so nothing is
        checked: the card claims nothing, and says so.
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
        if self._takes_stacks and groups is None and times is None:
            X, X_pos = split_stacked(X, X_pos)
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
        self._withdraw_unchecked()
        return self

    def fit_decoder(self, X: ArrayLike | Tensor) -> Self:
        """Fit a decoder, which maps codes back to observations, for :meth:`inverse_transform`.

        It is a perceptron that is trained for some seconds; the encoder stays as it is. Rows of
        recordings are decoded without their windows.

        Args:
            X: Observations, such as those of ``fit``; rows with NaN are left out.

        Example:
            >>> import isolatent as iso
            >>> rng = np.random.default_rng(0)
            >>> x = rng.uniform(size=(400, 2)) @ rng.normal(size=(2, 4))
            >>> recipe = iso.Recipe(max_steps=20, batch_size=64, warmup=2)
            >>> model = iso.ContrastiveICA(2, space="box", recipe=recipe, random_state=0)
            >>> x_pos = x + 0.02 * rng.normal(size=x.shape)
            >>> codes = model.fit(x, x_pos).fit_decoder(x).transform(x[:1])
            >>> moved = codes + [[0.1, 0.0]]  # what does the first code do?
            >>> model.inverse_transform(moved).shape
            (1, 4)
        """
        check_is_fitted(self, "encoder_")
        if self._columns is not None:
            raise ValueError("fit_decoder needs a model with one encoder for all recordings")
        codes = torch.as_tensor(np.asarray(self.transform(X)))
        array = self._as_array(X, reset=False, missing=self._has_recording)
        x = torch.as_tensor(np.array(array, dtype=np.float32)).flatten(1)
        usable = codes.isfinite().all(1) & x.isfinite().all(1)
        if int(usable.sum()) < LEAST_TO_DECODE:
            raise ValueError(
                f"X must have at least {LEAST_TO_DECODE} rows without NaN to fit a decoder, got "
                f"{int(usable.sum())}"
            )
        with random_stream(Generator()), layers_from_stream():  # weights that are replaced
            decoder = CodeDecoder(self.n_components, x.shape[1])
        self.decoder_, self.decoder_explained_ = decoder.fit(codes[usable], x[usable], seed=0)
        return self

    def inverse_transform(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Return the mean of the observations (N, ...) that have some codes (N, n_components).

        Needs :meth:`fit_decoder`, whose ``decoder_explained_`` says how far it can be trusted.
        Codes far from those of any observation are extrapolated.
        """
        check_is_fitted(self, "encoder_")
        if not hasattr(self, "decoder_"):
            raise NotFittedError("inverse_transform needs a decoder: call fit_decoder(X) first")
        codes = check_tensor("X", X).detach().cpu().numpy()
        if codes.ndim != 2 or codes.shape[1] != self.n_components:
            raise ValueError(
                f"X must be codes of shape (N, n_components = {self.n_components}), "
                f"got {codes.shape}"
            )
        decoded = self._map(codes, self.decoder_)
        return decoded.reshape(len(codes), *self._shape)

    def _earlier_fit(self) -> nn.Module | None:
        """Return the encoder to start from, with ``warm_start`` after a fit."""
        if not isinstance(self.warm_start, bool | np.bool_):
            raise TypeError(f"warm_start must be True or False, got {self.warm_start!r}")
        if not self.warm_start or not hasattr(self, "encoder_"):
            return None
        if self._columns is not None or self._is_noisy:
            raise ValueError(
                "warm_start must be False for recordings with an encoder each, and with "
                "relax=('noise',)"
            )
        return deepcopy(without_axes(self.encoder_))

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

    @routes_positives
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
        if self._takes_stacks and groups is None and times is None:
            X, X_pos = split_stacked(X, X_pos)
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
        given = enumerate((X, X_pos))
        if self._views is not None:
            arrays = [self._laid_out(part, k) for k, part in given]
        else:
            arrays = [self._as_array(part, reset=False) for _, part in given]
        parts = map(torch.as_tensor, arrays)
        h, h_pos = (encode_chunks(network, part) for part in parts)
        if h.shape != h_pos.shape:
            raise ValueError(
                f"X and X_pos must have equally many rows, got {len(h)} and {len(h_pos)}"
            )
        return relatedness(self.loss_, h, h_pos).numpy()

    def diagnose(
        self,
        X: ArrayLike | Tensor | World | PairSource,
        X_pos: ArrayLike | Tensor | None = None,
        *,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
        random_state: Any = 0,
        n_jobs: int = 1,
        n_rehearsals: int = 1,
    ) -> Diagnosis:
        """Return whether the fit is to be believed, see :func:`isolatent.diagnose`.

        Args:
            X: Observations with their positives in ``X_pos``, a recording, a world or a pair
                source; those of the fit will do.
            X_pos: The positive of each row of X.
            groups: For a recording: one session id for each row.
            times: For a recording: the time of each row, as in ``fit``.
            max_gap: For a recording: longest run of rows with NaN that is interpolated.
            random_state: Seed, as in scikit-learn.
            n_jobs: Number of processes.
            n_rehearsals: Number of rehearsals.
        """
        # Diagnosis stands right of training: the top level, which loads names on first use, has it.
        top_level: Any = import_module("isolatent")
        options: dict[str, Any] = {"groups": groups, "times": times, "max_gap": max_gap}
        options |= {"random_state": random_state, "n_jobs": n_jobs}
        options["n_rehearsals"] = n_rehearsals
        found: Diagnosis = top_level.diagnose(self, X, X_pos, **options)
        return found

    @classmethod
    def load(
        cls,
        directory: str | os.PathLike[str],
        *,
        encoder: nn.Module | tuple[nn.Module, nn.Module] | None = None,
        loss: nn.Module | None = None,
    ) -> Self:
        """Read what :meth:`save` wrote.

        Args:
            directory: Where the model is.
            encoder: A module, or a pair of them, like that given to the constructor, if one was:
                code is not saved.
            loss: The same for the loss.
        """
        return cls._load(Path(directory), {"encoder": encoder, "loss": loss})

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
            self._given_encoder(),
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
        once = n_init == 1 or (n_init is None and self.recipe is not None)
        if once or self._only_start(source, processes.size):
            return Start()

        def set_up_trial(short: Recipe, start: Start) -> Setup:
            return self._set_up(source, seed, short, beliefs, processes, start=start, trial=True)

        return choose_start(set_up_trial, recipe, seed, source, n_init)
