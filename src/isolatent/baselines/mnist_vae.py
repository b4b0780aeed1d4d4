"""Train the VAE of handwritten digits whose decoder is :class:`isolatent.datasets.MNISTDecoder`.

``python -m isolatent.baselines.mnist_vae DATA OUT`` trains it on the MNIST files in DATA and writes
OUT, a safetensors file of the decoder's weights in half precision, and prints its SHA-256.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from isolatent.baselines.elbo import bernoulli_error, kl_to_standard_normal
from isolatent.baselines.vae_networks import Autoencoder
from isolatent.baselines.vaes import BetaVAE
from isolatent.datasets.mnist_decoder import SLOPE, WIDTHS
from isolatent.encoders import MLP
from isolatent.files import atomic_write, digest_file

__all__ = ["DigitVAE", "decoder_weights"]

ENCODER_WIDTHS = (512, 256)


class _DigitAutoencoder(Autoencoder):
    """Perceptrons with Bernoulli pixels; the decoder has the layers of ``MNISTDecoder``."""

    def __init__(self, n: int) -> None:
        *hidden, pixels = WIDTHS[1:]
        super().__init__(
            MLP(pixels, 2 * n, ENCODER_WIDTHS, skip=False),
            MLP(n, pixels, hidden, skip=False, slope=SLOPE),
        )

    def error(self, z: Tensor, x: Tensor) -> Tensor:
        return bernoulli_error(self.decoder(z), x)

    def observe(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.decoder(z))


class DigitVAE(BetaVAE):
    """A VAE of flat images of 28 × 28 pixels in [0, 1], with Bernoulli pixels.

    The arguments are those of :class:`isolatent.baselines.BetaVAE`.

    Example:
        >>> x = np.random.default_rng(0).random((100, 784), np.float32)
        >>> DigitVAE(10, max_steps=2, random_state=0).fit(x).reconstruct(x).shape
        (100, 784)
    """

    def _build(self) -> Autoencoder:
        if self._shape != WIDTHS[-1:] or self.n_components != WIDTHS[0]:
            raise ValueError(
                f"X must have shape (N, {WIDTHS[-1]}) and n_components be {WIDTHS[0]}, got "
                f"{self._shape} and {self.n_components}"
            )
        return _DigitAutoencoder(self.n_components)


def decoder_weights(model: DigitVAE) -> dict[str, Tensor]:
    """Return the decoder's tensors in half precision, as ``MNISTDecoder`` reads them."""
    network = model.autoencoder_.decoder.network
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return {
        f"{name}_{k}": getattr(layer, name).detach().half().contiguous()
        for k, layer in enumerate(layers)
        for name in ("weight", "bias")
    }


def negative_elbo(model: DigitVAE, x: np.ndarray) -> tuple[float, float]:
    """Return the mean negative evidence lower bound of images, and its divergence term, in nats."""
    network, generator = model.autoencoder_, torch.Generator().manual_seed(0)
    with torch.no_grad():
        images = torch.from_numpy(x)
        posterior = network.posterior(images)
        noise = torch.randn(posterior.mean.shape, generator=generator)
        error = network.error(posterior.sample(noise), images).mean()
        divergence = kl_to_standard_normal(posterior).mean()
    return float(error + divergence), float(divergence)
