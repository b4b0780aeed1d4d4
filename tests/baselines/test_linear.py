"""Linear methods give what scikit-learn and the generalised eigenproblem give."""

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from sklearn.base import clone
from sklearn.decomposition import PCA, FastICA

import isolatent as iso

LINEAR = [iso.LinearPCA, iso.LinearICA, iso.SlowFeatures]
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


def test_slow_features_are_the_slow_factors_slowest_first():
    model = iso.SlowFeatures(3).fit(X)
    codes = model.transform(X)
    correlation = np.abs(np.corrcoef(Z.T, codes.T)[:3, 3:])
    assert np.allclose(np.diag(correlation), 1, atol=0.02)
    # That of the factors themselves, about 2 (1 - a) for an autoregression with coefficient a.
    steps = np.square(np.diff(Z, axis=0)).mean(0) / Z.var(0)
    assert model.slowness_ == pytest.approx(steps, rel=0.05)
    assert np.allclose(np.square(np.diff(codes, axis=0)).mean(0), model.slowness_)


def test_slow_features_solve_the_generalised_eigenproblem():
    x, x_pos = RNG.normal(size=(2, 300, 4)) @ RNG.normal(size=(4, 4)) + 3
    model = iso.SlowFeatures(4).fit(x, x_pos)
    change = (x_pos - x).T @ (x_pos - x) / 300
    values, vectors = eigh(change, np.cov(np.concatenate([x, x_pos]).T))
    assert np.allclose(model.slowness_, values)
    assert np.allclose(np.abs(model.components_), np.abs(vectors.T))
    codes = model.transform(np.concatenate([x, x_pos]))
    assert np.allclose(np.cov(codes.T), np.eye(4))


def test_directions_without_variance_are_left_out():
    assert iso.SlowFeatures(3).fit(X).components_.shape == (3, 5)
    with pytest.raises(ValueError, match="at most 3, the directions in which X varies, got 4"):
        iso.SlowFeatures(4).fit(X)


def test_principal_and_independent_components_are_those_of_scikit_learn():
    x = RNG.uniform(size=(500, 3)) @ RNG.normal(size=(3, 3))
    seed = int(np.random.RandomState(7).randint(2**31 - 1))
    pca = PCA(2).fit(x).transform(x)
    assert np.allclose(iso.LinearPCA(2, random_state=7).fit(x).transform(x), pca)
    ica = FastICA(3, whiten="unit-variance", random_state=seed).fit(x)
    model = iso.LinearICA(3, random_state=7).fit(x)
    assert np.allclose(model.transform(x), ica.transform(x))


@pytest.mark.parametrize("kind", [iso.LinearPCA, iso.LinearICA])
def test_both_members_of_pairs_are_observations(kind):
    both = kind(2, random_state=0).fit(X[:2000], X[2000:])
    assert np.allclose(both.mean_, X.mean(0))
    assert np.allclose(both.transform(X), kind(2, random_state=0).fit(X).transform(X))
    with pytest.raises(ValueError, match=f"{kind.__name__} takes no recordings"):
        both.fit(X, groups=np.zeros(len(X)))


@pytest.mark.parametrize("kind", LINEAR)
def test_worlds_images_and_conventions(kind):
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
