"""The truncated normal has its radial distribution, and cosines of a von Mises–Fisher."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from isolatent.worlds import HollowBall, Normal


@pytest.mark.parametrize("std", [0.15, 0.4, 5.0])
def test_radius_around_the_origin_is_a_truncated_chi(std, generator):
    """Around the origin the radius of a truncated normal is a truncated chi variable."""
    space = HollowBall(6, 0.4, 1.0)
    center = torch.zeros(20_000, 6, dtype=torch.float64)
    radius = Normal(std).sample(space, center, generator).norm(dim=-1).numpy()
    chi = stats.chi(6, scale=std)
    low, mass = chi.sf(0.4), chi.sf(0.4) - chi.sf(1.0)
    assert stats.kstest(radius, lambda r: (low - chi.sf(r)) / mass).pvalue > 1e-4


@pytest.mark.parametrize("n", [2, 10, 40])
@pytest.mark.parametrize("std", [0.02, 0.2, 1.0, 30.0])
@pytest.mark.parametrize("at", [0.05, 0.75, 2.0])
def test_radius_and_cosine_around_any_centre_at_any_scale(n, std, at, generator):
    """The squared radius is a truncated noncentral χ²; given r, the cosine is von Mises–Fisher's.

    The radial density is integrated on a grid, independently of the sampler.
    """
    space = HollowBall(n, 0.5, 1.0)
    center = torch.zeros(8000, n, dtype=torch.float64)
    center[:, -1] = at
    z = Normal(std).sample(space, center, generator)
    assert space.contains(z).all()
    radius = z.norm(dim=-1)
    grid = np.linspace(0.5, 1.0, 20_001)
    kappa = grid * at / std**2
    log_prob = (
        n / 2 * np.log(grid)
        - (grid - at) ** 2 / (2 * std**2)
        + np.log(special.ive(n / 2 - 1, kappa))
    )
    density = np.exp(log_prob - log_prob.max())
    cdf = integrate.cumulative_trapezoid(density, grid, initial=0)
    test = stats.kstest(radius.numpy(), lambda r: np.interp(r, grid, cdf / cdf[-1]))
    assert test.pvalue > 1e-5
    cosine = z[:, -1] / radius
    at_each = radius.numpy() * at / std**2
    expected = torch.from_numpy(special.ive(n / 2, at_each) / special.ive(n / 2 - 1, at_each))
    assert abs((cosine - expected).mean()) < 4.5 * (cosine - expected).std() / math.sqrt(len(z))
