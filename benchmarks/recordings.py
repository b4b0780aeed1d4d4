"""Recordings of known processes: relaxing, oscillating and diffusing factors.

A relaxing or oscillating factor is a stationary autoregression of order one and unit variance,

    z(t + 1) = a z(t) + ε(t),

with a real a for a relaxing factor, and a = |a| exp(iω) for the two factors of an oscillator, the
real and the imaginary part of z. The a are the poles of the process: its time scales are
-1 / log|a| rows, and its frequencies ω rad per row.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.signal import lfilter
from torch import Generator, Tensor

import isolatent as iso
from relaxation_worlds import mixing_of

__all__ = [
    "CHANNELS",
    "FEW_RATES",
    "RECORDINGS",
    "Pole",
    "Recording",
    "autoregression",
    "factors_of_poles",
]

Pole = complex  # real for a relaxing factor
Factors = Callable[[int, int], Tensor]  # of a number of rows and a seed

BURN_IN = 2000  # rows until the process is stationary
CHANNELS = 60
NOISE_SEED = 7919
RATES = (0.99, 0.96, 0.9, 0.8)
EQUAL_RATES = (0.9, 0.9, 0.9, 0.9)
PLANE: dict[str, Any] = {"space": "euclidean"}
LAPLACE: dict[str, Any] = {"space": "euclidean", "marginal": "unknown", "conditional": "laplace"}
UNKNOWN: dict[str, Any] = {"space": "euclidean", "marginal": "unknown"}
TURNING: dict[str, Any] = {"space": "euclidean", "relax": ("dynamics",)}
BOX: dict[str, Any] = {"space": "box", "conditional": "normal"}
DECLARED = {"Gaussian": PLANE, "Laplace": LAPLACE, "uniform": UNKNOWN}

TIME_SCALES = "independent, time scales differ"
NOT_GAUSSIAN = "independent, not Gaussian"
BOTH = "independent, time scales differ, not Gaussian"
EQUAL_GAUSSIAN = "Gaussian with equal time scales"
DRIVEN = "oscillators; their innovations, which are not Gaussian, may tell more apart"
OSCILLATING = "the phase of an oscillator is arbitrary, and so are the axes of its plane"


@dataclass(frozen=True)
class Recording:
    """A process with known factors, seen through a mixing.

    Attributes:
        name: Key in the result file.
        group: Heading in the report.
        factors: Draws the rows (T, n) of the factors.
        n: Number of factors.
        declared: Beliefs that hold, or nearly hold: arguments of ``ContrastiveICA``.
        axes: Whether factors are identified one by one, so that MCC is a score.
        reason: Why they are, or are not.
        rows: Number of rows T.
        lag: Rows from an anchor to its positive.
        blocks: Factors that are identified together, where poles distinguish such blocks.
        innovations: Whether innovations that are independent and not Gaussian tell the factors of a
            block apart, so that axes may be claimed, too.
        poles: The true poles per row, where the process has some.
        decibels: Signal-to-noise ratio of the channels; without it the mixing is square and exact.
        channels: Number of channels, where they are noisy.
    """

    name: str
    group: str
    factors: Factors
    n: int
    declared: dict[str, Any]
    axes: bool
    reason: str
    rows: int = 20_000
    lag: int = 1
    blocks: tuple[tuple[int, ...], ...] | None = None
    innovations: bool = False
    poles: tuple[Pole, ...] = ()
    decibels: float | None = None
    channels: int = CHANNELS

    def mixing(self, seed: int) -> Any:
        """Return the mixing of a seed."""
        if self.decibels is None:
            return mixing_of(self.n, seed)
        mixing = iso.InvertibleMLP(layers=2, n_observed=self.channels, condition_draws=100)
        return mixing.build(self.n, Generator().manual_seed(seed))

    def sample(self, rows: int, seed: int, mixing: Any) -> tuple[Tensor, Tensor]:
        """Return the observations (T, m) and the factors (T, n) of a recording."""
        z = self.factors(rows, seed)
        x = mixing(z)
        if self.decibels is not None:
            power = x.var(0).mean() * 10 ** (-self.decibels / 10)
            noise = torch.randn(x.shape, generator=Generator().manual_seed(NOISE_SEED + seed))
            x = x + power.sqrt() * noise
        return x, z


def factors_of_poles(poles: tuple[Pole, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the factors of each pole: one of a real pole, two of a complex one.

    Example:
        >>> factors_of_poles((0.9j, 0.8))
        ((0, 1), (2,))
    """
    blocks: list[tuple[int, ...]] = []
    first = 0
    for pole in poles:
        size = 2 if complex(pole).imag else 1
        blocks.append(tuple(range(first, first + size)))
        first += size
    return tuple(blocks)


def autoregression(
    rows: int, seed: int, *, poles: tuple[Pole, ...], innovations: str = "Gaussian"
) -> Tensor:
    """Draw the rows of a process with the given poles, with independent innovations."""
    rng = np.random.default_rng(seed)
    columns = []
    for pole in poles:
        size = 2 if complex(pole).imag else 1
        noise = _noise(rng, innovations, (size, BURN_IN + rows))
        noise *= math.sqrt(1 - abs(pole) ** 2)
        drive = noise[0] if size == 1 else noise[0] + 1j * noise[1]
        z = lfilter([1.0], [1.0, -pole], drive)[BURN_IN:]
        columns += [z] if size == 1 else [z.real, z.imag]
    return torch.from_numpy(np.stack(columns, axis=1)).float()


