"""Functions of the von Mises–Fisher distribution against integrals and samples."""

import numpy as np
import pytest
import torch
from scipy import integrate, special

from isolatent.contrast.vmf import (
    cap_angle,
    concentration,
    log_vmf_ratio,
    spread_of,
    tangent_variances,
)

DIMENSIONS = (2, 3, 5, 10, 40)
KAPPAS = np.array([0.05, 0.7, 5.0, 60.0, 101.0, 900.0])


def integral(function, kappa: float, n: int, up_to: float = np.pi) -> float:
    """Integrate a function of the cosine under the uniform distribution times e^κ(cos - 1)."""
    weight = special.gamma(n / 2) / special.gamma((n - 1) / 2) / np.sqrt(np.pi)

    def density(angle: float) -> float:
        height = np.exp(kappa * (np.cos(angle) - 1)) * np.sin(angle) ** (n - 2)
        return weight * function(np.cos(angle)) * height

    end = min(up_to, 10 * np.sqrt(n / kappa))
    return integrate.quad(density, 0, end, epsabs=0, epsrel=1e-9, limit=200)[0]


@pytest.mark.parametrize("n", DIMENSIONS)
def test_spread_is_minus_the_log_of_the_mean_length(n: int) -> None:
    for kappa in KAPPAS:
        length = integral(lambda c: c, kappa, n) / integral(lambda c: 1.0, kappa, n)
        assert spread_of(kappa, n) == pytest.approx(-np.log(length), rel=1e-6)


@pytest.mark.parametrize("n", DIMENSIONS)
def test_concentration_inverts_spread(n: int) -> None:
    kappas = np.exp(np.linspace(-3, 13, 60))
    found = concentration(torch.from_numpy(spread_of(kappas, n)), n)
    torch.testing.assert_close(found, torch.from_numpy(kappas), rtol=1e-4, atol=0)


@pytest.mark.parametrize("n", DIMENSIONS)
def test_density_integrates_to_one(n: int) -> None:
    for kappa in KAPPAS:
        spread = torch.tensor(float(spread_of(kappa, n)), dtype=torch.float64)
        height = float(log_vmf_ratio(torch.tensor(1.0).double(), spread, n).exp())
        assert height * integral(lambda c: 1.0, kappa, n) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("n", DIMENSIONS)
def test_variances_are_those_of_the_density(n: int) -> None:
    for kappa in KAPPAS:
        one = integral(lambda c: 1.0, kappa, n)
        mean = integral(lambda c: c, kappa, n) / one
        spread = torch.tensor(float(spread_of(kappa, n)), dtype=torch.float64)
        across, along = tangent_variances(spread, n)
        expected = integral(lambda c: (1 - c * c) / (n - 1), kappa, n) / one
        assert float(across) == pytest.approx(expected, rel=1e-4)
        expected = integral(lambda c, m=mean: (c - m) ** 2, kappa, n) / one
        assert float(along) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("n", DIMENSIONS)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_cap_holds_its_share_of_the_mass(n: int, level: float) -> None:
    for kappa, angle in zip(KAPPAS, cap_angle(KAPPAS, level, n), strict=True):
        inside = integral(lambda c: 1.0, kappa, n, up_to=float(angle))
        assert inside / integral(lambda c: 1.0, kappa, n) == pytest.approx(level, abs=5e-3)


def test_cap_of_a_missing_concentration_is_missing() -> None:
    assert np.isnan(cap_angle([np.nan, 3.0], 0.9, 3)).tolist() == [True, False]
    assert np.isnan(cap_angle([np.nan], 0.9, 3)).all()


def test_gradients() -> None:
    spread = torch.tensor([0.01, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
    cosine = torch.tensor([0.9, -0.3, 0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c, w: log_vmf_ratio(c, w, 4), (cosine, spread))
    assert torch.autograd.gradcheck(lambda w: concentration(w, 4), (spread,))
