"""Read the pairs of a diagnosis, and keep some of them from everything that is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from isolatent.inference import chunk_slices, encode_chunks
from isolatent.pairs import (
    ArrayPairs,
    Batch,
    FinitePairSource,
    PairSource,
    SeparateRecordings,
    SplitError,
)
from isolatent.training import ContrastiveICA
from isolatent.training.paired import split_stacked

__all__ = [
    "HeldOut",
    "TooFewPairsError",
    "checked_source",
    "encode",
    "hold_pairs_out",
    "refit",
    "source_of",
]

TEST_SHARE = 0.25
MOST_TEST_PAIRS, MOST_FIT_PAIRS = 8192, 16_384
FEWEST_TEST_PAIRS = 200


class TooFewPairsError(ValueError):
    """Raised where there are too few pairs to say anything."""


@dataclass(frozen=True)
class HeldOut:
    """Pairs to train with, and pairs that nothing is trained with.

    Attributes:
        source: Source of the pairs to train with.
        fitting: Some of them.
        testing: The pairs to test with.
        n_pairs: Number of all pairs; None if they are endless.
        whole: Source of all pairs.
    """

    source: PairSource
    fitting: Batch
    testing: Batch
    n_pairs: int | None
    whole: PairSource


def source_of(
    model: ContrastiveICA,
    x: Any,
    x_pos: Any,
    groups: Any = None,
    times: Any = None,
    max_gap: int = 0,
) -> PairSource:
    """Return the pairs that a model is diagnosed with.

    Args:
        model: A fitted model.
        x: Observations, a recording, a world or a pair source.
        x_pos: The positive of each row of x, if x is observations.
        groups: For a recording: one session id for each row.
        times: For a recording: the time of each row.
        max_gap: For a recording: longest run of rows with NaN that is interpolated.
    """
    if not isinstance(model, ContrastiveICA):
        raise TypeError(f"model must be a ContrastiveICA, got {model!r}")
    check_is_fitted(model, "encoder_")
    source = checked_source(model, x, x_pos, groups, times, max_gap)
    if isinstance(source, SeparateRecordings):
        raise ValueError(
            "x must be pairs for one encoder: recordings with an encoder each are not diagnosed yet"
        )
    return source


def checked_source(
    model: ContrastiveICA,
    x: Any,
    x_pos: Any,
    groups: Any,
    times: Any,
    max_gap: int,
    *,
    reset: bool = False,
) -> PairSource:
    """Return pairs as ``fit`` reads them: stacked pairs (N, 2, m) are no recording of two rows.

    The arguments are those of :func:`source_of`; ``reset`` is whether x defines the columns.
    """
    shape = getattr(x, "shape", None)
    if shape is None and isinstance(x, list | tuple):
        shape = () if any(np.ndim(part) for part in x) else (len(x),)
    if x is None or (shape is not None and len(shape) == 1):
        raise ValueError(
            "x must be observations (N, m), stacked pairs (N, 2, m), a recording, a world or a "
            f"pair source, got {'None' if x is None else f'shape {tuple(shape or ())}'}"
        )
    if model._takes_stacks and groups is None and times is None:
        x, x_pos = split_stacked(x, x_pos)
    source = model._as_source(x, x_pos, groups, reset, times, max_gap)
    if isinstance(source, ArrayPairs) and _are_equal(source):
        raise ValueError(
            "x_pos must differ from x: pairs of equal observations carry no information"
        )
    return source


def _are_equal(pairs: ArrayPairs) -> bool:
    """Return whether all pairs are of equal observations; memory maps are read in parts."""
    rows = chunk_slices(len(pairs.x), int(np.prod(pairs.x.shape[1:])))
    return all(np.array_equal(pairs.x[part], pairs.x_pos[part]) for part in rows)


def hold_pairs_out(model: ContrastiveICA, source: PairSource, seed: int) -> HeldOut:
    """Split pairs into those to train with and those to test with."""
    generator = Generator().manual_seed(seed)
    n_pairs, whole = None, source
    rest: Any = source
    if isinstance(source, FinitePairSource):
        n_pairs = len(source)
        if TEST_SHARE * n_pairs < FEWEST_TEST_PAIRS:
            raise TooFewPairsError(f"{n_pairs} pairs")
        try:
            source, rest = source.split(TEST_SHARE, generator)
        except SplitError as error:
            raise TooFewPairsError(f"{n_pairs} pairs") from error
    testing = _draw(rest, MOST_TEST_PAIRS, generator)
    fitting = _draw(source, MOST_FIT_PAIRS, generator)
    width = testing.x[:1].numel()
    if width != int(np.prod(model._window_shape)):
        raise ValueError(
            f"x must have {int(np.prod(model._window_shape))} features, as model was fitted with, "
            f"got {width}"
        )
    return HeldOut(source, fitting, testing, n_pairs, whole)


def _draw(source: Any, most: int, generator: Generator) -> Batch:
    count = min(most, len(source)) if isinstance(source, FinitePairSource) else most
    return Batch.of(source.sample(count, generator))


def refit(
    model: ContrastiveICA, source: PairSource, seed: int, **parameters: Any
) -> ContrastiveICA:
    """Return a model with another seed, and perhaps other parameters, fitted to other pairs."""
    other: ContrastiveICA = clone(model)
    # A source of windows draws them stacked already.
    other.set_params(random_state=seed, window=1, **parameters)
    if not isinstance(source, FinitePairSource):
        other.set_params(n_init="auto")  # short runs need pairs that are held out
    return other.fit(source, on_step=lambda step: None)  # one of many: no line in a notebook


def encode(network: nn.Module, pairs: Batch) -> tuple[Tensor, Tensor]:
    """Return the codes of anchors and positives."""
    return encode_chunks(network, pairs.x), encode_chunks(network, pairs.x_pos)
