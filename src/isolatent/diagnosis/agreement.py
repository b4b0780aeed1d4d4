"""Agreement of two sets of codes, up to the maps that a guarantee leaves open."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation import linear_r2, mcc

__all__ = ["agreement", "metric_for", "varying_columns"]


def metric_for(guaranteed: str) -> str:
    """Return the score by which codes are compared, for the score of a guarantee.

    Blocks of factors are compared as a whole: up to a linear map.

    Example:
        >>> metric_for("mcc"), metric_for("block_mcc")
        ('mcc', 'linear_r2')
    """
    return "mcc" if guaranteed == "mcc" else "linear_r2"


def agreement(first: ArrayLike, second: ArrayLike, metric: str = "linear_r2") -> float:
    """Return how far two sets of codes of the same rows agree, from 0 to 1.

    Of a linear R², which differs between directions, the lower one counts: codes that leave out
    what others hold do not agree with them.

    Args:
        first: Codes (N, n).
        second: Codes (N, n) of the same rows.
        metric: ``"linear_r2"`` or ``"mcc"``.

    Example:
        >>> z = np.random.default_rng(0).normal(size=(500, 2))
        >>> round(agreement(z, z @ [[1.0, 2.0], [0.0, 1.0]]), 3)
        1.0
    """
    a, b = varying_columns(first), varying_columns(second)
    if a.shape[1] == 0 or b.shape[1] == 0:
        return 0.0
    if metric == "mcc":
        return float(mcc(a, b))
    return max(0.0, min(float(linear_r2(a, b)), float(linear_r2(b, a))))


def varying_columns(codes: ArrayLike) -> np.ndarray[Any, Any]:
    """Return the columns that are not constant.

    Example:
        >>> varying_columns([[1.0, 2.0], [1.0, 3.0]]).tolist()
        [[2.0], [3.0]]
    """
    array = np.asarray(codes, dtype=np.float64)
    return array[:, np.ptp(array, axis=0) > 0]
