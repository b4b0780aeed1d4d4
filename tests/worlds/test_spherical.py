"""Distributions on the sphere follow closed forms; their samplers have high acceptance rates."""

import math

import pytest
import torch
from scipy import integrate, special, stats

from isolatent.worlds import AnisotropicNormal, ShellNormal, Sphere, VonMisesFisher
from spacing import linspace


@pytest.mark.parametrize("n", [2, 10, 40])
@pytest.mark.parametrize("kappa", [0.5, 10.0, 300.0])
def test_von_mises_fisher_matches_closed_forms(n, kappa, generator):
    """Mean resultant length I_{n/2}(κ)/I_{n/2-1}(κ), and a uniform tangent direction."""
    space = Sphere(n)
    anchor = space.sample(1, generator, torch.float64).expand(50_000, n).contiguous()
    z = VonMisesFisher(kappa).sample(space, anchor, generator)
    cosine = (z * anchor).sum(-1)
    expected = special.ive(n / 2, kappa) / special.ive(n / 2 - 1, kappa)
    assert abs(cosine.mean() - expected) < 4.5 * cosine.std() / math.sqrt(len(z))
    tangent = torch.nn.functional.normalize(z - cosine[:, None] * anchor, dim=-1)
    assert tangent.mean(0).norm() < 5 / math.sqrt(len(z))
    # Second moments of a uniform tangent: the projector on the tangent space over n - 1.
    projector = torch.eye(n, dtype=torch.float64) - torch.outer(anchor[0], anchor[0])
    moments = tangent.T @ tangent / len(z)
    assert (moments - projector / (n - 1)).abs().max() < 6 / math.sqrt(len(z))
    # The distribution of the cosine, against its density by quadrature.
    grid = torch.linspace(-1, 1, 20_001, dtype=torch.float64)[1:-1]
    log_prob = kappa * grid + (n - 3) / 2 * torch.log1p(-grid.square())
    weights = (log_prob - log_prob.max()).exp()
    if n > 2:
        cdf = weights.cumsum(0) / weights.sum()
        empirical = torch.searchsorted(cosine.sort().values, grid) / len(z)
        assert (empirical - cdf).abs().max() < 2.2 / math.sqrt(len(z))  # KS, p = 1e-4


@pytest.mark.parametrize("kappa", [1e-6, 0.01, 1.0, 30.0, 1e5, 1e12])
def test_von_mises_fisher_density_for_every_concentration(kappa):
    """n = 3: κ/(4π sinh κ) e^{κ cos}. In every n the mean of cos is d log(normaliser)/dκ."""
    space, angle = Sphere(3, 2.0), torch.tensor([0.0, 0.3, 3.0, 50.0]).double() / math.sqrt(kappa)
    angle = angle.clamp(max=math.pi)
    z = 2 * torch.stack([angle.cos(), angle.sin(), torch.zeros_like(angle)], -1)
    log_sinh = kappa + math.log(-math.expm1(-2 * kappa)) - math.log(2)
    minus_cos = -2 * (angle / 2).sin().square()  # cos - 1
    expected = math.log(kappa / (4 * math.pi)) - log_sinh + kappa + kappa * minus_cos
    ours = VonMisesFisher(kappa).log_prob(space, z, z[:1].expand_as(z))
    scale = 2 * math.log(2.0)  # area of a sphere of radius 2
    torch.testing.assert_close(
        ours, expected - scale, rtol=1e-9, atol=1e-3 if kappa > 1e9 else 1e-9
    )


@pytest.mark.parametrize(
    ("n", "kappa"), [(2, 1e12), (40, 1e-3), (400, 0.01), (400, 30.0), (9, 1e11)]
)
def test_von_mises_fisher_density_integrates_to_one(n, kappa):
    """Over the angle θ, with the area of the parallels as weight."""
    far = min(math.pi, 40 * math.sqrt(n / kappa))
    theta = far / 20_000 * (torch.arange(20_000, dtype=torch.float64) + 0.5)  # midpoints
    z = torch.zeros(len(theta), n, dtype=torch.float64)
    z[:, 0], z[:, 1] = theta.cos(), theta.sin()
    pole = torch.zeros_like(z)
    pole[:, 0] = 1
    parallels = Sphere(n - 1).log_volume if n > 2 else math.log(2)
    log_prob = VonMisesFisher(kappa).log_prob(Sphere(n), z, pole)
    integrand = (log_prob + parallels + (n - 2) * theta.sin().log()).exp()
    assert float(integrand.sum() * (theta[1] - theta[0])) == pytest.approx(1.0, abs=1e-3)


