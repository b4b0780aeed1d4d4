"""Recordings as data of an estimator: missing rows, time stamps, windows and several of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from torch import Tensor, nn

from isolatent.checks import check_integer
from isolatent.encoders import RecordingEncoders
from isolatent.inference import chunk_slices, encode_chunks
from isolatent.pairs import (
    PairSource,
    Recording,
    SeparateRecordings,
    SeriesPairs,
    ViewPairs,
    lay_out,
    stack_recordings,
    tensor_as_array,
)
from isolatent.training.assembly import IMAGE_ENCODERS, RECORDING_ENCODERS
from isolatent.training.network_estimator import NetworkEstimator
from isolatent.training.observations import is_source
from isolatent.training.paired import is_stacked
from isolatent.training.recording_inputs import drop_columns, resolve_roles, stack_trials

__all__ = ["RecordingEstimator"]


class RecordingEstimator(NetworkEstimator):
    """An estimator whose encoder sees a window of rows of a recording.

    ``_shape`` and ``n_features_in_`` are those of a row; the encoder's input has ``window`` times
    as many columns.
    """

    window: int
    counts: bool
    encoder: str | nn.Module | tuple[nn.Module, nn.Module]
    devices: int
    num_nodes: int
    _has_recording = False  # whether the model was fitted to a recording
    _columns: tuple[int, ...] | None = None  # of each recording, where each has an encoder
    _views: tuple[int, int] | None = None  # columns of two views, where each has an encoder
    _roles: Mapping[str, str] = MappingProxyType({})  # columns with groups and times of the fit

    @property
    def n_features_per_recording_(self) -> tuple[int, ...]:
        if self._columns is None:
            raise AttributeError("n_features_per_recording_ is of models with several encoders")
        return self._columns

    @property
    def _takes_stacks(self) -> bool:
        """Whether arrays (N, 2, ...) are stacked pairs, and not rows that only a module takes."""
        return isinstance(self.encoder, str)

    @property
    def _fewest_columns(self) -> int:
        """Number of columns that the encoder sees, of the recording with the fewest."""
        if self._columns is None:
            return math.prod(self._window_shape)
        return self.window * min(self._columns)

    @property
    def _window_shape(self) -> tuple[int, ...]:
        """Shape of the encoder's input."""
        return self._shape if self.window == 1 else (self.window * math.prod(self._shape),)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def transform(
        self,
        X: ArrayLike | Tensor,
        *,
        recording: int | None = None,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
        max_gap: int = 0,
    ) -> np.ndarray[Any, Any]:
        """Return the codes (N, n_components) of observations (N, ...), in the precision of X.

        Args:
            X: Observations. For a model that was fitted to a recording, a recording: its windows
                are those of ``fit``, and the codes of rows with NaN are NaN. For stacked pairs
                (N, 2, ...) the codes are stacked as well. Columns of a data frame that the fit used
                as groups or times are used as such, and are not encoded.
            recording: For a model with an encoder for each recording: the number of the one that X
                is of, in the list that was given to ``fit``. None if X is such a list itself. For
                ``encoder=(a, b)``: 0 or 1; None for the view that has as many columns as X.
            groups: For recordings: one session id for each row, or the name of a column of X.
            times: For recordings: the time of each row, or the name of a column of X.
            max_gap: For recordings: longest run of rows with NaN that is interpolated.
        """
        module = self.code_module()
        if self._takes_stacks and is_stacked(X):
            X = tensor_as_array(X) if isinstance(X, Tensor) else np.asarray(X)
            codes = self._map(self._as_array(X.reshape(-1, *X.shape[2:]), reset=False), module)
            return codes.reshape(len(X), 2, -1)
        if self._columns is not None:
            return self._transform_separate(X, recording, groups, times, max_gap)
        if self._views is not None:
            _refuse("X is a view", groups=groups, times=times, max_gap=max_gap)
            return self._map(self._laid_out(X, recording), module)
        if recording is not None:
            raise ValueError(
                f"recording must be None for a model with one encoder, got {recording!r}"
            )
        return self._transform_with(module, X, groups=groups, times=times, max_gap=max_gap)

    def _transform_with(
        self, module: nn.Module, X: Any, *, groups: Any, times: Any, max_gap: int
    ) -> np.ndarray[Any, Any]:
        """Apply a module with as many outputs as codes, as :meth:`transform` does."""
        if not self._has_recording:
            _refuse("X_pos was given to fit", groups=groups, times=times, max_gap=max_gap)
            return self._map(self._as_array(X, reset=False), module)
        alone = self.window == 1 and max_gap == 0  # rows are encoded one by one
        if alone and groups is None and times is None:
            X = drop_columns(X, self._roles.values())
        X, groups, times = self._as_rows(X, groups, times)
        array = self._as_array(X, reset=False, missing=True)
        read = Recording(array, groups=groups, times=times, max_gap=max_gap)
        if self.window == 1 and read.usable is None:
            return self._map(read.x, module)
        return self._map_recording(read, module)

    def _transform_separate(
        self, X: Any, number: int | None, groups: Any, times: Any, max_gap: int
    ) -> np.ndarray[Any, Any]:
        """Return the codes of one recording, or the stacked codes of all."""
        assert self._columns is not None
        count = len(self._columns)
        if number is None:
            if not _is_list(X) or len(X) != count:
                raise ValueError(
                    f"recording must be a number from 0 to {count - 1}, or X a list of {count} "
                    "recordings: the model has an encoder for each"
                )
            if groups is not None:
                raise ValueError("groups must be None when X is a list: each is a session")
            parts = zip(X, _times_of(times, count), strict=True)
            codes = [
                self._transform_separate(one, k, None, at, max_gap)
                for k, (one, at) in enumerate(parts)
            ]
            return np.concatenate(codes)
        number = check_integer("recording", number, at_least=0)
        if number >= count:
            raise ValueError(f"recording must be from 0 to {count - 1}, got {number}")
        array = self._as_recording(X, f"X of recording {number}", self._columns[number])
        read = Recording(array, groups=groups, times=times, max_gap=max_gap)
        return self._map_recording(read, self.code_module(), number)

    def _check_views(self) -> None:
        """Raise an error if there are not two encoders, for pairs of rows."""
        both = self.encoder
        modules = isinstance(both, tuple) and all(isinstance(one, nn.Module) for one in both)
        if not modules or len(both) != 2:  # type: ignore[arg-type]
            raise TypeError(
                "encoder must be a name, a module, or a pair of modules such as (MLP(5, 2), "
                f"MLP(7, 2)), one for each of two views, got {both!r}"
            )
        if self.window != 1:
            raise ValueError(f"window must be 1 for encoders of two views, got {self.window}")

    def _given_encoder(self) -> str | nn.Module:
        """Return the encoder as one; of two views as a module that takes rows of both."""
        if not isinstance(self.encoder, tuple):
            return self.encoder
        assert self._views is not None
        return RecordingEncoders(self.encoder, self._views)

    def _view_source(self, X: Any, X_pos: Any, reset: bool, **others: Any) -> PairSource:
        """Return pairs of two views with columns of their own."""
        _refuse("encoder is a pair", **others)
        if isinstance(X, ViewPairs):
            views = X
        elif X_pos is None or is_source(X):
            raise ValueError(
                "X_pos must be given with encoder=(a, b): the rows of the other view, one for each "
                "row of X"
            )
        else:
            views = ViewPairs(np.asarray(X), np.asarray(X_pos))
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self._views = views.widths
        elif views.widths != self._views:
            raise ValueError(
                f"X and X_pos must have {self._views} columns like those of fit, got {views.widths}"
            )
        return views

    def _laid_out(self, X: Any, number: int | None) -> np.ndarray[Any, Any]:
        """Return rows of one view as the encoder of both takes them."""
        assert self._views is not None
        array = self._as_recording(X, "X", None)
        if number is None:
            fitting = [k for k, width in enumerate(self._views) if width == array.shape[1]]
            if len(fitting) != 1:
                raise ValueError(
                    f"recording must be 0 or 1, the view that X is of, since views have "
                    f"{self._views} columns and X has {array.shape[1]}"
                )
            number = fitting[0]
        elif number not in (0, 1) or array.shape[1] != self._views[number]:
            raise ValueError(
                f"recording must be 0 or 1, for X with {self._views} columns, got {number!r} and "
                f"{array.shape[1]} columns"
            )
        rows = torch.from_numpy(np.ascontiguousarray(array))
        return lay_out(rows, number, max(self._views)).numpy()

    def _as_array(self, X: Any, reset: bool, missing: bool = False) -> np.ndarray[Any, Any]:
        if not reset:
            X = drop_columns(X, self._roles.values())
        return super()._as_array(X, reset, missing)

    def _as_recording(self, X: Any, name: str, columns: int | None) -> np.ndarray[Any, Any]:
        """Return a recording (T, m) as an array of floats in which NaN is allowed."""
        if isinstance(X, Tensor):
            X = tensor_as_array(X)
        array: np.ndarray[Any, Any] = check_array(
            X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", input_name=name
        )
        if columns is not None and array.shape[1] != columns:
            raise ValueError(f"{name} must have {columns} columns, got {array.shape[1]}")
        if self.counts and (array < 0).any():
            raise ValueError(
                f"{name} must not be negative with counts=True, got {np.nanmin(array):g}"
            )
        return array

    def _separate_source(
        self, X: Any, groups: Any, reset: bool, times: Any, max_gap: int, common: Any
    ) -> SeparateRecordings:
        """Return pairs of recordings that have an encoder each."""
        if groups is not None:
            raise ValueError("groups must be None when X is a list: each recording is a session")
        if reset and not (isinstance(self.encoder, str) and self.encoder in RECORDING_ENCODERS):
            names = " or ".join(map(repr, RECORDING_ENCODERS))
            raise ValueError(
                f"encoder must be {names} for recordings with an encoder each, got {self.encoder!r}"
            )
        if reset and self.devices * self.num_nodes > 1:
            raise ValueError(
                f"devices must be 1 for recordings with an encoder each, got {self.devices}"
            )
        if not reset and (self._columns is None or len(X) != len(self._columns)):
            wanted = 1 if self._columns is None else len(self._columns)
            raise ValueError(
                f"X must be recordings for {wanted} encoders, those of fit, got {len(X)} recordings"
            )
        columns = (None,) * len(X) if reset else self._columns
        assert columns is not None
        arrays = []
        for k, (one, width) in enumerate(zip(X, columns, strict=True)):
            arrays.append(self._as_recording(one, f"X of recording {k}", width))
            constant = np.flatnonzero(np.fmax.reduce(arrays[k]) == np.fmin.reduce(arrays[k]))
            if reset and len(constant):
                raise ValueError(
                    f"X must vary in every column, but {constant.tolist()} of recording {k} are "
                    "constant"
                )
        common = _check_common(common, arrays, times)
        series = []
        for k, (array, at) in enumerate(zip(arrays, _times_of(times, len(X)), strict=True)):
            options = {"lag": self.lag, "times": at, "max_gap": max_gap, "window": self.window}
            try:
                series.append(SeriesPairs(array, **options))
            except ValueError as error:
                raise ValueError(f"recording {k}: {error}") from error
        source = SeparateRecordings(series, common)
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self._columns, self._roles = tuple(array.shape[1] for array in arrays), {}
            self._set_shape((max(self._columns),))
        return source

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray[Any, Any]:
        """Fit, and return the codes of X; ``groups``, ``times`` and ``max_gap`` hold for both."""
        names = ("groups", "times", "max_gap")
        given = {name: fit_params[name] for name in names if name in fit_params}
        fitted: Any = self
        codes: np.ndarray[Any, Any] = fitted.fit(X, y, **fit_params).transform(X, **given)
        return codes

    def _as_rows(self, X: Any, groups: Any, times: Any) -> tuple[Any, Any, Any]:
        """Return a recording, or several, as rows in one array or data frame."""
        X, groups, times = _stack(X, groups, times)
        X, groups, times = resolve_roles(X, groups, times, self._roles)
        vectors = isinstance(self.encoder, str) and self.encoder not in IMAGE_ENCODERS
        if vectors and len(getattr(X, "shape", ())) == 3:
            X = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asanyarray(X)
            return stack_trials(X, groups, times)
        return X, groups, times

    def _map_recording(
        self, recording: Recording, module: nn.Module, number: int | None = None
    ) -> np.ndarray[Any, Any]:
        """Apply a module to the windows around all rows that are not missing."""
        n_rows = len(recording.x)
        rows = np.arange(n_rows) if recording.usable is None else np.flatnonzero(recording.usable)
        single = recording.x.dtype.kind == "f" and recording.x.dtype.itemsize <= 4
        codes = np.full((n_rows, self.n_components), np.nan, np.float32 if single else np.float64)
        for part in chunk_slices(len(rows), math.prod(self._window_shape)):
            x = recording.read(rows[part], self.window)
            if number is not None:
                x = lay_out(x, number, math.prod(self._window_shape))
            codes[rows[part]] = encode_chunks(module, x).cpu().numpy()
        return codes

    def _as_source(
        self,
        X: Any,
        X_pos: Any,
        groups: Any,
        reset: bool,
        times: Any = None,
        max_gap: int = 0,
        common: Any = None,
        separate: bool | None = None,
    ) -> PairSource:
        if isinstance(self.encoder, tuple):
            return self._view_source(X, X_pos, reset, groups=groups, times=times, max_gap=max_gap)
        if separate is not None and not isinstance(separate, bool | np.bool_):
            raise TypeError(f"separate must be True, False or None, got {separate!r}")
        several = X_pos is None and not is_source(X) and _is_list(X)
        if not several:
            if common is not None or separate:
                name = "separate" if common is None else "common"
                allowed = "False" if common is None else "None"
                raise ValueError(
                    f"{name} must be {allowed} unless X is a list of recordings, got "
                    f"{type(X).__name__}"
                )
            if not reset and self._columns is not None:
                raise ValueError(
                    f"X must be a list of {len(self._columns)} recordings: the model has an "
                    "encoder for each"
                )
        else:
            fitted = not reset and self._columns is not None
            if fitted or _is_separate(X, common, separate):
                return self._separate_source(X, groups, reset, times, max_gap, common)
        if reset:
            self._columns, self._views, self._roles = None, None, {}
        if X_pos is not None or is_source(X):
            kind = "X is a world or a pair source" if is_source(X) else "X_pos is given"
            _refuse(kind, times=times, max_gap=max_gap)
            if X_pos is not None and _is_list(X):
                raise ValueError(
                    "X_pos must be None when X is a list: its elements are recordings, whose rows "
                    "are pairs"
                )
            if reset and self.window > 1:
                raise ValueError(
                    f"window must be 1 when {kind}: windows are of recordings, got {self.window}"
                )
            return super()._as_source(X, X_pos, groups, reset)
        if reset:
            named = (("groups", groups), ("times", times))
            self._roles = {role: name for role, name in named if isinstance(name, str)}
        X, groups, times = self._as_rows(X, groups, times)
        return SeriesPairs(
            self._as_array(X, reset, missing=True),
            lag=self.lag,
            groups=groups,
            times=times,
            max_gap=max_gap,
            window=self.window,
        )


