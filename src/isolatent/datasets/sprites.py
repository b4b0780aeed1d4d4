"""A dSprites-like world, and a mixing with continuous factors, rendered on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor, nn

from isolatent.checks import check_integer, check_one_of, check_tensor
from isolatent.datasets.factor_grid import FactorWorld
from isolatent.datasets.packed_images import PackedImages, cached_array
from isolatent.datasets.shifted_convolutions import encode_shifted_images
from isolatent.files import digest_data
from isolatent.parallel import map_ranges, max_threads
from isolatent.worlds import Mixing

__all__ = ["SHAPES", "SYMMETRY", "SpriteMixing", "Sprites", "render_sprites"]

SHAPES = ("square", "ellipse", "heart")
SYMMETRY = {"square": math.pi / 2, "ellipse": math.pi, "heart": 2 * math.pi}
"""The smallest rotation that maps each shape onto itself."""

SIZE = 64  # image side in pixels, to which the outlines refer
FIRST, RANGE = 16.5, 31.0  # a sprite's centre is at 16.5 + 31 x pixels, so a grid step is a pixel
WINDOW = 32  # side in pixels of a window that holds any sprite of the grid
CORNER = int(FIRST) - 15  # of the window at the first position
COMPARED = 64  # images of the packed grid that are compared with rendered ones
SPRITES_PER_THREAD = 1024  # least number, 2 to 4 ms of work, for which another thread pays off

SIZES = (len(SHAPES), 6, 40, 32, 32)
LATENTS = ("scale", "orientation", "x", "y")  # of the mixing
LATENT_TOLERANCE = 1e-4  # how far a latent of the mixing may lie outside [0, 1]

Array = NDArray[Any]


def factors_of(sizes: Sequence[int]) -> dict[str, Any]:
    """Return names, categories and values of the varying dSprites factors for these sizes."""
    ends = ((0.5, 1), (0, 2 * np.pi), (0, 1), (0, 1))
    between = [np.linspace(*both, size) for both, size in zip(ends, sizes[1:], strict=True)]
    return {
        "names": ("shape", "scale", "orientation", "x", "y"),
        "categorical": (True, False, False, False, False),
        "values": (np.arange(sizes[0]), *between),
    }


def render_sprites(
    shape: ArrayLike | Tensor,
    scale: ArrayLike | Tensor,
    orientation: ArrayLike | Tensor,
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    *,
    antialias: bool = True,
    size: int = SIZE,
) -> Tensor:
    r"""Render sprites for continuous factors.

    The value of a pixel is exactly the share of its area that the sprite covers, so an image sums
    to the sprite's area :math:`480.5\, s^2` (at 64 × 64) and is a continuous function of the
    factors. Without ``antialias`` a pixel is 1 if its centre lies in the sprite, else 0.

    Args:
        shape: 0, 1, 2 or ``"square"``, ``"ellipse"``, ``"heart"``; like every factor one value
            per image or one for all images.
        scale: Size relative to the largest sprite, in (0, 1].
        orientation: Angle in radians, counter-clockwise.
        x: Position from left (0) to right (1), within which the largest sprite stays inside.
        y: Position from top (0) to bottom (1).
        antialias: Whether pixels hold shares of area.
        size: Image side in pixels, at least 8.

    Returns:
        Images (N, 1, size, size), float32 in [0, 1].

    Example:
        >>> images = render_sprites("heart", 1.0, [0.0, 0.5, 1.0], 0.5, 0.5)
        >>> images.shape, [round(float(image.sum()), 2) for image in images]
        (torch.Size([3, 1, 64, 64]), [480.5, 480.5, 480.5])
    """
    check_integer("size", size, at_least=8)
    given = (
        _shapes(shape),
        _numbers("scale", scale, 0.0, 1.0),
        _numbers("orientation", orientation, -math.inf, math.inf),
        _numbers("x", x, 0.0, 1.0),
        _numbers("y", y, 0.0, 1.0),
    )
    lengths = {len(factor) for factor in given} - {1}
    if any(factor.ndim > 1 for factor in given) or len(lengths) > 1:
        raise ValueError(
            "factors must be numbers or arrays (N,) with one N, got the shapes "
            f"{[factor.shape for factor in given]}"
        )
    factors = np.broadcast_arrays(*given)
    if (factors[1] == 0).any():
        raise ValueError("scale must be above 0, got 0")
    zoom = size / SIZE
    shapes, scales, angles, across, down = factors
    across, down = (zoom * (FIRST + RANGE * position) for position in (across, down))
    out = np.zeros((len(shapes), size, size), np.float32)
    _draw(antialias, out, shapes, zoom * scales, angles, across, down)
    return torch.from_numpy(out)[:, None]


class Sprites(FactorWorld):
    r"""A dSprites-like world: 737 280 binary images, 64 × 64, of a white shape on black.

    The factors are the varying factors of dSprites in the order of its file (its first, colour, has
    one value): shape (square, ellipse, heart), scale (6 values from 0.5 to 1), orientation (40
    from 0 to 2π; as in the original both ends are included, so the first and the last image are
    equal), x and y (32 each from 0 to 1). The images are rendered here; :func:`load_dsprites` reads
    the published ones. All shapes have the same area, rotate around their centroids and are never
    cut off, and a step of x or y is one pixel.

    References:
        Matthey, Higgins, Hassabis, Lerchner: dSprites, disentanglement testing sprites dataset,
        2017.

    Example:
        >>> world = Sprites()
        >>> world, len(world)
        (Sprites(shape: 3, scale: 6, orientation: 40, x: 32, y: 32; dSprites-like), 737280)
        >>> world.observe([[2, 5, 0, 16, 16]]).shape
        torch.Size([1, 1, 64, 64])
    """

    observation_shape = (1, SIZE, SIZE)

    def __init__(self) -> None:
        super().__init__(SIZES, **factors_of(SIZES))

    def _observe(self, factors: Tensor) -> Tensor:
        out = np.zeros((len(factors), SIZE, SIZE), np.float32)
        self._fill(factors, out)
        return torch.from_numpy(out)[:, None]

    def observe_values(self, values: Tensor | ArrayLike) -> Tensor:
        """Render continuous factor values (N, 5) as anti-aliased images (N, 1, 64, 64)."""
        columns = check_tensor("values", values)
        if columns.ndim != 2 or columns.shape[1] != self.n_factors:
            raise ValueError(f"values must have shape (N, 5), got {tuple(columns.shape)}")
        shape, *others = columns.T
        return render_sprites(shape, *others)

    def grid(self, *, cache: bool = True) -> PackedImages:
        """Return all images as packed bits, in the order of the grid.

        Positions are whole pixels, so the 720 sprites at one position determine the whole grid,
        which takes about 110 kB. It is cached on disk (:mod:`isolatent.datasets.packed_images`)
        under a hash of the factor values and the source code; reading it saves the compilation of
        the renderer.

        Args:
            cache: Whether to read the grid from the cache and to write it there.

        Example:
            >>> world = Sprites()
            >>> images = world.grid(cache=False)
            >>> images.shape, bool((images[1234] == world.observe(world.factors_at([1234]))).all())
            ((737280, 64, 64), True)
        """
        if cache:
            here = Path(__file__)
            key = digest_data(*self.values, here, here.with_name("sprite_raster.py"))
            bits = cached_array("sprites", key, self._windows)
        else:
            bits = self._windows()
        steps = np.arange(self.sizes[-1])
        column, row = np.meshgrid(CORNER + steps, CORNER + steps, indexing="ij")
        places = np.stack([row.ravel(), column.ravel()], axis=1)
        return PackedImages(bits, (WINDOW, WINDOW), (SIZE, SIZE), places)

    def encode_grid(self, module: nn.Module) -> Tensor | None:
        """Return the codes (N, C) of all images of the grid, computed together.

        Images that differ by a shift share their first convolutions, see
        :func:`~isolatent.datasets.shifted_convolutions.encode_shifted_images`. Return None if the
        module does not start with such convolutions, or if a subclass shows other images.
        """
        images = self.grid()
        if len(images) != len(self):
            return None
        some = torch.linspace(0, len(images) - 1, COMPARED).long()
        shown = self.observe(self.factors_at(some))
        stored = torch.from_numpy(images[some.numpy()]).to(shown)
        if not torch.equal(shown.flatten(), stored.flatten()):
            return None
        return encode_shifted_images(module, images)

    def _windows(self) -> NDArray[np.uint8]:
        """Return packed windows of all shapes, scales and orientations at the first position."""
        per_sprite = self.sizes[3] * self.sizes[4]
        factors = self.factors_at(np.arange(0, len(self), per_sprite))
        out = np.zeros((len(factors), SIZE, SIZE), np.uint8)
        self._fill(factors, out)
        shown = slice(CORNER, CORNER + WINDOW)
        return np.packbits(out[:, shown, shown].reshape(len(out), -1), axis=1)

    def _fill(self, factors: Tensor, out: Array) -> None:
        shape, scale, orientation, x, y = factors.numpy().T
        # Positions from indices, since values are whole steps only up to rounding.
        _draw(
            *(False, out, shape, self.values[1][scale], self.values[2][orientation]),
            *(FIRST + x, FIRST + y),
        )

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + "; dSprites-like)"


class SpriteMixing(Mixing):
    r"""A mixing that renders a sprite, :math:`g: [0, 1]^4 \to [0, 1]^{1 \times 64 \times 64}`.

    The latents are scale (from 0.5 to 1), orientation, x and y, each from 0 to 1. Orientation
    covers half of the smallest rotation that maps the shape onto itself (square π/4, ellipse π/2,
    heart π), so that g is injective and not periodic. Pixels are shares of covered area, so that g
    is continuous; see :func:`render_sprites`. Its inverse has no closed form, and :meth:`inverse`
    raises NotImplementedError.

    Args:
        shape: ``"square"``, ``"ellipse"`` or ``"heart"``.

    Example:
        >>> import isolatent as iso
        >>> mixing = SpriteMixing("heart")
        >>> world = iso.World(iso.Box(4), iso.Uniform(), iso.Laplace(0.05), mixing, seed=0)
        >>> world.sample_pairs(3)[0].shape
        torch.Size([3, 1, 64, 64])
    """

    image_shape = (1, SIZE, SIZE)

    def __init__(self, shape: str = "heart") -> None:
        super().__init__()
        self.shape = check_one_of("shape", shape, SHAPES)

    def _observed(self, n: int) -> int:
        if n != len(LATENTS):
            raise ValueError(f"n must be 4 for {self!r}, one latent for each of {LATENTS}, got {n}")
        return SIZE * SIZE

    def _draw(self, n: int, n_observed: int, generator: Generator) -> None:
        pass

    def _mix(self, z: Tensor) -> Tensor:
        inside = z.clamp(0, 1)
        if not bool(((z - inside).abs() <= LATENT_TOLERANCE).all()):
            raise ValueError(
                f"z must lie in [0, 1] for {self!r}, got {float(z.min())} … {float(z.max())}"
            )
        scale, orientation, x, y = inside.T
        turn = SYMMETRY[self.shape] / 2
        return render_sprites(self.shape, 0.5 + scale / 2, turn * orientation, x, y).to(z.device)

    def _unmix(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{self!r} has no inverse in closed form")

    def inverse(self, x: Tensor) -> Tensor:
        """Raise NotImplementedError."""
        return self._unmix(x)


def _draw(antialias: bool, out: Array, *factors: Array) -> None:
    """Render images into the zeros of out (N, S, S), on as many threads as torch has."""
    from isolatent.datasets.sprite_raster import (  # numba takes a second to import
        cover,
        fill,
        outlines,
    )

    kernel: Callable[..., None] = cover if antialias else fill
    columns = [np.ascontiguousarray(factors[0], np.int64)]
    columns += [np.ascontiguousarray(column, np.float64) for column in factors[1:]]

    def work(_: int, first: int, last: int) -> None:
        kernel(*outlines(), *columns, first, last, out)

    map_ranges(work, len(out), min(max_threads(), len(out) // SPRITES_PER_THREAD))


def _shapes(value: ArrayLike | Tensor) -> NDArray[np.int64]:
    array = np.atleast_1d(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
    if array.dtype.kind in "U":
        for name in np.unique(array):
            check_one_of("shape", str(name), SHAPES)
        return np.array([SHAPES.index(name) for name in array.ravel()]).reshape(array.shape)
    if array.dtype.kind not in "iuf" or not np.isin(array, range(len(SHAPES))).all():
        raise ValueError(f"shape must be 0, 1, 2 or one of {SHAPES}, got {value!r}")
    return array.astype(np.int64)


def _numbers(name: str, value: ArrayLike | Tensor, low: float, high: float) -> Array:
    array = np.atleast_1d(check_tensor(name, value).detach().cpu().double().numpy())
    outside = ~(np.isfinite(array) & (array >= low) & (array <= high))
    if outside.any():
        allowed = "finite" if math.isinf(high) else f"from {low:g} to {high:g}"
        raise ValueError(f"{name} must be {allowed}, got {array[outside][0]}")
    return array
