"""Factors and codes whose scores by another library are stored, the same wherever NumPy is."""

import numpy as np

KINDS = "aligned", "mixed", "noise"
SIZES, CODES, TRAIN, TEST = (3, 4, 6), 4, 600, 300


def arrays(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Factors and codes of ``TRAIN`` points to fit, and after them of ``TEST`` to score."""
    rng = np.random.default_rng(7)
    factors = np.stack([rng.integers(n, size=TRAIN + TEST) for n in SIZES], axis=1)
    noise = rng.normal(size=(len(factors), CODES))
    scaled = factors / np.array(SIZES)
    if kind == "noise":
        return factors, noise
    if kind == "aligned":
        return factors, np.hstack([3.0 * scaled[:, ::-1], noise[:, :1]]) + 0.1 * noise
    return factors, 3.0 * scaled @ rng.normal(size=(len(SIZES), CODES)) + 0.2 * noise
