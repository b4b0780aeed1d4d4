"""Pairs of stored images, whose latents are the stored ones nearest to those that were drawn."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_real
from isolatent.datasets import StoredScenes
from isolatent.pairs.factor_pairs import KnownPairs
from isolatent.pairs.source import SplitError
from isolatent.worlds import World

__all__ = ["NearestLatentPairs"]


class NearestLatentPairs:
    r"""Pairs of stored images, as `zimmermann2021` draws them from 3DIdent.

    A latent z is drawn from the marginal of a world, and the anchor is the image whose latents
    :math:`\tilde z` are nearest to it. Then z' is drawn from the conditional around
    :math:`\tilde z`, and the positive is the nearest image to z' but the anchor itself. Distances
    are Euclidean, and the search is exact (a k-d tree of SciPy).

    How well this follows the conditional depends on the number of images: among N of them in a box
    of side s and n dimensions, the nearest is about :math:`s\, N^{-1/n}` away. In ten dimensions
    that is more than a conditional's usual width even for N = 250 000, so steps are wider than
    declared; a world that renders (:class:`isolatent.WorldPairs`) has no such limit.

    Args:
        stored: Images with their latents, such as :func:`isolatent.datasets.load_3dident` or
            :class:`isolatent.datasets.RenderedScenes`.
        world: A world of as many latents, of which space, marginal and conditional are used; its
            mixing is not.

    Attributes:
        ordered: True; positives are drawn given their anchors.

    Example:
        >>> import isolatent as iso
        >>> mixing = iso.datasets.Scene3D(size=16)
        >>> world = iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(0.1), mixing, seed=0)
        >>> pairs = NearestLatentPairs(iso.datasets.RenderedScenes.of(world, 200), world)
        >>> x, x_pos = pairs.sample(4, torch.Generator().manual_seed(0))
        >>> x.shape, bool((x != x_pos).flatten(1).any(1).all())
        (torch.Size([4, 3, 16, 16]), True)
    """

    ordered = True

    def __init__(self, stored: StoredScenes, world: World) -> None:
        if not isinstance(stored, StoredScenes):
            raise TypeError(f"stored must have latents and observe, got {stored!r}")
        if not isinstance(world, World):
            raise TypeError(f"world must be a World, got {world!r}")
        latents = np.asarray(stored.latents, np.float64)
        if latents.shape[1:] != (world.n_latents,) or len(latents) < 2:
            raise ValueError(
                f"stored must have at least 2 rows of {world.n_latents} latents, as many as the "
                f"world has, got {latents.shape}"
            )
        self.stored, self.world = stored, world
        self._set_rows(latents, np.arange(len(latents)))

    def _set_rows(self, latents: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
        from scipy.spatial import cKDTree

        self._latents, self._rows = latents, rows
        self._tree = cKDTree(latents[rows])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._rows)

    def split(
        self, share: float, generator: Generator
    ) -> tuple[NearestLatentPairs, NearestLatentPairs]:
        """Split the images at random: most of them, and ``share`` of them.

        Both images of a pair are in one part. Steps of the smaller part are wider.
        """
        check_real("share", share, above=0, below=1)
        check_generator("generator", generator)
        cut = round(len(self) * (1 - share))
        if not 2 <= cut <= len(self) - 2:
            raise SplitError(
                f"share must leave at least 2 of the {len(self)} images on either side, got {share}"
            )
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        rows = self._rows[order.cpu().numpy()]
        most, rest = copy.copy(self), copy.copy(self)
        most._set_rows(self._latents, np.sort(rows[:cut]))
        rest._set_rows(self._latents, np.sort(rows[cut:]))
        return most, rest

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ``batch_size`` pairs of images."""
        known = self.sample_known(batch_size, generator)
        return known.x, known.x_pos

    def sample_known(self, batch_size: int, generator: Generator) -> KnownPairs:
        """Draw the pairs that ``sample`` draws, with their stored latents."""
        anchors, positives = self.sample_rows(batch_size, generator)
        # One call, so that a reader of files can read all of them side by side.
        x, x_pos = self.stored.observe(np.concatenate([anchors, positives])).split(batch_size)
        y, y_pos = (torch.from_numpy(self._latents[rows]) for rows in (anchors, positives))
        return KnownPairs(x, x_pos, y, y_pos)

    def sample_rows(
        self, batch_size: int, generator: Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw the rows of anchors and of their positives."""
        check_integer("batch_size", batch_size, at_least=1)
        check_generator("generator", generator)
        z = self.world.sample_anchors(batch_size, generator)
        anchors = self._tree.query(_points(z))[1]
        around = torch.from_numpy(self._latents[self._rows[anchors]])
        z_pos = self.world.conditional.sample(self.world.space, around.to(z), generator)
        nearest: Any = self._tree.query(_points(z_pos), k=2)[1]
        first, second = nearest.T
        positives = np.where(first == anchors, second, first)
        return self._rows[anchors], self._rows[positives]

    def __repr__(self) -> str:
        return f"NearestLatentPairs({len(self)} images, {self.world.conditional!r})"


def _points(z: Tensor) -> NDArray[np.float64]:
    return z.detach().cpu().double().numpy()
