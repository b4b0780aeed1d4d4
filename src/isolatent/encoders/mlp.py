"""Perceptrons that invert mixings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from isolatent.checks import check_integer

__all__ = ["MLP", "PaperMLP"]


class MLP(nn.Module):
    r"""A perceptron beside a linear path: :math:`h = A x + \mathrm{MLP}(x)`.

    The last layer of the perceptron starts at zero, so training starts from a linear encoder: the
    mixing's linear part is undone at once, and the network has only the rest to learn.

    Args:
        n_inputs: Observed dimensions m.
        n_outputs: Codes n.
        hidden: Widths of the hidden layers.
        skip: Whether to have the linear path; without it the last layer starts as usual.
        slope: Slope of the leaky ReLU below zero.
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        hidden: Sequence[int] = (128, 128),
        skip: bool = True,
        slope: float = 0.1,
    ) -> None:
        super().__init__()
        sizes = [check_integer("n_inputs", n_inputs, at_least=1)]
        sizes += [check_integer("hidden", width, at_least=1) for width in hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.LeakyReLU(slope)]
        last = nn.Linear(sizes[-1], check_integer("n_outputs", n_outputs, at_least=1))
        self.network = nn.Sequential(*layers, last)
        self.skip = nn.Linear(n_inputs, n_outputs) if skip else None
        if skip:
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map observations (N, m) to codes (N, n)."""
        h: Tensor = self.network(x)
        return h if self.skip is None else h + self.skip(x)


class PaperMLP(MLP):
    """The encoder of `zimmermann2021`: six hidden layers of 10n, 50n four times, and 10n units.

    It has far more weights than :class:`MLP` with its defaults, and its steps cost accordingly.

    Args:
        n_inputs: Observed dimensions m.
        n_outputs: Codes n.
    """

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        narrow, wide = 10 * n_outputs, 50 * n_outputs
        widths = (narrow, wide, wide, wide, wide, narrow)
        super().__init__(n_inputs, n_outputs, widths, skip=False, slope=0.01)
