"""The interface that all baselines share with ContrastiveICA."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import isolatent as iso
from isolatent.baselines import (
    AdaGVAE,
    AdaMLVAE,
    BetaVAE,
    LinearICA,
    LinearPCA,
    SlowFeatures,
    SlowVAE,
    SupervisedEncoder,
)
from isolatent.inference import has_known_layers
from isolatent.training import DamagedFileError
from isolatent.training.checkpoints import read_pair, write_pair

RNG = np.random.default_rng(0)
Z = RNG.uniform(size=(200, 2)).cumsum(0) % 1.0
X = np.tanh(Z @ RNG.normal(size=(2, 4)) + 0.01 * RNG.normal(size=(200, 4)))
IMAGES = RNG.random((40, 1, 64, 64), dtype=np.float32)
BRIEF = {"max_steps": 3, "batch_size": 8}
BASELINES = [
    SupervisedEncoder(2, **BRIEF),
    SupervisedEncoder(2, space="box", encoder="paper", **BRIEF),
    *(kind(2, **BRIEF) for kind in (BetaVAE, SlowVAE, AdaGVAE, AdaMLVAE)),
    LinearPCA(2),
    LinearICA(2),
    SlowFeatures(2, lag=(1, 3)),
]
EACH = pytest.mark.parametrize("baseline", BASELINES, ids=lambda model: type(model).__name__)


def fitted(baseline, x=X, random_state=3):
    model = clone(baseline).set_params(random_state=random_state)
    return model.fit(x, Z[: len(x)]) if isinstance(model, SupervisedEncoder) else model.fit(x)


@EACH
def test_saved_equals_loaded(baseline, tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = fitted(baseline, frame)
    model.save(tmp_path)
    loaded = type(model).load(tmp_path)
    assert np.array_equal(loaded.transform(frame), model.transform(frame))
    assert loaded.get_params() == model.get_params()
    for name, value in vars(model).items():
        if name.endswith("_") and name not in ("encoder_", "autoencoder_"):
            assert np.array_equal(getattr(loaded, name), value), name
    with pytest.raises(FileExistsError, match="holds a model; pass overwrite=True"):
        model.save(tmp_path)
    with pytest.raises(NotFittedError):
        clone(model).save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "baseline",
    [
        SupervisedEncoder(2, encoder="conv", **BRIEF),
        BetaVAE(2, **BRIEF),
        LinearPCA(2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_saved_equals_loaded_for_images(baseline, tmp_path):
    model = fitted(baseline, IMAGES)
    model.save(tmp_path)
    assert np.array_equal(type(model).load(tmp_path).transform(IMAGES), model.transform(IMAGES))


@EACH
def test_a_model_is_loaded_by_its_own_class_only(baseline, tmp_path):
    name = type(baseline).__name__
    fitted(baseline).save(tmp_path)
    for other in (iso.ContrastiveICA, *{type(model) for model in BASELINES} - {type(baseline)}):
        message = f"directory must hold a {other.__name__}, but .* has a {name}"
        with pytest.raises(ValueError, match=message):
            other.load(tmp_path)
    tensors, record = read_pair(tmp_path / "model")
    del tensors[min(tensors)]
    write_pair(tmp_path / "model", tensors, record)
    with pytest.raises(DamagedFileError, match=f"does not fit the {name}"):
        type(baseline).load(tmp_path)


@EACH
def test_codes_have_feature_names(baseline):
    model = fitted(baseline).set_output(transform="pandas")
    names = [f"{type(baseline).__name__.lower()}{k}" for k in (0, 1)]
    assert [*model.transform(X).columns] == [*model.get_feature_names_out()] == names


@EACH
def test_random_state_as_in_scikit_learn(baseline, tmp_path):
    codes = fitted(baseline, random_state=3).transform(X)
    assert np.array_equal(fitted(baseline, random_state=np.int64(3)).transform(X), codes)
    streams = [fitted(baseline, random_state=np.random.RandomState(5)) for _ in range(2)]
    assert np.array_equal(*(model.transform(X) for model in streams))
    assert fitted(baseline, random_state=None).transform(X).shape == (200, 2)
    streams[0].save(tmp_path)
    assert type(baseline).load(tmp_path).random_state is None  # no generator is saved


@EACH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_code_module_equals_transform(baseline, dtype):
    model, x = fitted(baseline), X.astype(dtype)
    module = model.code_module()
    assert has_known_layers(module)  # required by threaded inference
    weight = next(module.parameters(), torch.zeros(0, dtype=torch.float64))
    codes = module(torch.from_numpy(x).to(weight)).detach().numpy()
    np.testing.assert_allclose(codes, model.transform(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(NotFittedError):
        clone(model).code_module()


@pytest.mark.parametrize("kind", [LinearPCA, LinearICA, SlowFeatures])
def test_encoded_grid_uses_the_code_module(kind, monkeypatch):
    world = iso.datasets.FactorArray(RNG.random((12, 1, 5, 5)), (3, 4))
    x = world.observe(world.factors_at(torch.arange(12)))
    model = kind(2, random_state=0).fit(x, x.roll(1, 0))
    codes = model.transform(x)
    monkeypatch.setattr(kind, "transform", lambda *_: pytest.fail("transform was called"))
    grid = iso.evaluation.EncodedGrid(model, world, 0)
    np.testing.assert_allclose(grid.codes_at(np.arange(12)), codes, rtol=1e-5, atol=1e-6)


@EACH
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_must_be_finite(baseline, bad, tmp_path):
    spoiled = X.copy()
    spoiled[7, 1] = bad
    np.save(tmp_path / "x.npy", spoiled)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")  # not checked by scikit-learn
    model = fitted(baseline)
    with pytest.raises(ValueError, match="X must be finite, but row 7 holds NaN or inf"):
        model.transform(mapped)
    # The name is that of the argument of fit or of the pair source.
    with pytest.raises(ValueError, match=r"[Xx] must be finite, but row 7 holds NaN or inf"):
        fitted(baseline, mapped)
