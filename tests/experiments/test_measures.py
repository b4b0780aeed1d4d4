"""Measures of a run agree with integrals and with weights known by construction."""

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn

from isolatent.contrast import AnInfoNCE, InfoNCE, Lp
from isolatent.encoders import Axes, LinearAxes
from isolatent.experiments import Cell
from isolatent.experiments.measures import axes_found, codes_of_loss, scales, total_variation
from isolatent.training import ContrastiveICA
from isolatent.worlds import Euclidean, Identity, Normal, Sphere, Uniform, VonMisesFisher, World


def test_total_variation_of_a_vmf_by_integration():
    kappa = 3.0
    world = World(Sphere(3), VonMisesFisher(kappa), VonMisesFisher(1.0), Identity())
    density = kappa / (2 * np.sinh(kappa))  # of cos θ: κ e^{κt} / (2 sinh κ), uniform is 1/2
    exact, _ = integrate.quad(lambda t: 0.5 * abs(density * np.exp(kappa * t) - 0.5), -1, 1)
    assert total_variation(world) == pytest.approx(exact, abs=3e-3)


def test_total_variation_is_none_on_an_unbounded_space_and_zero_for_a_uniform_marginal():
    plane = World(Euclidean(2), Normal(1.0), Normal(1.0), Identity())
    assert total_variation(plane) is None
    assert total_variation(World(Sphere(3), Uniform(), VonMisesFisher(1.0), Identity())) == 0


def cell_of(tiny, world, model):
    return Cell.model_validate({"name": "a", "world": tiny["world"] | world, "model": model})


def test_weights_are_those_of_each_factors_code(tiny):
    z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).numpy()
    h = -z[:, [2, 0, 1]] + 0.1  # code 1 is factor 0, code 2 is factor 1, code 0 is factor 2
    world = {"space": "Sphere(3)", "conditional": "AnisotropicNormal([4.0, 5.0, 6.0])"}
    model = {"space": "sphere", "conditional": "anisotropic", "loss": "aninfonce"}
    cell = cell_of(tiny, world, model)
    found = scales(cell, AnInfoNCE(3, weights=[1.0, 2.0, 3.0]), z, h)
    assert found["learned"] == pytest.approx([2.0, 3.0, 1.0])
    assert found["true"] == [4.0, 5.0, 6.0]


def test_weights_of_unconstrained_codes_are_in_the_unit_of_the_factors(tiny):
    """Codes scaled and rotated among equal weights: Σ λ̂ (h - h')² is Σ λ (z - z')²."""
    z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).numpy()
    turn = np.array([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
    h = z @ turn.T * [2.0, 0.5, 3.0] + 0.1
    world = {"space": "Sphere(3)", "conditional": "AnisotropicNormal([4.0, 4.0, 6.0])"}
    model = {"space": "euclidean", "conditional": "anisotropic", "loss": "aninfonce"}
    cell = cell_of(tiny, world, model)
    found = scales(cell, AnInfoNCE(3, weights=[4.0 / 4, 4.0 * 4, 6.0 / 9]), z, h)
    assert found["learned"] == pytest.approx([4.0, 4.0, 6.0])


def test_a_rate_of_unconstrained_codes_has_no_true_value(tiny):
    world = {"space": "Box(2)", "conditional": "Normal(std=0.1)", "mixing": "Identity()"}
    model = {"space": "euclidean", "conditional": "normal"}
    cell = cell_of(tiny, world, model)
    z = np.eye(4)[:, :2]
    found = scales(cell, InfoNCE(Lp(p=2, weights=7.0)), z, 3 * z)
    assert found == {"name": "rate", "learned": 7.0, "true": None}


def fitted(axes):
    """A model whose codes are its observations, mapped onto axes if there are some."""
    model, identity = ContrastiveICA(2), nn.Linear(2, 2)
    nn.init.eye_(identity.weight)
    nn.init.zeros_(identity.bias)
    layers = [] if axes is None else [LinearAxes(2).set(axes)]
    model.encoder_, model.axes_ = nn.Sequential(identity, *layers), axes
    model.relaxed_, model.gains_ = (), {}
    return model


def test_the_codes_of_the_loss_are_those_before_axes():
    """The scale of a loss belongs to the codes that it was trained with."""
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    axes = Axes(
        "ica", torch.tensor([[0.0, 2.0], [3.0, 0.0]]), torch.ones(2), ((0,), (1,)), (1, 1), ""
    )
    model = fitted(axes)
    h = model.encoder_(x).detach().numpy()
    assert not np.allclose(h, x.numpy())
    assert np.array_equal(codes_of_loss(model, x, h), x.numpy())
    assert codes_of_loss(fitted(None), x, h) is h


def test_axes_are_recorded_where_they_were_looked_for():
    axes = Axes("ica", torch.eye(2), torch.zeros(2), ((0, 1),), (0.25, 0.5), "why")
    recorded = {"method": "ica", "blocks": [[0, 1]], "stability": [0.25, 0.5], "reason": "why"}
    assert axes_found(fitted(axes)) == {"axes": recorded}
    assert axes_found(fitted(None)) == {}
    assert axes_found(object()) == {}  # a VAE
