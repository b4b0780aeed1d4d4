"""Every mistake in the file of an experiment is reported with the file, the cell and the key."""

import json
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.experiments import find_experiment
from own_spec import GOOD


def assert_rejected(path, *messages):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        find_experiment(path)
    assert str(caught.value).startswith(str(path))
    for words in messages:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[cells]]", "[[cell]]", ["mine.toml", "unknown key 'cell'", "cells, grids"]),
        ("model.space", "model.spce", ["mine.toml", "'one'", "model.spce: unknown key", "space"]),
        ('name = "one"', 'name = "one"\nlimit = true', ["limit: unknown key", "limits"]),
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
                "'one': published.unsupervsed: unknown approach; allowed are 'identity', "
                "'supervised' or 'unsupervised'"
            ],
        ),
        ('name = "one"', 'name = "one"\nmetrics = [1]\npublished.identity = 2', ["published.ide"]),
        *(
            (
                'name = "one"',
                f'name = "one"\npublished.identity = {wrong}',
                [
                    "'one': published.identity.linear_r2: must be a number, or a number and its "
                    "spread, such as [99.4, 0.1], got "
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
        ('title = "mine"', "include = [1]", ["include: must be a string, got 1"]),
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
        (GOOD, "", ["the file must have cells, grids, include or variant_of"]),
        ('title = "mine"', "variant_of = 3", ["variant_of: must be a string", "got 3"]),
        ('title = "mine"', 'variant_of = "nope"', ["variant_of: there is no experiment 'nope'"]),
        ('title = "mine"', 'variant_of = "mine.toml"', ["would include itself: mine.toml → mine"]),
        ('title = "mine"', "overrides = { a = 1 }", ["overrides require variant_of"]),
        ('title = "mine"', "overrides = 1", ["overrides: must be a table, got 1"]),
        (GOOD, "cells = []", ["cells: List should have at least 1 item"]),
        (GOOD, "cells = [3]", ["cells[0]: must be a table, got 3"]),
        ('world.marginal = "Uniform()"', "", ["world.marginal: must be given"]),
        ('title = "mine"', "title =", ["mine.toml is not valid TOML"]),
        ('title = "mine"', 'include = ["quick:nothing"]', ["quick has no cell 'nothing'"]),
    ],
)
def test_a_mistake_is_reported_with_file_key_and_allowed_values(tmp_path, old, new, message):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new))
    assert_rejected(path, *message)


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
    ("old", "new", "message"),
    [
        ("({n})", "({m})", "cell.world.space: 'Sphere({m})' names 'm', but the axes are n"),
        ("({n})", "({n.x})", "cell.world.space: 'Sphere({n.x})' names 'n.x', but the axes are n"),
        ("({n})", "({n[0]})", "cell.world.space: 'Sphere({n[0]})' names 'n[0]'"),
        (
            "({n})",
            "({n)",
            "cell.world.space: 'Sphere({n)' has an unmatched brace",
        ),
        ("({n})", "({})", "cell.world.space: 'Sphere({})' names '', but the axes are n"),
        ("n{n}", "n{m}", "name: 'n{m}' names 'm', but the axes are n"),
        ('"n{n}"', "3", "name: must be a string, got 3"),
        (AXES, "axes = 3", "axes: must be a table, got 3"),
        (AXES, "axes = { n = 3 }", "axes.n: must be a list of values, or a table of them, got 3"),
        (CELL, "cell = 3", "cell: must be a table, got 3"),
        (CELL, "cells = 3", ": keys must be name, axes, cell and optionally published, got name"),
        (AXES, AXES + "\npublished = 3", "published: must be a table, got 3"),
        (AXES, AXES + "\npublished.n4 = 3", ": published must name cells of the grid, got n4"),
    ],
)
def test_a_mistake_in_a_grid_is_reported_with_file_and_key(tmp_path, old, new, message):
    path = tmp_path / "mine.toml"
    path.write_text(GRID)
    assert [cell.name for cell in find_experiment(path).cells] == ["n2", "n3"]
    path.write_text(GRID.replace(old, new))
    assert_rejected(path, f"{path}: grids[0]{'' if message.startswith(':') else '.'}{message}")


def test_files_that_include_each_other_are_rejected(tmp_path):
    paths = [tmp_path / f"{name}.toml" for name in "abc"]
    for path, other in zip(paths, [*paths[1:], paths[0]], strict=True):
        path.write_text(f'include = ["{other.name}:one"]\n' + GOOD)
    assert_rejected(paths[0], "include: ", "a.toml → b.toml → c.toml → a.toml")


def test_unreadable_files_are_rejected(tmp_path):
    folder = tmp_path / "g.toml"
    folder.mkdir()
    assert_rejected(folder, "cannot be read: Is a directory")
    assert_rejected(tmp_path / "absent.toml", "cannot be read: No such file")
    named = tmp_path / "my file.toml"
    named.write_text(GOOD)
    assert_rejected(named, "letters, digits and _ . + = - only, got 'my file.toml'")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'title = "\xe4"')
    assert_rejected(latin, "is not valid TOML")


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
    "recipe": {"max_steps": 4},
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
    "defaults": {"recipe": {"batch_size": 16}, "matches": True},
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
def test_any_invalid_value_anywhere_is_reported_with_the_file(data):
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
            find_experiment(path)
        except ValueError as error:
            assert toml(document) != toml(IN_FULL)  # though True == 1.0
            for line in str(error).splitlines():
                assert line.startswith(f"{path}: ")


def test_the_cells_of_a_grid_are_counted_before_they_are_made(tmp_path):
    axes = "\n".join(f"a{k} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for k in range(12))
    path = tmp_path / "many.toml"
    path.write_text(f'[[grids]]\nname = "x"\n[grids.axes]\n{axes}\n[grids.cell]\n')
    with pytest.raises(
        ValueError, match=r"axes: must make at most 10000 cells, got 10 × .* = 1000"
    ):
        find_experiment(path)
