"""Align codes with factors that relax or oscillate at rates of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from isolatent.checks import check_integer, check_real
from isolatent.encoders.cycles import measure_cycle
from isolatent.encoders.independence import MAX_ROWS, find_dependence
from isolatent.encoders.linear_axes import (
    MIN_COSINE,
    Axes,
    Dynamics,
    block_of,
    check_codes,
    connected_blocks,
    describe_blocks,
    has_enough_rows,
    unidentified_axes,
    whiten,
)

__all__ = ["find_dynamic_axes"]

INSTRUMENTS = 4  # earlier observations, at multiples of the lag, that predict the present one
MIN_AUTOCORRELATION = 0.1  # of all directions, for earlier observations to serve as instruments
RESAMPLES = 400
MIN_BLOCKS, MAX_BLOCKS = 20, 400  # contiguous blocks of rows to resample
TIME_SCALES = 5  # per block
MIN_GAP = 4.0  # standard errors between eigenvalues that count as different
WILDEST = 0.975  # share of resamples whose deviations count in full
RESOLUTION = 1e-6  # difference of eigenvalues up to which codes in float32 have equal ones
Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


def find_dynamic_axes(
    h: Any,
    *,
    lag: int = 1,
    groups: Any = None,
    h_pos: Any = None,
    seed: int = 0,
    interval: float = 1.0,
    unit: str = "rows",
) -> Axes:
    r"""Find axes along which codes relax or oscillate at rates of their own.

    Codes :math:`h = B y + s` of factors with linear dynamics
    :math:`E[y(t + \tau) \mid y(t)] = \Lambda y(t)` have the lagged covariances

    .. math:: C_{k+1} = A\, C_k, \qquad C_k = E\, h(t + k\tau)\, h(t)^\top, \qquad
        A = B \Lambda B^{-1}

    so A has the eigenvalues of Λ, and its left eigenvectors are the rows of :math:`B^{-1}`. Errors
    of the codes that are white in time add to :math:`C_0` only. Therefore A is estimated from the
    equations with :math:`k \ge 1`, with weights that make it the regression of the next observation
    on the present one with up to four earlier ones as instruments. If these predict some direction
    too weakly, or if there are only pairs, A is the one-lag regression :math:`C_1 C_0^{-1}`, whose
    moduli such errors lower.

    Errors that are not white bias both. Those of a cycle are its harmonics, which codes hold in
    part. The frequencies of cycles that last for more than a period are therefore taken from all
    lags that they last for, see :mod:`isolatent.encoders.cycles`.

    Contiguous blocks of rows are resampled 400 times. Eigenvalues count as different if they are
    four standard errors apart; axes, if resampling turns them by an absolute cosine of 0.95 at
    most. Real eigenvalues yield single axes, a complex pair a block of two, and equal ones a block.
    Every matrix has eigenvectors, those of factors that drive each other, too. So axes whose codes
    surely depend on each other are joined; normal codes pass this check whatever their factors are.

    References:
        L. Tong, V. Soon, Y. Huang and R. Liu, "AMUSE: a new blind identification algorithm",
        ISCAS 1990.
        A. Belouchrani, K. Abed-Meraim, J.-F. Cardoso and E. Moulines, "A blind source separation
        technique using second-order statistics", IEEE Transactions on Signal Processing 45, 1997.

    Args:
        h: Codes (T, n) of a recording in time order, or of the earlier members of pairs.
        lag: Rows between an observation and the next, τ.
        groups: Session of each row (T,); rows of different sessions are not compared.
        h_pos: Codes of the later members of pairs, if h is not a recording.
        seed: Seed of the resampling.
        interval: Time from a row to the next, by which time scales and periods are multiplied.
        unit: Unit of this time. Those of pairs are in steps from h to h_pos.

    Returns:
        Axes with the slowest codes first, and their dynamics.

    Example:
        >>> z, noise = np.zeros((5000, 2)), np.random.default_rng(0).normal(size=(5000, 2))
        >>> for t in range(1, 5000):
        ...     z[t] = np.array([0.9, 0.5]) * z[t - 1] + noise[t]
        >>> axes = find_dynamic_axes(z @ [[1.0, 0.5], [-0.5, 1.0]], lag=1)
        >>> axes.blocks, [round(modulus, 1) for modulus in axes.dynamics.moduli]
        (((0,), (1,)), [0.9, 0.5])
    """
    check_integer("lag", lag, at_least=1)
    check_integer("seed", seed, at_least=0)
    interval = check_real("interval", interval, above=0)
    codes = check_codes("h", h)
    runs = _check_groups(groups, len(codes))
    positives = None
    if h_pos is not None:
        if groups is not None:
            raise ValueError("groups must be None if h_pos is given: pairs are not compared")
        positives = check_codes("h_pos", h_pos, codes.shape)
    elif not (runs[lag:] == runs[:-lag]).any():
        raise ValueError(f"lag must be shorter than the longest session of h, got {lag}")
    if not has_enough_rows(codes):
        return unidentified_axes("dynamics", codes)
    pooled = codes if positives is None else np.concatenate([codes, positives])
    shift, whitening = whiten(pooled)
    if positives is None:
        x = (codes - shift) @ whitening
        moments = _recording_moments(x, runs, lag)
    else:
        ends = [(part - part.mean(0)) @ whitening for part in (codes, positives)]
        moments = _pair_moments(*ends)
    weights = _resample(moments.blocks, seed)
    estimate, resampled, note = _regress(moments, weights)
    if positives is None:
        estimate, resampled, lags = _refine_cycles(
            estimate, resampled, x, runs=runs, lag=lag, length=moments.length, weights=weights
        )
        if lags:
            rows = " and ".join(str(lag * count) for count in lags)
            note += f", frequencies of cycles are from lags of up to {rows} rows"
    blocks, stability, basis, dynamics = _separate(
        estimate, resampled, lag, moments.blocks, (pooled - shift) @ whitening
    )
    if positives is None:
        dynamics = replace(dynamics, unit=unit, interval=interval)
    else:
        dynamics = replace(dynamics, unit="steps")
    reason = f"{describe_blocks(blocks, len(shift))}: {_describe(dynamics)}; {note}, {moments.note}"
    return Axes(
        "dynamics",
        torch.from_numpy(basis @ whitening.T),
        torch.from_numpy(shift),
        blocks,
        stability,
        reason,
        dynamics,
    )


@dataclass(frozen=True)
class _Moments:
    """Sums of :math:`x(t + k τ) x(t)^T`, (blocks, k, n, n), and their numbers of terms."""

    sums: Array
    counts: Array
    note: str
    length: int  # rows per block

    @property
    def blocks(self) -> int:
        return len(self.sums)

    def covariances(self, weights: Array) -> Array:
        """Return lagged covariances (resamples, k, n, n) for weights (resamples, blocks)."""
        totals = np.tensordot(weights, self.sums, 1)
        return totals / np.maximum(weights @ self.counts, 1)[..., None, None]


def _check_groups(groups: Any, count: int) -> NDArray[np.int64]:
    """Return the number of the session of each row: of each run of equal groups."""
    if groups is None:
        return np.zeros(count, dtype=np.int64)
    ids = np.asarray(groups)
    if ids.shape != (count,):
        raise ValueError(f"groups must have the shape ({count},), got {ids.shape}")
    return np.concatenate([[0], np.cumsum(ids[1:] != ids[:-1])])


def _recording_moments(x: Array, runs: NDArray[np.int64], lag: int) -> _Moments:
    """Return lagged products of whitened codes (T, n), summed over contiguous blocks of rows."""
    count = len(x)
    shares = [(runs[k * lag :] == runs[: -k * lag]).mean() * (1 - k * lag / count)
              for k in range(1, INSTRUMENTS + 2) if k * lag < count]  # fmt: skip
    lags = max(1, sum(share >= 0.5 for share in shares))
    whole = _block_sums(x, runs, lag, lags, count)
    sizes = np.linalg.norm(whole.covariances(np.ones((1, 1)))[0], 2, axis=(1, 2))
    first = 1 if lags > 1 else 0  # white errors lower all lagged covariances by the same factor
    decay = min((sizes[-1] / sizes[first]) ** (1 / (lags - first)), 1 - 1 / count)
    wanted = max(TIME_SCALES * -lag / math.log(max(decay, 1e-6)), lag, count / MAX_BLOCKS)
    length = max(1, math.ceil(min(wanted, count / MIN_BLOCKS)))
    note = f"{math.ceil(count / length)} blocks of {length} rows resampled"
    if length < wanted:
        note += f" although the slowest codes call for {math.ceil(wanted)} rows, so intervals may "
        note += "be too short"
    sums = _block_sums(x, runs, lag, lags, length)
    return _Moments(sums.sums, sums.counts, note, length)


def _block_sums(x: Array, runs: NDArray[np.int64], lag: int, lags: int, length: int) -> _Moments:
    count, n = x.shape
    blocks = -(-count // length)
    sums, counts = np.zeros((blocks, lags + 1, n, n)), np.zeros((blocks, lags + 1))
    for k in range(lags + 1):
        valid = runs[k * lag :] == runs[: count - k * lag]
        now, later = np.zeros((2, blocks * length, n))
        now[: len(valid)] = x[: len(valid)] * valid[:, None]
        later[: len(valid)] = x[k * lag :]
        now, later = (part.reshape(blocks, length, n) for part in (now, later))
        sums[:, k] = later.swapaxes(1, 2) @ now
        counts[:, k] = np.bincount(np.arange(len(valid)) // length, valid, blocks)
    return _Moments(sums, counts, "", length)


def _pair_moments(x: Array, x_pos: Array) -> _Moments:
    """Return products of pairs of whitened codes, summed over groups of pairs."""
    block = np.arange(len(x)) * min(len(x), MAX_BLOCKS) // len(x)
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    products = [np.add.reduceat(part[:, :, None] * x[:, None], starts) for part in (x, x_pos)]
    counts = np.bincount(block).astype(np.float64)
    sums, numbers = np.stack(products, 1), np.stack([counts, counts], 1)
    return _Moments(sums, numbers, "pairs resampled", -(-len(x) // len(counts)))


def _resample(blocks: int, seed: int) -> Array:
    """Return how often each block is drawn (resamples, blocks)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES).astype(np.float64)


