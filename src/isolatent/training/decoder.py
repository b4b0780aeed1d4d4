"""A decoder of the codes of a fitted encoder, fitted on request, for ``inverse_transform``."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from isolatent.encoders import MLP
from isolatent.inference import encode_chunks
from isolatent.streams import layers_from_stream, random_stream

__all__ = ["DECODER_WIDTH", "CodeDecoder", "minimise_error"]

DECODER_WIDTH, DECODER_STEPS, DECODER_BATCH = 128, 400, 256
DECODER_RATE = 5e-3
UNSEEN_SHARE = 0.1


class CodeDecoder(nn.Module):
    r"""The mean of observations given their codes, :math:`x \approx \mu + \sigma D((h - m) / s)`.

    D is a perceptron beside a linear path; codes and observations are standardised. Where codes
    determine observations, it is the inverse of the encoder; else it is a mean over what codes do
    not determine.

    Args:
        n_codes: Number of codes.
        n_columns: Number of observed dimensions.

    Example:
        >>> h = torch.rand(500, 2)
        >>> decoder, explained = CodeDecoder(2, 3).fit(h, h @ torch.rand(2, 3), seed=0)
        >>> decoder(h).shape, explained > 0.9
        (torch.Size([500, 3]), True)
    """

    center: Tensor
    spread: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, n_codes: int, n_columns: int) -> None:
        super().__init__()
        self.network = MLP(n_codes, n_columns, (DECODER_WIDTH, DECODER_WIDTH))
        self.register_buffer("center", torch.zeros(n_codes))
        self.register_buffer("spread", torch.ones(n_codes))
        self.register_buffer("mean", torch.zeros(n_columns))
        self.register_buffer("scale", torch.ones(n_columns))

    def forward(self, h: Tensor) -> Tensor:
        """Map codes (N, n) to observations (N, m)."""
        x: Tensor = self.network((h - self.center) / self.spread)
        return self.mean + self.scale * x

    def fit(self, h: Tensor, x: Tensor, seed: int) -> Fitted:
        """Fit to codes (N, n) and observations (N, m); a tenth of them is held out.

        Returns:
            The decoder, and the share of the variance of held-out observations that it explains.
        """
        order = torch.randperm(len(h), generator=Generator().manual_seed(seed))
        count = max(1, round(UNSEEN_SHARE * len(h)))
        held_out, kept = order[:count], order[count:]
        h, x = h.float(), x.float()
        with torch.no_grad():
            for moments, values in (
                ((self.center, self.spread), h[kept]),
                ((self.mean, self.scale), x[kept]),
            ):
                moments[0].copy_(values.mean(0))
                moments[1].copy_(values.std(0).clamp(min=1e-9))
        with random_stream(Generator().manual_seed(seed)), layers_from_stream():
            n_codes, n_columns = h.shape[1], x.shape[1]
            self.network = MLP(n_codes, n_columns, (DECODER_WIDTH, DECODER_WIDTH))
        standard = (h[kept] - self.center) / self.spread, (x[kept] - self.mean) / self.scale
        minimise_error(self.network, *standard, seed)
        missed = (encode_chunks(self, h[held_out]) - x[held_out]) / self.scale
        total = ((x[held_out] - self.mean) / self.scale).square().mean()
        return Fitted(self.eval(), float(1 - missed.square().mean() / total))


class Fitted(NamedTuple):
    """A fitted decoder, and the share of the variance of observations that it explains."""

    decoder: CodeDecoder
    explained: float


def minimise_error(network: nn.Module, h: Tensor, x: Tensor, seed: int) -> None:
    """Regress standardised observations (N, m) on standardised codes (N, n)."""
    generator = Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=DECODER_RATE, fused=True)
    for step in range(DECODER_STEPS):
        for group in optimiser.param_groups:
            group["lr"] = DECODER_RATE * 0.5 * (1 + math.cos(math.pi * step / DECODER_STEPS))
        rows = torch.randint(len(h), (DECODER_BATCH,), generator=generator)
        optimiser.zero_grad()
        (network(h[rows]) - x[rows]).square().mean().backward()
        optimiser.step()
    network.eval()
