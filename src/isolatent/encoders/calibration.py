"""Calibrate a trained encoder: maps of its codes that are estimated from pairs after training.

Each map has two estimates. ``fit`` estimates it from all pairs. ``fit_if_supported`` estimates it
from one half of the pairs and keeps it only if the other half confirms it: calibrated codes must
fit the assumed conditional significantly better than uncalibrated ones, pair by pair.
"""

from __future__ import annotations

import math
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from scipy import optimize, special, stats
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = ["PrincipalAxes", "Straightening", "box_share", "fit_narrow_normal", "implied_range"]

STANDARD_ERRORS = 3.0  # by which a held-out gain must exceed zero
TAIL = 0.05  # quantiles TAIL and 1 - TAIL determine the range that uniformity implies
EXTREME = 0.005  # share of codes at each end that may lie beyond a box
WALL_STEPS, WALL_PLACES = 512, 16  # quadrature of a step, and of its anchor within a piece
MAX_ANGLE = 0.1  # largest standard error, in radians, of an axis that counts as determined
SWAP_BLOCK, SWAPS = 2048, 8  # codes to search for near ones, and number of these
MAX_CENTRE = 0.1  # largest mean of uniform codes, in units of the deviation of a coordinate
ALTERNATE_PAIRS = (slice(0, None, 2), slice(1, None, 2))  # to estimate from, to check with
TRIM = 1e-3  # share of related pairs that the bound against unrelated pairs may drop


