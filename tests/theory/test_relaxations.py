"""A relaxed assumption is replaced on the card, and nothing is claimed without a proof."""

import importlib.util
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isolatent.theory import (
    LOSSES,
    POTENTIALS,
    RELAXATIONS,
    Beliefs,
    Guarantee,
    derive_guarantee,
)

SPHERE, BOX, LINE = Beliefs("sphere"), Beliefs("box"), Beliefs("euclidean")
LAPLACE = Beliefs("box", conditional="laplace")
QUARTIC = Beliefs("box", conditional="gennorm", p=4)
UNEQUAL = Beliefs("sphere", conditional="anisotropic")
P, A, F, M, D = RELAXATIONS
AXES, AFFINE = "signed permutation and scaling", "affine map"
SETS = [names for size in range(6) for names in itertools.combinations(RELAXATIONS, size)]


def texts(card):
    return "\n".join(assumption.text for assumption in card.assumptions)


@pytest.mark.parametrize(
    ("beliefs", "relaxed", "options", "claim"),
    [
        (SPHERE, {P}, {}, "orthogonal map"),
        (SPHERE, {A}, {}, "orthogonal map"),
        (SPHERE, {D}, {}, "orthogonal map"),
        (SPHERE, {M}, {}, "orthogonal map"),
        (SPHERE, {F}, {}, "block-orthogonal map"),
        (SPHERE, {F}, {"weights": [1.0, 2.0, 3.0]}, "signed permutation"),
        (SPHERE, {F}, {"weights": [1.0, 1.0, 3.0]}, "block-orthogonal map"),
        (SPHERE, {F}, {"weights": [1.0, 1.0, 1.0]}, "orthogonal map"),
        (SPHERE, {F, D}, {"weights": [1.0, 2.0, 3.0]}, "orthogonal map"),  # weights are in A
        (SPHERE, {F, A}, {"weights": [1.0, 2.0, 3.0]}, "signed permutation"),
        (SPHERE, {P, D}, {"potentials": "none"}, "orthogonal map"),
        (SPHERE, {P, A, D}, {"n_components": 6}, "orthogonal map"),
        (SPHERE, {A, D}, {"linear_dynamics": False}, "orthogonal map"),
        (BOX, {P}, {}, AFFINE),
        (BOX, {A}, {}, AFFINE),
        (BOX, {F}, {}, AFFINE),
        (BOX, {D}, {}, AFFINE),
        (BOX, {A, D}, {}, AFFINE),
        (BOX, {P, A, F, M, D}, {"n_components": 5}, AFFINE),
        (BOX, {D}, {"linear_dynamics": False}, AFFINE),
        (LINE, {D, F}, {}, AFFINE),
        (LINE, {P}, {"n_components": 3}, AFFINE),
        (Beliefs("box", conditional="anisotropic"), {D}, {"similarity": "lp"}, AFFINE),
        *((LAPLACE, set(names), {"n_components": 2}, AXES) for names in SETS),
        (Beliefs("hollowball", conditional="laplace"), {P, A}, {"potentials": "learned"}, AXES),
        (QUARTIC, {P}, {}, AXES),
        (QUARTIC, {A, F}, {}, AXES),
        (QUARTIC, {D}, {}, AXES),
    ],
)
def test_claims(beliefs, relaxed, options, claim):
    card = derive_guarantee(beliefs, relaxed=sorted(relaxed), **options)
    assert card.equivalence == claim
    if relaxed - {M, F}:
        assert "derived here, see docs/theory.md" in card.reference


