"""Align codes with factors that are independent and not normal."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from isolatent.checks import check_integer
from isolatent.encoders.linear_axes import (
    MIN_COSINE,
    Axes,
    block_of,
    check_codes,
    connected_blocks,
    describe_blocks,
    has_enough_rows,
    unidentified_axes,
    whiten,
)

__all__ = ["find_dependence", "find_independent_axes"]

MAX_ROWS = 20_000  # rows that determine and check independent axes
STARTS, SWEEPS, TOLERANCE = 2, 200, 1e-7  # of FastICA
NORMAL_LOGCOSH = 0.374567  # E log cosh of a standard normal variable
ORDERS, SHIFTS = 5, 12  # cosines of the rank of a code, and surrogates without dependence
MAX_DEPENDENCE = 0.09  # share of the point-symmetric information after a rotation by 45 degrees
MAX_INFORMATION = 0.7  # the same share of all information
MIN_INFORMATION = 0.02  # nats, of codes that depend on each other beyond an encoder's errors
MIN_EVIDENCE = 4.0  # standard errors by which a rotation by 45 degrees must be detected
BATCHES, MIN_SCORE, MIN_NEGENTROPY = 40, 3.0, 1e-3  # of codes that are not normal
Array = NDArray[np.float64]


def find_independent_axes(h: Any, h_pos: Any = None, *, seed: int = 0) -> Axes:
    r"""Find axes along which codes are independent and not normal, and check them.

    .. math:: y = R\, C^{-1/2} (h - \bar h), \qquad
        R = \arg\max_{R R^\top = 1} \sum_k \big(E \log\cosh y_k - E \log\cosh \nu\big)^2

    with the covariance C of the codes and a standard normal ν; FastICA solves it. Three checks
    decide which axes are joined into a block.

    - Codes are not normal: two or more that held-out rows do not tell from normal ones are joined.
    - Axes are stable: an axis that both halves of the rows do not find again, up to an absolute
      cosine of 0.95, is joined with those it mixes with.
    - Codes are independent: the mutual information of two codes, from their ranks, is compared with
      that after a rotation by 45 degrees in their plane. The share is 0 for independent codes that
      are not normal, 1 on a sphere, and in between for dependent factors. Of the point-symmetric
      information, to which dependent factors contribute more than an encoder's errors do, the share
      must be below 0.09, one standard error included; of all information, below 0.7.

    References:
        P. Comon, "Independent component analysis, a new concept?", Signal Processing 36, 1994.
        A. Hyvärinen, "Fast and robust fixed-point algorithms for independent component analysis",
        IEEE Transactions on Neural Networks 10, 1999.

    Args:
        h: Codes (N, n), in time order if they come from a recording.
        h_pos: Codes of positives, which are used as further codes.
        seed: Seed of the initial axes.

    Example:
        >>> z = torch.rand(5000, 3, generator=torch.Generator().manual_seed(1))
        >>> h = z @ torch.tensor([[1.0, 0.5, 0.2], [-0.5, 1.0, 0.0], [0.3, 0.0, 1.0]])
        >>> find_independent_axes(h).blocks
        ((0,), (1,), (2,))
        >>> find_independent_axes(2**0.5 * torch.erfinv(2 * z - 1)).separates  # normal
        False
    """
    check_integer("seed", seed, at_least=0)
    codes = check_codes("h", h)
    if h_pos is not None:
        positives = check_codes("h_pos", h_pos, codes.shape)
        codes = np.stack([codes, positives], 1).reshape(-1, codes.shape[1])
    n = codes.shape[1]
    if n == 1 or not has_enough_rows(codes):
        return unidentified_axes("ica", codes)
    shift, whitening = whiten(codes)
    chosen = np.linspace(0, len(codes) - 1, min(len(codes), MAX_ROWS)).astype(int)
    x = (codes[chosen] - shift) @ whitening
    half = len(x) // 2
    rotation, others, converged = _fit_rotations(x, seed)
    rotation = _nearest_order(rotation, whitening)
    parts = [_match(rotation, other) for other in others]
    cosines = np.stack([rotation @ part.T for part in parts])
    held_out = np.concatenate([x[:half] @ parts[1].T, x[half:] @ parts[0].T])
    normal = _look_normal(held_out)
    joined, worst = _look_dependent(x @ rotation.T)
    joined |= np.outer(normal, normal) | _look_unstable(cosines)
    blocks = connected_blocks(joined)
    stability = tuple(min(_subspace_cosine(c, b) for c in cosines) for b in block_of(blocks, n))
    reason = (
        f"{describe_blocks(blocks, n)}: {int(normal.sum())} of {n} codes look normal, the least "
        f"stable axis has a cosine of {np.abs(np.diagonal(cosines, 0, 1, 2)).min():.2f} with that "
        f"from half of the rows, and two codes share up to {100 * worst:.0f} % of the information "
        f"that they share after a rotation by 45 degrees"
    )
    if not converged:
        reason += "; FastICA did not converge"
    return Axes(
        "ica",
        torch.from_numpy(rotation @ whitening.T),
        torch.from_numpy(shift),
        blocks,
        stability,
        reason,
    )


def _fit_rotations(x: Array, seed: int) -> tuple[Array, list[Array], bool]:
    """Return independent axes of whitened codes and of each half, and whether FastICA converged.

    FastICA finds local maxima of the contrast. So all rows are also fitted from the axes of the
    halves, and the halves from those of all rows; the other half then decides between two maxima.
    """
    halves = x[: len(x) // 2], x[len(x) // 2 :]
    (whole, converged), *own = (_rotate(part, seed) for part in (x, *halves))
    for start, _ in own:
        if _contrast(x @ start.T) > _contrast(x @ whole.T):
            whole = _rotate(x, seed, start)[0]
    rotations = []
    for (first, _), rows, others in zip(own, halves, halves[::-1], strict=True):
        second = _rotate(rows, seed, whole)[0]
        rotations.append(max((first, second), key=lambda r: _contrast(others @ r.T)))
    return whole, rotations, converged


def _rotate(x: Array, seed: int, start: Array | None = None) -> tuple[Array, bool]:
    """Return independent axes of nearly whitened codes as rows, and whether FastICA converged.

    A part of whitened codes is whitened itself: its variances would count as contrast.
    """
    shift, whitening = whiten(x)
    white = (x - shift) @ whitening
    for attempt in range(STARTS):
        ica = FastICA(
            whiten=False,
            max_iter=SWEEPS,
            tol=TOLERANCE,
            w_init=start,
            random_state=(seed + attempt) % 2**32,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            ica.fit(white)
        converged = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
        if converged or start is not None:
            break
    left, _, right = np.linalg.svd(ica.components_ @ whitening)  # the nearest orthonormal rows
    return left @ right, converged


def _contrast(y: Array) -> float:
    """Return the contrast that FastICA maximises: squared deviations from normal codes."""
    y = (y - y.mean(0)) / y.std(0)
    logcosh = np.logaddexp(y, -y).mean(0) - math.log(2)
    return float(np.square(logcosh - NORMAL_LOGCOSH).sum())


def _match(axes: Array, others: Array) -> Array:
    """Return the other axes in the order and with the signs that are nearest to the axes."""
    cosines = axes @ others.T
    order = optimize.linear_sum_assignment(-np.abs(cosines))[1]
    signs = np.sign(cosines[np.arange(len(axes)), order])
    return others[order] * np.where(signs == 0, 1, signs)[:, None]


def _nearest_order(axes: Array, whitening: Array) -> Array:
    """Return the axes such that each new code correlates with the code in its place."""
    root = np.linalg.inv(whitening)
    correlations = root / np.linalg.norm(root, axis=1, keepdims=True)
    return _match(correlations, axes)


def _subspace_cosine(cosines: Array, block: tuple[int, ...]) -> float:
    """Return the least cosine between two subspaces, from those between their axes."""
    smallest = np.linalg.svd(cosines[np.ix_(block, block)], compute_uv=False)[-1]
    return float(min(smallest, 1.0))


def _look_unstable(cosines: Array) -> NDArray[np.bool_]:
    """Return which axes (n, n) to join: unstable ones, each with those that it mixes with."""
    n = cosines.shape[-1]
    joined = np.zeros((n, n), dtype=bool)
    for cosine in np.abs(cosines):
        for k in np.flatnonzero(np.diag(cosine) < MIN_COSINE):
            mixed = np.maximum(cosine[k], cosine[:, k])
            mixed[k] = 0
            joined[k] |= mixed >= min(mixed.max(), math.sqrt((1 - MIN_COSINE**2) / n))
    return joined | joined.T


def _look_normal(y: Array) -> NDArray[np.bool_]:
    r"""Return which columns cannot be told from normal ones.

    Negentropy is estimated as in Hyvärinen (1998), robust to outliers,

    .. math:: k_1 (E\, y e^{-y^2/2})^2 + k_2 (E\, e^{-y^2/2} - \sqrt{1/2})^2

    and the standard errors of the two means come from contiguous batches, since rows of a recording
    are dependent.
    """
    y = (y - y.mean(0)) / y.std(0)
    bell = np.exp(-(y**2) / 2)
    # The second terms are the effects of standardising by an estimated mean and variance.
    odd = y * bell - y * np.mean((1 - y**2) * bell, 0)
    even = bell - math.sqrt(0.5) + (y**2 - 1) / 2 * np.mean(y**2 * bell, 0)
    scores, negentropy = np.zeros(y.shape[1]), np.zeros(y.shape[1])
    for terms, weight in (
        (odd, 36 / (8 * math.sqrt(3) - 9)),
        (even, 24 / (16 * math.sqrt(3) - 27)),
    ):
        means = np.stack([part.mean(0) for part in np.array_split(terms, BATCHES)])
        scores = np.maximum(scores, np.abs(means.mean(0)) / means.std(0) * math.sqrt(BATCHES))
        negentropy += weight * terms.mean(0) ** 2
    return (scores < MIN_SCORE) | (negentropy < MIN_NEGENTROPY)


def find_dependence(y: Array) -> NDArray[np.bool_]:
    """Return which pairs of codes (n, n) surely depend on each other, beyond an encoder's errors.

    Codes of which nothing is shown, such as normal ones, do not count as dependent.
    """
    information, rotated, error = _compare_with_rotation(y)
    sure = information[0] > np.maximum(MIN_INFORMATION, MIN_EVIDENCE * error[0])
    dependent = sure & (information[0] > MAX_DEPENDENCE * rotated[0])
    np.fill_diagonal(dependent, False)
    return dependent


def _look_dependent(y: Array) -> tuple[NDArray[np.bool_], float]:
    """Return which codes (n, n) are not shown to be independent, and the largest share."""
    information, rotated, error = _compare_with_rotation(y)
    limits = np.array([MAX_DEPENDENCE, MAX_INFORMATION])[:, None, None]
    joined = information + error > limits * rotated
    joined = joined.any(0) | (rotated[0] < MIN_EVIDENCE * error[0])
    np.fill_diagonal(joined, False)
    shares = information[0] / np.maximum(rotated[0], np.maximum(error[0], 1e-12))
    return joined, float(np.clip(shares[~np.eye(len(joined), dtype=bool)].max(), 0, 1))


def _compare_with_rotation(y: Array) -> tuple[Array, Array, Array]:
    """Return information (2, n, n) of codes, that after a rotation by 45 degrees, and its error.

    The bias and the standard error of information come from circular shifts of one code against
    the other, which keep the dependence of neighbouring rows of a recording.
    """
    count, n = y.shape
    cosines = _rank_cosines(y)
    information = _information(cosines, cosines)
    shifts = np.linspace(0.1, 0.9, SHIFTS) * count
    surrogates = np.stack(
        [_information(cosines, np.roll(cosines, int(s), 0)) for s in shifts]
    )  # (shifts, 2, n, n)
    surrogates = np.concatenate([surrogates, surrogates.swapaxes(2, 3)])
    bias, error = surrogates.mean(0), surrogates.std(0)
    rotated = np.zeros_like(information)
    for i, j in zip(*np.triu_indices(n, 1), strict=True):
        plane = _rank_cosines(np.stack([y[:, i] + y[:, j], y[:, i] - y[:, j]], 1))
        rotated[:, i, j] = rotated[:, j, i] = _information(plane, plane)[:, 0, 1]
    return information - bias, rotated - bias, error


def _rank_cosines(y: Array) -> NDArray[np.float32]:
    r"""Return :math:`\sqrt2 \cos(\pi a u)` (N, n ORDERS) of the ranks u of each code."""
    count, n = y.shape
    ranks = (y.argsort(0).argsort(0) + 0.5) / count
    orders = np.arange(1, ORDERS + 1)
    table = math.sqrt(2) * np.cos(np.pi * ranks[..., None].astype(np.float32) * orders)
    return table.reshape(count, n * ORDERS).astype(np.float32)


def _information(cosines: NDArray[np.float32], others: NDArray[np.float32]) -> Array:
    """Return mutual information (2, n, n) of codes: its point-symmetric part, and all.

    To second order it is half the sum of the squared coefficients of the density of the ranks.
    Those of cosines whose orders have an even sum do not change if both codes change their sign.
    """
    n = cosines.shape[1] // ORDERS
    joint = (cosines.T @ others).astype(np.float64).reshape(n, ORDERS, n, ORDERS) / len(cosines)
    order = np.arange(ORDERS)
    even = (order[:, None] + order) % 2 == 0
    return np.stack([np.einsum("iajb,ab->ij", joint**2, part) / 2 for part in (even, even | True)])
