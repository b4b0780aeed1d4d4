"""Similarities s(u, v) = -d(u, v) between codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isolatent.checks import check_real, check_scale

__all__ = ["Dot", "Lp", "Similarity"]


SMALLEST, LARGEST = 1e-37, 1e38  # what float32 can hold


def _keep(module: nn.Module, name: str, value: float | tuple[float, ...], learn: bool) -> None:
    """Store a positive number: as given, or the logarithm of a learned one as a parameter."""
    exact = torch.tensor(value, dtype=torch.float64)
    if learn:
        module.register_parameter(f"log_{name}", nn.Parameter(exact.log().float()))
    else:
        module.register_buffer(f"fixed_{name}", exact)


def _kept(module: nn.Module, name: str) -> Tensor:
    learned = getattr(module, f"log_{name}", None)
    value: Tensor = getattr(module, f"fixed_{name}") if learned is None else learned.exp()
    return value


class Similarity(nn.Module, ABC):
    """A function of two codes; losses evaluate it for all pairs through the kernels.

    Attributes:
        p: The power of the distance, or None for an inner product.
    """

    p: float | None

    @abstractmethod
    def coordinate_weights(self, n: int) -> Tensor:
        """The weights (n,) of the coordinates, differentiable where they are learned."""

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Similarities (...) of codes u and v (..., n), broadcast against each other."""
        weights = self.coordinate_weights(u.shape[-1]).to(u.dtype)
        if self.p is None:
            return (weights * u * v).sum(-1)
        return -(weights * (u - v).abs() ** self.p).sum(-1)


class Dot(Similarity):
    r"""The scaled inner product :math:`s(u, v) = \kappa\, u^\top v`, as in the vMF density.

    Args:
        scale: κ > 0, or its start.
        learn_scale: Whether κ is a parameter, kept positive as :math:`e^{\log\kappa}`.

    Example:
        >>> Dot(scale=2.0)(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0]))
        tensor(6.)
    """

    p = None

    def __init__(self, scale: float = 1.0, learn_scale: bool = False) -> None:
        super().__init__()
        check_real("scale", scale, above=SMALLEST, below=LARGEST)
        _keep(self, "scale", scale, learn_scale)

    @property
    def scale(self) -> Tensor:
        """The current κ."""
        return _kept(self, "scale")

    def coordinate_weights(self, n: int) -> Tensor:
        return self.scale.expand(n)

    def extra_repr(self) -> str:
        return f"scale={self.scale.item():g}"


class Lp(Similarity):
    r"""The negative p-th power of an Lp norm: :math:`s(u, v) = -\sum_k \lambda_k |u_k - v_k|^p`.

    There is no ½ in it: for p = 2 the matching density is a normal with
    :math:`\sigma_k^2 = 1 / (2\lambda_k)`.

    Args:
        p: The exponent, any real number of at least 1. 1, 1.5, 2, 2.5, 3 and 4 are the fast ones.
        weights: λ > 0, one number or one per dimension, or their start.
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
        start = check_scale("weights", weights)
        for value in start if isinstance(start, tuple) else (start,):
            check_real("weights", value, above=SMALLEST, below=LARGEST)
        _keep(self, "weights", start, learn_weights)

    @property
    def weights(self) -> Tensor:
        """The current λ."""
        return _kept(self, "weights")

    def coordinate_weights(self, n: int) -> Tensor:
        weights = self.weights
        if weights.ndim == 1 and len(weights) != n:
            raise ValueError(
                f"weights must be one number or one per dimension of the codes ({n}), "
                f"got {len(weights)}"
            )
        return weights.expand(n)

    def extra_repr(self) -> str:
        return f"p={self.p:g}, weights={self.weights.tolist()}"