@pytest.mark.parametrize(
    ("beliefs", "relaxed", "options", "gap"),
    [
        (SPHERE, (A,), {"potentials": "none"}, "need learned potentials: places with narrow steps"),
        (BOX, (A,), {"potentials": "constant"}, "need learned potentials: places with narrow"),
        (BOX, (D,), {"potentials": "none"}, "dynamics need learned potentials"),
        (SPHERE, (D, F), {"potentials": "none"}, "dynamics need learned potentials"),
        (UNEQUAL, (D,), {"potentials": "none"}, "dynamics need learned potentials"),
        (SPHERE, (P, M), {"n_components": 5}, "pairing and marginal: proven for at least 6"),
        (SPHERE, (P, F), {"n_components": 2}, "proven for at least 3 factors, open for 2"),
        (SPHERE, (A, F), {"n_components": 2}, "proven for at least 3 factors, open for 2"),
        (LINE, (P,), {"n_components": 2}, "proven for at least 3 factors, open for 2"),
        (BOX, (P, A), {"n_components": 4}, "proven for at least 5 factors, open for 4"),
        (BOX, (A,), {"n_components": 1}, "proven for at least 2 factors, open for 1"),
        (LAPLACE, (A,), {"n_components": 1}, "proven for at least 2 factors, open for 1"),
        (SPHERE, (P, A, F), {}, "proven alone, not with pairing or dynamics"),
        (UNEQUAL, (A, D), {}, "proven alone, not with pairing or dynamics"),
        (BOX, (A, D), {"linear_dynamics": False}, "stand for a nonlinear change of the codes"),
        (QUARTIC, (P, M), {}, "open for an even exponent above 2, got p = 4"),
        (QUARTIC, (A, D), {}, "open for an even exponent above 2, got p = 4"),
        (SPHERE, (F,), {"loss": "nce", "potentials": "constant"}, "NCE needs learned potentials"),
        (Beliefs("cubegrid"), (P,), {}, "connected latent space"),
        (BOX, (P,), {"loss": "alignuniform"}, "only at weight 1/2"),
        (BOX, (P,), {"similarity_p": 1}, "the similarity must match"),
    ],
)
def test_gaps(beliefs, relaxed, options, gap):
    card = derive_guarantee(beliefs, relaxed=relaxed, **options)
    assert card.equivalence is None
    assert gap in card.gap
    assert not card.assumptions


@pytest.mark.parametrize(
    ("beliefs", "name", "lost", "gained"),
    [
        (SPHERE, P, "within pairs", "a share of the pairs may be unrelated"),
        (SPHERE, A, "one concentration", "a concentration that may depend on the anchor"),
        (LAPLACE, A, "and anchors", "one scale for all dimensions that may depend on the anchor"),
        (LAPLACE, F, "one scale for all dimensions", "one scale for each dimension, the same for"),
        (BOX, F, "one scale for all dimensions", "one weight per dimension"),
        (BOX, M, "uniform", "unknown marginal"),
        (BOX, D, "code differences", "positives lie around A z, A an invertible matrix"),
    ],
)
def test_what_is_relaxed_is_not_declared(beliefs, name, lost, gained):
    before, after = derive_guarantee(beliefs), derive_guarantee(beliefs, relaxed=[name])
    assert lost in texts(before)
    assert lost not in texts(after)
    assert gained not in texts(before)
    assert gained in texts(after)


def test_a_network_must_reach_all_positives():
    """A matrix may also contract: codes at the border follow from those of the predictions."""
    matrix, network = (
        texts(derive_guarantee(LAPLACE, relaxed=[D], linear_dynamics=linear))
        for linear in (True, False)
    )
    assert "take every value that positives take, or no other value\n" in matrix
    assert "take every value that positives take\n" in network
    assert "A an invertible matrix" in matrix
    assert "m(z), a smooth map" in network


@pytest.mark.parametrize("beliefs", [SPHERE, BOX, LAPLACE, UNEQUAL, LINE])
@pytest.mark.parametrize("relaxed", SETS)
def test_order_and_repetition_do_not_matter(beliefs, relaxed):
    card = derive_guarantee(beliefs, relaxed=relaxed)
    assert derive_guarantee(beliefs, relaxed=[*reversed(relaxed), *relaxed]) == card


@pytest.mark.parametrize("beliefs", [SPHERE, BOX, LAPLACE, UNEQUAL, LINE])
@pytest.mark.parametrize("relaxed", [names for names in SETS if M not in names])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [None, 1, 4])
def test_a_relaxed_marginal_is_an_unknown_one(beliefs, relaxed, loss, n):
    unknown = replace(beliefs, marginal="unknown")
    options = {"loss": loss, "potentials": "learned", "n_components": n}
    spelled = [
        derive_guarantee(unknown, relaxed=relaxed, **options),
        derive_guarantee(unknown, relaxed=(*relaxed, M), **options),
        derive_guarantee(beliefs, relaxed=(*relaxed, M), **options | {"potentials": "none"}),
    ]
    assert len({card.equivalence for card in spelled}) == 1
    assert spelled[1] == spelled[2]
    assert spelled[0].assumptions == spelled[1].assumptions


