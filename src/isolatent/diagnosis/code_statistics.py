"""Statistics of codes by which a fit is compared with its rehearsals: marginal, steps, places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import optimize, special, stats
from torch import Generator, Tensor

from isolatent.theory import Beliefs
from isolatent.worlds import Box, GeneralizedNormal, Sphere, Uniform, VonMisesFisher

__all__ = [
    "FittedWorld",
    "code_statistics",
    "dependence",
    "fitted_world",
    "marginal_distance",
    "place_dependence",
    "step_distance",
]

STRETCHES = 8  # disjoint parts of the pairs, by which the spread of a statistic is known
DRAWS, DRAW_SEED = 4, 918_273  # positives for each anchor, by numbers that no data have
CONCENTRATIONS = (1e-3, 1e4)
STEP_WIDTHS = (1e-4, 10.0)  # of steps, in sides of a box
ANCHORS = 400  # of the unit interval, over which steps are averaged
STEP_ANGLES = 4001  # at which the distribution of cosines is computed
INSIDE = 1e-4  # margin of the anchors in a box
Array = np.ndarray[Any, Any]


class FittedWorld(NamedTuple):
    """A declared world with the parameters that fit codes.

    Attributes:
        space: The space, a unit sphere or a unit box.
        marginal: Its uniform distribution.
        conditional: Distribution of positives around their anchors.
        low: Lower end of the box in the coordinates of the codes.
        side: Its side.
    """

    space: Any
    marginal: Any
    conditional: Any
    low: float = 0.0
    side: float = 1.0


def fitted_world(
    h: Tensor, h_pos: Tensor, beliefs: Beliefs, weights: Tensor | None = None
) -> FittedWorld | None:
    """Return the declared world, fitted to codes (N, n); None if it is no plain sphere or box.

    The concentration on a sphere follows from the mean cosine. The side of a box follows from the
    variance of the codes, and the width of steps from their mean p-th power, with truncation: the
    ends of the box make steps shorter.

    Args:
        h: Codes of anchors.
        h_pos: Codes of positives.
        beliefs: What is declared.
        weights: Weight (N,) of each pair.

    Example:
        >>> generator = Generator().manual_seed(0)
        >>> z = Uniform().sample(Box(2), torch.zeros(20_000, 2), generator)
        >>> z_pos = GeneralizedNormal(1, 0.2).sample(Box(2), z, generator)
        >>> world = fitted_world(3 * z, 3 * z_pos, Beliefs("box", conditional="laplace"))
        >>> round(world.side, 1), round(world.conditional.scale, 1)
        (3.0, 0.2)
    """
    n = h.shape[1]
    h, h_pos = h.double(), h_pos.double()
    if weights is None:
        weights = torch.ones(len(h), dtype=torch.float64)
    weights = weights.double() / weights.sum()
    if beliefs.space == "sphere" and beliefs.conditional == "vmf":
        kappa = _concentration(n, float(weights @ (h * h_pos).sum(1)))
        return FittedWorld(Sphere(n), Uniform(), VonMisesFisher(kappa))
    if beliefs.space != "box" or beliefs.exponent is None or beliefs.conditional == "anisotropic":
        return None
    side = float(12 * h.var(0).mean()) ** 0.5
    p = float(beliefs.exponent)
    power = float((weights @ (((h_pos - h).abs() / side) ** p)).mean())
    conditional = GeneralizedNormal(p, _width_of_steps(p, power))
    return FittedWorld(Box(n), Uniform(), conditional, float(h.mean()) - side / 2, side)


def _concentration(n: int, cosine: float) -> float:
    """Return the concentration of a von Mises-Fisher distribution with a mean cosine."""
    least, most = CONCENTRATIONS

    def ratio(kappa: float) -> float:
        return float(special.ive(n / 2, kappa) / special.ive(n / 2 - 1, kappa))

    cosine = min(max(cosine, ratio(least)), ratio(most))
    return float(optimize.brentq(lambda kappa: ratio(kappa) - cosine, least, most))


def _width_of_steps(p: float, power: float) -> float:
    """Return the scale s at which steps in a unit interval have a mean p-th power.

    Anchors are uniform and positives have a density in proportion to exp(-|z' - z|^p / s^p).
    """
    least, most = STEP_WIDTHS
    power = min(max(power, _mean_power(p, least)), _mean_power(p, most))
    return float(optimize.brentq(lambda width: _mean_power(p, width) - power, least, most))


def _mean_power(p: float, width: float) -> float:
    """Return the mean p-th power of truncated steps from uniform anchors.

    By incomplete gamma functions: over a distance a to an end, the integrals of exp(-(t/s)^p) and
    of t^p exp(-(t/s)^p) are those of 1/p and of 1 + 1/p.
    """
    ends = (np.arange(ANCHORS) + 0.5) / ANCHORS
    mass, moment = np.zeros(ANCHORS), np.zeros(ANCHORS)
    for distance in (ends, 1 - ends):
        scaled = (distance / width) ** p
        mass += special.gammainc(1 / p, scaled)
        moment += special.gammainc(1 + 1 / p, scaled) / p
    return float(np.mean(width**p * moment / mass))


def marginal_distance(h: Tensor, on_sphere: bool) -> float:
    r"""Return how far codes must move at least to be distributed as declared.

    On a sphere: the bound of Gelbrich on the squared Wasserstein distance to the uniform
    distribution, whose mean is 0 and whose covariance is 1/n,
    :math:`|m|^2 + \sum_k (\sqrt{\lambda_k} - 1/\sqrt n)^2` for eigenvalues λ of the covariance. In
    a box, whose sides are not known: the share of a code that is not linear in its ranks, of the
    code where it is largest.

    Args:
        h: Codes (N, n).
        on_sphere: Whether they lie on a unit sphere.

    Example:
        >>> h = torch.nn.functional.normalize(torch.randn(5000, 3), dim=1)
        >>> marginal_distance(h, True) < 0.01 < marginal_distance(h.abs(), True)
        True
    """
    h = h.double()
    n = h.shape[1]
    if on_sphere:
        covariance = torch.cov(h.T, correction=0).reshape(n, n)
        roots = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt()
        return float(h.mean(0).square().sum() + (roots - n**-0.5).square().sum())
    ranks, ordered = np.arange(len(h)), np.sort(h.numpy(), axis=0)
    return 1 - min(float(np.corrcoef(column, ranks)[0, 1]) ** 2 for column in ordered.T)


def dependence(h: Tensor) -> float:
    """Return the largest correlation of two codes (N, n), without its sign."""
    if h.shape[1] == 1:
        return 0.0
    correlations = torch.corrcoef(h.double().T).abs()
    return float(correlations.fill_diagonal_(0.0).max())


def _levels(h: Tensor, h_pos: Tensor, world: FittedWorld) -> Array:
    """Return the level of each step in the distribution that a world has: uniform if it holds."""
    if isinstance(world.space, Sphere):
        cosine = (h.double() * h_pos.double()).sum(1).numpy()
        n, kappa = h.shape[1], world.conditional.kappa
        grid = np.linspace(0, np.pi, STEP_ANGLES)  # in angles: cosines crowd at 1
        density = np.sin(grid) ** (n - 2) * np.exp(kappa * (np.cos(grid) - 1))
        mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
        levels: Array = np.interp(np.arccos(np.clip(cosine, -1, 1)), grid, mass / mass[-1])
        return levels
    z, z_pos = ((part.double() - world.low) / world.side for part in (h, h_pos))
    z = z.clamp(INSIDE, 1 - INSIDE)
    generator, p = Generator().manual_seed(DRAW_SEED), world.conditional.p
    anchors = z.repeat(DRAWS, 1)
    drawn = world.conditional.sample(world.space, anchors, generator)
    reference = np.sort(((drawn - anchors).abs() ** p).sum(1).numpy())
    lengths = ((z_pos - z).abs() ** p).sum(1).numpy()
    return np.searchsorted(reference, lengths) / len(reference)


def step_distance(levels: Array) -> float:
    """Return the Kolmogorov-Smirnov distance of levels from uniform ones.

    Example:
        >>> round(step_distance(np.linspace(0, 0.5, 101)), 2)
        0.5
    """
    return float(stats.kstest(levels, "uniform").statistic)


def place_dependence(h: Tensor, levels: Array) -> float:
    """Return how much of the lengths of steps a quadratic map of their anchors explains.

    The map is fitted to every second pair, and explains the others.

    Args:
        h: Codes (N, n) of the anchors.
        levels: Levels (N,) of the steps.
    """
    z = h.double().numpy()
    lengths = stats.norm.ppf(np.clip(levels, 1e-4, 1 - 1e-4))
    rows, columns = np.triu_indices(z.shape[1])
    terms = np.column_stack([np.ones(len(z)), z, z[:, rows] * z[:, columns]])
    weights = np.linalg.lstsq(terms[::2], lengths[::2], rcond=None)[0]
    missed = lengths[1::2] - terms[1::2] @ weights
    return float(1 - missed.var() / max(lengths[1::2].var(), 1e-12))


def code_statistics(h: Tensor, h_pos: Tensor, beliefs: Beliefs) -> dict[str, Array] | None:
    """Return statistics of codes, each as values around that of all pairs.

    A statistic is computed from all pairs, and again from each of eight disjoint stretches; what is
    returned are eight values whose mean is the former, and which spread as the latter.

    Args:
        h: Codes (N, n) of anchors.
        h_pos: Codes of positives.
        beliefs: What is declared.

    Returns:
        The ``marginal`` distance, the distance of the ``steps``, their dependence on the ``place``,
        and in a box the ``dependence`` of codes; None if what is declared is no plain sphere or
        box.
    """
    h, h_pos = h.detach().cpu(), h_pos.detach().cpu()
    world = fitted_world(h, h_pos, beliefs)
    if world is None:
        return None
    levels = _levels(h, h_pos, world)
    on_sphere = isinstance(world.space, Sphere)
    order = np.random.default_rng(0).permutation(len(h))  # neighbours in a recording are alike
    stretches = np.array_split(order, STRETCHES)
    measures: dict[str, Callable[[Array], float]] = {
        "marginal": lambda rows: marginal_distance(h[torch.from_numpy(rows)], on_sphere),
        "steps": lambda rows: step_distance(levels[rows]),
        "place": lambda rows: place_dependence(h[torch.from_numpy(rows)], levels[rows]),
    }
    if not on_sphere:
        measures["dependence"] = lambda rows: dependence(h[torch.from_numpy(rows)])
    return {name: _around(measure, order, stretches) for name, measure in measures.items()}


def _around(measure: Callable[[Array], float], every: Array, stretches: list[Array]) -> Array:
    values = np.array([measure(rows) for rows in stretches])
    moved: Array = measure(every) + values - values.mean()
    return moved
