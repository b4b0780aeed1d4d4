"""From codes of positive pairs to a loss: similarities, potentials and losses."""

from isolatent.contrast.contrastive_loss import ContrastiveLoss
from isolatent.contrast.ensemble import Ensemble
from isolatent.contrast.losses import (
    NCE,
    NWJ,
    AlignUniform,
    AnInfoNCE,
    InfoNCE,
    SpectralContrastive,
)
from isolatent.contrast.saturated import SaturatedInfoNCE
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
    "ConstantPotential",
    "ContrastiveLoss",
    "Dot",
    "Ensemble",
    "InfoNCE",
    "Lp",
    "NetworkPotential",
    "SaturatedInfoNCE",
    "Similarity",
    "SpectralContrastive",
]
