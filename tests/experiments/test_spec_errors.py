"""A file of one's own is read, and mistakes in it are told with file and key."""

import pytest

from isolatent.experiments import find_experiment, read_experiment
from own_spec import GOOD


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
