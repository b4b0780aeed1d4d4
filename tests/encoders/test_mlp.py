"""Perceptrons start linear with a skip connection, and the papers' has its layers."""

import torch
from torch import nn

from isolatent.encoders import MLP, PaperMLP


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
