"""Mutual information by loops over dictionaries of counts."""

import math
from itertools import product

import numpy as np


def counted_information(y, c, n_bins=20):
    """I(code; factor) and H(factor) from dictionaries of counts."""
    n = len(y)
    mutual = np.zeros((c.shape[1], y.shape[1]))
    for j, f in product(range(c.shape[1]), range(y.shape[1])):
        binned = np.digitize(c[:, j], np.histogram(c[:, j], n_bins)[1][:-1])
        both, left, right = {}, {}, {}
        for b, v in zip(binned, y[:, f], strict=True):
            both[b, v] = both.get((b, v), 0) + 1
            left[b] = left.get(b, 0) + 1
            right[v] = right.get(v, 0) + 1
        mutual[j, f] = sum(
            m / n * math.log(m * n / (left[b] * right[v])) for (b, v), m in both.items()
        )
    entropy = [
        -sum(m / n * math.log(m / n) for m in np.unique(col, return_counts=True)[1]) for col in y.T
    ]
    return mutual, np.array(entropy)


def mixture(seed, factors=3, codes=4, rows=200):
    """Factors of two to five values, and codes that are noisy mixtures of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, 6, size=(rows, factors))
    return rng, y, y @ rng.normal(size=(factors, codes)) + 0.5 * rng.normal(size=(rows, codes))
