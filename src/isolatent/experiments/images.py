"""Runs on images with known factors: training, every metric, and pictures of what codes do."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Generator

from isolatent.evaluation import correlation_matrix, evaluate_disentanglement, mcc
from isolatent.evaluation.mcc import standardised_columns
from isolatent.experiments.image_cells import ImageCell
from isolatent.experiments.latent_traversal import strips
from isolatent.experiments.measures import thin_curve
from isolatent.experiments.predictions import expected_guarantee
from isolatent.experiments.views import sample_factors
from isolatent.pairs import FactorPairs

__all__ = ["measured_on_images"]

FITTED, HELD_OUT = 10_000, 5_000  # examples of the metrics
TEST_POINTS = 8192
TEST_SEED = 1_000_003

Array = NDArray[Any]


def measured_on_images(cell: ImageCell, seed: int) -> dict[str, Any]:
    """Train the cell's model and measure it."""
    pairs = cell.world.build()
    model = cell.model.build(dict(cell.recipe), seed)
    clock = time.perf_counter()
    model.fit(pairs)
    trained = time.perf_counter()
    scores, intervals = _scores(model, pairs, seed)
    return {
        "scores": {"unsupervised": scores},
        "intervals": intervals,
        "measures": {
            "steps": model.history_[-1].number,
            "pairs": repr(pairs.transitions),
        },
        "curve": thin_curve(model.history_),
        "correlation": _correlation(model, pairs, seed),
        "factors": list(pairs.world.names),
        "categories": [pairs.world.names[f] for f in _categories(pairs)],
        "strips": strips(model, pairs, seed),
        "guarantee": expected_guarantee(cell).to_dict(),
        "seconds": {
            "unsupervised": round(trained - clock, 2),
            "metrics": round(time.perf_counter() - trained, 2),
        },
    }


def _scores(
    model: Any, pairs: FactorPairs, seed: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Every metric on the grid, with 95 % intervals; of continuous factors MCC alone."""
    if pairs.continuous:
        y, codes = _tested(model, pairs, seed)
        return {"mcc": mcc(y, codes, method="spearman")}, {}
    result = evaluate_disentanglement(
        model.code_module(),  # it has no guarantee: the card says what is not proven, once
        pairs.world,
        n_train=FITTED,
        n_test=HELD_OUT,
        random_state=seed,
    )
    scores = {name: float(interval.value) for name, interval in result.scores.items()}
    bounds = {name: [float(i.low), float(i.high)] for name, i in result.scores.items()}
    return scores, bounds


def _correlation(model: Any, pairs: FactorPairs, seed: int) -> list[list[float]]:
    """|Rank correlation| of each factor (rows) with each code; 0 where a code is dead.

    The values of a category have no order: there it is the root of the share of the variance of a
    code's ranks that lies between values.
    """
    y, codes = _tested(model, pairs, seed)
    factors, ranks = standardised_columns(y, codes, "spearman")
    matrix = correlation_matrix(factors, ranks)
    for f in _categories(pairs):
        matrix[f] = _correlation_ratio(y[:, f], ranks)
    return np.round(matrix, 4).tolist()


def _correlation_ratio(y: Array, standardised: Array) -> Array:
    """The root of the share of each column's variance that lies between the values of y."""
    _, value, counts = np.unique(y, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), standardised.shape[1]))
    np.add.at(sums, value, standardised)
    return np.sqrt((np.square(sums) / counts[:, None]).sum(0) / len(y))


def _categories(pairs: FactorPairs) -> list[int]:
    return [f for f, categorical in enumerate(pairs.world.categorical) if categorical]


def _tested(model: Any, pairs: FactorPairs, seed: int) -> tuple[Any, Any]:
    """Fresh factors, and the codes of their images."""
    y = sample_factors(pairs, TEST_POINTS, Generator().manual_seed(seed + TEST_SEED))
    return y.numpy(), model.transform(pairs.observe(y))
