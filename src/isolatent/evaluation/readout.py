"""Linear readouts of labels and of numbers from codes, scored on other observations."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["readout_accuracy", "readout_r2"]

MAX_ITERATIONS = 300
RIDGE = 1e-3  # of the variance of standardised codes

Array = NDArray[Any]


def readout_accuracy(h: ArrayLike, y: ArrayLike, h_test: ArrayLike, y_test: ArrayLike) -> float:
    """Return the share of labels that a linear classifier of codes predicts on test codes.

    The classifier is a logistic regression on standardised codes, with a weak penalty.

    Args:
        h: Codes (N, n) to fit the classifier to.
        y: Their labels (N,).
        h_test: Other codes (M, n).
        y_test: Their labels (M,).

    Example:
        >>> h = np.random.default_rng(0).normal(size=(300, 2))
        >>> y = (h[:, 0] > h[:, 1]).astype(int)
        >>> readout_accuracy(h[:200], y[:200], h[200:], y[200:]) > 0.95
        True
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    codes, test = _standardised(h, h_test)
    labels, expected = np.asarray(y), np.asarray(y_test)
    _check(codes, labels, test, expected, columns=False)
    if len(np.unique(labels)) < 2:
        raise ValueError(f"y must hold at least two labels, got {np.unique(labels).tolist()}")
    model = LogisticRegression(max_iter=MAX_ITERATIONS)
    with warnings.catch_warnings():  # the accuracy has settled long before the weights
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(codes, labels)
    return float(np.mean(model.predict(test) == expected))


def readout_r2(h: ArrayLike, y: ArrayLike, h_test: ArrayLike, y_test: ArrayLike) -> Array:
    """Return the R² of a linear regression on codes for each column of y, on test codes.

    A negative R² counts as 0.

    Args:
        h: Codes (N, n) to fit the regression to.
        y: Numbers (N, k).
        h_test: Other codes (M, n).
        y_test: Their numbers (M, k).

    Example:
        >>> h = np.random.default_rng(0).normal(size=(300, 3))
        >>> y = h[:, :2] @ [[1.0, 2.0], [0.0, 1.0]]
        >>> readout_r2(h[:200], y[:200], h[200:], y[200:]).round(2).tolist()
        [1.0, 1.0]
    """
    codes, test = _standardised(h, h_test)
    numbers, expected = (np.asarray(part, dtype=np.float64) for part in (y, y_test))
    _check(codes, numbers, test, expected, columns=True)
    mean = numbers.mean(0)
    gram = codes.T @ codes + RIDGE * len(codes) * np.eye(codes.shape[1])
    predicted = mean + test @ np.linalg.solve(gram, codes.T @ (numbers - mean))
    total = np.square(expected - expected.mean(0)).sum(0)
    if not (total > 0).all():
        raise ValueError(f"y_test must vary, but column {int(np.argmin(total))} is constant")
    r2: Array = np.maximum(0.0, 1 - np.square(expected - predicted).sum(0) / total)
    return r2


def _standardised(h: ArrayLike, h_test: ArrayLike) -> tuple[Array, Array]:
    codes, test = (np.asarray(part, dtype=np.float64) for part in (h, h_test))
    for name, part in (("h", codes), ("h_test", test)):
        if part.ndim != 2 or not np.isfinite(part).all():
            raise ValueError(f"{name} must be finite codes (N, n), got shape {part.shape}")
    if codes.shape[1] != test.shape[1]:
        raise ValueError(
            f"h and h_test must have as many columns, got {codes.shape[1]} and {test.shape[1]}"
        )
    scale = codes.std(0)
    scale = np.where(scale > 1e-12, scale, 1.0)  # constant codes stay as they are
    return (codes - codes.mean(0)) / scale, (test - codes.mean(0)) / scale


def _check(h: Array, y: Array, h_test: Array, y_test: Array, *, columns: bool) -> None:
    for name, codes, values in (("y", h, y), ("y_test", h_test, y_test)):
        expected = f"({len(codes)}, k)" if columns else f"({len(codes)},)"
        if len(values) != len(codes) or values.ndim != 1 + columns:
            raise ValueError(f"{name} must have shape {expected}, got {values.shape}")
