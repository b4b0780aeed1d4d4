"""What differs between a fit and its rehearsals, and which assumption is to blame for it."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.diagnosis import Check
from isolatent.diagnosis.code_statistics import (
    code_statistics,
    dependence,
    fitted_world,
    marginal_distance,
)
from isolatent.diagnosis.goodness_of_fit import check_against_rehearsals
from isolatent.worlds import GeneralizedNormal

WORLDS = [
    ("sphere", iso.Beliefs("sphere"), iso.Sphere(4), iso.VonMisesFisher(20.0)),
    ("narrow", iso.Beliefs("sphere"), iso.Sphere(3), iso.VonMisesFisher(500.0)),
    ("box", iso.Beliefs("box"), iso.Box(3), GeneralizedNormal(2, 0.15)),
    ("laplace", iso.Beliefs("box", conditional="laplace"), iso.Box(4), GeneralizedNormal(1, 0.3)),
]


def drawn(space, conditional, seed=0, count=4000):
    generator = torch.Generator().manual_seed(seed)
    z = iso.Uniform().sample(space, space.center().expand(count, space.n), generator)
    return z.float(), conditional.sample(space, z.float(), generator)


@pytest.mark.parametrize(("name", "beliefs", "space", "conditional"), WORLDS)
def test_parameters_that_fit_are_those_of_the_world(name, beliefs, space, conditional):
    """Steps that the ends of a box cut off count, too."""
    z, z_pos = drawn(space, conditional, count=20_000)
    world = fitted_world(2 * z - 1, 2 * z_pos - 1, beliefs)
    if name in ("sphere", "narrow"):
        world = fitted_world(z, z_pos, beliefs)
        assert world.conditional.kappa == pytest.approx(conditional.kappa, rel=0.03)
    else:
        assert (world.low, world.side) == pytest.approx((-1.0, 2.0), abs=0.02)
        assert world.conditional.scale == pytest.approx(conditional.scale, rel=0.03)


@pytest.mark.parametrize(("name", "beliefs", "space", "conditional"), WORLDS)
def test_statistics_of_a_world_as_declared_are_those_of_chance(name, beliefs, space, conditional):
    found = code_statistics(*drawn(space, conditional), beliefs)
    assert found["marginal"].mean() < 0.005
    assert found["steps"].mean() < 1.95 / 4000**0.5  # exceeded once in 1000 samples
    assert abs(found["place"].mean()) < 0.02


def test_statistics_tell_what_is_not_as_declared():
    beliefs, space = iso.Beliefs("sphere"), iso.Sphere(4)
    z, narrow = drawn(space, iso.VonMisesFisher(60.0))
    wide = iso.VonMisesFisher(6.0).sample(space, z, torch.Generator().manual_seed(1))
    by_pair = torch.where(torch.arange(len(z))[:, None] % 2 == 0, narrow, wide)
    by_place = torch.where(z[:, :1] > 0, narrow, wide)
    tails, places = (code_statistics(z, z_pos, beliefs) for z_pos in (by_pair, by_place))
    assert min(tails["steps"].mean(), places["steps"].mean()) > 0.1
    assert places["place"].mean() > 0.1 > tails["place"].mean()
    assert marginal_distance(z[z[:, 0] > 0], True) > 0.1
    box = torch.rand(4000, 3, generator=torch.Generator().manual_seed(2))
    assert marginal_distance(box**2, False) > 0.05
    assert marginal_distance(box * torch.tensor([1.0, 2.0, 3.0]), False) < 0.005  # any sides
    assert dependence(box) < 0.06
    assert dependence(torch.stack([box[:, 0], box.sum(1)], 1)) > 0.3


def test_what_is_not_plain_has_no_statistics():
    z = torch.rand(100, 2)
    for beliefs in (iso.Beliefs("euclidean"), iso.Beliefs("box", conditional="anisotropic")):
        assert code_statistics(z, z, beliefs) is None


# Evidence

NOTHING = {"marginal": 0.001, "steps": 0.01, "place": 0.0, "information": 3.0}


def statistics(seed, **changes):
    noise = np.random.default_rng(seed).normal(size=(8,)) / 500
    return {name: value + noise for name, value in (NOTHING | changes).items()}


def judged(checks=(), sphere=True, **changes):
    extra = {} if sphere else {"dependence": 0.02}
    runs = [statistics(seed, **{**extra, **changes}) for seed in (0, 1)]
    found = check_against_rehearsals(list(checks), runs, [statistics(2, **extra)])
    return {check.key: check for check in found}


def contradicted(found):
    return {key for key, check in found.items() if check.status == "contradicted"}


def test_nothing_is_contradicted_where_all_is_as_in_the_rehearsal():
    for sphere in (True, False):
        found = judged(sphere=sphere)
        assert {check.status for check in found.values()} == {"supported"}
        assert all(check.p_value > 0.01 for check in found.values())


@pytest.mark.parametrize(
    ("sphere", "changes", "key"),
    [
        (True, {"steps": 0.2}, "conditional"),
        (True, {"steps": 0.2, "place": 0.2}, "anchor_scale"),
        (True, {"marginal": 0.1}, "marginal"),
        (True, {"marginal": 0.1, "information": 2.7}, "marginal"),  # and no fold
        (True, {"marginal": 0.1, "steps": 0.03, "information": 2.7}, "injective"),
        (False, {"marginal": 0.05, "dependence": 0.2}, "injective"),
        (False, {"marginal": 0.05}, "marginal"),
        (False, {"marginal": 0.05, "information": 2.7}, "marginal"),
        (False, {"steps": 0.2}, "conditional"),
    ],
)
def test_what_differs_names_an_assumption(sphere, changes, key):
    found = judged(sphere=sphere, **changes)
    assert contradicted(found) == {key}
    assert found[key].is_harmful == (key == "injective")  # other deviations may do no harm
    assert found[key].p_value < 0.1
    assert found[key].rehearsed is not None


def test_what_is_contradicted_already_explains_what_differs():
    other = Check("pairing", "contradicted", 0.5, "unrelated", None, 0.1)
    found = judged([other], marginal=0.1, steps=0.2, information=2.0)
    assert {check.status for check in found.values()} == {"cannot tell"}
    for key in ("marginal", "optimum"):
        symptom = Check(key, "contradicted", 0.02, "what a fold leads to", None, 0.0)
        found = judged([symptom], marginal=0.1, steps=0.03, information=2.7)
        assert contradicted(found) == {"injective"}


def test_a_difference_within_the_spread_of_runs_is_no_evidence():
    runs = [statistics(0, steps=0.01), statistics(1, steps=0.2)]
    found = check_against_rehearsals([], runs, [statistics(2)])
    assert contradicted({check.key: check for check in found}) == set()
    runs = [statistics(0, marginal=0.05, dependence=value) for value in (0.03, 0.3)]
    found = check_against_rehearsals([], runs, [statistics(2, dependence=0.02)])
    assert contradicted({check.key: check for check in found}) == {"marginal"}