def _refuse(kind: str, **options: Any) -> None:
    """Raise an error if an option for recordings is given without a recording."""
    for name, value in options.items():
        nothing = 0 if name == "max_gap" else None
        if value is not nothing and not (nothing == 0 and np.ndim(value) == 0 and value == 0):
            raise ValueError(f"{name} must be {nothing} when {kind}: it is for recordings")


def _is_separate(X: Any, common: Any, separate: bool | None) -> bool:
    """Return whether each of several recordings gets an encoder of its own."""
    widths = {np.shape(x)[1:] for x in X}
    if separate is None:
        # Rows of images differ in more than their columns: one encoder, or an error, is for them.
        return common is not None or (len(widths) > 1 and all(len(w) == 1 for w in widths))
    if not separate and common is not None:
        raise ValueError("separate must be True or None with common, got False")
    if separate and len(X) < 2:
        raise ValueError(f"separate must be False for fewer than two recordings, got {len(X)}")
    return bool(separate)


def _times_of(times: Any, count: int) -> list[Any]:
    """Return the times of each recording, or None for each."""
    if times is None:
        return [None] * count
    if not isinstance(times, list | tuple) or len(times) != count:
        length = f" of length {len(times)}" if hasattr(times, "__len__") else ""
        raise ValueError(
            f"times must be a list of {count} arrays, one for each recording, got "
            f"{type(times).__name__}{length}"
        )
    return list(times)


