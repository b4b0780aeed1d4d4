"""Whitening gives data an identity covariance, in one pass over batches."""

import pytest
import torch

from isolatent.encoders import Whitening


def test_whitened_data_has_identity_covariance(generator):
    x = torch.randn(5000, 6, generator=generator) @ torch.randn(6, 6, generator=generator) + 3
    white = Whitening(6).fit([x])(x)
    torch.testing.assert_close(torch.cov(white.T), torch.eye(6), atol=2e-3, rtol=0)
    torch.testing.assert_close(white.mean(0), torch.zeros(6), atol=1e-3, rtol=0)


def test_a_stream_of_batches_is_as_good_as_one(generator):
    x = torch.randn(1000, 4, generator=generator) * 3 + 100
    whole, parts = Whitening(4).fit([x]), Whitening(4).fit(x.split([1, 99, 500, 400]))
    for name in ("mean", "matrix"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-6, atol=1e-7)
    loaded = Whitening(4)
    loaded.load_state_dict(whole.state_dict())
    torch.testing.assert_close(loaded(x), whole(x), rtol=0, atol=0)


def test_whitening_leaves_dead_directions_small(generator):
    x = torch.randn(500, 3, generator=generator)
    x[:, 2] = x[:, 1]
    assert Whitening(3).fit([x])(x).abs().max() < 10


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([torch.ones(10, 2)], "every column is constant"),
        ([torch.ones(1, 2)], "at least 2 rows in all, got 1"),
        ([], "at least 2 rows in all, got 0"),
        ([torch.ones(3, 3)], r"batches must have shape \(N, 2\), got \(3, 3\)"),
    ],
)
def test_whitening_refuses_what_it_cannot_use(batches, message):
    with pytest.raises(ValueError, match=message):
        Whitening(2).fit(batches)
