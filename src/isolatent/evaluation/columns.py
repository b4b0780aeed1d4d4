"""Read factors and codes as checked float64 columns, and compute statistics of columns."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

__all__ = [
    "Array",
    "Indices",
    "as_columns",
    "as_factors_and_codes",
    "binary_exponents",
    "dense_ranks",
    "mid_ranks",
    "standardise",
    "weighted_deviations",
]

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]


def as_columns(name: str, values: Any, min_rows: int = 2) -> Array:
    """Return ``values`` as a finite float64 array of shape (rows, columns).

    Args:
        name: Name of the argument in error messages.
        values: NumPy array, tensor on any device, or nested sequence, (rows, columns); a
            one-dimensional input is read as one column.
        min_rows: Least number of rows.

    Example:
        >>> as_columns("codes", [1, 2, 3]).shape
        (3, 1)
        >>> as_columns("codes", [[0.0, 1.0], [2.0, float("nan")]])
        Traceback (most recent call last):
        ValueError: codes must be finite, got nan in row 1, column 1
    """
    if hasattr(values, "detach"):  # a tensor, recognised without importing torch
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have shape (rows, columns) or (rows,), got shape {array.shape}"
        )
    columns = np.asarray(array if array.ndim == 2 else array[:, None], dtype=np.float64)
    if columns.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column, got shape {array.shape}")
    if len(columns) < min_rows:
        raise ValueError(f"{name} must have at least {min_rows} rows, got {len(columns)}")
    bad = np.argwhere(~np.isfinite(columns))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{name} must be finite, got {columns[row, column]} in row {row}, column {column}"
        )
    return columns


def as_factors_and_codes(factors: ArrayLike, codes: ArrayLike) -> tuple[Array, Array]:
    """Return true factors and codes as checked columns with the same number of rows.

    A constant factor has no variance to explain (its R² and its correlations are 0/0) and raises
    an error. A constant ("dead") code is allowed: it explains nothing.

    Example:
        >>> as_factors_and_codes([[0, 5], [1, 5], [2, 5]], [0, 1, 2])
        Traceback (most recent call last):
        ValueError: factors must vary in every column, got constant column 1 (of 0 to 1); ...
    """
    z, h = as_columns("factors", factors), as_columns("codes", codes)
    if len(h) != len(z):
        raise ValueError(f"codes must have as many rows as factors ({len(z)}), got {len(h)}")
    constant = np.flatnonzero(z.max(axis=0) == z.min(axis=0))
    if len(constant):
        raise ValueError(
            f"factors must vary in every column, got constant column {constant[0]} (of 0 to "
            f"{z.shape[1] - 1}); a constant factor cannot be scored: leave it out"
        )
    return z, h


def standardise(columns: Array) -> Array:
    """Return the columns with mean 0 and mean square 1; a constant column becomes zeros.

    Scores that are invariant to the offset and the scale of a column use this to make their
    arithmetic independent of the units.

    Example:
        >>> standardise(np.array([[1.0, 3.0], [3.0, 3.0]]))
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    largest = np.abs(columns).max(axis=0)
    # Divide by the largest value first: squares of 1e200 or 1e-200 overflow or underflow float64,
    # and a constant column becomes ±1, from which subtracting the mean leaves exactly 0.
    centred = columns / np.where(largest > 0, largest, 1.0)
    centred -= centred.mean(axis=0)
    deviation = np.sqrt(np.square(centred).mean(axis=0))
    return np.asarray(centred / np.where(deviation > 0, deviation, 1.0))


def binary_exponents(columns: Array) -> npt.NDArray[np.intc]:
    """Return for each column the least e with all absolute values below 2^e; 0 for zeros.

    ``np.ldexp(columns, -e)`` rescales the columns by powers of two, so that their squares do not
    overflow. No value is rounded: metrics that do not depend on the units keep every bit.

    Example:
        >>> binary_exponents(np.array([[0.75, -8.0, 0.0], [0.1, 3.0, 0.0]]))
        array([0, 4, 0], dtype=int32)
    """
    return np.frexp(np.abs(columns).max(axis=0))[1]


def weighted_deviations(columns: Array, counts: Array) -> tuple[Array, Array]:
    """Return deviations from the weighted mean, and the weighted sums of their squares.

    Row i has weight ``counts[i]``. The sum is exactly 0 for a column that is constant in the rows
    with positive weight.

    Example:
        >>> weighted_deviations(np.array([[1.0], [4.0], [9.0]]), np.array([2.0, 1.0, 0.0]))[1]
        array([6.])
    """
    centred = columns - counts @ columns / counts.sum()
    squares = counts @ np.square(centred)
    rounding = 1e-24 * (counts @ np.square(columns))  # of the mean, squared and summed
    return centred, np.where(squares > rounding, squares, 0.0)


def dense_ranks(columns: Array) -> Indices:
    """Return, column by column, the index of each value among the sorted distinct values.

    Example:
        >>> dense_ranks(np.array([[30.0], [10.0], [30.0]])).ravel()
        array([1, 0, 1])
    """
    return np.stack([np.unique(column, return_inverse=True)[1] for column in columns.T]).T


def mid_ranks(dense: Indices, counts: Array) -> Array:
    """Return Spearman's ranks (tied values share their mean rank) of rows with weights ``counts``.

    A value that occurs c times after s smaller ones has the ranks s+1, …, s+c, whose mean is
    s + (c + 1) / 2. Computing ranks from counts avoids sorting each bootstrap resample.

    Example:
        >>> mid_ranks(np.array([[1], [0], [1]]), np.ones(3)).ravel()
        array([2.5, 1. , 2.5])
    """
    ranks = np.empty(dense.T.shape)
    for rank, column in zip(ranks, dense.T, strict=True):
        occurrences = np.bincount(column, weights=counts)
        rank[:] = (np.cumsum(occurrences) - (occurrences - 1) / 2)[column]
    return ranks.T
