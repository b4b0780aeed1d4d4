"""What moving along one code does to the observations, through a decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from isolatent.checks import check_integer
from isolatent.diagnosis.controls import Decoder
from isolatent.figure_data.rows import Array, EncodedRows, choose_components

__all__ = ["TraversalData", "traversal_data"]

MOVED_STEPS = 9  # along a code
MOVED_PERCENTILES = (5.0, 95.0)  # of a code, between which it moves
MAX_FITTED_ROWS = 8192  # that a decoder is fitted to
FEWEST_ROWS = 40
TEST_SHARE = 0.25


@dataclass(frozen=True)
class TraversalData:
    """Observations along each code, while the others stay where they are.

    Attributes:
        values: Values (d, S) of each code that is moved.
        observations: Decoded observations (d, S, ...).
        base: Codes (n,) from which one at a time is moved: those of the row in the middle.
        names: Names of the d codes.
        components: Their numbers, from 0.
        column_names: Names of the columns; empty for images.
        effects: Change (d, m) of each column along each code, from the first to the last value, in
            standard deviations of the column.
        spread: Standard deviation (m,) of each column; 1 for a constant one.
        explained: Share of the variance of held-out observations that the decoder explains.
        explained_by_column: The same (m,) for each column; NaN for a constant one.
        n_rows: Number of rows to which the decoder was fitted; 0 for the model's own decoder.
        decoder: ``"fitted"`` or ``"own"``.
    """

    values: Array
    observations: Array
    base: Array
    names: tuple[str, ...]
    components: tuple[int, ...]
    column_names: tuple[str, ...]
    effects: Array
    spread: Array
    explained: float
    explained_by_column: Array
    n_rows: int
    decoder: str

    @property
    def is_image(self) -> bool:
        """Whether observations are images, (H, W) or (C, H, W)."""
        return self.observations.ndim > 3


def traversal_data(
    rows: EncodedRows,
    X: Any,
    *,
    components: Any = None,
    column_names: Sequence[str] | None = None,
    decode: Callable[[Array], Any] | None = None,
    steps: int = MOVED_STEPS,
    random_state: int = 0,
) -> TraversalData:
    """Return what moving along one code does to the observations.

    A decoder, a small perceptron, is fitted to three quarters of the rows, at most 8192, and its
    explained variance is that of the others: where it is low, its observations say little. Each
    code moves from its 5th to its 95th percentile. On a sphere the other codes shrink or grow
    together, so that all points lie on it.

    Args:
        rows: The result of :func:`encode_rows`.
        X: The observations (N, ...) of these rows, or the list of recordings.
        components: Numbers of the codes to move, from 0; None for all.
        column_names: Names of the columns; by default those of a data frame, or numbers.
        decode: The model's own decoder, a function of codes, if it has one.
        steps: Number of values of each code.
        random_state: Seed of the decoder and of the rows, an integer >= 0.

    Example:
        >>> from isolatent.figure_data import encode_rows
        >>> z = np.random.default_rng(0).normal(size=(400, 2))
        >>> x = np.stack([z[:, 0], z[:, 0] + z[:, 1], z[:, 1]], axis=1)
        >>> data = traversal_data(encode_rows(z), x)
        >>> data.observations.shape, np.abs(data.effects).round().tolist()
        ((2, 9, 3), [[3.0, 2.0, 0.0], [0.0, 2.0, 3.0]])
    """
    check_integer("steps", steps, at_least=2)
    check_integer("random_state", random_state, at_least=0)
    chosen = choose_components(components, rows.codes.shape[1])
    if column_names is None and hasattr(X, "columns"):
        column_names = [str(name) for name in X.columns]
    x = _observations(X, len(rows.codes))
    shape = x.shape[1:]
    flat = x.reshape(len(x), -1)
    names = _column_names(column_names, shape)
    usable = np.isfinite(rows.codes).all(axis=1) & np.isfinite(flat).all(axis=1)
    index = np.flatnonzero(usable)
    if len(index) < FEWEST_ROWS:
        raise ValueError(
            f"X must have at least {FEWEST_ROWS} rows with codes for a decoder, got {len(index)}"
        )
    index = np.random.default_rng(random_state).permutation(index)[:MAX_FITTED_ROWS]
    h, seen = rows.codes[index], flat[index].astype(np.float64)
    base, values = _middle(h), _values(h, chosen, steps)
    wanted = np.concatenate(
        [_moved(base, k, along, rows.head) for k, along in zip(chosen, values, strict=True)]
    )
    tested = h[: round(TEST_SHARE * len(h))]
    if decode is None:
        decode = _fit_decoder(h, seen, len(tested), rows.head, random_state)
        fitted = len(h) - len(tested)
    else:
        fitted = 0
    observed = np.asarray(decode(wanted), dtype=np.float64).reshape(len(wanted), -1)
    predicted = np.asarray(decode(tested), dtype=np.float64).reshape(len(tested), -1)
    true = seen[: len(tested)]
    spread = seen.std(axis=0)
    varying = spread > 1e-9 * np.maximum(np.abs(seen).max(axis=0), 1e-300)
    missed = np.square(true - predicted).mean(axis=0)
    variance = np.square(true - true.mean(axis=0)).mean(axis=0)
    known = varying & (variance > 0)
    by_column = np.full(len(spread), np.nan)
    by_column[known] = 1 - missed[known] / variance[known]
    grid = observed.reshape(len(chosen), steps, -1)
    change = grid[:, -1] - grid[:, 0]
    spread = np.where(varying, spread, 1.0)
    effects = np.where(varying, change / spread, 0.0)
    # Columns count alike, whatever their units; pixels have one unit.
    share = 1 - missed.sum() / variance.sum() if len(shape) > 1 else np.nanmean(by_column)
    return TraversalData(
        values,
        grid.reshape(len(chosen), steps, *shape),
        base,
        tuple(rows.names[k] for k in chosen),
        tuple(chosen),
        names,
        effects,
        spread,
        float(share),
        by_column,
        fitted,
        "own" if fitted == 0 else "fitted",
    )


def _observations(X: Any, count: int) -> Array:
    if isinstance(X, list | tuple) and len(X) > 0 and all(np.ndim(x) > 1 for x in X):
        widths = {np.shape(x)[1:] for x in X}
        if len(widths) > 1:
            raise ValueError("X must be one recording where recordings have different columns")
        X = np.concatenate([np.asarray(x) for x in X])
    x: Array = np.asarray(X.detach().cpu() if hasattr(X, "detach") else X)
    if x.dtype.kind not in "fiub":
        raise TypeError(f"X must hold real numbers, got dtype {x.dtype}")
    if x.ndim < 2 or len(x) != count:
        raise ValueError(f"X must have {count} rows, one for each of the codes, got {x.shape}")
    return x


def _column_names(names: Sequence[str] | None, shape: tuple[int, ...]) -> tuple[str, ...]:
    if len(shape) > 1:
        return ()
    if names is None:
        return tuple(f"column {k}" for k in range(shape[0]))
    if len(names) != shape[0]:
        raise ValueError(f"column_names must be {shape[0]} names, got {len(names)}")
    return tuple(map(str, names))


def _middle(h: Array) -> Array:
    """Return the codes of the row nearest to the median of each code."""
    spread = h.std(axis=0)
    scaled = (h - np.median(h, axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(h[np.square(scaled).sum(axis=1).argmin()])


def _values(h: Array, chosen: Sequence[int], steps: int) -> Array:
    low, high = np.percentile(h[:, list(chosen)], MOVED_PERCENTILES, axis=0)
    return np.linspace(low, high, steps).T


def _moved(base: Array, k: int, values: Array, head: str) -> Array:
    """Return codes with one of them moved."""
    moved = np.repeat(base[None], len(values), axis=0)
    moved[:, k] = values
    if head == "sphere":
        others = np.arange(len(base)) != k
        radius, rest = np.square(base).sum(), np.square(base[others]).sum()
        left = np.sqrt(np.maximum(0.0, radius - np.square(values)))
        if rest > 0:
            moved[:, others] *= (left / np.sqrt(rest))[:, None]
    return moved


def _fit_decoder(
    h: Array, seen: Array, n_tested: int, head: str, seed: int
) -> Callable[[Array], Array]:
    """Return a decoder fitted to all but the first rows; constant columns stay as they are."""
    mean = seen.mean(axis=0)
    varying = seen.std(axis=0) > 1e-9 * np.maximum(np.abs(seen).max(axis=0), 1e-300)
    if not varying.any():
        raise ValueError("X must vary, got constant columns")
    codes = torch.from_numpy(h).float()
    observed = torch.from_numpy(seen[:, varying]).float()
    testing = [(codes[:n_tested], observed[:n_tested])] * 2
    dimensions = h.shape[1] - (head == "sphere")
    decoder = Decoder.fit_codes(codes[n_tested:], observed[n_tested:], testing, dimensions, seed)

    def decode(wanted: Array) -> Array:
        x = np.repeat(mean[None], len(wanted), axis=0)
        generator = torch.Generator()
        x[:, varying] = decoder.observe(torch.from_numpy(wanted), generator, False).numpy()
        return x

    return decode
