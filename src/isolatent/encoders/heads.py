"""Output heads: where codes are allowed to live."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isolatent.checks import check_real

__all__ = ["BoxHead", "SphereHead"]


class SphereHead(nn.Module):
    r"""Codes on a sphere: :math:`r\, h / \|h\|_2`.

    Args:
        radius: r, or its start.
        learn_radius: Whether r is a parameter, kept positive as :math:`e^{\log r}`.
    """

    log_radius: Tensor

    def __init__(self, radius: float = 1.0, learn_radius: bool = False) -> None:
        super().__init__()
        _register(self, "log_radius", check_real("radius", radius, above=0), learn_radius)

    @property
    def radius(self) -> Tensor:
        """The current r."""
        return self.log_radius.exp()

    def forward(self, h: Tensor) -> Tensor:
        """Project codes (N, n)."""
        return self.radius * nn.functional.normalize(h, dim=-1)


class BoxHead(nn.Module):
    r"""Codes in a box :math:`[0, b]^n`: :math:`b \,\mathrm{sigmoid}(h)`.

    Args:
        bound: The side b, one for all dimensions, or its start.
        learn_bound: Whether b is a parameter, kept positive as :math:`e^{\log b}`.
    """

    log_bound: Tensor

    def __init__(self, bound: float = 1.0, learn_bound: bool = True) -> None:
        super().__init__()
        _register(self, "log_bound", check_real("bound", bound, above=0), learn_bound)

    @property
    def bound(self) -> Tensor:
        """The current b."""
        return self.log_bound.exp()

    def forward(self, h: Tensor) -> Tensor:
        """Squash codes (N, n)."""
        return self.bound * torch.sigmoid(h)


def _register(module: nn.Module, name: str, value: float, learn: bool) -> None:
    logarithm = torch.tensor(value).log()
    if learn:
        module.register_parameter(name, nn.Parameter(logarithm))
    else:
        module.register_buffer(name, logarithm)
