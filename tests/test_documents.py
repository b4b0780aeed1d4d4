"""The generated parts of the documents agree with the stored results."""

import base64
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from isolatent.experiments.latent_traversal import encode_png

ROOT = Path(__file__).parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fill_tables = script("fill_tables")


@pytest.mark.parametrize("path", fill_tables.DOCUMENTS, ids=lambda path: path.name)
def test_tables_agree_with_the_stored_results(path):
    text = path.read_text(encoding="utf-8")
    assert fill_tables.BLOCK.search(text)
    assert fill_tables.fill(text) == text


def test_the_late_decrease_is_the_share_of_the_last_quarter():
    """A loss of 10 at the start, 4 after three quarters of the steps and 2 at the end."""
    steps = range(1, 101)
    held_out = [10.0] + [4.0] * 74 + [2.0] * 25
    curve = [
        {"number": step, "loss": 0.0, "held_out": loss}
        for step, loss in zip(steps, held_out, strict=True)
    ]
    assert fill_tables._late_decrease({"curve": curve}) == pytest.approx(25.0)
    losses = [{"number": p["number"], "loss": p["held_out"], "held_out": None} for p in curve]
    assert fill_tables._late_decrease({"curve": losses}) == pytest.approx(25.0)


def test_codes_are_labelled_by_correlated_factors_in_their_order():
    pytest.importorskip("matplotlib")
    row = base64.b64encode(encode_png(np.zeros((2, 3, 1), np.uint8))).decode()
    record = {
        "factors": ["shape", "x"],
        "correlation": [[0.1, 0.9, 0.3, 0.2], [0.8, 0.2, 0.4, 0.1]],
        "strips": {"rows": [row] * 4, "spreads": [1.0, 0.5, 0.5, 0.01]},
    }
    labels = [label for label, _ in script("draw_strips").labelled_rows(record)]
    assert labels == ["code 2: shape 0.90", "code 1: x 0.80", "code 3"]  # code 4 is dead
