"""Cells are strict: invalid or contradictory fields are rejected with a message."""

import json

import pytest
from pydantic import ValidationError

from isolatent.experiments import Cell, find_experiment
from isolatent.experiments.catalogue import deep_merge
from isolatent.training import ContrastiveICA


def test_a_cell_survives_json(tiny):
    cell = Cell.model_validate({"name": "a", **tiny, "published": {"identity": [50, 1.5]}})
    assert Cell.model_validate(json.loads(json.dumps(cell.to_dict()))) == cell


def test_the_order_of_approaches_does_not_matter(tiny):
    first, second = (
        Cell.model_validate({"name": "a", **tiny, "approaches": approaches})
        for approaches in (
            ["identity", "unsupervised"],
            ["unsupervised", "identity", "unsupervised"],
        )
    )
    assert first == second


@pytest.mark.parametrize(
    ("change", "message"),
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
        ({"published": {"supervised": 99.0}}, "names .'supervised'., missing from approaches"),
        ({"published": {"identity": [1.0, -0.5]}}, "greater than or equal to 0"),
        ({"centre": "mode"}, "must be one of 'mean', 'median', got 'mode'"),
        ({"blocks": [[0], [0]]}, "each of 2 factors once"),
        ({"recipe": {"step": 4}}, "'step' must be one of 'max_steps'"),
        ({"recipe": {"batch_size": 1}}, "batch_size must be an integer >= 2"),
        ({"name": "a/b"}, "should match pattern"),
        ({"world": {"conditional": "VonMisesFisher(kappa=-1)"}}, "kappa must be a finite number >"),
        ({"world": {"space": "Box(2)"}}, "conditional"),
        ({"world": {"marginal": "Box(2)"}}, "marginal must be a Distribution"),
        ({"world": {"marginal": 3}}, "must be a call such as 'Box.10.' or a table, got 3"),
        ({"world": {"negatives": "Uniform()"}}, "negatives go with loss 'aninfonce'"),
        ({"model": {"loss": "infonc"}}, "must be one of 'infonce'.*got 'infonc'"),
        ({"model": {"loss": "ensemble"}}, "needs several ways"),
        ({"model": {"space": "box"}}, "goes with space 'sphere'"),
        ({"model": {"potentials": "some"}}, "must be one of 'none', 'constant', 'learned'"),
        ({"model": {"axes": "pca"}}, "must be one of 'auto', 'ica', 'dynamics', got 'pca'"),
        ({"model": {"axes": "ica"}}, "axes of space 'sphere' must be 'auto' or left out"),
        ({"model": {"relax": "pairs"}}, "relax must be 'auto' or names from .*, got 'pairs'"),
        ({"model": {"relax": ["scale"]}}, "relax must be 'auto' or names from .*, got 'scale'"),
        ({"model": {"relax": ["pairing", "pairing"]}}, "must not name a relaxation twice"),
        ({"model": {"relax": True}}, "relax must be 'auto', a name or a tuple of names"),
        ({"model": {"space": None}}, "space must be given where conditional is"),
    ],
)
def test_invalid_fields_are_rejected(tiny, change, message):
    with pytest.raises(ValidationError, match=message):
        Cell.model_validate(deep_merge({"name": "a", **tiny}, change))


def test_a_model_that_declares_nothing_is_the_default_of_the_estimator(tiny):
    cell = Cell.model_validate({"name": "a", **tiny, "model": {}})
    model, default = cell.estimator(seed=0), ContrastiveICA(cell.world.n)
    names = ("space", "marginal", "conditional", "p", "relax", "axes")
    assert [getattr(model, name) for name in names] == [getattr(default, name) for name in names]
    assert cell.model.beliefs == default.beliefs


def test_a_model_with_a_space_has_neither_relaxations_nor_axes_unless_they_are_written(tiny):
    """So that cells of before keep their meaning."""
    cell = Cell.model_validate({"name": "a", **tiny})
    plain = cell.estimator(seed=0).set_params(relax=(), axes=None)
    assert cell.estimator(seed=0)._axes() is plain._axes() is None
    assert cell.estimator(seed=0)._relax() == plain._relax() == ()
    assert not {"axes", "relax"} & cell.to_dict()["model"].keys()


def test_relaxations_and_axes_reach_the_estimator(tiny):
    free = {"space": "euclidean", "conditional": "normal"}
    model = free | {"relax": ["marginal", "pairing"], "axes": "ica"}
    cell = Cell.model_validate({"name": "a", **tiny, "model": model})
    estimator = cell.estimator(seed=0)
    assert (estimator.relax, estimator.axes) == (["pairing", "marginal"], "ica")
    assert Cell.model_validate(json.loads(json.dumps(cell.to_dict()))) == cell


def test_small_scenes_have_the_pairs_of_world_and_model_of_the_table():
    """Rows that train in a small part of the time, and the default that declares nothing."""

    def kinds(small):
        found = {}
        for cell in find_experiment("zimmermann2021/table4").cells:
            if cell.name.startswith("small_") != small or cell.world.stored:
                continue
            views = cell.world.augmentations is not None
            model = (cell.model.space, cell.model.marginal, cell.model.conditional)
            key = (cell.world.conditional[0]["kind"], views, model)
            found[key] = (cell.published, cell.limits, "supervised" in cell.approaches)
        return found

    assert len(kinds(True)) == 6
    assert kinds(True) == kinds(False)
