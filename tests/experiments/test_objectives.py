"""Records name the objective of their run; of older records it is derived."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from isolatent.contrast import InfoNCE, Lp, NetworkPotential
from isolatent.encoders import Axes
from isolatent.experiments.execution import execute
from isolatent.experiments.experiment import Experiment
from isolatent.experiments.objectives import (
    NOT_RECORDED,
    is_published_objective,
    objective_of_model,
    objective_of_record,
    pool_objectives,
)
from isolatent.theory import Beliefs, derive_guarantee

RESULTS = Path(__file__).parents[2] / "results"
NARROW_BOX = {
    "name": "a",
    "world": {
        "space": "Box(10)",
        "marginal": "Uniform()",
        "conditional": "Normal(std=0.02)",
        "mixing": "Identity()",
    },
    "model": {"space": "box", "conditional": "normal"},
    "recipe": {"max_steps": 150, "batch_size": 128},
}


def executed(cell):
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": [cell]})
    return execute(experiment.runs([0])[0])


def cell_of(**model):
    return {"model": {"space": "box", "loss": "infonce"} | model}


def curve(*known):
    return [
        {"number": 10 * (k + 1), **({"information": 1.0} if bounded else {})}
        for k, bounded in enumerate(known)
    ]


@pytest.mark.parametrize(
    ("record", "cell", "objective"),
    [
        ({"objective": "stored"}, cell_of(), "stored"),
        (
            {"objective": "InfoNCE (not all relaxations were compared: why), axes by dynamics"},
            cell_of(),
            "InfoNCE, axes by dynamics",
        ),
        ({"curve": curve(1, 1)}, cell_of(), "InfoNCE"),
        ({"curve": curve(1, 0)}, cell_of(), "InfoNCE, saturated by step 20, straightened"),
        ({"curve": curve(1, 0)}, cell_of(space="sphere"), "InfoNCE, saturated by step 20"),
        ({"curve": curve(0, 0)}, cell_of(space="sphere"), "InfoNCE, saturated by step 10"),
        (
            {"curve": curve(1, 1)},
            cell_of(potentials="constant"),
            "InfoNCE with constant potentials",
        ),
        ({"curve": curve(1)}, cell_of(marginal="unknown"), "InfoNCE with learned potentials"),
        ({}, cell_of(), NOT_RECORDED),
        ({}, cell_of() | {"recipe": {"saturation": 0.0}}, "InfoNCE"),
        ({}, cell_of(loss="nce"), "NCE with learned potentials"),
        (
            {},
            cell_of(space="sphere", conditional="anisotropic", loss="aninfonce"),
            "AnInfoNCE, axes turned",
        ),
        ({}, {"model": {"method": "slow_vae"}}, "SlowVAE"),
        ({}, {"model": {"method": "alignuniform"}}, "L_AU"),
        ({}, {}, NOT_RECORDED),
    ],
)
def test_objectives_of_older_records_are_derived(record, cell, objective):
    assert objective_of_record(record, cell) == objective


@pytest.mark.parametrize(
    ("objective", "published"),
    [
        ("InfoNCE", True),
        ("AnInfoNCE", True),
        ("SlowVAE", True),
        ("InfoNCE with constant potentials", True),  # they cancel
        ("InfoNCE with learned potentials", False),
        ("SaturatedInfoNCE", False),
        ("InfoNCE, coordinates straightened", False),
        ("AnInfoNCE, axes turned", False),
        ("AnInfoNCE, codes kept uniform at first", False),
        (NOT_RECORDED, False),
    ],
)
def test_objectives_with_additions_of_ours_are_not_the_papers(objective, published):
    assert is_published_objective(objective) == published


def test_runs_with_different_objectives_are_counted():
    step = "InfoNCE, saturated from step {}"
    assert pool_objectives([]) == ""
    assert pool_objectives([step.format(9), step.format(30), step.format(12)]) == (
        "InfoNCE, saturated from step 9–30"
    )
    assert pool_objectives(["InfoNCE", step.format(9), "InfoNCE"]) == (
        "InfoNCE (2 of 3 runs); InfoNCE, saturated from step 9 (1 of 3 runs)"
    )


def test_a_saturated_run_says_so_and_its_derived_objective_agrees():
    record = executed(NARROW_BOX)
    assert record["status"] == "done", record["error"]
    assert "saturated" in record["objective"].lower()
    derived = objective_of_record(record | {"objective": None}, record["spec"])
    assert derived.startswith("InfoNCE, saturated by step")
    alone = executed(NARROW_BOX | {"recipe": NARROW_BOX["recipe"] | {"saturation": 0.0}})
    assert is_published_objective(alone["objective"])


class Fitted:
    """What is read of a fitted model."""

    def __init__(self, loss, **about):
        self.loss_, self.history_, self.encoder_ = loss, [], nn.Identity()
        card = derive_guarantee(Beliefs("box"))
        self.guarantee_ = type("Card", (), {**vars(card), **about})


def test_the_card_of_a_model_names_its_objective_and_calibration():
    spec = cell_of()
    loss = InfoNCE(Lp(2))
    card = {
        "objective": "SaturatedInfoNCE from step 7",
        "calibration": "codes spanned 99% of their box's sides; 5 of 5 coordinates straightened",
    }
    assert objective_of_model(spec, Fitted(loss, **card)) == (
        "SaturatedInfoNCE from step 7, straightened"
    )
    card = {"objective": "AnInfoNCE", "calibration": "axes not rotated: codes are not uniform"}
    assert objective_of_model(spec, Fitted(loss, **card)) == "AnInfoNCE"  # nothing was applied
    assert objective_of_model(spec, Fitted(loss)) == "InfoNCE"
    with_potentials = InfoNCE(Lp(2), potential_pos=NetworkPotential(3))
    assert objective_of_model(spec, Fitted(with_potentials)) == "InfoNCE with learned potentials"


def test_a_run_with_axes_identifies_what_the_same_run_without_does_not():
    """Uniform factors in a box: without axes a rotation of the codes is open."""
    world = NARROW_BOX["world"] | {"space": "Box(3)", "conditional": "Normal(std=0.1)"}
    cell = NARROW_BOX | {"world": world, "recipe": {"max_steps": 200, "batch_size": 256}}
    free = {"space": "euclidean", "marginal": "uniform", "conditional": "normal"}
    without, record = (executed(cell | {"model": free | axes}) for axes in ({}, {"axes": "ica"}))
    assert record["status"] == "done", record["error"]
    assert "axes" not in without["objective"]
    assert record["objective"].endswith("axes by independence")
    assert record["axes"]["blocks"] == [[0], [1], [2]]
    assert record["scores"]["unsupervised"]["mcc"] > 0.99
    assert without["scores"]["unsupervised"]["mcc"] < 0.95
    assert record["scores"]["unsupervised"]["linear_r2"] == pytest.approx(
        without["scores"]["unsupervised"]["linear_r2"], abs=1e-4
    )


@pytest.mark.parametrize(
    ("method", "blocks", "text"),
    [
        ("ica", ((0,), (1,), (2,)), "InfoNCE, axes by independence"),
        ("dynamics", ((0, 2), (1,)), "InfoNCE, axes by dynamics in 2 blocks"),
        ("ica", ((0, 1, 2),), "InfoNCE, no axes told apart"),
    ],
)
def test_axes_that_were_found_are_part_of_the_objective(method, blocks, text):
    model = Fitted(InfoNCE(Lp(2)))
    model.axes_ = Axes(method, torch.eye(3), torch.zeros(3), blocks, (1.0, 1.0, 1.0), "")
    objective = objective_of_model(cell_of(), model)
    assert objective == text
    assert not is_published_objective(objective)


def test_the_name_of_a_cell_means_one_model():
    """In all stored and declared tables of one paper and its workshop version."""
    models = {}
    for path in RESULTS.glob("zimmermann*/table*/experiments/*.json"):
        for cell in json.loads(path.read_text())["cells"]:
            about = {key: cell[key] for key in ("model", "recipe")}
            assert models.setdefault(cell["name"], about) == about, cell["name"]
