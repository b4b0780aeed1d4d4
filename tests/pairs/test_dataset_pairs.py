"""PyTorch's datasets and loaders as pair sources."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import isolatent as iso
from isolatent.pairs import DatasetPairs, FinitePairSource, LoaderPairs, as_pair_source

RNG = torch.Generator().manual_seed(0)
X = torch.rand(200, 3, generator=RNG)
X_POS = X + 0.1 * torch.rand(200, 3, generator=RNG)
SHORT = iso.Recipe(max_steps=5, batch_size=32)


class Pairs(Dataset):
    """Items are pairs with a label, which is ignored."""

    def __len__(self):
        return len(X)

    def __getitem__(self, k):
        return X[k], X_POS[k].numpy(), k


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(X, X_POS, strict=True)


def generator():
    return torch.Generator().manual_seed(3)


def test_a_dataset_draws_the_same_pairs_as_arrays():
    dataset, arrays = DatasetPairs(Pairs()), iso.ArrayPairs(X, X_POS)
    assert isinstance(dataset, FinitePairSource)
    for ours, theirs in zip(
        dataset.sample(50, generator()), arrays.sample(50, generator()), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    halves = [source.split(0.25, generator()) for source in (dataset, arrays)]
    for ours, theirs in zip(*halves, strict=True):
        np.testing.assert_array_equal(ours.rows, theirs.rows)
        torch.testing.assert_close(ours.all(), theirs.all(), rtol=0, atol=0)


@pytest.mark.parametrize("size", [1, 7, 64, 500])
def test_a_loader_yields_every_pair_in_turn(size):
    pairs = LoaderPairs(DataLoader(Pairs(), batch_size=7))
    drawn = [pairs.sample(size, generator()) for _ in range(-(-400 // size))]
    x, x_pos = (torch.cat(side)[:400] for side in zip(*drawn, strict=True))
    torch.testing.assert_close(x, X.repeat(2, 1), rtol=0, atol=0)
    torch.testing.assert_close(x_pos, X_POS.repeat(2, 1), rtol=0, atol=0)


@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(X, X_POS),
        Pairs(),
        DataLoader(Pairs(), batch_size=16, shuffle=True),
        DataLoader(Stream(), batch_size=16),
    ],
    ids=["tensors", "dataset", "loader", "stream"],
)
def test_an_estimator_takes_them(data):
    model = iso.ContrastiveICA(2, space="euclidean", recipe=SHORT, random_state=0).fit(data)
    assert model.transform(X).shape == (200, 2)


def test_a_dataset_gives_the_model_of_its_arrays():
    fits = [
        iso.ContrastiveICA(2, space="euclidean", recipe=SHORT, random_state=0, n_init=1)
        for _ in range(2)
    ]
    codes = [fits[0].fit(TensorDataset(X, X_POS)).transform(X), fits[1].fit(X, X_POS).transform(X)]
    np.testing.assert_array_equal(*codes)


def empty():
    return DataLoader(TensorDataset(X[:0], X[:0]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TensorDataset(X), r"item 0 of the dataset must be a pair \(x, x_pos\)"),
        (TensorDataset(X[:1], X[:1], X[:1]), "with N >= 2"),
        ([1, 2], None),
        (Stream(), "X must be in a DataLoader to be streamed"),
        (TensorDataset(X, X[:, :2]), "same shape"),
    ],
)
def test_wrong_data(data, message):
    if message is None:
        return
    with pytest.raises((TypeError, ValueError), match=message):
        as_pair_source(data)


def test_a_loader_without_batches_is_an_error():
    with pytest.raises(ValueError, match="loader must yield batches, got none"):
        as_pair_source(empty()).sample(3, generator())
    with pytest.raises(ValueError, match="a batch of the loader must be a pair"):
        as_pair_source(DataLoader(X)).sample(3, generator())


def test_values_that_are_not_finite_are_an_error():
    class Broken(Pairs):
        def __getitem__(self, k):
            return torch.full((3,), float("nan")), X_POS[k]

    with pytest.raises(ValueError, match="x of the dataset must be finite, but row 0 holds NaN"):
        as_pair_source(Broken()).sample(3, generator())
