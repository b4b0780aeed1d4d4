"""Whitening gives data an identity covariance, in one pass over batches, and drops noise."""

import pytest
import torch

from isolatent.encoders import Anscombe, Whitening


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


def test_whitening_drops_dead_directions(generator):
    x = torch.randn(500, 3, generator=generator)
    x[:, 2] = x[:, 1]
    whitening = Whitening(3).fit([x])
    assert whitening.n_kept == 2
    torch.testing.assert_close(torch.cov(whitening(x).T), torch.eye(2), atol=2e-3, rtol=0)


def test_columns_that_vary_by_rounding_errors_are_ignored(generator):
    x = torch.randn(500, 3, generator=generator)
    x[:, 1] = 1e6 + torch.randint(0, 2, (500,), generator=generator) * 0.0625  # one unit of float32
    whitening = Whitening(3).fit([x])
    assert whitening.n_kept == 2
    assert whitening(x).abs().max() < 10


def test_a_column_with_few_digits_does_not_hide_directions_of_others(generator):
    x = torch.randn(4000, 4, generator=generator)
    x[:, 1] = x[:, 0] + 1e-3 * x[:, 1]
    x[:, 3] += 1e5
    whitening = Whitening(4).fit([x])
    assert whitening.n_kept == 4
    torch.testing.assert_close(torch.cov(whitening(x).T), torch.eye(4), atol=0.02, rtol=0)


def test_all_directions_kept_is_zca_of_the_correlations(generator):
    x = torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    x = x @ torch.randn(5, 5, generator=generator, dtype=torch.float64)
    whitening = Whitening(5).double().fit([x])
    values, axes = torch.linalg.eigh(torch.corrcoef(x.T))
    expected = (x - x.mean(0)) / x.std(0) @ (axes * values.rsqrt()) @ axes.T
    torch.testing.assert_close(whitening(x), expected)


@pytest.mark.parametrize("size", [1e-7, 1e7])
@pytest.mark.parametrize("columns", [4, 30])
def test_units_of_columns_do_not_matter(generator, size, columns):
    x, x_pos = noisy_pairs(4000, columns, generator)
    units = torch.ones(columns)
    units[1] = size
    plain = Whitening(columns).fit([x])
    scaled = Whitening(columns).fit([x * units])
    torch.testing.assert_close(scaled(x * units), plain(x), atol=1e-3, rtol=1e-3)
    plain = fit_pairs(Whitening(columns), x, x_pos, 2)
    scaled = fit_pairs(Whitening(columns), x * units, x_pos * units, 2)
    assert scaled.n_kept == plain.n_kept
    ours, theirs = scaled(x * units), plain(x)
    torch.testing.assert_close(ours.abs(), theirs.abs(), atol=1e-2, rtol=1e-2)


def test_directions_of_noise_are_dropped(generator):
    x, x_pos = noisy_pairs(8000, 60, generator)
    whitening = fit_pairs(Whitening(60), x, x_pos, 3)
    assert 3 <= whitening.n_kept <= 12
    white, shared = whitening(x).double(), (x @ DIRECTIONS[:60].mT.pinverse().float()).double()
    centred = shared - shared.mean(0)
    residual = centred - white @ torch.linalg.lstsq(white, centred).solution
    assert residual.var(0).max() < 0.05 * shared.var(0).min()


def test_square_data_are_kept_whole_also_where_pairs_share_nothing(generator):
    x = torch.randn(2000, 5, generator=generator)
    x_pos = torch.randn(2000, 5, generator=generator)
    x_pos[:, :2] = x[:, :2]
    assert fit_pairs(Whitening(5), x, x_pos, 5).n_kept == 5


def test_directions_of_small_variance_are_kept_if_pairs_share_them(generator):
    z = torch.randn(4000, 3, generator=generator)
    mixing = torch.randn(3, 8, generator=generator)
    mixing[2] *= 1e-3
    z_pos = 0.9 * z + 0.4 * torch.randn(4000, 3, generator=generator)
    whitening = fit_pairs(Whitening(8), z @ mixing, z_pos @ mixing, 3)
    white = whitening(z @ mixing).double()
    residual = z.double() - white @ torch.linalg.lstsq(white, z.double()).solution
    assert residual.var(0).max() < 1e-2


def test_fewer_rows_than_columns(generator):
    x, x_pos = noisy_pairs(200, 400, generator)
    whitening = fit_pairs(Whitening(400), x, x_pos, 3)
    assert 3 <= whitening.n_kept <= 20
    assert whitening(x).isfinite().all()
    fresh, _ = noisy_pairs(1000, 400, generator)
    assert 0.5 < float(whitening(fresh).var(0).mean()) < 2  # fitted directions are real ones


def test_a_state_with_fewer_directions_can_be_loaded(generator):
    x, x_pos = noisy_pairs(2000, 60, generator)
    whitening = fit_pairs(Whitening(60), x, x_pos, 3)
    loaded = Whitening(60, n_kept=whitening.n_kept)
    loaded.load_state_dict(whitening.state_dict())
    assert torch.equal(loaded(x), whitening(x))


def test_anscombe_refuses_negative_numbers():
    with pytest.raises(ValueError, match="counts must not be negative, got -1"):
        Anscombe()(torch.tensor([[0.0, -1.0]]))


DIRECTIONS = torch.randn(500, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def noisy_pairs(rows, columns, generator):
    """Return pairs that share three factors, seen through columns with independent noise."""
    z = torch.randn(rows, 3, generator=generator)
    z_pos = 0.9 * z + 0.4 * torch.randn(rows, 3, generator=generator)
    mixing = DIRECTIONS[:columns].T.float()
    x, x_pos = (
        part @ mixing + 0.5 * torch.randn(rows, columns, generator=generator) for part in (z, z_pos)
    )
    return x, x_pos


def fit_pairs(whitening, x, x_pos, n_components):
    half = len(x) // 2
    first, second = ([(x[part], x_pos[part])] for part in (slice(half), slice(half, None)))
    return whitening.fit_pairs(first, second, n_components, len(x))


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
