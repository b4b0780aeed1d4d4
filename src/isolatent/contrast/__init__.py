"""From codes of positive pairs to a number to minimise: similarities and losses."""

from isolatent.contrast.losses import InfoNCE
from isolatent.contrast.similarities import Dot, Lp, Similarity

__all__ = ["Dot", "InfoNCE", "Lp", "Similarity"]