@pytest.mark.parametrize("beliefs", [SPHERE, BOX, LAPLACE, QUARTIC, UNEQUAL, LINE])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_freedom_never_adds_a_claim(beliefs, n):
    """A larger model has all the optima of a smaller one, so its claim is not stronger.

    Weights are an exception: with them the distance of the declared world may tell axes apart.
    """
    strength = [None, AFFINE, "orthogonal map", "block-orthogonal map", AXES]

    def rank(relaxed):
        card = derive_guarantee(beliefs, relaxed=relaxed, potentials="learned", n_components=n)
        return strength.index(card.equivalence)

    for relaxed in SETS:
        for name in {P, A, M, D} - set(relaxed):
            assert rank((*relaxed, name)) <= rank(relaxed), (relaxed, name)


def proven(space, p, relaxed, potentials, n, linear):
    """The table of docs/theory.md written out a second time, for a uniform marginal."""
    learned = potentials == "learned" or M in relaxed
    if A in relaxed and not learned:
        return None
    rotation = space == "sphere" and F not in relaxed
    if D in relaxed and not learned and not rotation:
        return None
    if space == "sphere":
        if {A, F} <= relaxed and relaxed & {P, D}:
            return None
        least = 6 if P in relaxed and learned else 3 if F in relaxed and relaxed & {P, A} else 2
        claim = "block-orthogonal map" if F in relaxed and D not in relaxed else "orthogonal map"
        return claim if n >= least else None
    if p == 2:
        if {A, D} <= relaxed and not linear:
            return None
        least = 2 if A in relaxed else 1
        if P in relaxed and learned:
            least = 5 if A in relaxed else 3
        return AFFINE if n >= least else None
    if p == 4 and ((P in relaxed and learned) or {A, D} <= relaxed):
        return None
    least = 2 if A in relaxed or (P in relaxed and learned) else 1
    return AXES if n >= least else None


def test_a_sample_of_cards_agrees_with_the_proofs():
    worlds = [(SPHERE, 2), (BOX, 2), (LAPLACE, 1), (QUARTIC, 4)]
    cells = [*itertools.product(worlds, SETS, POTENTIALS, range(2, 8), (True, False))]
    claims = []
    for index in np.random.default_rng(0).choice(len(cells), 600, replace=False):
        (beliefs, p), relaxed, potentials, n, linear = cells[index]
        card = derive_guarantee(
            beliefs, relaxed=relaxed, potentials=potentials, n_components=n, linear_dynamics=linear
        )
        expected = proven(beliefs.space, p, set(relaxed), potentials, n, linear)
        assert card.equivalence == expected, cells[index]
        claims.append(expected)
    assert len(set(claims)) == 5
    assert 0.2 < np.mean([claim is None for claim in claims]) < 0.8


@pytest.mark.parametrize(
    ("relaxed", "error", "message"),
    [
        (["tails"], ValueError, "relaxed must hold names among 'pairing', .* got \\['tails'\\]"),
        (["pairing", None], ValueError, "relaxed must hold names among"),
        ("pairing", TypeError, "relaxed must be a sequence of names among .* got 'pairing'"),
        (3, TypeError, "relaxed must be a sequence of names"),
    ],
)
def test_unknown_names_are_refused(relaxed, error, message):
    with pytest.raises(error, match=message):
        derive_guarantee(SPHERE, relaxed=relaxed)


def test_what_was_learned_is_on_the_card_and_survives_storage():
    sentences = ("62 % ± 1 % of the pairs are related", "steps are 4.1 times wider at one end")
    card = replace(derive_guarantee(SPHERE, relaxed=[P, A]), learned=sentences)
    for sentence in sentences:
        assert f"  learned     {sentence}" in str(card).splitlines()
    record = json.loads(json.dumps(card.to_dict()))
    assert Guarantee.from_dict(record) == card
    del record["learned"]  # as records were before there were relaxations
    assert Guarantee.from_dict(record) == replace(card, learned=())


@pytest.mark.parametrize("relaxed", SETS)
def test_every_card_is_printed_and_stored_in_full(relaxed):
    for beliefs in (SPHERE, BOX, LAPLACE, LINE, UNEQUAL):
        card = derive_guarantee(beliefs, relaxed=relaxed)
        assert Guarantee.from_dict(json.loads(json.dumps(card.to_dict()))) == card
        assert all(assumption.text in str(card) for assumption in card.assumptions)
        if card.equivalence:
            assert card.assumptions[-1].text.startswith("enough data")
            assert len(set(card.assumptions)) == len(card.assumptions)


def test_the_tables_of_the_documentation_are_those_of_the_code():
    path = Path(__file__).parents[2] / "docs/fill_theory.py"
    spec = importlib.util.spec_from_file_location("fill_theory", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text(encoding="utf-8")
    assert "block-orthogonal map" in page
    assert module.fill(page) == page