def _regress(moments: _Moments, weights: Array) -> tuple[Array, Array, str]:
    """Return A, resampled ones (resamples, n, n), and how they were estimated."""
    covariances = moments.covariances(np.concatenate([np.ones((1, moments.blocks)), weights]))
    # Singular values of whitened C1 are the canonical autocorrelations.
    roots = np.linalg.inv(np.linalg.cholesky(covariances[:, 0]))
    autocorrelations = np.linalg.svd(
        roots @ covariances[:, 1] @ roots.swapaxes(1, 2), compute_uv=False
    )
    weakest = float(np.quantile(autocorrelations[:, -1], 0.025))
    if covariances.shape[1] > 2 and weakest > MIN_AUTOCORRELATION:
        matrices = _instrumental_regression(covariances)
        note = "white errors of the codes do not bias these numbers"
    else:
        matrices = covariances[:, 1] @ np.linalg.inv(covariances[:, 0])
        note = "one-lag regression, which white errors of the codes attenuate"
        if covariances.shape[1] > 2:
            note += f", since the least autocorrelation may be as low as {weakest:.2f}"
    return matrices[0], matrices[1:], note


def _instrumental_regression(covariances: Array) -> Array:
    r"""Return A from lagged covariances (resamples, k, n, n), by two-stage least squares.

    With the instruments :math:`z = (h(t - \tau), \dots, h(t - K \tau))` it is
    :math:`A = M G^{-1} N^\top (N G^{-1} N^\top)^{-1}`, where :math:`M = E\, h(t + \tau) z^\top`,
    :math:`N = E\, h(t) z^\top` and :math:`G = E\, z z^\top`.
    """
    count = covariances.shape[1] - 2
    lagged = [covariances[:, k] for k in range(count + 2)]
    following, present = (np.concatenate(lagged[k : k + count], 2) for k in (2, 1))
    rows = [
        np.concatenate(
            [lagged[k - j] if k >= j else lagged[j - k].swapaxes(1, 2) for k in range(count)], 2
        )
        for j in range(count)
    ]
    projected = np.linalg.solve(np.concatenate(rows, 1), present.swapaxes(1, 2))
    return (following @ projected) @ np.linalg.inv(present @ projected)


