"""The linear baselines equal scikit-learn's and the generalised eigenproblem's solutions."""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from sklearn.base import clone
from sklearn.decomposition import PCA, FastICA

import isolatent as iso
from isolatent.baselines import LinearICA, LinearPCA, SlowFeatures, linear
from isolatent.checks import IsolatentWarning
from isolatent.pairs.readers import reading

LINEAR = [LinearPCA, LinearICA, SlowFeatures]
RNG = np.random.default_rng(0)
MIXING = RNG.normal(size=(3, 5))


def recording(length=4000):
    """Three independent factors, the first the slowest, mixed into five columns."""
    keep = np.array([0.99, 0.9, 0.3])
    z = np.zeros((length, 3))
    for t in range(1, length):
        z[t] = keep * z[t - 1] + np.sqrt(1 - keep**2) * RNG.normal(size=3)
    return z, z @ MIXING + 1.0


Z, X = recording()


def test_slow_features_recover_the_factors_slowest_first():
    model = SlowFeatures(3).fit(X)
    codes = model.transform(X)
    correlation = np.abs(np.corrcoef(Z.T, codes.T)[:3, 3:])
    assert np.allclose(np.diag(correlation), 1, atol=0.02)
    # The slowness of the factors: about 2 (1 - a) for an autoregression with coefficient a.
    steps = np.square(np.diff(Z, axis=0)).mean(0) / Z.var(0)
    assert model.slowness_ == pytest.approx(steps, rel=0.05)
    assert np.allclose(np.square(np.diff(codes, axis=0)).mean(0), model.slowness_)


def test_slow_features_solve_the_generalised_eigenproblem():
    x, x_pos = RNG.normal(size=(2, 300, 4)) @ RNG.normal(size=(4, 4)) + 3
    model = SlowFeatures(4).fit(x, x_pos)
    change = (x_pos - x).T @ (x_pos - x) / 300
    values, vectors = eigh(change, np.cov(np.concatenate([x, x_pos]).T))
    assert np.allclose(model.slowness_, values)
    assert np.allclose(np.abs(model.components_), np.abs(vectors.T))
    codes = model.transform(np.concatenate([x, x_pos]))
    assert np.allclose(np.cov(codes.T), np.eye(4))


def test_slow_features_use_the_requested_lags():
    """At lag k an autoregression with coefficient a changes by 2 (1 - a^k) of its variance."""
    keep = np.array([0.99, 0.9, 0.3])
    for lag in (1, 20):
        lags = np.arange(1, lag + 1)[:, None]
        model = SlowFeatures(3, lag=lag, random_state=0).fit(X)
        assert model.slowness_ == pytest.approx((2 - 2 * keep**lags).mean(0), rel=0.25)
    fixed = SlowFeatures(3, lag=(20, 20)).fit(X)
    whole = SlowFeatures(3).fit(X[:-20], X[20:])
    assert np.array_equal(fixed.components_, whole.components_)


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_n_components_is_at_most_the_rank(kind, dtype):
    assert kind(3).fit(X.astype(dtype)).components_.shape == (3, 5)
    with pytest.raises(ValueError, match=r"at most 3, the number of directions .*, got 4"):
        kind(4).fit(X.astype(dtype))
    # In floating point the mean of 200 values of 0.1 is not 0.1.
    with pytest.raises(ValueError, match=r"at most 0, the number of directions .*, got 1"):
        kind(1).fit(np.full((200, 3), 0.1, dtype))
    wide = Z @ RNG.normal(size=(3, linear.WIDE + 100))
    with pytest.raises(ValueError, match=r"at most 3, the number of directions .*, got 4"):
        kind(4).fit(wide[:300].astype(dtype))


def test_the_rank_does_not_depend_on_the_units_of_columns():
    x = Z * [3e5, 1.0, 1.0]
    independent = LinearICA(3, random_state=0).fit(x).transform(x)
    assert np.allclose(np.cov(independent.T), np.eye(3), atol=1e-2)
    assert (LinearPCA(3).fit(x).transform(x).std(0) > 0.01).all()


@pytest.mark.parametrize("kind", LINEAR)
def test_pairs_drawn_from_a_source_must_be_finite(kind):
    class Source:
        def sample(self, batch, generator):
            x = torch.rand(2, batch, 4, generator=generator)
            x[1, -1] = torch.nan
            return x.unbind()

    with pytest.raises(ValueError, match="pairs drawn from X must be finite, but row 16383"):
        kind(2).fit(Source())


