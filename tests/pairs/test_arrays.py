"""Pairs from two arrays: distinct within a batch, and split without overlap."""

import os

import numpy as np
import pytest
import torch

from isolatent.pairs import ArrayPairs, Batch, SeriesPairs
from isolatent.pairs.arrays import check_rows_finite, draw_distinct

X = np.arange(40.0).reshape(20, 2)


def test_each_pair_is_in_one_part_of_a_split():
    most, rest = ArrayPairs(X, -X).split(0.25, torch.Generator().manual_seed(0))
    assert (len(most), len(rest)) == (15, 5)
    rows = torch.cat([most.all()[0], rest.all()[0]])
    assert sorted(rows[:, 0].tolist()) == X[:, 0].tolist()
    x, x_pos = rest.all()
    assert torch.equal(x, -x_pos)


def test_splits_share_the_arrays(tmp_path):
    big = np.memmap(tmp_path / "big", np.float32, "w+", shape=(5_000_000, 1000))  # 20 GB, sparse
    most, rest = ArrayPairs(big, big).split(0.1, torch.Generator().manual_seed(0))
    assert most.x is rest.x is rest.x_pos is big
    assert (len(most), len(rest)) == (4_500_000, 500_000)
    again, _ = rest.split(0.5, torch.Generator().manual_seed(0))
    assert set(again.rows) < set(rest.rows)
    assert again.sample(8, torch.Generator().manual_seed(0))[0].shape == (8, 1000)


@pytest.mark.parametrize(("rows", "batch"), [(20, 20), (20, 7), (1000, 100), (100_000, 5000)])
def test_a_batch_holds_no_pair_twice(rows, batch):
    x = np.arange(rows, dtype=float)[:, None]
    source, generator = ArrayPairs(x, x), torch.Generator().manual_seed(0)
    batches = [source.sample(batch, generator)[0] for _ in range(3)]
    assert all(len(drawn.unique()) == batch for drawn in batches)
    assert not torch.equal(batches[0], batches[1])


def test_a_batch_larger_than_the_data_repeats_all_pairs():
    drawn, _ = ArrayPairs(X, X).sample(50, torch.Generator().manual_seed(0))
    assert len(drawn[:20].unique(dim=0)) == len(drawn[20:40].unique(dim=0)) == 20
    assert len(drawn) == 50


def test_each_pair_is_equally_likely_at_each_position():
    x = np.arange(9.0)[:, None]
    source, generator = ArrayPairs(x, x), torch.Generator().manual_seed(0)
    draws = torch.cat([source.sample(2, generator)[0].T for _ in range(9000)])
    for column in draws.T:
        counts = torch.bincount(column.long(), minlength=9)
        assert (counts - 1000).abs().max() < 4.5 * 1000**0.5


def test_other_number_formats_are_converted():
    for array in (
        *(X.astype(dtype) for dtype in (">f8", ">f4", ">i2", np.longdouble, np.float16)),
        *(torch.from_numpy(X).to(dtype) for dtype in (torch.float16, torch.bfloat16)),
    ):
        x, x_pos = ArrayPairs(array, array).all()
        assert x.tolist() == x_pos.tolist() == X.tolist()
        SeriesPairs(array).sample(3, torch.Generator())


def test_the_precision_of_pairs():
    for given_dtype, expected in (
        (np.float64, torch.float64),
        (np.float32, torch.float32),
        (np.float16, torch.float32),
        (np.uint8, torch.float32),
        (np.bool_, torch.float32),
    ):
        array = np.ones((4, 2), given_dtype)
        x, _ = ArrayPairs(array, array).sample(3, torch.Generator().manual_seed(0))
        assert x.dtype == expected
    tensor = torch.ones(4, 2, requires_grad=True)
    assert ArrayPairs(tensor, tensor).sample(3, torch.Generator())[0].shape == (3, 2)


