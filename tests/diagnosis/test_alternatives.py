"""Other exponents, spaces and numbers of codes: which are tried, and what they show."""

import warnings

import numpy as np
import pytest

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.diagnosis.alternatives import base_of, check_alternatives
from isolatent.diagnosis.held_out import hold_pairs_out
from isolatent.diagnosis.stationarity import check_stationarity

RECIPE = iso.Recipe(max_steps=150, batch_size=256, warmup=20)


def checked(conditional, codes, step, **options):
    """Return checks of a linear box of three factors."""
    world = iso.World(iso.Box(3), iso.Uniform(), step, iso.Linear(), seed=0)
    x, x_pos = world.sample_pairs(3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsolatentWarning)
        model = iso.ContrastiveICA(
            codes, space="box", conditional=conditional, recipe=RECIPE, random_state=0
        ).fit(x, x_pos)
    pairs = hold_pairs_out(model, iso.ArrayPairs(x, x_pos), 0)
    found = check_alternatives(model, pairs, (), metric="linear_r2", seed=0)
    return {check.key: check for check in found}


@pytest.mark.slow
def test_all_as_declared():
    found = checked("laplace", 3, iso.Laplace(0.06))
    assert {*found} == {"conditional", "space", "n_components"}
    assert "contradicted" not in {check.status for check in found.values()}


@pytest.mark.slow
def test_a_wrong_exponent_is_named():
    found = checked("normal", 3, iso.Laplace(0.06))
    assert found["conditional"].status == "contradicted"
    assert "exponent of 1" in found["conditional"].effect
    assert found["space"].status != "contradicted"


@pytest.mark.slow
def test_too_few_codes_are_counted():
    found = checked("laplace", 2, iso.Laplace(0.06))["n_components"]
    assert found.status == "contradicted"
    assert found.is_harmful
    assert "3 codes" in found.effect


def recording(change, groups=None, wide=1.0):
    """Return a recording whose mixing changes half-way, and a model of it."""
    rng = np.random.default_rng(0)
    z = np.zeros((4000, 2))
    for t in range(1, len(z)):
        width = wide if t % 2000 >= 1500 else 1.0  # at the end of either half
        z[t] = 0.9 * z[t - 1] + rng.normal(size=2) * np.sqrt(1 - 0.81) * width
    x = np.column_stack([z[:, 0], z[:, 1], np.tanh(z[:, 0]), np.tanh(z[:, 1])])
    if change:
        x[2000:] = x[2000:, ::-1] * [1, -2, 1, 3] + z[2000:, :1] ** 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsolatentWarning)
        model = iso.ContrastiveICA(2, space="euclidean", recipe=RECIPE, random_state=0).fit(x)
    return model, hold_pairs_out(model, iso.SeriesPairs(x, groups=groups), 0)


@pytest.mark.parametrize("change", [False, True])
def test_a_recording_that_changes_half_way(change):
    model, pairs = recording(change)
    options = {"steps": 150, "metric": "linear_r2", "seed": 0}
    check = check_stationarity(model, base_of(model), pairs, **options)
    assert check.status == ("contradicted" if change else "supported")


def test_sessions_with_wider_steps_contradict_without_harm():
    groups = np.repeat([0, 1, 0, 1], [1500, 500, 1500, 500])
    for wide in (1.0, 4.0):
        model, pairs = recording(False, groups, wide)
        options = {"steps": 150, "metric": "linear_r2", "seed": 0}
        check = check_stationarity(model, base_of(model), pairs, **options)
        assert "4 sessions" in check.effect
        assert check.status == ("contradicted" if wide > 1 else "supported")


def test_pairs_have_no_beginning_and_no_end():
    model, pairs = recording(False)
    shuffled = iso.ArrayPairs(pairs.testing.x, pairs.testing.x_pos)
    other = hold_pairs_out(model, shuffled, 0)
    options = {"steps": 150, "metric": "linear_r2", "seed": 0}
    assert check_stationarity(model, base_of(model), other, **options) is None
