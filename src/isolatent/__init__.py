"""Recover the true factors behind data, and know what may be claimed about them.

Names are loaded on first use, so that ``import isolatent`` costs milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isolatent.baselines import AdaGVAE as AdaGVAE
    from isolatent.baselines import AdaMLVAE as AdaMLVAE
    from isolatent.baselines import BetaVAE as BetaVAE
    from isolatent.baselines import LinearICA as LinearICA
    from isolatent.baselines import LinearPCA as LinearPCA
    from isolatent.baselines import SlowFeatures as SlowFeatures
    from isolatent.baselines import SlowVAE as SlowVAE
    from isolatent.baselines import SupervisedEncoder as SupervisedEncoder
    from isolatent.contrast import NCE as NCE
    from isolatent.contrast import NWJ as NWJ
    from isolatent.contrast import AlignUniform as AlignUniform
    from isolatent.contrast import AnInfoNCE as AnInfoNCE
    from isolatent.contrast import ConstantPotential as ConstantPotential
    from isolatent.contrast import ContrastiveLoss as ContrastiveLoss
    from isolatent.contrast import Dot as Dot
    from isolatent.contrast import Ensemble as Ensemble
    from isolatent.contrast import InfoNCE as InfoNCE
    from isolatent.contrast import Lp as Lp
    from isolatent.contrast import NetworkPotential as NetworkPotential
    from isolatent.contrast import SaturatedInfoNCE as SaturatedInfoNCE
    from isolatent.contrast import Similarity as Similarity
    from isolatent.contrast import SpectralContrastive as SpectralContrastive
    from isolatent.evaluation import DCI as DCI
    from isolatent.evaluation import Disentanglement as Disentanglement
    from isolatent.evaluation import Guarantee as Guarantee
    from isolatent.evaluation import Interval as Interval
    from isolatent.evaluation import beta_vae_score as beta_vae_score
    from isolatent.evaluation import block_mcc as block_mcc
    from isolatent.evaluation import block_r2 as block_r2
    from isolatent.evaluation import bootstrap as bootstrap
    from isolatent.evaluation import dci as dci
    from isolatent.evaluation import evaluate_disentanglement as evaluate_disentanglement
    from isolatent.evaluation import explicitness as explicitness
    from isolatent.evaluation import factor_vae_score as factor_vae_score
    from isolatent.evaluation import linear_r2 as linear_r2
    from isolatent.evaluation import mcc as mcc
    from isolatent.evaluation import mig as mig
    from isolatent.evaluation import modularity as modularity
    from isolatent.evaluation import sap as sap
    from isolatent.pairs import ArrayPairs as ArrayPairs
    from isolatent.pairs import FactorPairs as FactorPairs
    from isolatent.pairs import LaplaceTransitions as LaplaceTransitions
    from isolatent.pairs import PairSource as PairSource
    from isolatent.pairs import RecordedTransitions as RecordedTransitions
    from isolatent.pairs import SeriesPairs as SeriesPairs
    from isolatent.pairs import UniformFactorChange as UniformFactorChange
    from isolatent.pairs import WorldPairs as WorldPairs
    from isolatent.pairs import natural_transitions as natural_transitions
    from isolatent.pairs import read_transitions as read_transitions
    from isolatent.training import ContrastiveICA as ContrastiveICA
    from isolatent.training import Recipe as Recipe
    from isolatent.worlds import AnisotropicNormal as AnisotropicNormal
    from isolatent.worlds import Box as Box
    from isolatent.worlds import CubeGrid as CubeGrid
    from isolatent.worlds import Euclidean as Euclidean
    from isolatent.worlds import FactorArray as FactorArray
    from isolatent.worlds import FactorWorld as FactorWorld
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
    from isolatent.worlds import PackedImages as PackedImages
    from isolatent.worlds import Product as Product
    from isolatent.worlds import Shapes3D as Shapes3D
    from isolatent.worlds import ShellNormal as ShellNormal
    from isolatent.worlds import Sphere as Sphere
    from isolatent.worlds import SpriteMixing as SpriteMixing
    from isolatent.worlds import Sprites as Sprites
    from isolatent.worlds import Uniform as Uniform
    from isolatent.worlds import VonMisesFisher as VonMisesFisher
    from isolatent.worlds import World as World
    from isolatent.worlds import load_dsprites as load_dsprites
    from isolatent.worlds import render_sprites as render_sprites

_EXPORTS = {
    "worlds": (
        *("Sphere", "Box", "Euclidean", "HollowBall", "CubeGrid", "Product"),
        *("Uniform", "GeneralizedNormal", "Normal", "Laplace", "VonMisesFisher", "GaussianCopula"),
        *("AnisotropicNormal", "ShellNormal", "Independent"),
        *("InvertibleMLP", "Linear", "Identity", "FlowMixing", "World"),
        *("FactorWorld", "FactorArray", "PackedImages", "Sprites", "SpriteMixing", "Shapes3D"),
        *("load_dsprites", "render_sprites"),
    ),
    "pairs": (
        *("PairSource", "WorldPairs", "ArrayPairs", "SeriesPairs", "FactorPairs"),
        *("UniformFactorChange", "LaplaceTransitions", "RecordedTransitions"),
        *("natural_transitions", "read_transitions"),
    ),
    "contrast": (
        *("Dot", "Lp", "ConstantPotential", "NetworkPotential", "InfoNCE", "AnInfoNCE", "NCE"),
        *("SpectralContrastive", "NWJ", "AlignUniform", "Ensemble", "ContrastiveLoss"),
        *("SaturatedInfoNCE", "Similarity"),
    ),
    "evaluation": (
        *("linear_r2", "mcc", "block_r2", "block_mcc", "bootstrap", "Interval", "Guarantee"),
        *("beta_vae_score", "factor_vae_score", "mig", "dci", "DCI", "modularity", "explicitness"),
        *("sap", "Disentanglement", "evaluate_disentanglement"),
    ),
    "training": ("ContrastiveICA", "Recipe"),
    "baselines": (
        *("BetaVAE", "SlowVAE", "AdaGVAE", "AdaMLVAE"),
        *("LinearPCA", "LinearICA", "SlowFeatures", "SupervisedEncoder"),
    ),
}
_PACKAGE_OF = {name: package for package, names in _EXPORTS.items() for name in names}

__all__ = sorted(_PACKAGE_OF)
__version__ = version("isolatent")


def __getattr__(name: str) -> Any:
    if name not in _PACKAGE_OF:
        raise AttributeError(f"module 'isolatent' has no attribute {name!r}")
    value = getattr(import_module(f"isolatent.{_PACKAGE_OF[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
