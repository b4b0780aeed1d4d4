"""Boosted classifiers: both boosters against scikit-learn's importances, at any scale of codes."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from isolatent.evaluation import dci
from isolatent.evaluation.disentanglement.boosting import boost
from isolatent.evaluation.disentanglement.samples import as_split
from noisy_classes import noisy_classes, rounded_classes

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # no overflow
TENS = [1e-310, 1e-200, 1e-39, 1e-12, 1e-6, 1e-3, 1e3, 1e20, 1e39, 1e200, 1e307]


def test_presorted_differs_from_scikit_learn_by_ties_alone():
    """No more than 0.01 in importance, as its own seeds do; and in few predictions."""
    y, c = noisy_classes(seed=1, rows=1200, sizes=(2, 3), noise=2.0)
    points = as_split(y, c, None, 0)
    ours, theirs = (boost(points, name, 0, 1) for name in ("presorted", "sklearn"))
    for f, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        model = GradientBoostingClassifier(random_state=0)
        model.fit(points.train.codes, points.train.classes[:, f])
        share = b.impurity_decrease.sum(axis=1) / b.impurity_decrease.sum()
        np.testing.assert_allclose(share, model.feature_importances_, atol=1e-9)
        np.testing.assert_allclose(
            a.impurity_decrease.sum(axis=1) / a.impurity_decrease.sum(), share, atol=0.01
        )
        assert np.mean(a.predicted == b.predicted) > 0.97


def test_threads_and_seeds_do_not_change_presorted():
    y, c = noisy_classes(rows=300)
    points = as_split(y, c, None, 0)
    for a, b in zip(
        boost(points, "presorted", 0, 1), boost(points, "presorted", 5, 2), strict=True
    ):
        np.testing.assert_allclose(a.impurity_decrease, b.impurity_decrease, atol=1e-9)
        np.testing.assert_array_equal(a.predicted, b.predicted)


@pytest.mark.parametrize("scale", TENS)
def test_presorted_trees_do_not_change_with_the_scale(scale):
    y, c = rounded_classes()
    # Test points are training points: between two of them rounding would decide.
    plain, scaled = (
        dci(y, codes, test=(y, codes), booster="presorted") for codes in (c, scale * c)
    )
    np.testing.assert_allclose(scaled.importance, plain.importance, atol=1e-9)
    assert scaled.informativeness == plain.informativeness


def test_trees_of_scikit_learn_do_not_change_with_the_scale():
    y, c = rounded_classes(60)
    y = y[:, 0] > 0
    plain, *scaled = (
        dci(y, s * c, test=(y, s * c), booster="sklearn") for s in (1, 1e-200, 1e39, 1e200)
    )
    for one in scaled:
        np.testing.assert_allclose(one.importance, plain.importance, atol=1e-9)
        assert one.informativeness == plain.informativeness


@pytest.mark.parametrize("booster", ["sklearn", "presorted"])
def test_a_test_point_beyond_float32_is_on_the_far_side_of_every_as_split(booster):
    y, c = np.repeat([0, 1], 20), np.repeat([0.0, 1.0], 20)
    points = as_split(y, c, ([0, 1, 0, 1], [-1e300, 1e300, -1.0, 2.0]), 0)
    assert boost(points, booster, 0, 1)[0].predicted.tolist() == [0, 1, 0, 1]
