"""From codes of positive pairs to a number to minimise: similarities, potentials and losses."""

from isolatent.contrast.losses import (
    NCE,
    NWJ,
    AlignUniform,
    AnInfoNCE,
    Ensemble,
    InfoNCE,
    SpectralContrastive,
)
from isolatent.contrast.objective import ContrastiveLoss
from isolatent.contrast.potentials import ConstantPotential, NetworkPotential
from isolatent.contrast.similarities import Dot, Lp, Similarity

__all__ = [
    "NCE",
    "NWJ",
    "AlignUniform",
    "AnInfoNCE",
    "ConstantPotential",
    "ContrastiveLoss",
    "Dot",
    "Ensemble",
    "InfoNCE",
    "Lp",
    "NetworkPotential",
    "Similarity",
    "SpectralContrastive",
]
