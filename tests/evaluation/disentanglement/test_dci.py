"""DCI: its weights by hand, its two boosters against scikit-learn's own importances."""

import math

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from isolatent.evaluation import dci
from isolatent.evaluation.disentanglement import presorted
from isolatent.evaluation.disentanglement.boosting import boost
from isolatent.evaluation.disentanglement.dci import completeness, dci_of, disentanglement
from isolatent.evaluation.disentanglement.samples import split

BOTH = pytest.mark.parametrize("booster", ["sklearn", "presorted"])


def noisy(seed=0, rows=600, sizes=(2, 4), codes=3, noise=1.0):
    rng = np.random.default_rng(seed)
    y = np.stack([rng.integers(n, size=rows) for n in sizes], axis=1)
    return y, y @ rng.normal(size=(len(sizes), codes)) + noise * rng.normal(size=(rows, codes))


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


def test_trees_on_one_code_are_those_of_scikit_learn(monkeypatch):
    """With one code only rounding can decide between splits, which it does late if at all."""
    points = split(*noisy(rows=450, codes=1), None, 0)
    for stages, tolerance in ((20, 1e-9), (100, 2e-3)):
        monkeypatch.setattr(presorted, "STAGES", stages)
        for f, fit in enumerate(boost(points, "presorted", 0, 1)):
            model = GradientBoostingClassifier(n_estimators=stages, random_state=0)
            model.fit(points.train.codes, points.train.classes[:, f])
            gain = sum(  # what importances are before they are normalised
                tree.tree_.compute_feature_importances(normalize=False)[0] * len(points.train)
                for tree in model.estimators_.ravel()
            )
            assert fit.credit.sum() == pytest.approx(gain, rel=tolerance)
            assert np.mean(fit.predicted == model.predict(points.test.codes)) > 1 - 10 * tolerance


def test_presorted_differs_from_scikit_learn_by_ties_alone():
    """No more than 0.01 in importance, as its own seeds do; and in few predictions."""
    y, c = noisy(seed=1, rows=1200, sizes=(2, 3), noise=2.0)
    points = split(y, c, None, 0)
    ours, theirs = (boost(points, name, 0, 1) for name in ("presorted", "sklearn"))
    for f, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        model = GradientBoostingClassifier(random_state=0)
        model.fit(points.train.codes, points.train.classes[:, f])
        share = b.credit.sum(axis=1) / b.credit.sum()
        np.testing.assert_allclose(share, model.feature_importances_, atol=1e-9)
        np.testing.assert_allclose(a.credit.sum(axis=1) / a.credit.sum(), share, atol=0.01)
        assert np.mean(a.predicted == b.predicted) > 0.97


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
    y, c = noisy()
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
    # a class missing among the fitted points is never predicted, one value is always predicted
    fitted, scored = np.repeat([[0, 0], [0, 1]], 30, axis=0), np.tile([[1, 1]], (10, 1))
    missing = dci(fitted, fitted, test=(scored, scored), booster=booster)
    assert missing.informativeness == 0.5
    np.testing.assert_allclose(missing.importance[:, 0], 0.0)


def test_threads_and_seeds_do_not_change_presorted():
    y, c = noisy(rows=300)
    points = split(y, c, None, 0)
    for a, b in zip(
        boost(points, "presorted", 0, 1), boost(points, "presorted", 5, 2), strict=True
    ):
        np.testing.assert_allclose(a.credit, b.credit, atol=1e-9)
        np.testing.assert_array_equal(a.predicted, b.predicted)


def test_resampling_every_point_once_gives_the_scores():
    y, c = noisy(rows=300)
    result, scores = dci_of(split(y, c, None, 0), "presorted", 0)
    for name, score in scores.items():
        assert score.of_counts(np.ones(score.rows)) == pytest.approx(score.value, abs=1e-12)
        assert getattr(result, name) == score.value


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"booster": "lightgbm"}, ValueError, "booster must be one of 'sklearn', 'presorted'"),
        ({"seed": -1}, ValueError, "seed must be an integer >= 0, got -1"),
        ({"test": np.ones(3)}, TypeError, "test must be a tuple"),
        ({"test": (np.ones((9, 2)), np.ones(9))}, ValueError, "test factors must have 1 columns"),
        ({"test": (np.ones(9), np.ones(8))}, ValueError, "as many rows each"),
    ],
)
def test_refused_arguments(options, error, message):
    with pytest.raises(error, match=message):
        dci(np.arange(12) % 3, np.arange(12), **options)
