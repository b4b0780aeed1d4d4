"""The same arrays give the same values as `disent`; docs/metrics.md explains the differences."""

import json
from pathlib import Path

import numpy as np
import pytest

from isolatent.evaluation import dci, mig, sap
from isolatent.evaluation.disentanglement.dci import completeness, disentanglement

VALUES = json.loads(Path(__file__).with_name("peer_values.json").read_text())
KINDS = pytest.mark.parametrize("kind", ["aligned", "mixed", "noise"])
SIZES, CODES, TRAIN, TEST = (3, 4, 6), 4, 600, 300


def arrays(kind):
    """As in `make_peer_values.py`."""
    rng = np.random.default_rng(7)
    factors = np.stack([rng.integers(n, size=TRAIN + TEST) for n in SIZES], axis=1)
    noise = rng.normal(size=(len(factors), CODES))
    scaled = factors / np.array(SIZES)
    if kind == "noise":
        return factors, noise
    if kind == "aligned":
        return factors, np.hstack([3.0 * scaled[:, ::-1], noise[:, :1]]) + 0.1 * noise
    return factors, 3.0 * scaled @ rng.normal(size=(len(SIZES), CODES)) + 0.2 * noise


@KINDS
def test_mig_and_sap_are_the_peers(kind):
    y, c = arrays(kind)
    fitted, test = (y[:TRAIN], c[:TRAIN]), (y[TRAIN:], c[TRAIN:])
    assert mig(*fitted) == pytest.approx(VALUES[kind]["mig"], abs=1e-12)
    continuous = sap(*fitted, continuous=True)
    assert continuous == pytest.approx(VALUES[kind]["sap_continuous"], abs=1e-12)
    # its LinearSVC stops early, which may turn the odd one of 300 points
    assert sap(*fitted, test=test) == pytest.approx(VALUES[kind]["sap"], abs=2 / TEST)


@KINDS
def test_dci_of_the_peers_importances_is_the_peers(kind):
    importance = np.array(VALUES[kind]["importance"])
    # it adds 1e-11 to every importance before taking logarithms
    expected = VALUES[kind]["disentanglement"], VALUES[kind]["completeness"]
    ours = disentanglement(importance), completeness(importance)
    assert ours == pytest.approx(expected, abs=1e-8)


@KINDS
def test_dci_is_the_peers_up_to_ties(kind):
    y, c = arrays(kind)
    test = (y[TRAIN:], c[TRAIN:])
    result = dci(y[:TRAIN], c[:TRAIN], test=test, booster="presorted")
    np.testing.assert_allclose(result.importance, VALUES[kind]["importance"], atol=0.03)
    for name in ("disentanglement", "completeness"):
        assert getattr(result, name) == pytest.approx(VALUES[kind][name], abs=0.01)
    assert result.informativeness == pytest.approx(VALUES[kind]["informativeness"], abs=0.02)


@pytest.mark.slow
@KINDS
def test_dci_by_scikit_learn_is_the_peers_up_to_its_seed(kind):
    y, c = arrays(kind)
    result = dci(y[:TRAIN], c[:TRAIN], test=(y[TRAIN:], c[TRAIN:]))
    np.testing.assert_allclose(result.importance, VALUES[kind]["importance"], atol=0.03)
    assert result.disentanglement == pytest.approx(VALUES[kind]["disentanglement"], abs=0.01)
