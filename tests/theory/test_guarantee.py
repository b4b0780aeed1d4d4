"""The claim follows from what is declared, and never without all that the theorem needs."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolatent import evaluation
from isolatent.theory import (
    CONDITIONALS,
    HEADS,
    LOSSES,
    MARGINALS,
    POTENTIALS,
    SIMILARITIES,
    SPACES,
    Assumption,
    Beliefs,
    Guarantee,
    derive_guarantee,
    weight_blocks,
)

SPHERE = ("sphere", "uniform", "vmf")
BOX = ("box", "uniform", "normal")
UNEQUAL = ("sphere", "uniform", "anisotropic")
LEARNED = {"potentials": "learned"}


def derive(beliefs, *, p=None, **model):
    """Derive the guarantee of beliefs given as names, without potentials unless stated."""
    return derive_guarantee(Beliefs(*beliefs, p=p), **{"potentials": "none"} | model)


def possible(space, marginal, conditional):
    return conditional != "vmf" or space == "sphere"


BELIEFS = [b for b in itertools.product(SPACES, MARGINALS, CONDITIONALS) if possible(*b)]


def everything():
    """Every declaration with names alone (p = 3 stands for all but 1 and 2)."""
    options = itertools.product(BELIEFS, (None, *SIMILARITIES), LOSSES, POTENTIALS, (None, *HEADS))
    for beliefs, similarity, loss, potentials, head in options:
        yield derive(
            beliefs,
            p=3 if beliefs[2] == "gennorm" else None,
            similarity=similarity,
            loss=loss,
            potentials=potentials,
            head=head,
        )


@pytest.mark.parametrize(
    ("beliefs", "options", "equivalence", "metric", "reference"),
    [
        (SPHERE, {}, "orthogonal map", "linear_r2", "Zimmermann et al. 2021, Theorem 2"),
        (SPHERE, {"similarity": "lp"}, "orthogonal map", "linear_r2", "Theorem 2"),
        (SPHERE, {"loss": "aninfonce"}, "orthogonal map", "linear_r2", "Rusak"),
        (BOX, {}, "affine map", "linear_r2", "Theorem 5"),
        (("box", "uniform", "gennorm"), {"p": 2}, "affine map", "linear_r2", "Theorem 5"),
        (("box", "uniform", "anisotropic"), {}, "affine map", "linear_r2", "Theorem 5"),
        (
            ("box", "uniform", "laplace"),
            {},
            "signed permutation and scaling",
            "mcc",
            "Zimmermann et al. 2021, Theorem 6",
        ),
        *(
            (
                ("box", "uniform", "gennorm"),
                {"p": p},
                "signed permutation and scaling",
                "mcc",
                "Theorem 6",
            )
            for p in (1, 1.5, 3, 2.5)
        ),
        (UNEQUAL, {}, "block-orthogonal map", "linear_r2", "Rusak et al. 2025"),
        (UNEQUAL, {"weights": [5, 5, 9]}, "block-orthogonal map", "block_r2", "Rusak"),
        (UNEQUAL, {"weights": [5, 7, 9]}, "signed permutation", "mcc", "Rusak"),
        (("euclidean", "normal", "normal"), LEARNED, "affine map", "linear_r2", "Matthes"),
        (
            ("euclidean", "unknown", "laplace"),
            LEARNED,
            "signed permutation and scaling",
            "mcc",
            "Matthes",
        ),
        (("hollowball", "uniform", "normal"), LEARNED, "affine map", "linear_r2", "Matthes"),
        (
            ("hollowball", "unknown", "laplace"),
            LEARNED,
            "signed permutation and scaling",
            "mcc",
            "Matthes",
        ),
        (BOX, {"head": "free"}, "affine map", "linear_r2", "Theorem 5"),
        (
            ("box", "uniform", "laplace"),
            {"head": "free"},
            "signed permutation and scaling",
            "mcc",
            "Theorem 6",
        ),
        (("sphere", "unknown", "vmf"), LEARNED, "orthogonal map", "linear_r2", "derived here"),
        (UNEQUAL, {"loss": "nce", **LEARNED}, "block-orthogonal map", "linear_r2", "derived here"),
        (("euclidean", "unknown", "anisotropic"), LEARNED, "affine map", "linear_r2", "Matthes"),
        (
            ("box", "unknown", "laplace"),
            LEARNED,
            "signed permutation and scaling",
            "mcc",
            "Matthes et al. 2023, extending Zimmermann et al. 2021, Theorem 6",
        ),
        (SPHERE, {"loss": "scl", "potentials": "constant"}, "orthogonal map", "linear_r2", "Matth"),
        (BOX, {"loss": "nwj", **LEARNED}, "affine map", "linear_r2", "Matthes"),
    ],
)
def test_theorems(beliefs, options, equivalence, metric, reference):
    guarantee = derive(beliefs, **options)
    assert guarantee.equivalence == equivalence
    assert guarantee.metric == metric
    assert reference in guarantee.reference
    assert str(guarantee).splitlines()[0] == f"{equivalence}, if:"


@pytest.mark.parametrize("beliefs", [SPHERE, BOX, UNEQUAL])
@pytest.mark.parametrize("marginal", ["normal", "unknown"])
def test_learned_potentials_replace_uniformity(beliefs, marginal):
    space, _, conditional = beliefs
    guarantee = derive((space, marginal, conditional), **LEARNED)
    assert guarantee.equivalence == derive(beliefs).equivalence
    assert "Matthes" in guarantee.reference
    assert any("potentials" in a.text and a.kind == "faith" for a in guarantee.assumptions)


# Each theorem with one condition taken away.
@pytest.mark.parametrize(
    ("beliefs", "options", "gap"),
    [
        (("sphere", "normal", "vmf"), {}, "a uniform marginal, or learned potentials"),
        (("sphere", "unknown", "vmf"), {"potentials": "constant"}, "a uniform marginal, or"),
        (("sphere", "uniform", "normal"), {}, "vMF or anisotropic conditional, not a projected"),
        (("sphere", "uniform", "gennorm"), {"p": 2}, "vMF or anisotropic conditional"),
        (SPHERE, {"similarity": "lp", "similarity_p": 1}, "dot product instead of Lp with p = 1"),
        (SPHERE, {"head": "box"}, "on a sphere: a sphere head instead of a box one"),
        (SPHERE, {"head": "free"}, "on a sphere"),
        (SPHERE, {"n_components": 1}, "connected"),
        (SPHERE, {"n_components": 4, "n_factors": 3}, "4 codes for 3 factors"),
        (SPHERE, {"n_components": 9, "n_features": 3}, "9 factors cannot be mixed injectively"),
        (SPHERE, {"loss": "alignuniform"}, "weight 1/2 and with infinitely many negatives"),
        (SPHERE, {"loss": "nce"}, "NCE needs a constant or learned potential"),
        (SPHERE, {"loss": "aninfonce", "similarity": "dot"}, "one weight per dimension, not the"),
        (("box", "unknown", "normal"), {}, "a uniform marginal, or learned potentials"),
        (BOX, {"similarity": "dot"}, "Lp with p = 2 instead of the dot product"),
        (BOX, {"similarity_p": 1}, "Lp with p = 2 instead of Lp with p = 1"),
        (BOX, {"head": "sphere"}, "convex body or R^n: a box head instead of a sphere one"),
        (BOX, {"scale": "fixed"}, "scale of the similarity is fixed"),
        (SPHERE, {"scale": "fixed"}, "scale of the similarity is fixed"),
        (BOX, {"equal_weights": False}, "fixed and unequal, but the conditional has one"),
        (UNEQUAL, {"equal_weights": False}, "fixed and unequal"),
        (BOX, {"loss": "scl", "potentials": "constant"}, "SCL needs learned potentials"),
        (("box", "uniform", "gennorm"), {"p": 3, "similarity_p": 3.5}, "p = 3 instead of"),
        (("box", "uniform", "laplace"), {"similarity": "weighted"}, "p = 1 instead of Lp with p ="),
        (UNEQUAL, {"similarity": "lp"}, "one weight per dimension instead of Lp with p = 2"),
        (UNEQUAL, {"similarity": "dot"}, "one weight per dimension instead of the dot product"),
        (UNEQUAL, {"loss": "nwj", "potentials": "constant"}, "NWJ needs learned potentials"),
        (UNEQUAL, {"weights": [5.0]}, "connected"),
        (UNEQUAL, {"weights": [5.0, 9.0, 7.0], "n_features": 2}, "3 factors cannot be mixed"),
        (("euclidean", "uniform", "normal"), LEARNED, "does not exist on an unbounded space"),
        (("euclidean", "normal", "normal"), {}, "a uniform marginal, or learned potentials"),
        (("euclidean", "normal", "normal"), {"head": "box", **LEARNED}, "in R^n: a free head"),
        (("cubegrid", "uniform", "normal"), {}, "connected"),
        (("hollowball", "uniform", "normal"), {}, "connected but not convex"),
    ],
)
def test_one_condition_less(beliefs, options, gap):
    guarantee = derive(beliefs, **options)
    assert guarantee.equivalence is None
    assert gap in guarantee.gap
    assert guarantee.metric == "linear_r2"
    assert str(guarantee).splitlines()[0] == f"no guarantee: {guarantee.gap}"


def test_either_a_claim_or_a_gap_and_every_metric_exists():
    claims = set()
    for guarantee in everything():
        claims.add(guarantee.equivalence)
        assert (guarantee.equivalence is None) == bool(guarantee.gap)
        assert bool(guarantee.assumptions) == (guarantee.equivalence is not None)
        assert bool(guarantee.reference) == (guarantee.equivalence is not None)
        assert callable(getattr(evaluation, guarantee.metric))
    assert claims == {
        None,
        "orthogonal map",
        "affine map",
        "signed permutation and scaling",
        "block-orthogonal map",
    }


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("beliefs", [b for b in BELIEFS if b[2] != "gennorm"])
def test_richer_potentials_never_lose_a_claim(beliefs, loss):
    held = [
        derive(beliefs, loss=loss, potentials=potentials).equivalence is not None
        for potentials in ("none", "constant", "learned")
    ]
    assert held == sorted(held)


@pytest.mark.parametrize("beliefs", [*BELIEFS])
def test_the_choices_of_a_model_default_to_what_the_beliefs_ask_for(beliefs):
    p = 3 if beliefs[2] == "gennorm" else None
    declared = Beliefs(*beliefs, p=p)
    explicit = {
        "similarity": declared.similarity,
        "similarity_p": declared.exponent,
        "head": declared.head,
        "potentials": declared.potentials(),
    }
    assert derive_guarantee(declared, **explicit) == derive_guarantee(declared)


def test_kinds_of_assumptions():
    for guarantee in everything():
        for assumption in guarantee.assumptions:
            if "marginal on" in assumption.text or "conditional," in assumption.text:
                assert assumption.kind == "declared"
            if "mixing" in assumption.text or "enough data" in assumption.text:
                assert assumption.kind == "faith"
        kinds = {assumption.kind for assumption in guarantee.assumptions}
        assert kinds in (set(), {"declared", "checkable", "faith"})


def test_box_onto_box():
    assert "codes fill their box (checkable)" in derive(BOX).consequence
    assert derive(("box", "uniform", "laplace")).consequence == ""


@pytest.mark.parametrize(("beliefs", "spread"), [(SPHERE, False), (BOX, True), (UNEQUAL, True)])
def test_normalisers_that_vary_are_named_unless_potentials_take_them_up(beliefs, spread):
    def named(guarantee):
        return any("positives are spread as anchors" in a.text for a in guarantee.assumptions)

    assert named(derive(beliefs)) == spread
    assert not named(derive(beliefs, **LEARNED))


def test_off_the_sphere_weights_do_not_distinguish_blocks():
    # h = Λ̂^-½ O Λ^½ z has all similarities of the truth, whatever the weights Λ̂ and rotation O.
    rng = np.random.default_rng(0)
    z, true, learned = rng.normal(size=(2, 100, 3)), np.array([1, 4, 9]), np.array([2, 3, 7])
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    h = z * true**0.5 @ rotation.T / learned**0.5
    distance, true_distance = learned * (h[0] - h[1]) ** 2, true * (z[0] - z[1]) ** 2
    np.testing.assert_allclose(distance.sum(1), true_distance.sum(1))
    guarantee = derive(("euclidean", "normal", "anisotropic"), weights=learned, **LEARNED)
    assert guarantee.equivalence == "affine map"
    assert guarantee.blocks is None
    assert "do not distinguish factors" in guarantee.consequence


WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)


@given(WEIGHTS, st.floats(0, 2))
def test_blocks_partition_the_codes(weights, tolerance):
    blocks = weight_blocks(weights, tolerance)
    assert sorted(itertools.chain(*blocks)) == list(range(len(weights)))
    for one, other in itertools.combinations(blocks, 2):
        for i, j in itertools.product(one, other):
            low, high = sorted((weights[i], weights[j]))
            assert high > (1 + tolerance) * low


@given(st.data(), WEIGHTS)
def test_blocks_move_with_the_weights(data, weights):
    order = data.draw(st.permutations(range(len(weights))))
    moved = weight_blocks([weights[k] for k in order])
    assert {frozenset(order[i] for i in block) for block in moved} == {
        frozenset(block) for block in weight_blocks(weights)
    }


@given(WEIGHTS, st.integers(-20, 20))
def test_blocks_do_not_depend_on_the_unit(weights, exponent):
    assert weight_blocks([2.0**exponent * w for w in weights]) == weight_blocks(weights)


@given(WEIGHTS, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_tolerance_only_joins_blocks(weights, one, other):
    fine, coarse = (weight_blocks(weights, t) for t in sorted((one, other)))
    assert all(any(set(f) <= set(c) for c in coarse) for f in fine)


@given(WEIGHTS.filter(lambda weights: len(weights) > 1))
def test_singletons_are_a_signed_permutation(weights):
    guarantee = derive(UNEQUAL, weights=weights)
    distinct = len(guarantee.blocks) == len(weights)
    assert guarantee.equivalence == ("signed permutation" if distinct else "block-orthogonal map")


def test_round_trip_and_card():
    given_weights = derive(UNEQUAL, weights=np.array([5.0, 5.1, 25.0]), tolerance=0.05)
    assert "[0, 1] [2]" in str(given_weights)
    for guarantee in [given_weights, *everything()]:
        assert Guarantee.from_dict(json.loads(json.dumps(guarantee.to_dict()))) == guarantee
        card = str(guarantee)
        for text in (guarantee.metric, guarantee.reference, guarantee.consequence, guarantee.gap):
            assert text in card
        for assumption in guarantee.assumptions:
            assert assumption.text in card


@pytest.mark.parametrize(
    ("beliefs", "options", "message"),
    [
        (("torus", "uniform", "vmf"), {}, "space must be one of 'sphere', 'box', 'euclidean'"),
        (("sphere", "beta", "vmf"), {}, "marginal must be one of"),
        (("sphere", "uniform", "cauchy"), {}, "conditional must be one of"),
        (("box", "uniform", "vmf"), {}, "'vmf' goes with space 'sphere', got space 'box'"),
        (("box", "uniform", "gennorm"), {}, "p must be a number >= 1"),
        (("box", "uniform", "gennorm"), {"p": 0.5}, "p must be a finite number >= 1, got 0.5"),
        (BOX, {"p": 2}, "p goes with conditional 'gennorm' alone"),
        (BOX, {"n_factors": 0}, "n_factors must be an integer >= 1"),
        (BOX, {"similarity": "cosine"}, "similarity must be one of"),
        (SPHERE, {"similarity_p": 2}, "similarity_p must be None with similarity 'dot', got 2"),
        (BOX, {"loss": "mse"}, "loss must be one of"),
        (BOX, {"potentials": "some"}, "potentials must be one of"),
        (BOX, {"head": "torus"}, "head must be one of"),
        (BOX, {"weights": [1.0, 2.0]}, "weights go with similarity 'weighted' alone"),
        (UNEQUAL, {"weights": [1.0, -2.0]}, r"weights\[1\] must be a finite number > 0"),
        (UNEQUAL, {"weights": [1.0, 2.0], "n_components": 3}, "weights must be n_components = 3"),
        (UNEQUAL, {"tolerance": -1.0}, "tolerance must be a finite number >= 0"),
        (SPHERE, {"n_features": 0}, "n_features must be an integer >= 1"),
    ],
)
def test_wrong_declarations(beliefs, options, message):
    with pytest.raises(ValueError, match=message):
        derive(beliefs, **options)


def test_a_guarantee_cannot_contradict_itself():
    with pytest.raises(ValueError, match="gap must say what fails"):
        Guarantee(None, (), "linear_r2", "")
    with pytest.raises(ValueError, match="gap must say what fails"):
        Guarantee("affine map", (), "linear_r2", "", gap="something")
    with pytest.raises(ValueError, match="kind must be one of 'declared', 'default', "):
        Assumption("the mixing is injective", "hope")
    with pytest.raises(TypeError, match="weights must be a sequence"):
        weight_blocks(2.0)


def test_codes_of_a_box_may_be_unbounded_with_a_missing_step():
    free, boxed = derive(BOX, head="free"), derive(BOX)
    assert any("missing step" in a.text and a.kind == "faith" for a in free.assumptions)
    assert not any("missing step" in a.text for a in boxed.assumptions)
    assert "MCC) is not to be expected" in free.consequence
    assert derive(BOX, head="free", scale="fixed").equivalence == "affine map"  # codes take it up


def claimed_by_the_papers(beliefs, loss, potentials, head):
    """The table of theorems, written out a second time: the claim, or None."""
    space, marginal, conditional = beliefs
    exponent = {"normal": 2, "laplace": 1, "gennorm": 3, "anisotropic": 2, "vmf": None}[conditional]
    uniform, learned = marginal == "uniform", potentials == "learned"
    if space == "cubegrid" or loss == "alignuniform":
        return None
    if space == "euclidean" and uniform:
        return None
    if not uniform and not learned:
        return None
    if space == "hollowball" and not learned:
        return None
    if loss in ("nce", "scl", "nwj") and potentials == "none":
        return None
    wavers = space == "box" or (space == "sphere" and conditional == "anisotropic")
    if loss in ("nce", "scl", "nwj") and wavers and not learned:
        return None
    if loss == "aninfonce" and exponent not in (2, None):
        return None  # its similarity has p = 2
    if space == "sphere":
        if head not in (None, "sphere") or conditional not in ("vmf", "anisotropic"):
            return None
        return "orthogonal map" if conditional == "vmf" else "block-orthogonal map"
    if head not in {"box": (None, "box", "free")}.get(space, (None, "free")):
        return None
    return "affine map" if exponent == 2 else "signed permutation and scaling"


def test_a_sample_of_cards_agrees_with_the_theorems():
    combinations = [*itertools.product(BELIEFS, LOSSES, POTENTIALS, (None, *HEADS))]
    chosen = np.random.default_rng(0).choice(len(combinations), 200, replace=False)
    claims = set()
    for index in chosen:
        beliefs, loss, potentials, head = combinations[index]
        p = 3 if beliefs[2] == "gennorm" else None
        card = derive(beliefs, p=p, loss=loss, potentials=potentials, head=head)
        expected = claimed_by_the_papers(beliefs, loss, potentials, head)
        assert card.equivalence == expected, combinations[index]
        claims.add(expected)
    assert len(claims) >= 4  # the sample is not all of one kind


def test_declared_weights_are_those_of_the_factors():
    """Five codes of three factors have no guarantee, whatever the weights."""
    beliefs = Beliefs("sphere", conditional="anisotropic", weights=(1.0, 2.0, 3.0))
    assert derive_guarantee(beliefs, n_components=3).equivalence == "signed permutation"
    card = derive_guarantee(beliefs, loss="aninfonce", n_components=5)
    assert card.gap == "there are 5 codes for 3 factors"
