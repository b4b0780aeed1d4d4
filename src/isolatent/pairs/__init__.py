"""How positives are made: sources of pairs of related observations."""

from isolatent.pairs.sources import (
    ArrayPairs,
    NothingToHoldOut,
    PairSource,
    SeriesPairs,
    WorldPairs,
    release_pages,
)

__all__ = [
    "ArrayPairs",
    "NothingToHoldOut",
    "PairSource",
    "SeriesPairs",
    "WorldPairs",
    "release_pages",
]
