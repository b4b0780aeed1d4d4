"""The hash of a run covers everything its result depends on, and nothing else."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
from pydantic import ValidationError

from isolatent.experiments import Cell, Experiment, Run
from isolatent.experiments.experiment import UNHASHED

RESULTS = Path(__file__).parents[2] / "results"
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
    "comparable": False,
    "matches": True,
    "limits": True,
    "note": "a note",
}


def run_of(cell, seed=0):
    return Run(experiment="own", cell=Cell.model_validate(cell), seed=seed, source="own")


def reordered(value):
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return value


def test_changes_cover_every_field():
    assert set(CHANGES) == set(Cell.model_fields)


@pytest.mark.parametrize("field", CHANGES)
def test_the_hash_changes_with_every_hashed_field_only(tiny, field):
    cell = {"name": "a", **tiny}
    same = run_of(cell | {field: CHANGES[field]}).hash == run_of(cell).hash
    assert same == (field in UNHASHED)


@pytest.mark.parametrize("change", [{"axes": "auto"}, {"relax": "auto"}, {"relax": ["pairing"]}])
def test_the_hash_changes_with_axes_and_relaxations(tiny, change):
    cell = {"name": "a", **tiny}
    other = cell | {"model": cell["model"] | change}
    assert run_of(other).hash != run_of(cell).hash


def test_the_hash_does_not_depend_on_the_order_of_relaxations_nor_on_an_empty_list(tiny):
    def hash_with(relax):
        return run_of({"name": "a", **tiny, "model": {**tiny["model"], "relax": relax}}).hash

    assert hash_with(["marginal", "pairing"]) == hash_with(["pairing", "marginal"])
    assert hash_with([]) == run_of({"name": "a", **tiny}).hash


def test_stored_runs_have_the_hash_of_their_cell(monkeypatch):
    """New fields of a cell must not change the hash of cells without them."""
    paths = sorted(RESULTS.glob("*/*/runs/*/*.json"))
    assert len(paths) > 200
    for path in paths:
        record = json.loads(path.read_text())
        version = record["versions"]["isolatent"]
        monkeypatch.setattr("isolatent.experiments.experiment.__version__", version)
        spec = {"name": "own", "title": "", "cells": [record["spec"]]}
        (run,) = Experiment.model_validate(spec).runs([record["seed"]])
        assert run.hash == record["hash"], path.name


def test_the_hash_changes_with_seed_and_version(tiny, monkeypatch):
    cell = {"name": "a", **tiny}
    before = run_of(cell).hash
    assert run_of(cell, seed=1).hash != before
    monkeypatch.setattr("isolatent.experiments.experiment.__version__", "99")
    assert run_of(cell).hash != before


def test_the_hash_does_not_depend_on_spelling(tiny):
    """Neither on the order of keys nor on whether a declaration is a call or a table."""
    cell = {"name": "a", **tiny}
    spelled = deepcopy(cell)
    spelled["world"]["conditional"] = {"kind": "VonMisesFisher", "kappa": 10.0}
    assert len({run_of(same).hash for same in (cell, reordered(cell), spelled)}) == 1


def test_names_of_cells_are_unique(tiny):
    with pytest.raises(ValidationError, match="names of cells must be unique"):
        Experiment.model_validate({"name": "a", "title": "", "cells": [{"name": "b", **tiny}] * 2})
