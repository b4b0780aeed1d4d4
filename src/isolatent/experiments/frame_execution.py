"""Execute one run on recorded frames: training, rank correlations and a latent traversal."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from torch import Generator

from isolatent.evaluation import correlation_matrix, mcc
from isolatent.evaluation.mcc import standardised_columns
from isolatent.experiments.frame_cells import FrameCell
from isolatent.experiments.latent_traversal import latent_traversal, sample_test_factors
from isolatent.experiments.measures import axes_found, thin_curve
from isolatent.experiments.objectives import objective_of_model

__all__ = ["execute_frame_cell"]

TEST_FRAMES = 10_000  # as in the paper
TEST_FRAMES_SEED = 1_000_003


def execute_frame_cell(cell: FrameCell, seed: int) -> dict[str, Any]:
    """Train the cell's model and return the part of the record that depends on it."""
    pairs = cell.world.build()
    model = cell.estimator(seed)
    start = time.perf_counter()
    model.fit(pairs)
    trained = time.perf_counter()
    generator = Generator().manual_seed(seed + TEST_FRAMES_SEED)
    frames = sample_test_factors(pairs, TEST_FRAMES, generator)
    y = pairs.frames.latents[frames.numpy()]
    codes = np.concatenate([model.transform(pairs.observe(part)) for part in frames.split(2048)])
    factors, ranks = standardised_columns(y, codes, "spearman")
    return {
        "scores": {"unsupervised": {"mcc": mcc(y, codes, method="spearman")}},
        "intervals": {},
        "measures": {"steps": model.history_[-1].number, "pairs": repr(pairs)},
        "objective": objective_of_model(cell.to_dict(), model),
        "curve": thin_curve(model.history_),
        **axes_found(model),
        "correlation": np.round(correlation_matrix(factors, ranks), 4).tolist(),
        "factors": list(pairs.frames.names),
        "categories": [],
        "strips": latent_traversal(model, pairs, seed),
        "guarantee": cell.guarantee().to_dict(),
        "seconds": {
            "unsupervised": round(trained - start, 2),
            "metrics": round(time.perf_counter() - trained, 2),
        },
    }
