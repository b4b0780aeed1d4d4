"""Diagnoses of worlds as declared, and of worlds that break one assumption."""

import importlib
import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.diagnosis import Check
from isolatent.diagnosis.diagnose import _with_support
from isolatent.diagnosis.rehearsal import Rehearsal
from isolatent.training import Support

PAIRS = 3600
RECIPE = iso.Recipe(max_steps=160, batch_size=256, warmup=30)
SPHERE, BOX = {"space": "sphere"}, {"space": "box", "conditional": "laplace"}
MIXING = iso.InvertibleMLP(layers=3)


def sphere(kappa):
    return iso.World(iso.Sphere(4), iso.Uniform(), iso.VonMisesFisher(kappa), MIXING, seed=0)


def fitted(x, x_pos, recipe=RECIPE, **beliefs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", iso.checks.IsolatentWarning)
        model = iso.ContrastiveICA(4, recipe=recipe, random_state=0, **beliefs)
        return model.fit(x, x_pos)


def diagnosed(x, x_pos, **beliefs):
    return iso.diagnose(fitted(x, x_pos, **beliefs), x, x_pos)


def by_place(kappas):
    """Return pairs on a sphere with one concentration on either side of the equator."""
    world, generator = sphere(1.0), torch.Generator().manual_seed(0)
    z = world.sample_anchors(PAIRS, generator)
    steps = [iso.VonMisesFisher(k).sample(world.space, z, generator) for k in kappas]
    return world.observe(z), world.observe(torch.where(z[:, :1] > 0, *steps))


def test_a_sphere_as_declared_holds():
    world = sphere(15.0)
    z = world.sample_latents(PAIRS)
    x, x_pos = map(world.observe, z)
    model = fitted(x, x_pos, **SPHERE)
    found = iso.diagnose(model, x, x_pos, n_rehearsals=2)
    assert found.holds is True
    assert found.broken == ()
    assert {"marginal", "conditional"} <= {c.key for c in found.checks if c.status == "supported"}
    score = iso.linear_r2(z[0], model.transform(x))
    assert found.expected_score.low <= score <= found.expected_score.high
    record = found.to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_a_box_as_declared_holds():
    world = iso.World(iso.Box(4), iso.Uniform(), iso.Laplace(0.08), MIXING, seed=0)
    found = diagnosed(*world.sample_pairs(PAIRS), **BOX)
    assert found.holds is True
    assert found.expected_score.metric == "mcc"


def test_shuffled_pairs_hold_no_information():
    x, x_pos = sphere(15.0).sample_pairs(3000)
    found = diagnosed(x, x_pos.roll(7, 0), **SPHERE)
    assert found.holds is False
    assert found.broken == ("information",)
    assert found.expected_score is None


@pytest.mark.slow
def test_unrelated_pairs_name_the_pairing():
    x, x_pos = sphere(35.0).sample_pairs(PAIRS)
    unrelated = round(0.4 * PAIRS)
    x_pos[:unrelated] = x_pos[:unrelated].roll(1, 0)
    found = diagnosed(x, x_pos, **SPHERE)
    assert found.broken[0] == "pairing"
    assert "pairing" in found.verdict


@pytest.mark.slow
def test_steps_that_depend_on_the_place_name_the_scale_of_the_anchors():
    found = diagnosed(*by_place((60.0, 5.0)), **SPHERE)
    assert found.holds is False
    assert found.broken[0] == "anchor_scale"


def test_steps_of_two_widths_name_the_conditional_of_a_sphere():
    """Wherever they are, so that codes do not suffer."""
    world, generator = sphere(1.0), torch.Generator().manual_seed(0)
    z = world.sample_anchors(PAIRS, generator)
    narrow, wide = (iso.VonMisesFisher(k).sample(world.space, z, generator) for k in (60.0, 6.0))
    z_pos = torch.where(torch.rand(PAIRS, 1, generator=generator) < 0.5, narrow, wide)
    found = diagnosed(world.observe(z), world.observe(z_pos), **SPHERE)
    assert found.broken == ("conditional",)
    assert found.holds is True


@pytest.mark.slow
def test_unequal_factors_name_the_scale_of_the_factors():
    steps = iso.AnisotropicNormal((5.0, 10.0, 40.0, 80.0))
    world = iso.World(iso.Sphere(4), iso.Uniform(), steps, MIXING, seed=0)
    found = diagnosed(*world.sample_pairs(PAIRS), **SPHERE)
    assert "factor_scale" in found.broken[:1]


@pytest.mark.slow
def test_a_box_declared_a_sphere_names_the_space():
    """Four codes on a sphere are three factors, so one is lost."""
    world = iso.World(iso.Box(4), iso.Uniform(), iso.Normal(0.1), MIXING, seed=0)
    found = diagnosed(*world.sample_pairs(PAIRS), **SPHERE)
    assert found.holds is False
    assert {"space", "n_components"} & {*found.broken[:1]}


def test_a_model_diagnoses_itself(hasty):
    model, x, x_pos = hasty
    assert model.diagnose(x[:300], x_pos[:300]) == iso.diagnose(model, x[:300], x_pos[:300])


@pytest.mark.slow
def test_factors_that_were_lost_are_not_blamed_on_the_number_of_codes():
    """Some factors move so far that a network without weights of the codes loses them."""
    steps = iso.AnisotropicNormal((80.0, 234.0, 684.0, 2000.0))
    world = iso.World(iso.Box(4), iso.Uniform(), steps, MIXING, seed=0)
    recipe = replace(RECIPE, max_steps=400)
    found = diagnosed(*world.sample_pairs(8000), space="box", recipe=recipe)
    assert found.holds is False
    assert found.broken[0] == "factor_scale"


# Input


@pytest.fixture(scope="module")
def hasty():
    """A model that was hardly trained, and its pairs."""
    x, x_pos = sphere(15.0).sample_pairs(1000)
    recipe = iso.Recipe(max_steps=5, batch_size=64)
    return iso.ContrastiveICA(4, **SPHERE, recipe=recipe, random_state=0).fit(x, x_pos), x, x_pos


@pytest.mark.slow
def test_a_random_state_gives_one_result(hasty):
    first, second = (iso.diagnose(*hasty, random_state=3) for _ in range(2))
    assert first == second


def test_too_few_pairs_cannot_tell(hasty):
    model, x, x_pos = hasty
    found = iso.diagnose(model, x[:300], x_pos[:300])
    assert (found.holds, found.broken, found.expected_score) == (None, (), None)
    assert "300 pairs" in found.verdict
    assert {check.status for check in found.checks} == {"cannot tell"}


def test_a_model_that_is_not_fitted():
    with pytest.raises(Exception, match="not fitted"):
        iso.diagnose(iso.ContrastiveICA(4), np.zeros((9, 4)), np.zeros((9, 4)))


def test_something_else_than_a_model():
    with pytest.raises(TypeError, match="model must be a ContrastiveICA"):
        iso.diagnose("model", np.zeros((9, 4)))


def test_data_of_another_width(hasty):
    model, x, x_pos = hasty
    with pytest.raises(ValueError, match="features"):
        iso.diagnose(model, x[:, :3], x_pos[:, :3])
    narrow = iso.ArrayPairs(x[:, :3], x_pos[:, :3])
    with pytest.raises(ValueError, match="must have 4 features"):
        iso.diagnose(model, narrow)


def test_no_rehearsal_at_all(hasty):
    with pytest.raises(ValueError, match="n_rehearsals must be"):
        iso.diagnose(*hasty, n_rehearsals=0)


def test_a_recording_without_dynamics_holds_no_information():
    x = sphere(15.0).sample_pairs(2000)[0]
    recipe = iso.Recipe(max_steps=20, batch_size=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", iso.checks.IsolatentWarning)
        model = iso.ContrastiveICA(4, **SPHERE, recipe=recipe, random_state=0).fit(x)
    groups = np.repeat([0, 1], 1000)
    assert iso.diagnose(model, x, groups=groups).broken == ("information",)


def test_what_the_fit_itself_found_contradicts_the_optimum():
    optimum = Check("optimum", "supported", 0.99, "agrees", None, 0.005)
    sound = Support(3.0, 0.1, 0.0, 3.0, 0.1, 3.1, None, 0.0, 0.0, 64, 12)
    overfitted, nothing = sound._replace(training=5.0), sound._replace(above_chance=0.0)
    models = [SimpleNamespace(support_=one) for one in (sound, overfitted, nothing, None)]
    fine, over, null, unknown = models
    assert all(_with_support(optimum, one, fine) == optimum for one in (fine, unknown))
    for one in (over, null):
        found = _with_support(optimum, one, fine)
        assert found.is_harmful
        assert one.support_.reason in found.effect
    assert _with_support(optimum, fine, over).is_harmful
    assert _with_support(optimum, fine, null) == optimum  # the check of information says it


def test_a_model_of_noisy_observations_is_diagnosed():
    x, x_pos = sphere(15.0).sample_pairs(1200)
    recipe = iso.Recipe(max_steps=20, batch_size=64, warmup=5)
    found = iso.diagnose(fitted(x, x_pos, recipe, relax=("noise",), **SPHERE), x, x_pos)
    keys = {check.key for check in found.checks}
    assert {"information", "optimum"} <= keys
    assert not {"pairing", "space", "conditional"} & keys  # nothing to compare with
    assert found.checks[0].unit == "nats on held-out pairs"


@pytest.mark.parametrize(
    ("first", "agreement", "second", "expected"),
    [
        (0.99, 0.99, None, 0.99),  # nothing to repeat
        (0.70, 0.80, None, 0.70),  # runs on the data end in several minima, too
        (0.70, 0.99, 0.98, 0.98),  # the rehearsal alone was stuck
        (0.70, 0.99, 0.60, 0.70),  # such pairs do not determine the codes
    ],
)
def test_a_rehearsal_that_alone_was_stuck_is_repeated(
    monkeypatch, first, agreement, second, expected
):
    def rehearsed(score):
        return Rehearsal(score, "linear_r2", False, 0.0, None)

    def again(*arguments):
        assert second is not None
        return rehearsed(second)

    module = importlib.import_module("isolatent.diagnosis.diagnose")
    monkeypatch.setattr(module, "rehearse", again)
    optimum = [Check("optimum", "supported", agreement, "both runs agree")]
    (kept,) = module._repeat_if_stuck(rehearsed(first), optimum, None, None, None, 0)
    assert kept.score == expected
