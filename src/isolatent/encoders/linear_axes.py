"""Align codes with single factors: linear maps of codes that are an affine image of the factors.

Two sources of information determine such a map: factors that are independent and not normal
(:func:`isolatent.encoders.find_independent_axes`), and factors that relax or oscillate at rates of
their own (:func:`isolatent.encoders.find_dynamic_axes`). Both return :class:`Axes`, which state the
codes that the data tell apart, and join the others into blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from isolatent.checks import check_integer, check_tensor
from isolatent.theory import CodeAxis

__all__ = ["Axes", "Dynamics", "LinearAxes"]

MIN_ROWS, MIN_ROWS_PER_CODE = 50, 10  # fewer do not support any axes
MIN_VARIANCE_SHARE = 1e-12  # smallest variance of a direction, relative to the largest
# Of dynamics: properties that are stored for readers of the file.
TIMES = ("time_scales", "time_scales_intervals", "periods", "periods_intervals")
CODE_TIMES = (
    "time_scale",
    "time_scale_interval",
    "period",
    "period_interval",
)  # the same, per code
MIN_COSINE = 0.95  # between an axis and the same axis from other rows
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Dynamics:
    r"""Linear dynamics of codes: :math:`E[y(t + \text{lag}) \mid y(t)] = A\, y(t)`.

    The eigenvalues of A do not depend on the coordinates: an eigenvalue
    :math:`\lambda = r e^{i\omega}` relaxes with the time scale :math:`-\tau / \log r` and
    oscillates with the period :math:`2 \pi \tau / \omega`, where τ is the lag times the interval
    between rows.

    Args:
        matrix: A, for codes in the new axes.
        moduli: r, one per code.
        moduli_intervals: 95 % intervals.
        angles: ω in radians per lag, from 0 to π, one per code.
        angles_intervals: 95 % intervals.
        lag: Rows between an observation and the next.
        unit: Unit of time scales and periods: that of the time stamps of a recording, ``"rows"`` of
            a recording without, or ``"steps"`` from an anchor to its positive.
        interval: Time from a row to the next, in this unit.

    Example:
        >>> dynamics = Dynamics(((0.5,),), (0.5,), ((0.4, 0.6),), (0.0,), ((0.0, 0.0),), lag=2)
        >>> round(dynamics.time_scales[0], 2), dynamics.periods
        (2.89, (inf,))
    """

    matrix: tuple[tuple[float, ...], ...]
    moduli: tuple[float, ...]
    moduli_intervals: tuple[tuple[float, float], ...]
    angles: tuple[float, ...]
    angles_intervals: tuple[tuple[float, float], ...]
    lag: int
    unit: str = "rows"
    interval: float = 1.0

    @property
    def time_scales(self) -> tuple[float, ...]:
        """Time in which each code relaxes by a factor e; infinite for moduli of one or more."""
        return tuple(self._time_scale(modulus) for modulus in self.moduli)

    @property
    def time_scales_intervals(self) -> tuple[tuple[float, float], ...]:
        """95 % intervals of the time scales."""
        return tuple(
            (self._time_scale(low), self._time_scale(high)) for low, high in self.moduli_intervals
        )

    @property
    def periods(self) -> tuple[float, ...]:
        """Time of an oscillation of each code; infinite if it does not oscillate."""
        return tuple(self._period(angle) for angle in self.angles)

    @property
    def periods_intervals(self) -> tuple[tuple[float, float], ...]:
        """95 % intervals of the periods."""
        return tuple((self._period(high), self._period(low)) for low, high in self.angles_intervals)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in which None stands for an infinite time."""
        times = {name: _as_lists(getattr(self, name)) for name in TIMES}
        return _as_lists(asdict(self)) | times

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the dynamics that :meth:`to_dict` has stored; times follow from eigenvalues."""
        return cls(**{name: _as_tuples(v) for name, v in values.items() if name not in TIMES})

    def _time_scale(self, modulus: float) -> float:
        if modulus >= 1:
            return math.inf
        return -self.lag * self.interval / math.log(modulus) if modulus > 0 else 0.0

    def _period(self, angle: float) -> float:
        return 2 * math.pi * self.lag * self.interval / angle if angle > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Axes:
    r"""A linear map of codes onto axes along single factors: :math:`y = M (h - s)`.

    Each new code has unit variance. Codes that the data do not tell apart form one block, within
    which the axes are arbitrary.

    Args:
        method: "ica", "innovations" (independent axes of what is new in positives) or "dynamics".
        matrix: M (n, n), in float64.
        shift: s (n,), in float64.
        blocks: Partition of the new codes; blocks of one code are identified.
        stability: One number from 0 to 1 per new code: the absolute cosine, among whitened codes,
            between its block and the same block from other rows.
        reason: What the checks found, in words.
        dynamics: Time scales and periods, if they were estimated.
        choice: Why this method was taken, in words, where it was chosen.

    Example:
        >>> axes = Axes("ica", torch.eye(2), torch.zeros(2), ((0,), (1,)), (1.0, 1.0), "")
        >>> axes.separates, axes.complete, Axes.from_dict(axes.to_dict()).blocks
        (True, True, ((0,), (1,)))
    """

    method: str
    matrix: Tensor
    shift: Tensor
    blocks: tuple[tuple[int, ...], ...]
    stability: tuple[float, ...]
    reason: str
    dynamics: Dynamics | None = None
    choice: str = ""

    @property
    def separates(self) -> bool:
        """Whether there is more than one block."""
        return len(self.blocks) > 1

    @property
    def complete(self) -> bool:
        """Whether each new code is identified."""
        return all(len(block) == 1 for block in self.blocks)

    @property
    def codes(self) -> tuple[CodeAxis, ...]:
        """Block, stability, time scale and period of each new code."""
        blocks, dynamics = block_of(self.blocks, len(self.stability)), self.dynamics
        axes = [*map(CodeAxis, range(len(blocks)), blocks, self.stability)]
        if dynamics is None:
            return tuple(axes)
        times = zip(*(getattr(dynamics, name) for name in TIMES), strict=True)
        return tuple(
            replace(
                axis,
                **dict(zip(CODE_TIMES, values, strict=True)),
                unit=dynamics.unit,
            )
            for axis, values in zip(axes, times, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return strings, numbers and lists, which JSON can store."""
        return {
            "method": self.method,
            "matrix": self.matrix.tolist(),
            "shift": self.shift.tolist(),
            "blocks": [list(block) for block in self.blocks],
            "stability": list(self.stability),
            "reason": self.reason,
            "dynamics": None if self.dynamics is None else self.dynamics.to_dict(),
            "choice": self.choice,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the axes that :meth:`to_dict` has stored."""
        dynamics = values["dynamics"]
        return cls(
            method=values["method"],
            matrix=torch.tensor(values["matrix"], dtype=torch.float64),
            shift=torch.tensor(values["shift"], dtype=torch.float64),
            blocks=_as_tuples(values["blocks"]),
            stability=tuple(values["stability"]),
            reason=values["reason"],
            dynamics=None if dynamics is None else Dynamics.from_dict(dynamics),
            choice=values.get("choice", ""),
        )


class LinearAxes(nn.Module):
    r"""The map :math:`y = M (h - s)` of codes onto :class:`Axes`; the identity at first.

    Args:
        n: Number of codes.

    Example:
        >>> axes = Axes("ica", 2 * torch.eye(2), torch.ones(2), ((0, 1),), (1.0, 1.0), "")
        >>> LinearAxes(2).set(axes)(torch.tensor([[1.0, 2.0]]))
        tensor([[0., 2.]])
    """

    shift: Tensor
    matrix: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        check_integer("n", n, at_least=1)
        self.register_buffer("shift", torch.zeros(n))
        self.register_buffer("matrix", torch.eye(n))

    def set(self, axes: Axes) -> Self:
        """Replace the map by that of ``axes``."""
        if axes.matrix.shape != self.matrix.shape:
            raise ValueError(
                f"axes must be of {len(self.shift)} codes, got axes of {len(axes.shift)}"
            )
        self.shift.copy_(axes.shift)
        self.matrix.copy_(axes.matrix)
        return self

    def forward(self, h: Tensor) -> Tensor:
        return (h - self.shift) @ self.matrix.T


def check_codes(name: str, value: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return codes (N, n) as float64, if they are finite and of the shape of the others."""
    codes: Array = check_tensor(name, value).detach().cpu().double().numpy()
    if codes.ndim != 2 or len(codes) < 2 or codes.shape[1] == 0:
        raise ValueError(f"{name} must have the shape (N, n) with N >= 2, got {codes.shape}")
    if shape is not None and codes.shape != shape:
        raise ValueError(f"{name} must have the shape {shape} of h, got {codes.shape}")
    if not np.isfinite(codes).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    constant = np.flatnonzero(np.ptp(codes, axis=0) == 0)
    if len(constant):
        raise ValueError(f"{name} must vary in every column, got a constant column {constant[0]}")
    return codes


def whiten(codes: Array) -> tuple[Array, Array]:
    """Return the mean and the symmetric inverse square root of the covariance of codes (N, n)."""
    variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(codes.T)))
    if variances[0] <= MIN_VARIANCE_SHARE * variances[-1]:
        raise ValueError(
            f"h must vary in all {codes.shape[1]} directions, got linearly dependent columns"
        )
    return codes.mean(0), (axes / np.sqrt(variances)) @ axes.T


