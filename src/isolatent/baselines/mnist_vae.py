"""Train the VAE of handwritten digits whose decoder is :class:`isolatent.datasets.MNISTDecoder`.

``python -m isolatent.baselines.mnist_vae DATA OUT`` trains it on the MNIST files in DATA, a few
minutes on one core, writes OUT, a safetensors file of the decoder's weights in half precision, and
prints its SHA-256 and what it was trained to. On another processor or version of PyTorch the
weights, and so the SHA-256, differ in their last digits.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from isolatent.baselines.elbo import bernoulli_error, kl_to_standard_normal
from isolatent.baselines.vae_networks import Autoencoder
from isolatent.baselines.vaes import BetaVAE
from isolatent.datasets import load_mnist
from isolatent.datasets.mnist_decoder import DECODER_SLOPE, WIDTHS
from isolatent.encoders import MLP
from isolatent.files import atomic_write, digest_file

__all__ = ["DigitVAE", "decoder_weights", "negative_elbo", "train_decoder"]

ENCODER_WIDTHS = (512, 256)
STEPS, PAIRS, RATE = 20_000, 64, 1e-3  # twice as many images a step as pairs


class _DigitAutoencoder(Autoencoder):
    """Perceptrons with Bernoulli pixels; the decoder has the layers of ``MNISTDecoder``."""

    def __init__(self, n: int) -> None:
        *hidden, pixels = WIDTHS[1:]
        super().__init__(
            MLP(pixels, 2 * n, ENCODER_WIDTHS, skip=False),
            MLP(n, pixels, hidden, skip=False, slope=DECODER_SLOPE),
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
    decoder = model.autoencoder_.decoder
    layers = [layer for layer in decoder.modules() if isinstance(layer, nn.Linear)]
    return {
        f"{name}_{k}": getattr(layer, name).detach().half().contiguous()
        for k, layer in enumerate(layers)
        for name in ("weight", "bias")
    }


def negative_elbo(model: DigitVAE, x: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the mean negative evidence lower bound of images, and its divergence term, in nats."""
    network, generator = model.autoencoder_, torch.Generator().manual_seed(0)
    with torch.no_grad():
        images = torch.from_numpy(x)
        posterior = network.posterior(images)
        noise = torch.randn(posterior.mean.shape, generator=generator)
        error = network.error(posterior.sample(noise), images).mean()
        divergence = kl_to_standard_normal(posterior).mean()
    return float(error + divergence), float(divergence)


def train_decoder(arguments: Sequence[str] | None = None) -> None:
    """Train the VAE and write its decoder."""
    parser = argparse.ArgumentParser(description="Train the decoder of MNISTDecoder.")
    parser.add_argument("data", help="directory of the MNIST files, or one above its folder mnist")
    parser.add_argument("out", type=Path, help="safetensors file for the decoder")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--random-state", type=int, default=0)
    given = parser.parse_args(arguments)
    train, test = (_flat_images(given.data, part) for part in ("train", "test"))
    torch.set_num_threads(1)  # so that a seed gives the same weights on every number of cores
    model = DigitVAE(
        WIDTHS[0],
        max_steps=given.steps,
        batch_size=PAIRS,
        learning_rate=RATE,
        random_state=given.random_state,
        accelerator="cpu",
    ).fit(train)
    with atomic_write(given.out) as partial:
        save_file(decoder_weights(model), partial)
    loss, divergence = negative_elbo(model, test)
    print(
        f"wrote {given.out}: SHA-256 {digest_file(given.out)}\n"
        f"{given.steps} steps; on the test images the negative evidence lower bound is "
        f"{loss:.1f} nats, {divergence:.1f} of it divergence from the prior"
    )


def _flat_images(path: str, part: str) -> np.ndarray[Any, Any]:
    images = load_mnist(path, part).images
    return images.reshape(len(images), -1).astype(np.float32) / 255


if __name__ == "__main__":
    train_decoder()
