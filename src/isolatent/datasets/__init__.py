"""Image data with known factors: sprites, 3-D rooms, published sets, and how factors change."""

from isolatent.datasets.dsprites import load_dsprites
from isolatent.datasets.factor_grid import FactorArray, FactorWorld
from isolatent.datasets.packed import PackedImages
from isolatent.datasets.recorded_transitions import (
    RecordedTransitions,
    read_transitions,
    synthetic_transitions,
)
from isolatent.datasets.shapes3d import Shapes3D
from isolatent.datasets.sprite_mixing import SpriteMixing
from isolatent.datasets.sprites import Sprites, render_sprites
from isolatent.datasets.transitions import LaplaceTransitions, Transitions, UniformFactorChange

__all__ = [
    "FactorArray",
    "FactorWorld",
    "LaplaceTransitions",
    "PackedImages",
    "RecordedTransitions",
    "Shapes3D",
    "SpriteMixing",
    "Sprites",
    "Transitions",
    "UniformFactorChange",
    "load_dsprites",
    "read_transitions",
    "render_sprites",
    "synthetic_transitions",
]
