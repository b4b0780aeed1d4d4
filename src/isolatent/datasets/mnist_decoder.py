"""The decoder of a VAE of handwritten digits as a mixing."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Generator, Tensor
from torch.nn.functional import leaky_relu

from isolatent.checks import check_real
from isolatent.files import digest_file
from isolatent.worlds import Mixing

__all__ = ["DECODER_FILE", "DECODER_SHA256", "DECODER_SLOPE", "WIDTHS", "MNISTDecoder"]

DECODER_FILE = Path(__file__).with_name("mnist_decoder.safetensors")
DECODER_SHA256 = "88f5d15bf3c600093057e36e40bf5efc75d0ce81aee21d6c48d9f1be1020d9c1"
WIDTHS = (10, 128, 256, 784)  # latents, hidden layers, pixels
DECODER_SLOPE = 0.2  # of the leaky ReLUs below zero
TENSORS = {
    name: shape
    for layer, (before, after) in enumerate(pairwise(WIDTHS))
    for name, shape in ((f"weight_{layer}", (after, before)), (f"bias_{layer}", (after,)))
}


class MNISTDecoder(Mixing):
    r"""A mixing that decodes 10 latents as 28 × 28 pixels of a handwritten digit.

    .. math:: g(z) = \operatorname{sigmoid}(W_3 \sigma(W_2 \sigma(W_1 r z + b_1) + b_2) + b_3)

    with leaky ReLUs :math:`\sigma` and the weights of a VAE that was trained on MNIST
    (:mod:`isolatent.baselines.mnist_vae`). Layers widen, and their weights have full column rank,
    so that g is injective, with the inverse of each layer as its inverse. At
    :math:`r = \sqrt{10}`, the typical norm under the prior of the VAE, latents of a unit sphere
    are decoded as digits; at r = 1 as blends of them, which are closer to linear in the latents.

    Args:
        radius: The factor r of the latents.
        path: A file that ``python -m isolatent.baselines.mnist_vae`` wrote, instead of the one that
            is part of this package, whose SHA-256 is checked.

    References:
        Rusak et al.: InfoNCE: Identifying the Gap Between Theory and Practice. AISTATS 2025.

    Example:
        >>> import isolatent as iso
        >>> conditional = iso.AnisotropicNormal([5.0] * 5 + [50.0] * 5)
        >>> world = iso.World(iso.Sphere(10), iso.Uniform(), conditional, MNISTDecoder(), seed=0)
        >>> world.sample_pairs(3)[0].view(3, 28, 28).shape
        torch.Size([3, 28, 28])
    """

    image_shape = (1, 28, 28)

    def __init__(
        self, radius: float = math.sqrt(WIDTHS[0]), path: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__()
        self.radius = check_real("radius", radius, above=0)
        self.path = None if path is None else os.fspath(path)

    def _observed(self, n: int) -> int:
        if n != WIDTHS[0]:
            raise ValueError(f"n must be {WIDTHS[0]} for {self!r}, got {n}")
        return WIDTHS[-1]

    def _draw(self, n: int, n_observed: int, generator: Generator) -> None:
        for name, tensor in _read(self.path).items():
            self.register_buffer(name, tensor)
        for layer in range(len(WIDTHS) - 1):
            weight = self.get_buffer(f"weight_{layer}")
            self.register_buffer(f"inverse_{layer}", torch.linalg.pinv(weight))

    def forward(self, z: Tensor) -> Tensor:
        """Map latents (N, 10) to pixels (N, 784), in the precision of the latents.

        Other mixings compute in float64, which takes more than twice as long here, for digits that
        no pixel has.
        """
        self._check_input("z", z, self.n)
        return self._mix(z)

    def _mix(self, z: Tensor) -> Tensor:
        h = self.radius * z
        for layer in range(len(WIDTHS) - 1):
            if layer:
                h = leaky_relu(h, DECODER_SLOPE)
            weight, bias = (self.get_buffer(f"{name}_{layer}") for name in ("weight", "bias"))
            h = torch.addmm(bias.to(h.dtype), h, weight.to(h.dtype).mT)
        return torch.sigmoid(h)

    def _unmix(self, x: Tensor) -> Tensor:
        h = torch.logit(x)
        for layer in reversed(range(len(WIDTHS) - 1)):
            h = (h - self.get_buffer(f"bias_{layer}")) @ self.get_buffer(f"inverse_{layer}").mT
            if layer:
                h = leaky_relu(h, 1 / DECODER_SLOPE)
        return h / self.radius


def _read(path: str | None) -> dict[str, Tensor]:
    """Return the weights in float64, after checking their file."""
    file = DECODER_FILE if path is None else Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"{file}: does not exist; `python -m isolatent.baselines.mnist_vae` writes it"
        )
    if path is None and digest_file(file) != DECODER_SHA256:
        raise ValueError(f"{file.name}: must have the SHA-256 {DECODER_SHA256}: it was changed")
    tensors = load_file(file)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != TENSORS:
        raise ValueError(f"{file.name}: must hold the tensors {TENSORS}, got {found}")
    return {name: tensor.double() for name, tensor in tensors.items()}
