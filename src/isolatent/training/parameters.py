"""The parameters of contrastive ICA, what follows from them, and which data they allow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Generator, nn

from isolatent.checks import IsolatentWarning, check_integer, check_one_of
from isolatent.contrast import ContrastiveLoss
from isolatent.pairs import (
    ArrayPairs,
    FinitePairSource,
    PairSource,
    SeparateRecordings,
    SeriesPairs,
    UnpairedPairs,
    check_window,
)
from isolatent.streams import layers_from_stream, random_stream
from isolatent.theory import Beliefs
from isolatent.training.assembly import ENCODERS
from isolatent.training.axis_search import AXES
from isolatent.training.noise import (
    NOISE_RECIPE,
    build_objective,
    check_noise,
    check_noise_share,
)
from isolatent.training.recipe import Recipe
from isolatent.training.recordings import RecordingEstimator
from isolatent.training.relaxations import check_relax, check_relaxable
from isolatent.training.restarts import check_n_init
from isolatent.training.setup import MIN_PAIRS_TO_HOLD_OUT

__all__ = ["DEFAULT", "ONLY_FREE", "ContrastiveParameters"]

DEFAULT = "default"  # of relax and axes: as the data ask, unless beliefs are declared
ONLY_FREE = "free codes alone may be mapped linearly"


@dataclass(eq=False, repr=False, kw_only=True)
class ContrastiveParameters(RecordingEstimator):
    """The parameters of :class:`isolatent.ContrastiveICA`, checked and completed."""

    space: str | None = None
    marginal: str | None = None
    conditional: str | None = None
    p: float | None = None
    loss: str | nn.Module = "infonce"
    potentials: str | None = None
    relax: str | Sequence[str] = DEFAULT
    noise_share: float | None = None
    axes: str | None = DEFAULT
    encoder: str | nn.Module | tuple[nn.Module, nn.Module] = "mlp"
    counts: bool = False
    lag: int | Sequence[int] = 1
    window: int = 1
    n_init: int | str = "auto"
    warm_start: bool = False
    recipe: Recipe | None = None

    @property
    def beliefs(self) -> Beliefs:
        """What is believed about the world: declared, or the default that needs no declaration."""
        return self._beliefs()

    @property
    def declaration(self) -> str:
        """What is declared about the world, in words."""
        return str(self._beliefs()) if self._declares else "nothing declared"

    @property
    def _is_noisy(self) -> bool:
        return "noise" in (self._relax() or ())

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
            with random_stream(Generator()), layers_from_stream():  # its weights are not kept
                build_objective(self.loss, beliefs, n, self.potentials, relaxed or ())
        else:
            check_relaxable(relaxed or (), self.loss)
            if self.potentials is not None:
                raise ValueError("potentials must be None when loss is a module: it brings its own")
        if isinstance(self.encoder, tuple | list):
            self._check_views()
        elif not isinstance(self.encoder, nn.Module):
            check_one_of("encoder", self.encoder, ENCODERS)
        if not isinstance(self.counts, bool | np.bool_):
            raise TypeError(f"counts must be True or False, got {self.counts!r}")
        if self.counts and not isinstance(self.encoder, str):
            raise ValueError(
                "counts must be False when encoder is a module: begin it with encoders.Anscombe()"
            )
        return recipe, beliefs

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

    def _warn_of_share(self) -> None:
        if self._is_noisy and self.noise_share is None:
            warnings.warn(
                "noise_share was not given: all of the spread within pairs counts as noise, which "
                "gives the widest posteriors that pairs allow; give noise_share=1 if both halves "
                "of a pair show the same factors, and less if these move",
                IsolatentWarning,
                stacklevel=3,
            )

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

    def _only_start(self, source: PairSource, processes: int) -> str:
        """Return why short runs from several initial weights are not compared; "" if they can."""
        pairs = len(source) if isinstance(source, FinitePairSource) else None
        reasons = {
            "with an encoder for each recording": isinstance(source, SeparateRecordings),
            "with relax=('noise',)": self._is_noisy,  # the candidates have no uncertainty
            f"for encoder={self.encoder!r}": not isinstance(self.encoder, str)
            or self.encoder != "mlp",
            "for a loss that is a module": not isinstance(self.loss, str),
            "for several devices": processes > 1,
            "for an endless source, which holds no pairs out": pairs is None,
            f"for {pairs} pairs, of which none are held out": pairs is not None
            and pairs < MIN_PAIRS_TO_HOLD_OUT,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _check_starts(self, source: PairSource) -> None:
        """Raise an error if more short runs are asked for than there will be."""
        n_init = check_n_init(self.n_init)
        reason = self._only_start(source, self.devices * self.num_nodes)
        if n_init is not None and n_init > 1 and reason:
            raise ValueError(f"n_init must be 'auto' or 1 {reason}, got {n_init}")

    def _as_array(self, X: Any, reset: bool, missing: bool = False) -> np.ndarray[Any, Any]:
        array = super()._as_array(X, reset, missing)
        if reset and array.ndim == 2 and not isinstance(array, np.memmap):
            constant = np.flatnonzero(np.fmax.reduce(array) == np.fmin.reduce(array))  # not of NaN
            if len(constant):
                names = getattr(self, "feature_names_in_", np.arange(array.shape[1]))[
                    constant
                ].tolist()
                raise ValueError(f"X must vary in every column, but {names} are constant")
        if self.counts and not isinstance(array, np.memmap) and (array < 0).any():
            raise ValueError(f"X must not be negative with counts=True, got {np.nanmin(array):g}")
        return array

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
