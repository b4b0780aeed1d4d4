"""Factors that look continuous are warned of once, at the line that asked for the metric."""

import warnings
from functools import partial

import numpy as np
import pytest

from isolatent.checks import IsolatentWarning
from isolatent.evaluation import (
    beta_vae_score,
    dci,
    explicitness,
    factor_vae_score,
    mcc,
    mig,
    modularity,
    sap,
)
from isolatent.theory import derive_guarantee

ROWS = np.arange(60)
FACTORS = np.stack([ROWS % 40, ROWS % 2, ROWS % 50], axis=1)  # 40, 2 and 50 values
FEW = {"train": 20, "held_out": 20}
# Partials call in compiled code, which has no line of its own.
METRICS = {
    "beta_vae": partial(beta_vae_score, **FEW),
    "factor_vae": partial(factor_vae_score, **FEW),
    "mig": mig,
    "modularity": modularity,
    "dci": partial(dci, booster="presorted"),
    "explicitness": explicitness,
    "sap": sap,
}
SPLIT = ["dci", "explicitness", "sap"]


def warned(score, *args, **options):
    """The library's warnings of one call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        score(*args, **options)
    return [w for w in caught if issubclass(w.category, IsolatentWarning)]


@pytest.mark.parametrize("metric", METRICS)
def test_one_warning_names_all_such_factors_at_the_callers_line(metric):
    (one,) = warned(METRICS[metric], FACTORS, FACTORS)
    assert str(one.message).startswith(
        "factor 0 has 40, factor 2 has 50 values at 60 points, which looks continuous"
    )
    assert one.filename == __file__


@pytest.mark.parametrize("metric", SPLIT)
def test_so_it_is_where_points_to_score_are_given(metric):
    (one,) = warned(METRICS[metric], FACTORS, FACTORS, test=(FACTORS[:20], FACTORS[:20]))
    assert str(one.message).startswith("factor 2 has 50 values at 80 points")
    assert one.filename == __file__


@pytest.mark.parametrize("metric", METRICS)
def test_so_are_warnings_of_a_guarantee(metric):
    y = np.stack([ROWS % 2, ROWS % 3], axis=1)
    affine = derive_guarantee("box", "uniform", "normal")
    for one in warned(METRICS[metric], y, y, guarantee=affine):
        assert one.filename == __file__


def test_few_values_few_points_and_metrics_of_numbers_are_not_warned_of():
    assert warned(mig, FACTORS[:, 1], FACTORS) == []
    assert warned(mig, FACTORS[:20], FACTORS[:20]) == []
    assert warned(mcc, FACTORS, FACTORS) == []
    assert warned(sap, FACTORS, FACTORS, continuous=True) == []
