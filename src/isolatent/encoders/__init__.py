"""From observations to codes: whitening, networks and output heads."""

from isolatent.encoders.heads import BoxHead, SphereHead
from isolatent.encoders.networks import MLP
from isolatent.encoders.whitening import Whitening

__all__ = ["MLP", "BoxHead", "SphereHead", "Whitening"]
