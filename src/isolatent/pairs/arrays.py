"""Pairs from two arrays, and reading rows of arrays that may be larger than memory."""

from __future__ import annotations

import copy
import mmap
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.files import check_not_truncated
from isolatent.pairs.source import Batch, SplitError

__all__ = [
    "ArrayPairs",
    "as_observations",
    "check_rows_finite",
    "draw_distinct",
    "read_rows",
    "release_pages",
    "tensor_as_array",
]


class ArrayPairs:
    """Pairs from two arrays whose rows belong together, drawn without replacement.

    A batch holds no pair twice, so a positive is never a negative of its own anchor. A batch larger
    than N holds all N pairs in random order, then all of them again in another order, and so on.

    Args:
        x: Observations (N, ...), NumPy or torch; a memory-mapped array is read row by row.
        x_pos: Their positives, of the same shape.
        negatives: For each pair K negatives of its own, (N, K, ...).
        tags: For each pair how its positive was made, integers (N,).

    Attributes:
        rows: Rows of the arrays that are in use, or None for all of them.
        ordered: True; x is taken to come before x_pos, by one lag.

    Example:
        >>> pairs = ArrayPairs(np.arange(6.0).reshape(3, 2), -np.arange(6.0).reshape(3, 2))
        >>> x, x_pos = pairs.sample(4, torch.Generator().manual_seed(0))
        >>> bool((x == -x_pos).all())
        True
    """

    ordered = True

    def __init__(
        self,
        x: ArrayLike | Tensor,
        x_pos: ArrayLike | Tensor,
        *,
        negatives: ArrayLike | Tensor | None = None,
        tags: ArrayLike | Tensor | None = None,
    ) -> None:
        self.x, self.x_pos = as_observations("x", x), as_observations("x_pos", x_pos)
        if self.x.shape != self.x_pos.shape:
            raise ValueError(
                f"x and x_pos must have the same shape, got {self.x.shape} and {self.x_pos.shape}"
            )
        self.negatives = None if negatives is None else as_observations("negatives", negatives)
        if self.negatives is not None:
            shape = self.negatives.shape
            if len(shape) != self.x.ndim + 1 or (shape[0], *shape[2:]) != self.x.shape:
                n, *sizes = self.x.shape
                expected = ", ".join(map(str, (n, "K", *sizes)))
                raise ValueError(f"negatives must have shape ({expected}), got {shape}")
        self.tags = None if tags is None else np.asarray(tags)
        if self.tags is not None and (
            self.tags.shape != self.x.shape[:1] or self.tags.dtype.kind not in "iu"
        ):
            raise ValueError(
                f"tags must be {len(self.x)} integers, one per pair, got {self.tags.dtype} of "
                f"shape {self.tags.shape}"
            )
        self.rows: np.ndarray[Any, Any] | None = None

    def sample(self, batch_size: int, generator: Generator) -> Any:
        """Draw ``batch_size`` pairs."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        return self._take(draw_distinct(len(self), batch_size, generator))

    def __len__(self) -> int:
        return len(self.x) if self.rows is None else len(self.rows)

    def all(self, positions: np.ndarray[Any, Any] | None = None) -> Any:
        """Return every pair once, in order; or the pairs at the given positions."""
        return self._take(np.arange(len(self)) if positions is None else positions)

    def split(self, share: float, generator: Generator) -> tuple[ArrayPairs, ArrayPairs]:
        """Split the pairs at random: most of them, and ``share`` of them.

        Both parts share the arrays, so that memory maps stay on disk.
        """
        check_real("share", share, above=0, below=1)
        check_generator("generator", generator)
        cut = round(len(self) * (1 - share))
        if not 2 <= cut <= len(self) - 2:
            raise SplitError(
                f"share must leave at least 2 of the {len(self)} pairs on either side, got {share}"
            )
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        rows = order.cpu().numpy() if self.rows is None else self.rows[order.cpu().numpy()]
        most, rest = copy.copy(self), copy.copy(self)
        most.rows, rest.rows = np.sort(rows[:cut]), np.sort(rows[cut:])
        return most, rest

    def _take(self, positions: np.ndarray[Any, Any]) -> Any:
        rows = positions if self.rows is None else self.rows[positions]
        x, x_pos = read_rows("x", self.x, rows), read_rows("x_pos", self.x_pos, rows)
        if self.negatives is None and self.tags is None:
            return x, x_pos
        return Batch(
            x,
            x_pos,
            None if self.negatives is None else read_rows("negatives", self.negatives, rows),
            None if self.tags is None else torch.from_numpy(self.tags[rows].astype(np.int64)),
        )

    def __repr__(self) -> str:
        return f"ArrayPairs({len(self)} of x: {self.x.shape}, x_pos: {self.x_pos.shape})"


def as_observations(
    name: str, value: ArrayLike | Tensor, missing: bool = False
) -> np.ndarray[Any, Any]:
    """Return a numeric array (N, ...) with at least two rows; memory maps are not read here.

    Args:
        name: Name of the argument, for messages.
        value: The observations.
        missing: Whether NaN is allowed.
    """
    array = tensor_as_array(value) if isinstance(value, Tensor) else np.asanyarray(value)
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
        check_rows_finite(name, array, missing=missing)
    return array


def tensor_as_array(value: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array; bfloat16, which NumPy does not have, as float32."""
    value = value.detach().cpu()
    array: np.ndarray[Any, Any] = (
        value.float() if value.dtype == torch.bfloat16 else value
    ).numpy()
    return array


