"""Whatever stands in a file, and wherever, only a mistake of the file is told."""

import json
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.experiments import read_experiment
from own_spec import GOOD


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
