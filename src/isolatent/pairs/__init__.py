"""Pair sources: worlds, arrays and time series that yield pairs of related observations."""

from isolatent.pairs.arrays import ArrayPairs, check_rows_finite, release_pages
from isolatent.pairs.augmentations import (
    AUGMENTATIONS,
    AugmentationParameters,
    Augmentations,
    AugmentedPairs,
    KnownViews,
    augment,
)
from isolatent.pairs.factor_pairs import FactorPairs, KnownPairs
from isolatent.pairs.frame_pairs import FramePairs
from isolatent.pairs.images import ImagePairs, Images, read_image_pairs, read_images
from isolatent.pairs.nearest_latents import NearestLatentPairs
from isolatent.pairs.recordings import Recording, check_window, stack_recordings
from isolatent.pairs.separate_recordings import SeparateRecordings, lay_out
from isolatent.pairs.series import SeriesPairs
from isolatent.pairs.source import Batch, FinitePairSource, PairSource, SplitError, WorldPairs
from isolatent.pairs.unpaired import UnpairedPairs

__all__ = [
    "AUGMENTATIONS",
    "ArrayPairs",
    "AugmentationParameters",
    "Augmentations",
    "AugmentedPairs",
    "Batch",
    "FactorPairs",
    "FinitePairSource",
    "FramePairs",
    "ImagePairs",
    "Images",
    "KnownPairs",
    "KnownViews",
    "NearestLatentPairs",
    "PairSource",
    "Recording",
    "SeparateRecordings",
    "SeriesPairs",
    "SplitError",
    "UnpairedPairs",
    "WorldPairs",
    "augment",
    "check_rows_finite",
    "check_window",
    "lay_out",
    "read_image_pairs",
    "read_images",
    "release_pages",
    "stack_recordings",
]
