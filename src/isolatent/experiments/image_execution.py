"""Execute one run on images: training, disentanglement metrics and a latent traversal."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Generator

from isolatent.evaluation import correlation_matrix, evaluate_disentanglement, mcc
from isolatent.evaluation.mcc import standardised_columns
from isolatent.experiments.image_cells import ImageCell
from isolatent.experiments.latent_traversal import latent_traversal, sample_test_factors
from isolatent.experiments.measures import axes_found, thin_curve
from isolatent.experiments.objectives import objective_of_model
from isolatent.pairs import FactorPairs

__all__ = ["execute_image_cell"]

N_TRAIN, N_TEST = 10_000, 5_000  # examples on which metrics are fitted and evaluated
TEST_POINTS = 8192
TEST_SEED = 1_000_003

Array = NDArray[Any]


def execute_image_cell(cell: ImageCell, seed: int) -> dict[str, Any]:
    """Train the cell's model and return the part of the record that depends on it."""
    pairs = cell.world.build()
    model = cell.estimator(seed)
    start = time.perf_counter()
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
        "objective": objective_of_model(cell.to_dict(), model),
        "curve": thin_curve(model.history_),
        **axes_found(model),
        "correlation": _correlation(model, pairs, seed),
        "factors": list(pairs.world.names),
        "categories": [pairs.world.names[f] for f in _categorical_factors(pairs)],
        "strips": latent_traversal(model, pairs, seed),
        "guarantee": cell.guarantee().to_dict(),
        "seconds": {
            "unsupervised": round(trained - start, 2),
            "metrics": round(time.perf_counter() - trained, 2),
        },
    }


def _scores(
    model: Any, pairs: FactorPairs, seed: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return all metrics with their 95 % intervals; for continuous factors MCC only."""
    if pairs.continuous:
        y, codes = _test_codes(model, pairs, seed)
        return {"mcc": mcc(y, codes, method="spearman")}, {}
    result = evaluate_disentanglement(
        # The bare encoder has no guarantee, so that no warning repeats what the record's card says.
        model.code_module(),
        pairs.world,
        n_train=N_TRAIN,
        n_test=N_TEST,
        random_state=seed,
    )
    scores = {name: float(interval.value) for name, interval in result.scores.items()}
    bounds = {name: [float(i.low), float(i.high)] for name, i in result.scores.items()}
    return scores, bounds


def _correlation(model: Any, pairs: FactorPairs, seed: int) -> list[list[float]]:
    """Return |rank correlation| of each factor (rows) with each code; 0 for a constant code.

    The values of a categorical factor have no order. Its rows hold the correlation ratio η of the
    code's ranks instead: the square root of the share of their variance between categories.
    """
    y, codes = _test_codes(model, pairs, seed)
    factors, ranks = standardised_columns(y, codes, "spearman")
    matrix = correlation_matrix(factors, ranks)
    for f in _categorical_factors(pairs):
        matrix[f] = _correlation_ratio(y[:, f], ranks)
    return np.round(matrix, 4).tolist()


def _correlation_ratio(y: Array, standardised: Array) -> Array:
    """Return η of each standardised column, the root of its share of variance between values."""
    _, value, counts = np.unique(y, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), standardised.shape[1]))
    np.add.at(sums, value, standardised)
    return np.sqrt((np.square(sums) / counts[:, None]).sum(0) / len(y))


def _categorical_factors(pairs: FactorPairs) -> list[int]:
    return [f for f, categorical in enumerate(pairs.world.categorical) if categorical]


def _test_codes(model: Any, pairs: FactorPairs, seed: int) -> tuple[Any, Any]:
    """Draw test factors and encode their images."""
    y = sample_test_factors(pairs, TEST_POINTS, Generator().manual_seed(seed + TEST_SEED))
    return y.numpy(), model.transform(pairs.observe(y))
