"""Recover the true factors behind data, and know what may be claimed about them.

The names below are the ones most programs need; the packages hold the rest, such as
``isolatent.encoders.BoxHead``. Both are loaded on first use, so that ``import isolatent`` costs
milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isolatent.baselines import SupervisedEncoder as SupervisedEncoder
    from isolatent.contrast import NCE as NCE
    from isolatent.contrast import NWJ as NWJ
    from isolatent.contrast import AlignUniform as AlignUniform
    from isolatent.contrast import AnInfoNCE as AnInfoNCE
    from isolatent.contrast import Dot as Dot
    from isolatent.contrast import Ensemble as Ensemble
    from isolatent.contrast import InfoNCE as InfoNCE
    from isolatent.contrast import Lp as Lp
    from isolatent.contrast import SpectralContrastive as SpectralContrastive
    from isolatent.diagnosis import choose as choose
    from isolatent.diagnosis import consistency as consistency
    from isolatent.diagnosis import diagnose as diagnose
    from isolatent.evaluation import block_mcc as block_mcc
    from isolatent.evaluation import block_r2 as block_r2
    from isolatent.evaluation import bootstrap as bootstrap
    from isolatent.evaluation import linear_r2 as linear_r2
    from isolatent.evaluation import mcc as mcc
    from isolatent.pairs import ArrayPairs as ArrayPairs
    from isolatent.pairs import Batch as Batch
    from isolatent.pairs import PairSource as PairSource
    from isolatent.pairs import SeriesPairs as SeriesPairs
    from isolatent.pairs import WorldPairs as WorldPairs
    from isolatent.report import write_report as write_report
    from isolatent.theory import Beliefs as Beliefs
    from isolatent.theory import Guarantee as Guarantee
    from isolatent.theory import derive_guarantee as derive_guarantee
    from isolatent.training import ContrastiveICA as ContrastiveICA
    from isolatent.training import PairedTransformer as PairedTransformer
    from isolatent.training import Recipe as Recipe
    from isolatent.worlds import AnisotropicNormal as AnisotropicNormal
    from isolatent.worlds import Box as Box
    from isolatent.worlds import CubeGrid as CubeGrid
    from isolatent.worlds import Euclidean as Euclidean
    from isolatent.worlds import FlowMixing as FlowMixing
    from isolatent.worlds import GaussianCopula as GaussianCopula
    from isolatent.worlds import GeneralizedNormal as GeneralizedNormal
    from isolatent.worlds import HollowBall as HollowBall
    from isolatent.worlds import Identity as Identity
    from isolatent.worlds import Independent as Independent
    from isolatent.worlds import InvertibleMLP as InvertibleMLP
    from isolatent.worlds import Laplace as Laplace
    from isolatent.worlds import Linear as Linear
    from isolatent.worlds import Normal as Normal
    from isolatent.worlds import Product as Product
    from isolatent.worlds import ShellNormal as ShellNormal
    from isolatent.worlds import Sphere as Sphere
    from isolatent.worlds import Uniform as Uniform
    from isolatent.worlds import VonMisesFisher as VonMisesFisher
    from isolatent.worlds import World as World

_EXPORTS = {
    "worlds": (
        "Sphere",
        "Box",
        "Euclidean",
        "HollowBall",
        "CubeGrid",
        "Product",
        "Uniform",
        "GeneralizedNormal",
        "Normal",
        "Laplace",
        "VonMisesFisher",
        "GaussianCopula",
        "AnisotropicNormal",
        "ShellNormal",
        "Independent",
        "InvertibleMLP",
        "Linear",
        "Identity",
        "FlowMixing",
        "World",
    ),
    "theory": (
        "Beliefs",
        "Guarantee",
        "derive_guarantee",
    ),
    "pairs": (
        "Batch",
        "PairSource",
        "WorldPairs",
        "ArrayPairs",
        "SeriesPairs",
    ),
    "contrast": (
        "Dot",
        "Lp",
        "InfoNCE",
        "AnInfoNCE",
        "NCE",
        "SpectralContrastive",
        "NWJ",
        "AlignUniform",
        "Ensemble",
    ),
    "evaluation": (
        "linear_r2",
        "mcc",
        "block_r2",
        "block_mcc",
        "bootstrap",
    ),
    "training": (
        "ContrastiveICA",
        "PairedTransformer",
        "Recipe",
    ),
    "baselines": ("SupervisedEncoder",),
    "diagnosis": (
        "diagnose",
        "choose",
        "consistency",
    ),
    "report": ("write_report",),
}
_PACKAGES = (
    *("worlds", "datasets", "theory", "pairs", "encoders", "contrast", "evaluation", "training"),
    *("baselines", "diagnosis", "experiments", "figure_data", "plot", "report"),
)
_PACKAGE_OF = {name: package for package, names in _EXPORTS.items() for name in names}

__all__ = sorted(_PACKAGE_OF)
__version__ = version("isolatent")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"isolatent.{name}")
    if name not in _PACKAGE_OF:
        raise AttributeError(f"module 'isolatent' has no attribute {name!r}")
    value = getattr(import_module(f"isolatent.{_PACKAGE_OF[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES, "__version__"]
