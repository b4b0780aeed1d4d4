"""From observations to codes: whitening, networks and output heads."""

from isolatent.encoders.axes import PrincipalAxes
from isolatent.encoders.convolutional import ConvEncoder, PooledEncoder, ResidualEncoder
from isolatent.encoders.heads import BoxHead, SphereHead
from isolatent.encoders.mlp import MLP, PaperMLP
from isolatent.encoders.straightening import Straightening
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
