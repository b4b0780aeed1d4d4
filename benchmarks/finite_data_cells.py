"""Worlds with finitely many pairs, recordings with finitely many rows, and many factors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from torch import Generator, Tensor

import isolatent as iso
from noisy_columns import counts_of, pixels
from recordings import FEW_RATES, RECORDINGS

__all__ = ["CELLS", "LAGS", "POISSON", "Cell", "Sample"]

PAIRS = (1_000, 4_000, 16_000, 64_000, 256_000)
PIXEL_PAIRS = (800, 3_000, 20_000)
ROWS = (5_000, 20_000, 100_000)
LAGS = (1, 5, 20)
POISSON = "Poisson counts"
NOISE: dict[str, float] = {"20 dB": 20.0, "10 dB": 10.0, "3 dB": 3.0, POISSON: math.inf}
LINK = "softplus"  # from channels to the rates of counts
TEST_FACTORS, TEST_ROWS, TEST_SEED = 8192, 20_000, 1_000_003
SPHERE: dict[str, Any] = {"space": "sphere"}
BOX: dict[str, Any] = {"space": "box", "conditional": "laplace"}


class Sample(NamedTuple):
    """What is fitted, and fresh observations with their factors.

    ``x_pos`` is missing for a recording. Endless pairs have nothing but ``world`` and fresh data.
    """

    test_x: Tensor
    test_z: Tensor
    x: Tensor | None = None
    x_pos: Tensor | None = None
    z: Tensor | None = None
    z_pos: Tensor | None = None
    world: iso.World | None = None


@dataclass(frozen=True)
class Cell:
    """A world or a recording with a number of pairs or rows.

    Attributes:
        group: The world, whatever the number of pairs: heading and panel in the report.
        n: Number of factors.
        size: Number of pairs, or of rows of a recording; None for endless pairs.
        score: Key of the score in a record: ``"r2"``, or ``"mcc"`` where axes are identified.
        declared: Beliefs that are declared; nothing but n if empty.
        world: Space and conditional of a world.
        lag: Rows from an anchor to its positive, in recordings.
        innovations: Innovations of the factors of a recording.
        noise: Noise of its channels, a key of ``NOISE``.
    """

    group: str
    n: int
    size: int | None
    score: str
    declared: dict[str, Any]
    world: tuple[Any, Any] | None = None
    lag: int | None = None
    innovations: str = "Gaussian"
    noise: str = ""

    @property
    def name(self) -> str:
        """Key in the result file."""
        return f"{self.group}, {self.size_text}"

    @property
    def size_text(self) -> str:
        """The number of pairs or rows, in words."""
        if self.size is None:
            return "endless pairs"
        return f"{self.size} {'pairs' if self.lag is None else 'rows'}"

    @property
    def counts(self) -> bool:
        """Whether observations are counts."""
        return self.noise == POISSON

    def sample(self, seed: int) -> Sample:
        """Return the data of a seed."""
        if self.lag is not None:
            return self._recording(seed)
        if self.world is None:
            assert self.size is not None
            return Sample(**_fields(pixels(self.size, seed)))
        space, conditional = self.world
        mixing = iso.InvertibleMLP(layers=3)
        world = iso.World(space, iso.Uniform(), conditional, mixing, seed=seed)
        fresh = Generator().manual_seed(TEST_SEED + seed)
        test_z = world.sample_latents(TEST_FACTORS, fresh)[0]
        test_x = world.observe(test_z)
        if self.size is None:
            return Sample(test_x, test_z, world=world)
        z, z_pos = world.sample_latents(self.size, Generator().manual_seed(seed))
        return Sample(test_x, test_z, world.observe(z), world.observe(z_pos), z, z_pos)

    def _recording(self, seed: int) -> Sample:
        assert self.size is not None
        known = f"recording, relaxing, {self.innovations}, 60 channels at 20 dB, lag 1, 30000 rows"
        process = replace(RECORDINGS[known], decibels=NOISE[self.noise])
        mixing = process.mixing(seed)
        x, z = process.sample(self.size, seed, mixing)
        test_x, test_z = process.sample(TEST_ROWS, TEST_SEED + seed, mixing)
        if self.counts:
            x, test_x = counts_of(x, test_x, seed, LINK)
        return Sample(test_x, test_z, x, None, z)


def _fields(data: Any) -> dict[str, Any]:
    return {name: value for name, value in data._asdict().items() if name != "declared"}


def _recordings() -> list[Cell]:
    return [
        Cell(
            f"recording, {innovations} innovations, {noise}, lag {lag}",
            len(FEW_RATES),
            rows,
            "r2",
            {},
            lag=lag,
            innovations=innovations,
            noise=noise,
        )
        for noise in NOISE
        for innovations in ("Gaussian", "Laplace")
        for lag in LAGS
        for rows in ROWS
    ]


def _sphere(n: int, kappa: float, size: int | None) -> Cell:
    world = (iso.Sphere(n), iso.VonMisesFisher(kappa))
    return Cell(f"sphere, n = {n}, κ = {kappa:g}", n, size, "r2", SPHERE, world)


def _box(n: int, width: float, size: int | None) -> Cell:
    world = (iso.Box(n), iso.Laplace(width))
    return Cell(f"box, n = {n}, Laplace {width:g}", n, size, "mcc", BOX, world)


CELLS: dict[str, Cell] = {
    cell.name: cell
    for cell in (
        *map(partial(_sphere, 10, 10.0), PAIRS),
        *map(partial(_box, 5, 0.1), PAIRS),
        *(Cell("1019 pixels, n = 4", 4, size, "mcc", BOX) for size in PIXEL_PAIRS),
        *_recordings(),
        _sphere(20, 50.0, None),
        _sphere(40, 50.0, None),
        _box(100, 0.1, None),
    )
}
