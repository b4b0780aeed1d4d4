"""Pair sources: worlds, arrays and time series that yield pairs of related observations."""

from isolatent.pairs.arrays import (
    ArrayPairs,
    check_not_truncated,
    check_rows_finite,
    release_pages,
    tensor_as_array,
)
from isolatent.pairs.digests import digest_source
from isolatent.pairs.factor_pairs import FactorPairs, KnownPairs
from isolatent.pairs.preprocessing import Mismatch, find_mismatch
from isolatent.pairs.recordings import Recording, check_window, stack_recordings
from isolatent.pairs.separate_recordings import SeparateRecordings, lay_out
from isolatent.pairs.series import SeriesPairs
from isolatent.pairs.source import Batch, FinitePairSource, PairSource, SplitError, WorldPairs
from isolatent.pairs.unpaired import UnpairedPairs

__all__ = [
    "ArrayPairs",
    "Batch",
    "FactorPairs",
    "FinitePairSource",
    "KnownPairs",
    "Mismatch",
    "PairSource",
    "Recording",
    "SeparateRecordings",
    "SeriesPairs",
    "SplitError",
    "UnpairedPairs",
    "WorldPairs",
    "check_not_truncated",
    "check_rows_finite",
    "check_window",
    "digest_source",
    "find_mismatch",
    "lay_out",
    "release_pages",
    "stack_recordings",
    "tensor_as_array",
]