def _noise(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Any:
    """Draw noise of unit variance."""
    if name == "Gaussian":
        return rng.normal(size=shape)
    if name == "Laplace":
        return rng.laplace(scale=math.sqrt(0.5), size=shape)
    return rng.uniform(-math.sqrt(3), math.sqrt(3), size=shape)


def _reflected_walks(rows: int, seed: int, *, widths: tuple[float, ...]) -> Tensor:
    """Draw Gaussian random walks in the unit box, reflected at its faces and stationary.

    A reflected walk is a free one, folded: steps are symmetric, so both have the same law.
    """
    rng = np.random.default_rng(seed)
    start = rng.uniform(size=len(widths))
    steps = rng.normal(scale=widths, size=(rows, len(widths)))
    steps[0] = 0
    folded = (start + steps.cumsum(0)) % 2
    return torch.from_numpy(np.minimum(folded, 2 - folded)).float()


def _relaxing(
    innovations: str,
    rates: tuple[float, ...] = RATES,
    *,
    rows: int = 20_000,
    lag: int = 1,
    decibels: float | None = None,
) -> Recording:
    """Return a recording of relaxing factors."""
    equal = len(set(rates)) == 1
    gaussian = innovations == "Gaussian"
    noisy = "" if decibels is None else f", {CHANNELS} channels at {decibels:g} dB"
    what = f"equal rates, {innovations}" if equal else f"relaxing, {innovations}"
    reasons = {(True, True): EQUAL_GAUSSIAN, (True, False): NOT_GAUSSIAN, (False, False): BOTH}
    group = "Recordings: equal autocorrelations" if equal else "Recordings: relaxing factors"
    return Recording(
        f"recording, {what}{noisy}, lag {lag}, {rows} rows",
        "Recordings: 60 noisy channels" if noisy else group,
        partial(autoregression, poles=rates, innovations=innovations),
        len(rates),
        DECLARED[innovations],
        axes=not (equal and gaussian),
        reason=reasons.get((equal, gaussian), TIME_SCALES),
        rows=rows,
        lag=lag,
        poles=rates,
        decibels=decibels,
    )


def _oscillating(
    name: str, poles: tuple[Pole, ...], *, lag: int = 1, innovations: str = "Gaussian"
) -> Recording:
    """Return a recording of oscillators, or of oscillators and relaxing factors."""
    blocks = factors_of_poles(poles)
    gaussian = innovations == "Gaussian"
    return Recording(
        f"recording, {name}{'' if gaussian else f', {innovations}'}, lag {lag}, 20000 rows",
        "Recordings: oscillators",
        partial(autoregression, poles=poles, innovations=innovations),
        sum(map(len, blocks)),
        TURNING,
        axes=False,
        reason=OSCILLATING if gaussian else DRIVEN,
        lag=lag,
        blocks=blocks,
        innovations=not gaussian,
        poles=poles,
    )


def _diffusing(name: str, widths: tuple[float, ...]) -> Recording:
    """Return a recording of reflected random walks; their autocorrelations are no powers."""
    return Recording(
        f"recording, reflected walks, {name} widths, lag 1, 20000 rows",
        "Recordings: random walks in a box",
        partial(_reflected_walks, widths=widths),
        len(widths),
        BOX,
        axes=True,
        reason=NOT_GAUSSIAN if len(set(widths)) == 1 else BOTH,
    )


def _pole(modulus: float, angle: float) -> Pole:
    return cmath.rect(modulus, angle)


FEW_RATES = (0.99, 0.95, 0.85)  # behind many channels

RECORDINGS: dict[str, Recording] = {
    recording.name: recording
    for recording in (
        _relaxing("Gaussian"),
        _relaxing("Laplace"),
        _relaxing("Gaussian", lag=5),
        _relaxing("Laplace", lag=5),
        _relaxing("Gaussian", rows=5_000),
        _relaxing("Laplace", rows=5_000),
        _relaxing("Gaussian", rows=100_000),
        _relaxing("Gaussian", EQUAL_RATES),
        _relaxing("Laplace", EQUAL_RATES),
        _relaxing("uniform", EQUAL_RATES),
        _oscillating("one oscillator", (_pole(0.97, 0.5),)),
        _oscillating("two oscillators", (_pole(0.97, 0.5), _pole(0.97, 1.2))),
        _oscillating("two damped oscillators", (_pole(0.9, 0.5), _pole(0.9, 1.2))),
        _oscillating("two oscillators", (_pole(0.97, 0.5), _pole(0.97, 1.2)), lag=2),
        _oscillating("oscillator and relaxing factors", (_pole(0.97, 0.5), 0.96, 0.8)),
        _oscillating("one oscillator", (_pole(0.97, 0.5),), innovations="Laplace"),
        _oscillating(
            "two oscillators", (_pole(0.97, 0.5), _pole(0.97, 1.2)), innovations="Laplace"
        ),
        _oscillating(
            "oscillator and relaxing factors", (_pole(0.97, 0.5), 0.96, 0.8), innovations="Laplace"
        ),
        _diffusing("equal", (0.1, 0.1, 0.1, 0.1)),
        _diffusing("different", (0.16, 0.12, 0.09, 0.07)),
        _relaxing("Gaussian", FEW_RATES, rows=30_000, decibels=20.0),
        _relaxing("Gaussian", FEW_RATES, rows=30_000, decibels=10.0),
        _relaxing("Laplace", FEW_RATES, rows=30_000, decibels=20.0),
        _relaxing("Gaussian", FEW_RATES, rows=5_000, decibels=20.0),
    )
}
