"""Encoders and decoders of the VAE family, for images and for vectors."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from isolatent.baselines.elbo import Posterior, bernoulli_error, gaussian_error
from isolatent.encoders import MLP, ConvEncoder

__all__ = ["Autoencoder", "ConvDecoder", "ImageAutoencoder", "VectorAutoencoder"]

HIDDEN = (128, 128)  # widths of the hidden layers for vectors


class ConvDecoder(nn.Module):
    """Convolutional decoder from codes to 64 × 64 images.

    It mirrors :class:`isolatent.encoders.ConvEncoder`: linear layers of 256 and 64 · 4 · 4 units,
    then four transposed convolutions of stride 2 (64, 32, 32 channels and those of the image), with
    ReLUs in between.

    Args:
        n_inputs: Number of codes n.
        channels: Number of channels of the images.

    Example:
        >>> ConvDecoder(10)(torch.randn(2, 10)).shape
        torch.Size([2, 1, 64, 64])
    """

    def __init__(self, n_inputs: int, channels: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(n_inputs, 256), nn.ReLU()]
        layers += [nn.Linear(256, 64 * 4 * 4), nn.ReLU(), nn.Unflatten(1, (64, 4, 4))]
        for before, after in pairwise([64, 64, 32, 32, channels]):
            layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
        # Convolutions train faster on a CPU with the channels last.
        self.network = nn.Sequential(*layers[:-1])
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits of the pixels (N, channels, 64, 64) for codes (N, n)."""
        logits: Tensor = self.network(z)
        return logits


class Autoencoder(nn.Module):
    """Base class: an encoder with 2n outputs (means and log-variances), and a decoder.

    Args:
        encoder: Maps observations to (N, 2n).
        decoder: Maps codes (N, n) to the parameters of the distribution of observations.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def posterior(self, x: Tensor) -> Posterior:
        """Return the posteriors of observations."""
        return Posterior(*self.encoder(x).chunk(2, dim=1))

    def means(self) -> nn.Sequential:
        """Return the module that maps observations to the means of their posteriors."""
        return nn.Sequential(self.encoder, _FirstHalf())

    def error(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the reconstruction error of observations given codes, in nats: (N,)."""
        raise NotImplementedError

    def observe(self, z: Tensor) -> Tensor:
        """Return the mean observation of each code."""
        raise NotImplementedError


class ImageAutoencoder(Autoencoder):
    """Convolutional VAE networks of the papers for 64 × 64 images, with Bernoulli pixels.

    Args:
        n: Number of codes.
        channels: Number of channels of the images.

    Example:
        >>> model = ImageAutoencoder(3)
        >>> model.observe(model.posterior(torch.rand(2, 1, 64, 64)).mean).shape
        torch.Size([2, 1, 64, 64])
    """

    def __init__(self, n: int, channels: int = 1) -> None:
        super().__init__(ConvEncoder(2 * n, channels), ConvDecoder(n, channels))

    def error(self, z: Tensor, x: Tensor) -> Tensor:
        return bernoulli_error(self.decoder(z), x)

    def observe(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.decoder(z))


class VectorAutoencoder(Autoencoder):
    r"""Multilayer perceptrons for vectors, with a normal distribution of the standardised columns.

    Args:
        n: Number of codes.
        n_features: Number of columns m.
        noise: Standard deviation of a decoded column, relative to that of the column itself.

    Example:
        >>> model = VectorAutoencoder(2, n_features=5)
        >>> model.observe(model.posterior(torch.randn(3, 5)).mean).shape
        torch.Size([3, 5])
    """

    center: Tensor
    scale: Tensor

    def __init__(self, n: int, n_features: int, noise: float = 0.1) -> None:
        super().__init__(
            MLP(n_features, 2 * n, HIDDEN, skip=False), MLP(n, n_features, HIDDEN, skip=False)
        )
        self.noise = noise
        self.register_buffer("center", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))

    def standardise(self, x: Tensor) -> None:
        """Set the means and standard deviations of the columns from observations (N, m)."""
        rows = x.double()
        deviation = rows.std(0)
        # A constant column is not scaled.
        self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))
        self.center.copy_(rows.mean(0))

    def posterior(self, x: Tensor) -> Posterior:
        return super().posterior((x - self.center) / self.scale)

    def means(self) -> nn.Sequential:
        return nn.Sequential(_Standardise(self.center, self.scale), *super().means())

    def error(self, z: Tensor, x: Tensor) -> Tensor:
        return gaussian_error(self.decoder(z), (x - self.center) / self.scale, self.noise)

    def observe(self, z: Tensor) -> Tensor:
        decoded: Tensor = self.decoder(z)
        return self.center + self.scale * decoded


class _FirstHalf(nn.Module):
    """Return the first n of 2n columns."""

    def forward(self, h: Tensor) -> Tensor:
        return h.chunk(2, dim=1)[0]


class _Standardise(nn.Module):
    """Subtract the means of the columns and divide by their standard deviations."""

    center: Tensor
    scale: Tensor

    def __init__(self, center: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.center) / self.scale
