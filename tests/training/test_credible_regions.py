"""Regions hold what their posterior says."""

import numpy as np
import pytest
import torch
from torch import Generator

import isolatent as iso
from isolatent.training.credible_regions import CredibleRegions

GENERATOR = Generator().manual_seed(0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_regions_hold_their_share_of_draws(level: float) -> None:
    n, count = 4, 20_000
    mode = torch.nn.functional.normalize(torch.ones(1, n), dim=1).expand(count, n)
    draws = iso.VonMisesFisher(8.0).sample(iso.Sphere(n), mode, GENERATOR)
    caps = CredibleRegions(mode.numpy(), np.full(count, 8.0), level, "sphere")
    assert caps.contains(3 * draws.numpy()).mean() == pytest.approx(level, abs=0.01)

    std = np.array([[1.0, 0.1, 3.0]]).repeat(count, 0)
    noise = torch.randn(count, 3, generator=GENERATOR).numpy()
    ellipsoids = CredibleRegions(np.zeros((count, 3)), std, level, "free")
    assert ellipsoids.contains(std * noise).mean() == pytest.approx(level, abs=0.01)


def test_missing_codes_lie_in_no_region() -> None:
    regions = CredibleRegions([[np.nan, np.nan]], [np.nan], 0.9, "sphere")
    assert regions.contains([[1.0, 0.0]]).tolist() == [False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0]], [[1.0]], 1.0, "free"), "level"),
        (([[0.0]], [[1.0]], 0.9, "box"), "geometry"),
        (([[0.0, 1.0]], [1.0], 0.9, "free"), "spread must have shape"),
        (([[0.0, 1.0]], [[1.0, 1.0]], 0.9, "sphere"), "spread must have shape"),
    ],
)
def test_bad_input(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CredibleRegions(*arguments)


def test_codes_must_fit() -> None:
    regions = CredibleRegions([[0.0, 1.0]], [[1.0, 1.0]], 0.9, "free")
    with pytest.raises(ValueError, match="codes must have shape"):
        regions.contains([[1.0]])
