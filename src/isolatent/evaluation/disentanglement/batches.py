"""Batches of points that share the value of a factor, from stored points."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from isolatent.evaluation.assignment import Indices
from isolatent.evaluation.columns import Array
from isolatent.evaluation.disentanglement.samples import Sample

__all__ = ["Groups", "Pairs", "Points", "StoredPoints", "draw_groups", "draw_pairs"]


class Points(Protocol):
    """Points with factors and codes, known by their index."""

    @property
    def factor_count(self) -> int:
        """How many factors there are."""

    def choose_factors(self, count: int) -> Indices:
        """Choose a factor at random, ``count`` times."""

    def anywhere(self, count: int) -> Indices:
        """Draw points independently."""

    def pairs(self, factor: int, count: int) -> tuple[Indices, Indices]:
        """Draw pairs of points that are independent but for the value of one factor."""

    def groups(self, factor: int, count: int, batch: int) -> Indices:
        """Draw ``count`` batches, (count, batch), each with one value of one factor."""

    def codes_at(self, index: Indices) -> Array:
        """Return the codes of points, with the shape of ``index`` and one axis more."""


class Pairs(NamedTuple):
    """For each example a factor (P,), and a batch of pairs (P, B) that share its value."""

    factor: Indices
    first: Indices
    second: Indices


class Groups(NamedTuple):
    """For each example a factor (P,), and a batch of points (P, B) with one value of it."""

    factor: Indices
    members: Indices


def draw_pairs(points: Points, count: int, batch: int) -> Pairs:
    """Draw what ``count`` examples of the BetaVAE score are made of."""
    chosen = points.choose_factors(count)
    first, second = np.empty((2, count, batch), dtype=np.intp)
    for f in range(points.factor_count):
        rows = np.flatnonzero(chosen == f)
        left, right = points.pairs(f, len(rows) * batch)
        first[rows], second[rows] = left.reshape(-1, batch), right.reshape(-1, batch)
    return Pairs(chosen, first, second)


def draw_groups(points: Points, count: int, batch: int) -> Groups:
    """Draw what ``count`` votes of the FactorVAE score are made of."""
    chosen = points.choose_factors(count)
    members = np.empty((count, batch), dtype=np.intp)
    for f in range(points.factor_count):
        rows = np.flatnonzero(chosen == f)
        members[rows] = points.groups(f, len(rows), batch)
    return Groups(chosen, members)


class StoredPoints:
    """Points of a sample: those that share a value are found among them.

    A pair is of two different points, since a point beside itself would seem to share everything.
    So a value that occurs once is never drawn, and a factor needs one that occurs twice.
    """

    def __init__(self, points: Sample, seed: int) -> None:
        self._codes = points.codes
        self._rng = np.random.default_rng(seed)
        self._by_value = [_Groups(column) for column in points.classes.T]
        for f, groups in enumerate(self._by_value):
            if not len(groups.usable):
                raise ValueError(
                    "factors must have a value that occurs at least twice in every column, got "
                    f"none in column {f}: there are no two points that share it"
                )

    @property
    def factor_count(self) -> int:
        return len(self._by_value)

    def choose_factors(self, count: int) -> Indices:
        return self._rng.integers(self.factor_count, size=count)

    def anywhere(self, count: int) -> Indices:
        return self._rng.integers(len(self._codes), size=count)

    def pairs(self, factor: int, count: int) -> tuple[Indices, Indices]:
        groups = self._by_value[factor]
        place = self._rng.choice(groups.usable, size=count)
        start, size = groups.start[place], groups.size[place]
        other = start + self._rng.integers(size - 1)
        other += other >= place  # any place of the group but the point's own
        return groups.order[place], groups.order[other]

    def groups(self, factor: int, count: int, batch: int) -> Indices:
        groups = self._by_value[factor]
        place = self._rng.choice(groups.usable, size=(count, 1))
        start, size = groups.start[place], groups.size[place]
        return groups.order[start + self._rng.integers(size, size=(count, batch))]

    def codes_at(self, index: Indices) -> Array:
        return self._codes[index]


class _Groups:
    """The rows in order of their value, and for each place where its group begins and its size."""

    def __init__(self, classes: Indices) -> None:
        self.order = np.argsort(classes, kind="stable")
        sizes = np.bincount(classes)
        starts = np.cumsum(sizes) - sizes
        ordered = classes[self.order]
        self.start, self.size = starts[ordered], sizes[ordered]
        self.usable = np.flatnonzero(self.size > 1)
