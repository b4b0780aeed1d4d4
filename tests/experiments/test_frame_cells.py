"""Cells on recorded frames: valid fields, the models built, and a run."""

import base64
import json
import pickle

import numpy as np
import pytest
from pydantic import ValidationError

from isolatent.datasets import synthetic_kitti_masks
from isolatent.encoders import BoxHead
from isolatent.evaluation import mcc
from isolatent.experiments import (
    Experiment,
    FrameCell,
    Run,
    execute,
    find_experiment,
    frame_cells,
    frame_execution,
)

MASKS = synthetic_kitti_masks(12)
CELL = {
    "name": "a",
    "world": {"frames": "kitti_standin", "max_lag": 5},
    "model": {"method": "infonce", "n_components": 4, "space": "box", "encoder": "pooled"},
    "recipe": {"max_steps": 2, "batch_size": 8},
}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(frame_cells, "_stand_in", lambda **steps: MASKS)
    monkeypatch.setattr(frame_execution, "TEST_FRAMES", 100)
    monkeypatch.setattr("isolatent.experiments.latent_traversal.CANDIDATES", 100)


def record_of(cell):
    return execute(Run(experiment="own", cell=FrameCell.model_validate(cell), seed=0, source="own"))


@pytest.mark.parametrize(
    "model",
    [
        CELL["model"],
        pytest.param({"method": "slow_vae", "n_components": 4}, marks=pytest.mark.slow),
        pytest.param(
            {"method": "scl", "n_components": 4, "encoder": "pooled"}, marks=pytest.mark.slow
        ),
    ],
)
def test_a_run_records_rank_correlations_and_a_latent_traversal(small, model):
    record = record_of(CELL | {"model": model})
    assert record["status"] == "done", record["error"]
    assert json.loads(json.dumps(record)) == record
    assert record["factors"] == ["y", "x", "area"]
    matrix = np.array(record["correlation"])
    assert matrix.shape == (3, 4)
    score = record["scores"]["unsupervised"]["mcc"]
    # The best assignment of three factors to codes, by their rank correlations.
    best = max(
        matrix[range(3), [a, b, c]].mean()
        for a in range(4)
        for b in range(4)
        for c in range(4)
        if len({a, b, c}) == 3
    )
    assert score == pytest.approx(best, abs=1e-3)
    assert "synthetic stand-in" in record["measures"]["pairs"]
    assert all(base64.b64decode(row).startswith(b"\x89PNG") for row in record["strips"]["rows"])
    assert record["guarantee"]["equivalence"] is None


def test_frames_are_scored_by_rank():
    class Cubes:
        def transform(self, x):
            rows = x.flatten(1).numpy()
            return np.stack([rows.sum(1) ** 3, -np.exp(rows.sum(1) / 100)], axis=1)

    frames = np.arange(len(MASKS))
    codes = Cubes().transform(MASKS.observe(frames))
    assert mcc(MASKS.latents[:, 2:], codes, method="spearman") == pytest.approx(1)


def test_the_published_file_is_read(small, tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    lengths = [12] * 12
    content = {
        "pedestrians": [random.random((n, 64, 64)) < 0.1 for n in lengths],
        "pedestrians_latents": [random.random((n, 3)).astype("f4") for n in lengths],
    }
    (tmp_path / "kitti_peds_v2.pickle").write_bytes(pickle.dumps(content))
    monkeypatch.setenv("ISOLATENT_DATA", str(tmp_path))
    cell = FrameCell.model_validate(CELL | {"world": {"frames": "kitti_masks"}})
    assert repr(cell.world.build()).endswith("max_lag=1, kitti_peds_v2.pickle)")
    (tmp_path / "kitti_peds_v2.pickle").unlink()
    record = record_of(CELL | {"world": {"frames": "kitti_masks"}})
    assert record["status"] == "failed"
    assert "Zenodo record 3931823" in record["error"]


def test_a_box_has_a_bound_for_each_code():
    encoder = FrameCell.model_validate(CELL).estimator(3).encoder
    assert isinstance(encoder[1], BoxHead)
    assert encoder[1].bound.shape == (4,)
    again, other = (FrameCell.model_validate(CELL).estimator(seed).encoder for seed in (3, 4))
    same = [
        all((a == b).all() for a, b in zip(encoder.parameters(), one.parameters(), strict=True))
        for one in (again, other)
    ]
    assert same == [True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"world": {"frames": "faces"}}, "must be one of 'kitti_masks', 'kitti_standin'"),
        ({"world": {"frames": "kitti_standin", "max_lag": 0}}, "greater than or equal to 1"),
        ({"world": {"frames": "kitti_standin", "pairs": "uni"}}, "Extra inputs"),
        ({"world": {"frames": "kitti_masks", "spread": 1.0}}, "spread requires frames 'kitti_sta"),
        ({"metrics": ["mig"]}, "must be one of 'mcc'"),
        (
            {"model": {"method": "slow_vae"}, "recipe": {"patience": 3}},
            "may have max_steps, batch_size, learning_rate, got .'patience'",
        ),
    ],
)
def test_invalid_fields_are_rejected(change, message):
    with pytest.raises(ValidationError, match=message):
        FrameCell.model_validate(CELL | change)


def test_unknown_keys_are_named_with_those_allowed(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        'title = "t"\n[[cells]]\nname = "a"\nworld = { frames = "kitti_standin", lag = 1 }\n'
    )
    with pytest.raises(ValueError, match="unknown key; allowed are frames, max_lag, spread"):
        find_experiment(str(path))


def test_a_cell_survives_json_inside_an_experiment():
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": [CELL]})
    (cell,) = Experiment.model_validate(json.loads(json.dumps(experiment.to_dict()))).cells
    assert isinstance(cell, FrameCell)
    assert cell == experiment.cells[0]


def test_rows_are_those_of_the_papers():
    def rows(name):
        return {c.name: (c.model, c.world.max_lag) for c in find_experiment(name).cells}

    table3 = find_experiment("zimmermann2021/table3").cells
    assert len([cell for cell in table3 if cell.published]) == 10
    table5 = find_experiment("zimmermann2020/table5").cells
    assert len([cell for cell in table5 if cell.published]) == 7
    four = rows("matthes2023/kitti_masks")
    declared = [(model, lag) for model, lag in four.values() if model.method != "default"]
    assert {model.method for model, _ in declared} == {"infonce", "nce", "scl", "nwj"}
    assert {(model.p, lag) for model, lag in declared} == {
        (p, lag) for p in (1.0, 2.0) for lag in (1, 5)
    }


@pytest.mark.parametrize(
    "name", ["zimmermann2021/table3", "zimmermann2020/table5", "matthes2023/kitti_masks"]
)
def test_published_frames_have_the_rows_of_the_stand_in(name):
    """And each table has a row to which nothing is declared but the number of factors."""

    def rows(name, **changed):
        cells = [cell.to_dict() for cell in find_experiment(name).cells]
        return [cell | {"world": cell["world"] | changed} for cell in cells]

    assert rows(f"{name}_published") == rows(name, frames="kitti_masks")
    (model,) = (cell["model"] for cell in rows(name) if cell["model"]["method"] == "default")
    assert model["n_components"] == 3
