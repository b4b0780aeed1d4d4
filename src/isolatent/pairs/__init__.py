"""How positives are made: sources of pairs of related observations."""

from isolatent.pairs.factor_pairs import FactorPairs, KnownPairs
from isolatent.pairs.source import (
    ArrayPairs,
    NothingToHoldOut,
    PairSource,
    SeriesPairs,
    WorldPairs,
    check_rows_finite,
    release_pages,
)

__all__ = [
    "ArrayPairs",
    "FactorPairs",
    "KnownPairs",
    "NothingToHoldOut",
    "PairSource",
    "SeriesPairs",
    "WorldPairs",
    "check_rows_finite",
    "release_pages",
]
