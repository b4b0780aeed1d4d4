"""Encoders and losses built from names and beliefs, and the guarantee read from a loss."""

import math
from itertools import product

import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.contrast import (
    NCE,
    ConstantPotential,
    Dot,
    InfoNCE,
    Lp,
    NetworkPotential,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
)
from isolatent.encoders import BoxHead, SphereHead, Straightening
from isolatent.theory import (
    CONDITIONALS,
    MARGINALS,
    SPACES,
    Beliefs,
    derive_guarantee,
    weight_blocks,
)
from isolatent.training.assembly import (
    ENCODERS,
    LOSS_CLASSES,
    build_encoder,
    build_loss,
    build_saturated_loss,
    guarantee_of,
    head_of,
    learned_weights,
    may_lose_factors,
)
from isolatent.training.calibration import fit_loss
from isolatent.training.measurements import weight_errors_of

SHAPES = {"conv": (1, 64, 64), "pooled": (1, 20, 20), "residual": (2, 16, 16)}
ALL_BELIEFS = [
    Beliefs(space, marginal, conditional, 3.0 if conditional == "gennorm" else None)
    for space, marginal, conditional in product(SPACES, MARGINALS, CONDITIONALS)
    if conditional != "vmf" or space == "sphere"
]


def shape_of(name):
    return SHAPES.get(name, (4,))


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("space", SPACES)
def test_codes_are_in_the_space_of_the_head(name, space, generator):
    encoder = build_encoder(name, shape_of(name), Beliefs(space), 3).eval()
    h = encoder(5 * torch.randn(6, *shape_of(name), generator=generator)).detach()
    assert h.shape == (6, 3)
    head = Beliefs(space).head
    if head == "sphere":
        torch.testing.assert_close(h.norm(dim=1), torch.ones(6))
    elif head == "box":
        assert ((h >= 0) & (h <= 1)).all()
    assert head_of(encoder, h) == head


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("space", SPACES)
def test_encoders_are_built_in_single_precision(name, space):
    encoder = build_encoder(name, shape_of(name), Beliefs(space), 3)
    tensors = {**dict(encoder.named_parameters()), **dict(encoder.named_buffers())}
    assert {t.dtype for t in tensors.values()} <= {torch.float32, torch.int64}


@pytest.mark.parametrize("name", LOSS_CLASSES)
def test_losses_have_the_similarity_and_potentials_of_the_beliefs(name):
    expected = {
        "none": {type(None)},
        "constant": {type(None), ConstantPotential},
        "learned": {NetworkPotential},
    }
    for beliefs in ALL_BELIEFS:
        loss = build_loss(name, beliefs, 3)
        kinds = {type(loss.potential), type(loss.potential_pos)}
        assert kinds == expected[beliefs.potentials(name)], beliefs
        weighted = name == "aninfonce" or beliefs.similarity == "weighted"
        assert (learned_weights(loss, 3) is not None) == weighted, beliefs
        assert weighted or loss.similarity.p == beliefs.exponent, beliefs
        assert {p.dtype for p in loss.parameters()} <= {torch.float32}, beliefs


@pytest.mark.parametrize("name", LOSS_CLASSES)
def test_the_guarantee_of_a_loss_is_that_of_its_name(name):
    similarity = "weighted" if name == "aninfonce" else None
    for beliefs in ALL_BELIEFS:
        found = guarantee_of(beliefs, build_loss(name, beliefs, 3), n_components=3)
        expected = derive_guarantee(beliefs, loss=name, similarity=similarity, n_components=3)
        assert found == expected, beliefs


@pytest.mark.parametrize("potentials", ["none", "constant", "learned"])
def test_the_guarantee_depends_on_the_potentials(potentials):
    beliefs = Beliefs("sphere", "unknown")
    loss = build_loss("infonce", beliefs, 3, potentials)
    assert (guarantee_of(beliefs, loss, n_components=3).gap == "") == (potentials == "learned")


def test_an_ensemble_has_the_guarantee_of_its_members():
    beliefs = Beliefs("sphere", conditional="anisotropic")
    member = guarantee_of(beliefs, iso.AnInfoNCE(3), n_components=3)
    ensemble = iso.Ensemble([iso.AnInfoNCE(3), iso.AnInfoNCE(3)])
    assert guarantee_of(beliefs, ensemble, n_components=3) == member
    mixed = iso.Ensemble([iso.AnInfoNCE(3), iso.NCE(iso.Dot())])
    assert "must all have the same" in guarantee_of(beliefs, mixed, n_components=3).gap


def test_no_theorem_is_known_for_a_loss_of_a_user():
    class Own(iso.InfoNCE):
        pass

    for loss in (Own(iso.Dot()), nn.MSELoss()):
        gap = guarantee_of(Beliefs(), loss, n_components=3).gap
        assert "no theorem is known for the loss" in gap


