"""The same arrays give the same values as `disent`; docs/metrics.md explains the differences."""

import json
from pathlib import Path

import numpy as np
import pytest

from isolatent.evaluation import dci, mig, sap
from isolatent.evaluation.disentanglement.dci import completeness, disentanglement
from peer_arrays import KINDS, TEST, TRAIN, arrays

VALUES = json.loads(Path(__file__).with_name("peer_values.json").read_text())
EACH = pytest.mark.parametrize("kind", KINDS)


@EACH
def test_mig_and_sap_are_the_peers(kind):
    y, c = arrays(kind)
    fitted, test = (y[:TRAIN], c[:TRAIN]), (y[TRAIN:], c[TRAIN:])
    assert mig(*fitted) == pytest.approx(VALUES[kind]["mig"], abs=1e-12)
    continuous = sap(*fitted, continuous=True)
    assert continuous == pytest.approx(VALUES[kind]["sap_continuous"], abs=1e-12)
    # its LinearSVC solves the dual problem to its default tolerance
    for solver in ("sklearn", "exact"):
        found = sap(*fitted, test=test, solver=solver)
        assert found == pytest.approx(VALUES[kind]["sap"], abs=2 / TEST)


@EACH
def test_dci_of_the_peers_importances_is_the_peers(kind):
    importance = np.array(VALUES[kind]["importance"])
    # it adds 1e-11 to every importance before taking logarithms
    expected = VALUES[kind]["disentanglement"], VALUES[kind]["completeness"]
    ours = disentanglement(importance), completeness(importance)
    assert ours == pytest.approx(expected, abs=1e-8)


@EACH
def test_dci_is_the_peers_up_to_ties(kind):
    y, c = arrays(kind)
    test = (y[TRAIN:], c[TRAIN:])
    result = dci(y[:TRAIN], c[:TRAIN], test=test, booster="presorted")
    np.testing.assert_allclose(result.importance, VALUES[kind]["importance"], atol=0.03)
    for name in ("disentanglement", "completeness"):
        assert getattr(result, name) == pytest.approx(VALUES[kind][name], abs=0.01)
    assert result.informativeness == pytest.approx(VALUES[kind]["informativeness"], abs=0.02)


@pytest.mark.slow
@EACH
def test_dci_by_scikit_learn_is_the_peers_up_to_its_seed(kind):
    y, c = arrays(kind)
    result = dci(y[:TRAIN], c[:TRAIN], test=(y[TRAIN:], c[TRAIN:]), booster="sklearn")
    np.testing.assert_allclose(result.importance, VALUES[kind]["importance"], atol=0.03)
    assert result.disentanglement == pytest.approx(VALUES[kind]["disentanglement"], abs=0.01)
