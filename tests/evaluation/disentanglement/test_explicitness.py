"""Explicitness: scikit-learn's AUC, pairs by loops, chance, and affine maps."""

from math import sqrt

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from isolatent.evaluation import explicitness
from isolatent.evaluation.disentanglement.explicitness import explicitness_statistic
from isolatent.evaluation.disentanglement.samples import as_split
from noisy_classes import noisy_classes, noisy_rotation


def test_it_is_the_macro_average_of_scikit_learn():
    y, c = noisy_classes()
    points = as_split(y, c.round(1), None, 0)  # rounded, so that scores tie
    mean, std = points.train.codes.mean(axis=0), points.train.codes.std(axis=0)
    expected = []
    for own, truth in zip(points.train.classes.T, points.test.classes.T, strict=True):
        model = LogisticRegression(max_iter=1000).fit((points.train.codes - mean) / std, own)
        p = model.predict_proba((points.test.codes - mean) / std)
        p = p[:, 1] if p.shape[1] == 2 else p
        expected.append(roc_auc_score(truth, p, multi_class="ovr"))
    assert explicitness(y, c.round(1)) == pytest.approx(np.mean(expected), abs=1e-12)


def test_affine_maps_rotations_included_hardly_matter():
    y, c = noisy_classes(rows=1500)
    turned = c @ ortho_group.rvs(3, random_state=0) * [0.1, 1.0, 10.0] + 5.0
    assert explicitness(y, turned) == pytest.approx(explicitness(y, c), abs=2e-3)
    scaled = -c[:, ::-1] * [0.5, 4.0, 2.0]
    assert explicitness(y, scaled) == pytest.approx(explicitness(y, c), abs=1e-4)


def test_perfect_codes_score_1_and_dead_codes_one_half():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(900, 2))
    assert explicitness(y, y) == 1.0
    assert explicitness(y, np.hstack([y, np.ones((900, 1))])) == 1.0
    assert explicitness(y, np.full((900, 2), 0.1)) == 0.5


def test_a_class_missing_from_a_split_is_left_out():
    y = np.tile([0, 1, 2], 40)
    fitted = y[y < 2]
    # Class 2 was not fitted: its points, at 5, are only others to the points of 0 and 1. Those of 0
    # are before all others, those of 1 before the 40 at 0 and after the 40 at 5: (1 + 1/2) / 2.
    found = explicitness(fitted, fitted, test=(y, np.where(y == 2, 5, y)))
    assert found == pytest.approx(0.75, abs=1e-12)
    assert explicitness(y, y * 1.0, test=(np.tile([0, 2], 9), np.tile([0.0, 2.0], 9))) == 1.0
    with pytest.raises(ValueError, match="a class among both training and test points"):
        explicitness(np.ones(9), np.arange(9), test=(np.zeros(9), np.arange(9)))


def area(scores, inside):
    """P(s > s') + ½ P(s = s') over all pairs of a point inside and one outside."""
    wins = [(a > b) + 0.5 * (a == b) for a in scores[inside] for b in scores[~inside]]
    return sum(wins) / len(wins)


def areas(train, y, test, truth):
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    for f in range(3):
        model = LogisticRegression(max_iter=1000).fit((train - mean) / deviation, y[:, f])
        probability = model.predict_proba((test - mean) / deviation)
        yield sum(area(probability[:, k], truth[:, f] == k) for k in range(3)) / 3


@pytest.mark.parametrize("seed", range(4))
def test_explicitness_of_a_rotation_is_that_of_loops(seed):
    (y, codes), (y_test, codes_test) = noisy_rotation(seed)
    oracle = sum(areas(codes, y, codes_test, y_test)) / 3
    found = explicitness(y, codes, test=(y_test, codes_test))
    assert found == pytest.approx(oracle, abs=1e-9)
    assert 0.8 < found < 1  # lines do not separate the middle class


@pytest.mark.parametrize("seed", range(4))
def test_explicitness_of_white_codes_is_that_before_the_rotation(seed):
    """Their standardised codes are turned, too, which changes neither fit nor penalty."""
    (y, codes), (y_test, codes_test) = noisy_rotation(seed)
    mean = codes.mean(axis=0)
    white = np.linalg.inv(np.linalg.cholesky(np.cov(codes.T, ddof=0))).T
    codes, codes_test = ((part - mean) @ white for part in (codes, codes_test))
    oracle = sum(areas(codes, y, codes_test, y_test)) / 3
    turn = ortho_group.rvs(3, random_state=seed + 10)
    found = explicitness(y, codes @ turn, test=(y_test, codes_test @ turn))
    assert found == pytest.approx(oracle, abs=2e-4)  # where the iterations stop


def test_explicitness_of_noise_is_chance():
    rng = np.random.default_rng(0)
    binary, noise = rng.integers(2, size=(3000, 4)), rng.normal(size=(3000, 2))
    # AUC: deviation √((n + 1) / 12 n₀ n₁) of each factor, with 500 test points of each class
    deviation = sqrt(1001 / (12 * 500 * 500) / 4)
    assert explicitness(binary, noise) == pytest.approx(0.5, abs=4 * deviation)


def test_reweighting_is_right_to_first_order():
    y, c = noisy_classes(rows=3000)
    points = as_split(y, c, None, 0)
    score = explicitness_statistic(points)
    assert score.weighted(np.ones(score.n_rows)) == pytest.approx(score.value, abs=1e-12)
    counts = np.ones(score.n_rows)
    counts[:20] = 2
    rows = np.repeat(np.arange(score.n_rows), counts.astype(int))
    twice = explicitness_statistic(type(points)(points.train, points.test.take(rows))).value
    change = score.weighted(counts) - score.value
    assert twice - score.value == pytest.approx(change, abs=0.05 * abs(change) + 2e-5)