def _check_pairs(h: Tensor, h_pos: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return codes (N, n) of pairs on the CPU: not every device has float64."""
    if h.shape != h_pos.shape or h.ndim != 2 or h.shape[1] != n:
        raise ValueError(
            f"h and h_pos must have the same shape (N, {n}), "
            f"got {tuple(h.shape)} and {tuple(h_pos.shape)}"
        )
    return h.detach().cpu(), h_pos.detach().cpu()


def _quantiles(h: Tensor, *shares: float) -> list[Tensor]:
    """Return quantiles of each column: order statistics, for any number of rows."""
    ordered = h.sort(0).values
    return [ordered[round(share * (len(h) - 1))] for share in shares]


def implied_range(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends of the intervals on which columns with these quantiles are uniform."""
    low, high = _quantiles(h, TAIL, 1 - TAIL)
    return _extend(low, high)


def _extend(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    beyond = TAIL / (1 - 2 * TAIL) * (high - low)
    return low - beyond, high + beyond


def box_share(h: Tensor, side: float = 1.0) -> float:
    """Return the share of a box's side that codes (N, n) span, the least of all coordinates.

    The span is the distance of the 0.5 % and 99.5 % quantiles, divided by 0.99: uniform codes that
    fill their box have the share one.

    Args:
        h: Codes, before any map onto the box.
        side: The side of the box.

    Example:
        >>> h = torch.rand(10_000, 3, generator=torch.Generator().manual_seed(0))
        >>> round(box_share(h), 2), round(box_share(0.25 + 0.5 * h), 2)
        (1.0, 0.5)
    """
    low, high = _quantiles(h.detach(), EXTREME, 1 - EXTREME)
    return float((high - low).min()) / ((1 - 2 * EXTREME) * side)


def _significant(gains: Tensor, standard_errors: float = STANDARD_ERRORS) -> Tensor:
    """Return for each column of gains, one row per pair, whether its mean is surely positive."""
    error = gains.std(0) / math.sqrt(len(gains))
    return gains.mean(0) > standard_errors * error


class Straightening(nn.Module):
    r"""A monotone map of each coordinate that makes pairs equally distant everywhere.

    Let pairs come from a conditional :math:`\propto e^{-\lambda \sum_k |z'_k - z_k|^p}` on a unit
    box with a uniform marginal, and let codes be the factors up to a warp :math:`h_k = w_k(z_k)` of
    each. Then the local distance of pairs is proportional to :math:`w_k'`, and the map whose slope
    is the inverse of the median of :math:`|h'_k - h_k|` around :math:`h_k` inverts the warp.
    Medians, at both ends of a pair, are robust to unrelated pairs, whose share is the same
    everywhere. The walls of the box shorten steps next to them; the medians are corrected for that.

    Before :meth:`fit` the map is the identity. :meth:`fit` estimates it as piecewise linear, with
    equally many codes in each piece. The range is the one that uniformity implies: the 5 % and 95 %
    quantiles of the codes are mapped to 0.05 and 0.95, whatever the extremes are.

    Args:
        n: Number of codes.
        p: Power of the distance.
        pieces: Linear pieces of each map.

    Example:
        >>> z = torch.rand(20_000, 1)
        >>> z_pos = (z + 0.02 * torch.randn(20_000, 1)).clamp(0, 1)
        >>> straight = Straightening(1).fit(z**2, z_pos**2)
        >>> bool((straight(z**2) - z).abs().max() < 0.05)
        True
    """

    knots: Tensor
    values: Tensor

    def __init__(self, n: int, p: float = 2.0, pieces: int = 16) -> None:
        super().__init__()
        check_integer("n", n, at_least=1)
        self.p = check_real("p", p, at_least=1)
        self.pieces = check_integer("pieces", pieces, at_least=1)
        even = torch.linspace(0, 1, pieces + 1).repeat(n, 1)
        self.register_buffer("knots", even)
        self.register_buffer("values", even.clone())

    def fit(self, h: Tensor, h_pos: Tensor) -> Self:
        """Estimate the maps from codes (N, n) of pairs, in float64 on the CPU."""
        h, h_pos = _check_pairs(h, h_pos, len(self.knots))
        if len(h) < 10 * self.pieces:
            raise ValueError(
                f"h must have at least 10 rows for each of the {self.pieces} pieces, got {len(h)}"
            )
        ends = torch.cat([h, h_pos]).double()
        distance = (h - h_pos).double().abs().repeat(2, 1)
        order = ends.argsort(0)
        parts = order.tensor_split(self.pieces)
        local = torch.stack([distance.gather(0, part).median(0).values for part in parts], 1)
        edges = [ends.gather(0, part[:1]) for part in parts] + [ends.gather(0, order[-1:])]
        knots = torch.cat(edges).T
        if bool((local <= 0).any()) or bool((knots.diff(dim=1) <= 0).any()):
            raise ValueError("h and h_pos must differ, and vary, in every coordinate")
        tails = torch.stack(_quantiles(ends, TAIL, 1 - TAIL))
        shortened = torch.ones_like(local)
        for _ in range(3):  # what walls take depends on the width of steps, and the width on it
            rise = shortened / local * knots.diff(dim=1)
            values = nn.functional.pad(rise.cumsum(1), (1, 0))
            low, high = _extend(*_interpolate(tails, knots, values))
            steps = (1 / (high - low)).tolist()
            values = (values - low[:, None]) / (high - low)[:, None]
            shortened = torch.stack([_wall_factors(s, self.p, self.pieces) for s in steps])
        self.knots.copy_(knots.to(self.knots.dtype))
        self.values.copy_(values.to(self.values.dtype))
        return self

    def fit_if_supported(self, h: Tensor, h_pos: Tensor) -> str:
        r"""Estimate the maps that held-out pairs support, and leave the other coordinates alone.

        Maps are estimated from every second pair. On the others, a map :math:`g` must improve, by
        three standard errors, both the likelihood of steps of one width,
        :math:`\log f(g(h') - g(h)) + \log g'(h')`, where f includes a share of unrelated pairs,
        and the likelihood of uniform codes, :math:`\log g'(h)` and :math:`\log g'(h')`. If
        steps are not equally wide everywhere, straightening codes makes them less uniform.
        Supported maps are estimated again from all pairs.

        Args:
            h: Codes (N, n) of anchors, in random order.
            h_pos: Codes of their positives.

        Returns:
            What was done, in words.
        """
        n = len(self.knots)
        h, h_pos = (part.double() for part in _check_pairs(h, h_pos, n))
        trial = deepcopy(self).double()
        try:
            trial.fit(h[::2], h_pos[::2])
        except ValueError:  # too few pairs, or codes that do not vary
            return "codes not straightened: too few pairs, or codes that do not vary"
        gains = [
            trial._log_likelihoods(h[::2], h_pos[::2], h[1::2], h_pos[1::2], mapped)
            for mapped in (True, False)
        ]
        supported = torch.stack(
            [_significant(after - before) for after, before in zip(*gains, strict=True)]
        ).all(0)
        count = int(supported.sum())
        if count == 0:
            return "codes not straightened: held-out pairs do not support it"
        knots, values = self.knots.clone(), self.values.clone()
        self.fit(h, h_pos)
        self.knots[~supported], self.values[~supported] = knots[~supported], values[~supported]
        return f"{count} of {n} coordinates straightened"

    def _log_likelihoods(
        self, h: Tensor, h_pos: Tensor, new: Tensor, new_pos: Tensor, mapped: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-likelihoods of new pairs: of their steps, anchors and positives.

        Widths of steps, shares of unrelated pairs and ranges are estimated from the first pairs.
        """
        slope = slope_pos = torch.zeros_like(new)
        if mapped:
            slope, slope_pos = (self._log_slopes(part) for part in (new, new_pos))
            h, h_pos, new, new_pos = (self(part) for part in (h, h_pos, new, new_pos))
        low, high = implied_range(h)
        scale, share = _step_mixture((h - h_pos).abs() / (high - low), self.p)
        distance = (new - new_pos).abs() / (high - low)
        density = _mixture_density(distance, scale, share, self.p)
        steps = density.log() + slope_pos - (high - low).log()
        uniform = _uniform_log_density(h, new, slope)
        return steps, uniform, _uniform_log_density(h_pos, new_pos, slope_pos)

    def _log_slopes(self, h: Tensor) -> Tensor:
        piece = torch.searchsorted(self.knots[:, 1:-1].contiguous(), h.T.contiguous())
        slopes = self.values.diff(dim=1) / self.knots.diff(dim=1)
        return slopes.log().gather(1, piece).T

    def forward(self, h: Tensor) -> Tensor:
        """Map codes (N, n); the first and last pieces extend beyond the range of the fit."""
        return _interpolate(h, self.knots, self.values)


def _uniform_log_density(h: Tensor, new: Tensor, log_slopes: Tensor) -> Tensor:
    """Return log-densities of new codes, uniform between extreme quantiles of codes h.

    Codes beyond these quantiles, the same before and after a monotone map, do not count.
    """
    low, high = _quantiles(h, EXTREME, 1 - EXTREME)
    return (log_slopes - (high - low).log()) * ((new >= low) & (new <= high))


def _interpolate(h: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Map each column of h by the line through its knots and values (n, pieces + 1)."""
    columns = h.T.contiguous()
    piece = torch.searchsorted(knots[:, 1:-1].contiguous(), columns)
    low, high = knots.gather(1, piece), knots.gather(1, piece + 1)
    start, end = values.gather(1, piece), values.gather(1, piece + 1)
    return (start + (columns - low) / (high - low) * (end - start)).T


@lru_cache(maxsize=256)
def _step_quantiles(p: float) -> Tensor:
    """Return quantiles of |d| for a density ∝ exp(-|d|^p), divided by their median."""
    shares = np.append((np.arange(WALL_STEPS) + 0.5) / WALL_STEPS, 0.5)
    distances = special.gammaincinv(1 / p, shares) ** (1 / p)
    return torch.from_numpy(distances[:-1] / distances[-1])


def _wall_factors(step: float, p: float, pieces: int) -> Tensor:
    """Return the median distance of pairs with an end in each piece, relative to no walls.

    Pairs are those of the model: a uniform anchor in the unit interval, and a positive whose
    conditional, with the median distance ``step`` if there were no walls, is truncated to it.
    """
    distance = step * _step_quantiles(p)
    place = (torch.arange(pieces * WALL_PLACES, dtype=torch.float64) + 0.5) / (pieces * WALL_PLACES)

    def mass(anchor: Tensor) -> Tensor:
        inside = torch.searchsorted(distance, anchor) + torch.searchsorted(distance, 1 - anchor)
        return inside.clamp(min=1) / (2 * WALL_STEPS)

    weights = torch.zeros(len(place), WALL_STEPS, dtype=torch.float64)
    for sign in (-1, 1):
        other = place[:, None] + sign * distance
        inside = (other >= 0) & (other <= 1)
        weights += inside * (1 / mass(place)[:, None] + 1 / mass(other.clamp(0, 1).contiguous()))
    total = weights.view(pieces, WALL_PLACES, -1).sum(1).cumsum(1)
    middle = torch.searchsorted(total, 0.5 * total[:, -1:]).squeeze(1)
    return distance[middle.clamp(max=WALL_STEPS - 1)] / step


def _mixture_density(distance: Tensor, scale: Tensor, share: Tensor, p: float) -> Tensor:
    """Return densities of differences in the unit interval, a share of them of unrelated pairs."""
    constant = 2 * scale * math.gamma(1 + 1 / p)
    unrelated = (1 - distance).clamp(min=1e-3)  # the difference of two uniform numbers
    return (1 - share) * torch.exp(-((distance / scale) ** p)) / constant + share * unrelated


def _step_mixture(distance: Tensor, p: float, sweeps: int = 20) -> tuple[Tensor, Tensor]:
    """Fit the scales of steps, and shares of unrelated pairs, by expectation maximisation."""
    scale = distance.median(0).values / special.gammaincinv(1 / p, 0.5) ** (1 / p)
    share = torch.full_like(scale, 0.05)
    for _ in range(sweeps):
        constant = 2 * scale * math.gamma(1 + 1 / p)
        related = (1 - share) * torch.exp(-((distance / scale) ** p)) / constant
        related = related / _mixture_density(distance, scale, share, p)
        total = related.sum(0)
        scale = (p * (related * distance**p).sum(0) / total) ** (1 / p)
        share = (1 - total / len(distance)).clamp(1e-4, 0.5)
    return scale, share


class PrincipalAxes(nn.Module):
    r"""A rotation of codes on a sphere that makes their differences within pairs uncorrelated.

    For :math:`p(z' | z) \propto e^{-\frac12 \sum_k \lambda_k (z'_k - z_k)^2}` on a sphere with
    a uniform marginal, flipping the sign of a factor changes nothing, so
    :math:`E[(z' - z)(z' - z)^\top]` is diagonal, and its entries fall with λ. If codes are a
    rotation of the factors, the eigenvectors of :math:`E[(h' - h)(h' - h)^\top]` rotate them back,
    up to signs and up to rotations among factors of equal λ. Trained codes are a rotation up to an
    error, which would mix factors of similar λ. So they are whitened first, as uniform codes are
    already, and normalised to the sphere in the end.

    Eigenvalues :math:`l_i, l_j` that are too close for their number of pairs N, with a standard
    error :math:`\sqrt{l_i l_j / N} / |l_i - l_j|` of the angle above 0.1, form a block. Blocks are
    rotated against each other alone; within a block the axes stay as near as possible to those of
    the codes. Pairs much farther apart than most are left out.

    Before :meth:`fit` the map is the identity; afterwards blocks are sorted by λ, the largest
    first.

    Args:
        n: Number of codes.

    Example:
        >>> z = nn.functional.normalize(torch.randn(50_000, 3))
        >>> step = torch.randn(50_000, 3) * torch.tensor([0.3, 0.2, 0.1])
        >>> z_pos = nn.functional.normalize(z + step)
        >>> turn = torch.linalg.qr(torch.randn(3, 3))[0]
        >>> turned = PrincipalAxes(3).fit(z @ turn, z_pos @ turn)(z @ turn)
        >>> bool(torch.corrcoef(torch.stack([turned[:, 2], z[:, 0]]))[0, 1].abs() > 0.99)
        True
    """

    matrix: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(check_integer("n", n, at_least=1)))

    def fit(self, h: Tensor, h_pos: Tensor) -> Self:
        """Estimate the axes from codes (N, n) of pairs, N at least n, in float64 on the CPU."""
        n = len(self.matrix)
        h, h_pos = _check_pairs(h, h_pos, n)
        if len(h) < n:
            raise ValueError(f"h must have at least {n} rows, got {len(h)}")
        both = torch.cat([h, h_pos]).double()
        variances, directions = torch.linalg.eigh(both.mT @ both / len(both))
        if float(variances.min()) <= 0:
            raise ValueError("h and h_pos must vary in every direction")
        whiten = (directions * variances.rsqrt()) @ directions.mT
        differences = (h_pos - h).double() @ whiten
        differences = differences[_related(differences)]
        spread, axes = torch.linalg.eigh(differences.mT @ differences / len(differences))
        blocks = _blocks(spread, len(differences))
        matrix = whiten @ _nearest_axes(axes, blocks) if len(blocks) > 1 else torch.eye(n)
        self.matrix.copy_(matrix.to(self.matrix.dtype))
        return self

    def fit_if_supported(self, h: Tensor, h_pos: Tensor, *, narrow: bool = False) -> str:
        r"""Estimate the axes if held-out pairs support them, and leave the codes alone otherwise.

        The axes are estimated from every second pair. On the others, differences within pairs
        must be less correlated along the axes, by three standard errors of their likelihood. That
        relies on a uniform marginal, so there are two checks. The mean of codes must be near zero.
        And codes must fit the conditional better, by one standard error, whatever the marginal is:
        of two pairs (a, a') and (b, b') with near anchors, the positives are not swapped with
        log-odds :math:`\sum_k \lambda_k (a_k - b_k)(a'_k - b'_k)`, in which the marginal, the
        normaliser of the conditional and the volume of the map cancel. The true codes have the
        highest expected likelihood. Where the conditional is too narrow for anchors that near, its
        normalised density takes the place of swaps: it does not depend on the marginal either.
        Supported axes are estimated again from all pairs.

        Args:
            h: Codes (N, n) of anchors on the unit sphere, in random order.
            h_pos: Codes of their positives.
            narrow: Whether positives are nearer than nearly all other codes.

        Returns:
            What was done, in words.
        """
        n = len(self.matrix)
        h, h_pos = (part.double() for part in _check_pairs(h, h_pos, n))
        trial = deepcopy(self).double()
        try:
            trial.fit(h[::2], h_pos[::2])
        except ValueError:
            return "axes not rotated: too few pairs, or codes that do not vary"
        if torch.equal(trial.matrix, torch.eye(n, dtype=torch.float64)):
            return "axes not rotated: pairs do not tell their weights apart"
        centre = float(h.mean(0).norm()) * math.sqrt(n)
        if centre > MAX_CENTRE + STANDARD_ERRORS * math.sqrt(n / len(h)):
            return "axes not rotated: codes are not uniform on the sphere"
        kept = _related(h_pos - h)
        parts = [[x[half][kept[half]] for x in (h, h_pos)] for half in ALTERNATE_PAIRS]
        compare = _compare_densities if narrow else _compare_swaps
        fits = compare(trial, parts)
        uncorrelated = _decorrelation(trial.matrix, *((b - a) for a, b in parts))
        if not (_significant(uncorrelated) and _significant(fits, standard_errors=1)):
            return "axes not rotated: held-out pairs do not support it"
        self.fit(h, h_pos)
        return "codes rotated to the principal axes of differences within pairs"

    def forward(self, h: Tensor) -> Tensor:
        """Rotate codes (N, n) and normalise them to the unit sphere."""
        return nn.functional.normalize(h @ self.matrix, dim=-1)


def _related(differences: Tensor) -> Tensor:
    """Return which pairs are not much farther apart than most, and so can be related.

    Distances are compared with those of a normal distribution in (n - 1) / 2 dimensions, which
    allows for unequal weights.
    """
    square = differences.square().sum(1)
    law = stats.chi2(max(1.0, (differences.shape[1] - 1) / 2))
    return square <= square.median() * float(law.isf(TRIM) / law.median())


def _blocks(spread: Tensor, count: int) -> list[slice]:
    """Return runs of eigenvalues, in ascending order, that so many pairs cannot tell apart."""
    low, high = spread[:-1], spread[1:]
    angle = (low * high / count).sqrt() / (high - low)
    cuts = [0, *(int(i) + 1 for i in (angle < MAX_ANGLE).nonzero()), len(spread)]
    return [slice(*ends) for ends in pairwise(cuts)]


def _nearest_axes(axes: Tensor, blocks: list[slice]) -> Tensor:
    """Return axes that span the same blocks of axes and are nearest to those of the codes."""
    shares = torch.cat([axes[:, b].square().sum(1, keepdim=True).expand(-1, b.stop - b.start)
                        for b in blocks], 1)  # fmt: skip
    rows, slots = optimize.linear_sum_assignment(-shares.numpy())
    own = torch.from_numpy(rows[np.argsort(slots)])
    nearest = torch.empty_like(axes)
    for block in blocks:
        left, _, right = torch.linalg.svd(axes[own[block], block].mT, full_matrices=False)
        nearest[:, block] = axes[:, block] @ (left @ right)
    return nearest


def _decorrelation(matrix: Tensor, estimate: Tensor, check: Tensor) -> Tensor:
    """Return how much likelier uncorrelated differences are in the axes than when only whitened.

    Args:
        matrix: The whitening and the axes.
        estimate: Differences (N, n) within pairs, to estimate variances from.
        check: Differences whose normal log-likelihoods are compared.
    """
    left, sizes, _ = torch.linalg.svd(matrix)
    whiten = (left * sizes) @ left.mT
    likelihoods = []
    for frame in (matrix, whiten):
        variances = (estimate @ frame).square().mean(0)
        exponent = ((check @ frame).square() / variances).sum(1)
        likelihoods.append(-0.5 * (exponent + variances.log().sum()))
    return likelihoods[0] - likelihoods[1]


def _compare_swaps(layer: nn.Module, parts: list[list[Tensor]]) -> Tensor:
    """Return how much likelier positives are not swapped after a map of codes than before it.

    Args:
        layer: The map.
        parts: Anchors and positives to estimate weights from, and others to compare.
    """
    others = [_neighbours(*part) for part in parts]
    likelihoods = []
    for module in (layer, nn.Identity()):
        estimate, check = (
            _swap_features(module(anchors), module(positives), other)
            for (anchors, positives), other in zip(parts, others, strict=True)
        )
        likelihoods.append(_swap_log_likelihood(check, *_fit_swaps(estimate)))
    return likelihoods[0] - likelihoods[1]


def _compare_densities(layer: PrincipalAxes, parts: list[list[Tensor]]) -> Tensor:
    r"""Return how much likelier positives are after a map of codes, for a narrow conditional.

    A matrix M followed by a normalisation changes the volume at h by
    :math:`|\det M| / |M h|^n`.
    """
    (anchors, positives), (h, h_pos) = parts
    before = _narrow_log_density(h, h_pos, *fit_narrow_normal(anchors, positives))
    mapped = fit_narrow_normal(layer(anchors), layer(positives))
    after = _narrow_log_density(layer(h), layer(h_pos), *mapped)
    log_volume = torch.linalg.slogdet(layer.matrix)[1]
    log_volume = log_volume - h.shape[1] * (h_pos @ layer.matrix).norm(dim=1).log()
    return after + log_volume - before


def fit_narrow_normal(h: Tensor, h_pos: Tensor, sweeps: int = 100) -> tuple[Tensor, float]:
    r"""Fit the weights λ of a narrow anisotropic normal on the unit sphere to codes of pairs.

    A conditional :math:`\propto e^{-\frac12 (h' - h)^\top \Lambda (h' - h)}` with
    :math:`\Lambda = \mathrm{diag}(\lambda)` that is narrow against the sphere is normal in the
    plane tangent to h, with the normaliser
    :math:`(2\pi)^{(n-1)/2} / \sqrt{\det \Lambda\; h^\top \Lambda^{-1} h}`. So the likelihood is
    greatest where

    .. math:: \lambda_k^{-1} = E (h'_k - h_k)^2 + E \frac{h_k^2 \lambda_k^{-2}}{h^\top\Lambda^{-1}h}

    which is solved by iteration. Unrelated pairs, uniform on the sphere, do not count; their share
    is estimated by expectation maximisation.

    Args:
        h: Codes (N, n) of anchors, on the unit sphere.
        h_pos: Codes of their positives.
        sweeps: Iterations.

    Returns:
        The weights (n,) in float64, and the share of unrelated pairs.
    """
    h, h_pos = (part.detach().cpu().double() for part in (h, h_pos))
    square, anchor = (h_pos - h).square(), h.square()
    related, share = _related(h_pos - h).double(), 0.02
    variances = (related @ square) / related.sum()
    for sweep in range(sweeps):
        radial = anchor * variances.square() / (anchor @ variances)[:, None]
        variances = related @ (square + radial) / related.sum()
        if sweep % 10 == 9:
            log_odds = _narrow_log_density(h, h_pos, 1 / variances) - log_sphere_density(h.shape[1])
            related = torch.sigmoid(log_odds + math.log1p(-share) - math.log(share))
            share = min(max(1 - float(related.mean()), 1e-6), 0.5)
    return 1 / variances, share


def _narrow_log_density(h: Tensor, h_pos: Tensor, weights: Tensor, share: float = 0.0) -> Tensor:
    """Return log-densities of positives, a share of which is uniform on the unit sphere."""
    n = h.shape[1]
    normaliser = (weights.log().sum() + (h.square() @ (1 / weights)).log()) / 2
    log_density: Tensor = normaliser - (n - 1) / 2 * math.log(2 * math.pi)
    log_density = log_density - 0.5 * (h_pos - h).square() @ weights
    if share == 0:
        return log_density
    unrelated = torch.full_like(log_density, math.log(share) + log_sphere_density(n))
    return torch.logaddexp(log_density + math.log1p(-share), unrelated)


def log_sphere_density(n: int) -> float:
    """Return the logarithm of the uniform density on the unit sphere in n dimensions."""
    return math.lgamma(n / 2) - math.log(2) - n / 2 * math.log(math.pi)


def _neighbours(h: Tensor, h_pos: Tensor) -> Tensor:
    """Return for each pair some others (N, k) whose anchors are half as far away as a positive.

    Swaps of positives tell little if anchors are nearer, and are certain if they are farther.
    """
    distance = 0.5 * (h - h_pos).norm(dim=1).median()
    found = []
    for start, block in zip(range(0, len(h), SWAP_BLOCK), h.split(SWAP_BLOCK), strict=True):
        apart = (torch.cdist(block, block) - distance).abs().fill_diagonal_(math.inf)
        nearest = apart.topk(min(SWAPS, len(block)), largest=False).indices
        found.append(start + nearest[:, torch.arange(SWAPS) % nearest.shape[1]])
    return torch.cat(found)


def _swap_features(h: Tensor, h_pos: Tensor, others: Tensor) -> Tensor:
    """Return how much each coordinate of two pairs speaks against swapping their positives.

    Args:
        h: Codes (N, n) of anchors.
        h_pos: Codes of their positives.
        others: Pairs (N, k) to swap positives with.
    """
    return (h[:, None] - h[others]) * (h_pos[:, None] - h_pos[others])


def _fit_swaps(features: Tensor, sweeps: int = 30) -> tuple[Tensor, float]:
    """Return weights of a logistic regression, and the share of swaps that are mere chance.

    Swaps with an unrelated pair are even. Their share is estimated by expectation maximisation,
    with one Newton step for the weights in each sweep.
    """
    n = features.shape[-1]
    features = features.flatten(0, -2)
    weights, share = features.new_zeros(n), 0.02
    ridge = 1e-6 * len(features) * features.square().mean() * torch.eye(n, dtype=features.dtype)
    for _ in range(sweeps):
        right = torch.sigmoid(features @ weights)
        related = (1 - share) * right / ((1 - share) * right + 0.5 * share)
        share = min(max(1 - float(related.mean()), 1e-4), 0.5)
        curvature = (features * (related * right * (1 - right))[:, None]).mT @ features + ridge
        slope = features.mT @ (related * (1 - right)) - ridge @ weights
        step = torch.linalg.solve(curvature, slope)
        weights = weights + step
        if float(step.norm()) < 1e-3 * float(weights.norm()):
            break
    return weights, share


def _swap_log_likelihood(features: Tensor, weights: Tensor, share: float) -> Tensor:
    """Return the mean log-likelihood of the swaps of each pair."""
    return ((1 - share) * torch.sigmoid(features @ weights) + 0.5 * share).log().mean(1)
