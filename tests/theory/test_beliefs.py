"""Beliefs are complete and consistent, and those of a world describe it truthfully."""

from dataclasses import dataclass

import pytest

import isolatent as iso
from isolatent.datasets import (
    LaplaceTransitions,
    Sprites,
    UniformFactorChange,
    synthetic_transitions,
)
from isolatent.pairs import FactorPairs, WorldPairs
from isolatent.theory import (
    CONDITIONALS,
    MARGINALS,
    SPACES,
    Beliefs,
    Uncovered,
    derive_guarantee,
)
from isolatent.theory.world_beliefs import count_factors


@pytest.mark.parametrize("space", SPACES)
def test_beliefs_are_complete_and_consistent_for_every_space(space):
    beliefs = Beliefs(space)
    assert beliefs.marginal in MARGINALS
    assert beliefs.conditional in CONDITIONALS
    assert Beliefs(space, beliefs.marginal, beliefs.conditional) == beliefs
    if space not in ("cubegrid", "hollowball"):  # where no theorem is known
        assert derive_guarantee(beliefs).equivalence


def test_beliefs_are_frozen_and_hashable():
    beliefs = Beliefs("box", "unknown", "gennorm", p=3)
    with pytest.raises(AttributeError):
        beliefs.space = "sphere"
    assert len({beliefs, Beliefs("box", "unknown", "gennorm", p=3.0)}) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"space": "torus"}, ValueError, "space must be one of 'sphere', 'box', 'euclidean'"),
        ({"marginal": "beta"}, ValueError, "marginal must be one of"),
        ({"conditional": "cauchy"}, ValueError, "conditional must be one of"),
        ({"space": "box", "conditional": "vmf"}, ValueError, "goes with space 'sphere', got"),
        ({"conditional": "gennorm"}, ValueError, "p must be a number >= 1"),
        ({"conditional": "gennorm", "p": 0.5}, ValueError, "p must be a finite number >= 1"),
        ({"p": 2}, ValueError, "p goes with conditional 'gennorm' alone"),
        ({"weights": (1.0, 2.0)}, ValueError, "weights go with conditional 'anisotropic' alone"),
        (
            {"conditional": "anisotropic", "weights": 2.0},
            TypeError,
            "weights must have one number per factor",
        ),
    ],
)
def test_contradictions_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Beliefs(**arguments)


def world(space, marginal, conditional):
    return iso.World(space, marginal, conditional, iso.Identity(), seed=0)


@pytest.mark.parametrize(
    ("space", "marginal", "conditional", "expected"),
    [
        (iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(5.0), Beliefs("sphere")),
        (iso.Box(3), iso.Uniform(), iso.Normal(0.1), Beliefs("box")),
        (
            iso.Box(3),
            iso.Normal(0.3),
            iso.Laplace(0.1),
            Beliefs("box", "normal", "laplace"),
        ),
        (
            iso.Euclidean(2),
            iso.Normal(1.0),
            iso.GeneralizedNormal(3.0, 0.1),
            Beliefs("euclidean", "normal", "gennorm", p=3),
        ),
        (
            iso.Box(2),
            iso.Uniform(),
            iso.GeneralizedNormal(1.0, 0.1),
            Beliefs("box", "uniform", "laplace"),
        ),
        (iso.HollowBall(3), iso.Uniform(), iso.Normal(0.1), Beliefs("hollowball")),
        (iso.CubeGrid(3), iso.Uniform(), iso.Normal(0.1), Beliefs("cubegrid")),
        (
            iso.Sphere(3),
            iso.Uniform(),
            iso.AnisotropicNormal([1.0, 2.0, 3.0]),
            Beliefs("sphere", conditional="anisotropic", weights=(1.0, 2.0, 3.0)),
        ),
        # Equal weights are a vMF on the sphere, and one standard deviation elsewhere.
        (iso.Sphere(3), iso.Uniform(), iso.AnisotropicNormal(7.0), Beliefs("sphere")),
        (iso.Euclidean(2), iso.Normal(1.0), iso.AnisotropicNormal(7.0), Beliefs("euclidean")),
        # Unequal standard deviations are not "one scale for all dimensions".
        (
            iso.Box(2),
            iso.Uniform(),
            iso.Normal([0.1, 0.5]),
            Beliefs("box", conditional="anisotropic", weights=(100.0, 4.0)),
        ),
    ],
)
def test_beliefs_of_a_world_name_what_a_theorem_names(space, marginal, conditional, expected):
    found = Beliefs.of(world(space, marginal, conditional))
    assert found.weights == pytest.approx(expected.weights)
    names = ("space", "marginal", "conditional", "p")
    assert [getattr(found, name) for name in names] == [getattr(expected, name) for name in names]
    assert count_factors(world(space, marginal, conditional)) == space.n


@dataclass(frozen=True)
class _UserBox(iso.Box):
    """A user's own space."""


@dataclass(frozen=True)
class _UserSphere(iso.Sphere):
    """A user's own sphere."""


