"""Measure the frequencies of cycles that last for more than a period."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cycle", "measure_cycle"]

MAX_LAGS = 400
MAX_RATIO = 1.5  # between the frequency and its first estimate; a harmonic has twice the frequency
STEPS_PER_LOBE = 16  # of the grid on which the peak is looked for
NEWTON_STEPS = 4
MIN_AUTOCORRELATION, STANDARD_ERRORS = 0.1, 4.0  # of white noise, the latter
Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


class Cycle(NamedTuple):
    """The frequency of a cycle.

    Attributes:
        angle: Radians per lag.
        resampled: The same of resampled rows (resamples,).
        lags: Number of lags that it was measured with.
    """

    angle: float
    resampled: Array
    lags: int


def measure_cycle(
    y: Complex, angle: float, *, runs: NDArray[np.int64], lag: int, length: int, weights: Array
) -> Cycle | None:
    r"""Measure the frequency of a complex code that oscillates, from many lags.

    An oscillator :math:`y` has the autocovariance :math:`c_k = E\, y(t + k\tau)\, \bar y(t) \propto
    \lambda^k`. A cycle that is not a sine wave has harmonics, and codes that hold a part of them
    follow no linear map from one lag to the next; the phase of :math:`c_1` is off by an amount that
    does not depend on the number of rows. The phases of all :math:`c_k` grow by the frequency on
    average nevertheless. It is taken from the peak of the spectrum

    .. math:: S(\theta) = \mathrm{Re} \sum_{k=1}^K \left(1 - \tfrac{k}{K + 1}\right) c_k
        e^{-i k \theta}

    where K is the lag from which on :math:`|c_k|` stays below :math:`|c_1| / e` for a period, or
    that half of the rows have; autocorrelations that white noise may have do not count. A harmonic,
    and what is forgotten within K lags, hardly move the peak.

    References:
        P. Stoica and R. Moses, "Spectral Analysis of Signals", 2005, sections 2.5 and 4.3.

    Args:
        y: The code (T,), of mean zero.
        angle: First estimate of the frequency, in radians per lag, above 0 and below π.
        runs: Number of the session of each row (T,).
        lag: Rows per lag, τ.
        length: Rows of the blocks that are resampled.
        weights: How often each block is drawn (resamples, blocks).

    Returns:
        None where the code forgets within a period, or has no peak near the first estimate: such a
        code has no cycle that more lags could measure.

    Example:
        >>> t, noise = np.arange(2400), np.random.default_rng(0).normal(size=(2, 2400))
        >>> y = np.exp(2j * np.pi * t / 24) + 0.5 * np.exp(4j * np.pi * t / 24) + noise[0]
        >>> sessions, weights = np.zeros(2400, dtype=int), np.ones((1, 24))
        >>> found = measure_cycle(y, 0.3, runs=sessions, lag=1, length=100, weights=weights)
        >>> round(2 * np.pi / found.angle, 1)
        24.0
    """
    period = 2 * math.pi / angle
    sums, counts = _products(y, runs, lag, length)
    autocovariance = sums.sum(0) / counts.sum(0)
    lags = _memory(np.abs(autocovariance) / np.mean(np.abs(y) ** 2), period, len(y))
    if lags < period:
        return None
    k = np.arange(1, lags + 1)
    taper = 1 - k / (lags + 1)
    spectrum = taper * autocovariance[:lags]
    step = 2 * math.pi / (STEPS_PER_LOBE * lags)
    grid = np.arange(angle / MAX_RATIO, min(angle * MAX_RATIO, math.pi), step)
    peak = int((np.exp(-1j * np.outer(grid, k)) @ spectrum).real.argmax())
    if peak in (0, len(grid) - 1):
        return None
    resampled = (weights @ sums)[:, :lags] / np.maximum((weights @ counts)[:, :lags], 1)
    found = _climb(grid[peak], np.concatenate([[spectrum], taper * resampled]), step)
    return Cycle(float(found[0]), found[1:], lags)


def _products(y: Complex, runs: NDArray[np.int64], lag: int, length: int) -> tuple[Complex, Array]:
    """Return sums over blocks (blocks, K) of products with earlier rows, and their numbers."""
    count = len(y)
    block = np.arange(count) // length
    sums, counts = [], []
    for k in range(1, min(MAX_LAGS, (count - 1) // lag) + 1):
        valid = runs[k * lag :] == runs[: -k * lag]
        if k > 1 and 2 * valid.sum() < count:
            break
        rows, blocks = block[: len(valid)], int(block[-1]) + 1
        product = y[k * lag :] * y[: -k * lag].conj() * valid
        real, imaginary = (np.bincount(rows, p, blocks) for p in (product.real, product.imag))
        sums.append(real + 1j * imaginary)
        counts.append(np.bincount(rows, valid, blocks))
    return np.stack(sums, 1), np.stack(counts, 1)


def _memory(autocorrelation: Array, period: float, rows: int) -> int:
    """Return the number of lags before autocorrelations stay small for a period."""
    least = max(MIN_AUTOCORRELATION, STANDARD_ERRORS / math.sqrt(rows), autocorrelation[0] / math.e)
    large = np.append(0, np.flatnonzero(autocorrelation >= least) + 1)
    last = int(large[(np.diff(large, append=math.inf) > period).argmax()])
    return len(autocorrelation) if 0 < len(autocorrelation) - period < last else last


def _climb(start: float, spectra: Complex, step: float) -> Array:
    """Return the angles of the peaks (R,) next to a start, by Newton's method."""
    k = np.arange(1, spectra.shape[1] + 1)
    angles = np.full(len(spectra), start)
    for _ in range(NEWTON_STEPS):
        turned = spectra * np.exp(-1j * angles[:, None] * k)
        slope, curvature = (turned.imag * k).sum(1), -(turned.real * k**2).sum(1)
        change = -slope / np.where(curvature < 0, curvature, -np.inf)
        angles += change.clip(-2 * step, 2 * step)
    return angles
