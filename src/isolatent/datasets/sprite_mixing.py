"""A mixing that shows latents as images."""

from __future__ import annotations

from typing import Any

from torch import Generator, Tensor

from isolatent.checks import check_one_of
from isolatent.datasets.outlines import SHAPES, SYMMETRY
from isolatent.datasets.sprites import SIZE, render_sprites
from isolatent.worlds.mixings import Mixing

__all__ = ["SpriteMixing"]

LATENTS = ("scale", "orientation", "x", "y")
ROUNDING = 1e-4  # how far a latent may lie outside [0, 1]


class SpriteMixing(Mixing):
    r"""The image of a sprite, :math:`g: [0, 1]^4 \to [0, 1]^{1 \times 64 \times 64}`.

    The latents are scale (from 0.5 to 1), orientation, x and y, each from 0 to 1. Orientation goes
    through half of the smallest turn that maps the shape onto itself (square π/4, ellipse π/2,
    heart π), so that no two latents look the same and the ends do not meet. Pixels are shares of
    covered area, so that g is continuous; see :func:`render_sprites`. Its inverse has no closed
    form, and :meth:`inverse` raises NotImplementedError.

    Args:
        shape: ``"square"``, ``"ellipse"`` or ``"heart"``.

    Example:
        >>> import isolatent as iso
        >>> mixing = SpriteMixing("heart")
        >>> world = iso.World(iso.Box(4), iso.Uniform(), iso.Laplace(0.05), mixing, seed=0)
        >>> world.sample_pairs(3)[0].shape
        torch.Size([3, 1, 64, 64])
    """

    def __init__(self, shape: str = "heart") -> None:
        super().__init__()
        self.shape = check_one_of("shape", shape, SHAPES)

    @property
    def arguments(self) -> dict[str, Any]:
        return {"shape": self.shape}

    def _observed(self, n: int) -> int:
        if n != len(LATENTS):
            raise ValueError(f"n must be 4 for {self!r}, one latent for each of {LATENTS}, got {n}")
        return SIZE * SIZE

    def _draw(self, n: int, n_observed: int, generator: Generator) -> None:
        pass

    def _mix(self, z: Tensor) -> Tensor:
        inside = z.clamp(0, 1)
        if not bool(((z - inside).abs() <= ROUNDING).all()):
            raise ValueError(
                f"z must lie in [0, 1] for {self!r}, got {float(z.min())} … {float(z.max())}"
            )
        scale, orientation, x, y = inside.T
        turn = SYMMETRY[self.shape] / 2
        return render_sprites(self.shape, 0.5 + scale / 2, turn * orientation, x, y).to(z.device)

    def _unmix(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{self!r} has no inverse in closed form")

    def inverse(self, x: Tensor) -> Tensor:
        """Not available: raises NotImplementedError."""
        return self._unmix(x)
