"""Read the data arguments of estimators: arrays, recordings, pairs, worlds and pair sources."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from isolatent.checks import IsolatentWarning
from isolatent.datasets import FactorWorld
from isolatent.files import check_not_truncated
from isolatent.inference import chunk_slices, encode_chunks
from isolatent.pairs import (
    ArrayPairs,
    PairSource,
    SeriesPairs,
    WorldPairs,
    as_pair_source,
    check_rows_finite,
    find_mismatch,
    is_torch_data,
    release_pages,
    tensor_as_array,
)
from isolatent.worlds import World

__all__ = ["ObservationsMixin", "is_source"]


class ObservationsMixin:
    """Validation of X and X_pos, for all estimators.

    Attributes:
        n_features_in_: Number of observed dimensions.
    """

    n_components: int
    n_features_in_: int
    lag: int | Sequence[int]
    random_state: int | np.random.RandomState | None
    _shape: tuple[int, ...]  # of one observation

    @property
    def _n_features_out(self) -> int:  # for get_feature_names_out
        return int(self.n_components)

    @property
    def observation_shape_(self) -> tuple[int, ...]:
        """Shape of one observation: columns, or channels, height and width of an image."""
        return tuple(self._shape)

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.three_d_array = True
        return tags

    def _as_array(self, X: Any, reset: bool, missing: bool = False) -> np.ndarray[Any, Any]:
        """Return X as an array (N, ...) of real numbers; memory maps stay on disk.

        Args:
            X: The observations.
            reset: Whether they define the number of features.
            missing: Whether NaN is allowed.
        """
        if isinstance(X, FactorWorld):
            raise TypeError(
                f"X must be observations or, to fit, pairs of them, such as "
                f"FactorPairs(world, LaplaceTransitions()), got {X!r}"
            )
        if isinstance(X, Tensor):
            X = tensor_as_array(X)
        images = isinstance(X, np.ndarray) and X.ndim > 2
        if isinstance(X, np.memmap) or images:  # validate_data would read all of it
            shape = X.shape[1:] if reset else self._shape
            if X.ndim < 2 or X.shape[1:] != shape:
                raise ValueError(f"X must have shape (N, {_sizes(shape)}), got {X.shape}")
            if X.dtype.kind not in "fiub":
                raise TypeError(f"X must hold real numbers, got dtype {X.dtype}")
            if reset:
                self._set_shape(X.shape[1:])
            return X
        try:
            array: np.ndarray[Any, Any] = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32],
                ensure_all_finite="allow-nan" if missing else True,
                ensure_min_samples=2 if reset else 1,
            )
        except (ValueError, TypeError) as error:
            if name := _column_of_text(X):
                raise ValueError(
                    f"X must hold real numbers, but column {name!r} does not; leave it out, or, if "
                    f"it holds sessions or times, pass groups={name!r} or times={name!r}"
                ) from error
            raise
        if reset:
            self._shape = array.shape[1:]
        return array

    def _as_source(self, X: Any, X_pos: Any, groups: Any, reset: bool) -> PairSource:
        if is_source(X):
            if X_pos is not None:
                raise ValueError("X_pos must be None when X is a world or a pair source")
            if groups is not None:
                raise ValueError("groups must be None when X is a world or a pair source")
            if is_torch_data(X):
                return as_pair_source(X)
            return WorldPairs(X) if isinstance(X, World) else X
        if X_pos is None:
            return SeriesPairs(self._as_array(X, reset), lag=self.lag, groups=groups)
        if groups is not None:
            raise ValueError("groups must be None when X_pos is given: they are for recordings")
        if np.shape(X) != np.shape(X_pos):
            shapes = np.shape(X), np.shape(X_pos)
            views = all(len(shape) == 2 for shape in shapes) and shapes[0][0] == shapes[1][0]
            way = "; for two views with columns of their own pass encoder=(a, b), a module for each"
            raise ValueError(
                f"X and X_pos must have the same shape, got {shapes[0]} and {shapes[1]}"
                f"{way if views else ''}"
            )
        x = self._as_array(X, reset)
        pairs = ArrayPairs(x, self._as_array(X_pos, False))
        if reset:
            check_preprocessing(x, pairs.x_pos, getattr(self, "feature_names_in_", None))
        return pairs

    def _set_shape(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self.n_features_in_ = math.prod(shape)

    def _map(
        self,
        array: np.ndarray[Any, Any],
        module: nn.Module,
        function: Callable[[Tensor], Tensor] | None = None,
        name: str = "X",
    ) -> np.ndarray[Any, Any]:
        """Apply a module to the rows of an array, in chunks and in the precision of the array.

        Args:
            array: The rows; a memory map is read chunk by chunk.
            module: The module whose device and precision rows are converted to.
            function: What to apply, by default the module itself.
            name: Name of the argument, for messages.
        """
        mapped: list[np.ndarray[Any, Any]] = []
        for rows in chunk_slices(len(array), math.prod(array.shape[1:])):
            check_not_truncated(array)
            chunk = np.array(array[rows])
            check_rows_finite(name, chunk, np.arange(rows.start, rows.stop))
            x = torch.from_numpy(chunk.astype(_float_like(chunk), copy=False))
            codes = encode_chunks(module, x, function).cpu().numpy()
            mapped.append(codes.astype(_float_like(array), copy=False))
            release_pages(array)
        return np.concatenate(mapped)


def check_preprocessing(
    x: np.ndarray[Any, Any], x_pos: np.ndarray[Any, Any], names: Any = None
) -> None:
    """Warn of pairs whose two sides visibly come from different preprocessing.

    Raise ValueError where one side is exactly standardized as well, and the other one is not.
    """
    found = find_mismatch(x, x_pos)
    if found is None:
        return
    first = found.columns[0]
    kind = "column" if x.ndim == 2 else "channel"
    name = f"{kind} {first if names is None else repr(str(names[first]))}"
    (mean, mean_pos), (std, std_pos) = found.means, found.deviations
    evidence = (
        f"{len(found.columns)} of {x.shape[1]} {kind}s differ, such as {name} with mean "
        f"{mean:.3g} and standard deviation {std:.3g} in X, and {mean_pos:.3g} and {std_pos:.3g} "
        "in X_pos"
    )
    remedy = (
        "transform both as one: fit(np.stack([X, X_pos], axis=1)), in a pipeline after "
        "iso.PairedTransformer(StandardScaler())"
    )
    if found.standardized is not None:
        raise ValueError(
            f"X and X_pos must be preprocessed alike, but {found.standardized} alone is scaled: "
            f"{evidence}; {remedy}"
        )
    warnings.warn(
        f"X and X_pos seem to come from different preprocessing: {evidence}. If so, {remedy}",
        IsolatentWarning,
        stacklevel=4,
    )


def is_source(X: Any) -> bool:
    """Return whether X yields pairs: a world, a pair source, or a dataset or loader of PyTorch.

    A data frame has a method ``sample``, too.
    """
    return is_torch_data(X) or (isinstance(X, World | PairSource) and not hasattr(X, "__array__"))


def _column_of_text(X: Any) -> str:
    """Return the name of the first column of a data frame that is not numeric; empty if none is."""
    for name in getattr(X, "columns", ()):
        try:
            np.asarray(X[name]).astype(np.float64)
        except (ValueError, TypeError):
            return str(name)
    return ""


def _float_like(array: np.ndarray[Any, Any]) -> type:
    return np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64


def _sizes(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
