"""Shipped specs say what the papers say, and mistakes in a file are told with file and key."""

import json
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.experiments import Experiment, find_experiment, list_experiments, read_experiment
from isolatent.experiments.settings import plain

# Copied from the papers by hand, apart from the specs: unsupervised, and its spread where printed.
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
GOOD = """
title = "mine"
[[cells]]
name = "one"
world.space = "Sphere(3)"
world.marginal = "Uniform()"
world.conditional = "VonMisesFisher(kappa=10)"
model.space = "sphere"
model.conditional = "vmf"
"""


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
    assert Experiment.model_validate(json.loads(json.dumps(plain(experiment)))) == experiment


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("zimmermann2021/table1", TABLE1),
        ("zimmermann2021/table2", TABLE2),
        ("zimmermann2020/table1", WORKSHOP),
    ],
)
def test_the_tables_hold_what_was_printed(name, values):
    assert published(name) == dict(enumerate(values))


def test_baselines_stand_where_they_were_printed():
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


def test_the_scaling_grids_hold_what_was_printed():
    cells = {cell.name: cell for cell in find_experiment("rusak2025/scaling").cells}
    for letter, table in (("d", BATCH_BY_DIMENSION), ("lambda", BATCH_BY_WEIGHT)):
        for batch, row in table.items():
            for value, score in row.items():
                cell = cells.pop(f"batch{batch}-{letter}{value}")
                paper = cell.published["unsupervised"]["linear_r2"]
                assert paper.value == pytest.approx(100 * score)
                assert cell.recipe["batch"] == batch
                assert cell.world.n == (value if letter == "d" else 20)
                weight = 75.0 if letter == "d" else float(value)
                assert cell.world.conditional[0]["weights"] == weight
    assert not cells


def test_other_published_numbers():
    assert [value for value, _ in published("rusak2025/ensemble").values()] == [48.0, 93.0, 98.0]
    hard = find_experiment("rusak2025/hard_negatives").cells[1].world
    assert (hard.n, hard.conditional[0]["weights"], hard.negatives["weights"]) == (20, 150.0, 100.0)


def test_grids_expand_to_readable_names_and_distinct_worlds():
    cells = find_experiment("matthes2023/synthetic").cells
    assert len(cells) == 4 * 4 * 3
    by_name = {cell.name: cell for cell in cells}
    assert by_name["hollow_ball-scl-constant"].world.space["kind"] == "HollowBall"
    assert by_name["box_blocks-nwj-none"].model.potentials == "none"
    assert len({json.dumps(plain(cell), sort_keys=True) for cell in cells}) == len(cells)


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    experiment = find_experiment(path)
    assert (experiment.name, [c.name for c in experiment.cells]) == ("mine", ["one"])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[[cells]]", "[[cell]]", ["mine.toml", "'cell' is no key here", "cells, grids"]),
        ("model.space", "model.spce", ["mine.toml", "'one'", "model.spce: no such key", "space"]),
        ('name = "one"', 'name = "one"\nlimit = true', ["limit: no such key", "limits"]),
        ('"vmf"', '"vmf"\nmodel.loss = "nll"', ["'one'", "model.loss", "'infonce'", "got 'nll'"]),
        ("kappa=10", "kappa=-1", ["'one'", "world.conditional", "> 0, got -1"]),
        ("kappa=10", "cappa=10", ["world.conditional", "VonMisesFisher takes kappa"]),
        (
            "Sphere(3)",
            "Spere(3)",
            [
                "world.space: kind must be one of 'Box', 'CubeGrid', 'Euclidean', 'HollowBall', "
                "'Product', 'Sphere', got 'Spere'"
            ],
        ),
        ('"Uniform()"', '{ kind = "Sphere2" }', ["world.marginal", "'Uniform', 'Von", "'Sphere2'"]),
        ("kappa=10", "kappa=linspace(1)", ["world.conditional", "linspace(first, last, count)"]),
        (
            'name = "one"',
            'name = "one"\npublished.unsupervsed = 3',
            [
                "'one': published.unsupervsed: no such approach; allowed are 'identity', "
                "'supervised' or 'unsupervised'"
            ],
        ),
        ('name = "one"', 'name = "one"\nmetrics = [1]\npublished.identity = 2', ["published.ide"]),
        *(
            (
                'name = "one"',
                f'name = "one"\npublished.identity = {wrong}',
                [
                    "'one': published.identity.linear_r2: must be a number, or it and its spread, "
                    "such as [99.4, 0.1], got "
                ],
            )
            for wrong in ('"99.4"', "[[1], 2]", '["99.4", 0.1]', "[99.4]", "[]", "true", "nan")
        ),
        (
            'name = "one"',
            'name = "one"\npublished.identity = { value = "a" }',
            ["'one': published.identity.linear_r2.value: Input should be a valid number"],
        ),
        (
            "[[cells]]",
            "[cells]",
            ["cells: must be a list of tables, written [[cells]], got a tabl"],
        ),
        ('title = "mine"', "title = 3", ["title: "]),
        ('title = "mine"', "defaults = 3", ["defaults: must be a table, got 3"]),
        ('title = "mine"', "include = 3", ["include: must be a list of", "got 3"]),
        ('title = "mine"', 'include = "quick"', ["include: must be a list of", "got 'quick'"]),
        ('title = "mine"', 'include = ["quick"]', ["include: must name a cell", "got 'quick'"]),
        ('title = "mine"', "include = [1]", ["include: must be a text, got 1"]),
        ('title = "mine"', 'include = ["nope:a"]', ["include: there is no experiment 'nope'"]),
        (
            'title = "mine"',
            'include = ["no/other.toml:a"]',
            ["include: ", "no/other.toml: cannot be read: No such file"],
        ),
        (
            'title = "mine"',
            'include = ["mine.toml:one"]',
            ["include: ", "the file would include itself: mine.toml → mine.toml"],
        ),
        ('title = "mine"', "grids = [1]", ["grids[0]: must be a table, got 1"]),
        ('title = "mine"', "grids = 1", ["grids: must be a list of tables, written [[grids]]"]),
        (GOOD, "", ["the file must have cells, grids or include"]),
        (GOOD, "cells = []", ["cells: List should have at least 1 item"]),
        (GOOD, "cells = [3]", ["cells[0]: must be a table, got 3"]),
        ('world.marginal = "Uniform()"', "", ["world.marginal: must be given"]),
        ('title = "mine"', "title =", ["mine.toml is not valid TOML"]),
        ('title = "mine"', 'include = ["quick:nothing"]', ["quick has no cell 'nothing'"]),
    ],
)
def test_a_mistake_is_told_with_file_key_and_what_is_allowed(tmp_path, old, new, told):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new))
    assert_told(path, *told)


