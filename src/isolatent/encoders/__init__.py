"""From observations to codes: whitening, networks, output heads and calibration."""

from isolatent.encoders.calibration import PrincipalAxes, Straightening, box_share
from isolatent.encoders.networks import (
    MLP,
    BoxHead,
    ConvEncoder,
    PaperMLP,
    PooledEncoder,
    ResidualEncoder,
    SphereHead,
)
from isolatent.encoders.whitening import Whitening

__all__ = [
    "MLP",
    "BoxHead",
    "ConvEncoder",
    "PaperMLP",
    "PooledEncoder",
    "PrincipalAxes",
    "ResidualEncoder",
    "SphereHead",
    "Straightening",
    "Whitening",
    "box_share",
]
