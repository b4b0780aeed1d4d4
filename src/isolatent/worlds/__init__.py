"""Where data with known factors come from: spaces, distributions, mixings, worlds."""

from isolatent.worlds.distributions import Distribution, GaussianCopula, Independent, Uniform
from isolatent.worlds.dsprites import load_dsprites
from isolatent.worlds.factors import FactorArray, FactorWorld
from isolatent.worlds.generalized_normal import GeneralizedNormal, Laplace, Normal
from isolatent.worlds.mixings import FlowMixing, Identity, InvertibleMLP, Linear, Mixing
from isolatent.worlds.packed import PackedImages
from isolatent.worlds.shapes3d import Shapes3D
from isolatent.worlds.spaces import Box, CubeGrid, Euclidean, HollowBall, Product, Space, Sphere
from isolatent.worlds.spherical import AnisotropicNormal, ShellNormal, VonMisesFisher
from isolatent.worlds.sprite_mixing import SpriteMixing
from isolatent.worlds.sprites import Sprites, render_sprites
from isolatent.worlds.world import World

__all__ = [
    "AnisotropicNormal",
    "Box",
    "CubeGrid",
    "Distribution",
    "Euclidean",
    "FactorArray",
    "FactorWorld",
    "FlowMixing",
    "GaussianCopula",
    "GeneralizedNormal",
    "HollowBall",
    "Identity",
    "Independent",
    "InvertibleMLP",
    "Laplace",
    "Linear",
    "Mixing",
    "Normal",
    "PackedImages",
    "Product",
    "Shapes3D",
    "ShellNormal",
    "Space",
    "Sphere",
    "SpriteMixing",
    "Sprites",
    "Uniform",
    "VonMisesFisher",
    "World",
    "load_dsprites",
    "render_sprites",
]
