"""Output heads: where codes are allowed to live."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = ["BoxHead", "SphereHead"]


class SphereHead(nn.Module):
    r"""Codes on the unit sphere: :math:`h / \|h\|_2`."""

    def forward(self, h: Tensor) -> Tensor:
        """Project codes (N, n)."""
        return nn.functional.normalize(h, dim=-1)


class BoxHead(nn.Module):
    r"""Codes in a box :math:`[0, b]^n`: :math:`b \,\mathrm{sigmoid}(h)`.

    Args:
        n: Number of codes.
        bound: The side b, one for all dimensions; learned in log space unless fixed.
        learn_bound: Whether b is a parameter.
    """

    log_bound: Tensor

    def __init__(self, n: int, bound: float = 1.0, learn_bound: bool = True) -> None:
        super().__init__()
        self.n = check_integer("n", n, at_least=1)
        log_bound = torch.tensor(check_real("bound", bound, above=0)).log()
        if learn_bound:
            self.log_bound = nn.Parameter(log_bound)
        else:
            self.register_buffer("log_bound", log_bound)

    def forward(self, h: Tensor) -> Tensor:
        """Squash codes (N, n)."""
        return self.log_bound.exp() * torch.sigmoid(h)
