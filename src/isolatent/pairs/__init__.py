"""Pair sources: worlds, arrays and time series that yield pairs of related observations."""

from isolatent.pairs.arrays import ArrayPairs, check_rows_finite, release_pages
from isolatent.pairs.factor_pairs import FactorPairs, KnownPairs
from isolatent.pairs.frame_pairs import FramePairs
from isolatent.pairs.nearest_latents import NearestLatentPairs
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
    "FramePairs",
    "KnownPairs",
    "NearestLatentPairs",
    "PairSource",
    "Recording",
    "SeparateRecordings",
    "SeriesPairs",
    "SplitError",
    "UnpairedPairs",
    "WorldPairs",
    "check_rows_finite",
    "check_window",
    "lay_out",
    "release_pages",
    "stack_recordings",
]
