"""A record holds everything a report needs, and the command that repeats the run."""

import json

import numpy as np
import pytest

from isolatent.experiments import Cell, Run, execute, execution
from isolatent.experiments.catalogue import deep_merge
from isolatent.pairs import WorldViews
from published_layouts import write_3dident

ANISOTROPIC = {"space": "sphere", "conditional": "anisotropic", "loss": "aninfonce"}


CHANGES = {
    "name": "one",
    "world": {
        "space": "Sphere(3)",
        "marginal": "VonMisesFisher(kappa=2.0)",
        "mixing": "Linear()",
    },
    "recipe": {"max_steps": 30, "batch_size": 32},
    "approaches": ["identity", "supervised", "unsupervised"],
    "measure": ["total_variation", "gradient_noise"],
    "blocks": [[0, 1], [2]],
}


@pytest.fixture(scope="module")
def record(tiny):
    return record_of(deep_merge(tiny, CHANGES))


@pytest.fixture(scope="module")
def record_by_mcc(tiny):
    """The record of the same cell with MCC as its first metric."""
    return record_of(deep_merge(tiny, CHANGES) | {"metrics": ["mcc", "linear_r2"]})


def record_of(cell):
    return execute(Run(experiment="a/b", cell=Cell.model_validate(cell), seed=3, source="a/b"))


def test_the_record_is_complete_and_json(record):
    assert record["status"] == "done", record["error"]
    assert json.loads(json.dumps(record)) == record
    assert set(record["scores"]) == {"identity", "supervised", "unsupervised"}
    for scores in record["scores"].values():
        assert np.mean(scores["linear_r2_per_factor"]) == pytest.approx(
            scores["linear_r2"], abs=1e-4
        )
        first, second = (scores[f"linear_r2_block{k}"] for k in (1, 2))
        assert (2 * first + second) / 3 == pytest.approx(scores["linear_r2"])
    assert record["scores"]["identity"]["linear_r2"] == pytest.approx(1, abs=1e-4)  # it is linear
    assert Cell.model_validate(record["spec"]).name == "one"
    assert Cell.model_validate(record["spec"]).to_dict() == record["spec"]
    assert record["command"] == "isolatent reproduce a/b --cells one --first-seed 3 --seeds 1"
    assert record["guarantee"]["metric"]
    assert record["scale"]["true"] == 10.0
    assert {"isolatent", "torch", "python"} <= set(record["versions"])


def test_curve_and_scatter_are_thin(record):
    curve = record["curve"]
    assert 0 < len(curve) <= 100
    assert curve[-1]["number"] == 30
    assert {"loss", "held_out", "quality"} <= set(curve[-1])
    true, recovered = (np.array(record["scatter"][name]) for name in ("true", "recovered"))
    assert true.shape == recovered.shape == (200, 3)


def test_codes_are_aligned_as_for_the_first_metric(record, record_by_mcc):
    """The squared diagonal is R² after a linear map; the diagonal is MCC after an assignment."""
    assert (record["alignment"], record_by_mcc["alignment"]) == ("linear", "assignment")
    linear, matched = (np.diag(np.array(r["correlation"])) for r in (record, record_by_mcc))
    assert (linear**2).mean() == pytest.approx(
        record["scores"]["unsupervised"]["linear_r2"], abs=0.02
    )
    score = record_by_mcc["scores"]["unsupervised"]["mcc"]
    assert matched.mean() == pytest.approx(score, abs=1e-3)


def test_measures_are_recorded(record):
    assert 0.3 < record["measures"]["total_variation"] < 0.6
    noise = record["measures"]["gradient_noise"]
    assert noise["finite"]
    assert noise["noise"] > 0


