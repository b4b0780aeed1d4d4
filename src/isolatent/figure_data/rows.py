"""Codes of the rows of some data, and what is known about each row."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from isolatent.training.recording_inputs import resolve_roles

__all__ = [
    "Array",
    "EncodedRows",
    "choose_components",
    "encode_rows",
    "is_model",
    "number_labels",
    "read_number",
    "sentence_of_thinning",
]

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class EncodedRows:
    """Codes of rows, and what is known about each row.

    Attributes:
        codes: Codes (N, n); a row without codes has NaN.
        names: Name of each code.
        sessions: Number of each row's session (N,), or None.
        session_names: Name of each session.
        times: Time of each row (N,), numbers or ``datetime64``, or None.
        relatedness: Probability (N,) that the pair of each row is related, or None.
        head: Where the codes live: ``"sphere"``, ``"box"`` or ``"free"``.
    """

    codes: Array
    names: tuple[str, ...]
    sessions: Array | None = None
    session_names: tuple[str, ...] = ()
    times: Array | None = None
    relatedness: Array | None = None
    head: str = "free"


def encode_rows(
    model: Any,
    X: Any = None,
    *,
    X_pos: Any = None,
    groups: Any = None,
    times: Any = None,
    max_gap: int = 0,
    recording: int | None = None,
) -> EncodedRows:
    """Return the codes of rows with their sessions and times, for all figures of codes.

    Args:
        model: A fitted model, or codes (N, n) themselves.
        X: Observations, a recording, or a list of recordings; None for codes.
        X_pos: The positive of each row of X, for the relatedness of pairs, if the model has
            ``pairing`` relaxed.
        groups: One session id for each row, or the name of a column of X; by default that of the
            fit.
        times: Time of each row, numbers or ``datetime64``, or the name of a column; a list of
            arrays for a list of recordings.
        max_gap: For recordings: longest run of rows with NaN that is interpolated.
        recording: For a model with an encoder for each recording: the number of X.

    Example:
        >>> rows = encode_rows(np.array([[0.0, 1.0], [2.0, 3.0]]), groups=["b", "a"])
        >>> rows.names, rows.sessions.tolist(), rows.session_names
        (('code 0', 'code 1'), [0, 1], ('b', 'a'))
    """
    if isinstance(model, EncodedRows):
        given = {"X": X, "X_pos": X_pos, "groups": groups, "times": times, "recording": recording}
        _refuse(given | {"max_gap": max_gap or None}, "encoded rows")
        return model
    if is_model(model):
        return _encode(model, X, X_pos, groups, times, max_gap, recording)
    _refuse({"X": X, "X_pos": X_pos, "recording": recording, "max_gap": max_gap or None}, "codes")
    codes = np.asarray(model.detach().cpu() if hasattr(model, "detach") else model)
    if codes.dtype.kind not in "fiub":
        raise TypeError(f"codes must be a fitted model or numbers (N, n), got {_describe(model)}")
    if codes.ndim != 2 or 0 in codes.shape:
        raise ValueError(f"codes must have shape (N, n), got {codes.shape}")
    return _with_rows(np.asarray(codes, np.float64), groups, times)


def is_model(given: Any) -> bool:
    """Return whether something encodes; a data frame has a method ``transform``, too."""
    return hasattr(given, "transform") and not hasattr(given, "__array__")


def _encode(
    model: Any, X: Any, X_pos: Any, groups: Any, times: Any, max_gap: int, recording: int | None
) -> EncodedRows:
    check_is_fitted(model)
    if X is None:
        raise ValueError("X must be given with a model: the observations that it encodes")
    X, groups, times = resolve_roles(X, groups, times, getattr(model, "_roles", {}))
    is_list = isinstance(X, list | tuple) and len(X) > 0 and all(np.ndim(x) > 1 for x in X)
    options: dict[str, Any] = {}
    if getattr(model, "_has_recording", False):
        options = {"times": times, "max_gap": max_gap, "groups": groups}
        if recording is not None:
            options["recording"] = recording
    else:
        _refuse({"recording": recording, "max_gap": max_gap or None}, "a model fitted to pairs")
        if is_list:
            raise ValueError("X must be one array for a model fitted to pairs, got a list")
    with warnings.catch_warnings():  # the columns of an array are in the fitted order
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        codes = np.asarray(model.transform(X, **options), np.float64)
    if is_list:
        lengths = [len(x) for x in X]
        groups = np.repeat([f"recording {k}" for k in range(len(X))], lengths)
        times = None if times is None else np.concatenate([np.asarray(one) for one in times])
    related = None
    if X_pos is not None:
        related = np.asarray(model.relatedness(X, X_pos))
    head = str(getattr(model, "head_", "free"))
    return _with_rows(codes, groups, times, related, head)


def _with_rows(
    codes: Array, groups: Any, times: Any, related: Array | None = None, head: str = "free"
) -> EncodedRows:
    sessions: Array | None = None
    names: tuple[str, ...] = ()
    if groups is not None:
        ids = _column("groups", groups, len(codes))
        sessions, names = number_labels(ids)
    if times is not None:
        times = _column("times", times, len(codes))
        if times.dtype.kind not in "fiuM":
            raise TypeError(f"times must be numbers or datetime64, got dtype {times.dtype}")
    labels = tuple(f"code {k}" for k in range(codes.shape[1]))
    return EncodedRows(codes, labels, sessions, names, times, related, head)


def number_labels(values: Array) -> tuple[Array, tuple[str, ...]]:
    """Return the number of each label, by order of first occurrence, and the labels as text."""
    _, first, inverse = np.unique(values.astype(str), return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return place[inverse.ravel()], tuple(str(values[k]) for k in first[order])


def _column(name: str, values: Any, n_rows: int) -> Array:
    """Return one value per row."""
    column = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if column.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one value per row, shape ({n_rows},), got {column.shape}"
        )
    return column


def choose_components(components: Any, n: int, allowed: Iterable[int] | None = None) -> list[int]:
    """Return the numbers of the codes to draw, from 0.

    Args:
        components: Numbers of codes, or None for all.
        n: Number of codes that there are.
        allowed: How many may be drawn; None for any number.
    """
    chosen = [*range(n)] if components is None else [*np.atleast_1d(np.asarray(components))]
    if not all(isinstance(k, int | np.integer) for k in chosen):
        raise TypeError(f"components must be numbers of codes, got {components!r}")
    if allowed is not None and len(chosen) not in {*allowed}:
        counts = " or ".join(map(str, allowed))
        raise ValueError(f"components must be {counts} numbers of codes, got {components!r}")
    for k in chosen:
        if not 0 <= k < n:
            raise ValueError(
                f"components must be from 0 to {n - 1}, since there are {n} codes, got {k}"
            )
    if len(set(chosen)) < len(chosen) or not chosen:
        raise ValueError(f"components must be different codes, got {components!r}")
    return [int(k) for k in chosen]


def sentence_of_thinning(shown: int, n_rows: int, how: str) -> str:
    """Return what was left out, in words; empty if nothing was.

    Example:
        >>> sentence_of_thinning(10_000, 123_456, "drawn at random with seed 0")
        '10,000 of 123,456 rows, drawn at random with seed 0'
    """
    return "" if shown >= n_rows else f"{shown:,} of {n_rows:,} rows, {how}"


def read_number(value: Any) -> float | None:
    """Return a finite number of a record, or None for any other value.

    Example:
        >>> read_number(2), read_number("2"), read_number(float("nan")), read_number(True)
        (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None


def _refuse(given: dict[str, Any], what: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} must not be given with {what}")


def _describe(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"a {type(value).__name__}"
