"""Rejection sampling fills every row, and Wood's envelope has the derivative it claims."""

import pytest
import torch

from isolatent.worlds.sampling import (
    draw_normal,
    draw_uniform,
    log_envelope_mass,
    log_envelope_slope,
    propose_directions,
    rejection_sample,
)


def test_rejection_fills_every_row_and_returns_the_acceptance_rate(generator):
    """Uniform points of the square that lie in the disc: their share is π/4."""
    out = torch.full((20_000, 2), 9.0)

    def propose(rows, round_number):
        draws = 2 * draw_uniform((len(rows), 2), generator, out) - 1
        return draws, draws.norm(dim=-1) <= 1

    rate = rejection_sample(out, propose, "disc")
    assert rate == pytest.approx(torch.pi / 4, abs=0.01)
    assert out.norm(dim=-1).max() <= 1
    assert rejection_sample(torch.empty(0, 2), propose, "disc") == 1.0


@pytest.mark.parametrize(("accepted_rows", "rounds"), [(0, 200), (1, 2000)])
def test_a_sampler_gives_up(accepted_rows, rounds):
    def propose(rows, round_number):
        return torch.zeros(len(rows), 1), rows < accepted_rows

    with pytest.raises(RuntimeError, match=rf"hopeless: .* of 3 rows had no .* {rounds}\b"):
        rejection_sample(torch.empty(3, 1), propose, "hopeless")


@pytest.mark.parametrize("n", [2, 10, 40])
def test_the_slope_is_the_derivative_of_the_log_mass(n):
    kappa = torch.logspace(-3, 6, 30, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(log_envelope_mass(n, kappa).sum(), kappa)
    torch.testing.assert_close(log_envelope_slope(n, kappa.detach()), slope)


@pytest.mark.parametrize("kappa", [0.0, 1.0, 1e8])
def test_proposed_directions_are_unit_vectors_with_probabilities(kappa, generator):
    axis = torch.nn.functional.normalize(torch.randn(500, 5, generator=generator).double(), dim=-1)
    kappas = torch.full((500, 1), kappa, dtype=torch.float64)
    directions, log_ratio = propose_directions(axis, kappas, generator)
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(500, dtype=torch.float64))
    assert (log_ratio <= 1e-9).all()
    assert draw_normal((3,), generator, axis).dtype == torch.float64
