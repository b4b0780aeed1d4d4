"""From observations to codes: whitening, networks, output heads and calibration."""

from isolatent.encoders.calibration import PrincipalAxes, Straightening
from isolatent.encoders.convolutional import ConvEncoder, PooledEncoder, ResidualEncoder
from isolatent.encoders.heads import BoxHead, SphereHead
from isolatent.encoders.mlp import MLP, PaperMLP
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
