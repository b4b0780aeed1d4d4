"""From codes of positive pairs to a loss: similarities, potentials and losses."""

from isolatent.contrast.contrastive_loss import ContrastiveLoss
from isolatent.contrast.ensemble import Ensemble
from isolatent.contrast.full_matrix import FullAnInfoNCE
from isolatent.contrast.losses import (
    NCE,
    NWJ,
    AlignUniform,
    AnInfoNCE,
    InfoNCE,
    SpectralContrastive,
)
from isolatent.contrast.posteriors import PosteriorHead, PosteriorInfoNCE
from isolatent.contrast.relaxations import (
    AnchorScale,
    FactorScale,
    LinearDynamics,
    NetworkDynamics,
    Pairing,
)
from isolatent.contrast.saturated import SaturatedAnInfoNCE, SaturatedInfoNCE, SphereMoments
from isolatent.contrast.similarities import (
    ConstantPotential,
    Dot,
    Lp,
    NetworkPotential,
    Similarity,
)

__all__ = [
    "NCE",
    "NWJ",
    "AlignUniform",
    "AnInfoNCE",
    "AnchorScale",
    "ConstantPotential",
    "ContrastiveLoss",
    "Dot",
    "Ensemble",
    "FactorScale",
    "FullAnInfoNCE",
    "InfoNCE",
    "LinearDynamics",
    "Lp",
    "NetworkDynamics",
    "NetworkPotential",
    "Pairing",
    "PosteriorHead",
    "PosteriorInfoNCE",
    "SaturatedAnInfoNCE",
    "SaturatedInfoNCE",
    "Similarity",
    "SpectralContrastive",
    "SphereMoments",
]
