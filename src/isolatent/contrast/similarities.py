r"""The terms of a score :math:`s(u, v) = -d(u, v) - α(u) - α̃(v)`: similarities and potentials.

Potentials model the contribution of the marginal and of the conditional's normaliser to the density
ratio (`matthes2023`). Any module that maps codes (B, n) to numbers (B,) is a potential.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real, check_scale

__all__ = [
    "ConstantPotential",
    "Dot",
    "Lp",
    "NetworkPotential",
    "Similarity",
    "constant_like",
    "register_constant",
]

SMALLEST, LARGEST = 1e-37, 1e38  # positive numbers that float32 can hold


def register_constant(module: nn.Module, name: str, value: float | Sequence[float]) -> None:
    """Store fixed numbers exactly, and as a float32 buffer that follows the module's device.

    Some devices have no float64, so the module holds no float64 tensor. Codes in float64 still get
    the exact numbers, from :func:`constant_like`.
    """
    setattr(module, f"exact_{name}", value)
    constant = torch.tensor(value, dtype=torch.float32)
    module.register_buffer(f"fixed_{name}", constant, persistent=False)


def constant_like(module: nn.Module, name: str, like: Tensor) -> Tensor:
    """Return numbers from :func:`register_constant` in the dtype and on the device of a tensor."""
    if like.dtype == torch.float32:
        constant: Tensor = getattr(module, f"fixed_{name}")
        return constant.to(like)
    return torch.tensor(getattr(module, f"exact_{name}"), dtype=like.dtype, device=like.device)


class Similarity(nn.Module, ABC):
    """A similarity of two codes. The kernels evaluate it for all pairs of a batch.

    Attributes:
        p: The power of the distance, or None for an inner product.
    """

    p: float | None

    @abstractmethod
    def coordinate_weights(self, n: int, like: Tensor | None = None) -> Tensor:
        """Return the weights (n,) of the coordinates, differentiable where they are learned.

        Args:
            n: Number of codes.
            like: A tensor whose dtype and device the weights shall have. By default learned
                weights are as their parameter and fixed weights in float64 on the CPU.
        """

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the similarities (...) of codes u and v (..., n), which broadcast."""
        weights = self.coordinate_weights(u.shape[-1], like=u)
        if self.p is None:
            return (weights * u * v).sum(-1)
        return -(weights * (u - v).abs() ** self.p).sum(-1)

    def _register(self, name: str, value: float | tuple[float, ...], learn: bool) -> None:
        """Store positive numbers: the logarithms as a parameter if learned, else as constants."""
        if learn:
            log = [math.log(v) for v in value] if isinstance(value, tuple) else math.log(value)
            self.register_parameter(f"log_{name}", nn.Parameter(torch.tensor(log)))
        else:
            register_constant(self, name, value)

    def _current(self, name: str, like: Tensor | None = None) -> Tensor:
        learned = self._parameters.get(f"log_{name}")  # a missing attribute would take longer
        if learned is not None:
            return learned.exp() if like is None else learned.exp().to(like)
        if like is not None:
            return constant_like(self, name, like)
        return torch.tensor(getattr(self, f"exact_{name}"), dtype=torch.float64, device="cpu")


class Dot(Similarity):
    r"""The scaled inner product :math:`s(u, v) = \kappa\, u^\top v`, as in the vMF density.

    Args:
        scale: κ > 0, the initial value if it is learned. 1 by default.
        learn_scale: Whether κ is a parameter, kept positive as :math:`e^{\log\kappa}`.
        temperature: 1/κ, instead of the scale.

    Example:
        >>> Dot(scale=2.0)(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0]))
        tensor(6.)
        >>> Dot(temperature=0.5)
        Dot(scale=2)
    """

    p = None

    def __init__(
        self,
        scale: float | None = None,
        learn_scale: bool = False,
        *,
        temperature: float | None = None,
    ) -> None:
        super().__init__()
        if scale is not None and temperature is not None:
            raise ValueError(
                f"scale and temperature must not both be given, got {scale!r} and {temperature!r}"
            )
        if temperature is not None:
            scale = 1 / check_real("temperature", temperature, above=1 / LARGEST, below=1e37)
        value = check_real("scale", 1.0 if scale is None else scale, above=SMALLEST, below=LARGEST)
        self._register("scale", value, learn_scale)

    @property
    def scale(self) -> Tensor:
        """The current κ."""
        return self._current("scale")

    @property
    def temperature(self) -> Tensor:
        """The current 1/κ."""
        return 1 / self.scale

    def coordinate_weights(self, n: int, like: Tensor | None = None) -> Tensor:
        return self._current("scale", like).expand(n)

    def extra_repr(self) -> str:
        return f"scale={self.scale.item():g}"


class Lp(Similarity):
    r"""The negative p-th power of an Lp norm: :math:`s(u, v) = -\sum_k \lambda_k |u_k - v_k|^p`.

    There is no factor ½: for p = 2 the matching density is a normal with
    :math:`\sigma_k^2 = 1 / (2\lambda_k)`.

    Args:
        p: The exponent, any real number of at least 1. 1, 1.5, 2, 2.5, 3 and 4 are fastest.
        weights: λ > 0, one number or one per dimension; the initial values if they are learned.
        learn_weights: Whether λ is a parameter, kept positive as :math:`e^{\log\lambda}`.

    Example:
        >>> Lp(p=1, weights=[1.0, 10.0])(torch.zeros(2), torch.tensor([0.5, 0.1]))
        tensor(-1.5000)
    """

    p: float

    def __init__(
        self,
        p: float = 2.0,
        weights: float | Sequence[float] | Tensor = 1.0,
        learn_weights: bool = False,
    ) -> None:
        super().__init__()
        self.p = check_real("p", p, at_least=1)
        values = check_scale("weights", weights)
        for value in values if isinstance(values, tuple) else (values,):
            check_real("weights", value, above=SMALLEST, below=LARGEST)
        self._register("weights", values, learn_weights)

    @property
    def weights(self) -> Tensor:
        """The current λ."""
        return self._current("weights")

    def coordinate_weights(self, n: int, like: Tensor | None = None) -> Tensor:
        weights = self._current("weights", like)
        if weights.ndim == 1 and len(weights) != n:
            raise ValueError(
                f"weights must be one number or one per dimension of the codes ({n}), "
                f"got {len(weights)}"
            )
        return weights.expand(n)

    def extra_repr(self) -> str:
        return f"p={self.p:g}, weights={self.weights.tolist()}"


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
