"""Cells are strict: invalid or contradictory fields are rejected with a message."""

import json

import pytest
from pydantic import ValidationError

from isolatent.experiments import Cell
from isolatent.experiments.catalogue import deep_merge


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
    ],
)
def test_invalid_fields_are_rejected(tiny, change, message):
    with pytest.raises(ValidationError, match=message):
        Cell.model_validate(deep_merge({"name": "a", **tiny}, change))
