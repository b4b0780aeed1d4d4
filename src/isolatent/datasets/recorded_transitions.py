"""Transitions of position and scale that were recorded, or made up to look like it: NAT."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer
from isolatent.datasets import FactorWorld
from isolatent.datasets.transition_files import read_table

__all__ = ["RecordedTransitions", "read_transitions", "synthetic_transitions"]

MOVING = ("x", "y", "scale")
FRAMES = 25  # of a made-up trajectory

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RecordedTransitions:
    r"""NAT: x, y and scale go from one row's values to the next, as they did in a recording.

    A pair takes one row of the table, uniformly; its other factors, such as shape and orientation,
    are uniform on their grid and the same in both. On the grid of a world (`ND` in the papers) the
    n indices of a factor are bins of equal width in [0, 1]; rows in which nothing changes after
    that are kept, since how often things rest is part of a recording. :meth:`sample_values` keeps
    values continuous (`NC`).

    References:
        Klindt et al., 2021; `zimmermann2020`, A.6.

    Args:
        table: Rows (T, 6) of x, y, scale before and x, y, scale after, each in [0, 1]: 0 is the
            least and 1 the greatest value that the world has of that factor.
        source: Where the table comes from, for the reader.

    Example:
        >>> from isolatent.datasets import Sprites
        >>> moves = RecordedTransitions([[0.0, 0.5, 0.0, 1.0, 0.5, 0.0]], source="an example")
        >>> y, y_pos = moves.sample_factors(Sprites(), 1, torch.Generator().manual_seed(0))
        >>> (y_pos - y).tolist(), moves
        ([[0, 0, 0, 31, 0]], RecordedTransitions(1 transitions, an example))
    """

    table: ArrayLike
    source: str = "recorded"
    _binned: dict[tuple[int, ...], NDArray[np.int64]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        try:
            table = np.array(self.table, dtype=np.float64)
        except (TypeError, ValueError):  # text, or rows of different lengths
            raise TypeError(
                f"table must be an array of numbers (T, 6), got {self.table!r}"
            ) from None
        if table.ndim != 2 or table.shape[1] != 6 or not len(table):
            raise ValueError(f"table must have shape (T, 6) with T >= 1, got {table.shape}")
        outside = ~((table >= 0) & (table <= 1))
        if outside.any():
            row, column = np.argwhere(outside)[0]
            raise ValueError(
                f"table must lie in [0, 1], got {table[row, column]} in row {row}, column {column}"
            )
        table.setflags(write=False)
        object.__setattr__(self, "table", table)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def _rows(self) -> Array:
        return self.table  # type: ignore[return-value]  # an array since __post_init__

    def check_names(self, world: FactorWorld) -> None:
        """Raise ValueError if the world lacks one of the factors that move."""
        missing = [name for name in MOVING if name not in world.names]
        if missing:
            raise ValueError(
                f"world must have the factors {MOVING} for {self!r}, got "
                f"{world!r} without {missing}"
            )

    def check(self, world: FactorWorld) -> None:
        self.check_names(world)
        indices = self._indices(world)
        if (indices[:, :3] == indices[:, 3:]).all():
            raise ValueError(
                f"table must hold a transition that changes an index on the grid of {world!r}; in "
                f"all {len(self)} both moments have the same"
            )

    def sample_factors(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw factors y and y' (batch_size, F), int64, of ``batch_size`` pairs."""
        y = self._fixed(world, batch_size, generator)
        self.check(world)
        indices = torch.from_numpy(self._indices(world))
        rows = indices[_integers(len(indices), batch_size, generator)]
        columns = [world.names.index(name) for name in MOVING]
        y_pos = y.clone()
        y[:, columns], y_pos[:, columns] = rows[:, :3], rows[:, 3:]
        return y, y_pos

    def sample_values(
        self, world: FactorWorld, batch_size: int, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw values (batch_size, F), float64, of pairs; x, y and scale are continuous.

        They are for the ``observe_values`` of a world that shows values between those of its grid.
        """
        factors = self._fixed(world, batch_size, generator)
        values = world.values_of(factors)
        values_pos = values.clone()
        moved = self._rows[_integers(len(self), batch_size, generator).numpy()]
        for k, name in enumerate(MOVING):
            f = world.names.index(name)
            low, high = world.values[f].min(), world.values[f].max()
            for part, column in ((values, k), (values_pos, 3 + k)):
                part[:, f] = torch.from_numpy(low + moved[:, column] * (high - low))
        return values, values_pos

    def _fixed(self, world: FactorWorld, batch_size: int, generator: Generator) -> Tensor:
        if not isinstance(world, FactorWorld):
            raise TypeError(f"world must be a FactorWorld, got {world!r}")
        self.check_names(world)
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        return world.sample_factors(batch_size, generator)

    def _indices(self, world: FactorWorld) -> NDArray[np.int64]:
        """The rows as indices of bins; 1 is in the last one."""
        sizes = tuple(world.sizes[world.names.index(name)] for name in MOVING)
        if sizes not in self._binned:
            counts = np.array(sizes * 2)
            self._binned[sizes] = np.minimum(self._rows * counts, counts - 1).astype(np.int64)
        return self._binned[sizes]

    def __repr__(self) -> str:
        return f"RecordedTransitions({len(self)} transitions, {self.source})"


def read_transitions(path: str | os.PathLike[str], *, rescale: bool = True) -> RecordedTransitions:
    r"""Read transitions from a CSV file; its header line tells which of two layouts it has.

    **One transition in each row**, with the columns ``x_t``, ``y_t`` and ``area_t`` (or
    ``scale_t``), and ``x_t+1``, ``y_t+1`` and ``area_t+1`` (or ``scale_t+1``); ``_before`` and
    ``_after``, or ``_t0`` and ``_t1``, serve as well. The scale is the square root of the area.

    **One object in each row**, as in the file of Natural Sprites (zenodo 3948069), with the columns
    ``t_0``, ``t_1``, … to the end, one for each moment. A cell is empty or a Python list with one
    entry for each crop window of 64 × 64 pixels: ``(y, x, area)``, or ``None`` where the object is
    not seen in it. Two adjacent moments of one object in one window are a transition. Those with an
    area below the 5 % or above the 95 % quantile, before or after, are left out; the scale is
    :math:`\sqrt{area / 64^2}`, and x and y are divided by 64.

    Other columns, such as an index or ``id`` and ``cat_id``, are left aside.

    References:
        Klindt et al., 2021.

    Args:
        path: The file.
        rescale: Whether x, y and scale are each mapped linearly from their least and greatest value
            in the file to 0 and 1; if not, they must be relative already.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "moves.csv")
        >>> _ = path.write_text("x_t,y_t,area_t,x_t+1,y_t+1,area_t+1\n0,2,4,8,4,16\n2,3,9,2,3,4\n")
        >>> read_transitions(path).table[0].tolist()
        [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
        >>> cells = '"[None, (32.0, 16.0, 1024)]","[(1.0, 2.0, 9), (48.0, 16.0, 256)]"'
        >>> _ = path.write_text(f"id,cat_id,t_0,t_1\n1,7,{cells}\n")
        >>> read_transitions(path, rescale=False).table.tolist()
        [[0.25, 0.5, 0.5, 0.25, 0.75, 0.25]]
        >>> folder.cleanup()
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: does not exist")
    table = read_table(path)
    if rescale:
        for k, name in enumerate(MOVING):
            both = table[:, [k, 3 + k]]
            low, high = both.min(), both.max()
            if low == high:
                raise ValueError(f"{path.name}: {name} must vary to be rescaled, got only {low:g}")
            table[:, [k, 3 + k]] = (both - low) / (high - low)
    return RecordedTransitions(table, source=path.name)


def synthetic_transitions(count: int = 100_000, seed: int = 0) -> RecordedTransitions:
    r"""Transitions that look natural but are made up: a stand-in where no recording is at hand.

    Objects cross the frame on smooth paths of 25 frames. The logarithm of an object's speed, its
    heading and its approach (the change of scale over the speed) are each a stationary or free
    random walk; at the border it turns back. So most steps are small and some are large, with
    tails heavier than Laplace's, as in natural videos; but nothing here was measured, and results
    must say so. The rows of one object follow one another.

    Args:
        count: Number of transitions T.
        seed: Integer that fixes the table.

    Example:
        >>> synthetic_transitions(1000, seed=0)
        RecordedTransitions(1000 transitions, synthetic stand-in)
    """
    check_integer("count", count, at_least=1)
    random = np.random.default_rng(check_integer("seed", seed, at_least=0))
    objects = -(-count // (FRAMES - 1))
    state = random.normal(0.5, [[0.2], [0.2], [0.25]], (3, objects))
    speed, approach = random.normal(size=(2, objects))
    heading = random.uniform(0, 2 * np.pi, objects)
    frames = [state]
    for _ in range(FRAMES - 1):
        speed = 0.9 * speed + np.sqrt(1 - 0.9**2) * random.normal(size=objects)
        approach = 0.9 * approach + np.sqrt(1 - 0.9**2) * random.normal(size=objects)
        heading = heading + random.normal(0, 0.3, objects)
        step = 0.015 * np.exp(speed)
        direction = np.stack([np.cos(heading), np.sin(heading), 0.7 * approach])
        state = state + step * direction
        frames.append(state)
    # Reflected at 0 and 1: what leaves the frame comes back at the same speed.
    seen = np.abs((np.stack(frames) + 1) % 2 - 1)
    pairs = np.concatenate([seen[:-1], seen[1:]], axis=1)  # (frame, before and after, object)
    table = pairs.transpose(2, 0, 1).reshape(-1, 6)[:count]
    return RecordedTransitions(table, source="synthetic stand-in")


def _integers(below: int, count: int, generator: Generator) -> Tensor:
    drawn = torch.randint(below, (count,), generator=generator, device=generator.device)
    return drawn.cpu()
