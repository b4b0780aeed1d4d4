"""Factors that are classes, and codes that are noisy mixtures of them."""

import numpy as np
from scipy.stats import ortho_group


def noisy_classes(seed=0, rows=600, sizes=(2, 4), codes=3, noise=1.0):
    """Factors with ``sizes`` values, and linear mixtures of them with noise."""
    rng = np.random.default_rng(seed)
    y = np.stack([rng.integers(n, size=rows) for n in sizes], axis=1)
    return y, y @ rng.normal(size=(len(sizes), codes)) + noise * rng.normal(size=(rows, codes))


def noisy_rotation(seed, rows=450):
    """Factors and noisy rotated codes of 300 training points and of the other rows to score."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=(rows, 3))
    rotation = ortho_group.rvs(3, random_state=seed)
    codes = (y - 1.0 + 0.3 * rng.normal(size=y.shape)) @ rotation
    return (y[:300], codes[:300]), (y[300:], codes[300:])


def rounded_classes(rows=300):
    """Factors, and mixtures with two decimals, which trees separate at any scale."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(rows, 2))
    return y, (y @ [[1.5, -0.6], [0.5, 1.5]] + 0.5 * rng.normal(size=y.shape)).round(2)