def _refine_cycles(
    estimate: Array,
    resampled: Array,
    x: Array,
    *,
    runs: NDArray[np.int64],
    lag: int,
    length: int,
    weights: Array,
) -> tuple[Array, Array, list[int]]:
    """Return A and resampled ones with frequencies from many lags, and the numbers of lags.

    The axes of A, the moduli of its eigenvalues, and what resampling changes of both, are kept.
    """
    values, left = _left_eigenvectors(estimate)
    changed = left @ resampled @ np.linalg.inv(left)
    refined, lags = values.copy(), []
    for code in np.flatnonzero(values.imag > 0):
        partner = int(np.abs(values - values[code].conj()).argmin())
        found = measure_cycle(
            *(x @ left[code], float(np.angle(values[code]))),
            runs=runs,
            lag=lag,
            length=length,
            weights=weights,
        )
        if found is None:
            continue
        lags.append(found.lags)
        turned = np.abs(changed[:, code, code]) * np.exp(1j * found.resampled)
        refined[code] = abs(values[code]) * np.exp(1j * found.angle)
        refined[partner] = refined[code].conj()
        changed[:, code, code], changed[:, partner, partner] = turned, turned.conj()
    if not lags:
        return estimate, resampled, lags
    back = np.linalg.inv(left)
    return ((back * refined) @ left).real, (back @ changed @ left).real, lags