def assert_told(path, *told):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_experiment(path)
    assert str(caught.value).startswith(str(path))
    for words in told:
        assert words in str(caught.value)


GRID = """
title = "mine"
[[grids]]
name = "n{n}"
axes = { n = [2, 3] }
cell.world.space = "Sphere({n})"
cell.world.marginal = "Uniform()"
cell.world.conditional = "VonMisesFisher(kappa=10)"
cell.model.space = "sphere"
cell.model.conditional = "vmf"
"""
AXES = "axes = { n = [2, 3] }"
CELL = GRID[GRID.index("cell.") :]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("({n})", "({m})", "cell.world.space: 'Sphere({m})' names 'm', but the axes are n"),
        ("({n})", "({n.x})", "cell.world.space: 'Sphere({n.x})' names 'n.x', but the axes are n"),
        ("({n})", "({n[0]})", "cell.world.space: 'Sphere({n[0]})' names 'n[0]'"),
        (
            "({n})",
            "({n)",
            "cell.world.space: 'Sphere({n)' has a brace that is no part of an {axis}",
        ),
        ("({n})", "({})", "cell.world.space: 'Sphere({})' names '', but the axes are n"),
        ("n{n}", "n{m}", "name: 'n{m}' names 'm', but the axes are n"),
        ('"n{n}"', "3", "name: must be a text, got 3"),
        (AXES, "axes = 3", "axes: must be a table, got 3"),
        (AXES, "axes = { n = 3 }", "axes.n: must be a list of values, or a table of them, got 3"),
        (CELL, "cell = 3", "cell: must be a table, got 3"),
        (CELL, "cells = 3", ": a grid has name, axes, cell and perhaps published, got name, axes"),
        (AXES, AXES + "\npublished = 3", "published: must be a table, got 3"),
        (AXES, AXES + "\npublished.n4 = 3", ": published names no cell of the grid: n4"),
    ],
)
def test_a_mistake_in_a_grid_is_told_with_file_and_key(tmp_path, old, new, told):
    path = tmp_path / "mine.toml"
    path.write_text(GRID)
    assert [cell.name for cell in read_experiment(path).cells] == ["n2", "n3"]
    path.write_text(GRID.replace(old, new))
    assert_told(path, f"{path}: grids[0]{'' if told.startswith(':') else '.'}{told}")


