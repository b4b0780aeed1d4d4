"""At its theoretical optimum every loss has zero expected gradient.

Codes are the true latents, similarity and potentials the true density ratio. The gradient with
respect to scale, weights and offset is then a mean of zero over batches, up to its Monte-Carlo
error; a wrong sign, factor or offset anywhere in a loss moves it by many of these.
"""

import math

import pytest
import torch
from scipy import special

from isolatent.contrast import (
    NCE,
    NWJ,
    AnInfoNCE,
    ConstantPotential,
    Dot,
    InfoNCE,
    Lp,
    SpectralContrastive,
)
from isolatent.worlds import (
    AnisotropicNormal,
    Box,
    Laplace,
    Normal,
    Sphere,
    VonMisesFisher,
)

LOSSES = {
    "infonce": InfoNCE,
    "infonce within": lambda s, **k: InfoNCE(s, negatives_from="both", **k),
    "nce": NCE,
    "nce counted": lambda s, **k: NCE(s, ratio="count", **k),
    "spectral": SpectralContrastive,
    "nwj": NWJ,
}
BATCHES = 200
LIMIT = 4.0  # standard errors; 4 is exceeded by chance once in 16 000 comparisons


def gradients(loss, draw, seed=0):
    """Mean gradient of each parameter over batches, and its standard error."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(BATCHES):
        value = loss(*draw(generator))
        grads = torch.autograd.grad(value, list(loss.parameters()))
        found.append(torch.cat([g.flatten() for g in grads]).double())
    stacked = torch.stack(found)
    return stacked.mean(0), stacked.std(0) / math.sqrt(BATCHES)


def assert_stationary(loss, draw):
    mean, error = gradients(loss, draw)
    assert (mean.abs() < LIMIT * error).all(), (mean / error).tolist()


def assert_not_stationary(loss, draw):
    mean, error = gradients(loss, draw)
    assert ((mean.abs() / error).max() > 3 * LIMIT).all(), (mean / error).tolist()


def sphere_pairs(conditional, n, rows=64):
    space = Sphere(n)

    def draw(generator):
        z = space.sample(rows, generator, torch.float64)
        return z, conditional.sample(space, z, generator)

    return draw


def log_ratio_constant(n, kappa):
    """log r = κ z·z' + this, for uniform z and von Mises–Fisher z'."""
    order = n / 2 - 1
    log_bessel = math.log(special.ive(order, kappa)) + kappa
    log_constant = order * math.log(kappa) - n / 2 * math.log(2 * math.pi) - log_bessel
    return log_constant + Sphere(n).log_volume


@pytest.mark.parametrize("name", LOSSES)
def test_sphere(name):
    n, kappa = 4, 3.0
    draw = sphere_pairs(VonMisesFisher(kappa), n)

    def make(scale, offset):
        potential = ConstantPotential(-offset)
        return LOSSES[name](Dot(scale, learn_scale=True), potential_pos=potential).double()

    offset = log_ratio_constant(n, kappa)
    assert_stationary(make(kappa, offset), draw)
    assert_not_stationary(make(0.7 * kappa, offset), draw)
    if "infonce" not in name:  # its optimum leaves the offset free
        assert_not_stationary(make(kappa, offset + 0.5), draw)


class BoxNormaliser(torch.nn.Module):
    """α(z) = log Z(z), the logarithm of the conditional's integral around z over the unit box."""

    def __init__(self, conditional):
        super().__init__()
        self.conditional = conditional

    def forward(self, z):
        # p(z'|z) at z' = z is 1 / Z(z), as the exponent is zero there.
        return -self.conditional.log_prob(Box(z.shape[1]), z, z)


@pytest.mark.parametrize(("p", "conditional"), [(1, Laplace(0.3)), (2, Normal(0.25))], ids=repr)
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "infonce within"])
def test_box_with_the_potential_that_truncation_asks_for(name, p, conditional):
    """log r = -d(z, z') - log Z(z) + log volume: α varies near the faces, α̃ is constant.

    That is with negatives from the uniform marginal. Positives themselves are not uniform where
    the conditional is truncated, so negatives from the batch would ask for an α̃ that varies too.
    """
    space = Box(3)
    weight = 1 / 0.3 if p == 1 else 0.5 / 0.25**2

    def draw(generator):
        z = space.sample(64, generator, torch.float64)
        negatives = space.sample(64, generator, torch.float64)
        return z, conditional.sample(space, z, generator), negatives

    def make(factor):
        return LOSSES[name](
            Lp(p, weights=[factor * weight] * 3, learn_weights=True),
            potential=BoxNormaliser(conditional),
            potential_pos=ConstantPotential(),
            negatives_from="given",
            symmetric=False,
        ).double()

    assert_stationary(make(1.0), draw)
    assert_not_stationary(make(1.4), draw)


def test_anisotropic_weights_are_those_of_the_world():
    """The normaliser depends on the anchor, which InfoNCE does not see in one direction."""
    weights = (2.0, 5.0, 9.0)
    draw = sphere_pairs(AnisotropicNormal(weights), 3)
    assert_stationary(AnInfoNCE(3, weights=weights, symmetric=False).double(), draw)
    assert_not_stationary(AnInfoNCE(3, weights=(2.0, 5.0, 6.0), symmetric=False).double(), draw)
    assert_not_stationary(AnInfoNCE(3, weights=weights, half=False, symmetric=False).double(), draw)


def test_hard_negatives_leave_the_difference_of_the_weights():
    """Negatives around each anchor with Λ⁻: the optimum is Λ⁺ - Λ⁻ (Rusak 2025, Cor. 3.1)."""
    positive, negative = (9.0, 12.0, 20.0), (3.0, 8.0, 5.0)
    space = Sphere(3)

    def draw(generator):
        z, z_pos = sphere_pairs(AnisotropicNormal(positive), 3)(generator)
        around = z.repeat_interleave(16, 0)
        hard = AnisotropicNormal(negative).sample(space, around, generator)
        return z, z_pos, hard.view(len(z), 16, 3)

    def make(weights):
        return AnInfoNCE(3, weights=weights, symmetric=False, negatives_from="given").double()

    difference = tuple(a - b for a, b in zip(positive, negative, strict=True))
    assert_stationary(make(difference), draw)
    assert_not_stationary(make(positive), draw)


def test_minus_nwj_is_the_mutual_information_at_the_optimum():
    n, kappa = 4, 3.0
    offset = log_ratio_constant(n, kappa)
    loss = NWJ(Dot(kappa), potential_pos=ConstantPotential(-offset)).double()
    draw, generator = sphere_pairs(VonMisesFisher(kappa), n, 2048), torch.Generator().manual_seed(0)
    values = torch.stack([loss(*draw(generator)).detach() for _ in range(20)])
    resultant = special.ive(n / 2, kappa) / special.ive(n / 2 - 1, kappa)
    information = kappa * resultant + offset
    error = values.std() / math.sqrt(len(values))
    assert abs(-values.mean() - information) < LIMIT * error
