"""Every distribution keeps one contract, and its sampler matches its density."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from isolatent.worlds import (
    AnisotropicNormal,
    Box,
    CubeGrid,
    Euclidean,
    GaussianCopula,
    GeneralizedNormal,
    HollowBall,
    Independent,
    Laplace,
    Normal,
    Product,
    ShellNormal,
    Sphere,
    Uniform,
    VonMisesFisher,
)


def linspace(low, high, n):
    return tuple(torch.linspace(low, high, n).tolist())


CASES = [
    (Uniform(), Sphere(10)),
    (Uniform(), CubeGrid(3)),
    (VonMisesFisher(1.0), Sphere(2)),
    (VonMisesFisher(10.0), Sphere(10, radius=2.0)),
    (VonMisesFisher(500.0), Sphere(40)),
    (AnisotropicNormal(linspace(5, 300, 40)), Sphere(40)),
    (AnisotropicNormal(10.0), Box(3)),
    (ShellNormal(25.0), Sphere(10)),
    (GaussianCopula(2, 0.8), Box(4, -1.0, 1.0)),
    (Independent(VonMisesFisher(5.0), Normal(0.1)), Product(Sphere(3), Box(2))),
    (Laplace(0.1), Product(Sphere(3), Box(2), Euclidean(1))),
    *(
        (distribution, space)
        for distribution in (Laplace(0.05), Normal(0.3), GeneralizedNormal(3.0, 0.2))
        for space in (Sphere(10), Box(10), Euclidean(2), HollowBall(5), CubeGrid(10, 3, 0.1))
    ),
    (Normal(linspace(0.05, 0.5, 40)), Box(40)),
    (GeneralizedNormal(1.5, linspace(0.05, 0.5, 3)), Sphere(3)),
]


def anchors(space, count, generator, dtype=torch.float64):
    if space.bounded:
        return space.sample(count, generator, dtype)
    return space.project(torch.randn(count, space.n, generator=generator, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("distribution", "space"), CASES, ids=repr)
def test_contract(distribution, space, dtype, generator):
    center = anchors(space, 200, generator, dtype)
    z = distribution.sample(space, center, generator)
    assert z.shape == center.shape
    assert z.dtype == dtype
    assert space.contains(z).all()
    log_density = distribution.log_density(space, z, center)
    assert log_density.shape == (200,)
    assert log_density.isfinite().all()
    if space.bounded:
        outside = distribution.log_density(space, z + 50, center)
        assert (outside == -math.inf).all()
    again = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    assert torch.equal(*(distribution.sample(space, center, g) for g in again))


NORMALISED = [
    # n = 2 or 1 where a grid integrates the density over the whole space
    *((d, Sphere(2, 1.5)) for d in (VonMisesFisher(3.0), Laplace(0.3), Normal(0.4))),
    (GeneralizedNormal(3.0, (0.2, 0.7)), Sphere(2, 1.5)),
    *(
        (d, space)
        for d in (Laplace(0.2), Normal((0.1, 0.4)), GeneralizedNormal(2.5, 0.3))
        for space in (Box(2, -0.5, 0.5), CubeGrid(2, 2, 0.3))
    ),
    (AnisotropicNormal((5.0, 50.0)), Box(2)),
    (GaussianCopula(2, -0.6), Box(2, 1.0, 3.0)),
    (Uniform(), HollowBall(2)),
]


@pytest.mark.parametrize(("distribution", "space"), NORMALISED, ids=repr)
def test_normalised_densities_integrate_to_one(distribution, space, generator):
    assert distribution.normalised(space)
    anchor = space.sample(1, generator, torch.float64)
    if isinstance(space, Sphere):
        angle = torch.linspace(0, 2 * math.pi, 4001, dtype=torch.float64)[:-1]
        grid = space.radius * torch.stack([angle.cos(), angle.sin()], -1)
        cell = 2 * math.pi * space.radius / len(angle)
    else:
        low, high = (1.0, 3.0) if space == Box(2, 1.0, 3.0) else (-1.0, 1.0)
        side = low + (torch.arange(800, dtype=torch.float64) + 0.5) / 800 * (high - low)
        grid = torch.cartesian_prod(side, side)
        cell = ((high - low) / 800) ** 2
    density = distribution.log_density(space, grid, anchor.expand_as(grid)).exp()
    assert float(density.sum()) * cell == pytest.approx(1.0, abs=3e-3)


def test_any_generator_serves_any_dtype():
    """The stream does not depend on the dtype that is asked for, where draws are in float64."""
    for dtype in (torch.float32, torch.float64):
        center = torch.full((5, 2), 0.5, dtype=dtype)
        z = Normal(0.1).sample(Box(2), center, torch.Generator("cpu").manual_seed(0))
        assert z.dtype == dtype
        reference = Normal(0.1).sample(Box(2), center.double(), torch.Generator().manual_seed(0))
        torch.testing.assert_close(z.double(), reference, atol=1e-7, rtol=0)


def test_which_densities_are_not_normalised():
    assert not AnisotropicNormal(5.0).normalised(Sphere(3))
    assert not ShellNormal(5.0).normalised(Sphere(3))
    assert not Normal(0.1).normalised(HollowBall(3))
    assert not Normal(0.1).normalised(Product(Box(1), HollowBall(3)))
    assert Normal(0.1).normalised(Product(Box(1), Sphere(3)))


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
    # The cosine's law beyond its mean, against its own density by quadrature.
    grid = torch.linspace(-1, 1, 20_001, dtype=torch.float64)[1:-1]
    log_density = kappa * grid + (n - 3) / 2 * torch.log1p(-grid.square())
    weights = (log_density - log_density.max()).exp()
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
    ours = VonMisesFisher(kappa).log_density(space, z, z[:1].expand_as(z))
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
    theta = torch.linspace(0, far, 200_001, dtype=torch.float64)[1:-1]
    z = torch.zeros(len(theta), n, dtype=torch.float64)
    z[:, 0], z[:, 1] = theta.cos(), theta.sin()
    pole = torch.zeros_like(z)
    pole[:, 0] = 1
    parallels = Sphere(n - 1).log_volume if n > 2 else math.log(2)
    log_density = VonMisesFisher(kappa).log_density(Sphere(n), z, pole)
    integrand = (log_density + parallels + (n - 2) * theta.sin().log()).exp()
    assert float(integrand.sum() * (theta[1] - theta[0])) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("at", [0.02, 0.5, 0.97])
@pytest.mark.parametrize(("p", "scale"), [(1, 0.05), (1, 2.0), (2, 0.1), (3, 0.05), (2.5, 1.0)])
def test_truncated_generalised_normal_against_scipy(p, scale, at, generator):
    draws = GeneralizedNormal(p, scale).sample(
        Box(1), torch.full((20_000, 1), at, dtype=torch.float64), generator
    )
    law = stats.gennorm(p, loc=at, scale=scale)
    low, high = law.cdf(0), law.cdf(1)
    test = stats.kstest(draws[:, 0].numpy(), lambda x: (law.cdf(x) - low) / (high - low))
    assert test.pvalue > 1e-4


@pytest.mark.parametrize("n", [2, 10, 40])
@pytest.mark.parametrize("p", [1, 2, 3.5])
def test_truncation_uses_each_dimensions_own_scale(n, p, generator):
    scales = linspace(0.05, 1.0, n)
    center = torch.full((4000, n), 0.3, dtype=torch.float64)
    draws = GeneralizedNormal(p, scales).sample(Box(n), center, generator)
    for scale, column in zip(scales, draws.T, strict=True):
        law = stats.gennorm(p, loc=0.3, scale=scale)
        low, high = law.cdf(0), law.cdf(1)
        test = stats.kstest(
            column.numpy(), lambda x, law=law, low=low, high=high: (law.cdf(x) - low) / (high - low)
        )
        assert test.pvalue > 1e-5


@pytest.mark.parametrize("n", [2, 10, 40])
def test_free_generalised_normal_against_scipy(n, generator):
    center = torch.zeros(4000, n, dtype=torch.float64)
    for distribution, p, scale in (
        (Laplace(0.7), 1, 0.7),
        (Normal(0.7), 2, 0.7 * math.sqrt(2)),
        (GeneralizedNormal(4.5, 0.7), 4.5, 0.7),
    ):
        z = distribution.sample(Euclidean(n), center, generator)
        assert stats.kstest(z.flatten().numpy(), stats.gennorm(p, scale=scale).cdf).pvalue > 1e-4


def test_the_cube_grid_is_truncated_interval_by_interval(generator):
    space = CubeGrid(1, 2, 0.4)
    center = torch.full((20_000, 1), 0.28, dtype=torch.float64)
    z = Normal(0.3).sample(space, center, generator)[:, 0]
    law = stats.norm(0.28, 0.3)
    left, right = law.cdf(0.3) - law.cdf(0), law.cdf(1) - law.cdf(0.7)

    def cdf(x):
        within = (law.cdf(x.clip(0, 0.3)) - law.cdf(0)) + (law.cdf(x.clip(0.7, 1)) - law.cdf(0.7))
        return within / (left + right)

    assert stats.kstest(z.numpy(), cdf).pvalue > 1e-4


@pytest.mark.parametrize("std", [0.15, 0.4, 5.0])
def test_hollow_ball_truncation_by_its_radial_law(std, generator):
    """Around the origin the radius of a truncated normal is a truncated chi."""
    space = HollowBall(6, 0.4, 1.0)
    center = torch.zeros(20_000, 6, dtype=torch.float64)
    radius = Normal(std).sample(space, center, generator).norm(dim=-1).numpy()
    chi = stats.chi(6, scale=std)
    low, mass = chi.sf(0.4), chi.sf(0.4) - chi.sf(1.0)
    assert stats.kstest(radius, lambda r: (low - chi.sf(r)) / mass).pvalue > 1e-4


@pytest.mark.parametrize("n", [2, 10, 40])
@pytest.mark.parametrize("std", [0.02, 0.2, 1.0, 30.0])
@pytest.mark.parametrize("at", [0.05, 0.75, 2.0])
def test_hollow_ball_normal_around_any_centre_at_any_scale(n, std, at, generator):
    """The squared radius is a truncated noncentral χ²; given r, the cosine is von Mises–Fisher's.

    Its radial law is integrated on a grid, in a form that shares nothing with the sampler.
    """
    space = HollowBall(n, 0.5, 1.0)
    center = torch.zeros(8000, n, dtype=torch.float64)
    center[:, -1] = at
    z = Normal(std).sample(space, center, generator)
    assert space.contains(z).all()
    radius = z.norm(dim=-1)
    grid = np.linspace(0.5, 1.0, 20_001)
    kappa = grid * at / std**2
    log_density = (
        n / 2 * np.log(grid)
        - (grid - at) ** 2 / (2 * std**2)
        + np.log(special.ive(n / 2 - 1, kappa))
    )
    density = np.exp(log_density - log_density.max())
    cdf = integrate.cumulative_trapezoid(density, grid, initial=0)
    test = stats.kstest(radius.numpy(), lambda r: np.interp(r, grid, cdf / cdf[-1]))
    assert test.pvalue > 1e-5
    cosine = z[:, -1] / radius
    at_each = radius.numpy() * at / std**2
    expected = torch.from_numpy(special.ive(n / 2, at_each) / special.ive(n / 2 - 1, at_each))
    assert abs((cosine - expected).mean()) < 4.5 * (cosine - expected).std() / math.sqrt(len(z))


@pytest.mark.parametrize(
    "distribution", [Laplace(0.3), Normal(0.2), GeneralizedNormal(3.0, 1.5)], ids=repr
)
def test_hollow_ball_moments_by_importance_sampling(distribution, generator):
    space = HollowBall(3, 0.5, 1.0)
    anchor = torch.tensor([[0.6, 0.1, -0.3]], dtype=torch.float64)
    check_moments(distribution, space, anchor, space.sample(400_000, generator, torch.float64))


def check_moments(distribution, space, anchor, proposals, log_proposal=0.0, draws=40_000):
    """First and second moments against self-normalised importance sampling, |error| < 5 σ."""
    generator = torch.Generator().manual_seed(3)
    z = distribution.sample(space, anchor.expand(draws, -1).contiguous(), generator)
    log_weight = distribution.log_density(space, proposals, anchor.expand_as(proposals))
    weight = (log_weight - log_proposal).softmax(0)
    effective = 1 / weight.square().sum()
    assert effective > 2000
    for ours, theirs in ((z, proposals), (z.square(), proposals.square())):
        expected = weight @ theirs
        spread = (weight @ (theirs - expected).square()).sqrt()
        error = spread * (1 / effective + 1 / draws).sqrt()
        assert ((ours.mean(0) - expected).abs() < 5 * error).all()


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


def optimal_shift(weights, anchor):
    radius = float(anchor.norm())
    low, high = float(-weights.min()) + 1e-6, 1e4
    for _ in range(100):
        shift = (low + high) / 2
        precision = weights + shift
        square = ((weights * anchor / precision).square() + 1 / precision).sum()
        low, high = (shift, high) if square > radius**2 else (low, shift)
    return low


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
def test_the_saddle_point_is_found_for_weights_of_every_size(n, generator):
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


def test_the_envelope_is_an_envelope(generator):
    """I(a, h) is never below the constant the sampler divides by, for any a up to its bound."""
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


def test_shell_normal_tends_to_the_exact_density(generator):
    """For a thin shell the projected draws follow AnisotropicNormal; for a thick one they do not.

    The projection's Jacobian factor is what a shell of width w gets wrong, of order w.
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


