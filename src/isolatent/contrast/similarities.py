"""Similarities s(u, v) = -δ(u, v) between codes."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from isolatent.checks import check_real, check_scale

__all__ = ["Dot", "Lp", "Similarity"]


class Similarity(nn.Module):
    """A function of two codes, evaluated for all pairs of rows at once."""

    @abstractmethod
    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Similarities (B, M) of the rows of u (B, n) with the rows of v (M, n)."""


class Dot(Similarity):
    r"""The scaled inner product :math:`s(u, v) = \kappa\, u^\top v`, as in the vMF density.

    Args:
        scale: κ > 0, or its start.
        learn_scale: Whether κ is a parameter, kept positive as :math:`e^{\log\kappa}`.
    """

    log_scale: Tensor

    def __init__(self, scale: float = 1.0, learn_scale: bool = False) -> None:
        super().__init__()
        log_scale = torch.tensor(check_real("scale", scale, above=0)).log()
        if learn_scale:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    @property
    def scale(self) -> Tensor:
        """The current κ."""
        return self.log_scale.exp()

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Similarities (B, M)."""
        return (self.scale.to(u) * u) @ v.mT


class Lp(Similarity):
    r"""The negative p-th power of an Lp norm: :math:`s(u, v) = -\sum_k \lambda_k |u_k - v_k|^p`.

    Args:
        p: The exponent, at least 1.
        weights: λ > 0, one number or one per dimension, or their start.
        learn_weights: Whether λ is a parameter, kept positive as :math:`e^{\log\lambda}`.
    """

    log_weights: Tensor

    def __init__(
        self,
        p: float = 2.0,
        weights: float | tuple[float, ...] = 1.0,
        learn_weights: bool = False,
    ) -> None:
        super().__init__()
        self.p = check_real("p", p, at_least=1)
        log_weights = torch.tensor(check_scale("weights", weights)).log()
        if learn_weights:
            self.log_weights = nn.Parameter(log_weights)
        else:
            self.register_buffer("log_weights", log_weights)

    @property
    def weights(self) -> Tensor:
        """The current λ."""
        return self.log_weights.exp()

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Similarities (B, M)."""
        root = self.weights.to(u) ** (1 / self.p)
        return -(torch.cdist(root * u, root * v, p=self.p) ** self.p)
