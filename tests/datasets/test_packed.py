"""Packed images are the array that was packed."""

import numpy as np
import pytest

from isolatent.datasets import PackedImages

RANDOM = np.random.default_rng(0)
WINDOWS = RANDOM.random((3, 4, 8)) < 0.5
PLACES = [(0, 0), (2, 1), (1, 3), (2, 3)]
EMPTY: list[int] = []


@pytest.fixture
def packed():
    return PackedImages(np.packbits(WINDOWS.reshape(3, -1), axis=1), (4, 8), (6, 11), PLACES)


@pytest.fixture
def dense():
    images = np.zeros((12, 6, 11), bool)
    for cell in range(12):
        row, column = PLACES[cell % 4]
        images[cell, row : row + 4, column : column + 8] = WINDOWS[cell // 4]
    return images


@pytest.mark.parametrize(
    "index",
    [4, -1, slice(2, 8, 3), [5, 5, 0], np.array([[1, 2], [3, -4]]), np.arange(12) % 2 == 0, EMPTY],
    ids=str,
)
def test_indexing_is_that_of_the_dense_array(packed, dense, index):
    shown = packed[index]
    expected = dense[np.array(index, int) if index is EMPTY else index]
    assert shown.dtype == bool
    assert np.array_equal(shown, expected)


def test_size(packed):
    assert packed.shape == (12, 6, 11)
    assert len(packed) == 12
    assert packed.nbytes == 3 * 4 + 4 * 16


def test_errors(packed):
    for index in (12, -13, [0, 12], [0.5], np.ones(3, bool)):
        with pytest.raises(IndexError, match=r"index|range"):
            packed[index]
    bits = np.zeros((3, 4), np.uint8)
    with pytest.raises(ValueError, match="bits must be uint8"):
        PackedImages(bits, (4, 7))
    with pytest.raises(ValueError, match="places must keep windows"):
        PackedImages(bits, (4, 8), (4, 8), [(0, 1)])
    with pytest.raises(ValueError, match=r"places must have shape \(P, 2\)"):
        PackedImages(bits, (4, 8), (4, 8), [0, 1])
