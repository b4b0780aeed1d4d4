import numpy as np
import pytest
import torch
from scipy import integrate

from isolatent.evaluation import mcc
from isolatent.experiments.measures import total_variation, with_factors
from isolatent.worlds import Euclidean, Identity, Normal, Sphere, Uniform, VonMisesFisher, World


def test_total_variation_of_a_vmf_by_integration():
    kappa = 3.0
    world = World(Sphere(3), VonMisesFisher(kappa), VonMisesFisher(1.0), Identity())
    density = kappa / (2 * np.sinh(kappa))  # of cos θ: κ e^{κt} / (2 sinh κ), uniform is 1/2
    exact, _ = integrate.quad(lambda t: 0.5 * abs(density * np.exp(kappa * t) - 0.5), -1, 1)
    assert total_variation(world) == pytest.approx(exact, abs=3e-3)


def test_total_variation_where_nothing_is_uniform():
    plane = World(Euclidean(2), Normal(1.0), Normal(1.0), Identity())
    assert total_variation(plane) is None
    assert total_variation(World(Sphere(3), Uniform(), VonMisesFisher(1.0), Identity())) == 0


def test_matching_is_that_of_mcc():
    z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).numpy()
    h = -z[:, [2, 0, 1]] + 0.1
    matched = with_factors(z, h)
    assert matched.code_of == [1, 2, 0]
    assert np.diag(matched.correlation).mean() == pytest.approx(mcc(z, h), abs=1e-4)
    assert np.allclose(matched.h, z - 0.1, atol=1e-5)
