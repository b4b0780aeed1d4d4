"""Pair sources: from a world, from two arrays, from a time series."""

from __future__ import annotations

import copy
import mmap
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.worlds import World

__all__ = [
    "ArrayPairs",
    "NothingToHoldOut",
    "PairSource",
    "SeriesPairs",
    "WorldPairs",
    "check_rows_finite",
    "release_pages",
]


@runtime_checkable
class PairSource(Protocol):
    """Anything that gives batches of positive pairs.

    ``sample(batch_size, generator)`` returns two tensors (batch_size, ...) whose rows belong
    together. All randomness comes from the generator.
    """

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs."""
        ...


class NothingToHoldOut(ValueError):  # noqa: N818
    """A recording that is too short to be split."""


class WorldPairs:
    """Endless fresh pairs from a world with known factors.

    Args:
        world: The world to observe.
    """

    def __init__(self, world: World) -> None:
        if not isinstance(world, World):
            raise TypeError(f"world must be a World, got {world!r}")
        self.world = world

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs of observations."""
        check_generator("generator", generator)
        return self.world.sample_pairs(batch_size, generator)

    def __repr__(self) -> str:
        return f"WorldPairs({self.world!r})"


class ArrayPairs:
    """Pairs from two arrays whose rows belong together, drawn without replacement.

    No pair comes twice in a batch, so that a positive never serves as its own anchor's negative. A
    batch larger than N goes through all N pairs in random order, and again in another until it is
    full.

    Args:
        x: Observations (N, ...), NumPy or torch; a memory-mapped array is read row by row.
        x_pos: Their positives, of the same shape.

    Attributes:
        rows: The rows of the arrays that are in use, or None for all of them.

    Example:
        >>> pairs = ArrayPairs(np.arange(6.0).reshape(3, 2), -np.arange(6.0).reshape(3, 2))
        >>> x, x_pos = pairs.sample(4, torch.Generator().manual_seed(0))
        >>> bool((x == -x_pos).all())
        True
    """

    def __init__(self, x: ArrayLike | Tensor, x_pos: ArrayLike | Tensor) -> None:
        self.x, self.x_pos = _observations("x", x), _observations("x_pos", x_pos)
        if self.x.shape != self.x_pos.shape:
            raise ValueError(
                f"x and x_pos must have the same shape, got {self.x.shape} and {self.x_pos.shape}"
            )
        self.rows: np.ndarray[Any, Any] | None = None

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        return self._take(_distinct(len(self), batch_size, generator))

    def __len__(self) -> int:
        return len(self.x) if self.rows is None else len(self.rows)

    def all(self, positions: np.ndarray[Any, Any] | None = None) -> tuple[Tensor, Tensor]:
        """Every pair once, in order; or those at the given positions among them."""
        return self._take(np.arange(len(self)) if positions is None else positions)

    def split(self, share: float, generator: Generator) -> tuple[ArrayPairs, ArrayPairs]:
        """Deal the pairs out at random: most of them, and ``share`` of them.

        Both parts share the arrays, so that memory maps stay on the disk.
        """
        check_real("share", share, above=0, below=1)
        check_generator("generator", generator)
        cut = round(len(self) * (1 - share))
        if not 2 <= cut <= len(self) - 2:
            raise ValueError(
                f"share must leave at least 2 of the {len(self)} pairs on either side, got {share}"
            )
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        rows = order.cpu().numpy() if self.rows is None else self.rows[order.cpu().numpy()]
        most, rest = copy.copy(self), copy.copy(self)
        most.rows, rest.rows = np.sort(rows[:cut]), np.sort(rows[cut:])
        return most, rest

    def _take(self, positions: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        rows = positions if self.rows is None else self.rows[positions]
        return _rows("x", self.x, rows), _rows("x_pos", self.x_pos, rows)

    def __repr__(self) -> str:
        return f"ArrayPairs({len(self)} of x: {self.x.shape}, x_pos: {self.x_pos.shape})"


class SeriesPairs:
    """Pairs from a recording: a moment and one a little later, within the same session.

    Anchors are uniform over all moments that have a positive, and none comes twice in a batch
    unless there are fewer; the lag is uniform over those of the
    window that stay inside the session. A session is an unbroken run of one value in ``groups``.

    Args:
        x: The recording (T, ...), NumPy or torch; memory-mapped arrays may exceed the memory, as
            only the rows of each batch are read.
        lag: The longest lag in steps, or the shortest and the longest. A session that is too short
            for the longest lag takes part with the lags that fit into it.
        groups: One session id for each of the T rows; by default all are one session.

    Example:
        >>> recording = np.arange(10.0)[:, None]
        >>> pairs = SeriesPairs(recording, lag=2, groups=[0] * 5 + [1] * 5)
        >>> x, x_pos = pairs.sample(100, torch.Generator().manual_seed(0))
        >>> sorted({int(lag) for lag in x_pos - x}), bool(((x < 5) == (x_pos < 5)).all())
        ([1, 2], True)
    """

    def __init__(
        self,
        x: ArrayLike | Tensor,
        lag: int | Sequence[int] = 1,
        groups: ArrayLike | None = None,
    ) -> None:
        self.x = _observations("x", x)
        window = lag if isinstance(lag, list | tuple) else (1, lag)
        if len(window) != 2:
            raise ValueError(
                f"lag must be an integer, or the shortest and the longest lag, got {lag!r}"
            )
        self.shortest = check_integer("lag", window[0], at_least=1)
        self.longest = check_integer("lag", window[1], at_least=self.shortest)
        starts = np.zeros(1, dtype=np.int64)
        if groups is not None:
            ids = np.asarray(groups)
            if ids.shape != (len(self.x),):
                raise ValueError(
                    f"groups must have one id per row of x, shape ({len(self.x)},), got {ids.shape}"
                )
            starts = np.concatenate([starts, np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        ends = np.append(starts[1:], len(self.x))
        if (ends - starts).max() <= self.shortest:
            raise ValueError(
                f"lag must be shorter than some session; the shortest lag is {self.shortest}, the "
                f"longest session has {int((ends - starts).max())} rows"
            )
        self._set_sessions(starts, ends)

    def _set_sessions(self, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        anchors = np.maximum(ends - starts - self.shortest, 0)
        keep = anchors > 0
        self._starts, self._ends = starts[keep], ends[keep]
        self._anchors_up_to = np.cumsum(anchors[keep])

    def __len__(self) -> int:
        """How many moments have a positive."""
        return int(self._anchors_up_to[-1])

    def split(self, share: float, generator: Generator) -> tuple[SeriesPairs, SeriesPairs]:
        """Cut the recording: most of it, and about ``share`` of it.

        What is held out is the end of each session, since neighbouring moments are alike and a
        random choice of them would hold nothing out; of sessions too short for that, the last ones
        as a whole. Both parts share the array. ``generator`` is not needed: nothing is random.
        """
        check_real("share", share, above=0, below=1)
        lengths = self._ends - self._starts
        cut = self._ends - np.round(share * lengths).astype(np.int64)
        fits = (self._ends - cut > self.shortest) & (cut - self._starts > self.shortest)
        whole = np.where(fits, 0, lengths)
        ended = ~fits & (np.cumsum(whole) > (1 - share) * whole.sum())
        cut = np.where(fits, cut, np.where(ended, self._starts, self._ends))
        if (cut == self._ends).all() or (cut == self._starts).all():
            raise NothingToHoldOut(
                f"share must leave a pair on either side of {len(self)} anchors, got {share}"
            )
        most, rest = copy.copy(self), copy.copy(self)
        most._set_sessions(self._starts, cut)
        rest._set_sessions(cut, self._ends)
        return most, rest

    def all(self, positions: np.ndarray[Any, Any] | None = None) -> tuple[Tensor, Tensor]:
        """Every anchor once, in order, with its nearest positive; or those at the positions."""
        anchors = np.concatenate(
            [
                np.arange(start, end - self.shortest)
                for start, end in zip(self._starts, self._ends, strict=True)
            ]
        )
        if positions is not None:
            anchors = anchors[positions]
        return _rows("x", self.x, anchors), _rows("x", self.x, anchors + self.shortest)

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        drawn = _distinct(len(self), batch_size, generator)
        session = np.searchsorted(self._anchors_up_to, drawn, side="right")
        before = np.where(session > 0, self._anchors_up_to[session - 1], 0)
        anchor = self._starts[session] + drawn - before
        longest = np.minimum(self.longest, self._ends[session] - 1 - anchor)
        share = torch.rand(
            batch_size, generator=generator, device=generator.device, dtype=torch.float64
        )
        lags = self.shortest + (share.cpu().numpy() * (longest - self.shortest + 1)).astype(
            np.int64
        )
        return _rows("x", self.x, anchor), _rows("x", self.x, anchor + lags)

    def __repr__(self) -> str:
        window = f"lag=({self.shortest}, {self.longest})"
        return f"SeriesPairs(x: {self.x.shape}, {window}, sessions={len(self._starts)})"


def _observations(name: str, value: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
    """A numeric array (N, ...) with at least two rows; memory maps are not read here."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        # NumPy has no bfloat16.
        array = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    else:
        array = np.asanyarray(value)
    if array.dtype.kind == "c":
        raise TypeError(f"{name} must be real, got dtype {array.dtype}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}")
    if array.ndim < 2 or len(array) < 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape (N, features) or (N, channels, height, width) with N >= 2, "
            f"got {array.shape}"
        )
    if not isinstance(array, np.memmap):
        check_rows_finite(name, array)
    return array


def _rows(name: str, array: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> Tensor:
    """Those rows as a float tensor: float64 (and longer) as float64, everything else as float32."""
    taken = np.asarray(array[rows])
    if isinstance(array, np.memmap):
        check_rows_finite(name, taken, rows)
        release_pages(array)
    long = taken.dtype.kind == "f" and taken.dtype.itemsize >= 8
    # In native byte order, which is the only one that torch takes.
    return torch.from_numpy(taken.astype(np.float64 if long else np.float32, copy=False))


def release_pages(array: np.ndarray[Any, Any]) -> None:
    """Give back the memory into which a memory map has read its file; others are left alone.

    Rows drawn at random from a file that is larger than memory would otherwise fill it, since the
    system drops pages that are mapped only when it must.
    """
    if isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def check_rows_finite(
    name: str, values: np.ndarray[Any, Any], rows: np.ndarray[Any, Any] | None = None
) -> None:
    """Raise ValueError naming the first row (N, ...) that is not finite.

    Args:
        name: What to call the argument.
        values: The rows.
        rows: Their numbers, where they are some of many.

    Example:
        >>> check_rows_finite("X", np.array([[1.0], [np.nan]]))
        Traceback (most recent call last):
        ValueError: X must be finite, but row 1 holds NaN or inf
    """
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not finite.all():
        numbers = np.arange(len(values)) if rows is None else rows
        row = numbers[~finite].min()
        raise ValueError(f"{name} must be finite, but row {row} holds NaN or inf")


def _integers(below: int, count: int, generator: Generator) -> np.ndarray[Any, Any]:
    drawn = torch.randint(below, (count,), generator=generator, device=generator.device)
    return drawn.cpu().numpy()


def _distinct(below: int, count: int, generator: Generator) -> np.ndarray[Any, Any]:
    """``count`` different integers in random order; more than there are go round again."""
    if below > 4 * count:
        # Dropping repeats from a stream of independent draws leaves a sample without replacement.
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            drawn = np.concatenate([drawn, _integers(below, count - len(drawn), generator)])
            drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        return drawn
    rounds = [
        torch.randperm(below, generator=generator, device=generator.device)
        for _ in range(-(-count // below))
    ]
    return torch.cat(rounds)[:count].cpu().numpy()
