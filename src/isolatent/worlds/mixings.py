"""Mixings: injective maps from latents to observations."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from isolatent.checks import check_integer, check_one_of, check_real, check_tensor
from isolatent.streams import layers_from_stream, random_stream
from isolatent.worlds.sampling import draw_normal, draw_uniform

__all__ = ["ACTIVATIONS", "FlowMixing", "Identity", "InvertibleMLP", "Linear", "Mixing"]

Activation = Callable[[Tensor, float], Tensor]  # of a value and the leak's slope


class Mixing(nn.Module, ABC):
    r"""An injective map :math:`g: \mathbb R^n \to \mathbb R^m` with its inverse.

    A mixing is declared without a size or weights; :meth:`build`, which ``World`` calls, draws them
    for n latents. Weights are drawn on the CPU, so a seed gives the same map on every device, and
    registered as buffers. They are applied in float64 for every input dtype, so that a float32
    result is rounded only once.

    Attributes:
        n: Number of latents, or None before :meth:`build`.
        n_observed: Number of observed dimensions m, or None before :meth:`build`.
        image_shape: Channels, height and width, if observations are images or rows of their pixels.
    """

    n: int | None = None
    n_observed: int | None = None
    image_shape: tuple[int, int, int] | None = None

    def __init__(self) -> None:
        super().__init__()

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, which are attributes of the same name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def build(self, n: int, generator: Generator) -> Self:
        """Return a copy of this mixing for n latents, with weights from ``generator``."""
        built = type(self)(**self.arguments)
        built.n = check_integer("n", n, at_least=1)
        built.n_observed = built._observed(built.n)
        built._draw(built.n, built.n_observed, generator)
        return built.requires_grad_(False)

    def forward(self, z: Tensor) -> Tensor:
        """Map latents (N, n) to observations (N, m)."""
        self._check_input("z", z, self.n)
        return self._mix(z.double()).to(z.dtype)

    def inverse(self, x: Tensor) -> Tensor:
        """Map observations (N, m) in the image of this mixing to their latents (N, n)."""
        self._check_input("x", x, self.n_observed)
        return self._unmix(x.double()).to(x.dtype)

    def extra_repr(self) -> str:
        given = {name: value for name, value in self.arguments.items() if value is not None}
        return ", ".join(f"{name}={value!r}" for name, value in given.items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def _check_input(self, name: str, value: Tensor, size: int | None) -> None:
        if size is None:
            raise RuntimeError(
                f"{self!r} has no weights: call build(n, generator), or pass it to a World"
            )
        if value.ndim != 2 or value.shape[-1] != size:
            raise ValueError(f"{name} must have shape (N, {size}), got {tuple(value.shape)}")

    def _observed(self, n: int) -> int:
        return n

    @abstractmethod
    def _draw(self, n: int, n_observed: int, generator: Generator) -> None: ...

    @abstractmethod
    def _mix(self, z: Tensor) -> Tensor: ...

    @abstractmethod
    def _unmix(self, x: Tensor) -> Tensor: ...


class Identity(Mixing):
    """The identity: observations equal latents.

    Example:
        >>> z = torch.rand(4, 2)
        >>> bool((Identity().build(2, torch.Generator())(z) == z).all())
        True
    """

    def _draw(self, n: int, n_observed: int, generator: Generator) -> None:
        pass

    def _mix(self, z: Tensor) -> Tensor:
        return z

    def _unmix(self, x: Tensor) -> Tensor:
        return x


class InvertibleMLP(Mixing):
    r"""The papers' mixing: :math:`g = W_L \circ \sigma \circ \dots \circ \sigma \circ W_1`.

    There are no biases; entries of each W are U(-1, 1) and its columns have unit norm. Each layer
    is redrawn until its condition number is at most the smallest of ``condition_draws`` such
    matrices; after ten times as many draws the best one is used. With more observed dimensions
    than latents the first layer expands, so that the data lie in no linear subspace.

    Args:
        layers: Number of linear layers.
        activation: ``"leaky_relu"``, ``"smooth_leaky_relu"``
            (:math:`s x + (1-s) \log(1+e^x)`), ``"elu"``, or ``"leaky_elu"``
            (:math:`s x + (1-s)(e^x - 1)` below 0).
            ``"elu"`` saturates below 0, where its inverse amplifies rounding errors: from float32
            observations latents are recovered to about 1e-4 if hidden values stay above -6, and an
            error is raised below about -12; float64 suffices down to -30. The other activations
            are inverted accurately at every magnitude.
        slope: The slope s of the leak; 0.2 in the papers. Not used by ``"elu"``.
        n_observed: Observed dimensions m >= n; by default m = n.
        condition_draws: Number of matrices that determine the threshold. By default 25 000, as in
            the papers, up to 16 dimensions, and 1000 above, where more take seconds for little.

    Example:
        >>> mixing = InvertibleMLP(layers=3).build(4, torch.Generator().manual_seed(0))
        >>> z = torch.randn(5, 4, dtype=torch.float64)
        >>> torch.allclose(mixing.inverse(mixing(z)), z)
        True
    """

    def __init__(
        self,
        layers: int = 3,
        activation: str = "leaky_relu",
        slope: float = 0.2,
        n_observed: int | None = None,
        condition_draws: int | None = None,
    ) -> None:
        super().__init__()
        self.layers = check_integer("layers", layers, at_least=1)
        self.activation = check_one_of("activation", activation, ACTIVATIONS)
        self.slope = check_real("slope", slope, above=0, below=1)
        self.requested_observed = _count("n_observed", n_observed)
        self.condition_draws = _count("condition_draws", condition_draws)

    @property
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments, "n_observed": self.requested_observed}

    @property
    def weights(self) -> list[Tensor]:
        """The matrix of each layer, in order of application."""
        return [self.get_buffer(f"weight_{depth}") for depth in range(self.layers)]

    def _observed(self, n: int) -> int:
        observed = n if self.requested_observed is None else self.requested_observed
        if observed < n:
            raise ValueError(
                f"n_observed must be at least the number of latents {n}, got {observed}"
            )
        return observed

    def _draw(self, n: int, n_observed: int, generator: Generator) -> None:
        for depth, weight in enumerate(self._matrices(n, n_observed, generator)):
            self.register_buffer(f"weight_{depth}", weight)
            # The pseudoinverse is exact on the image, also for tall matrices.
            self.register_buffer(f"inverse_{depth}", torch.linalg.pinv(weight))

    def _matrices(self, n: int, n_observed: int, generator: Generator) -> list[Tensor]:
        square = self.layers if n_observed == n else self.layers - 1
        shapes = ((n, self.layers - square), (n_observed, square))
        return [
            weight
            for width, count in shapes
            for weight in _conditioned_matrices(
                n_observed, width, count, self.condition_draws, generator
            )
        ]

    def _mix(self, z: Tensor) -> Tensor:
        activate, _ = ACTIVATIONS[self.activation]
        for depth, weight in enumerate(self.weights):
            if depth:
                z = activate(z, self.slope)
            z = z @ weight.to(z.dtype).mT
        return z

    def _unmix(self, x: Tensor) -> Tensor:
        _, deactivate = ACTIVATIONS[self.activation]
        for depth in reversed(range(self.layers)):
            x = x @ self.get_buffer(f"inverse_{depth}").to(x.dtype).mT
            if depth:
                x = deactivate(x, self.slope)
        return x


class Linear(InvertibleMLP):
    r"""A linear mixing :math:`x = W z`: an :class:`InvertibleMLP` of one layer.

    Args:
        n_observed: Observed dimensions m >= n; by default m = n.
        matrix: W, m rows of n numbers, of full column rank; by default a random matrix, drawn as a
            layer of :class:`InvertibleMLP`.
        condition_draws: Number of matrices that determine the threshold of the random matrix.

    Example:
        >>> mixing = Linear(matrix=[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]).build(2, torch.Generator())
        >>> mixing(torch.tensor([[1.0, 1.0]]))
        tensor([[1., 2., 2.]])
    """

    def __init__(
        self,
        n_observed: int | None = None,
        matrix: Sequence[Sequence[float]] | np.ndarray | Tensor | None = None,
        condition_draws: int | None = None,
    ) -> None:
        super().__init__(1, n_observed=n_observed, condition_draws=condition_draws)
        self.matrix = None if matrix is None else _matrix(matrix)
        if self.matrix is not None and n_observed not in (None, len(self.matrix)):
            raise ValueError(
                f"n_observed must be None or the number of rows of matrix, {len(self.matrix)}, "
                f"got {n_observed}"
            )

    def _observed(self, n: int) -> int:
        if self.matrix is None:
            return super()._observed(n)
        if len(self.matrix[0]) != n:
            raise ValueError(f"matrix must have n = {n} columns, got {len(self.matrix[0])}")
        return len(self.matrix)

    def _matrices(self, n: int, n_observed: int, generator: Generator) -> list[Tensor]:
        if self.matrix is None:
            return super()._matrices(n, n_observed, generator)
        return [torch.tensor(self.matrix, dtype=torch.float64)]


class FlowMixing(Mixing):
    r"""A random smooth normalizing flow with affine coupling layers (zuko's ``RealNVP``).

    Args:
        transforms: Number of coupling layers, at least 2 so that every coordinate is transformed.
        hidden: Width of the two hidden layers of each coupling network.
        gain: Standard deviation of the weights times √fan-in; larger values give a more nonlinear
            and worse conditioned map.

    Example:
        >>> mixing = FlowMixing().build(3, torch.Generator().manual_seed(0))
        >>> z = torch.rand(4, 3, dtype=torch.float64)
        >>> torch.allclose(mixing.inverse(mixing(z)), z)
        True
    """

    def __init__(self, transforms: int = 4, hidden: int = 32, gain: float = 1.0) -> None:
        super().__init__()
        self.transforms = check_integer("transforms", transforms, at_least=2)
        self.hidden = check_integer("hidden", hidden, at_least=1)
        self.gain = check_real("gain", gain, above=0)

    def _draw(self, n: int, n_observed: int, generator: Generator) -> None:
        import zuko

        check_integer("n (for FlowMixing)", n, at_least=2)
        with random_stream(Generator()), layers_from_stream():  # weights are replaced below
            flow = zuko.flows.RealNVP(
                n, transforms=self.transforms, hidden_features=(self.hidden, self.hidden)
            ).double()
        for parameter in flow.parameters():
            std = self.gain / math.sqrt(parameter.shape[-1]) if parameter.ndim > 1 else 0.0
            parameter.data = std * draw_normal((*parameter.shape,), generator, parameter.data)
        self.flow = flow

    def _mix(self, z: Tensor) -> Tensor:
        out: Tensor = self.flow().transform(z)
        return out

    def _unmix(self, x: Tensor) -> Tensor:
        out: Tensor = self.flow().transform.inv(x)
        return out


def _count(name: str, value: int | None) -> int | None:
    return None if value is None else check_integer(name, value, at_least=1)


def _matrix(value: Any) -> list[list[float]]:
    """Return the rows of a finite matrix of full column rank."""
    try:
        weight = check_tensor("matrix", value).detach().cpu().double()
    except TypeError as error:
        raise ValueError(f"matrix must be a finite m x n matrix: {error}") from error
    if weight.ndim != 2 or 0 in weight.shape or not bool(weight.isfinite().all()):
        raise ValueError(
            f"matrix must be a finite m x n matrix, got {value!r} of shape {tuple(weight.shape)}"
        )
    if int(torch.linalg.matrix_rank(weight)) < weight.shape[1]:
        raise ValueError(f"matrix must have full column rank to be invertible, got {value!r}")
    return weight.tolist()


def _conditioned_matrices(
    rows: int, columns: int, count: int, draws: int | None, generator: Generator
) -> list[Tensor]:
    """Draw matrices with condition numbers at most the smallest of ``draws`` matrices."""
    if draws is None:
        draws = 25_000 if max(rows, columns) <= 16 else 1000
    if count == 0:
        return []
    _, threshold = _best_conditioned(rows, columns, draws, generator)
    return [
        _best_conditioned(rows, columns, 10 * draws, generator, enough=threshold)[0]
        for _ in range(count)
    ]


def _best_conditioned(
    rows: int, columns: int, draws: int, generator: Generator, enough: float = 0.0
) -> tuple[Tensor, float]:
    """Return the best conditioned of ``draws`` matrices, or the first below ``enough``.

    Entries are U(-1, 1), columns have unit norm; also returns the condition number.
    """
    like = torch.empty(0, dtype=torch.float64)
    best, least = like, math.inf
    for start in range(0, draws, 5000):
        shape = (min(5000, draws - start), rows, columns)
        batch = 2 * draw_uniform(shape, generator, like) - 1
        batch = batch / batch.norm(dim=-2, keepdim=True)
        squares = torch.linalg.eigvalsh(batch.mT @ batch)
        condition = (squares[:, -1] / squares[:, 0].clamp(min=1e-300)).sqrt()
        good = (condition <= enough).nonzero()
        at = int(good[0]) if len(good) else int(condition.argmin())
        if float(condition[at]) < least:
            best, least = batch[at].clone(), float(condition[at])
        if least <= enough:
            break
    return best, least


def _leaky_relu(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, slope * x)


def _leaky_relu_inverse(y: Tensor, slope: float) -> Tensor:
    return torch.where(y > 0, y, y / slope)


def _smooth_leaky_relu(x: Tensor, slope: float) -> Tensor:
    return slope * x + (1 - slope) * softplus(x)


def _smooth_leaky_relu_inverse(y: Tensor, slope: float) -> Tensor:
    def slope_at(x: Tensor) -> Tensor:
        return slope + (1 - slope) * torch.sigmoid(x)

    # y = f(x) >= s x and y >= x for every x, so the root is at most y and at most y / s.
    start = _leaky_relu_inverse(y, slope)
    return _newton(y, start, lambda x: _smooth_leaky_relu(x, slope), slope_at)


def _elu(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))


def _elu_inverse(y: Tensor, slope: float) -> Tensor:
    if bool((y <= -1).any()):
        raise ValueError(
            f"x must give values above -1 before elu is inverted, got {y.min():.9g}: rounding "
            "errors are too large; use float64 or leaky_elu"
        )
    return torch.where(y > 0, y, torch.log1p(y.clamp(max=0)))


def _leaky_elu(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, slope * x + (1 - slope) * torch.expm1(x.clamp(max=0)))


def _leaky_elu_inverse(y: Tensor, slope: float) -> Tensor:
    def slope_at(x: Tensor) -> Tensor:
        return slope + (1 - slope) * torch.exp(x)

    below = y.clamp(max=0)
    root = _newton(below, torch.zeros_like(y), lambda x: _leaky_elu(x, slope), slope_at)
    return torch.where(y > 0, y, root)


def _newton(
    y: Tensor, start: Tensor, f: Callable[[Tensor], Tensor], slope_at: Callable[[Tensor], Tensor]
) -> Tensor:
    """Solve f(x) = y for convex increasing f, for which Newton's method converges globally."""
    x = start
    for _ in range(60):
        step = (f(x) - y) / slope_at(x)
        x = x - step
        if bool((step.abs() <= 4 * torch.finfo(y.dtype).eps * (1 + x.abs())).all()):
            break
    return x


ACTIVATIONS: dict[str, tuple[Activation, Activation]] = {
    "leaky_relu": (_leaky_relu, _leaky_relu_inverse),
    "smooth_leaky_relu": (_smooth_leaky_relu, _smooth_leaky_relu_inverse),
    "elu": (_elu, _elu_inverse),
    "leaky_elu": (_leaky_elu, _leaky_elu_inverse),
}
"""Activation and inverse by name; both take the slope of the leak, which ``elu`` ignores."""
