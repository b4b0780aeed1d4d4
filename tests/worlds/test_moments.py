"""Samplers have the moments of their density, by importance sampling."""

import pytest
import torch

from isolatent.worlds import (
    AnisotropicNormal,
    Euclidean,
    GeneralizedNormal,
    HollowBall,
    Laplace,
    Normal,
    Sphere,
)
from spacing import linspace


def check_moments(distribution, space, anchor, proposals, log_proposal=0.0, draws=40_000):
    """First and second moments against self-normalised importance sampling, |error| < 5 σ."""
    generator = torch.Generator().manual_seed(3)
    z = distribution.sample(space, anchor.expand(draws, -1).contiguous(), generator)
    log_weight = distribution.log_prob(space, proposals, anchor.expand_as(proposals))
    weight = (log_weight - log_proposal).softmax(0)
    effective = 1 / weight.square().sum()
    assert effective > 2000
    for ours, theirs in ((z, proposals), (z.square(), proposals.square())):
        expected = weight @ theirs
        spread = (weight @ (theirs - expected).square()).sqrt()
        error = spread * (1 / effective + 1 / draws).sqrt()
        assert ((ours.mean(0) - expected).abs() < 5 * error).all()


@pytest.mark.parametrize(
    "distribution", [Laplace(0.3), Normal(0.2), GeneralizedNormal(3.0, 1.5)], ids=repr
)
def test_hollow_ball_moments_by_importance_sampling(distribution, generator):
    space = HollowBall(3, 0.5, 1.0)
    anchor = torch.tensor([[0.6, 0.1, -0.3]], dtype=torch.float64)
    check_moments(distribution, space, anchor, space.sample(400_000, generator, torch.float64))


def optimal_shift(weights, anchor):
    radius = float(anchor.norm())
    low, high = float(-weights.min()) + 1e-6, 1e4
    for _ in range(100):
        shift = (low + high) / 2
        precision = weights + shift
        square = ((weights * anchor / precision).square() + 1 / precision).sum()
        low, high = (shift, high) if square > radius**2 else (low, shift)
    return low


@pytest.mark.parametrize(
    ("n", "low", "high"), [(2, 1.0, 30.0), (3, 50.0, 60.0), (10, 5.0, 25.0), (40, 5.0, 300.0)]
)
def test_anisotropic_normal_by_importance_sampling(n, low, high):
    """Proposals: the normal N(z, Λ⁻¹/τ) projected, whose density on the sphere is known."""
    space, weights = Sphere(n, 1.3), linspace(low, high, n)
    generator = torch.Generator().manual_seed(n)
    anchor = space.sample(1, generator, torch.float64)
    # A saddle-matched projected normal covers the target; its density is integrated numerically
    # by GeneralizedNormal, by code that shares nothing with the sampler under test.
    shift = optimal_shift(torch.tensor(weights, dtype=torch.float64), anchor[0])
    precision = torch.tensor(weights, dtype=torch.float64) + shift
    center = (torch.tensor(weights, dtype=torch.float64) / precision * anchor).expand(15_000, n)
    proposal = Normal(tuple(precision.rsqrt().tolist()))
    free = proposal.sample(Euclidean(n), center, generator)
    proposals = space.project(free)
    log_proposal = proposal._log_density(space, proposals, center)
    check_moments(AnisotropicNormal(weights), space, anchor, proposals, log_proposal)


def test_projected_density_of_a_normal_matches_its_sampler():
    """Normal on the sphere is drawn and projected; its density gives the same moments."""
    space, generator = Sphere(4), torch.Generator().manual_seed(1)
    anchor = torch.tensor([[0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    proposals = space.sample(20_000, generator, torch.float64)
    check_moments(Normal((0.2, 0.5, 0.5, 0.9)), space, anchor, proposals)
    check_moments(Laplace(0.5), space, anchor, proposals)
