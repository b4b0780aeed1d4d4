"""Pairs from PyTorch's datasets and data loaders."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.pairs.arrays import ArrayPairs, check_rows_finite, draw_distinct
from isolatent.pairs.source import PairSource, SplitError

__all__ = ["DatasetPairs", "LoaderPairs", "as_pair_source", "is_torch_data"]


class DatasetPairs:
    """Pairs from a dataset whose items are ``(x, x_pos)``, drawn without replacement.

    Items are read when they are drawn, one by one, so a dataset may be larger than memory, and may
    transform what it returns at random.

    Args:
        dataset: A dataset with ``__len__`` and ``__getitem__``; further entries of its items, such
            as labels, are ignored.

    Attributes:
        ordered: False; nothing says that x_pos follows x.

    Example:
        >>> class Halves(Dataset):
        ...     def __len__(self):
        ...         return 10
        ...     def __getitem__(self, k):
        ...         return torch.full((2,), float(k)), torch.full((2,), k + 0.5)
        >>> x, x_pos = DatasetPairs(Halves()).sample(4, torch.Generator().manual_seed(0))
        >>> bool((x_pos == x + 0.5).all())
        True
    """

    ordered = False

    def __init__(self, dataset: Dataset[Any]) -> None:
        size = getattr(dataset, "__len__", None)
        if size is None or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"dataset must have __len__ and __getitem__, got {type(dataset).__name__}"
            )
        if len(dataset) < 2:  # type: ignore[arg-type]
            raise ValueError(f"dataset must have at least 2 pairs, got {len(dataset)}")  # type: ignore[arg-type]
        self.dataset = dataset
        self.rows = np.arange(len(dataset))  # type: ignore[arg-type]
        _pair_of(dataset[0], "item 0 of the dataset")

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        return self.all(draw_distinct(len(self), batch_size, generator))

    def all(self, positions: np.ndarray[Any, Any] | None = None) -> tuple[Tensor, Tensor]:
        """Return every pair once, in order; or the pairs at the given positions."""
        rows = self.rows if positions is None else self.rows[positions]
        pairs = [_pair_of(self.dataset[k], f"item {k} of the dataset") for k in rows.tolist()]
        return _stack_pairs(pairs)

    def split(self, share: float, generator: Generator) -> tuple[DatasetPairs, DatasetPairs]:
        """Split the pairs at random: most of them, and ``share`` of them."""
        check_real("share", share, above=0, below=1)
        check_generator("generator", generator)
        cut = round(len(self) * (1 - share))
        if not 2 <= cut <= len(self) - 2:
            raise SplitError(
                f"share must leave at least 2 of the {len(self)} pairs on either side, got {share}"
            )
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        rows = self.rows[order.cpu().numpy()]
        most, rest = copy.copy(self), copy.copy(self)
        most.rows, rest.rows = np.sort(rows[:cut]), np.sort(rows[cut:])
        return most, rest

    def __repr__(self) -> str:
        return f"DatasetPairs({len(self)} of {type(self.dataset).__name__})"


class LoaderPairs:
    """An endless stream of pairs from a data loader whose batches are ``(x, x_pos)``.

    The loader is iterated again and again, and its batches are regrouped to the size that training
    asks for. Which pairs come follows the loader's own sampler and random numbers: no pairs are
    held out, and a resumed run sees others than the run that it continues. Prefer
    :class:`DatasetPairs`, which has neither limit, where one process reads fast enough.

    Args:
        loader: The loader.

    Attributes:
        ordered: False; nothing says that x_pos follows x.

    Example:
        >>> data = TensorDataset(torch.rand(8, 2), torch.rand(8, 2))
        >>> pairs = LoaderPairs(DataLoader(data, batch_size=3))
        >>> pairs.sample(5, torch.Generator())[0].shape
        torch.Size([5, 2])
    """

    ordered = False

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self._batches: Iterator[Any] | None = None
        self._left: list[tuple[Tensor, Tensor]] = []

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return the next ``batch_size`` pairs of the loader; the generator is not used."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        while sum(len(x) for x, _ in self._left) < batch_size:
            self._left.append(self._next())
        x, x_pos = (torch.cat(side) for side in zip(*self._left, strict=True))
        self._left = [(x[batch_size:], x_pos[batch_size:])]
        return x[:batch_size], x_pos[:batch_size]

    def _next(self) -> tuple[Tensor, Tensor]:
        for _ in range(2):
            if self._batches is None:
                self._batches = iter(self.loader)
            for batch in self._batches:
                return _pair_of(batch, "a batch of the loader")
            self._batches = None  # exhausted: start again
        raise ValueError("loader must yield batches, got none")

    def __repr__(self) -> str:
        return f"LoaderPairs({type(self.loader.dataset).__name__})"


def is_torch_data(value: Any) -> bool:
    """Return whether a value is a dataset or a data loader of PyTorch."""
    return isinstance(value, Dataset | DataLoader)


def as_pair_source(value: Any) -> PairSource:
    """Return the pair source of a dataset or of a data loader of PyTorch.

    Example:
        >>> as_pair_source(TensorDataset(torch.rand(8, 2), torch.rand(8, 2)))
        ArrayPairs(8 of x: (8, 2), x_pos: (8, 2))
    """
    if isinstance(value, DataLoader):
        return LoaderPairs(value)
    if isinstance(value, TensorDataset) and len(value.tensors) >= 2:
        return ArrayPairs(*value.tensors[:2])
    if isinstance(value, IterableDataset):
        raise TypeError(
            f"X must be in a DataLoader to be streamed: DataLoader(X, batch_size=...), got an "
            f"IterableDataset, {type(value).__name__}"
        )
    return DatasetPairs(value)


def _pair_of(item: Any, what: str) -> tuple[Tensor, Tensor]:
    """Return the observation and the positive of an item, or of a batch."""
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise ValueError(f"{what} must be a pair (x, x_pos), got {type(item).__name__}")
    x, x_pos = (torch.as_tensor(part) for part in item[:2])
    if x.shape != x_pos.shape:
        raise ValueError(
            f"{what} must have x and x_pos of the same shape, got {tuple(x.shape)} and "
            f"{tuple(x_pos.shape)}"
        )
    for part in (x, x_pos):
        if part.is_complex():
            raise ValueError(f"{what} must be real, got {part.dtype}")
    return _as_float(x), _as_float(x_pos)


def _as_float(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _stack_pairs(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    shapes = {x.shape for x, _ in pairs}
    if len(shapes) > 1:
        raise ValueError(f"items of the dataset must have one shape, got {sorted(shapes)}")
    x, x_pos = (torch.stack(side) for side in zip(*pairs, strict=True))
    for name, side in (("x", x), ("x_pos", x_pos)):
        check_rows_finite(f"{name} of the dataset", side.numpy())
    return x, x_pos