def _separate(
    estimate: Array, resampled: Array, lag: int, blocks: int, x: Array
) -> tuple[tuple[tuple[int, ...], ...], tuple[float, ...], Array, Dynamics]:
    r"""Return blocks of codes, their stability, their axes among whitened codes, and dynamics.

    Resampled matrices, in the eigenbasis of the estimate, deviate from a diagonal matrix by Δ. To
    first order :math:`\Delta_{ii}` is the deviation of an eigenvalue, and
    :math:`\Delta_{ij} / (\lambda_i - \lambda_j)` the share of axis j that axis i gains.
    """
    values, left = _left_eigenvectors(estimate)
    deviations = left @ resampled @ np.linalg.inv(left) - np.diag(values)
    joined, mixing = _look_equal(values, deviations)
    joined |= _look_dependent(left, connected_blocks(joined), x)
    found = connected_blocks(joined)
    found = tuple(sorted(found, key=lambda block: -abs(values[list(block)]).max()))
    order = [code for block in found for code in block]
    starts = np.cumsum([0, *map(len, found)])
    renumbered = tuple(tuple(range(s, s + len(b))) for s, b in zip(starts, found, strict=False))
    stability = [_stability(mixing, block) for block in block_of(found, len(values))]
    basis = np.concatenate([_real_basis(left[list(block)]) for block in found])
    values, deviations = values[order], np.diagonal(deviations, 0, 1, 2)[:, order]
    wide = stats.t(blocks - 1).ppf(0.975) * math.sqrt(blocks / (blocks - 1))
    turned = 1 + deviations / np.where(values == 0, 1, values)
    radius, angle = np.abs(values), np.abs(np.angle(values))
    turned_by, grown_by = np.angle(turned), np.abs(values + deviations)
    radius_error = wide * _typical_size(grown_by - grown_by.mean(0))
    angle_error = wide * _typical_size(turned_by - turned_by.mean(0)) * (values.imag != 0)
    white = np.abs(values) <= wide * _typical_size(deviations)
    radius_error = np.where(white, np.maximum(radius_error, radius), radius_error)
    angle, angle_error = np.where(white, 0, angle), np.where(white, math.pi, angle_error)
    dynamics = Dynamics(
        matrix=tuple(map(tuple, (basis @ estimate @ np.linalg.inv(basis)).tolist())),
        moduli=tuple(radius.tolist()),
        moduli_intervals=_intervals(radius, radius_error, math.inf),
        angles=tuple(angle.tolist()),
        angles_intervals=_intervals(angle, angle_error, math.pi),
        lag=lag,
    )
    return renumbered, tuple(stability[code] for code in order), basis, dynamics


