"""A run on images records scores, correlations of factors with codes, and a latent traversal."""

import base64
import json

import numpy as np
import pytest
from torch import nn

from isolatent.datasets import FactorArray, LaplaceTransitions
from isolatent.evaluation import evaluate_disentanglement
from isolatent.experiments import ImageCell, Run, execute, image_execution
from isolatent.experiments.image_cells import ImageWorldSpec
from isolatent.experiments.image_execution import _correlation, _correlation_ratio
from isolatent.pairs import FactorPairs


@pytest.fixture(scope="module")
def small():
    """Twelve images with three factors: height, width and place of a block."""
    images = np.zeros((2, 3, 2, 64, 64), np.uint8)
    for tall, wide, place in np.ndindex(2, 3, 2):
        left = 4 + 30 * place
        images[tall, wide, place, 10 : 20 + 20 * tall, left : left + 6 + 8 * wide] = 255
    return FactorArray(images.reshape(12, 64, 64), (2, 3, 2), names=("tall", "wide", "place"))


@pytest.mark.parametrize("method", ["alignuniform", "beta_vae"])
def test_a_run_records_scores_and_a_latent_traversal(small, image_cell, monkeypatch, method):
    pairs = FactorPairs(small, LaplaceTransitions())
    monkeypatch.setattr(ImageWorldSpec, "build", lambda self: pairs)
    for name, value in {"N_TRAIN": 200, "N_TEST": 100, "TEST_POINTS": 200}.items():
        monkeypatch.setattr(image_execution, name, value)
    monkeypatch.setattr("isolatent.experiments.latent_traversal.CANDIDATES", 200)
    encoders = []

    def evaluate(model, *given, **options):
        encoders.append(model)
        return evaluate_disentanglement(model, *given, **options)

    monkeypatch.setattr(image_execution, "evaluate_disentanglement", evaluate)
    model = (
        image_cell["model"] if method == "alignuniform" else {"method": method, "n_components": 2}
    )
    cell = ImageCell.model_validate(image_cell | {"model": model})
    record = execute(Run(experiment="own", cell=cell, seed=0, source="own"))
    assert record["status"] == "done", record["error"]
    assert isinstance(encoders[0], nn.Module)  # a bare `transform` would be many times slower
    assert json.loads(json.dumps(record)) == record
    scores = record["scores"]["unsupervised"]
    for name, (low, high) in record["intervals"].items():
        assert low <= high <= 1, name
        assert 0 <= scores[name] <= 1, name
    assert record["measures"]["steps"] == 2
    assert np.shape(record["correlation"]) == (3, 2)
    assert record["factors"] == ["tall", "wide", "place"]
    strips = record["strips"]
    assert strips["kind"] == ("nearest" if method == "alignuniform" else "decoded")
    assert len(strips["rows"]) == 2
    assert all(base64.b64decode(row).startswith(b"\x89PNG") for row in strips["rows"])
    assert len(strips["spreads"]) == 2
    assert record["guarantee"]["equivalence"] is None


class Shape:
    """One code tells the second of three values from the others; one tells nothing."""

    def transform(self, x):
        return np.stack([np.asarray(x)[:, 0, 0, 0] == 1, np.zeros(len(x))], axis=1).astype(float)


def test_a_category_correlates_in_any_order():
    """The rank correlation of such a code is about 0, though the category determines it."""
    images = np.repeat([0.0, 1.0, 0.5], 4).reshape(12, 1, 1, 1).astype(np.float32)
    world = FactorArray(images, (3, 4), categorical=(True, False))
    matrix = _correlation(Shape(), FactorPairs(world, LaplaceTransitions()), seed=0)
    assert matrix[0] == [1.0, 0.0]  # the class determines the code
    assert matrix[1][0] < 0.05
    y = np.array([0, 0, 1, 1])
    ranks = np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    assert _correlation_ratio(y, ranks).tolist() == [0.0, 1.0]
    three = np.array([[2.0], [0.0], [0.0], [-2.0]]) / np.sqrt(2)  # means 1 and -1 over root 2
    assert _correlation_ratio(y, three) == pytest.approx([np.sqrt(0.5)])