@pytest.mark.parametrize(
    ("layer", "head"),
    [
        (nn.Identity(), "free"),
        (SphereHead(), "sphere"),
        (BoxHead(), "box"),
        (nn.Sigmoid(), "box"),
        (nn.Sequential(BoxHead(), Straightening(3)), "box"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_head_of_an_encoder_of_a_user(layer, head, generator):
    encoder = nn.Sequential(nn.Linear(4, 3), layer)
    assert head_of(encoder, encoder(torch.randn(50, 4, generator=generator))) == head


@pytest.mark.parametrize(("layer", "head"), [(nn.Identity(), "free"), (nn.Sigmoid(), "box")])
def test_nearly_constant_codes_are_not_on_a_sphere(layer, head, generator):
    encoder = nn.Sequential(nn.Linear(4, 3), layer)
    nn.init.normal_(encoder[0].weight, std=1e-5)
    assert head_of(encoder, encoder(torch.randn(50, 4, generator=generator))) == head


@pytest.mark.parametrize(
    ("loss", "beliefs", "batch_size", "exists"),
    [
        ("infonce", Beliefs(), 64, True),
        ("infonce", Beliefs("box", conditional="laplace"), 64, True),
        ("infonce", Beliefs("euclidean", "uniform"), 64, True),
        ("infonce", Beliefs("euclidean"), 64, True),  # narrow steps suffice for free codes
        ("infonce", Beliefs("box", "unknown"), 64, False),  # learned potentials
        ("infonce", Beliefs(conditional="anisotropic"), 64, True),
        ("aninfonce", Beliefs(conditional="anisotropic"), 64, True),
        ("aninfonce", Beliefs("euclidean", "uniform", "anisotropic"), 64, False),
        ("infonce", Beliefs(), 2, False),
        ("nce", Beliefs(), 64, False),
    ],
)
def test_where_a_saturated_loss_exists(loss, beliefs, batch_size, exists):
    found = build_saturated_loss(loss, beliefs, 3, None, batch_size)
    assert (found is not None) == exists


def test_a_saturated_loss_has_weights_where_the_loss_has_them():
    beliefs = Beliefs(conditional="anisotropic")
    for loss in ("infonce", "aninfonce"):
        assert isinstance(build_saturated_loss(loss, beliefs, 3, None, 64), SaturatedAnInfoNCE)
    isotropic = build_saturated_loss("infonce", Beliefs(), 3, None, 64)
    assert not isinstance(isotropic, SaturatedAnInfoNCE)


@pytest.mark.parametrize(
    ("loss", "beliefs", "expected"),
    [
        ("aninfonce", Beliefs(conditional="anisotropic"), True),
        ("nce", Beliefs(conditional="anisotropic"), True),
        ("aninfonce", Beliefs(), True),
        ("infonce", Beliefs(), False),
        ("aninfonce", Beliefs(marginal="unknown", conditional="anisotropic"), False),
        ("aninfonce", Beliefs("euclidean", "uniform", "anisotropic"), False),
    ],
)
def test_where_factors_may_be_lost(loss, beliefs, expected):
    """Only weights on a sphere with a uniform marginal have the second optimum, and its cure."""
    assert may_lose_factors(loss, beliefs) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build_encoder("big", (4,), Beliefs(), 3), "encoder must be one of 'mlp', 'deep'"),
        (lambda: build_loss("nll", Beliefs(), 3), "loss must be one of 'infonce'"),
        (lambda: build_loss("nce", Beliefs(), 3, "some"), "potentials must be one of 'none'"),
        (lambda: build_encoder("mlp", (1, 8, 8), Beliefs(), 3), r"shape \(N, features\) for enc"),
        (lambda: build_encoder("conv", (4,), Beliefs(), 3), r"shape \(N, channels, height, width"),
        (
            lambda: build_encoder("conv", (1, 8, 8), Beliefs(), 3),
            "images of at least 16 × 16 pixels",
        ),
        (lambda: build_encoder("pooled", (1, 8, 8), Beliefs(), 3), "images of at least 16 × 16 p"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def potential():
    return NetworkPotential(3)


@pytest.mark.parametrize(
    ("beliefs", "loss", "gap"),
    [
        (Beliefs("sphere"), InfoNCE(Dot(scale=1.0)), "scale of the similarity is fixed"),
        (Beliefs("sphere"), InfoNCE(Lp(2, weights=[1.0, 2.0, 50.0])), "is fixed"),
        (Beliefs("box", conditional="laplace"), InfoNCE(Lp(1, weights=1.0)), "is fixed"),
        (
            Beliefs("box", conditional="laplace"),
            NCE(Lp(1, learn_weights=True), potential=potential()),
            "learned potentials of anchors and positives",
        ),
        (
            Beliefs("sphere", "unknown"),
            InfoNCE(Dot(learn_scale=True), symmetric=False, potential=potential()),
            "a uniform marginal, or learned potentials",
        ),
        (
            Beliefs("sphere", "unknown"),
            InfoNCE(Dot(learn_scale=True), potential_pos=potential()),
            "a uniform marginal, or learned potentials",
        ),
    ],
)
def test_loss_modules_that_the_theorems_do_not_cover_have_no_guarantee(beliefs, loss, gap):
    card = guarantee_of(beliefs, loss, n_components=3)
    assert card.equivalence is None
    assert gap in card.gap


@pytest.mark.parametrize(
    ("beliefs", "loss", "options"),
    [
        (Beliefs("sphere"), InfoNCE(Dot(learn_scale=True)), {}),
        (Beliefs("sphere"), InfoNCE(Dot(scale=1.0)), {"learns_size": True}),
        (
            Beliefs("sphere", "unknown"),
            InfoNCE(Dot(learn_scale=True), symmetric=False, potential_pos=potential()),
            {},
        ),
        (
            Beliefs("sphere", "unknown"),
            InfoNCE(Dot(learn_scale=True), potential=potential(), potential_pos=potential()),
            {},
        ),
        (Beliefs("sphere"), NCE(Dot(learn_scale=True), potential_pos=ConstantPotential()), {}),
        (Beliefs("sphere"), NCE(Dot(learn_scale=True), potential=potential()), {}),
        (Beliefs("euclidean", conditional="laplace"), InfoNCE(Lp(1)), {"learned": True}),
    ],
)
def test_loss_modules_that_the_theorems_cover_have_a_guarantee(beliefs, loss, options):
    if options.pop("learned", False):
        loss.potential, loss.potential_pos = potential(), potential()
    assert guarantee_of(beliefs, loss, n_components=3, **options).equivalence


def fitted_weights(weights, seed, n_pairs=4096):
    """Weights fitted to true factors, and their errors."""
    space, conditional = iso.Sphere(len(weights)), iso.AnisotropicNormal(weights)
    world = iso.World(space, iso.Uniform(), conditional, iso.Identity())
    z, z_pos = world.sample_latents(n_pairs, torch.Generator().manual_seed(seed))
    loss = iso.AnInfoNCE(len(weights), weights=sum(weights) / len(weights))
    fit_loss(loss, z, z_pos, 256)
    return loss.weights.detach().tolist(), weight_errors_of(loss, z, z_pos)


def test_equal_weights_are_one_block_and_errors_are_those_of_repetitions():
    """With 95 % coverage, more than 3 failures in 24 repetitions have a probability of 0.03."""
    runs = [fitted_weights([20.0, 20.0, 20.0], seed) for seed in range(24)]
    failures = sum(len(weight_blocks(weights, 0.0, errors)) > 1 for weights, errors in runs)
    assert failures <= 3
    assert all(len(weight_blocks(weights, 0.0)) > 1 for weights, _ in runs)  # without errors
    logs = torch.tensor([weights for weights, _ in runs]).log()
    stated = torch.tensor([errors for _, errors in runs]).mean()
    assert float(logs.std(0).mean()) == pytest.approx(float(stated), rel=0.3)


def test_different_weights_are_separate_blocks():
    weights, errors = fitted_weights([5.0, 10.0, 30.0], 0)
    assert weight_blocks(weights, 0.1, errors) == ((0,), (1,), (2,))
    wide = [20 * error for error in errors]
    assert weight_blocks(weights, 0.1, wide) == ((0, 1, 2),)


def test_a_card_has_the_blocks_of_weights_with_their_errors():
    loss = iso.AnInfoNCE(3, weights=[5.0, 6.0, 60.0])
    beliefs = Beliefs("sphere", conditional="anisotropic")
    options = {"weights": learned_weights(loss, 3), "n_components": 3}
    assert guarantee_of(beliefs, loss, **options).equivalence == "signed permutation"
    card = guarantee_of(beliefs, loss, weight_errors=[0.1, 0.1, 0.1], **options)
    assert card.blocks == ((0, 1), (2,))
    with pytest.raises(ValueError, match="errors must be 3 numbers"):
        guarantee_of(beliefs, loss, weight_errors=[0.1], **options)


def test_the_losses_of_an_ensemble_must_be_alike():
    alike = iso.Ensemble([iso.AnInfoNCE(3), iso.AnInfoNCE(3, weights=5.0)])
    beliefs = Beliefs("sphere", conditional="anisotropic")
    assert guarantee_of(beliefs, alike, n_components=3).equivalence == "block-orthogonal map"
    mixed = iso.Ensemble([InfoNCE(Dot(learn_scale=True)), InfoNCE(Lp(1, learn_weights=True))])
    assert "must all have the same" in guarantee_of(Beliefs("sphere"), mixed, n_components=3).gap


@pytest.mark.parametrize(("n", "kind"), [(19, SaturatedInfoNCE), (20, InfoNCE)])
def test_a_saturated_loss_of_many_codes_on_a_sphere_has_a_scale_that_a_batch_resolves(n, kind):
    loss = build_saturated_loss("infonce", Beliefs("sphere"), n, None, 1024)
    assert type(loss) is kind
    if kind is InfoNCE:
        scale = float(loss.similarity.scale)
        cosines = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
        area = (1 - cosines**2) ** ((n - 3) / 2)
        area /= area.sum()
        density = torch.exp(scale * cosines)
        density /= (density * area).sum()
        nats = float((density.log() * density * area).sum())
        assert nats == pytest.approx(0.6 * math.log(1024), rel=1e-3)
        assert not list(loss.parameters())  # a learned scale would saturate again
