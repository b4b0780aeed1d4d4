r"""Potentials α and α̃: the terms of :math:`δ(u, v) = d(u, v) + α(u) + α̃(v)` with one argument.

They model the contribution of the marginal and of the conditional's normaliser to the density ratio
(`matthes2023`). Any module that maps codes (B, n) to numbers (B,) is a potential.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = ["ConstantPotential", "NetworkPotential"]


class ConstantPotential(nn.Module):
    """A learned constant, the same for every code.

    Args:
        init: The initial value.
    """

    def __init__(self, init: float = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(check_real("init", init)))

    def forward(self, h: Tensor) -> Tensor:
        """Return the constant for each row of h (B, n)."""
        return self.value.to(h.dtype).expand(len(h))


class NetworkPotential(nn.Module):
    """A perceptron with one smooth hidden layer, initialised to the constant zero.

    Args:
        n: Number of codes.
        hidden: Width of the hidden layer.
    """

    def __init__(self, n: int, hidden: int = 64) -> None:
        super().__init__()
        self.hidden = nn.Linear(
            check_integer("n", n, at_least=1), check_integer("hidden", hidden, at_least=1)
        )
        self.out = nn.Linear(hidden, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, h: Tensor) -> Tensor:
        """Return the potential of each row of h (B, n)."""
        out: Tensor = self.out(nn.functional.silu(self.hidden(h)))
        return out.squeeze(-1)
