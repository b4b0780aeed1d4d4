"""Laws of the samplers: rejection, Wood's envelope, and the truncated normal."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from isolatent.worlds import HollowBall, Normal
from isolatent.worlds.sampling import (
    _log_envelope_mass,
    _log_envelope_slope,
    draw_normal,
    draw_uniform,
    propose_directions,
    rejection_sample,
)


def test_rejection_fills_every_row_and_returns_the_acceptance_rate(generator):
    """Uniform points of the square that lie in the disc: their share is π/4."""
    like = torch.full((20_000, 2), 9.0)

    def propose(rows, round_number):
        draws = 2 * draw_uniform((len(rows), 2), generator, like) - 1
        return draws, draws.norm(dim=-1) <= 1

    out, rate = rejection_sample(like, propose, "disc")
    assert rate == pytest.approx(torch.pi / 4, abs=0.01)
    assert out.norm(dim=-1).max() <= 1
    assert rejection_sample(torch.empty(0, 2), propose, "disc")[1] == 1.0


@pytest.mark.parametrize(("accepted_rows", "rounds"), [(0, 200), (1, 2000)])
def test_a_sampler_gives_up(accepted_rows, rounds):
    def propose(rows, round_number):
        return torch.zeros(len(rows), 1), rows < accepted_rows

    with pytest.raises(RuntimeError, match=rf"hopeless: .* of 3 rows had no .* {rounds}\b"):
        rejection_sample(torch.empty(3, 1), propose, "hopeless")


@pytest.mark.parametrize("n", [2, 10, 40])
def test_the_slope_is_the_derivative_of_the_log_mass(n):
    kappa = torch.logspace(-3, 6, 30, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(_log_envelope_mass(n, kappa).sum(), kappa)
    torch.testing.assert_close(_log_envelope_slope(n, kappa.detach()), slope)


@pytest.mark.parametrize("kappa", [0.0, 1.0, 1e8])
def test_proposed_directions_are_unit_vectors_with_probabilities(kappa, generator):
    axis = torch.nn.functional.normalize(torch.randn(500, 5, generator=generator).double(), dim=-1)
    kappas = torch.full((500, 1), kappa, dtype=torch.float64)
    directions, log_ratio = propose_directions(axis, kappas, generator)
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(500, dtype=torch.float64))
    assert (log_ratio <= 1e-9).all()
    assert draw_normal((3,), generator, axis).dtype == torch.float64


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
