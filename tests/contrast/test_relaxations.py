"""Relaxations change nothing at first, are scaled as they say, and refuse wrong shapes."""

import math
from itertools import product

import pytest
import torch
from torch import nn

from isolatent.contrast import (
    AlignUniform,
    AnchorScale,
    AnInfoNCE,
    Dot,
    FactorScale,
    FullAnInfoNCE,
    InfoNCE,
    LinearDynamics,
    Lp,
    NetworkDynamics,
    Pairing,
)
from isolatent.contrast.relaxations import MAX_LOG_SCALE, MOMENTUM, Standardization
from named_losses import LOSSES, value_and_gradients
from relaxed_modules import FRESH, away_from_start

N = 3
H = torch.zeros(4, N)
MODULES = ("pairing", "anchor_scale", "factor_scale", "dynamics", "potential", "potential_pos")
SIMILARITIES = {
    "dot": lambda: Dot(2.0),
    **{f"l{p}": lambda p=p: Lp(p, [0.5, 1.0, 2.0]) for p in (1, 2, 3)},
}


def all_related(options):
    """Set b, if there is one, to a number so small that every pair counts as related."""
    if "pairing" in options:
        options["pairing"] = Pairing(init=-200.0)
    return options


@pytest.mark.parametrize("parts", FRESH)
@pytest.mark.parametrize(("name", "similarity"), [
    *product(LOSSES, SIMILARITIES), ("infonce", "aninfonce"), ("decoupled", "aninfonce")
])  # fmt: skip
def test_a_fresh_relaxation_changes_no_loss(name, similarity, parts, generator):
    """Nor its gradients to codes on a sphere, along which alone they can move."""
    codes = torch.randn(3, 6, N, generator=generator, dtype=torch.float64)
    h, h_pos, further = nn.functional.normalize(codes, dim=-1)

    def make(**options):
        if similarity == "aninfonce":
            included = name != "decoupled"
            return AnInfoNCE(N, [1.0, 2.0, 4.0], positive_in_denominator=included, **options)
        return LOSSES[name](SIMILARITIES[similarity](), **options)

    for policy, symmetric, negatives in (
        ("across", True, None),
        ("across", False, None),
        ("both", True, further),
        ("given", False, further[:, None]),
    ):
        options = {"negatives_from": policy, "symmetric": symmetric, "engine": "dense"}
        value, plain = value_and_gradients(make(**options).double(), h, h_pos, negatives)
        with_parts = make(**options, **all_related(FRESH[parts](N))).double()
        relaxed, gradients = value_and_gradients(with_parts, h, h_pos, negatives)
        torch.testing.assert_close(relaxed, value, rtol=1e-12, atol=1e-12)
        for codes, ours, theirs in zip((h, h_pos), gradients, plain, strict=False):
            tangent = [x - (x * codes).sum(1, keepdim=True) * codes for x in (ours, theirs)]
            torch.testing.assert_close(*tangent, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_a_small_share_of_unrelated_pairs_changes_a_loss_little(name, generator):
    """The default of Pairing is not neutral, but close to it."""
    h, h_pos = nn.functional.normalize(torch.randn(2, 50, N, generator=generator), dim=-1)
    plain, relaxed = LOSSES[name](Dot()), LOSSES[name](Dot(), pairing=Pairing())
    difference = (relaxed(h, h_pos) - plain(h, h_pos)).abs().item()
    assert 0 < difference < 0.05 * (1 + plain(h, h_pos).abs().item())


def test_factor_scales_have_geometric_mean_one(generator):
    scale = away_from_start(FactorScale(5).double(), generator, std=2.0)
    weights = scale()
    assert weights.shape == (5,)
    assert (weights > 0).all()
    assert weights.max() > 2 * weights.min()
    assert weights.log().mean().item() == pytest.approx(0.0, abs=1e-12)
    with torch.no_grad():
        scale.log_weights.add_(7.0)
    torch.testing.assert_close(scale(), weights)  # a common factor is not one of them


def test_coordinate_weights_include_the_factor_scale(generator):
    scale = away_from_start(FactorScale(N), generator)
    loss = InfoNCE(Lp(3, [1.0, 2.0, 3.0]), factor_scale=scale)
    expected = torch.tensor([1.0, 2.0, 3.0]) * scale()
    torch.testing.assert_close(loss.coordinate_weights(N, like=H), expected)
    assert loss.exponent == 3
    loss = InfoNCE(Dot(4.0), factor_scale=scale)  # κ/2 of each squared difference
    torch.testing.assert_close(loss.coordinate_weights(N, like=H), 2 * scale())
    assert loss.exponent == 2
    assert InfoNCE(Dot(4.0), anchor_scale=AnchorScale(N)).exponent is None


def test_anchor_scales_are_positive_bounded_and_one_at_first(generator):
    h = torch.randn(50, N, generator=generator)
    scale = AnchorScale(N)
    assert torch.equal(scale(h), torch.ones(50))
    away_from_start(scale, generator, std=3.0)
    values = scale(10 * h)
    assert values.shape == (50,)
    assert (values > 0).all()
    assert values.max() > 2 * values.min()
    assert values.log().abs().max() <= MAX_LOG_SCALE * (1 + 1e-6)


@pytest.mark.parametrize("kind", [AnchorScale, NetworkDynamics])
def test_networks_do_not_depend_on_the_units_of_codes(kind, generator):
    """Each code may be shifted and scaled, if its statistics are tracked afterwards."""
    h = torch.randn(50, N, generator=generator, dtype=torch.float64)
    scale, shift = torch.tensor([0.01, 3.0, 500.0]).double(), torch.tensor([5.0, -1.0, 90.0])
    outputs = []
    for codes in (h, scale * h + shift):
        module = kind(N).double()
        away_from_start(module, torch.Generator().manual_seed(0))
        module.standardize.tracked.fill_(False)
        before = module(codes)
        module.track(codes)
        outputs.append(module(codes) - (0 if kind is AnchorScale else codes))
        assert not torch.allclose(module(codes), before, rtol=1e-3)
    torch.testing.assert_close(*outputs, rtol=1e-9, atol=1e-9)
    assert outputs[0].std() > 1e-2


def test_networks_are_perceptrons_of_standardized_codes(generator):
    h = torch.randn(6, N, generator=generator, dtype=torch.float64)
    scale, dynamics = (
        away_from_start(kind(N).double(), generator) for kind in (AnchorScale, NetworkDynamics)
    )

    def layers(module):
        inner = module.hidden(module.standardize(h))
        return module.out(inner * torch.sigmoid(inner))

    log = layers(scale)[:, 0]
    expected = torch.exp(MAX_LOG_SCALE * torch.tanh(log / MAX_LOG_SCALE))
    torch.testing.assert_close(scale(h), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dynamics(h), h + layers(dynamics), rtol=1e-12, atol=1e-12)
    assert scale(h[:0]).shape == (0,)
    assert dynamics(h[:0]).shape == (0, N)


def test_the_first_codes_replace_the_statistics_and_later_ones_move_them(generator):
    first, second = torch.randn(2, 40, N, generator=generator) * 3 + 1
    standardize = Standardization(N)
    torch.testing.assert_close(standardize(first), first)
    standardize.track(first[:1])  # one row has no variance
    assert not standardize.tracked
    torch.testing.assert_close(standardize(first), first)
    standardize.track(first)
    out = standardize(first)
    torch.testing.assert_close(out.mean(0), torch.zeros(N), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.var(0, correction=0), torch.ones(N))
    torch.testing.assert_close(standardize(first[3:5]), out[3:5])  # whatever the batch
    standardize.track(second[:1])
    torch.testing.assert_close(standardize(first), out)
    standardize.track(second)
    mean = (1 - MOMENTUM) * first.mean(0) + MOMENTUM * second.mean(0)
    variance = (1 - MOMENTUM) * first.var(0, correction=0)
    variance = variance + MOMENTUM * second.var(0, correction=0)
    torch.testing.assert_close(standardize.mean, mean)
    torch.testing.assert_close(standardize.variance, variance)
    loaded = Standardization(N)
    loaded.load_state_dict(standardize.state_dict())
    torch.testing.assert_close(loaded(second), standardize(second), rtol=0, atol=0)
    loaded.track(first)
    standardize.track(first)
    torch.testing.assert_close(loaded.mean, standardize.mean, rtol=0, atol=0)


def test_codes_that_do_not_vary_stay_finite():
    standardize = Standardization(N)
    standardize.track(torch.ones(5, N))
    assert torch.equal(standardize(torch.ones(2, N)), torch.zeros(2, N))


def test_a_loss_tracks_the_codes_of_both_sides_in_training_alone(generator):
    h, h_pos = torch.randn(2, 30, N, generator=generator) + 4
    scale, dynamics = AnchorScale(N), NetworkDynamics(N)
    loss = InfoNCE(Lp(2), anchor_scale=scale, dynamics=dynamics, engine="dense")
    loss.eval()(h, h_pos)
    assert not scale.standardize.tracked
    loss.train()(h, h_pos)
    expected = torch.cat([h, h_pos]).mean(0)
    for module in (scale, dynamics):
        torch.testing.assert_close(module.standardize.mean, expected)
    assert all(not x.requires_grad for x in loss.buffers())


def test_a_full_matrix_tracks_the_codes_that_it_maps(generator):
    """Its modules get the mapped codes, and so must their statistics."""
    h, h_pos = torch.randn(2, 30, N, generator=generator) + 4
    loss = FullAnInfoNCE(N, weight=25.0, anchor_scale=AnchorScale(N), engine="dense")
    loss(h, h_pos)
    expected = torch.cat([h, h_pos]).mean(0) @ loss.factor.detach()
    torch.testing.assert_close(loss.anchor_scale.standardize.mean, expected)


def test_a_module_for_several_parts_is_tracked_once(generator):
    class Counting(nn.Module):
        calls = 0

        def track(self, h):
            self.calls += 1

        def forward(self, h):
            return h.sum(1)

    shared = Counting()
    h, h_pos = torch.randn(2, 5, N, generator=generator)
    InfoNCE(Lp(2), potential=shared, potential_pos=shared, engine="dense")(h, h_pos)
    assert shared.calls == 1


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_pairing_starts_where_unrelated_pairs_have_a_share(share, generator):
    """e^b is the share ε of the mean of e^s + e^b over unrelated pairs."""
    scores = 3 * torch.randn(1000, generator=generator, dtype=torch.float64) - 5
    pairing = Pairing().double()
    pairing.start(scores, share)
    b = pairing()
    assert b.requires_grad
    mean = scores.exp().mean().item()
    assert math.exp(b.item()) / (math.exp(b.item()) + mean) == pytest.approx(share, rel=1e-9)


def test_relatedness_is_the_posterior_of_a_mixture(generator):
    scores = 3 * torch.randn(20, generator=generator, dtype=torch.float64)
    pairing = Pairing(init=0.7).double()
    unrelated = math.exp(pairing().item())
    expected = [math.exp(s) / (math.exp(s) + unrelated) for s in scores.tolist()]
    assert pairing.relatedness(scores).tolist() == pytest.approx(expected, rel=1e-12)


def test_pairs_drawn_at_random_raise_the_share_of_unrelated_pairs(generator):
    """The gradient of b has the right sign on both sides of the true share."""
    h = torch.rand(600, N, generator=generator, dtype=torch.float64)
    h_pos = h + 0.1 * torch.randn(600, N, generator=generator, dtype=torch.float64)
    h_pos[:300] = h_pos[:300].roll(1, 0)
    slopes = []
    for share in (0.2, 0.8):
        loss = InfoNCE(Lp(2, 50.0), pairing=Pairing().double(), engine="dense")
        shuffled = loss.scores(h, h_pos.roll(7, 0))
        loss.pairing.start(shuffled, share)
        (slope,) = torch.autograd.grad(loss(h, h_pos), [loss.pairing.log_unrelated])
        slopes.append(slope.item())
    assert slopes[0] < 0 < slopes[1]


def test_the_matrix_of_linear_dynamics_maps_anchors(generator):
    dynamics = LinearDynamics(N).double()
    assert torch.equal(dynamics.matrix, torch.eye(N, dtype=torch.float64))
    away_from_start(dynamics, generator)
    h = torch.randn(7, N, generator=generator, dtype=torch.float64)
    expected = torch.stack([dynamics.matrix @ row + dynamics.shift for row in h])
    torch.testing.assert_close(dynamics(h), expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(dynamics.matrix, dynamics.matrix.mT, rtol=0.1)


class Fixed(nn.Module):
    """A module that returns a constant whatever it gets."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, *args):
        return self.value


@pytest.mark.parametrize("name", [*LOSSES, "align"])
@pytest.mark.parametrize("option", MODULES)
def test_what_is_no_module_is_refused(option, name):
    make = AlignUniform if name == "align" else LOSSES[name]
    similarity = () if name == "align" else (Dot(),)
    with pytest.raises(TypeError, match=f"^{option} must be a module or None, got 2.0"):
        make(*similarity, **{option: 2.0})


@pytest.mark.parametrize("option", MODULES)
def test_align_uniform_takes_no_relaxation(option):
    with pytest.raises(ValueError, match=f"^{option} must be None: AlignUniform does not define"):
        AlignUniform(**{option: nn.Identity()})


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("pairing", torch.zeros(1), r"pairing must return one number, got shape \(1,\)"),
        ("anchor_scale", torch.ones(()), r"anchor_scale must map codes \(4, 3\) to numbers \(4,\)"),
        ("anchor_scale", torch.ones(4, 1), r"anchor_scale must map .*, got \(4, 1\)"),
        ("anchor_scale", -torch.ones(4), "scale must be positive and finite, got -1.0 at 0"),
        ("factor_scale", torch.ones(4), r"factor_scale must return 3 weights, got \(4,\)"),
        ("factor_scale", torch.ones(()), r"factor_scale must return 3 weights, got \(\)"),
        ("factor_scale", torch.zeros(3), "weights must be positive"),
        ("dynamics", torch.zeros(4, 2), r"dynamics must map codes \(4, 3\) to .*, got \(4, 2\)"),
        ("potential", torch.zeros(3), r"potential must map codes \(4, 3\) .*, got \(3,\)"),
        ("potential_pos", torch.zeros(3), r"potential_pos must map codes .*, got \(3,\)"),
    ],
)
@pytest.mark.parametrize("similarity", ["dot", "l2"])
def test_modules_of_a_wrong_shape_are_refused(name, similarity, option, value, message):
    loss = LOSSES[name](SIMILARITIES[similarity](), **{option: Fixed(value)}, engine="dense")
    with pytest.raises(ValueError, match=message):
        loss(H, H)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pairing(init=-math.inf), "init must be finite, got -inf"),
        (lambda: Pairing(init="small"), "init must be"),
        (lambda: AnchorScale(0), "n must be an integer >= 1"),
        (lambda: AnchorScale(2, hidden=0), "hidden must be an integer >= 1"),
        (lambda: FactorScale(0), "n must be an integer >= 1"),
        (lambda: FactorScale(1.5), "n must be an integer"),
        (lambda: LinearDynamics(0), "n must be an integer >= 1"),
        (lambda: NetworkDynamics(0), "n must be an integer >= 1"),
        (lambda: NetworkDynamics(2, hidden=0), "hidden must be an integer >= 1"),
        (lambda: Standardization(0), "n must be an integer >= 1"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_linear_dynamics_start_from_the_regression_of_positives_on_anchors(generator):
    h = torch.randn(200, 3, generator=generator, dtype=torch.float64) + 5
    matrix = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    dynamics = LinearDynamics(3).double()
    dynamics.start(h, h @ matrix.mT + 2)
    torch.testing.assert_close(dynamics.matrix.detach(), matrix)
    torch.testing.assert_close(dynamics(h).detach(), h @ matrix.mT + 2)
