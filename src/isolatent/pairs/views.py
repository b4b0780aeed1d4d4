"""Pairs of two views with different columns."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from isolatent.pairs.arrays import ArrayPairs, as_observations
from isolatent.pairs.separate_recordings import lay_out

__all__ = ["ViewPairs"]


class ViewPairs(ArrayPairs):
    """Pairs whose halves come from different instruments, and so differ in their columns.

    An observation is the number of its view, 0 or 1, and its columns, filled up with zeros
    (:func:`lay_out`), which :class:`isolatent.encoders.RecordingEncoders` takes: an encoder each,
    and one space of codes. Pairs are drawn as from :class:`ArrayPairs`.

    Args:
        x: Observations of the first view (N, m).
        x_pos: Those of the second (N, k), row by row.

    Attributes:
        widths: Columns of each view.
        ordered: False; neither view comes before the other.

    Example:
        >>> pairs = ViewPairs(torch.ones(8, 2), torch.ones(8, 3))
        >>> x, x_pos = pairs.sample(1, torch.Generator().manual_seed(0))
        >>> x.tolist(), x_pos.tolist()
        ([[0.0, 1.0, 1.0, 0.0]], [[1.0, 1.0, 1.0, 1.0]])
    """

    ordered = False

    def __init__(self, x: ArrayLike | Tensor, x_pos: ArrayLike | Tensor) -> None:
        views = [as_observations("x", x), as_observations("x_pos", x_pos)]
        for name, view in zip(("x", "x_pos"), views, strict=True):
            if view.ndim != 2:
                raise ValueError(f"{name} must have shape (N, columns), got {view.shape}")
        if len(views[0]) != len(views[1]):
            raise ValueError(
                f"x and x_pos must have the same number of rows, got {len(views[0])} and "
                f"{len(views[1])}"
            )
        self.widths = (views[0].shape[1], views[1].shape[1])
        laid_out = [self._lay_out(view, number) for number, view in enumerate(views)]
        super().__init__(*laid_out)

    def view(self, x: ArrayLike | Tensor, number: int) -> Tensor:
        """Return observations of one view as an encoder of both takes them.

        Args:
            x: Observations (N, m) with the columns of this view.
            number: 0 for the first view, 1 for the second.
        """
        if number not in (0, 1):
            raise ValueError(f"number must be 0 or 1, got {number!r}")
        array = torch.as_tensor(x)
        if array.ndim != 2 or array.shape[1] != self.widths[number]:
            raise ValueError(
                f"x must have shape (N, {self.widths[number]}), got {tuple(array.shape)}"
            )
        return self._lay_out(array, number)

    def _lay_out(self, x: Any, number: int) -> Tensor:
        rows = torch.as_tensor(x)
        rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
        return lay_out(rows, number, max(self.widths))

    def __repr__(self) -> str:
        return f"ViewPairs({len(self)} of {self.widths[0]} and {self.widths[1]} columns)"