def test_cells_of_a_file_of_ones_own_can_be_included(tmp_path, monkeypatch):
    """Paths are relative to the file that names them, wherever the command is run."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "other.toml").write_text(GOOD)
    path = tmp_path / "deep" / "mine.toml"
    path.write_text('include = ["er/other.toml:one"]')
    monkeypatch.chdir(tmp_path)
    (cell,) = find_experiment("deep/mine.toml").cells
    assert cell.name == "other-one"
    top = tmp_path / "top.toml"
    top.write_text(f'include = ["{path}:other-one"]')
    assert [cell.name for cell in read_experiment(top).cells] == ["mine-other-one"]


def test_files_that_include_each_other_are_told(tmp_path):
    paths = [tmp_path / f"{name}.toml" for name in "abc"]
    for path, other in zip(paths, [*paths[1:], paths[0]], strict=True):
        path.write_text(f'include = ["{other.name}:one"]\n' + GOOD)
    assert_told(paths[0], "include: ", "a.toml → b.toml → c.toml → a.toml")


def test_files_that_are_none(tmp_path):
    folder = tmp_path / "g.toml"
    folder.mkdir()
    assert_told(folder, "cannot be read: Is a directory")
    assert_told(tmp_path / "absent.toml", "cannot be read: No such file")
    named = tmp_path / "my file.toml"
    named.write_text(GOOD)
    assert_told(named, "letters, digits and _ . + = - alone, got 'my file.toml'")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'title = "\xe4"')
    assert_told(latin, "is not valid TOML")


def toml(value):
    """A value as TOML, all in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def places(value, path=()):
    """Every path into a document."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else ()
    for key, part in enumerate(value) if isinstance(value, list) else inside:
        yield from places(part, (*path, key))


CELL_IN_FULL = {
    "name": "one",
    "world": {
        "space": "Sphere(3)",
        "marginal": {"kind": "Uniform"},
        "conditional": ["VonMisesFisher(kappa=10)", "AnisotropicNormal([5.0] * 3)"],
        "mixing": "InvertibleMLP(layers=3)",
    },
    "model": {"space": "sphere", "conditional": "vmf", "loss": "infonce"},
    "recipe": {"steps": 4},
    "approaches": ["identity", "unsupervised"],
    "metrics": ["linear_r2", "block_mcc"],
    "published": {"unsupervised": {"linear_r2": [99.0, 0.5]}},
    "limits": ["linear_r2"],
    "blocks": [[0, 1], [2]],
    "note": "",
}
IMAGES = {
    "name": "images",
    "world": {"images": "sprites", "pairs": "lap", "rate": 1.0},
    "model": {"method": "alignuniform", "alpha": 0.5},
    "metrics": "mcc",
    "published": {"unsupervised": 50.0},
    "limits": True,
}
IN_FULL = {
    "title": "mine",
    "note": "mine",
    "include": ["other.toml:one"],
    "defaults": {"recipe": {"batch": 16}, "matches": True},
    "cells": [CELL_IN_FULL, IMAGES],
    "grids": [
        {
            "name": "n{n}-{m}",
            "axes": {"n": [2, 3], "m": {"a": {"world": {"marginal": "Uniform()"}}}},
            "published": {"n2-a": [99.0, 0.5]},
            "cell": {
                "world": {"space": "Sphere({n})", "conditional": "VonMisesFisher(kappa={n})"},
                "model": {"space": "sphere", "conditional": "vmf"},
            },
        }
    ],
}
WRONG = [
    *(3, -1, 2.5, 10**400, True, "", "text", "{n", "{}", "{n.x}", "a:b", "other.toml:", "x.toml:a"),
    *([], [1], [[1]], ["a", "b"], [{}], {}, {"a": 3}, {"kind": "Box"}, {"kind": 3}, {"value": []}),
    *(
        "Box(",
        "Box(linspace(1))",
        "Laplace([1] * 'a')",
        "Laplace([1] * 1000000000000)",
        "Box(-'a')",
    ),
    *("Product(a=1)", "Sphere(" + "-" * 2000 + "1)", "Laplace(linspace(0, 1, 1000000000000))"),
]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_stands_in_a_file_only_a_mistake_of_the_file_is_told(data):
    document = deepcopy(IN_FULL)
    for _ in range(data.draw(st.integers(0, 2), label="mistakes")):
        *path, last = data.draw(st.sampled_from([*places(document)]), label="place")
        inner = reduce(getitem, path, document)
        inner[last] = deepcopy(data.draw(st.sampled_from(WRONG), label="wrong"))
    with TemporaryDirectory() as folder:
        (Path(folder) / "other.toml").write_text(GOOD)
        path = Path(folder) / "mine.toml"
        path.write_text("\n".join(f"{key} = {toml(value)}" for key, value in document.items()))
        try:
            read_experiment(path)
        except ValueError as error:
            assert toml(document) != toml(IN_FULL)  # though True == 1.0
            for line in str(error).splitlines():
                assert line.startswith(f"{path}: ")


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(ValueError, match="zimmermann2021/table1"):
        find_experiment("zimmermann2021/table9")
