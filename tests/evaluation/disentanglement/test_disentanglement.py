"""Laws that hold for every metric: scales of codes, and weights of points."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counted_information import mixture
from isolatent.evaluation import dci, explicitness, factor_vae_score, mcc, mig, modularity, sap
from isolatent.evaluation.columns import binary_exponents
from isolatent.evaluation.disentanglement.betavae_factorvae import (
    StoredPoints,
    beta_vae_statistic,
    factor_vae_statistic,
    sample_examples,
)
from isolatent.evaluation.disentanglement.dci import dci_statistics
from isolatent.evaluation.disentanglement.explicitness import explicitness_statistic
from isolatent.evaluation.disentanglement.mig import mig_statistic, mutual_information
from isolatent.evaluation.disentanglement.modularity import modularity_statistic
from isolatent.evaluation.disentanglement.samples import as_split
from isolatent.evaluation.disentanglement.sap import sap_statistic
from isolatent.theory import INVARIANCES
from noisy_classes import rounded_classes

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # no overflow

SCORES = {
    "factor_vae": lambda y, c: factor_vae_score(y, c, n_train=100, n_test=100, batch_size=4),
    "mig": mig,
    "dci": lambda y, c: dci(y, c, booster="presorted").disentanglement,
    "modularity": modularity,
    "explicitness": explicitness,
    "sap_continuous": lambda y, c: sap(y, c, continuous=True),
    "mcc_pearson": mcc,
    "mcc_spearman": lambda y, c: mcc(y, c, method="spearman"),
}


@pytest.mark.parametrize("metric", SCORES)
def test_powers_of_two_change_no_bit(metric):
    y, c = rounded_classes()
    value = SCORES[metric](y, c)
    assert 0.05 < value < 0.995
    # a code below the threshold does not vote
    for power in (3, 660, 1020) if metric == "factor_vae" else (-1000, -660, -40, 3, 660, 1020):
        assert SCORES[metric](y, np.ldexp(c, power)) == value, power
        mixed = np.ldexp(c, [power, 0])
        assert SCORES[metric](y, mixed) == pytest.approx(value, abs=1e-12), power


def test_scale_invariance_is_tested_for_every_metric_that_declares_it():
    assert set(SCORES) == {name for name, maps in INVARIANCES.items() if "rescaling" in maps}


@pytest.mark.parametrize(("score", "tolerance"), [(mig, 0.05), (modularity, 0.1)])
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_order_sign_and_scale_do_not_change_the_bins_of_codes(score, tolerance, seed):
    rng, y, c = mixture(seed)
    # Powers of two scale without rounding, so no value changes its bin.
    scale = rng.choice([-1, 1], size=4) * 2.0 ** rng.integers(-9, 9, size=4)
    mapped = (c * scale)[:, rng.permutation(4)]
    assert score(y, np.abs(scale) * c) == pytest.approx(score(y, c), abs=1e-12)
    # Mirrored, a value on the edge of two bins falls into the other one; only extremes are there.
    assert score(y, mapped) == pytest.approx(score(y, c), abs=tolerance)


def test_exponents_are_those_of_the_largest_value():
    tiny = np.nextafter(0.0, 1.0)
    columns = np.array([[0.0, tiny, -1e308, 1.0], [0.0, 0.0, 1.0, -0.5]])
    exponent = binary_exponents(columns)
    assert exponent.tolist() == [0, -1073, 1024, 1]
    largest = np.abs(np.ldexp(columns, -exponent)).max(axis=0)
    assert largest[0] == 0
    assert ((largest[1:] >= 0.5) & (largest[1:] < 1)).all()


def statistics():
    """Each metric as a function of point weights."""
    points = as_split(*rounded_classes(), None, 0)
    info = mutual_information(points.train)
    stored = StoredPoints(points.train, 0)
    pairs = [sample_examples(stored, 60, 8, pairs=True) for _ in range(2)]
    batches = [sample_examples(stored, 60, 8, pairs=False) for _ in range(2)]
    return {
        "beta_vae": beta_vae_statistic(stored, *pairs),
        "factor_vae": factor_vae_statistic(stored, points.train.codes, *batches, threshold=0.05),
        "mig": mig_statistic(info),
        "modularity": modularity_statistic(info),
        "explicitness": explicitness_statistic(points),
        "sap": sap_statistic(points, "exact"),
        **dci_statistics(points, "presorted", 0)[1],
    }


def test_equal_weights_give_the_score():
    for name, statistic in statistics().items():
        for weight in (1.0, 2.0):
            found = statistic.weighted(np.full(statistic.n_rows, weight))
            assert found == pytest.approx(statistic.value, abs=1e-12), name


@pytest.mark.parametrize("name", ["beta_vae", "factor_vae", "sap", "informativeness"])
def test_weights_of_test_points_are_repetitions(name):
    """These scores are means over test points or examples."""
    statistic = statistics()[name]
    rows = np.random.default_rng(1).integers(statistic.n_rows, size=statistic.n_rows)
    counts = np.bincount(rows, minlength=statistic.n_rows).astype(float)
    single = np.array([statistic.weighted(row) for row in np.eye(statistic.n_rows)])
    assert statistic.weighted(counts) == pytest.approx(single[rows].mean(), abs=1e-12)
