"""From observations to codes: whitening, networks, output heads, calibration and axes."""

from isolatent.encoders.calibration import PrincipalAxes, Straightening
from isolatent.encoders.independence import find_independent_axes
from isolatent.encoders.lagged import find_dynamic_axes
from isolatent.encoders.linear_axes import Axes, Dynamics, LinearAxes
from isolatent.encoders.networks import (
    MLP,
    BoxHead,
    ConvEncoder,
    PaperMLP,
    PooledEncoder,
    ProjectedEncoder,
    ResidualEncoder,
    SphereHead,
)
from isolatent.encoders.recording_encoders import RecordingEncoders
from isolatent.encoders.whitening import Anscombe, Whitening

__all__ = [
    "MLP",
    "Anscombe",
    "Axes",
    "BoxHead",
    "ConvEncoder",
    "Dynamics",
    "LinearAxes",
    "PaperMLP",
    "PooledEncoder",
    "PrincipalAxes",
    "ProjectedEncoder",
    "RecordingEncoders",
    "ResidualEncoder",
    "SphereHead",
    "Straightening",
    "Whitening",
    "find_dynamic_axes",
    "find_independent_axes",
]
