"""Cells on images: valid fields, the hash of a file of transitions, and the models built."""

import json

import pytest
from pydantic import ValidationError

from isolatent import ContrastiveICA
from isolatent.baselines import AdaGVAE, SlowVAE
from isolatent.experiments import Experiment, ImageCell, find_experiment
from isolatent.experiments.image_cells import ImageModelSpec


def test_a_cell_survives_json_inside_an_experiment(image_cell):
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": [image_cell]})
    (cell,) = Experiment.model_validate(json.loads(json.dumps(experiment.to_dict()))).cells
    assert isinstance(cell, ImageCell)
    assert cell == experiment.cells[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"world": {"images": "faces", "pairs": "lap"}}, "must be one of 'sprites', 'dsprites'"),
        ({"world": {"images": "sprites", "pairs": "all"}}, "must be one of 'uni', 'lap', 'nat'"),
        (
            {"world": {"images": "sprites", "pairs": "lap", "rate": 0.0}},
            "greater than 0",
        ),
        (
            {"world": {"images": "sprites", "pairs": "lap", "continuous": True}},
            "require pairs 'nat', got 'lap'",
        ),
        (
            {"world": {"images": "sprites", "pairs": "uni", "rate": 1.0}},
            "rate requires pairs 'lap'",
        ),
        (
            {"world": {"images": "dsprites", "pairs": "nat", "continuous": True}},
            "continuous requires images 'sprites'",
        ),
        (
            {"world": {"images": "sprites", "pairs": "nat", "continuous": True}},
            "metrics of continuous factors must be 'mcc'",
        ),
        (
            {"model": {"method": "slow_vae", "p": 2.0}},
            "p requires method 'alignuniform' or 'infonce'",
        ),
        ({"model": {"method": "alignuniform"}}, "alpha must be given for method 'alignuniform'"),
        (
            {"model": {"method": "infonce", "alpha": 0.5}},
            "alpha requires method 'alignuniform', got 'infonce'",
        ),
        ({"model": {"method": "infonce", "beta": 2.0}}, "beta requires a method of beta_vae"),
        (
            {"model": {"method": "slow_vae", "axes": "ica"}},
            "axes requires method 'alignuni",
        ),
        ({"model": {"method": "infonce", "axes": "pca"}}, "must be one of 'auto', 'ica', 'dynam"),
        (
            {"model": {"method": "alignuniform", "alpha": 0.5, "relax": "auto"}},
            "relax requires method 'infonce', got 'alignuniform'",
        ),
        *(
            ({"model": {"method": "default", name: value}}, f"{name} requires method")
            for name, value in [("space", "box"), ("p", 2.0), ("axes", "ica"), ("relax", [])]
        ),
        ({"model": {"method": "vae"}}, "must be one of 'alignuniform', 'infonce', 'nce', "),
        ({"metrics": ["r2"]}, "must be one of 'beta_vae', 'factor_vae'"),
        ({"model": {"method": "slow_vae", "space": "box"}}, "space requires method 'alignuni"),
        ({"model": {"method": "nce", "space": "sphere"}}, "must be one of 'euclidean', 'box'"),
        ({"model": {"method": "infonce", "space": "box", "axes": "ica"}}, "axes of space 'box'"),
        (
            {"model": {"method": "slow_vae"}, "recipe": {"patience": 3}},
            "may have max_steps, batch_size, learning_rate, got .'patience'",
        ),
    ],
)
def test_invalid_fields_are_rejected(image_cell, change, message):
    with pytest.raises(ValidationError, match=message):
        ImageCell.model_validate(image_cell | change)


MOVES = "x_t,y_t,scale_t,x_t+1,y_t+1,scale_t+1\n0,0,0,1,1,1\n"
NATURAL = """
[[cells]]
name = "a"
metrics = "mcc"
world = {images = "sprites", pairs = "nat", transitions = "moves.csv"}
model = {method = "beta_vae"}
"""


def test_the_hash_covers_the_contents_of_transitions_not_their_directory(tmp_path, monkeypatch):
    runs = []
    for folder, moves in (("one", MOVES), ("two", MOVES), ("three", MOVES + "1,0,0,1,1,1\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "moves.csv").write_text(moves)
        (tmp_path / folder / "own.toml").write_text(NATURAL)
        runs += find_experiment(tmp_path / folder / "own.toml").runs([0])
        assert runs[-1].cell.world.build().transitions.table.shape == (len(runs) // 3 + 1, 6)
    assert runs[0].hash == runs[1].hash != runs[2].hash
    stored = runs[0].cell.to_dict()
    assert stored == runs[1].cell.to_dict() != runs[2].cell.to_dict()
    assert stored["world"]["transitions"].startswith("moves.csv sha256:")
    assert ImageCell.model_validate(stored).to_dict() == stored  # a record that is read again
    # A file that is not beside the TOML file is looked for in the current directory.
    (tmp_path / "two" / "moves.csv").unlink()
    monkeypatch.chdir(tmp_path / "one")
    assert find_experiment(tmp_path / "two" / "own.toml").runs([0])[0].hash == runs[0].hash


def test_models_are_built_with_the_given_parameters():
    slow = ImageModelSpec(method="slow_vae", n_components=4).build({"max_steps": 7}, seed=3)
    assert isinstance(slow, SlowVAE)
    assert (slow.n_components, slow.max_steps, slow.random_state) == (4, 7, 3)
    ada = ImageModelSpec(method="ada_gvae", beta=2.0).build({}, seed=0)
    assert isinstance(ada, AdaGVAE)
    assert ada.beta == 2.0
    contrastive = ImageModelSpec(method="alignuniform", alpha=0.99, p=2.0).build({}, seed=0)
    assert (contrastive.loss.alpha, contrastive.loss.include_self) == (0.99, True)
    assert (contrastive.conditional, contrastive.encoder) == ("normal", "conv")


def test_the_default_declares_nothing_but_the_number_of_factors():
    model = ImageModelSpec(method="default", n_components=3, encoder="pooled")
    built, default = model.build({"max_steps": 2}, seed=5), ContrastiveICA(3)
    chosen = {"encoder", "recipe", "random_state", "accelerator"}
    assert {k: v for k, v in built.get_params().items() if k.partition("__")[0] not in chosen} == {
        k: v for k, v in default.get_params().items() if k.partition("__")[0] not in chosen
    }
    assert model.beliefs == default.beliefs
    assert (built.encoder, built.recipe.max_steps, built.random_state) == ("pooled", 2, 5)
