"""Pairs of a world of images, seen through random augmentations."""

from __future__ import annotations

from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer
from isolatent.pairs.augmentations import Augmentations, augment
from isolatent.pairs.factor_pairs import KnownPairs
from isolatent.worlds import World

__all__ = ["WorldViews"]


class WorldViews:
    """Endless pairs from a world of images, each image augmented on its own: a pair source.

    With a very narrow conditional both are views of one scene, which is how contrastive learning is
    mostly used where nothing but images is known.

    Args:
        world: A world whose mixing shows images with pixels in [0, 1].
        augmentations: Distributions of the views; by default all that suit the images.

    Attributes:
        ordered: False; views are made of both images alike.

    Example:
        >>> import torch, isolatent as iso
        >>> mixing = iso.datasets.Scene3D(size=16)
        >>> world = iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(1e-9), mixing, seed=0)
        >>> x, x_pos = WorldViews(world).sample(4, torch.Generator().manual_seed(0))
        >>> x.shape, bool((x != x_pos).flatten(1).any(1).all())
        (torch.Size([4, 3, 16, 16]), True)
    """

    ordered = False

    def __init__(self, world: World, augmentations: Augmentations | None = None) -> None:
        if not isinstance(world, World):
            raise TypeError(f"world must be a World, got {world!r}")
        shown = world.observe(world.space.center()[None])
        if shown.ndim != 4:
            raise ValueError(
                "world must show images (N, channels, height, width), got observations of shape "
                f"{tuple(shown.shape[1:])}"
            )
        if augmentations is None:
            augmentations = Augmentations.for_channels(shown.shape[1])
        if not isinstance(augmentations, Augmentations):
            raise TypeError(f"augmentations must be Augmentations, got {augmentations!r}")
        augmentations.check(shown.shape[1])
        self.world, self.augmentations = world, augmentations

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs of views."""
        known = self.sample_known(batch_size, generator)
        return known.x, known.x_pos

    def sample_known(self, batch_size: int, generator: Generator) -> KnownPairs:
        """Draw the pairs that ``sample`` draws, with the latents of the images."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        latents = self.world.sample_latents(batch_size, generator)
        x, x_pos = (
            augment(self.world.mixing(z), self.augmentations.draw(batch_size, generator))
            for z in latents
        )
        return KnownPairs(x, x_pos, *latents)

    def __repr__(self) -> str:
        return f"WorldViews({self.world!r}, {self.augmentations!r})"
