"""Invariances of each metric, and the warnings that follow from them."""

import numpy as np
import pytest

from isolatent.checks import IsolatentWarning
from isolatent.evaluation import (
    beta_vae_score,
    bootstrap,
    dci,
    explicitness,
    factor_vae_score,
    mcc,
    mig,
    modularity,
    sap,
)
from isolatent.theory import INVARIANCES, Beliefs, derive_guarantee
from isolatent.theory.invariances import objection

AFFINE = derive_guarantee(Beliefs("box", conditional="normal"))
SCALED = derive_guarantee(Beliefs("box", conditional="laplace"))
NOTHING = derive_guarantee(Beliefs("sphere", "unknown"), potentials="none")
FEW = {"n_train": 400, "n_test": 400}
SCORES = {
    "beta_vae": lambda y, c: beta_vae_score(y, c, **FEW),
    "factor_vae": lambda y, c: factor_vae_score(y, c, **FEW),
    "mig": mig,
    "dci": lambda y, c: dci(y, c, booster="presorted").disentanglement,
    "modularity": modularity,
    "explicitness": explicitness,
    "sap": sap,
    "sap_continuous": lambda y, c: sap(y, c, continuous=True),
    "mcc_pearson": mcc,
    "mcc_spearman": lambda y, c: mcc(y, c, method="spearman"),
}
MAPS = {
    "permutation": lambda c: c[:, [2, 0, 1]],
    "sign": lambda c: c * [1, -1, -1],
    "rescaling": lambda c: c * [0.25, 1.0, 8.0],
    "monotone map": np.sinh,
    "rotation": lambda c: c @ np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0],
}


def noisy():
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=(1500, 3))
    return y, 1.5 * (y - 1.5) + [[0.4, 0.0, 0.0]] * y[:, ::-1] + 0.3 * rng.normal(size=y.shape)


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("name", MAPS)
def test_metrics_keep_their_value_under_the_maps_they_declare(metric, name):
    y, c = noisy()
    change = abs(SCORES[metric](y, MAPS[name](c)) - SCORES[metric](y, c))
    if name in INVARIANCES[metric]:
        assert change < 0.02  # ties, edges of bins, penalties
    elif name == "rotation" and metric != "beta_vae":  # which codes that mix factors can satisfy
        assert change > 0.05


def test_every_metric_has_its_invariances():
    assert set(SCORES) == set(INVARIANCES)
    assert {m for maps in INVARIANCES.values() for m in maps} == set(MAPS)


@pytest.mark.parametrize("metric", sorted(set(INVARIANCES) - {"explicitness"}))
def test_an_affine_guarantee_is_not_enough_for_metrics_of_single_codes(metric):
    assert "rotation" in objection(metric, AFFINE)
    assert "linear_r2 is right for it" in objection(metric, AFFINE)


def test_what_a_guarantee_suffices_for_is_not_objected_to():
    assert objection("explicitness", AFFINE) == ""
    for metric in ("factor_vae", "mig", "dci", "modularity", "mcc_pearson", "mcc_spearman"):
        assert objection(metric, SCALED) == ""
    assert "sap changes with rescaling" in objection("sap", SCALED)
    assert "nothing is proven" in objection("mig", NOTHING)


@pytest.mark.parametrize(
    "score", [mcc, mig, modularity, sap, lambda *a, **k: dci(*a, booster="presorted", **k)]
)
def test_metrics_warn_of_a_guarantee_that_does_not_suffice(score):
    y = np.tile([[0, 0], [0, 1], [1, 0], [1, 1]], (15, 1))
    with pytest.warns(IsolatentWarning, match=r"changes with .*rotation.*\(affine map\)"):
        score(y, y, guarantee=AFFINE)
    with pytest.raises(TypeError, match="guarantee must be a Guarantee or None, got 'affine'"):
        score(y, y, guarantee="affine")


def test_an_interval_of_mcc_warns_as_mcc_does_and_is_the_same():
    y, c = noisy()
    with pytest.warns(IsolatentWarning, match=r"mcc_spearman changes with rotation"):
        warned = bootstrap(mcc, y, c, method="spearman", guarantee=AFFINE)
    assert warned == bootstrap(mcc, y, c, method="spearman", guarantee=SCALED)
    assert warned == bootstrap(mcc, y, c, method="spearman")
