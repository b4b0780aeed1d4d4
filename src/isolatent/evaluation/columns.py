"""Factors and codes as checked float64 columns, and the statistics the scores are made of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

__all__ = [
    "Array",
    "as_columns",
    "as_factors_and_codes",
    "binary_exponents",
    "dense_ranks",
    "mid_ranks",
    "spread",
    "standardise",
]

Array: TypeAlias = npt.NDArray[np.float64]


def as_columns(name: str, values: Any) -> Array:
    """Return ``values`` as a finite float64 array of shape (rows, columns).

    Args:
        name: The argument's name, for messages.
        values: NumPy array, tensor on any device, or nested sequence; one axis means one column.

    Example:
        >>> as_columns("z", [1, 2, 3]).shape
        (3, 1)
        >>> as_columns("z", [[0.0, 1.0], [2.0, float("nan")]])
        Traceback (most recent call last):
        ValueError: z must be finite, got nan in row 1, column 1
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
    if len(columns) < 2:
        raise ValueError(f"{name} must have at least 2 rows, got {len(columns)}")
    bad = np.argwhere(~np.isfinite(columns))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{name} must be finite, got {columns[row, column]} in row {row}, column {column}"
        )
    return columns


def as_factors_and_codes(
    z: ArrayLike, h: ArrayLike, names: tuple[str, str] = ("z", "h")
) -> tuple[Array, Array]:
    """Return true factors ``z`` and codes ``h``, both checked, with as many rows.

    ``names`` are those of the two arguments, for messages.

    A constant factor has no variance to explain, so that its R² and its correlations are 0/0:
    it is refused. A constant (dead) code is allowed: it explains nothing.

    Example:
        >>> as_factors_and_codes([[0, 5], [1, 5], [2, 5]], [0, 1, 2])
        Traceback (most recent call last):
        ValueError: z must vary in every column, got constant column 1 (of 0 to 1); ...
    """
    of_factors, of_codes = names
    factors, codes = as_columns(of_factors, z), as_columns(of_codes, h)
    if len(codes) != len(factors):
        raise ValueError(
            f"{of_codes} must have as many rows as {of_factors} ({len(factors)}), got {len(codes)}"
        )
    constant = np.flatnonzero(factors.max(axis=0) == factors.min(axis=0))
    if len(constant):
        raise ValueError(
            f"{of_factors} must vary in every column, got constant column {constant[0]} (of 0 to "
            f"{factors.shape[1] - 1}); a factor that never changes cannot be scored: leave it out"
        )
    return factors, codes


def standardise(columns: Array) -> Array:
    """Return the columns with mean 0 and mean square 1; a constant column becomes zeros.

    Every score is invariant to the offset and the scale of a column, so this only makes the
    arithmetic independent of the units.

    Example:
        >>> standardise(np.array([[1.0, 3.0], [3.0, 3.0]]))
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    largest = np.abs(columns).max(axis=0)
    # Divide by the largest value first: squares of 1e200 or 1e-200 would not fit in a float64, and
    # a constant column becomes one of ±1, which the mean then takes away exactly.
    centred = columns / np.where(largest > 0, largest, 1.0)
    centred -= centred.mean(axis=0)
    deviation = np.sqrt(np.square(centred).mean(axis=0))
    return np.asarray(centred / np.where(deviation > 0, deviation, 1.0))


def binary_exponents(columns: Array) -> npt.NDArray[np.intc]:
    """Return for each column the least e with all its values below 2^e; 0 for a column of zeros.

    Divided by that power of two (``np.ldexp(columns, -e)``) no column is too large to square, and
    nothing is rounded, so that what does not depend on the units stays the same to the bit.

    Example:
        >>> binary_exponents(np.array([[0.75, -8.0, 0.0], [0.1, 3.0, 0.0]]))
        array([0, 4, 0], dtype=int32)
    """
    return np.frexp(np.abs(columns).max(axis=0))[1]


def spread(columns: Array, counts: Array) -> tuple[Array, Array]:
    """Return the centred columns and their sums of squares when row i occurs ``counts[i]`` times.

    The sum is exactly 0 for a column that is constant in the rows that occur.

    Example:
        >>> spread(np.array([[1.0], [4.0], [9.0]]), np.array([2.0, 1.0, 0.0]))[1]
        array([6.])
    """
    centred = columns - counts @ columns / counts.sum()
    squares = counts @ np.square(centred)
    rounding = 1e-24 * (counts @ np.square(columns))  # that of the mean, squared and summed
    return centred, np.where(squares > rounding, squares, 0.0)


def dense_ranks(columns: Array) -> npt.NDArray[np.intp]:
    """Return, column by column, the index of each value among the sorted distinct values.

    Example:
        >>> dense_ranks(np.array([[30.0], [10.0], [30.0]])).ravel()
        array([1, 0, 1])
    """
    return np.stack([np.unique(column, return_inverse=True)[1] for column in columns.T]).T


def mid_ranks(dense: npt.NDArray[np.intp], counts: Array) -> Array:
    """Return Spearman's ranks (ties share their mean rank) when row i occurs ``counts[i]`` times.

    A value that occurs c times after s smaller ones has the ranks s+1, …, s+c, whose mean is
    s + (c + 1) / 2. Working from counts spares sorting each bootstrap resample.

    Example:
        >>> mid_ranks(np.array([[1], [0], [1]]), np.ones(3)).ravel()
        array([2.5, 1. , 2.5])
    """
    ranks = np.empty(dense.T.shape)
    for rank, column in zip(ranks, dense.T, strict=True):
        occurrences = np.bincount(column, weights=counts)
        rank[:] = (np.cumsum(occurrences) - (occurrences - 1) / 2)[column]
    return ranks.T