def _typical_size(deviations: Complex | Array) -> Array:
    """Return the root mean square of resampled deviations, without that of the wildest.

    Instruments may be weak in a few resamples, whose matrices are then arbitrary.
    """
    sizes = np.abs(deviations)
    limited = np.minimum(sizes, np.quantile(sizes, WILDEST, axis=0))
    return np.sqrt(np.mean(limited**2, 0))


def _look_dependent(
    left: Complex, blocks: tuple[tuple[int, ...], ...], x: Array
) -> NDArray[np.bool_]:
    """Return which axes (n, n) of different blocks to join, since their codes are dependent."""
    basis = np.concatenate([_real_basis(left[list(block)]) for block in blocks])
    members = [code for block in blocks for code in block]
    home = block_of(blocks, len(left))
    joined = np.zeros((len(left), len(left)), dtype=bool)
    rows = np.linspace(0, len(x) - 1, min(len(x), MAX_ROWS)).astype(int)
    for i, j in zip(*np.nonzero(find_dependence(x[rows] @ basis.T)), strict=True):
        joined[members[i], members[j]] = home[members[i]] != home[members[j]]
    return joined | joined.T


def _left_eigenvectors(matrix: Array) -> tuple[Complex, Complex]:
    """Return eigenvalues, the largest first, and unit left eigenvectors as rows."""
    values, vectors = np.linalg.eig(matrix.T)
    order = np.lexsort([-values.imag, -np.abs(values).round(12)])
    return values[order].astype(np.complex128), vectors.T[order].astype(np.complex128)


def _look_equal(values: Complex, deviations: Complex) -> tuple[NDArray[np.bool_], Array]:
    """Return which axes to join, and the root mean square share that each gains of the others."""
    n = len(values)
    gaps = np.abs(values[:, None] - values) + 1e-12
    own = np.diagonal(deviations, 0, 1, 2)
    errors = _typical_size(own[:, :, None] - own[:, None])
    mixing = _typical_size(deviations) / gaps
    np.fill_diagonal(mixing, 0)
    conjugate = (np.abs(values[:, None] - values.conj()) < 1e-9) & (values.imag != 0)
    joined = conjugate | (gaps < np.maximum(MIN_GAP * errors, RESOLUTION))
    np.fill_diagonal(joined, False)
    for _ in range(n):  # join the least stable block with that which it mixes with most
        members = block_of(connected_blocks(joined), n)
        stability = [_stability(mixing, block) for block in members]
        worst = int(np.argmin(stability))
        if stability[worst] >= MIN_COSINE or len(members[worst]) == n:
            break
        inside = np.isin(np.arange(n), members[worst])
        shares = mixing[inside].max(0) * ~inside
        joined[worst, int(np.argmax(shares))] = True
    return joined, mixing


def _stability(mixing: Array, block: tuple[int, ...]) -> float:
    """Return the cosine by which a block turns, given the shares that it gains of other axes."""
    outside = np.delete(mixing[list(block)], list(block), axis=1)
    return float(1 / np.sqrt(1 + (outside**2).sum(1).max())) if outside.size else 1.0


def _real_basis(vectors: Complex) -> Array:
    """Return orthonormal rows that span those vectors and their conjugates."""
    if len(vectors) == 1:
        return vectors.real
    spanned = np.concatenate([vectors.real, vectors.imag])
    return np.linalg.svd(spanned)[2][: len(vectors)]


def _intervals(centre: Array, error: Array, largest: float) -> tuple[tuple[float, float], ...]:
    low, high = np.maximum(centre - error, 0), np.minimum(centre + error, largest)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def _describe(dynamics: Dynamics) -> str:
    """Return time scales and periods, in words."""
    slowest = ", ".join(f"{scale:.3g}" for scale in dynamics.time_scales).replace("inf", "∞")
    text = f"time scales of {slowest} {dynamics.unit}"
    bounds = zip(dynamics.periods, dynamics.angles_intervals, strict=True)
    periods = {f"{period:.3g}" for period, (low, _) in bounds if low > 0}
    return text + (f", periods of {', '.join(sorted(periods))} {dynamics.unit}" if periods else "")
