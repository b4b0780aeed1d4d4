"""p-values of checks: of the best of several, and of a fit that differs from its rehearsal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

__all__ = ["Difference", "difference_of", "of_best"]

Stretches = np.ndarray[Any, Any]  # the values of a statistic on disjoint stretches of pairs


def of_best(p_value: float, count: int) -> float:
    r"""Return the p-value of the best of several alternatives: :math:`1 - (1 - p)^k`.

    The correction of Šidák is exact for independent alternatives. Those that are compared with the
    same model are positively correlated, and it is conservative.

    Args:
        p_value: That of the best, as if it alone had been tried.
        count: Number k of alternatives.

    Example:
        >>> round(of_best(0.05, 2), 4)
        0.0975
    """
    if p_value >= 1:
        return 1.0
    return float(-np.expm1(count * np.log1p(-p_value)))


class Difference(NamedTuple):
    """By how much a statistic of a fit exceeds that of its rehearsals."""

    mean: float
    error: float
    degrees: int

    @property
    def p_value(self) -> float:
        """The one-sided p-value of a t-test."""
        if self.error == 0:
            return 0.0 if self.mean > 0 else 1.0
        return float(stats.t.sf(self.mean / self.error, self.degrees))


def difference_of(runs: Sequence[Stretches], rehearsals: Sequence[Stretches]) -> Difference:
    r"""Return by how much a statistic of a fit exceeds that of its rehearsals, with its error.

    Two sources of chance add up: which pairs are tested, which the spread s² over n stretches
    shows, and where training ends, which the spread b² between runs of the same kind shows:

    .. math:: \text{error}^2 = s_1^2 / n + s_2^2 / (n r) + b^2 (1/m + 1/r)

    for m runs on the same pairs and r rehearsals, each on pairs of its own. The degrees of freedom
    are those of b², m + r - 2: with more, as by Welch and Satterthwaite, runs that agree by chance
    would count for certain.

    Args:
        runs: The statistic on each stretch of pairs, for two or more runs on the data.
        rehearsals: The same for one or more rehearsals.
    """
    m, r = len(runs), len(rehearsals)
    means = [np.array([part.mean() for part in kind]) for kind in (runs, rehearsals)]
    within = [float(np.mean([part.var(ddof=1) / len(part) for part in runs]))]
    within.append(float(np.mean([part.var(ddof=1) / len(part) for part in rehearsals])) / r)
    between = sum(float(((kind - kind.mean()) ** 2).sum()) for kind in means) / (m + r - 2)
    error = math.sqrt(sum(within) + between * (1 / m + 1 / r))
    return Difference(float(means[0].mean() - means[1].mean()), error, m + r - 2)
