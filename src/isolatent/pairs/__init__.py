"""Pair sources: worlds, arrays and time series that yield pairs of related observations.

Names are loaded on first use, so that reading a file does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isolatent.pairs.arrays import ArrayPairs as ArrayPairs
    from isolatent.pairs.arrays import check_rows_finite as check_rows_finite
    from isolatent.pairs.arrays import release_pages as release_pages
    from isolatent.pairs.arrays import tensor_as_array as tensor_as_array
    from isolatent.pairs.augmentations import AUGMENTATIONS as AUGMENTATIONS
    from isolatent.pairs.augmentations import AugmentationParameters as AugmentationParameters
    from isolatent.pairs.augmentations import Augmentations as Augmentations
    from isolatent.pairs.augmentations import AugmentedPairs as AugmentedPairs
    from isolatent.pairs.augmentations import KnownViews as KnownViews
    from isolatent.pairs.augmentations import augment as augment
    from isolatent.pairs.dataset_pairs import DatasetPairs as DatasetPairs
    from isolatent.pairs.dataset_pairs import LoaderPairs as LoaderPairs
    from isolatent.pairs.dataset_pairs import as_pair_source as as_pair_source
    from isolatent.pairs.dataset_pairs import is_torch_data as is_torch_data
    from isolatent.pairs.digests import digest_source as digest_source
    from isolatent.pairs.factor_pairs import FactorPairs as FactorPairs
    from isolatent.pairs.factor_pairs import KnownPairs as KnownPairs
    from isolatent.pairs.frame_pairs import FramePairs as FramePairs
    from isolatent.pairs.images import ImagePairs as ImagePairs
    from isolatent.pairs.images import Images as Images
    from isolatent.pairs.images import read_image_pairs as read_image_pairs
    from isolatent.pairs.images import read_images as read_images
    from isolatent.pairs.nearest_latents import NearestLatentPairs as NearestLatentPairs
    from isolatent.pairs.preprocessing import Mismatch as Mismatch
    from isolatent.pairs.preprocessing import find_mismatch as find_mismatch
    from isolatent.pairs.recordings import Recording as Recording
    from isolatent.pairs.recordings import check_window as check_window
    from isolatent.pairs.recordings import stack_recordings as stack_recordings
    from isolatent.pairs.separate_recordings import SeparateRecordings as SeparateRecordings
    from isolatent.pairs.separate_recordings import lay_out as lay_out
    from isolatent.pairs.series import SeriesPairs as SeriesPairs
    from isolatent.pairs.source import Batch as Batch
    from isolatent.pairs.source import FinitePairSource as FinitePairSource
    from isolatent.pairs.source import PairSource as PairSource
    from isolatent.pairs.source import SplitError as SplitError
    from isolatent.pairs.source import WorldPairs as WorldPairs
    from isolatent.pairs.unpaired import UnpairedPairs as UnpairedPairs
    from isolatent.pairs.views import ViewPairs as ViewPairs
    from isolatent.pairs.world_views import WorldViews as WorldViews

_MODULES = {
    "arrays": (
        "ArrayPairs",
        "check_rows_finite",
        "release_pages",
        "tensor_as_array",
    ),
    "augmentations": (
        "AUGMENTATIONS",
        "AugmentationParameters",
        "Augmentations",
        "AugmentedPairs",
        "KnownViews",
        "augment",
    ),
    "dataset_pairs": (
        "DatasetPairs",
        "LoaderPairs",
        "as_pair_source",
        "is_torch_data",
    ),
    "digests": ("digest_source",),
    "factor_pairs": (
        "FactorPairs",
        "KnownPairs",
    ),
    "frame_pairs": ("FramePairs",),
    "images": (
        "ImagePairs",
        "Images",
        "read_image_pairs",
        "read_images",
    ),
    "nearest_latents": ("NearestLatentPairs",),
    "preprocessing": (
        "Mismatch",
        "find_mismatch",
    ),
    "recordings": (
        "Recording",
        "check_window",
        "stack_recordings",
    ),
    "separate_recordings": (
        "SeparateRecordings",
        "lay_out",
    ),
    "series": ("SeriesPairs",),
    "source": (
        "Batch",
        "FinitePairSource",
        "PairSource",
        "SplitError",
        "WorldPairs",
    ),
    "unpaired": ("UnpairedPairs",),
    "views": ("ViewPairs",),
    "world_views": ("WorldViews",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'isolatent.pairs' has no attribute {name!r}")
    value = getattr(import_module(f"isolatent.pairs.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return __all__
