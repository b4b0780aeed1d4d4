"""What was learned instead of assumed is measured, with intervals that hold the truth."""

import math

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.contrast import AnchorScale, FactorScale, LinearDynamics, Pairing
from isolatent.training.measurements import (
    compare_steps,
    describe_relaxations,
    measure_relaxations,
    share_interval,
)
from isolatent.training.relaxations import relatedness


def unit_codes(rows=64, n=3, seed=0, noise=0.2):
    generator = torch.Generator().manual_seed(seed)
    h = torch.nn.functional.normalize(torch.randn(rows, n, generator=generator))
    step = noise * torch.randn(rows, n, generator=generator)
    return h, torch.nn.functional.normalize(h + step)


def test_relatedness_is_the_posterior_of_the_mixture():
    """Brute force: e^s / (e^s + e^b) for each pair, in float64."""
    h, h_pos = (part.double() for part in unit_codes())
    loss = iso.InfoNCE(iso.Dot(7.0), pairing=Pairing(init=3.0)).double()
    expected = [
        math.exp(7 * float(a @ b)) / (math.exp(7 * float(a @ b)) + math.exp(3.0))
        for a, b in zip(h, h_pos, strict=True)
    ]
    assert relatedness(loss, h, h_pos).tolist() == pytest.approx(expected, rel=1e-6)


def test_measurements_are_those_of_the_modules():
    h, h_pos = unit_codes(400)
    loss = iso.InfoNCE(iso.Lp(p=1), pairing=Pairing(-3.0), factor_scale=FactorScale(3))
    with torch.no_grad():
        loss.factor_scale.log_weights.copy_(torch.tensor([0.0, 1.0, 2.0]))
    measured = measure_relaxations(loss, h, h_pos)
    assert list(measured) == ["pairing", "factor_scale"]
    share, (low, high) = measured["pairing"].values()
    assert share == pytest.approx(float(relatedness(loss, h, h_pos).mean()))
    assert 0 <= low <= share <= high <= 1
    # Scales are w^(-1/p), with p = 1.
    assert measured["factor_scale"]["width_ratio"] == pytest.approx(math.exp(2), rel=1e-5)


def test_the_eigenvalues_of_dynamics_do_not_depend_on_the_basis_of_codes():
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(5000, 2, generator=generator, dtype=torch.float64)
    angle = 0.7
    rotation = 0.9 * torch.tensor(
        [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]],
        dtype=torch.float64,
    )
    h_pos = h @ rotation + 0.01 * torch.randn(h.shape, generator=generator, dtype=h.dtype)
    loss = iso.InfoNCE(iso.Lp(p=2), dynamics=LinearDynamics(2))
    change = torch.tensor([[1.0, 0.4], [-2.0, 3.0]], dtype=torch.float64)
    measured = [
        measure_relaxations(loss, h @ m, h_pos @ m + 5) for m in (torch.eye(2).to(h), change)
    ]
    for values in (found["dynamics"] for found in measured):
        assert values["moduli"] == pytest.approx([0.9, 0.9], abs=0.001)
        assert sorted(values["angles"]) == pytest.approx([-angle, angle], abs=0.001)


def test_a_scale_that_starts_at_one_is_one_everywhere():
    loss = iso.InfoNCE(iso.Dot(), anchor_scale=AnchorScale(3))
    measured = measure_relaxations(loss, *unit_codes())["anchor_scale"]
    assert measured["width_ratio"] == 1.0
    assert measured["interval"][0] < 1 < measured["interval"][1]


def test_there_is_a_sentence_for_every_measurement():
    measured = {
        "pairing": {"related_share": 0.6, "interval": [0.58, 0.62]},
        "anchor_scale": {"width_ratio": 4.12},
        "factor_scale": {"weights": [1.0, 4.0], "width_ratio": 2.0},
        "dynamics": {"moduli": [0.9, 0.9, 0.5], "angles": [0.5, -0.5, 0.0]},
    }
    sentences = describe_relaxations(measured)
    assert len(sentences) == len(measured)
    assert sentences == sum((describe_relaxations({k: v}) for k, v in measured.items()), ())
    for figure, sentence in zip(
        ("58.0 to 62.0 %", "4.1", "2.0", "0.50 rad"), sentences, strict=True
    ):
        assert figure in sentence
    assert describe_relaxations({}) == ()


# Intervals


def contaminated_steps(share, width, seed, rows=2000):
    """Steps of pairs on a circle, normal for related ones and uniform for the others."""
    rng = np.random.default_rng(seed)
    normal, uniform = width * rng.normal(size=rows), rng.uniform(-0.5, 0.5, size=rows)
    return np.where(rng.uniform(size=rows) < share, normal, uniform)


