"""Image datasets with known factors, and transitions of factors between paired images."""

from isolatent.datasets.cifar import load_cifar10
from isolatent.datasets.dsprites import load_dsprites
from isolatent.datasets.factor_grid import FactorArray, FactorWorld
from isolatent.datasets.ident3d import Ident3D, load_3dident
from isolatent.datasets.kitti_masks import (
    KittiMasks,
    load_kitti_masks,
    synthetic_kitti_masks,
)
from isolatent.datasets.labelled_images import LabelledImages
from isolatent.datasets.mnist import load_mnist
from isolatent.datasets.mnist_decoder import MNISTDecoder
from isolatent.datasets.packed_images import PackedImages
from isolatent.datasets.scene3d import SCENE_LATENTS, Scene3D
from isolatent.datasets.shapes3d import Shapes3D
from isolatent.datasets.sprites import SpriteMixing, Sprites, render_sprites
from isolatent.datasets.stored_scenes import RenderedScenes, StoredScenes
from isolatent.datasets.transition_files import read_transitions
from isolatent.datasets.transitions import (
    LaplaceTransitions,
    RecordedTransitions,
    Transitions,
    UniformFactorChange,
    synthetic_transitions,
)

__all__ = [
    "SCENE_LATENTS",
    "FactorArray",
    "FactorWorld",
    "Ident3D",
    "KittiMasks",
    "LabelledImages",
    "LaplaceTransitions",
    "MNISTDecoder",
    "PackedImages",
    "RecordedTransitions",
    "RenderedScenes",
    "Scene3D",
    "Shapes3D",
    "SpriteMixing",
    "Sprites",
    "StoredScenes",
    "Transitions",
    "UniformFactorChange",
    "load_3dident",
    "load_cifar10",
    "load_dsprites",
    "load_kitti_masks",
    "load_mnist",
    "read_transitions",
    "render_sprites",
    "synthetic_kitti_masks",
    "synthetic_transitions",
]