@pytest.mark.parametrize(
    ("world", "model", "true"),
    [
        (
            {
                "conditional": "AnisotropicNormal(30.0)",
                "negatives": "AnisotropicNormal(20.0)",
                "negatives_per_anchor": 2,
            },
            ANISOTROPIC,
            [10.0, 10.0],
        ),
        (
            {"conditional": ["AnisotropicNormal([1.0, 9.0])", "AnisotropicNormal([9.0, 1.0])"]},
            ANISOTROPIC | {"loss": "ensemble"},
            [[1.0, 9.0], [9.0, 1.0]],
        ),
    ],
)
def test_hard_negatives_and_ensembles_run(tiny, world, model, true):
    cell = {"name": "a", **tiny, "world": tiny["world"] | world, "model": model}
    record = record_of(cell)
    assert record["status"] == "done", record["error"]
    assert record["scale"]["true"] == true
    assert np.shape(record["scale"]["learned"]) == np.shape(true)


def test_a_run_is_deterministic(run):
    first, second = execute(run), execute(run)
    assert first["scores"] == second["scores"]
    assert first["curve"] == second["curve"]


@pytest.mark.parametrize(
    "stored",
    [
        150,
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param("3dident", marks=pytest.mark.slow),
    ],
)
def test_scenes_are_rendered_or_stored(tiny, monkeypatch, tmp_path, stored):
    monkeypatch.setattr(execution, "TEST_POINTS", 120)
    monkeypatch.setattr(execution, "IDENTITY_SIZE", 2)
    monkeypatch.setenv("ISOLATENT_DATA", str(tmp_path))
    if stored == "3dident":
        write_3dident(tmp_path / "train", 30)
        write_3dident(tmp_path / "test", 60)
    cell = {
        "name": "scene",
        "world": {
            "space": "Box(10, -1, 1)",
            "marginal": "Uniform()",
            "conditional": "Normal(std=0.1)",
            "mixing": "Scene3D(size=16)",
        },
        "model": {"space": "box", "conditional": "normal", "encoder": "pooled"},
        "recipe": {"max_steps": 2, "batch_size": 16},
        "approaches": ["identity", "supervised", "unsupervised"],
        "metrics": ["linear_r2", "mcc"],
    }
    if stored is not None:
        cell["world"]["stored"] = stored
    record = record_of(cell)
    assert record["status"] == "done", record["error"]
    assert json.loads(json.dumps(record)) == record
    assert len(record["scores"]["unsupervised"]["linear_r2_per_factor"]) == 10
    assert set(record["scores"]) == set(cell["approaches"])
    assert Cell.model_validate(record["spec"]).world.stored == stored


def test_augmented_scenes_are_a_world_of_their_own(tiny):
    scene = {"space": "Box(10, -1, 1)", "marginal": "Uniform()", "mixing": "Scene3D(size=16)"}
    scene |= {"conditional": "Normal(std=1e-9)", "augmentations": {"hue": 0.0}}
    cell = Cell.model_validate({"name": "a", "world": scene, "model": {"space": "sphere"}})
    pairs = cell.world.build(0)
    assert isinstance(pairs, WorldViews)
    assert pairs.augmentations.hue == 0
    assert "augmented views" in cell.guarantee().gap
    assert Cell.model_validate(cell.to_dict()) == cell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stored": 1}, "must be an integer >= 2, or '3dident' for the published images, got 1"),
        ({"stored": "faces"}, "must be an integer >= 2, or '3dident'"),
        ({"stored": 5, "conditional": ["Normal(0.1)", "Laplace(0.1)"]}, "takes one conditional"),
        ({"stored": 5, "augmentations": {}}, "augmentations take one conditional"),
        ({"augmentations": {"blur": 1.0}}, "'blur' must be one of 'crop', 'flip'"),
        ({"augmentations": {"crop": 2.0}}, "crop must be a share of the area"),
    ],
)
def test_wrong_scenes_are_refused(tiny, change, message):
    cell = deep_merge(tiny, {"name": "a", "world": {"space": "Box(2)", **change}})
    with pytest.raises(ValueError, match=message):
        Cell.model_validate(cell)
