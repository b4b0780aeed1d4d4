"""Execute one run on photographs: training, and linear readouts of class and augmentations."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from isolatent.contrast import AnInfoNCE
from isolatent.datasets import LabelledImages
from isolatent.encoders import ProjectedEncoder
from isolatent.evaluation.readout import readout_accuracy, readout_r2
from isolatent.experiments.augmentation_cells import LAYERS, AugmentationCell
from isolatent.experiments.measures import thin_curve
from isolatent.experiments.objectives import objective_of_model
from isolatent.pairs import AugmentationParameters, Augmentations, augment

__all__ = ["APPLIED", "execute_augmentation_cell"]

N_FIT, N_SCORED = 20_000, 10_000  # images that readouts are fitted to and scored on
SEED_FIT, SEED_SCORED = 1_000_003, 1_000_033  # of their views, besides the seed of the run
APPLIED = ("grayscale", "brightness", "contrast", "hue", "saturation")  # as published
ENCODED_AT_A_TIME = 1024

Array = NDArray[Any]
Codes = dict[str, Array]


def execute_augmentation_cell(cell: AugmentationCell, seed: int) -> dict[str, Any]:
    """Train the cell's model and return the part of the record that depends on it."""
    train, test = cell.world.load("train"), cell.world.load("test")
    model = cell.estimator(seed)
    start = time.perf_counter()
    model.fit(cell.world.pairs(train))
    trained = time.perf_counter()
    scores = _readouts(model.encoder_, train, test, cell.world.evaluated_views(), seed)
    record = {
        "scores": {"unsupervised": scores},
        "measures": {
            "steps": model.history_[-1].number,
            "parameters": sum(p.numel() for p in model.encoder_.parameters()),
        },
        "objective": objective_of_model(cell.to_dict(), model),
        "curve": thin_curve(model.history_),
        "guarantee": cell.guarantee().to_dict(),
        "seconds": {
            "unsupervised": round(trained - start, 2),
            "metrics": round(time.perf_counter() - trained, 2),
        },
    }
    if isinstance(model.loss_, AnInfoNCE):
        learned = model.loss_.weights.detach().double().tolist()
        record["scale"] = {"name": "weight", "learned": learned, "true": None}
    return record


def _readouts(
    encoder: torch.nn.Module,
    train: LabelledImages,
    test: LabelledImages,
    views: Augmentations,
    seed: int,
) -> dict[str, Any]:
    """Return all readouts: fitted to photographs of the training part, scored on the others."""
    assert isinstance(encoder, ProjectedEncoder)
    rows = [_rows(len(train), N_FIT), _rows(len(test), N_SCORED)]
    images = [train.observe(rows[0]), test.observe(rows[1])]
    plain = [_encode(encoder, part) for part in images]
    drawn = [
        views.draw(len(part), Generator().manual_seed(seed + offset))
        for part, offset in zip(images, (SEED_FIT, SEED_SCORED), strict=True)
    ]
    seen = [_encode(encoder, part, d) for part, d in zip(images, drawn, strict=True)]
    scores: dict[str, Any] = {}
    for layer in LAYERS:
        h, h_test = (part[layer] for part in plain)
        scores[f"class_{layer}"] = readout_accuracy(
            h, train.labels[rows[0]], h_test, test.labels[rows[1]]
        )
        v, v_test = (part[layer] for part in seen)
        applied = {
            name: readout_accuracy(v, labels[0], v_test, labels[1])
            for name in APPLIED
            for labels in [[d.applied()[name].numpy() for d in drawn]]
        }
        strengths = _strengths(v, v_test, drawn)
        scores[f"applied_{layer}"] = float(np.mean([*applied.values()]))
        scores[f"applied_{layer}_per_augmentation"] = _rounded(applied)
        scores[f"strength_{layer}"] = float(np.mean([*strengths.values()]))
        scores[f"strength_{layer}_per_augmentation"] = _rounded(strengths)
    return scores


def _strengths(h: Array, h_test: Array, drawn: list[AugmentationParameters]) -> dict[str, float]:
    """Return R² of each continuous parameter."""
    names = [*drawn[0].strengths()]
    tables = [
        np.stack([part.double().numpy() for part in d.strengths().values()], 1) for d in drawn
    ]
    varying = [k for k in range(len(names)) if all(table[:, k].std() > 0 for table in tables)]
    r2 = readout_r2(h, tables[0][:, varying], h_test, tables[1][:, varying])
    return {names[k]: float(value) for k, value in zip(varying, r2, strict=True)}


def _encode(
    encoder: ProjectedEncoder,
    images: Tensor,
    drawn: AugmentationParameters | None = None,
) -> Codes:
    """Return the features of the backbone and the codes of the projector, of augmented images."""
    features, codes = [], []
    with torch.no_grad():
        for k in range(0, len(images), ENCODED_AT_A_TIME):
            part = images[k : k + ENCODED_AT_A_TIME]
            if drawn is not None:
                part = augment(part, drawn.rows(slice(k, k + len(part))))
            part = encoder.features(part)
            features.append(part.numpy())
            codes.append(encoder.head(encoder.projector(part)).numpy())
    return {"backbone": np.concatenate(features), "projector": np.concatenate(codes)}


def _rows(count: int, most: int) -> Array:
    """Return evenly spaced rows."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
