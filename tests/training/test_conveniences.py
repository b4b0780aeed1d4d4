"""What estimators offer beyond fit and transform: a decoder, a warm start, cards and progress."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import isolatent as iso
from isolatent.baselines import SlowVAE, SupervisedEncoder
from isolatent.checks import IsolatentWarning
from isolatent.training import connect

RECIPE = iso.Recipe(max_steps=150, batch_size=128, warmup=10)
SHORT = iso.Recipe(max_steps=3, batch_size=32, warmup=1)
WORLD = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(n_observed=4), seed=0)
X, X_POS = (np.asarray(part) for part in WORLD.sample_pairs(1500))


@pytest.fixture(scope="module")
def model():
    return iso.ContrastiveICA(2, space="box", recipe=RECIPE, random_state=0).fit(X, X_POS)


def test_a_decoder_is_the_inverse_of_the_encoder(model, tmp_path):
    with pytest.raises(NotFittedError, match=r"call fit_decoder\(X\) first"):
        model.inverse_transform(model.transform(X))
    codes = model.transform(X)
    before = torch.get_rng_state()
    assert model.fit_decoder(X) is model
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(model.transform(X), codes)
    assert model.decoder_explained_ > 0.95
    decoded = model.inverse_transform(codes)
    missed = np.square(decoded - X).mean() / X.var(0).mean()
    assert missed < 0.05
    assert np.array_equal(model.fit_decoder(X).inverse_transform(codes), decoded)
    model.save(tmp_path)
    loaded = iso.ContrastiveICA.load(tmp_path)
    assert np.array_equal(loaded.inverse_transform(codes), decoded)
    assert loaded.decoder_explained_ == model.decoder_explained_
    for bad in (codes[:, :1], codes[0], np.zeros((2, 5))):
        with pytest.raises(ValueError, match="X must be codes of shape"):
            model.inverse_transform(bad)
    with pytest.raises(ValueError, match="at least 20 rows"):
        model.fit_decoder(X[:5])


def test_a_new_fit_has_no_decoder(model):
    again = iso.ContrastiveICA(2, space="box", recipe=SHORT, random_state=0).fit(X, X_POS)
    again.fit_decoder(X).fit(X, X_POS)
    assert not hasattr(again, "decoder_")


@pytest.mark.filterwarnings("ignore:pairs were found to share only")
def test_a_decoder_of_a_recording_with_gaps_and_windows():
    recording = np.random.default_rng(0).normal(size=(200, 3)).cumsum(0)
    recording[50:53] = np.nan
    with pytest.warns(IsolatentWarning):
        found = iso.ContrastiveICA(2, recipe=SHORT, axes=None, relax=(), window=3).fit(recording)
    codes = found.fit_decoder(recording).transform(recording)
    assert found.inverse_transform(codes[:9]).shape == (9, 3)


@pytest.mark.filterwarnings("ignore:pairs were found to share only")
def test_a_decoder_of_images():
    images = np.random.default_rng(0).random((60, 1, 16, 16), dtype=np.float32)
    recipe = iso.Recipe(max_steps=2, batch_size=8, warmup=0)
    found = iso.ContrastiveICA(2, space="sphere", encoder="pooled", recipe=recipe, random_state=0)
    found.fit(images, images + 0.01)
    decoded = found.fit_decoder(images).inverse_transform(found.transform(images[:3]))
    assert decoded.shape == (3, 1, 16, 16)


def test_a_warm_start_goes_on_from_the_earlier_encoder(model):
    """One step at a rate of next to nothing leaves codes as they were; a cold start does not."""
    frozen = iso.Recipe(max_steps=1, batch_size=128, warmup=0, learning_rate=1e-12)
    codes = model.transform(X)
    for warm in (True, False):
        again = iso.ContrastiveICA(2, space="box", recipe=RECIPE, random_state=0).fit(X, X_POS)
        again.set_params(recipe=frozen, warm_start=warm, random_state=1)
        agreement = iso.linear_r2(codes, again.fit(X, X_POS).transform(X))
        assert (agreement > 0.999) == warm


def test_a_warm_start_needs_the_same_encoder(model):
    again = iso.ContrastiveICA(2, space="box", recipe=SHORT, warm_start=True, random_state=0)
    again.fit(X, X_POS)  # the first fit starts as usual
    again.set_params(encoder="paper")
    with pytest.raises(ValueError, match="warm_start must be False: the encoder of the earlier"):
        again.fit(X, X_POS)
    with pytest.raises(TypeError, match="warm_start must be True or False"):
        again.set_params(warm_start="yes").fit(X, X_POS)


def test_verbose_shows_what_will_be_claimed_before_it_trains(capsys):
    iso.ContrastiveICA(2, space="box", recipe=SHORT, verbose=True, random_state=0).fit(X, X_POS)
    shown = capsys.readouterr().err
    assert shown.startswith("to be claimed: ")
    assert "step 3 of at most 3" in shown
    for baseline in (SupervisedEncoder(2, max_steps=2), SlowVAE(2, max_steps=2)):
        baseline.set_params(verbose=True).fit(WORLD)
        assert "step 2 of at most 2" in capsys.readouterr().err
    iso.ContrastiveICA(2, space="box", recipe=SHORT, random_state=0).fit(X, X_POS)
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("ignore::isolatent.checks.IsolatentWarning")
@pytest.mark.parametrize(
    "declared",
    [
        {"space": "sphere"},
        {"space": "box", "conditional": "laplace"},
        {"space": "euclidean", "marginal": "unknown"},
        {"space": "sphere", "relax": ("pairing",)},
        {"space": "box", "loss": "nce"},
    ],
    ids=str,
)
def test_the_expected_card_is_that_of_the_fit(declared):
    model = iso.ContrastiveICA(2, recipe=SHORT, random_state=0, **declared)
    before = torch.get_rng_state()
    expected = model.expected_guarantee()
    assert torch.equal(torch.get_rng_state(), before)
    model.fit(X, X_POS)
    found = model.guarantee_  # withdrawn after three steps, since nothing supports it
    assert expected.equivalence == (found.equivalence or found.withdrawn)
    texts = zip(expected.assumptions, found.assumptions, strict=True)
    assert all(after.text.startswith(before.text) for before, after in texts)  # "…: doubtful"


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_codes_as_data_frames(model, container):
    pytest.importorskip(container)
    framed = iso.ContrastiveICA(2, space="box", recipe=SHORT, random_state=0).fit(X, X_POS)
    plain = framed.transform(X)
    frame = framed.set_output(transform=container).transform(X)
    assert list(frame.columns) == ["contrastiveica0", "contrastiveica1"]
    assert np.array_equal(frame.to_numpy(), plain)


def test_auto_means_the_cpu_and_says_how_to_get_the_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.warns(IsolatentWarning, match="pass accelerator='cuda' for the GPU"):
        assert connect().device == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cuda", "mps"):
        with pytest.raises(ValueError, match=f"got '{name}' without a GPU"):
            connect(name)
