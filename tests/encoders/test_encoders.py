"""Encoders: whitening whitens, heads land where they say, training starts linear."""

import pytest
import torch

from isolatent.encoders import MLP, BoxHead, SphereHead, Whitening


def test_whitened_data_has_identity_covariance(generator):
    x = torch.randn(5000, 6, generator=generator) @ torch.randn(6, 6, generator=generator) + 3
    white = Whitening(x)(x)
    torch.testing.assert_close(torch.cov(white.T), torch.eye(6), atol=2e-3, rtol=0)
    torch.testing.assert_close(white.mean(0), torch.zeros(6), atol=1e-3, rtol=0)


def test_whitening_leaves_dead_directions_small(generator):
    x = torch.randn(500, 3, generator=generator)
    x[:, 2] = x[:, 1]
    assert Whitening(x)(x).abs().max() < 10
    with pytest.raises(ValueError, match="every column is constant"):
        Whitening(torch.ones(10, 2))
    with pytest.raises(ValueError, match=r"shape \(N, m\) with N >= 2"):
        Whitening(torch.ones(1, 2))


def test_heads_land_where_they_say(generator):
    h = 5 * torch.randn(200, 4, generator=generator)
    torch.testing.assert_close(SphereHead()(h).norm(dim=-1), torch.ones(200))
    boxed = BoxHead(4, bound=3.0)(h)
    assert (boxed >= 0).all()
    assert (boxed <= 3).all()
    assert len(list(BoxHead(4).parameters())) == 1
    assert not list(BoxHead(4, learn_bound=False).parameters())


def test_a_perceptron_with_a_skip_starts_linear(generator):
    encoder = MLP(5, 3, hidden=(16,))
    x = torch.randn(4, 5, generator=generator)
    torch.testing.assert_close(encoder(2 * x) - encoder(x), encoder(x) - encoder(0 * x))
    bent = MLP(5, 3, hidden=(16,), skip=False)
    assert not torch.allclose(bent(2 * x) - bent(x), bent(x) - bent(0 * x))
