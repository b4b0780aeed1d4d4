"""From codes of positive pairs to a number to minimise: similarities, potentials and losses."""

from isolatent.contrast.contrastive_loss import ContrastiveLoss
from isolatent.contrast.ensemble import Ensemble
from isolatent.contrast.exponential import NWJ, SpectralContrastive
from isolatent.contrast.losses import NCE, AlignUniform, AnInfoNCE, InfoNCE
from isolatent.contrast.potentials import ConstantPotential, NetworkPotential
from isolatent.contrast.saturated import SaturatedInfoNCE
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
    "SaturatedInfoNCE",
    "Similarity",
    "SpectralContrastive",
]
