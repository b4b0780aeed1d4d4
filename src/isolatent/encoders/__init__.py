"""From observations to codes: whitening, networks, output heads and calibration."""

from isolatent.encoders.calibration import PrincipalAxes, Straightening
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
]
