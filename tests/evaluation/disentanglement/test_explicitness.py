"""Explicitness: scikit-learn's AUC, chance, and affine maps."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from isolatent.evaluation import explicitness
from isolatent.evaluation.disentanglement.explicitness import explicitness_of
from isolatent.evaluation.disentanglement.samples import split


def noisy(seed=0, rows=600, sizes=(2, 4), codes=3):
    rng = np.random.default_rng(seed)
    y = np.stack([rng.integers(n, size=rows) for n in sizes], axis=1)
    return rng, y, y @ rng.normal(size=(len(sizes), codes)) + rng.normal(size=(rows, codes))


def test_it_is_the_macro_average_of_scikit_learn():
    _, y, c = noisy()
    points = split(y, c.round(1), None, 0)  # rounded, so that scores tie
    mean, std = points.train.codes.mean(axis=0), points.train.codes.std(axis=0)
    expected = []
    for own, truth in zip(points.train.classes.T, points.test.classes.T, strict=True):
        model = LogisticRegression(max_iter=1000).fit((points.train.codes - mean) / std, own)
        p = model.predict_proba((points.test.codes - mean) / std)
        p = p[:, 1] if p.shape[1] == 2 else p
        expected.append(roc_auc_score(truth, p, multi_class="ovr"))
    assert explicitness(y, c.round(1)) == pytest.approx(np.mean(expected), abs=1e-12)


def test_affine_maps_rotations_included_hardly_matter():
    rng, y, c = noisy(rows=1500)
    turned = c @ np.linalg.qr(rng.normal(size=(3, 3)))[0] * [0.1, 1.0, 10.0] + 5.0
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
    with pytest.raises(ValueError, match="a class both fitted and held out, got none"):
        explicitness(np.ones(9), np.arange(9), test=(np.zeros(9), np.arange(9)))


def test_resampling_is_right_to_first_order():
    _, y, c = noisy(rows=3000)
    points = split(y, c, None, 0)
    score = explicitness_of(points)
    assert score.of_counts(np.ones(score.rows)) == pytest.approx(score.value, abs=1e-12)
    counts = np.ones(score.rows)
    counts[:20] = 2
    rows = np.repeat(np.arange(score.rows), counts.astype(int))
    twice = explicitness_of(type(points)(points.train, points.test.take(rows))).value
    change = score.of_counts(counts) - score.value
    assert twice - score.value == pytest.approx(change, abs=0.05 * abs(change) + 2e-5)
