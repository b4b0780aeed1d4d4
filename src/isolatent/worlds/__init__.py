"""Data-generating processes with known latents: spaces, distributions, mixings and worlds."""

from isolatent.worlds.distributions import Distribution, GaussianCopula, Independent, Uniform
from isolatent.worlds.generalized_normal import GeneralizedNormal, Laplace, Normal
from isolatent.worlds.mixings import FlowMixing, Identity, InvertibleMLP, Linear, Mixing
from isolatent.worlds.spaces import Box, CubeGrid, Euclidean, HollowBall, Product, Space, Sphere
from isolatent.worlds.spherical import AnisotropicNormal, ShellNormal, VonMisesFisher
from isolatent.worlds.world import World

__all__ = [
    "AnisotropicNormal",
    "Box",
    "CubeGrid",
    "Distribution",
    "Euclidean",
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
    "Product",
    "ShellNormal",
    "Space",
    "Sphere",
    "Uniform",
    "VonMisesFisher",
    "World",
]
