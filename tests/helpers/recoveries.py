"""Factors and imperfect codes of them, for tests of several scores."""

import numpy as np


def random_recovery(seed, factors, codes, rows=60):
    """Factors, and codes that are noisy mixtures of them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, factors))
    h = z @ rng.normal(size=(factors, codes)) + 0.3 * rng.normal(size=(rows, codes))
    return rng, z, h
