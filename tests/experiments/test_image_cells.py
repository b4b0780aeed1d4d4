"""Cells on images: what may be written, what is trained, and what a run records."""

import base64
import json

import numpy as np
import pytest
from pydantic import ValidationError
from torch import nn

from isolatent.baselines import AdaGVAE, SlowVAE
from isolatent.datasets import FactorArray, LaplaceTransitions
from isolatent.evaluation import evaluate_disentanglement
from isolatent.experiments import Experiment, ImageCell, Run, execute, images, read_experiment
from isolatent.experiments.image_cells import ImageModelSpec, ImageWorldSpec
from isolatent.experiments.settings import plain
from isolatent.pairs import FactorPairs

CELL = {
    "name": "a",
    "world": {"images": "sprites", "pairs": "lap"},
    "model": {"method": "alignuniform", "alpha": 0.9, "n_components": 2},
    "recipe": {"max_steps": 2, "batch_size": 8},
    "metrics": ["factor_vae", "mcc"],
}


@pytest.fixture(scope="module")
def small():
    """Twelve images with three factors: height, width and place of a block."""
    images = np.zeros((2, 3, 2, 64, 64), np.uint8)
    for tall, wide, place in np.ndindex(2, 3, 2):
        left = 4 + 30 * place
        images[tall, wide, place, 10 : 20 + 20 * tall, left : left + 6 + 8 * wide] = 255
    return FactorArray(images.reshape(12, 64, 64), (2, 3, 2), names=("tall", "wide", "place"))


def run_of(cell):
    return Run(experiment="own", cell=cell, seed=0, source="own")


def test_a_cell_survives_json_inside_an_experiment():
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": [CELL]})
    (cell,) = Experiment.model_validate(json.loads(json.dumps(plain(experiment)))).cells
    assert isinstance(cell, ImageCell)
    assert cell == experiment.cells[0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"world": {"images": "faces", "pairs": "lap"}}, "must be one of 'sprites', 'dsprites'"),
        ({"world": {"images": "sprites", "pairs": "all"}}, "must be one of 'uni', 'lap', 'nat'"),
        (
            {"world": {"images": "sprites", "pairs": "lap", "rate": 0.0}},
            "greater than 0",
        ),
        (
            {"world": {"images": "sprites", "pairs": "lap", "continuous": True}},
            "go with pairs 'nat', got 'lap'",
        ),
        (
            {"world": {"images": "sprites", "pairs": "uni", "rate": 1.0}},
            "rate goes with pairs 'lap'",
        ),
        (
            {"world": {"images": "dsprites", "pairs": "nat", "continuous": True}},
            "continuous goes with images 'sprites'",
        ),
        (
            {"world": {"images": "sprites", "pairs": "nat", "continuous": True}},
            "metrics of continuous factors must be 'mcc'",
        ),
        ({"model": {"method": "slow_vae", "p": 2.0}}, "p goes with alignuniform and infonce"),
        ({"model": {"method": "alignuniform"}}, "alpha must be given for method 'alignuniform'"),
        ({"model": {"method": "infonce", "alpha": 0.5}}, "alpha goes with .*, got 'infonce'"),
        ({"model": {"method": "infonce", "beta": 2.0}}, "beta goes with the methods beta_vae"),
        ({"model": {"method": "vae"}}, "must be one of 'alignuniform', 'infonce', 'beta_vae'"),
        ({"metrics": ["r2"]}, "must be one of 'beta_vae', 'factor_vae'"),
        (
            {"model": {"method": "slow_vae"}, "recipe": {"patience": 3}},
            "must have some of max_steps, batch_size, learning_rate, got .'patience'",
        ),
    ],
)
def test_what_cannot_be_is_refused(change, told):
    with pytest.raises(ValidationError, match=told):
        ImageCell.model_validate(CELL | change)


