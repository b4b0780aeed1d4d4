"""Encoders have the layers, shapes and invariances that they promise, and heads bound the codes."""

import pytest
import torch
from torch import nn

from isolatent.encoders import (
    MLP,
    BoxHead,
    ConvEncoder,
    PaperMLP,
    PooledEncoder,
    ResidualEncoder,
    SphereHead,
)


def test_a_perceptron_with_a_skip_starts_linear(generator):
    encoder = MLP(5, 3, hidden=(16,))
    x = torch.randn(4, 5, generator=generator)
    torch.testing.assert_close(encoder(2 * x) - encoder(x), encoder(x) - encoder(0 * x))
    bent = MLP(5, 3, hidden=(16,), skip=False)
    assert not torch.allclose(bent(2 * x) - bent(x), bent(x) - bent(0 * x))


def test_the_papers_perceptron_is_the_papers():
    layers = list(PaperMLP(10, 10).network)
    widths = [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]
    assert widths == [100, 500, 500, 500, 500, 100, 10]
    slopes = {layer.negative_slope for layer in layers if isinstance(layer, nn.LeakyReLU)}
    assert slopes == {0.01}


def test_the_papers_convolutions_are_the_papers(generator):
    encoder = ConvEncoder(10)
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [32, 32, 64, 64, 256]
    assert all(c.kernel_size == (4, 4) for c in convolutions)
    assert encoder(torch.rand(3, 1, 64, 64, generator=generator)).shape == (3, 10)
    with pytest.raises(
        ValueError, match=r"x must have shape \(N, 1, 64, 64\), got \(3, 1, 32, 32\)"
    ):
        encoder(torch.rand(3, 1, 32, 32))


def test_a_pooled_code_depends_on_averages_alone(generator):
    encoder = PooledEncoder(5, channels=2)
    x = torch.rand(3, 2, 64, 64, generator=generator)
    blocks = x.unfold(2, 4, 4).unfold(3, 4, 4).mean((-2, -1))
    assert encoder(x).shape == (3, 5)
    torch.testing.assert_close(encoder(x), encoder(blocks))
    with pytest.raises(ValueError, match=r"at least 16 × 16, got \(3, 2, 15, 20\)"):
        encoder(torch.rand(3, 2, 15, 20))


@pytest.mark.parametrize("size", [16, 64, 75])
def test_a_residual_code_does_not_depend_on_its_company(size, generator):
    encoder = ResidualEncoder(5)
    x = torch.rand(4, 3, size, size, generator=generator)
    h = encoder(x)
    assert h.shape == (4, 5)
    torch.testing.assert_close(encoder(x[:1]), h[:1], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="widths must be multiples of 8"):
        ResidualEncoder(5, widths=(30, 60))


def test_heads_land_where_they_say(generator):
    h = 5 * torch.randn(200, 4, generator=generator)
    torch.testing.assert_close(SphereHead(2.0)(h).norm(dim=-1), torch.full((200,), 2.0))
    boxed = BoxHead(bound=3.0)(h)
    assert (boxed >= 0).all()
    assert (boxed <= 3).all()
    each = BoxHead(bound=[3.0, 1.0, 0.5, 2.0])(h)
    torch.testing.assert_close(each, boxed * torch.tensor([1, 1 / 3, 1 / 6, 2 / 3]))
    with pytest.raises(ValueError, match=r"bound\[1\] must be a finite number > 0, got 0"):
        BoxHead(bound=[1.0, 0.0])


@pytest.mark.parametrize(
    ("head", "learned"),
    [
        (SphereHead(), 0),
        (SphereHead(learn_radius=True), 1),
        (BoxHead(), 1),
        (BoxHead(bound=[1.0, 2.0]), 1),
        (BoxHead(learn_bound=False), 0),
    ],
)
def test_sizes_are_learned_or_not(head, learned):
    assert len(list(head.parameters())) == learned
    assert len(head.state_dict()) == 1
