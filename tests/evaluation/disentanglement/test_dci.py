"""DCI: entropies by loops, degenerate cases, rotations and noise."""

import math

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from isolatent.evaluation import dci
from isolatent.evaluation.disentanglement.dci import completeness, disentanglement
from noisy_classes import noisy_classes, noisy_rotation

BOTH = pytest.mark.parametrize("booster", ["sklearn", "presorted"])


def naive_disentanglement(importance):
    total, score = sum(map(sum, importance)), 0.0
    for row in importance:
        entropy = 0.0
        for value in row:
            if value > 0:
                share = value / sum(row)
                entropy -= share * math.log(share, len(row))
        score += sum(row) / total * (1 - entropy)
    return score


def test_scores_of_importances_are_those_of_naive_loops_and_of_each_other():
    importance = np.random.default_rng(0).dirichlet(np.ones(4), size=3).T  # (4, 3)
    importance[2] = 0.0
    assert disentanglement(importance) == pytest.approx(naive_disentanglement(importance))
    assert completeness(importance) == pytest.approx(naive_disentanglement(importance.T))
    assert disentanglement(np.eye(3)) == completeness(np.eye(3)) == 1.0
    assert disentanglement(np.ones((3, 3))) == pytest.approx(0.0)
    assert disentanglement(np.zeros((3, 2))) == completeness(np.zeros((3, 2))) == 0.0


@BOTH
def test_permuted_and_rescaled_factors_score_1_with_dead_codes_or_without(booster):
    rng = np.random.default_rng(0)
    y = np.stack([rng.integers(n, size=150) for n in (2, 3)], axis=1)
    for codes in (-5.0 * y[:, ::-1] + 1.0, np.hstack([y, np.ones((150, 2))])):
        result = dci(y, codes, booster=booster)
        assert result.disentanglement == pytest.approx(1.0, abs=1e-9)
        assert result.completeness == pytest.approx(1.0, abs=1e-9)
        assert result.informativeness == 1.0
        assert result.booster == booster
        assert result.importance.shape == (codes.shape[1], 2)


def test_presorted_importances_do_not_change_with_monotone_maps():
    y, c = noisy_classes()
    plain = dci(y, c, booster="presorted")
    mapped = dci(y, np.sinh(c), booster="presorted")
    np.testing.assert_allclose(mapped.importance, plain.importance, atol=1e-9)
    # another order or sign lets another of two equally good splits come first
    moved = dci(y, -c[:, [2, 0, 1]], booster="presorted")
    np.testing.assert_allclose(moved.importance, plain.importance[[2, 0, 1]], atol=0.04)


@BOTH
def test_degenerate_cases(booster):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(90, 2))
    dead = dci(y, np.zeros((90, 3)), booster=booster)
    assert dead.disentanglement == dead.completeness == 0.0
    one_code = dci(y, y[:, 0], booster=booster)
    assert one_code.completeness == 1.0
    assert one_code.disentanglement < 1.0
    one_factor = dci(y[:, 0], y.astype(float), booster=booster)
    assert one_factor.disentanglement == 1.0
    # a class missing from the training points is never predicted, a single one always is
    fitted, scored = np.repeat([[0, 0], [0, 1]], 30, axis=0), np.tile([[1, 1]], (10, 1))
    missing = dci(fitted, fitted, test=(scored, scored), booster=booster)
    assert missing.informativeness == 0.5
    np.testing.assert_allclose(missing.importance[:, 0], 0.0)


def one_less_entropy(shares):
    total = sum(shares)
    return 1 + sum(s / total * math.log(s / total, len(shares)) for s in shares if s > 0)


@pytest.mark.parametrize("seed", range(2))
def test_dci_of_a_rotation_is_that_of_loops(seed):
    (y, codes), (y_test, codes_test) = noisy_rotation(seed)
    importance, accuracy = np.zeros((3, 3)), []
    for f in range(3):
        model = GradientBoostingClassifier(random_state=0).fit(codes, y[:, f])
        importance[:, f] = model.feature_importances_
        accuracy.append(np.mean(model.predict(codes_test) == y_test[:, f]))
    total = importance.sum()
    d = sum(row.sum() / total * one_less_entropy(row) for row in importance)
    c = sum(column.sum() / total * one_less_entropy(column) for column in importance.T)
    found = dci(y, codes, test=(y_test, codes_test), booster="sklearn")
    assert (found.disentanglement, found.completeness) == pytest.approx((d, c), abs=1e-9)
    assert found.informativeness == pytest.approx(np.mean(accuracy), abs=1e-12)
    # the other booster breaks ties differently, as another seed of this one does
    quick = dci(y, codes, test=(y_test, codes_test), booster="presorted")
    np.testing.assert_allclose(quick.importance, importance, atol=0.03)
    assert (quick.disentanglement, quick.completeness) == pytest.approx((d, c), abs=0.02)


def test_on_the_diagonal_every_code_is_equally_important_for_both_factors():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(1500, 2))
    turned = dci(
        y, y @ [[1.0, 1.0], [1.0, -1.0]] + 0.05 * rng.normal(size=y.shape), booster="presorted"
    )
    np.testing.assert_allclose(turned.importance, 0.5, atol=0.1)
    assert turned.disentanglement == pytest.approx(0.0, abs=0.03)  # 1 - H(½ + 0.1) to base 2
    assert turned.completeness == pytest.approx(0.0, abs=0.03)
    assert turned.informativeness > 0.98


def test_importances_of_noise_are_equal_and_predictions_right_by_chance():
    rng = np.random.default_rng(0)
    y, noise = rng.integers(3, size=(3000, 2)), rng.normal(size=(3000, 2))
    found = dci(y, noise, booster="presorted")
    deviation = math.sqrt(1 / 3 * 2 / 3 / 2000)
    assert found.informativeness == pytest.approx(1 / 3, abs=4 * deviation)
    np.testing.assert_allclose(found.importance, 0.5, atol=0.1)
    assert found.disentanglement == pytest.approx(0.0, abs=0.03)


def test_an_unknown_booster_is_rejected():
    with pytest.raises(ValueError, match="booster must be one of 'sklearn', 'presorted'"):
        dci(np.arange(12) % 3, np.arange(12), booster="lightgbm")