def read_rows(name: str, array: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> Tensor:
    """Return rows as a float tensor: float64 and longer as float64, all else as float32."""
    check_not_truncated(array)
    taken = np.asarray(array[rows])
    if isinstance(array, np.memmap):
        check_rows_finite(name, taken, rows)
        release_pages(array)
    long = taken.dtype.kind == "f" and taken.dtype.itemsize >= 8
    # In native byte order, which is the only one that torch takes.
    return torch.from_numpy(taken.astype(np.float64 if long else np.float32, copy=False))


def release_pages(array: np.ndarray[Any, Any]) -> None:
    """Release the memory that a read-only memory map occupies; leave other arrays alone.

    The system keeps mapped pages as long as it can, so rows drawn at random from a file larger than
    memory would fill the memory.
    """
    if isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def check_rows_finite(
    name: str,
    values: np.ndarray[Any, Any],
    rows: np.ndarray[Any, Any] | None = None,
    *,
    missing: bool = False,
) -> None:
    """Raise ValueError naming the first row (N, ...) that is not finite.

    Args:
        name: Name of the argument, for the message.
        values: The rows.
        rows: Numbers of the rows, where they are a selection.
        missing: Whether NaN is allowed.

    Example:
        >>> check_rows_finite("X", np.array([[1.0], [np.nan]]))
        Traceback (most recent call last):
        ValueError: X must be finite, but row 1 holds NaN or inf
    """
    valid = ~np.isinf(values) if missing else np.isfinite(values)
    valid = valid.reshape(len(values), -1).all(axis=1)
    if not valid.all():
        numbers = np.arange(len(values)) if rows is None else rows
        row = numbers[~valid].min()
        allowed, found = ("finite or NaN", "inf") if missing else ("finite", "NaN or inf")
        raise ValueError(f"{name} must be {allowed}, but row {row} holds {found}")


def _integers(below: int, count: int, generator: Generator) -> np.ndarray[Any, Any]:
    drawn = torch.randint(below, (count,), generator=generator, device=generator.device)
    return drawn.cpu().numpy()


def draw_distinct(below: int, count: int, generator: Generator) -> np.ndarray[Any, Any]:
    """Draw ``count`` distinct integers in random order; repeat all of them if there are fewer."""
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
