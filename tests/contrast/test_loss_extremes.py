"""Losses and gradients stay finite and right where scores, codes or batches are extreme."""

import math
import warnings

import pytest
import torch

from isolatent.checks import IsolatentWarning
from isolatent.contrast import ConstantPotential, Dot, Lp
from named_losses import LOSSES, value_and_gradients


@pytest.mark.parametrize("name", LOSSES)
def test_one_and_two_pairs_are_defined(name, generator):
    h, h_pos = torch.randn(2, 2, 3, generator=generator)
    loss = LOSSES[name](Dot())
    assert loss(h, h_pos).isfinite()
    if name == "infonce":
        assert loss(h[:1], h_pos[:1]).item() == pytest.approx(0.0, abs=1e-6)
    else:
        with pytest.raises(ValueError, match="there are no negatives: a batch of one pair"):
            loss(h[:1], h_pos[:1])
    assert loss(h[:1], h_pos[:1], negatives=h_pos[1:]).isfinite()


# The ratio r at a positive on [0, 1]^10 with Normal σ peaks at (σ √(2π))^-10.
LADDER = [0.2, 0.1, 0.05, 0.02, 0.01, 0.005]


def concentrated(name, std, dtype, engine="auto"):
    """Value, gradients and warnings at the true width and offset of a concentrated normal."""
    generator = torch.Generator().manual_seed(0)
    z = torch.rand(256, 10, generator=generator)
    z_pos = z + std * torch.randn(256, 10, generator=generator)
    offset = 10 * math.log(std * math.sqrt(2 * math.pi))
    loss = LOSSES[name](
        Lp(2, weights=0.5 / std**2), potential_pos=ConstantPotential(offset), engine=engine
    ).to(dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value, gradients = value_and_gradients(loss, z.to(dtype), z_pos.to(dtype), None)
    return value, gradients, caught


@pytest.mark.parametrize("std", LADDER)
@pytest.mark.parametrize("name", LOSSES)
def test_concentrated_positives_give_finite_values_and_gradients(name, std):
    """In float32, down to r = 1e19 and r² = 1e38; silently, and right, down to σ = 0.01."""
    value, gradients, caught = concentrated(name, std, torch.float32)
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    if std >= 0.01 or name not in ("spectral", "nwj"):
        assert not caught
        exact, expected, _ = concentrated(name, std, torch.float64, engine="dense")
        # Scores reach 1e3 to 1e5 here, so that float32 leaves them three digits.
        assert value.item() == pytest.approx(exact.item(), rel=2e-3, abs=1e-4)
        for ours, theirs in zip(gradients, expected, strict=True):
            size = float(theirs.abs().max())
            torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=5e-3 * size + 1e-6)


@pytest.mark.parametrize("offset", [-50.0, -85.0, -200.0])
@pytest.mark.parametrize("name", ["spectral", "nwj"])
def test_beyond_float32_there_is_one_warning_and_a_gradient_of_use(name, offset, generator):
    """Scores far too high must be pushed down, as the exact gradient does, and Adam must live."""
    h = torch.randn(16, 3, generator=generator)
    h_pos = h + 0.1 * torch.randn(16, 3, generator=generator)
    loss = LOSSES[name](Lp(2), potential_pos=ConstantPotential(offset))
    with pytest.warns(IsolatentWarning, match=r"too concentrated for this loss: use InfoNCE"):
        value, gradients = value_and_gradients(loss, h, h_pos, None)
    assert value.isfinite()
    assert all(gradient.square().isfinite().all() for gradient in gradients)
    assert gradients[-1] < 0  # the potential rises, scores fall
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(h, h_pos)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("case", "change"),
    {
        "identical rows": lambda h: h * 0 + 1,
        "far apart": lambda h: h * 30,
        "tiny": lambda h: h * 1e-6,
        "an outlier": lambda h: torch.cat([h[:-1], h[-1:] * 0 + 60]),
    }.items(),
)
def test_extreme_codes_give_finite_losses(name, case, change, generator):
    h, h_pos = torch.randn(2, 20, 3, generator=generator)
    value, gradients = value_and_gradients(LOSSES[name](Lp(2)), change(h), change(h_pos), None)
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    exact, _ = value_and_gradients(
        LOSSES[name](Lp(2), engine="dense"), change(h).double(), change(h_pos).double(), None
    )
    assert value.item() == pytest.approx(exact.item(), rel=1e-4, abs=1e-5)
