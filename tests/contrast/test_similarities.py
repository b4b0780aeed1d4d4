"""Similarities keep their numbers exactly, and potentials start as a constant and are learned."""

import pytest
import torch

from isolatent.contrast import ConstantPotential, Dot, Lp, NetworkPotential


def test_fixed_scales_are_exact_and_learned_scales_rounded():
    assert Dot(3.0).double().scale.item() == 3.0
    assert Lp(2, weights=20_000.0).weights.item() == 20_000.0
    assert Lp(2, weights=[0.1, 0.2]).weights.tolist() == [0.1, 0.2]
    assert Dot(3.0, learn_scale=True).scale.item() == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("learn", [False, True])
def test_temperature_is_the_inverse_of_the_scale(learn, generator):
    u, v = torch.randn(2, 4, 3, generator=generator)
    warm, scaled = Dot(temperature=0.1, learn_scale=learn), Dot(10.0, learn)
    assert torch.equal(warm(u, v), scaled(u, v))
    assert warm.temperature.item() == pytest.approx(0.1)
    assert warm.scale.item() == pytest.approx(10.0)
    assert Dot().temperature.item() == 1.0


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
        (lambda: Dot(1e-50), ValueError, "scale must be a finite number > 1e-37"),
        (lambda: Lp(2, weights=1e39), ValueError, "weights must be a finite number"),
        (lambda: Dot(0.0), ValueError, "scale must be a finite number > "),
        (lambda: Lp(0.5), ValueError, "p must be a finite number >= 1, got 0.5"),
        (lambda: Lp(2, weights=-1.0), ValueError, "weights must be a finite number > 0"),
        (lambda: Lp(2, weights=[1.0, 0.0]), ValueError, r"weights\[1\] must be"),
        (
            lambda: Dot(10.0, temperature=0.1),
            ValueError,
            "scale and temperature must not both be given, got 10.0 and 0.1",
        ),
        (lambda: Dot(temperature=0.0), ValueError, "temperature must be a finite number > "),
        (lambda: ConstantPotential(float("nan")), ValueError, "init must be finite, got nan"),
        (lambda: NetworkPotential(0), ValueError, "n must be an integer >= 1, got 0"),
        (lambda: NetworkPotential(3, 0), ValueError, "hidden must be an integer >= 1, got 0"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
