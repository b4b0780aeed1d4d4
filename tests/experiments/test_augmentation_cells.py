"""Cells on photographs: their declaration, and a run on a small stand-in for the files."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from isolatent.datasets import LabelledImages
from isolatent.experiments import Run, execute, find_experiment
from isolatent.experiments.augmentation_cells import (
    AUGMENTATION_METRICS,
    PHOTOGRAPHS,
    AugmentationCell,
)
from isolatent.experiments.experiment import Experiment

SMALL = {"n_components": 4, "widths": [16], "n_features": 32}


def cell(loss="infonce", **changes):
    written = {
        "name": "small",
        "world": {"photographs": "cifar10"},
        "model": {"loss": loss, **SMALL},
        "recipe": {"max_steps": 3, "batch_size": 16, "learning_rate": 1e-3},
        "metrics": list(AUGMENTATION_METRICS),
    }
    return written | changes


@pytest.fixture
def photographs(monkeypatch):
    """Images whose class is the direction of their stripes."""

    def load(path, part):
        rng = np.random.default_rng(0 if part == "train" else 1)
        count = 600 if part == "train" else 300
        labels = rng.integers(0, 3, count)
        images = rng.integers(60, 120, (count, 3, 16, 16), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            if label < 2:
                stripes = np.moveaxis(image, 1 + label, 0)
                stripes[::4] += 100
                stripes[1::4] += 100
        return LabelledImages(images, labels, ("rows", "columns", "none"))

    monkeypatch.setitem(PHOTOGRAPHS, "cifar10", load)


def run(written, seed=0):
    spec = {"name": "own", "title": "", "cells": [written]}
    (only,) = Experiment.model_validate(spec).cells
    return execute(Run(experiment="own", cell=only, seed=seed, source="own"))


@pytest.mark.parametrize("loss", ["infonce", "aninfonce"])
def test_a_run_records_all_readouts(photographs, loss):
    record = run(cell(loss))
    assert record["status"] == "done", record.get("traceback")
    scores = record["scores"]["unsupervised"]
    assert set(AUGMENTATION_METRICS) <= set(scores)
    assert all(0 <= scores[name] <= 1 for name in AUGMENTATION_METRICS)
    assert scores["class_backbone"] > 0.5  # any features hold stripes
    assert set(scores["applied_backbone_per_augmentation"]) == {
        *("grayscale", "brightness", "contrast", "hue", "saturation")
    }
    assert set(scores["strength_backbone_per_augmentation"]) == {
        *("crop_row", "crop_column", "crop_area", "brightness", "contrast", "saturation", "hue")
    }
    assert ("scale" in record) == (loss == "aninfonce")
    assert record["guarantee"]["equivalence"] is None
    assert "photographs" in record["guarantee"]["gap"]


def test_a_seed_gives_the_same_result_whatever_ran_before(photographs):
    first = run(cell())["scores"]
    torch.rand(5)
    assert run(cell())["scores"] == first
    assert run(cell(), seed=1)["scores"] != first


def test_missing_files_are_a_failed_run_that_says_so(monkeypatch):
    monkeypatch.delenv("ISOLATENT_DATA", raising=False)
    record = run(cell())
    assert record["status"] == "failed"
    assert "ISOLATENT_DATA" in record["error"]


def test_the_shipped_cells_are_the_published_pair():
    cells = find_experiment("rusak2025/cifar10").cells
    assert [one.model.loss for one in cells] == ["infonce", "aninfonce"]
    for one in cells:
        assert isinstance(one, AugmentationCell)
        assert AugmentationCell.model_validate(one.to_dict()).to_dict() == one.to_dict()
        views = one.world.evaluated_views()
        assert (views.jitter, views.grayscale, views.crop) == (0.5, 0.5, one.world.views().crop)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"world": {"photographs": "imagenet"}}, "must be one of 'cifar10'"),
        ({"world": {"photographs": "cifar10", "augmentations": {"blur": 1.0}}}, "'blur' must be"),
        ({"world": {"photographs": "cifar10", "augmentations": {"crop": 2.0}}}, "at most 1"),
        ({"model": {"loss": "scl"}}, "must be one of 'infonce', 'aninfonce'"),
        ({"model": {"loss": "infonce", "widths": [12]}}, "multiples of 8"),
        ({"metrics": ["mcc"]}, "must be one of 'class_backbone'"),
    ],
)
def test_wrong_cells_are_explained(changes, message):
    with pytest.raises(ValidationError, match=message):
        AugmentationCell.model_validate(cell(**changes))
