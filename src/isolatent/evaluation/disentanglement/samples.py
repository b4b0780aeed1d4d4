"""Factors as classes beside their codes, and the split into points to fit and points to score."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.checks import IsolatentWarning, check_integer
from isolatent.evaluation.columns import Array, as_columns, as_factors_and_codes, dense_ranks

__all__ = ["Classes", "Sample", "Split", "sample", "split"]

Classes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Points whose factors are read as classes.

    Attributes:
        classes: Index of each factor's value among its sorted distinct values, (N, F).
        codes: Codes of the points, (N, C).
        sizes: How many distinct values each factor has.
    """

    classes: Classes
    codes: Array
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: npt.NDArray[Any]) -> Sample:
        """The same factors and codes at some of the points."""
        return Sample(self.classes[rows], self.codes[rows], self.sizes)


@dataclass(frozen=True)
class Split:
    """Points that a classifier is fitted to, and points that it is scored on."""

    train: Sample
    test: Sample


def sample(factors: ArrayLike, codes: ArrayLike, *, stacklevel: int = 3) -> Sample:
    """Read factors, whose values become classes, and codes.

    A factor with a value of its own for more than half of the points is taken for a continuous
    one: as classes its values mean little, which is worth a warning. It is one for all such
    factors, at the line ``stacklevel`` calls up: by default that which called the caller.

    Example:
        >>> sample([[0.1, 7], [0.5, 3], [0.1, 3], [0.5, 7]], [1, 2, 3, 4]).classes.T
        array([[0, 1, 0, 1],
               [1, 0, 0, 1]])
    """
    columns, read = as_factors_and_codes(factors, codes, ("factors", "codes"))
    classes = dense_ranks(columns).astype(np.int64)
    sizes = tuple(int(n) for n in classes.max(axis=0) + 1)
    many = [f"factor {f} has {n}" for f, n in enumerate(sizes) if 2 * n > len(read) > 20]
    if many:
        warnings.warn(
            f"{', '.join(many)} values at {len(read)} points, which looks continuous, but each "
            "value is taken as a class here: bin them, or use a metric for continuous factors",
            IsolatentWarning,
            stacklevel=stacklevel,
        )
    return Sample(classes, read, sizes)


def split(
    factors: ArrayLike, codes: ArrayLike, test: tuple[ArrayLike, ArrayLike] | None, seed: int
) -> Split:
    """Read factors and codes, and what to score: ``test``, or a random third of the points.

    A third is the protocol's share, 5 000 scored for 10 000 fitted. Metrics call this themselves,
    so that a warning of continuous factors is at the line that called them.
    """
    check_integer("seed", seed, at_least=0)
    if test is None:
        points = sample(factors, codes, stacklevel=4)
        if len(points) < 3:
            raise ValueError(f"factors and codes must have at least 3 rows, got {len(points)}")
        order = np.random.default_rng(seed).permutation(len(points))
        held_out = len(points) // 3
        return Split(points.take(order[held_out:]), points.take(order[:held_out]))
    if not isinstance(test, tuple) or len(test) != 2:
        raise TypeError(f"test must be a tuple (factors, codes), got {test!r}")
    pairs = ("factors", factors, test[0]), ("codes", codes, test[1])
    (y, y_test), (c, c_test) = (
        (as_columns(name, fitted), as_columns(f"test {name}", scored))
        for name, fitted, scored in pairs
    )
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
    both = sample(np.concatenate([y, y_test]), np.concatenate([c, c_test]), stacklevel=4)
    rows = np.arange(len(both))
    return Split(both.take(rows[: len(y)]), both.take(rows[len(y) :]))