def _check_common(common: Any, arrays: list[Any], times: Any) -> Any:
    """Return ``common`` if it says which moments recordings share."""
    if common is None:
        return None
    if isinstance(common, str):
        if common != "times":
            raise ValueError(f"common must be 'times', a list of labels or None, got {common!r}")
        if times is None:
            raise ValueError("times must be given with common='times', got None")
        dated = {np.asarray(one).dtype.kind == "M" for one in _times_of(times, len(arrays))}
        if len(dated) > 1:
            raise TypeError("times must be all numbers or all datetime64 with common='times'")
        return common
    if not isinstance(common, list | tuple) or len(common) != len(arrays):
        length = f" of length {len(common)}" if hasattr(common, "__len__") else ""
        raise ValueError(
            f"common must be 'times' or a list of {len(arrays)} arrays of labels, one for each "
            f"recording, got {type(common).__name__}{length}"
        )
    labels = [np.asarray(one) for one in common]
    for k, (one, array) in enumerate(zip(labels, arrays, strict=True)):
        if one.shape != (len(array),):
            raise ValueError(
                f"common must have one label per row, but recording {k} has {len(array)} rows "
                f"and labels of shape {one.shape}"
            )
        if one.dtype.kind not in "fiuUSM":
            raise TypeError(
                f"common must hold numbers, strings or datetime64, got dtype {one.dtype} for "
                f"recording {k}"
            )
    texts = {one.dtype.kind in "US" for one in labels}
    if len(texts) > 1 or len({one.dtype.kind == "M" for one in labels}) > 1:
        kinds = ", ".join(str(one.dtype) for one in labels)
        raise TypeError(f"common must hold labels of one kind in all recordings, got {kinds}")
    return labels


def _is_list(X: Any) -> bool:
    """Return whether X is a list of recordings, and not the rows of one."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(len(np.shape(x)) > 1 for x in X)


def _stack(X: Any, groups: Any, times: Any) -> tuple[Any, Any, Any]:
    """Return several recordings as one, with their numbers as groups; one as it is."""
    if not _is_list(X):
        return X, groups, times
    if groups is not None:
        raise ValueError("groups must be None when X is a list: each recording is a session")
    return stack_recordings(X, times)