def fit_mixture(steps, width):
    """The share and the width of a normal in a uniform density, by expectation-maximisation."""
    share = 0.5
    for _ in range(500):
        density = np.exp(-((steps / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))
        related = share * density / (share * density + 1 - share)
        share, width = related.mean(), math.sqrt((related * steps**2).sum() / related.sum())
    return torch.from_numpy(related), torch.from_numpy(steps**2)


@pytest.mark.parametrize(("share", "width"), [(0.4, 0.02), (0.8, 0.1), (0.5, 0.1), (0.95, 0.05)])
def test_the_interval_of_the_share_holds_it_as_often_as_it_says(share, width):
    """Also where related and unrelated pairs overlap, and the width of steps is learned as well.

    Of 200 intervals of 95 %, fewer than 182 hold the truth once in 200 times.
    """
    held, sizes = 0, []
    for seed in range(200):
        low, high = share_interval(*fit_mixture(contaminated_steps(share, width, seed), width))
        held += low <= share <= high
        sizes.append(high - low)
    assert held >= 182
    assert np.mean(sizes) < 0.2


def test_pairs_that_are_noise_do_not_determine_the_share():
    """The wider the overlap, the wider the interval, up to all shares."""
    d = torch.from_numpy(np.random.default_rng(0).uniform(size=5000))
    widths = []
    for slope in (5.0, 1.0, 0.1, 0.001):  # of the score in the distance
        related = torch.sigmoid(3.5 - slope * (d - d.mean()))
        low, high = share_interval(related, d)
        assert low < float(related.mean()) < high
        widths.append(high - low)
    assert widths == sorted(widths)
    assert widths[-1] > 0.99


@pytest.mark.parametrize("count", [10, 1000])
def test_pairs_that_are_all_related_leave_the_share_of_the_rule_of_three(count):
    ones, d = torch.ones(count), torch.rand(count)
    assert share_interval(ones, d) == (1 - 3 / count, 1.0)
    assert share_interval(0 * ones, d) == (0.0, 3 / count)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_the_interval_of_widths_holds_their_ratio_as_often_as_it_says(p, ratio):
    """Whatever the learned scale, as long as it is large where steps are narrow."""
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        narrow = rng.uniform(size=4000) < 0.5
        steps = np.where(narrow, 1.0, ratio) * np.abs(rng.normal(size=4000))
        scales = np.where(narrow, 100.0, 1.0) * np.exp(0.2 * rng.normal(size=4000))
        arrays = map(torch.from_numpy, (scales, steps**p, np.ones(4000)))
        found, (low, high) = compare_steps(*arrays, p)
        assert low < found < high
        held += low <= ratio <= high
    assert held >= 182


def test_steps_of_unrelated_pairs_do_not_count():
    scales = torch.tensor([1.0, 1.0, 9.0, 9.0], dtype=torch.float64)
    steps, related = torch.tensor([4.0, 100.0, 1.0, 50.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert compare_steps(scales, steps.double(), related.double(), 1.0)[0] == pytest.approx(4.0)


def test_a_scale_that_overshoots_does_not_change_the_ratio_of_steps():
    """The network's values are no widths: only their order counts."""
    h, h_pos = unit_codes(2000)
    loss = iso.InfoNCE(iso.Lp(p=2), anchor_scale=AnchorScale(3))
    torch.nn.init.normal_(loss.anchor_scale.out.weight, generator=torch.Generator().manual_seed(0))
    before = measure_relaxations(loss, h, h_pos)["anchor_scale"]["width_ratio"]
    with torch.no_grad():
        loss.anchor_scale.out.weight.mul_(1.5)
    after = measure_relaxations(loss, h, h_pos)["anchor_scale"]["width_ratio"]
    assert after == pytest.approx(before)
    assert before < 1.2  # steps are equally wide everywhere


def test_angles_and_moduli_are_inside_their_intervals():
    held = []
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        turn = 0.8 * torch.tensor([[math.cos(0.5), math.sin(0.5)], [-math.sin(0.5), math.cos(0.5)]])
        h = torch.randn(1000, 2, generator=generator)
        h_pos = h @ turn + 0.6 * torch.randn(1000, 2, generator=generator)
        loss = iso.InfoNCE(iso.Lp(p=2), dynamics=LinearDynamics(2))
        found = measure_relaxations(loss, h, h_pos)["dynamics"]
        for name, true in (("moduli", 0.8), ("angles", 0.5)):
            low, high = found[f"{name}_intervals"][found["angles"].index(max(found["angles"]))]
            held.append(low <= true <= high)
            assert high - low < 0.15
    assert np.mean(held) > 0.9


def test_weights_are_inside_their_intervals():
    """Of a normal step with the widths 1 and 1/3, and the learned weights at their optimum."""
    generator = torch.Generator().manual_seed(0)
    h = 3 * torch.randn(8000, 2, generator=generator)
    h_pos = h + torch.tensor([1.0, 1 / 3]) * torch.randn(8000, 2, generator=generator)
    loss = iso.InfoNCE(iso.Lp(p=2, weights=1.5), factor_scale=FactorScale(2))
    with torch.no_grad():
        loss.factor_scale.log_weights.copy_(torch.tensor([1 / 3, 3.0]).log())
    found = measure_relaxations(loss, h, h_pos)["factor_scale"]
    for (low, high), true in zip(found["weights_intervals"], (0.5, 4.5), strict=True):
        assert low < true < high < 1.2 * low
    low, high = found["interval"]
    assert low < 3.0 < high


def test_a_negative_eigenvalue_changes_the_sign_of_a_code():
    """It is no turn by π, of which a single code is not capable."""
    h = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    loss = iso.InfoNCE(iso.Lp(p=2), dynamics=LinearDynamics(2))
    measured = measure_relaxations(loss, h, h * torch.tensor([0.9, -0.7]))
    (sentence,) = describe_relaxations(measured)
    assert "0.90, -0.70" in sentence
    assert "1 changes sign" in sentence
    assert "turn" not in sentence
