"""Reconstruct observations from codes, to keep an encoder of few pairs from overfitting."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isolatent.encoders import MLP

__all__ = ["Reconstruction", "inputs_of"]


class Reconstruction(nn.Module):
    r"""Weighted error of a decoder that is trained with the encoder.

    .. math:: w \, \mathbb{E} \, \lVert x - D(\bar h(x)) \rVert^2 / m

    with codes :math:`\bar h` that are standardised within the batch. An overfitted encoder maps
    the two observations of a training pair nearer to each other than they are, and a decoder could
    not tell them apart. Where observations are functions of the factors alone, the true encoder
    minimises this error as well as InfoNCE; where they are noisy, it is a compromise.

    Args:
        n_codes: Codes n.
        n_inputs: Inputs m of the encoder's perceptron.
        width: Width of the decoder's two hidden layers.
        weight: The weight w.

    Example:
        >>> x, h = torch.randn(8, 3), torch.randn(8, 2)
        >>> reconstruction = Reconstruction(2, 3, width=16, weight=6.0)
        >>> torch.allclose(reconstruction(x, h), reconstruction(x, 2 * h + 1), atol=1e-4)
        True
    """

    def __init__(self, n_codes: int, n_inputs: int, width: int, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.decoder = MLP(n_codes, n_inputs, (width, width), skip=False)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Return the weighted error of codes h (N, n) of inputs x (N, m)."""
        spread = h.std(0, correction=0)
        standardised = (h - h.mean(0)) / (spread + torch.finfo(h.dtype).eps)
        error: Tensor = (self.decoder(standardised) - x).square().mean()
        return self.weight * error


def inputs_of(network: nn.Module, x: Tensor) -> Tensor:
    """Return the inputs of the perceptron of an encoder that :func:`build_encoder` built."""
    assert isinstance(network, nn.Sequential)
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, MLP):
                break
            x = layer(x)
    return x
