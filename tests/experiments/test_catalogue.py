"""Shipped experiments hold the published numbers; users' files are found and read."""

import json

import pytest

from isolatent.experiments import (
    Experiment,
    find_experiment,
    list_experiments,
)
from isolatent.experiments.catalogue import deep_merge
from own_spec import GOOD

# Copied from the papers by hand, independently of the specs: unsupervised scores and spreads.
TABLE1 = [
    *((99.42, 0.05), (99.86, 0.01), (99.91, 0.01), (99.86, 0.00), (99.60, 0.02), (99.64, 0.02)),
    *((99.70, 0.02), (99.69, 0.02), (99.02, 0.01), (99.02, 0.02), (98.13, 0.14), (98.76, 0.03)),
]
TABLE2 = [
    *((98.62, 0.05), (99.90, 0.06), (99.77, 0.01), (99.76, 0.02), (98.80, 0.02)),
    *((98.57, 0.02), (99.85, 0.01), (58.26, 3.00), (59.67, 2.33), (43.80, 2.15)),
]
WORKSHOP = [
    *((99.52, 0.02), (99.88, 0.03), (99.86, 0.00), (99.53, 0.02), (99.69, 0.02)),
    *((98.94, 0.03), (98.94, 0.02), (97.57, 0.37), (98.70, 0.04)),
]
IDENTITY1 = {
    0: (66.98, 2.79),
    4: (67.93, 7.40),
    8: (63.37, 2.41),
    10: (62.49, 1.65),
    11: (63.57, 2.30),
}
SUPERVISED1 = {
    0: (99.71, 0.05),
    4: (99.78, 0.06),
    8: (99.70, 0.07),
    10: (99.65, 0.04),
    11: (99.61, 0.17),
}
BATCH_BY_DIMENSION = {
    50: {10: 0.89, 20: 0.69, 30: 0.61, 40: 0.49},
    250: {10: 0.99, 20: 0.92, 30: 0.76, 40: 0.72},
    500: {10: 1.0, 20: 0.93, 30: 0.86, 40: 0.83},
    1000: {10: 1.0, 20: 0.94, 30: 0.92, 40: 0.86},
}
BATCH_BY_WEIGHT = {
    50: {25: 0.98, 150: 0.53, 300: 0.43},
    250: {25: 0.99, 150: 0.72, 300: 0.57},
    500: {25: 0.99, 150: 0.81, 300: 0.62},
    1000: {25: 1.0, 150: 0.86, 300: 0.68},
}


def published(name, approach="unsupervised"):
    found = {}
    for index, cell in enumerate(find_experiment(name).cells):
        if approach in cell.published:
            paper = cell.published[approach].get(cell.metrics[0])
            found[index] = (paper.value, paper.spread)
    return found


@pytest.mark.parametrize("name", list_experiments())
def test_every_shipped_spec_validates_and_survives_json(name):
    experiment = find_experiment(name)
    assert experiment.name == name
    assert experiment.title
    assert Experiment.model_validate(json.loads(json.dumps(experiment.to_dict()))) == experiment


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("zimmermann2021/table1", TABLE1),
        ("zimmermann2021/table2", TABLE2),
        ("zimmermann2020/table1", WORKSHOP),
    ],
)
def test_tables_hold_the_published_scores(name, values):
    assert published(name) == dict(enumerate(values))


def test_tables_hold_the_published_baselines():
    assert published("zimmermann2021/table1", "identity") == IDENTITY1
    assert published("zimmermann2021/table1", "supervised") == SUPERVISED1
    assert published("zimmermann2021/table2", "identity") == {0: (46.55, 1.34)}
    supervised = {0: (99.93, 0.03), 5: (99.97, 0.03)}
    assert published("zimmermann2021/table2", "supervised") == supervised


def test_only_the_rows_that_fail_in_the_paper_are_limits():
    table = find_experiment("zimmermann2021/table2")
    limits = {c.name for c in table.cells if c.limits}
    papers = published("zimmermann2021/table2")
    assert limits == {table.cells[index].name for index in papers if papers[index][0] < 80}


def test_grids_hold_the_published_scores():
    cells = {cell.name: cell for cell in find_experiment("rusak2025/scaling").cells}
    for letter, table in (("d", BATCH_BY_DIMENSION), ("lambda", BATCH_BY_WEIGHT)):
        for batch, row in table.items():
            for value, score in row.items():
                cell = cells.pop(f"batch{batch}-{letter}{value}")
                paper = cell.published["unsupervised"]["linear_r2"]
                assert paper.value == pytest.approx(100 * score)
                assert cell.recipe["batch_size"] == batch
                assert cell.world.n == (value if letter == "d" else 20)
                weight = 75.0 if letter == "d" else float(value)
                assert cell.world.conditional[0]["weights"] == weight
    assert not cells


def test_ensemble_and_hard_negatives_hold_the_published_numbers():
    assert [value for value, _ in published("rusak2025/ensemble").values()] == [48.0, 93.0, 98.0]
    hard = find_experiment("rusak2025/hard_negatives").cells[1].world
    assert (hard.n, hard.conditional[0]["weights"], hard.negatives["weights"]) == (20, 150.0, 100.0)


def test_grids_expand_to_readable_names_and_distinct_worlds():
    cells = find_experiment("matthes2023/synthetic").cells
    assert len(cells) == 4 * 4 * 3
    by_name = {cell.name: cell for cell in cells}
    assert by_name["hollow_ball-scl-constant"].world.space["kind"] == "HollowBall"
    assert by_name["box_blocks-nwj-none"].model.potentials == "none"
    assert len({json.dumps(cell.to_dict(), sort_keys=True) for cell in cells}) == len(cells)


def test_an_unknown_name_lists_the_experiments():
    with pytest.raises(ValueError, match="zimmermann2021/table1"):
        find_experiment("zimmermann2021/table9")


def test_a_users_file_is_found_by_its_path(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    experiment = find_experiment(path)
    assert (experiment.name, [c.name for c in experiment.cells]) == ("mine", ["one"])


def test_a_variant_has_the_cells_of_another_file_with_the_same_changes(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD)
    path = tmp_path / "other.toml"
    path.write_text(
        'title = "t"\nvariant_of = "mine.toml"\n'
        'overrides = { recipe = { max_steps = 3 }, model.encoder = "deep" }'
    )
    (cell,), (changed,) = (find_experiment(p).cells for p in (tmp_path / "mine.toml", path))
    assert changed.to_dict() == deep_merge(
        cell.to_dict(), {"recipe": {"max_steps": 3}, "model": {"encoder": "deep"}}
    )


def test_cells_of_a_users_file_can_be_included(tmp_path, monkeypatch):
    """Paths are relative to the file that includes them, not to the current directory."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "other.toml").write_text(GOOD)
    path = tmp_path / "deep" / "mine.toml"
    path.write_text('include = ["er/other.toml:one"]')
    monkeypatch.chdir(tmp_path)
    (cell,) = find_experiment("deep/mine.toml").cells
    assert cell.name == "other-one"
    top = tmp_path / "top.toml"
    top.write_text(f'include = ["{path}:other-one"]')
    assert [cell.name for cell in find_experiment(top).cells] == ["mine-other-one"]