def test_negatives_and_tags_belong_to_their_pairs():
    negatives = np.stack([X + 100, X + 200, X + 300], 1)
    source = ArrayPairs(X, -X, negatives=negatives, tags=np.arange(20, dtype=np.int32))
    parts = source.split(0.25, torch.Generator().manual_seed(0))
    drawn = [part.sample(8, torch.Generator().manual_seed(0)) for part in (source, *parts)]
    for batch in (*drawn, source.all(), *(part.all() for part in parts)):
        assert isinstance(batch, Batch)
        assert batch.tags.dtype == torch.int64
        assert torch.equal(batch.x_pos, -batch.x)
        assert torch.equal(batch.x[:, 0], 2.0 * batch.tags)
        offsets = torch.tensor([100.0, 200.0, 300.0])
        assert torch.equal(batch.negatives, batch.x[:, None] + offsets[:, None])
    assert sorted(torch.cat([part.all().tags for part in parts]).tolist()) == list(range(20))


@pytest.mark.parametrize(("below", "count"), [(5, 5), (5, 12), (1000, 7), (9, 2)])
def test_draws_are_distinct_unless_there_are_too_few(below, count, generator):
    drawn = draw_distinct(below, count, generator)
    assert len(drawn) == count
    for start in range(0, count, below):
        part = drawn[start : start + below]
        assert len(set(part.tolist())) == len(part)
        assert 0 <= part.min() <= part.max() < below


def test_numbers_of_selected_rows_are_named():
    values = np.ones((3, 2))
    check_rows_finite("x", values)
    values[[1, 2], 0] = np.inf
    with pytest.raises(ValueError, match="x must be finite, but row 5 holds NaN or inf"):
        check_rows_finite("x", values, np.array([9, 7, 5]))


G = torch.Generator()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ArrayPairs(X, X[:-1]), ValueError, "x and x_pos must have the same shape"),
        (lambda: ArrayPairs(X[:1], X[:1]), ValueError, "x must have shape .* N >= 2"),
        (lambda: ArrayPairs(X[0], X[0]), ValueError, "x must have shape"),
        (lambda: ArrayPairs(X, X * np.nan), ValueError, "x_pos must be finite, but row 0"),
        (lambda: ArrayPairs(X.astype(str), X), TypeError, "x must be numeric, got dtype"),
        (lambda: ArrayPairs(X * 1j, X), TypeError, "x must be real, got dtype complex128"),
        (lambda: ArrayPairs(X, X).split(0.05, G), ValueError, "share must leave"),
        (lambda: ArrayPairs(X, X).split(0.95, G), ValueError, "share must leave"),
        (lambda: ArrayPairs(X, X).sample(3, 7), TypeError, "generator must be a torch.Generator"),
        (lambda: ArrayPairs(X, X).sample(0, G), ValueError, "batch_size must be"),
        (lambda: ArrayPairs(X, X, negatives=X), ValueError, r"shape \(20, K, 2\), got \(20, 2\)"),
        (
            lambda: ArrayPairs(X, X, negatives=np.ones((19, 3, 2))),
            ValueError,
            r"negatives must have shape \(20, K, 2\), got \(19, 3, 2\)",
        ),
        (
            lambda: ArrayPairs(X, X, tags=np.zeros(19, int)),
            ValueError,
            r"tags must be 20 integers, one per pair, got int64 of shape \(19,\)",
        ),
        (lambda: ArrayPairs(X, X, tags=np.zeros(20)), ValueError, "tags must be 20 integers"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_file_that_is_cut_while_it_is_mapped_is_named(tmp_path):
    """Reading past its end would end the process."""
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(100_000, 3)))
    x = np.load(path, mmap_mode="r")
    pairs = ArrayPairs(x, x)
    part = ArrayPairs(x[:, :2], x[:, 1:])
    generator = torch.Generator().manual_seed(0)
    pairs.sample(4, generator)
    os.truncate(path, 100_000)
    for source in (pairs, part):
        with pytest.raises(ValueError, match=r"x\.npy was truncated: it has 100000 bytes instead"):
            source.sample(4, generator)
