"""How positives are made: sources of pairs of related observations."""

from isolatent.pairs.grids import FactorPairs, KnownPairs
from isolatent.pairs.recorded import RecordedTransitions, natural_transitions, read_transitions
from isolatent.pairs.sources import (
    ArrayPairs,
    NothingToHoldOut,
    PairSource,
    SeriesPairs,
    WorldPairs,
    check_rows_finite,
    release_pages,
)
from isolatent.pairs.transitions import LaplaceTransitions, Transitions, UniformFactorChange

__all__ = [
    "ArrayPairs",
    "FactorPairs",
    "KnownPairs",
    "LaplaceTransitions",
    "NothingToHoldOut",
    "PairSource",
    "RecordedTransitions",
    "SeriesPairs",
    "Transitions",
    "UniformFactorChange",
    "WorldPairs",
    "check_rows_finite",
    "natural_transitions",
    "read_transitions",
    "release_pages",
]