@pytest.mark.parametrize("kind", LINEAR)
def test_errors_name_the_row_of_the_array_for_chunks_and_subsets(kind, monkeypatch):
    monkeypatch.setattr(linear, "MAX_VALUES", 90 * 16)
    monkeypatch.setattr(reading, "CHUNK_VALUES", 10 * 16)
    images = RNG.normal(size=(100, 1, 4, 4))
    model = kind(2, random_state=0).fit(images[:40], images[1:41])
    images[67:] = np.nan
    with pytest.raises(ValueError, match="X must be finite, but row 67 holds NaN or inf"):
        model.transform(images)
    if kind is not SlowFeatures:
        with (
            pytest.warns(IsolatentWarning, match="random subset of 90 of 100 rows"),
            pytest.raises(ValueError, match=r"X must be finite, but row (6[7-9]|[7-9]\d) holds"),
        ):
            model.fit(images)


def test_components_equal_those_of_scikit_learn():
    x = RNG.uniform(size=(500, 3)) @ RNG.normal(size=(3, 3))
    seed = int(np.random.RandomState(7).randint(2**31 - 1))
    pca = PCA(2).fit(x).transform(x)
    assert np.allclose(LinearPCA(2, random_state=7).fit(x).transform(x), pca)
    ica = FastICA(3, whiten="unit-variance", random_state=seed).fit(x)
    model = LinearICA(3, random_state=7).fit(x)
    assert np.allclose(model.transform(x), ica.transform(x))


@pytest.mark.parametrize("kind", [LinearPCA, LinearICA])
def test_unpaired_methods_use_both_members_of_pairs(kind):
    both = kind(2, random_state=0).fit(X[:2000], X[2000:])
    assert np.allclose(both.mean_, X.mean(0))
    assert np.allclose(both.transform(X), kind(2, random_state=0).fit(X).transform(X))
    with pytest.raises(ValueError, match=f"{kind.__name__} takes no recordings"):
        both.fit(X, groups=np.zeros(len(X)))


@pytest.mark.parametrize("kind", LINEAR)
def test_worlds_images_and_parameter_checks(kind):
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
    model = kind(2, random_state=0).fit(world)
    z, _ = world.sample_latents(1000, torch.Generator().manual_seed(1))
    codes = model.transform(world.observe(z))
    assert codes.dtype == np.float32
    assert iso.linear_r2(z, codes) > 0.999
    assert np.array_equal(clone(model).fit(world).transform(world.observe(z)), codes)
    images = RNG.normal(size=(50, 1, 4, 4))
    assert kind(2, random_state=0).fit(images, images + 0.1).transform(images).shape == (50, 2)
    with pytest.raises(ValueError, match="n_components must be at most 5"):
        kind(6).fit(X[:100], X[1:101])
    with pytest.raises(ValueError, match="n_components must be an integer >= 1"):
        kind(0).fit(X)


@pytest.mark.parametrize("kind", LINEAR)
def test_large_image_arrays_are_not_converted_to_floats_at_once(kind, monkeypatch):
    monkeypatch.setattr(linear, "MAX_VALUES", 512 * 256)  # of 256 pixels: 512 observations
    monkeypatch.setattr(reading, "CHUNK_VALUES", 2**14)
    images = RNG.integers(0, 255, (16_000, 1, 16, 16), dtype=np.uint8)
    model = kind(2, random_state=0)
    pos = images[::-1] if kind is SlowFeatures else None
    tracemalloc.start()
    with pytest.warns(IsolatentWarning, match="random subset of 512 of 16000 rows"):
        model.fit(images, pos)
    codes = model.transform(images)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert codes.shape == (16_000, 2)
    assert peak < 8 * images.size / 2  # half their size in float64
    with pytest.warns(IsolatentWarning):  # the seed determines the subset
        assert np.array_equal(clone(model).fit(images, pos).components_, model.components_)


def test_the_number_of_drawn_pairs_is_limited_by_their_size(monkeypatch):
    monkeypatch.setattr(linear, "MAX_VALUES", 10 * 64 * 64)
    drawn = []

    class Source:
        def sample(self, batch, generator):
            drawn.append(batch)
            return torch.rand(2, batch, 1, 64, 64, generator=generator).unbind()

    for kind in LINEAR[:2]:
        kind(2, random_state=0).fit(Source())
    assert drawn == [1, 5] * 2  # five pairs are ten observations


def test_results_do_not_depend_on_the_chunk_size(monkeypatch):
    fits = [kind(3, random_state=0).fit(X) for kind in (LinearPCA, SlowFeatures)]
    whole = [model.transform(X) for model in fits]
    monkeypatch.setattr(reading, "CHUNK_VALUES", 999)
    for model, codes in zip(fits, whole, strict=True):
        assert np.allclose(model.transform(X), codes)
        assert np.allclose(clone(model).fit(X).transform(X), codes)


def test_ica_recovers_factors_from_many_columns():
    z = RNG.uniform(size=(1500, 3))
    x = z @ RNG.normal(size=(3, linear.WIDE + 100)) + 2.0
    model = LinearICA(3, random_state=0).fit(x)
    assert np.allclose(model.mean_, x.mean(0))
    assert iso.mcc(z, model.transform(x)) > 0.99
    assert np.allclose(np.cov(model.transform(x).T), np.eye(3), atol=1e-2)
