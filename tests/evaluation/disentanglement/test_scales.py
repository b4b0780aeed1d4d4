"""Metrics that do not change with the scale of codes do not at 1e±200 either."""

import numpy as np
import pytest

from isolatent.evaluation import dci, explicitness, factor_vae_score, mcc, mig, modularity, sap
from isolatent.evaluation.columns import binary_exponents
from isolatent.evaluation.disentanglement.boosting import boost
from isolatent.evaluation.disentanglement.samples import split
from isolatent.theory import INVARIANCES

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # nothing may overflow

SCORES = {
    "factor_vae": lambda y, c: factor_vae_score(y, c, train=100, held_out=100, batch=4),
    "mig": mig,
    "dci": lambda y, c: dci(y, c, booster="presorted").disentanglement,
    "modularity": modularity,
    "explicitness": explicitness,
    "sap_continuous": lambda y, c: sap(y, c, continuous=True),
    "mcc_pearson": mcc,
    "mcc_spearman": lambda y, c: mcc(y, c, method="spearman"),
}
TENS = [1e-310, 1e-200, 1e-39, 1e-12, 1e-6, 1e-3, 1e3, 1e20, 1e39, 1e200, 1e307]


def noisy(rows=300):
    """Codes with two decimals, so that trees separate any two of them at any scale."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(rows, 2))
    return y, (y @ [[1.5, -0.6], [0.5, 1.5]] + 0.5 * rng.normal(size=y.shape)).round(2)


@pytest.mark.parametrize("metric", SCORES)
def test_powers_of_two_change_no_bit(metric):
    y, c = noisy()
    value = SCORES[metric](y, c)
    assert 0.05 < value < 0.995
    # below its threshold a code does not vote
    for power in (3, 660, 1020) if metric == "factor_vae" else (-1000, -660, -40, 3, 660, 1020):
        assert SCORES[metric](y, np.ldexp(c, power)) == value, power
        mixed = np.ldexp(c, [power, 0])
        assert SCORES[metric](y, mixed) == pytest.approx(value, abs=1e-12), power


def test_those_are_the_metrics_that_declare_it():
    assert set(SCORES) == {name for name, maps in INVARIANCES.items() if "rescaling" in maps}


@pytest.mark.parametrize("scale", TENS)
def test_trees_do_not_change_with_the_scale(scale):
    y, c = noisy()
    # Only held-out points that are fitted ones are not between two of them, where rounding decides.
    plain, scaled = (
        dci(y, codes, test=(y, codes), booster="presorted") for codes in (c, scale * c)
    )
    np.testing.assert_allclose(scaled.importance, plain.importance, atol=1e-9)
    assert scaled.informativeness == plain.informativeness


def test_nor_do_those_of_scikit_learn():
    y, c = noisy(60)
    y = y[:, 0] > 0
    plain, *scaled = (dci(y, s * c, test=(y, s * c)) for s in (1, 1e-200, 1e39, 1e200))
    for one in scaled:
        np.testing.assert_allclose(one.importance, plain.importance, atol=1e-9)
        assert one.informativeness == plain.informativeness


@pytest.mark.parametrize("booster", ["sklearn", "presorted"])
def test_a_held_out_point_beyond_float32_is_on_the_far_side_of_every_split(booster):
    y, c = np.repeat([0, 1], 20), np.repeat([0.0, 1.0], 20)
    points = split(y, c, ([0, 1, 0, 1], [-1e300, 1e300, -1.0, 2.0]), 0)
    assert boost(points, booster, 0, 1)[0].predicted.tolist() == [0, 1, 0, 1]


def test_exponents_are_those_of_the_largest_value():
    tiny = np.nextafter(0.0, 1.0)
    columns = np.array([[0.0, tiny, -1e308, 1.0], [0.0, 0.0, 1.0, -0.5]])
    exponent = binary_exponents(columns)
    assert exponent.tolist() == [0, -1073, 1024, 1]
    largest = np.abs(np.ldexp(columns, -exponent)).max(axis=0)
    assert largest[0] == 0
    assert ((largest[1:] >= 0.5) & (largest[1:] < 1)).all()
