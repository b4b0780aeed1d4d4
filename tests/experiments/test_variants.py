"""Several ways of making positives, and negatives around their anchors."""

import pytest
import torch
from torch import Generator

from isolatent.contrast import AnInfoNCE
from isolatent.experiments.variants import (
    EnsembleByRow,
    NegativesOfAnchors,
    OwnNegatives,
    SeveralWays,
)
from isolatent.worlds import AnisotropicNormal, Box, Identity, Normal, Sphere, Uniform, World


def test_rows_take_turns(generator):
    narrow, wide = (World(Box(3), Uniform(), Normal(s), Identity()) for s in (1e-3, 0.3))
    x, x_pos = SeveralWays([narrow, wide]).sample(1001, generator)
    apart = (x - x_pos).abs().mean(1)
    assert apart[::2].max() < 0.01 < 0.05 < apart[1::2].mean()


def test_the_ensemble_is_the_sum_over_ways():
    h, h_pos = torch.randn(2, 10, 3, generator=Generator().manual_seed(0))
    loss, one = EnsembleByRow(3, 2), AnInfoNCE(3)
    expected = one(h[::2], h_pos[::2]) + one(h[1::2], h_pos[1::2])
    assert loss(h, h_pos).item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.weights.shape == (2, 3)


def test_own_negatives_are_as_far_as_they_say(generator):
    world = World(Sphere(5), Uniform(), AnisotropicNormal(400.0), Identity())
    x, rest = OwnNegatives(world, AnisotropicNormal(25.0), 4).sample(2000, generator)
    positive, negative = rest[:2000], rest[2000:].view(2000, 4, 5)
    # In four tangent directions the variance is about 1/λ.
    assert (x - positive).square().sum(1).mean().item() == pytest.approx(4 / 400, rel=0.1)
    apart = (x.unsqueeze(1) - negative).square().sum(2).mean().item()
    assert apart == pytest.approx(4 / 25, rel=0.1)


def test_the_loss_by_hand():
    generator = Generator().manual_seed(0)
    h, h_pos = torch.randn(6, 3, generator=generator), torch.randn(6 + 12, 3, generator=generator)
    loss = NegativesOfAnchors(3)
    total = 0.0
    for i in range(6):
        candidates = torch.stack([h_pos[i], h_pos[6 + 2 * i], h_pos[7 + 2 * i]])
        scores = -0.5 * (h[i] - candidates).square().sum(1)
        total -= scores.log_softmax(0)[0].item() / 6
    assert loss(h, h_pos).item() == pytest.approx(total, rel=1e-5)


def test_the_optimum_is_the_difference_of_the_weights():
    """With true latents for codes, Λ̂ = Λ⁺ - Λ⁻."""
    world = World(Sphere(4), Uniform(), AnisotropicNormal(60.0), Identity(), seed=0)
    x, rest = OwnNegatives(world, AnisotropicNormal(40.0), 8).sample(
        20_000, Generator().manual_seed(0)
    )
    loss = NegativesOfAnchors(4)
    optimiser = torch.optim.LBFGS(loss.parameters(), max_iter=30, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = loss(x, rest)
        value.backward()
        return value

    optimiser.step(closure)
    assert loss.weights.mean().item() == pytest.approx(20.0, rel=0.1)
