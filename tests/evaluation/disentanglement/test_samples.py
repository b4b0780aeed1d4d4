"""Factors read as classes: which look continuous, and which arrays are rejected."""

import warnings

import numpy as np
import pytest

from isolatent.checks import IsolatentWarning
from isolatent.evaluation import mcc, mig, sap
from isolatent.evaluation.disentanglement.samples import as_split
from isolatent.theory import Beliefs, derive_guarantee
from metrics_of_classes import METRICS

ROWS = np.arange(60)
FACTORS = np.stack([ROWS % 40, ROWS % 2, ROWS % 50], axis=1)  # 40, 2 and 50 values
SPLIT = ["dci", "explicitness", "sap"]
every_metric = pytest.mark.parametrize("metric", METRICS)


def warned(score, *args, **options):
    """Return the library's warnings of one call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        score(*args, **options)
    return [w for w in caught if issubclass(w.category, IsolatentWarning)]


@every_metric
def test_one_warning_names_all_continuous_factors_at_the_line_of_the_call(metric):
    (one,) = warned(METRICS[metric], FACTORS, FACTORS)
    assert str(one.message).startswith(
        "factor 0 has 40, factor 2 has 50 values at 60 points, which looks continuous"
    )
    assert one.filename == __file__


@pytest.mark.parametrize("metric", SPLIT)
def test_one_warning_is_for_training_and_test_points_together(metric):
    (one,) = warned(METRICS[metric], FACTORS, FACTORS, test=(FACTORS[:20], FACTORS[:20]))
    assert str(one.message).startswith("factor 2 has 50 values at 80 points")
    assert one.filename == __file__


@every_metric
def test_warnings_of_a_guarantee_are_at_the_line_of_the_call(metric):
    y = np.stack([ROWS % 2, ROWS % 3], axis=1)
    affine = derive_guarantee(Beliefs("box", conditional="normal"))
    for one in warned(METRICS[metric], y, y, guarantee=affine):
        assert one.filename == __file__


def test_few_values_few_points_and_metrics_of_numbers_do_not_warn():
    assert warned(mig, FACTORS[:, 1], FACTORS) == []
    assert warned(mig, FACTORS[:20], FACTORS[:20]) == []
    assert warned(mcc, FACTORS, FACTORS) == []
    assert warned(sap, FACTORS, FACTORS, continuous=True) == []


def test_a_third_of_the_points_is_scored_unless_they_are_given():
    points = as_split(ROWS % 3, ROWS, None, 0)
    assert (len(points.train), len(points.test)) == (40, 20)
    assert sorted([*points.train.codes[:, 0], *points.test.codes[:, 0]]) == list(ROWS)
    given = as_split(ROWS[:50] % 3, ROWS[:50], (ROWS[50:] % 3, ROWS[50:]), 0)
    np.testing.assert_array_equal(given.test.codes[:, 0], ROWS[50:])


@every_metric
def test_a_constant_factor_is_rejected(metric):
    with pytest.raises(ValueError, match=r"factors must vary .* got constant column 1"):
        METRICS[metric](np.stack([ROWS % 3, 0 * ROWS], axis=1), ROWS)


@pytest.mark.parametrize("metric", SPLIT)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"random_state": -1}, ValueError, "random_state must be an integer >= 0, got -1"),
        ({"test": np.ones(3)}, TypeError, "test must be a tuple"),
        ({"test": (np.ones((9, 2)), np.ones(9))}, ValueError, "test factors must have 1 columns"),
        ({"test": (np.ones(9), np.ones(8))}, ValueError, "as many rows each"),
    ],
)
def test_bad_splits_are_rejected(metric, options, error, message):
    with pytest.raises(error, match=message):
        METRICS[metric](ROWS % 3, ROWS, **options)
