"""Whether the two observations of pairs visibly come from different preprocessing."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mismatch", "find_mismatch"]

MOST_ROWS, MOST_VALUES = 4096, 2**19  # of either side
FEWEST_COMPARED = 50  # with fewer nothing is beyond chance
LARGEST_SLOPE = 1.2  # of a regression, from which one side cannot be the other one plus noise
LARGEST_SHIFT = 0.5  # of means, in standard deviations
ERRORS_BEYOND_CHANCE = 6.0
FEWEST_BLOCKS = 8  # of neighbouring rows
EVERYWHERE = 0.15  # share of blocks that need not show a difference: a few extreme rows are no sign
STANDARDIZED = 1e-3  # largest deviation of means from 0, and of standard deviations from 1


class Mismatch(NamedTuple):
    """Evidence that X and X_pos were scaled or shifted differently.

    Attributes:
        columns: The columns that show it, most visible first.
        means: Mean of the first of them, in X and in X_pos.
        deviations: Its standard deviation in X and in X_pos.
        standardized: ``"X"`` or ``"X_pos"`` if that one alone has mean 0 and standard deviation 1,
            or the range from 0 to 1, in every column, as scalers make them.
    """

    columns: tuple[int, ...]
    means: tuple[float, float]
    deviations: tuple[float, float]
    standardized: str | None


def find_mismatch(x: NDArray[Any], x_pos: NDArray[Any]) -> Mismatch | None:
    r"""Return evidence that the two arrays of pairs were preprocessed differently, if there is.

    Positives may be noisier than their anchors, or drawn towards the middle. Then the slope of the
    regression of one on the other is at most 1 in both directions,

    .. math:: \max(b, b') = \rho \, \max(\sigma / \sigma', \sigma' / \sigma) \leq 1

    with the correlation ρ of a column with itself in the pair. A larger slope, above 1.2 by at
    least 6 standard errors, is a difference of scale. So are means and medians that differ by more
    than half of the smaller standard deviation, means by 6 standard errors. These allow for rows
    that depend on their neighbours. A difference must show in nearly all blocks of neighbouring
    rows, since a few extreme rows have a large part in the moments of heavy tails.

    Images are compared by the means of their channels. At most 4 096 pairs are looked at, or
    fewer with many columns, and fewer than 50 say nothing.

    Args:
        x: Observations (N, ...).
        x_pos: Their positives, of the same shape.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 2))
        >>> x_pos = x + 0.1 * rng.normal(size=x.shape)
        >>> find_mismatch(x, x_pos) is None, find_mismatch(x, 3 * x_pos).columns
        (True, (0, 1))
    """
    if len(x) < FEWEST_COMPARED:
        return None
    # Consecutive rows in blocks, so that the dependence of neighbours shows in standard errors.
    most = min(MOST_ROWS, max(FEWEST_COMPARED, MOST_VALUES // max(1, x[0].size)))
    step = max(1, len(x) // most)
    rows = [np.asarray(part[::step][:most], np.float64) for part in (x, x_pos)]
    a, b = (_columns(part) for part in rows)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    means = np.stack([a.mean(0), b.mean(0)])
    a0, b0 = a - means[0], b - means[1]
    deviations = np.stack([a0.std(0), b0.std(0)])
    least = deviations.min(0)
    varies = least > 1e-9 * (deviations.max(0) + np.abs(means).max(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.maximum(_slope_excess(a0, b0), _slope_excess(b0, a0))
        shift = _shift(a, b, np.minimum(*(_spread(part) for part in rows)))
    visible = np.fmax(excess / math.log(LARGEST_SLOPE), shift / LARGEST_SHIFT)
    visible = np.where(varies, np.nan_to_num(visible), 0.0)
    found = np.flatnonzero(visible > 1)
    if len(found) == 0:
        return None
    found = found[np.argsort(-visible[found], kind="stable")]
    first = found[0]
    exact = [_is_scaled(part, m, s) for part, m, s in zip((a, b), means, deviations, strict=True)]
    name = ("X" if exact[0] else "X_pos") if exact[0] != exact[1] and x.ndim == 2 else None
    return Mismatch(
        tuple(int(k) for k in found),
        (float(means[0, first]), float(means[1, first])),
        (float(deviations[0, first]), float(deviations[1, first])),
        name,
    )


def _columns(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return rows (N, m) as they are, and images (N, C, ...) as the means of their channels."""
    return rows if rows.ndim == 2 else rows.reshape(*rows.shape[:2], -1).mean(2)


def _spread(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the standard deviation of each column, or of all pixels of each channel."""
    deviation: NDArray[np.float64] = rows.std(axis=(0, *range(2, rows.ndim)))
    return deviation


def _slope_excess(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the slope of b on a, or 0 where it may be at most LARGEST_SLOPE."""
    power = (a * a).mean(0)
    slope = (a * b).mean(0) / power
    error = _error(a * (b - slope * a)) / power
    blocks = zip(_blocks(a), _blocks(b), strict=True)
    parts = [((v - v.mean(0)) * w).mean(0) / v.var(0) for v, w in blocks]
    everywhere = np.quantile(parts, EVERYWHERE, axis=0) > 1
    above = (slope - ERRORS_BEYOND_CHANCE * error > LARGEST_SLOPE) & everywhere
    return np.where(above, np.log(np.where(above, slope, 1.0)), 0.0)


def _shift(
    a: NDArray[np.float64], b: NDArray[np.float64], deviation: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the difference of means in standard deviations, or 0 where it may be chance."""
    mean = (b - a).mean(0)
    parts = np.sign(mean) * [(w - v).mean(0) for v, w in zip(_blocks(a), _blocks(b), strict=True)]
    beyond = np.abs(mean) > ERRORS_BEYOND_CHANCE * _error(b - a)
    everywhere = np.quantile(parts, EVERYWHERE, axis=0) > 0
    medians = np.abs(np.median(b, axis=0) - np.median(a, axis=0))
    return np.where(beyond & everywhere, np.minimum(np.abs(mean), medians) / deviation, 0.0)


def _blocks(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return blocks of neighbouring rows."""
    return np.array_split(values, max(FEWEST_BLOCKS, math.isqrt(len(values))))


def _error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean of each column, by blocks of neighbouring rows."""
    means = np.stack([block.mean(0) for block in _blocks(values)])
    single = values.std(0) / math.sqrt(len(values))
    return np.maximum(single, means.std(0, ddof=1) / math.sqrt(len(means)))


def _is_scaled(
    a: NDArray[np.float64], mean: NDArray[np.float64], deviation: NDArray[np.float64]
) -> bool:
    """Return whether every column has mean 0 and standard deviation 1, or the range [0, 1]."""
    standard = np.abs(mean).max() < STANDARDIZED and np.abs(deviation - 1).max() < STANDARDIZED
    unit = np.abs(a.min(0)).max() < STANDARDIZED and np.abs(a.max(0) - 1).max() < STANDARDIZED
    return bool(standard or unit)
