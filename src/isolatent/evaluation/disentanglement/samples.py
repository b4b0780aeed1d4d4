"""Read factors as classes with their codes, and split the points into training and test parts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.checks import IsolatentWarning, check_integer
from isolatent.evaluation.columns import Array, as_columns, as_factors_and_codes, dense_ranks

__all__ = ["Classes", "Sample", "Split", "as_sample", "as_split"]

Classes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Points whose factors are read as classes.

    Attributes:
        classes: Index of each factor's value among its sorted distinct values, (N, F).
        codes: Codes of the points, (N, C).
        sizes: Number of distinct values of each factor.
    """

    classes: Classes
    codes: Array
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: npt.NDArray[Any] | slice) -> Sample:
        """Return the points at the given rows."""
        return Sample(self.classes[rows], self.codes[rows], self.sizes)


@dataclass(frozen=True)
class Split:
    """Points that a classifier is fitted to, and points that it is scored on."""

    train: Sample
    test: Sample


def as_sample(factors: ArrayLike, codes: ArrayLike, *, stacklevel: int = 3) -> Sample:
    """Return factors, whose distinct values become classes, and codes.

    A factor with more distinct values than half the number of points looks continuous, and its
    values mean little as classes. One warning names all such factors, at the line ``stacklevel``
    calls up: by default the line that called the caller.

    Example:
        >>> as_sample([[0.1, 7], [0.5, 3], [0.1, 3], [0.5, 7]], [1, 2, 3, 4]).classes.T
        array([[0, 1, 0, 1],
               [1, 0, 0, 1]])
    """
    y, c = as_factors_and_codes(factors, codes)
    classes = dense_ranks(y).astype(np.int64)
    sizes = tuple(int(n) for n in classes.max(axis=0) + 1)
    many = [f"factor {f} has {n}" for f, n in enumerate(sizes) if 2 * n > len(c) > 20]
    if many:
        warnings.warn(
            f"{', '.join(many)} values at {len(c)} points, which looks continuous, but each "
            "value is read as a class here: bin them, or use a metric for continuous factors",
            IsolatentWarning,
            stacklevel=stacklevel,
        )
    return Sample(classes, c, sizes)


def as_split(
    factors: ArrayLike,
    codes: ArrayLike,
    test: tuple[ArrayLike, ArrayLike] | None,
    random_state: int,
) -> Split:
    """Return the points to fit and the points to score: ``test``, or a random third of the points.

    A third is the share of the published protocol: 5 000 points are scored, 10 000 fitted. Call
    this directly in a metric, so that the warning about continuous factors points at its caller.
    """
    check_integer("random_state", random_state, at_least=0)
    if test is None:
        points = as_sample(factors, codes, stacklevel=4)
        if len(points) < 3:
            raise ValueError(f"factors and codes must have at least 3 rows, got {len(points)}")
        order = np.random.default_rng(random_state).permutation(len(points))
        n_test = len(points) // 3
        return Split(points.take(order[n_test:]), points.take(order[:n_test]))
    if not isinstance(test, tuple) or len(test) != 2:
        raise TypeError(f"test must be a tuple (factors, codes), got {test!r}")
    y, c = as_columns("factors", factors), as_columns("codes", codes)
    y_test, c_test = as_columns("test factors", test[0]), as_columns("test codes", test[1])
    for name, fitted, scored in (("factors", y, y_test), ("codes", c, c_test)):
        if fitted.shape[1] != scored.shape[1]:
            raise ValueError(
                f"test {name} must have {fitted.shape[1]} columns as {name} have, "
                f"got {scored.shape[1]}"
            )
    if len(y_test) != len(c_test) or len(y) != len(c):
        raise ValueError(
            "factors and codes must have as many rows each, got "
            f"{len(y)} and {len(c)}, in test {len(y_test)} and {len(c_test)}"
        )
    both = as_sample(np.concatenate([y, y_test]), np.concatenate([c, c_test]), stacklevel=4)
    return Split(both.take(slice(len(y))), both.take(slice(len(y), None)))
