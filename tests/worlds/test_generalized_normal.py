"""Generalised normals, free and truncated, against scipy."""

import math

import pytest
import torch
from scipy import stats

from isolatent.worlds import Box, CubeGrid, Euclidean, GeneralizedNormal, Laplace, Normal
from spacing import linspace


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
def test_truncation_uses_one_scale_per_dimension(n, p, generator):
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


def test_truncation_to_a_cube_grid_against_scipy(generator):
    space = CubeGrid(1, 2, 0.4)
    center = torch.full((20_000, 1), 0.28, dtype=torch.float64)
    z = Normal(0.3).sample(space, center, generator)[:, 0]
    law = stats.norm(0.28, 0.3)
    left, right = law.cdf(0.3) - law.cdf(0), law.cdf(1) - law.cdf(0.7)

    def cdf(x):
        within = (law.cdf(x.clip(0, 0.3)) - law.cdf(0)) + (law.cdf(x.clip(0.7, 1)) - law.cdf(0.7))
        return within / (left + right)

    assert stats.kstest(z.numpy(), cdf).pvalue > 1e-4
