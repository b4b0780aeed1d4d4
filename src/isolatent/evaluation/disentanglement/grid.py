"""A world on a grid of factors, with every point encoded once however often it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isolatent.checks import check_integer
from isolatent.evaluation.assignment import Indices
from isolatent.evaluation.columns import Array, as_columns
from isolatent.parallel import map_threads

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from isolatent.datasets import PackedImages

__all__ = ["EncodedGrid", "GridWorld"]

BATCH = 64  # images at a time: what passes between layers stays in the cache

WORLD = ("names", "sizes", "categorical", "__len__", "factors_at", "observe")

SAMPLED = 64  # images of a packed grid that are compared with what its world shows

MARKED = 2**27  # points up to which a grid has a mark for each of them


class GridWorld(Protocol):
    """What is asked of a world: factors with finitely many values, and an observation of each.

    Of :class:`~isolatent.worlds.Sprites`, images that differ by a shift are encoded together.
    """

    @property
    def names(self) -> Sequence[str]:
        """What the factors are called."""

    @property
    def sizes(self) -> Sequence[int]:
        """How many values each factor has."""

    @property
    def categorical(self) -> Sequence[bool]:
        """Which factors have no order."""

    def __len__(self) -> int: ...

    def sample_factors(self, count: int, generator: Generator) -> Tensor:
        """Draw factors (count, F)."""

    def index_of(self, factors: Tensor) -> Tensor:
        """Return the place of factors (count, F) in the grid."""

    def factors_at(self, index: Tensor) -> Tensor:
        """Return the factors (count, F) at places in the grid."""

    def observe(self, factors: Tensor) -> Tensor:
        """Return what is seen of factors (count, F)."""


class EncodedGrid:
    """Codes of a world's grid points, computed when first asked for and then looked up.

    The two scores that work on batches ask for some three million points of grids that have fewer:
    dSprites has 737 280. Only points that are asked for are encoded.

    Args:
        encoder: Anything with ``transform(x)``, or a callable (a module is put in evaluation mode
            for the call), from observations to codes (N, C). The module that ``code_module()``
            returns, which estimators with a network have, is called instead of ``transform``.
        world: A world on a grid; see :class:`GridWorld`.
        seed: Seeds all draws.

    Attributes:
        encoded: How many points have been encoded.

    Example:
        >>> import torch
        >>> class Square:  # or a world of `isolatent.worlds`
        ...     names, sizes, categorical = ("row", "column"), (4, 4), (False, False)
        ...     def __len__(self): return 16
        ...     def factors_at(self, index): return torch.stack([index // 4, index % 4], 1)
        ...     def observe(self, factors): return factors.float()
        >>> grid = EncodedGrid(lambda x: 10 * x, Square(), seed=0)
        >>> grid.codes_at(np.array([5, 5, 14])), grid.encoded
        (array([[10., 10.],
               [10., 10.],
               [30., 20.]]), 2)
    """

    def __init__(self, encoder: Any, world: GridWorld, seed: int) -> None:
        from torch import Generator  # here, so that scores of arrays do without torch

        if isinstance(world, type):  # which may have all that is asked for, too
            raise TypeError(f"world must be an instance, such as Sprites(), got {world!r}")
        lacks = [name for name in WORLD if not hasattr(world, name)]
        if lacks:
            raise TypeError(
                f"world must have a grid of factors, as Sprites() has, got {type(world).__name__} "
                f"without {lacks[0]}"
            )
        self._module, self._encode = _as_function(encoder)
        single = [n for n, size in zip(world.names, world.sizes, strict=True) if size < 2]
        if single:
            raise ValueError(
                f"world must have factors of at least 2 values, got {single[0]!r} with one; a "
                "factor that never changes cannot be scored"
            )
        self.world = world
        self._generator = Generator().manual_seed(check_integer("seed", seed, at_least=0))
        self._index = np.empty(0, dtype=np.int64)  # of the encoded points, ascending
        self._codes: Array | None = None

    @property
    def encoded(self) -> int:
        return len(self._index)

    @property
    def factor_count(self) -> int:
        """How many factors there are."""
        return len(self.world.sizes)

    def choose_factors(self, count: int) -> Indices:
        """Choose a factor at random, ``count`` times."""
        import torch

        return torch.randint(self.factor_count, (count,), generator=self._generator).numpy()

    def anywhere(self, count: int) -> Indices:
        """Draw points as the world does."""
        return self._place(self.world.sample_factors(count, self._generator))

    def pairs(self, factor: int, count: int) -> tuple[Indices, Indices]:
        """Draw pairs of points that are independent but for the value of one factor."""
        first, second = (self.world.sample_factors(count, self._generator) for _ in range(2))
        second[:, factor] = first[:, factor]
        return self._place(first), self._place(second)

    def groups(self, factor: int, count: int, batch: int) -> Indices:
        """Draw ``count`` batches, (count, batch), each with one value of one factor."""
        drawn = self.world.sample_factors(count * batch, self._generator)
        column = drawn[:, factor].view(count, batch)
        drawn[:, factor] = column[:, :1].expand(count, batch).reshape(-1)
        return self._place(drawn).reshape(count, batch)

    def factors_at(self, index: Indices) -> Indices:
        """Return the factors (N, F) of points."""
        import torch

        return self.world.factors_at(torch.from_numpy(index)).numpy()

    def encode(self, *indices: Indices) -> None:
        """Encode those of the points that have not been encoded yet."""
        missing = np.setdiff1d(self._distinct(indices), self._index, assume_unique=True)
        if not len(missing):
            return
        codes = self._of_shifted_images(missing)
        if codes is None:
            codes = self._of_observations(missing)
        if self._codes is not None:
            codes = np.concatenate([self._codes, codes])
        index = np.concatenate([self._index, missing])
        order = np.argsort(index)
        self._index, self._codes = index[order], codes[order]

    def _of_observations(self, points: Indices) -> Array:
        """Return the codes of points, batch by batch."""
        import torch

        # A world of others may not bear being asked by several threads at once.
        own = type(self.world).__module__.startswith("isolatent.")
        one_at_a_time: AbstractContextManager[Any] = nullcontext() if own else Lock()

        def encode(part: Indices) -> Array:
            with one_at_a_time:
                x = self.world.observe(self.world.factors_at(torch.from_numpy(part)))
            return self._encode(x)

        batches = np.array_split(points, -(-len(points) // BATCH))
        known = self._module is not None
        return np.concatenate(
            map_threads(encode, batches) if known else [encode(part) for part in batches]
        )

    def _of_shifted_images(self, points: Indices) -> Array | None:
        """Return the codes of points, window by window, if the images and the encoder allow it."""
        if self._module is None or 2 * len(points) < len(self.world):
            return None  # every place of a window is encoded, which should be worth it
        from isolatent.datasets import Sprites
        from isolatent.evaluation.disentanglement.sharing import shared_encoder

        # Of others nothing is known: what they call a grid may be anything.
        if not isinstance(self.world, Sprites):
            return None
        images = self.world.grid()
        if not self._shows(images):
            return None
        encode = shared_encoder(self._module, images)
        if encode is None:
            return None
        codes = map_threads(encode, range(len(images.bits)))
        return as_columns("codes", np.concatenate(codes)[points])

    def _shows(self, images: PackedImages) -> bool:
        """Whether the world shows these images, by some of them: a subclass may show others."""
        import torch

        if len(images) != len(self.world):
            return False
        some = torch.linspace(0, len(images) - 1, SAMPLED).long()
        shown = self.world.observe(self.world.factors_at(some))
        return torch.equal(
            shown.flatten(), torch.as_tensor(images[some.numpy()]).to(shown).flatten()
        )

    def _distinct(self, indices: Sequence[Indices]) -> Indices:
        """Return the points among the indices in ascending order, each once."""
        if len(self.world) > MARKED:
            return np.unique(np.concatenate([np.unique(index) for index in indices]))
        asked = np.zeros(len(self.world), dtype=bool)  # much faster than sorting millions
        for index in indices:
            asked[index] = True
        return np.flatnonzero(asked)

    def codes_at(self, index: Indices) -> Array:
        """Return the codes of points, with the shape of ``index`` and one axis more."""
        if self.encoded == len(self.world):  # every point is in its place
            place = index
        else:
            place = np.searchsorted(self._index, index)
            known = self._index[np.minimum(place, self.encoded - 1)] if self.encoded else None
            if known is None or not np.array_equal(known, index):
                self.encode(index)
                place = np.searchsorted(self._index, index)
        if self._codes is None:
            raise ValueError("index must hold at least one point, got none")
        return self._codes[place]

    def _place(self, factors: Tensor) -> Indices:
        return np.asarray(self.world.index_of(factors).numpy(), dtype=np.int64)


def _as_function(encoder: Any) -> tuple[nn.Module | None, Callable[[Tensor], Array]]:
    """Return a function from observations to checked codes (N, C), and its module if known."""
    from torch import Tensor, nn

    from isolatent.evaluation.disentanglement.inference import has_known_layers

    encode: Callable[[Tensor], Any]
    module = None
    if isinstance(encoder, type):  # which has the methods and is callable, too
        raise TypeError(f"model must be an instance, fitted if it is an estimator, got {encoder!r}")
    if isinstance(encoder, nn.Module):
        module, encode = encoder, _own_precision(encoder)
    elif hasattr(encoder, "code_module"):
        module = encoder.code_module()
        encode = _own_precision(module)
    elif hasattr(encoder, "transform"):
        encode = encoder.transform
    elif callable(encoder):
        encode = encoder
    else:
        raise TypeError(
            f"model must have a method transform or be callable, got {type(encoder).__name__}"
        )

    def checked(x: Tensor) -> Array:
        codes = encode(x)
        codes = codes.detach().cpu().double().numpy() if isinstance(codes, Tensor) else codes
        if isinstance(codes, tuple) or not hasattr(codes, "__len__"):
            raise TypeError(f"model must return codes (N, C), got a {type(codes).__name__}")
        if len(codes) != len(x):
            raise ValueError(f"model must return one code per point ({len(x)}), got {len(codes)}")
        if len(x) == 1:  # `as_columns` asks for two rows
            return as_columns("codes", np.repeat(np.asarray(codes), 2, axis=0))[:1]
        return as_columns("codes", codes)

    # A module of others may not bear being called from several threads.
    return (module if module is not None and has_known_layers(module) else None), checked


def _own_precision(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the prepared module, given observations in its own precision and on its device."""
    from isolatent.evaluation.disentanglement.inference import prepared

    call, weight = prepared(module), next(module.parameters(), None)
    return call if weight is None else lambda x: call(x.to(weight))