def test_isotropic_weights_are_von_mises_fisher(generator):
    """-½λ|z'-z|² = λ z'·z + const on the unit sphere."""
    space = Sphere(10)
    anchor = space.sample(20_000, generator, torch.float64)
    ours, theirs = (
        (d.sample(space, anchor, generator) * anchor).sum(-1).numpy()
        for d in (AnisotropicNormal(20.0), VonMisesFisher(20.0))
    )
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-4


WEIGHTS_40 = {
    "linear": linspace(5, 300, 40),
    "halves": (5.0,) * 20 + (300.0,) * 20,
    "one stiff": (5.0,) * 39 + (300.0,),
    "one soft": (5.0,) + (300.0,) * 39,
    "soft": (5.0,) * 40,
    "stiff": (300.0,) * 40,
    "very stiff": (1e4,) * 40,
    "rigid": (1e6,) * 40,
}


@pytest.mark.parametrize("weights", WEIGHTS_40.values(), ids=WEIGHTS_40)
def test_anisotropic_acceptance_is_never_below_five_percent(weights, generator):
    """For typical anchors and for the worst, those on the axes."""
    space = Sphere(40)
    for anchor in (
        space.sample(2000, generator),
        torch.eye(40)[:1].expand(2000, 40).contiguous(),
        torch.eye(40)[-1:].expand(2000, 40).contiguous(),
    ):
        assert AnisotropicNormal(weights).acceptance_rate(space, anchor, generator) > 0.05


@pytest.mark.parametrize("n", [2, 10, 40])
def test_the_saddle_point_is_found_for_weights_of_every_magnitude(n, generator):
    from isolatent.worlds.spherical import _saddle_shift

    for size in (1e-3, 1.0, 300.0, 1e4, 1e6, 1e8):
        weights = size * torch.linspace(0.02, 1, n, dtype=torch.float64)
        linear = weights * Sphere(n).sample(500, generator, torch.float64)
        precision = weights + _saddle_shift(weights, linear)
        square = ((linear / precision).square() + 1 / precision).sum(-1)
        assert (square - 1).abs().max() < 1.1e-2
    rate = AnisotropicNormal(1e6).acceptance_rate(
        Sphere(n), Sphere(n).sample(500, generator), generator
    )
    assert rate > 0.9


def test_the_envelope_bounds_the_density(generator):
    """I(a, h) is at least the constant of the sampler, for every a up to its bound."""
    from isolatent.worlds.spherical import _log_least_radial_integral, _log_radial_integral

    for n in (2, 10, 40):
        a = torch.rand(20_000, generator=generator, dtype=torch.float64) * 400 + 0.01
        h = torch.randn(20_000, generator=generator, dtype=torch.float64) * 30 + a - n
        assert (_log_radial_integral(n, a, h) >= _log_least_radial_integral(n, 400.01)).all()
        value, _ = integrate.quad(
            lambda r, n=n: r ** (n - 1) * math.exp(-2.5 * (r * r - 1) + 1.5 * (r - 1)), 0, 20
        )
        ours = _log_radial_integral(n, *(torch.tensor(v).double() for v in (5.0, 1.5)))
        assert float(ours) == pytest.approx(math.log(value), abs=1e-9)


def test_shell_normal_converges_to_the_exact_density(generator):
    """For a thin shell projected draws follow AnisotropicNormal; for a thick one they do not.

    The Jacobian of the projection causes an error of order w for a shell of width w.
    """
    space, weights = Sphere(5), linspace(5, 25, 5)
    anchor = space.sample(1, generator, torch.float64).expand(20_000, 5).contiguous()
    along = (anchor[0] * torch.tensor(weights)).double()
    exact, thin, thick = (
        (distribution.sample(space, anchor, generator) @ along).numpy()
        for distribution in (
            AnisotropicNormal(weights),
            ShellNormal(weights, width=0.01),
            ShellNormal(weights, width=0.9),
        )
    )
    assert stats.ks_2samp(exact, thin).pvalue > 1e-4
    assert stats.ks_2samp(exact, thick).pvalue < 1e-6
