"""Sweeps found in the names of cells, and figures drawn by matplotlib."""

import pytest

from isolatent.experiments import find_experiment
from isolatent.experiments.results import rows_of
from isolatent.plot import experiments as plots


@pytest.mark.parametrize(
    ("name", "label", "series"),
    [
        ("zimmermann2021/table2", None, 0),
        ("zimmermann2021/figure2", "marginal", 9),
        ("rusak2025/figure2", "lambda", 3),
        ("rusak2025/scaling", "batch", 7),
        ("matthes2023/concentration", "sigma", 4),
        ("matthes2023/synthetic", None, 0),
    ],
)
def test_sweeps_of_the_papers(name, label, series):
    names = [cell.name for cell in find_experiment(name).cells]
    found = plots.find_sweep(names)
    if label is None:
        assert found is None
        return
    assert (found[0], len(found[1])) == (label, series)
    assert sorted(cell for points in found[1].values() for _, cell in points) == sorted(names)
    for points in found[1].values():
        assert [x for x, _ in points] == sorted({x for x, _ in points})


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr("isolatent.plot.axes.has_matplotlib", lambda: False)
    with pytest.raises(ModuleNotFoundError, match=r"isolatent\[plot\]"):
        plots.write_figure([], tmp_path / "a.png")


def cell_of(name, published=99.0):
    paper = {"unsupervised": {"mcc": {"value": published, "spread": 0.2}}}
    return {"name": name, "metrics": ["mcc"], "published": paper}


def runs_of(name, *scores):
    about = {"cell": name, "objective": "InfoNCE"}
    return [about | {"scores": {"unsupervised": {"mcc": score}}} for score in scores]


def test_rows_and_lines_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    names = [f"{loss}-sigma{value}" for loss in "ab" for value in (0, 0.1, 1)]
    sweep = {"name": "sweep", "cells": [cell_of(name) for name in names]}
    table = {"name": "table", "cells": [cell_of("vmf"), cell_of("missing", None)]}
    rows = [
        *rows_of(sweep, [run for name in names[:4] for run in runs_of(name, 0.9, 0.95)]),
        *rows_of(table, runs_of("vmf", 0.98)),
    ]
    path = tmp_path / "all.png"
    for _ in range(2):  # it is replaced
        plots.write_figure(rows, path)
        assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["all.png"]
