"""Laws of all distributions: support, dtype, normalisation, and moments of the samplers."""

import math

import pytest
import torch
from scipy import stats

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
from spacing import linspace

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
def test_samples_and_densities_follow_the_interface(distribution, space, dtype, generator):
    center = anchors(space, 200, generator, dtype)
    z = distribution.sample(space, center, generator)
    assert z.shape == center.shape
    assert z.dtype == dtype
    assert space.contains(z).all()
    log_prob = distribution.log_prob(space, z, center)
    assert log_prob.shape == (200,)
    assert log_prob.isfinite().all()
    if space.bounded:
        outside = distribution.log_prob(space, z + 50, center)
        assert (outside == -math.inf).all()
    again = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    assert torch.equal(*(distribution.sample(space, center, g) for g in again))


NORMALISED = [
    # in two dimensions, where a grid integrates the density over the space
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
    density = distribution.log_prob(space, grid, anchor.expand_as(grid)).exp()
    assert float(density.sum()) * cell == pytest.approx(1.0, abs=3e-3)


def test_samples_of_both_dtypes_agree():
    """Where draws are in float64, the stream does not depend on the dtype of the result."""
    for dtype in (torch.float32, torch.float64):
        center = torch.full((5, 2), 0.5, dtype=dtype)
        z = Normal(0.1).sample(Box(2), center, torch.Generator("cpu").manual_seed(0))
        assert z.dtype == dtype
        reference = Normal(0.1).sample(Box(2), center.double(), torch.Generator().manual_seed(0))
        torch.testing.assert_close(z.double(), reference, atol=1e-7, rtol=0)


def test_densities_without_a_known_constant_are_not_normalised():
    assert not AnisotropicNormal(5.0).normalised(Sphere(3))
    assert not ShellNormal(5.0).normalised(Sphere(3))
    assert not Normal(0.1).normalised(HollowBall(3))
    assert not Normal(0.1).normalised(Product(Box(1), HollowBall(3)))
    assert Normal(0.1).normalised(Product(Box(1), Sphere(3)))


def check_moments(distribution, space, anchor, proposals, log_proposal=0.0, draws=40_000):
    """Compare two moments with self-normalised importance sampling, |error| < 5 σ."""
    generator = torch.Generator().manual_seed(3)
    z = distribution.sample(space, anchor.expand(draws, -1).contiguous(), generator)
    log_weight = distribution.log_prob(space, proposals, anchor.expand_as(proposals))
    weight = (log_weight - log_proposal).softmax(0)
    effective = 1 / weight.square().sum()
    assert effective > 2000
    for ours, theirs in ((z, proposals), (z.square(), proposals.square())):
        expected = weight @ theirs
        spread = (weight @ (theirs - expected).square()).sqrt()
        error = spread * (1 / effective + 1 / draws).sqrt()
        assert ((ours.mean(0) - expected).abs() < 5 * error).all()


@pytest.mark.parametrize(
    "distribution", [Laplace(0.3), Normal(0.2), GeneralizedNormal(3.0, 1.5)], ids=repr
)
def test_hollow_ball_moments_by_importance_sampling(distribution, generator):
    space = HollowBall(3, 0.5, 1.0)
    anchor = torch.tensor([[0.6, 0.1, -0.3]], dtype=torch.float64)
    check_moments(distribution, space, anchor, space.sample(400_000, generator, torch.float64))


def optimal_shift(weights, anchor):
    radius = float(anchor.norm())
    low, high = float(-weights.min()) + 1e-6, 1e4
    for _ in range(100):
        shift = (low + high) / 2
        precision = weights + shift
        square = ((weights * anchor / precision).square() + 1 / precision).sum()
        low, high = (shift, high) if square > radius**2 else (low, shift)
    return low


@pytest.mark.parametrize(
    ("n", "low", "high"), [(2, 1.0, 30.0), (3, 50.0, 60.0), (10, 5.0, 25.0), (40, 5.0, 300.0)]
)
def test_anisotropic_normal_by_importance_sampling(n, low, high):
    """Proposals: the normal N(z, Λ⁻¹/τ) projected, whose density on the sphere is known."""
    space, weights = Sphere(n, 1.3), linspace(low, high, n)
    generator = torch.Generator().manual_seed(n)
    anchor = space.sample(1, generator, torch.float64)
    # A saddle-matched projected normal covers the target; its density is integrated numerically
    # by GeneralizedNormal, whose code is independent of the sampler under test.
    shift = optimal_shift(torch.tensor(weights, dtype=torch.float64), anchor[0])
    precision = torch.tensor(weights, dtype=torch.float64) + shift
    center = (torch.tensor(weights, dtype=torch.float64) / precision * anchor).expand(15_000, n)
    proposal = Normal(tuple(precision.rsqrt().tolist()))
    free = proposal.sample(Euclidean(n), center, generator)
    proposals = space.project(free)
    log_proposal = proposal._log_density(space, proposals, center)
    check_moments(AnisotropicNormal(weights), space, anchor, proposals, log_proposal)


def test_projected_density_of_a_normal_matches_its_sampler():
    """Projected draws have the moments of the projected density."""
    space, generator = Sphere(4), torch.Generator().manual_seed(1)
    anchor = torch.tensor([[0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    proposals = space.sample(20_000, generator, torch.float64)
    check_moments(Normal((0.2, 0.5, 0.5, 0.9)), space, anchor, proposals)
    check_moments(Laplace(0.5), space, anchor, proposals)


def test_copula_has_uniform_marginals_and_the_given_correlation(generator):
    center = torch.zeros(50_000, 4, dtype=torch.float64)
    z = GaussianCopula(2, 0.8).sample(Box(4), center, generator)
    for column in z.T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-4
    correlation = torch.corrcoef(z.T)
    spearman = 6 / math.pi * math.asin(0.4)  # of a Gaussian copula with correlation 0.8
    assert correlation[0, 1] == pytest.approx(spearman, abs=0.01)
    assert correlation[0, 2] == pytest.approx(0.0, abs=0.02)


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
        (lambda: draw(VonMisesFisher(1.0), Sphere(2), 0 * ONE), ValueError, "center must have non"),
        (
            lambda: draw(AnisotropicNormal(1.0), Sphere(2), 0 * ONE),
            ValueError,
            "got a row of zeros",
        ),
        (
            lambda: Normal(0.1).log_prob(Box(2), torch.zeros(3, 2), ONE),
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


def test_samplers_without_acceptance_raise(generator):
    wide = HollowBall(40, 0.9, 1.0)
    with pytest.raises(RuntimeError, match=r"Laplace.*on HollowBall.*Try another scale.*space"):
        Laplace(0.5).sample(wide, wide.sample(20, generator), generator)
    with pytest.raises(RuntimeError, match="no accepted draw"):
        ShellNormal(0.5).sample(Sphere(40), Sphere(40).sample(5, generator), generator)
    middle = torch.full((3, 1), 0.5)
    with pytest.raises(ValueError, match="no mass that float64 can represent"):
        Laplace(1e-4).sample(CubeGrid(1, 2, 0.5), middle, generator)
