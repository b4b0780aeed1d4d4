"""Pair sources: worlds, arrays and time series that yield pairs of related observations."""

from isolatent.pairs.arrays import ArrayPairs, check_rows_finite, release_pages
from isolatent.pairs.factor_pairs import FactorPairs, KnownPairs
from isolatent.pairs.series import SeriesPairs
from isolatent.pairs.source import Batch, FinitePairSource, PairSource, SplitError, WorldPairs

__all__ = [
    "ArrayPairs",
    "Batch",
    "FactorPairs",
    "FinitePairSource",
    "KnownPairs",
    "PairSource",
    "SeriesPairs",
    "SplitError",
    "WorldPairs",
    "check_rows_finite",
    "release_pages",
]
