"""Cells and factors correspond, and any array in grid order is a world."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isolatent.datasets import FactorArray, PackedImages, factor_grid


def grid(sizes, **options):
    return FactorArray(np.zeros((int(np.prod(sizes)), 1)), sizes, **options)


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_index_of_and_factors_at_are_inverse(sizes):
    world = grid(sizes)
    cells = torch.arange(len(world))
    factors = world.factors_at(cells)
    assert torch.equal(world.index_of(factors), cells)
    assert factors.tolist() == [
        list(cell) for cell in np.ndindex(*sizes)
    ]  # the last factor is the fastest
    assert world.n_factors == len(sizes)


def test_factors_are_uniform_and_independent(generator):
    world = grid((3, 1, 4))
    counts = np.bincount(world.index_of(world.sample_factors(60_000, generator)), minlength=12)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_names_flags_and_values():
    world = grid(
        (2, 3), names=("shape", "x"), categorical=(True, False), values=([5, 7], [0, 1, 2])
    )
    assert world.names == ("shape", "x")
    assert world.categorical == (True, False)
    assert world.values_of([[1, 2], [0, 0]]).tolist() == [[7, 2], [5, 0]]
    assert grid((2, 3)).names == ("factor_0", "factor_1")
    for sizes in (np.array([2, 3], np.uint8), torch.tensor([2, 3])):
        assert FactorArray(np.zeros((6, 1)), sizes).sizes == (2, 3)
    assert grid((2,), values=([False, True],)).values_of([[1]]).tolist() == [[1]]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, bool])
def test_every_kind_of_array_gives_the_same_images(dtype, tmp_path):
    bits = np.random.default_rng(0).random((6, 4, 8)) < 0.5
    top = 255 if dtype == np.uint8 else 1
    stored = bits.astype(dtype) * np.asarray(top, dtype)
    np.save(tmp_path / "images.npy", stored)
    packed = PackedImages(np.packbits(bits.reshape(6, -1), axis=1), (4, 8))
    kinds = [stored, torch.from_numpy(stored), np.load(tmp_path / "images.npy", mmap_mode="r")]
    factors = [[1, 2], [0, 0], [1, 2]]
    for images in (*kinds, packed):
        world = FactorArray(images, (2, 3))
        shown = world.observe(factors)
        assert shown.dtype == torch.float32
        assert shown.shape == (3, *world.observation_shape) == (3, 1, 4, 8)
        assert np.array_equal(shown[:, 0], bits[[5, 0, 5]])


def test_channels_and_vectors_keep_their_shape():
    assert FactorArray(np.zeros((6, 3, 4, 4)), (6,)).observe([[2]]).shape == (1, 3, 4, 4)
    assert FactorArray(np.zeros((6, 7)), (6,)).observe([[2]]).shape == (1, 7)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, bool])
def test_zeros_and_ones_of_any_dtype_are_shown_unscaled(dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(factor_grid, "SCANNED_VALUES", 40)  # two images of 16 pixels at a time
    bits = np.zeros((5, 4, 4), dtype)
    bits[4, 3, 3] = 1
    np.save(tmp_path / "bits.npy", bits)
    for images in (bits, np.load(tmp_path / "bits.npy", mmap_mode="r")):
        world = FactorArray(images, (5,))
        assert world.largest == 1
        assert float(world.observe([[4]]).max()) == 1
    if dtype is not bool:
        bits[4, 3, 3] = 2  # a single larger number in the last pixel
        assert FactorArray(bits, (5,)).largest == 255
    assert FactorArray(bits, (5,), largest=4).observe([[4]]).max() == bits.max() / 4
    assert FactorArray(np.full((5, 1), 0.5), (5,)).largest == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: grid(()), TypeError, "sizes must be one integer for each factor"),
        (lambda: grid((2, 0)), ValueError, r"sizes\[1\] must be an integer >= 1, got 0"),
        (lambda: grid((2, 3), names=("a",)), ValueError, "names must have 2 entries"),
        (lambda: grid((2, 3), names=("a", "a")), ValueError, "names must differ"),
        (lambda: grid((2,), categorical=(1,)), TypeError, "categorical must hold booleans"),
        (lambda: grid((2,), values=([1, 2, 3],)), ValueError, r"values of factor_0 must have"),
        (lambda: grid((2,), values=(["a", "b"],)), TypeError, r"values of factor_0 .*, got \['a'"),
        (lambda: grid((2,), values=([1, [2]],)), TypeError, "values of factor_0 must be numbers"),
        (
            lambda: grid((2,), values=([1, np.nan],)),
            ValueError,
            "values of factor_0 must be finite",
        ),
        (lambda: grid(np.array([2.0])), TypeError, r"sizes\[0\] must be an integer >= 1, got 2.0"),
        (lambda: grid(np.array(2)), TypeError, "sizes must be one integer for each factor, got 2"),
        (lambda: FactorArray(np.zeros((5, 2, 2)), (2, 3)), ValueError, r"images must have shape"),
        (lambda: FactorArray(np.full((2, 1), "a"), (2,)), TypeError, "images must be real"),
        (lambda: grid((2, 3)).observe([[0, 3]]), ValueError, r"factors\[:, 1\] must be from 0 to"),
        (lambda: grid((2, 3)).observe([[0.0, 1.0]]), TypeError, "factors must be integers"),
        (lambda: grid((2, 3)).observe([[0]]), ValueError, r"factors must have shape \(N, 2\)"),
        (lambda: grid((2, 3)).factors_at([6]), ValueError, r"index\[:, 0\] must be from 0 to 5"),
        (lambda: grid((2, 3)).factors_at(3), ValueError, r"index must have shape \(N,\), got \(\)"),
        (
            lambda: grid((2,)).factors_at([[1]]),
            ValueError,
            r"index must have shape \(N,\), got \(1",
        ),
        (
            lambda: FactorArray(np.zeros((2, 8, 8, 3)), (2,)),
            ValueError,
            r"images must have their channels first, .* got \(2, 8, 8, 3\); use np.moveaxis",
        ),
        (
            lambda: FactorArray(np.full((2, 2, 2), 1.5), (2,)).observe([[0]]),
            ValueError,
            r"images must lie in \[0, 1\]",
        ),
        (
            lambda: FactorArray(np.full((2, 2, 2), -1), (2,)).observe([[0]]),
            ValueError,
            r"images must lie in \[0, 1\] .* got values from -1 to -1",
        ),
        (
            lambda: FactorArray(np.zeros((2, 1)), (2,), largest=0),
            ValueError,
            "largest must be a finite number > 0, got 0",
        ),
    ],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
