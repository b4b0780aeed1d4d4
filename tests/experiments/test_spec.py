"""Specs are strict, and the hash of a run changes with all that its result depends on."""

import json
from copy import deepcopy

import pytest
from pydantic import ValidationError

from isolatent.experiments import Cell, Experiment, Run
from isolatent.experiments.settings import BESIDE, plain

CHANGES = {
    "name": "other",
    "world": {
        "space": "Sphere(2)",
        "marginal": "Uniform()",
        "conditional": "VonMisesFisher(kappa=11.0)",
        "mixing": "Identity()",
    },
    "model": {"space": "sphere", "conditional": "vmf", "loss": "nce"},
    "recipe": {"max_steps": 5, "batch_size": 16},
    "approaches": ["unsupervised"],
    "metrics": "mcc",
    "blocks": [[0], [1]],
    "measure": ["total_variation"],
    "published": {"unsupervised": 99.0},
    "centre": "median",
    "matches": True,
    "limits": True,
    "note": "a word",
}


def run_of(cell, seed=0):
    return Run(experiment="own", cell=Cell.model_validate(cell), seed=seed, source="own")


def reordered(value):
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return value


def test_the_hash_does_not_depend_on_the_order_of_keys(tiny):
    cell = {"name": "a", **tiny}
    assert run_of(reordered(cell)).hash == run_of(cell).hash


def test_every_field_has_a_change_to_try():
    assert set(CHANGES) == set(Cell.model_fields)


@pytest.mark.parametrize("field", CHANGES)
def test_the_hash_changes_with_every_field_that_matters(tiny, field):
    cell = {"name": "a", **tiny}
    same = run_of(cell | {field: CHANGES[field]}).hash == run_of(cell).hash
    assert same == (field in BESIDE)


def test_the_order_of_approaches_does_not_matter(tiny):
    one, other = (["identity", "unsupervised"], ["unsupervised", "identity", "unsupervised"])
    cells = [{"name": "a", **tiny, "approaches": approaches} for approaches in (one, other)]
    assert run_of(cells[0]).cell == run_of(cells[1]).cell


def test_the_hash_changes_with_seed_and_version(tiny, monkeypatch):
    cell = {"name": "a", **tiny}
    before = run_of(cell).hash
    assert run_of(cell, seed=1).hash != before
    monkeypatch.setattr("isolatent.experiments.spec.__version__", "99")
    assert run_of(cell).hash != before


def test_two_ways_of_writing_a_world_are_one_run(tiny):
    spelled = deepcopy(tiny)
    spelled["world"]["conditional"] = {"kind": "VonMisesFisher", "kappa": 10.0}
    assert run_of({"name": "a", **spelled}).hash == run_of({"name": "a", **tiny}).hash


def test_a_cell_survives_json(tiny):
    cell = Cell.model_validate({"name": "a", **tiny, "published": {"identity": [50, 1.5]}})
    assert Cell.model_validate(json.loads(json.dumps(plain(cell)))) == cell


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"limit": True}, "Extra inputs"),
        ({"limits": 1}, "valid list"),
        ({"limits": ["mcc"]}, "limits must name metrics of the cell: 'linear_r2', got"),
        (
            {"metrics": ["r2"]},
            "must be one of 'linear_r2', 'mcc', 'block_r2', .*'linear_r2_block1', got 'r2'",
        ),
        ({"metrics": "block_r2"}, "blocks must be given"),
        ({"metrics": "linear_r2_block3", "blocks": [[0], [1]]}, "blocks must be as many as"),
        ({"metrics": ["mcc", "mcc"]}, "metrics must differ"),
        ({"approaches": []}, "at least 1 item"),
        ({"metrics": ["mcc", "linear_r2"], "published": {"identity": 9.0}}, "name the metric"),
        ({"published": {"identity": {"mcc": 9.0}}}, "published.identity must name metrics"),
        ({"centre": "mode"}, "must be one of 'mean', 'median', got 'mode'"),
        ({"blocks": [[0], [0]]}, "each of 2 factors once"),
        ({"published": {"supervised": 99.0}}, "which approaches does not"),
        ({"published": {"identity": [1.0, -0.5]}}, "greater than or equal to 0"),
        ({"recipe": {"step": 4}}, "'step' must be one of 'max_steps'"),
        ({"recipe": {"batch_size": 1}}, "batch_size must be an integer >= 2"),
        ({"name": "a/b"}, "should match pattern"),
    ],
)
def test_what_cannot_be_is_refused(tiny, change, told):
    with pytest.raises(ValidationError, match=told):
        Cell.model_validate({"name": "a", **tiny, **change})


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        ("world", {"conditional": "VonMisesFisher(kappa=-1)"}, "kappa must be a finite number > 0"),
        ("world", {"space": "Box(2)"}, "conditional"),
        ("world", {"marginal": "Box(2)"}, "marginal must be a Distribution"),
        ("world", {"negatives": "Uniform()"}, "negatives go with loss 'aninfonce'"),
        ("model", {"loss": "infonc"}, "must be one of 'infonce'.*got 'infonc'"),
        ("model", {"loss": "ensemble"}, "needs several ways"),
        ("model", {"space": "box"}, "goes with space 'sphere'"),
        ("model", {"potentials": "some"}, "must be one of 'none', 'constant', 'learned'"),
    ],
)
def test_worlds_and_models_that_cannot_be_are_refused(tiny, part, change, told):
    cell = {"name": "a", **tiny, part: tiny[part] | change}
    with pytest.raises(ValidationError, match=told):
        Cell.model_validate(cell)


def test_names_are_unique(tiny):
    with pytest.raises(ValidationError, match="come twice"):
        Experiment.model_validate({"name": "a", "title": "", "cells": [{"name": "b", **tiny}] * 2})