MOVES = "x_t,y_t,scale_t,x_t+1,y_t+1,scale_t+1\n0,0,0,1,1,1\n"
NATURAL = """
[[cells]]
name = "a"
metrics = "mcc"
world = {images = "sprites", pairs = "nat", transitions = "moves.csv"}
model = {method = "beta_vae"}
"""


def test_the_contents_of_a_table_matter_and_not_its_directory(tmp_path, monkeypatch):
    runs = []
    for folder, moves in (("one", MOVES), ("two", MOVES), ("three", MOVES + "1,0,0,1,1,1\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "moves.csv").write_text(moves)
        (tmp_path / folder / "own.toml").write_text(NATURAL)
        runs += read_experiment(tmp_path / folder / "own.toml").runs([0])
        assert runs[-1].cell.world.build().transitions.table.shape == (len(runs) // 3 + 1, 6)
    assert runs[0].hash == runs[1].hash != runs[2].hash
    told = plain(runs[0].cell)
    assert told == plain(runs[1].cell) != plain(runs[2].cell)
    assert told["world"]["transitions"].startswith("moves.csv sha256:")
    assert plain(ImageCell.model_validate(told)) == told  # a record that is read again
    # A file that is not beside the TOML file is looked for in the current directory.
    (tmp_path / "two" / "moves.csv").unlink()
    monkeypatch.chdir(tmp_path / "one")
    assert read_experiment(tmp_path / "two" / "own.toml").runs([0])[0].hash == runs[0].hash


def test_models_are_built_as_told():
    slow = ImageModelSpec(method="slow_vae", n_components=4).build({"max_steps": 7}, seed=3)
    assert isinstance(slow, SlowVAE)
    assert (slow.n_components, slow.max_steps, slow.random_state) == (4, 7, 3)
    ada = ImageModelSpec(method="ada_gvae", beta=2.0).build({}, seed=0)
    assert isinstance(ada, AdaGVAE)
    assert ada.beta == 2.0
    contrastive = ImageModelSpec(method="alignuniform", alpha=0.99, p=2.0).build({}, seed=0)
    assert (contrastive.loss.alpha, contrastive.loss.own) == (0.99, True)
    assert (contrastive.conditional, contrastive.encoder) == ("normal", "conv")


@pytest.mark.parametrize("method", ["alignuniform", "beta_vae"])
def test_a_run_records_scores_and_pictures(small, monkeypatch, method):
    pairs = FactorPairs(small, LaplaceTransitions())
    monkeypatch.setattr(ImageWorldSpec, "build", lambda self: pairs)
    for name, value in {"FITTED": 200, "HELD_OUT": 100, "TEST_POINTS": 200}.items():
        monkeypatch.setattr(images, name, value)
    monkeypatch.setattr("isolatent.experiments.latent_traversal.POOL", 200)
    encoders = []

    def evaluate(model, *given, **options):
        encoders.append(model)
        return evaluate_disentanglement(model, *given, **options)

    monkeypatch.setattr(images, "evaluate_disentanglement", evaluate)
    model = CELL["model"] if method == "alignuniform" else {"method": method, "n_components": 2}
    record = execute(run_of(ImageCell.model_validate(CELL | {"model": model})))
    assert record["status"] == "done", record["error"]
    assert isinstance(encoders[0], nn.Module)  # a bare `transform` would be many times slower
    assert json.loads(json.dumps(record)) == record
    scores = record["scores"]["unsupervised"]
    for name, (low, high) in record["intervals"].items():
        assert low <= high <= 1, name
        assert 0 <= scores[name] <= 1, name
    assert record["measures"]["steps"] == 2
    assert np.shape(record["correlation"]) == (3, 2)
    assert record["factors"] == ["tall", "wide", "place"]
    strips = record["strips"]
    assert strips["kind"] == ("nearest" if method == "alignuniform" else "decoded")
    assert len(strips["rows"]) == 2
    assert all(base64.b64decode(row).startswith(b"\x89PNG") for row in strips["rows"])
    assert len(strips["spreads"]) == 2
    assert record["guarantee"]["equivalence"] is None