def test_copula_has_uniform_margins_and_the_asked_correlation(generator):
    center = torch.zeros(50_000, 4, dtype=torch.float64)
    z = GaussianCopula(2, 0.8).sample(Box(4), center, generator)
    for column in z.T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-4
    correlation = torch.corrcoef(z.T)
    spearman = 6 / math.pi * math.asin(0.4)  # of a Gaussian copula with correlation 0.8
    assert correlation[0, 1] == pytest.approx(spearman, abs=0.01)
    assert correlation[0, 2] == pytest.approx(0.0, abs=0.02)


def test_projected_density_of_a_normal_matches_its_sampler():
    """Normal on the sphere is drawn and projected; its density gives the same moments."""
    space, generator = Sphere(4), torch.Generator().manual_seed(1)
    anchor = torch.tensor([[0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    proposals = space.sample(20_000, generator, torch.float64)
    check_moments(Normal((0.2, 0.5, 0.5, 0.9)), space, anchor, proposals)
    check_moments(Laplace(0.5), space, anchor, proposals)


ONE = torch.full((1, 2), 0.5)


def draw(distribution, space, center):
    return distribution.sample(space, center, torch.Generator())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: VonMisesFisher(0), ValueError, "kappa must be a finite number > 0, got 0"),
        (lambda: VonMisesFisher("10"), TypeError, "kappa must be a finite number > 0"),
        (lambda: Normal(-1.0), ValueError, "std must be a finite number > 0, got -1.0"),
        (lambda: Normal([0.1, -0.1]), ValueError, r"std\[1\] must be a finite number > 0"),
        (lambda: Laplace(math.inf), ValueError, "scale must be a finite number > 0, got inf"),
        (lambda: Laplace("wide"), TypeError, "scale must be a positive number or a sequence"),
        (lambda: GeneralizedNormal(0.5, 1.0), ValueError, "p must be a finite number >= 1"),
        (lambda: AnisotropicNormal((1.0, 0.0)), ValueError, r"weights\[1\] must be"),
        (lambda: ShellNormal(1.0, width=-1), ValueError, "width must be a finite number > 0"),
        (lambda: GaussianCopula(0, 0.5), ValueError, "block_size must be an integer >= 1"),
        (lambda: GaussianCopula(3, -0.5), ValueError, "correlation must be a finite number > -0.5"),
        (lambda: Independent(3), TypeError, "parts must be one or more Distribution"),
        (lambda: Normal((1.0, 2.0)).normalised(Box(3)), ValueError, "std must have one value"),
        (
            lambda: Laplace((0.1,) * 5).normalised(Product(Sphere(3), Box(2))),
            ValueError,
            r"scale must have .* per dimension \(3\), got 5 values.*use Independent",
        ),
        (lambda: draw(Normal(0.1), Box(2), torch.zeros(3, 2).int()), TypeError, "center must be a"),
        (lambda: draw(Normal(0.1), Box(2), [[0.5, 0.5]]), TypeError, "center must be a tensor"),
        (lambda: draw(Normal(0.1), Box(2), ONE * math.nan), ValueError, "center must be finite"),
        (lambda: draw(Normal(0.1), Box(3), ONE), ValueError, r"center must have shape \(N, 3\)"),
        (lambda: Normal(0.1).sample(Box(2), ONE, 7), TypeError, "generator must be a torch.Gen"),
        (lambda: draw(VonMisesFisher(1.0), Sphere(2), 0 * ONE), ValueError, "center must have a d"),
        (
            lambda: draw(AnisotropicNormal(1.0), Sphere(2), 0 * ONE),
            ValueError,
            "a row of it is zero",
        ),
        (
            lambda: Normal(0.1).log_density(Box(2), torch.zeros(3, 2), ONE),
            ValueError,
            "as many rows, got 3 and 1",
        ),
        (lambda: Uniform().normalised(Euclidean(2)), ValueError, "needs a bounded space"),
        (lambda: VonMisesFisher(1.0).normalised(Box(2)), TypeError, "needs a Sphere, got Box"),
        (lambda: Normal((0.1, 0.2)).normalised(Box(3)), ValueError, r"per dimension \(3\), got 2"),
        (lambda: AnisotropicNormal((1.0,) * 4).normalised(Sphere(3)), ValueError, "got 4 values"),
        (lambda: AnisotropicNormal(1.0).normalised(HollowBall(3)), TypeError, "not defined on"),
        (lambda: GaussianCopula(3, 0.1).normalised(Box(4)), ValueError, "must divide n = 4"),
        (lambda: GaussianCopula(1, 0.1).normalised(Sphere(4)), TypeError, "needs a Box"),
        (lambda: Independent(Uniform()).normalised(Box(2)), TypeError, "needs a Product"),
        (
            lambda: Independent(Uniform()).normalised(Product(Box(2), Box(2))),
            ValueError,
            "1 parts but the product has 2 spaces",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_samplers_that_cannot_work_say_so(generator):
    wide = HollowBall(40, 0.9, 1.0)
    with pytest.raises(RuntimeError, match=r"Laplace.*on HollowBall.*Try another scale.*space"):
        Laplace(0.5).sample(wide, wide.sample(20, generator), generator)
    with pytest.raises(RuntimeError, match="no accepted draw"):
        ShellNormal(0.5).sample(Sphere(40), Sphere(40).sample(5, generator), generator)
    middle = torch.full((3, 1), 0.5)
    with pytest.raises(ValueError, match="no mass that float64 can represent"):
        Laplace(1e-4).sample(CubeGrid(1, 2, 0.5), middle, generator)