def has_enough_rows(codes: Array) -> bool:
    """Return whether codes (N, n) are enough to estimate axes and to check them."""
    return len(codes) >= max(MIN_ROWS, MIN_ROWS_PER_CODE * codes.shape[1])


def unidentified_axes(method: str, codes: Array) -> Axes:
    """Return the codes, standardised, as one block."""
    count, n = codes.shape
    needed = max(MIN_ROWS, MIN_ROWS_PER_CODE * n)
    reason = f"{count} rows are too few to check axes of {n} codes; at least {needed} are needed"
    return Axes(
        method,
        torch.from_numpy(np.diag(1 / codes.std(0, ddof=1))),
        torch.from_numpy(codes.mean(0)),
        (tuple(range(n)),),
        (float(n == 1),) * n,
        "one code is one axis" if n == 1 else reason,
    )


def connected_blocks(joined: NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    """Return the connected components of a symmetric relation, in the order of the codes."""
    labels = connected_components(joined, directed=False)[1]
    blocks = {label: tuple(map(int, np.flatnonzero(labels == label))) for label in labels}
    return tuple(sorted(blocks.values()))


def block_of(blocks: Iterable[tuple[int, ...]], n: int) -> list[tuple[int, ...]]:
    """Return for each of n codes the block that it belongs to."""
    found = {code: block for block in blocks for code in block}
    return [found[code] for code in range(n)]


def describe_blocks(blocks: tuple[tuple[int, ...], ...], n: int) -> str:
    """Return how many codes are identified, in words."""
    single = sum(len(block) == 1 for block in blocks)
    larger = [f"{{{', '.join(map(str, block))}}}" for block in blocks if len(block) > 1]
    text = f"{len(blocks)} blocks of codes told apart" if len(blocks) > 1 else "no codes told apart"
    text = f"{text}, {single} of {n} codes identified"
    return text + (f", not told apart: {' and '.join(larger)}" if larger else "")


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(v) for v in value) if isinstance(value, list | tuple) else value


def _as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_lists(v) for name, v in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return None
    return [_as_lists(v) for v in value] if isinstance(value, list | tuple) else value
