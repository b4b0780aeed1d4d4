"""Worlds: latents, their positives, and the mixing that makes observations of both."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from isolatent.checks import check_generator, check_integer, check_tensor
from isolatent.worlds.declaration import from_dict, to_dict
from isolatent.worlds.distributions import Distribution
from isolatent.worlds.mixings import Mixing
from isolatent.worlds.spaces import Space

__all__ = ["World"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}
LARGEST_SEED = 2**63 - 1
ROUNDING = 1e-5  # tolerance for given latents outside the space, relative to its size


class World:
    r"""A data-generating process :math:`z \sim p(z),\; z' \sim p(z'|z),\; x = g(z),\; x' = g(z')`.

    The seed determines the weights of the mixing and the world's own generator, which is used
    where no other is passed and whose state each call advances.

    Args:
        space: The space of the latents.
        marginal: The distribution of anchors, around the centre of the space.
        conditional: The distribution of positives around their anchors.
        mixing: The map from latents to observations.
        seed: Integer from 0 to 2⁶³ - 1.
        dtype: ``torch.float32`` or ``torch.float64``, of all samples.
        device: Device of all samples.

    Example:
        >>> import isolatent as iso
        >>> world = iso.World(iso.Box(2), iso.Uniform(), iso.Laplace(0.05), iso.Identity(), seed=0)
        >>> z, z_pos = world.sample_latents(3)
        >>> x, x_pos = world.sample_pairs(3)
        >>> world.from_dict(world.to_dict()) == world
        True
    """

    def __init__(
        self,
        space: Space,
        marginal: Distribution,
        conditional: Distribution,
        mixing: Mixing,
        seed: int = 0,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, value, kind in (
            ("space", space, Space),
            ("marginal", marginal, Distribution),
            ("conditional", conditional, Distribution),
            ("mixing", mixing, Mixing),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
        if dtype not in DTYPES.values():
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype!r}")
        marginal.check(space)
        conditional.check(space)
        self.space = space
        self.marginal = marginal
        self.conditional = conditional
        self.seed = check_integer("seed", seed, at_least=0, at_most=LARGEST_SEED)
        self.dtype = dtype
        self.device = torch.device(device)
        built = mixing.build(space.n, Generator().manual_seed(self.seed))
        self.mixing = built.to(self.device)
        # Another seed than the mixing's, so that samples do not repeat the numbers of its weights.
        self.generator = Generator(self.device).manual_seed((self.seed + 1) * 0x9E3779B9 % 2**63)

    @property
    def n_latents(self) -> int:
        """Number of latent coordinates n."""
        return self.space.n

    @property
    def n_observed(self) -> int:
        """Number of observed dimensions m."""
        assert self.mixing.n_observed is not None
        return self.mixing.n_observed

    def sample_anchors(self, n: int, generator: Generator | None = None) -> Tensor:
        """Draw z (n, n_latents) from the marginal."""
        check_integer("n", n, at_least=1)
        center = self.space.center().to(self.device, self.dtype).expand(n, self.space.n)
        return self.marginal.sample(self.space, center, self._stream(generator))

    def sample_positives(self, z: Tensor | ArrayLike, generator: Generator | None = None) -> Tensor:
        """Draw one positive z' for each anchor, a row of z (n, n_latents)."""
        return self.conditional.sample(self.space, self._latents(z), self._stream(generator))

    def sample_latents(self, n: int, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw n anchors z and their positives z'."""
        z = self.sample_anchors(n, generator)
        return z, self.conditional.sample(self.space, z, self._stream(generator))

    def observe(self, z: Tensor | ArrayLike) -> Tensor:
        """Map latents (n, n_latents) to observations (n, n_observed).

        Floating-point tensors and arrays keep their dtype; lists and integers get the world's.

        Raises:
            ValueError: If a row of z lies outside the space by more than 1e-5 of its size.
        """
        observed: Tensor = self.mixing(self._latents(z))
        return observed

    def sample_pairs(self, n: int, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw n pairs of observations x, x'."""
        z, z_pos = self.sample_latents(n, generator)
        return self.mixing(z), self.mixing(z_pos)

    def _stream(self, generator: Generator | None) -> Generator:
        return self.generator if generator is None else check_generator("generator", generator)

    def _latents(self, z: Tensor | ArrayLike) -> Tensor:
        points = check_tensor("z", z).to(self.device)
        has_precision = (isinstance(z, Tensor) and z.is_floating_point()) or (
            isinstance(z, np.ndarray) and z.dtype.kind == "f"
        )
        if not has_precision:
            points = points.to(self.dtype)
        inside = self.space.contains(points, tolerance=ROUNDING)
        if not bool(inside.all()):
            row = int((~inside).nonzero()[0])
            raise ValueError(
                f"z must lie in {self.space!r}, but {int((~inside).sum())} of {len(points)} rows "
                f"do not, first row {row}: {points[row].tolist()}"
            )
        return points

    def __repr__(self) -> str:
        parts = (self.space, self.marginal, self.conditional, self.mixing)
        dtype = "" if self.dtype == torch.float32 else f", dtype={self.dtype}"
        return f"World({', '.join(map(repr, parts))}, seed={self.seed}{dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, World) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return the world as plain data for JSON and TOML, without its device."""
        return {
            "space": to_dict(self.space),
            "marginal": to_dict(self.marginal),
            "conditional": to_dict(self.conditional),
            "mixing": to_dict(self.mixing),
            "seed": self.seed,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    @classmethod
    def from_dict(cls, spec: dict[str, Any], device: torch.device | str = "cpu") -> Self:
        """Build the world that :meth:`to_dict` described, with the same weights and generator."""
        required = {"space", "marginal", "conditional", "mixing", "seed"}
        if not isinstance(spec, dict) or not required <= set(spec) <= required | {"dtype"}:
            raise ValueError(
                f"spec must be a dict with the keys {sorted(required)} and optionally 'dtype', "
                f"got {sorted(spec) if isinstance(spec, dict) else spec!r}"
            )
        dtype = spec.get("dtype", "float32")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {dtype!r}")
        parts = {name: from_dict(spec[name]) for name in sorted(required - {"seed"})}
        return cls(**parts, seed=spec["seed"], dtype=DTYPES[dtype], device=device)
