"""Potentials map codes (B, n) to numbers (B,), and networks start as zero."""

import pytest
import torch

from isolatent.contrast import ConstantPotential, NetworkPotential


@pytest.mark.parametrize(
    ("potential", "initial"),
    [(ConstantPotential(), 0.0), (ConstantPotential(0.5), 0.5), (NetworkPotential(3), 0.0)],
)
def test_potentials_have_their_initial_value_and_are_learned(potential, initial, generator):
    h = torch.randn(5, 3, generator=generator)
    values = potential(h)
    assert torch.equal(values, torch.full((5,), initial))
    gradients = torch.autograd.grad(values.sum(), list(potential.parameters()))
    assert any(gradient.abs().sum() > 0 for gradient in gradients)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ConstantPotential(float("nan")), ValueError, "init must be finite, got nan"),
        (lambda: NetworkPotential(0), ValueError, "n must be an integer >= 1, got 0"),
        (lambda: NetworkPotential(3, 0), ValueError, "hidden must be an integer >= 1, got 0"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
