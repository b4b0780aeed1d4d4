import pytest

from isolatent.experiments import Experiment, Run, Store

TINY = {
    "world": {
        "space": "Sphere(2)",
        "marginal": "Uniform()",
        "conditional": "VonMisesFisher(kappa=10.0)",
        "mixing": "Identity()",
    },
    "model": {"space": "sphere", "conditional": "vmf"},
    "recipe": {"max_steps": 4, "batch_size": 16},
}
# An encoder for images, which fails when it is given vectors.
FAILING_MODEL = {**TINY["model"], "encoder": "conv"}


@pytest.fixture(scope="session")
def tiny():
    """A cell that trains for four steps, as a table of a TOML file."""
    return TINY


@pytest.fixture
def image_cell():
    """A cell on images that trains for two steps, as a table of a TOML file."""
    return {
        "name": "a",
        "world": {"images": "sprites", "pairs": "lap"},
        "model": {"method": "alignuniform", "alpha": 0.9, "n_components": 2},
        "recipe": {"max_steps": 2, "batch_size": 8},
        "metrics": ["factor_vae", "mcc"],
    }


@pytest.fixture
def experiment(tiny):
    cells = [{"name": name, **tiny} for name in ("first", "second")]
    return Experiment.model_validate({"name": "own", "title": "two cells", "cells": cells})


@pytest.fixture
def failing(tiny):
    """Three cells of which the second fails."""
    cells = [
        {"name": "first", **tiny},
        {"name": "broken", **tiny, "model": FAILING_MODEL},
        {"name": "last", **tiny},
    ]
    return Experiment.model_validate({"name": "own", "title": "one fails", "cells": cells})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


@pytest.fixture
def run(experiment) -> Run:
    return experiment.runs([0])[0]
