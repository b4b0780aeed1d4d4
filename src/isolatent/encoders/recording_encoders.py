"""One encoder for each of several recordings, into one space of codes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["RecordingEncoders"]


class RecordingEncoders(nn.Module):
    """Encode each row by the encoder of its recording.

    Args:
        encoders: The encoder of each recording, from its columns to codes.
        widths: Number of columns of each recording.

    Example:
        >>> from isolatent.pairs import lay_out
        >>> encoders = RecordingEncoders([nn.Linear(3, 2), nn.Linear(1, 2)], (3, 1))
        >>> a, b = torch.rand(4, 3), torch.rand(5, 1)
        >>> encoders(torch.cat([lay_out(a, 0, width=3), lay_out(b, 1, width=3)])).shape
        torch.Size([9, 2])
    """

    def __init__(self, encoders: Sequence[nn.Module], widths: Sequence[int]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.widths = tuple(widths)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (N, 1 + width), the first column being the recording, to codes (N, n)."""
        numbers = x[:, 0].long()
        parts, places = [], []
        for k, (encoder, width) in enumerate(zip(self.encoders, self.widths, strict=True)):
            rows = (numbers == k).nonzero()[:, 0]
            if len(rows):
                parts.append(encoder(x[rows, 1 : 1 + width]))
                places.append(rows)
        place = torch.cat(places)
        # Gathering by the inverse permutation is differentiable, and in the order of the rows.
        codes: Tensor = torch.cat(parts)[place.argsort()]
        return codes