@dataclass(frozen=True)
class _UserLaplace(iso.Laplace):
    """A user's own distribution."""


@pytest.mark.parametrize(
    ("space", "conditional", "uncovered"),
    [
        (iso.Product(iso.Box(2), iso.Box(1)), iso.Normal(0.1), "space Product(Box(n=2"),
        (
            iso.Product(iso.Box(2), iso.Sphere(2)),
            iso.Independent(iso.Normal(0.1), iso.VonMisesFisher(5.0)),
            "space Product(Box(n=2",
        ),
        (iso.Sphere(3), iso.ShellNormal(5.0), "conditional ShellNormal("),
        (iso.Box(2), iso.Laplace([0.1, 0.2]), "conditional Laplace("),
        (_UserBox(2), iso.Normal(0.1), "space _UserBox("),
        (_UserSphere(3), iso.VonMisesFisher(5.0), "space _UserSphere("),
        (iso.Product(iso.Sphere(2), iso.Sphere(2)), iso.VonMisesFisher(5.0), "space Product("),
        (iso.Box(2), _UserLaplace(0.1), "conditional _UserLaplace("),
    ],
)
def test_what_no_theorem_names_is_described_and_has_a_card(space, conditional, uncovered):
    beliefs = Beliefs.of(world(space, iso.Uniform(), conditional))
    described = beliefs.space if uncovered.startswith("space") else beliefs.conditional
    assert isinstance(described, Uncovered)
    card = derive_guarantee(beliefs)
    assert card.equivalence is None
    assert f"no theorem covers the {uncovered}" in card.gap
    assert card.gap in str(card)


@pytest.mark.parametrize("marginal", [iso.GaussianCopula(2, 0.5), iso.Laplace(0.2)])
def test_a_marginal_without_a_name_needs_learned_potentials_and_is_called_what_it_is(marginal):
    beliefs = Beliefs.of(world(iso.Box(2), marginal, iso.Laplace(0.1)))
    card = derive_guarantee(beliefs)
    assert card.equivalence == "signed permutation and scaling"
    assert card.assumptions[0].text.startswith(repr(marginal))
    assert "learned potentials" in derive_guarantee(beliefs, potentials="none").gap


def test_several_conditionals():
    sphere = world(iso.Sphere(2), iso.Uniform(), iso.AnisotropicNormal([1.0, 9.0]))
    swapped = [iso.AnisotropicNormal([1.0, 9.0]), iso.AnisotropicNormal([9.0, 1.0])]
    found = Beliefs.of(WorldPairs(sphere, conditionals=swapped))
    assert (found.conditional, found.weights) == ("anisotropic", None)
    same = Beliefs.of(WorldPairs(sphere, conditionals=swapped[:1] * 2))
    assert same == Beliefs.of(sphere)
    mixed = WorldPairs(sphere, conditionals=[swapped[0], iso.VonMisesFisher(3.0)])
    assert isinstance(Beliefs.of(mixed).conditional, Uncovered)


@pytest.mark.parametrize(
    ("transitions", "continuous", "space", "gap"),
    [
        (UniformFactorChange(), False, "a grid of 5 factors with the category shape", "distance"),
        (LaplaceTransitions(), False, "which is the same within a pair", ""),
        (synthetic_transitions(50), False, "which is the same within a pair", "recorded steps"),
        (synthetic_transitions(50), True, "5 factors, some of them on a grid", "recorded steps"),
    ],
)
def test_grids_of_factors_are_not_covered(transitions, continuous, space, gap):
    pairs = FactorPairs(Sprites(), transitions, continuous=continuous)
    beliefs = Beliefs.of(pairs)
    assert space in beliefs.space
    card = derive_guarantee(beliefs, n_components=10, n_factors=count_factors(pairs))
    assert card.gap == f"no theorem covers the space {beliefs.space}"
    assert "10 codes for 5 factors" in card.consequence
    assert gap in card.consequence


def test_only_worlds_have_true_beliefs():
    with pytest.raises(TypeError, match="world must be a World or a pair source with one, got 3"):
        Beliefs.of(3)


@pytest.mark.parametrize(
    ("negative", "conditional", "weights"),
    [
        ([1.0, 2.0, 4.0], "anisotropic", (4.0, 8.0, 16.0)),
        ([1.0, 6.0, 16.0], "vmf", None),  # the differences are equal
        ([9.0, 1.0, 1.0], "AnisotropicNormal(weights=(5.0, 10.0, 20.0)) with negatives", None),
    ],
)
def test_with_negatives_around_anchors_the_weights_are_differences(negative, conditional, weights):
    sphere = world(iso.Sphere(3), iso.Uniform(), iso.AnisotropicNormal([5.0, 10.0, 20.0]))
    found = Beliefs.of(WorldPairs(sphere, negatives=iso.AnisotropicNormal(negative)))
    assert found.conditional.startswith(conditional)
    assert found.weights == weights


def test_factors_without_transitions_are_described():
    assert "no transitions were given" in Beliefs.of(Sprites()).conditional
