"""A loaded ContrastiveICA equals the saved one; other estimators: test_network_estimator.py."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.training import DamagedFileError
from isolatent.training.assembly import ENCODERS, LOSS_CLASSES

RECIPE = iso.Recipe(max_steps=12, batch_size=32, warmup=3)
RNG = np.random.default_rng(0)
ANGLES = RNG.uniform(0, 2 * np.pi, 150)
X, X_POS = (
    np.stack([np.cos(a), np.sin(a), 0.5 * np.cos(2 * a)], 1)
    for a in (ANGLES, ANGLES + 0.1 * RNG.normal(size=150))
)
IMAGES = {
    "conv": RNG.random((120, 1, 64, 64), dtype=np.float32),
    "pooled": RNG.random((120, 1, 20, 20), dtype=np.float32),
    "residual": RNG.random((120, 2, 16, 16), dtype=np.float32),
}


def fitted(x=X, x_pos=X_POS, **settings):
    settings = {"space": "sphere", "recipe": RECIPE, "random_state": 0} | settings
    return iso.ContrastiveICA(2, **settings).fit(x, x_pos)


def save_and_compare(model, directory, x, **modules):
    """Save and load a model, and compare parameters, tensors and codes bit by bit."""
    model.save(directory)
    loaded = iso.ContrastiveICA.load(directory, **modules)
    assert type(loaded) is type(model)
    for name, value in model.get_params(deep=False).items():
        if not isinstance(value, nn.Module):
            assert getattr(loaded, name) == value, name
    codes = model.transform(x)
    assert np.array_equal(loaded.transform(x), codes)
    assert loaded.transform(x).dtype == codes.dtype
    assert loaded.history_ == model.history_
    assert loaded.guarantee_ == model.guarantee_
    assert str(loaded.guarantee_) == str(model.guarantee_)
    assert loaded.n_features_in_ == model.n_features_in_
    for ours, theirs in ((loaded.encoder_, model.encoder_), (loaded.loss_, model.loss_)):
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        for key, value in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[key], value)
            assert ours.state_dict()[key].dtype == value.dtype
    return loaded


def noisy_channels():
    """Return pairs of 30 channels that share two factors, with independent noise."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(400, 2))
    mixing = rng.normal(size=(2, 30))
    return [
        (z + 0.1 * rng.normal(size=z.shape)) @ mixing + rng.normal(size=(400, 30)) for _ in "ab"
    ]


def test_a_model_with_fewer_directions_than_columns(tmp_path):
    x, x_pos = noisy_channels()
    model = fitted(x, x_pos)
    assert 2 <= model.n_directions_ < 20
    assert f"kept {model.n_directions_} of 30 directions" in str(model.guarantee_)
    assert save_and_compare(model, tmp_path, x).n_directions_ == model.n_directions_
    assert fitted().n_directions_ == 3
    assert "directions" not in str(fitted().guarantee_)


def test_a_model_of_counts(tmp_path):
    x, x_pos = (np.random.default_rng(2).poisson(np.exp(part / 3)) for part in noisy_channels())
    model = fitted(x, x_pos, counts=True)
    loaded = save_and_compare(model, tmp_path, x)
    with pytest.raises(ValueError, match="X must not be negative with counts=True, got -1"):
        loaded.transform(x - 1.0 - x.min())


BELIEFS = [
    {},
    {"space": "box", "conditional": "laplace", "lag": (1, 3)},
    {"space": "box", "conditional": "gennorm", "p": 3.0},
    {"space": "euclidean"},
    {"conditional": "anisotropic", "recipe": iso.Recipe(max_steps=5, batch_size=128)},
    {"marginal": "unknown", "precision": "32-true", "accelerator": "cpu"},
]


@pytest.mark.parametrize("beliefs", BELIEFS, ids=str)
def test_a_model_with_any_beliefs_is_loaded(tmp_path, beliefs):
    model = fitted(**beliefs)
    loaded = save_and_compare(model, tmp_path, X)
    assert loaded.score(X, X_POS) == model.score(X, X_POS)


@pytest.mark.parametrize("loss", LOSS_CLASSES)
def test_a_model_with_any_loss_is_loaded(tmp_path, loss):
    model = fitted(loss=loss)
    loaded = save_and_compare(model, tmp_path, X)
    assert loaded.score(X, X_POS) == model.score(X, X_POS)


@pytest.mark.filterwarnings("ignore:pairs were found to share only")  # after two steps
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_model_with_any_encoder_is_loaded(tmp_path, encoder):
    x, x_pos, recipe = X, X_POS, RECIPE
    if encoder in IMAGES:
        x, recipe = IMAGES[encoder], iso.Recipe(max_steps=2, batch_size=8)
        x_pos = x + 0.01
    save_and_compare(fitted(x, x_pos, encoder=encoder, recipe=recipe), tmp_path, x[:10])


def test_straightening_is_saved(tmp_path):
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.01), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=15, batch_size=64, saturation=0.95, warmup=3)
    model = fitted(world, None, space="box", conditional="normal", recipe=recipe)
    h, h_pos = (torch.as_tensor(model.transform(x)) for x in world.sample_pairs(2000))
    knots = model.encoder_[-1].fit(h, h_pos).knots  # after so few steps pairs may not support it
    assert not torch.allclose(knots, torch.linspace(0, 1, knots.shape[1]))
    save_and_compare(model, tmp_path, world.sample_pairs(20, torch.Generator().manual_seed(0))[0])


def test_double_precision_is_saved(tmp_path):
    model = fitted(X + 1e6, X_POS + 1e6)
    assert next(model.encoder_.parameters()).dtype == torch.float64
    save_and_compare(model, tmp_path, X + 1e6)


def test_feature_names_are_saved(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "ç"])
    frame_pos = pd.DataFrame(X_POS, columns=frame.columns)
    loaded = save_and_compare(fitted(frame, frame_pos), tmp_path, frame)
    assert loaded.feature_names_in_.tolist() == ["a", "b", "ç"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame[["b", "a", "ç"]])


def test_a_loaded_model_can_be_fitted_again(tmp_path):
    model = fitted()
    loaded = save_and_compare(model, tmp_path, X)
    assert np.array_equal(loaded.fit(X, X_POS).transform(X), model.transform(X))


def test_default_parameters_are_saved(tmp_path):
    save_and_compare(fitted().set_params(recipe=None, random_state=None), tmp_path, X)


def test_a_random_state_object_is_not_saved(tmp_path):
    model = fitted(random_state=np.random.RandomState(0))
    model.save(tmp_path)
    assert iso.ContrastiveICA.load(tmp_path).random_state is None


def test_a_model_of_partial_fit_is_saved(tmp_path):
    model = iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, random_state=0).partial_fit(
        X, X_POS
    )
    save_and_compare(model, tmp_path, X)


@pytest.mark.parametrize(
    "settings",
    [
        {"lag": np.int64(2)},
        {"space": "box", "conditional": "gennorm", "p": np.float32(3.0)},
        {"recipe": iso.Recipe(max_steps=np.int64(3), batch_size=32)},
    ],
    ids=str,
)
def test_numpy_numbers_are_saved(tmp_path, settings):
    """A grid search over ``np.arange`` passes them."""
    save_and_compare(fitted(**settings), tmp_path, X)


def own_encoder():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def test_modules_of_the_user_are_passed_to_load(tmp_path):
    encoder, loss = own_encoder(), iso.InfoNCE(iso.Dot(learn_scale=True))
    fresh = own_encoder(), iso.InfoNCE(iso.Dot(learn_scale=True))
    before = [p.clone() for p in fresh[0].parameters()]
    model = fitted(encoder=encoder, loss=loss)
    loaded = save_and_compare(model, tmp_path, X, encoder=fresh[0], loss=fresh[1])
    assert all(map(torch.equal, fresh[0].parameters(), before))  # load copies it
    assert loaded.encoder is fresh[0]


def test_modules_of_the_user_must_be_passed_to_load(tmp_path):
    fitted(encoder=own_encoder(), loss=iso.InfoNCE(iso.Dot())).save(tmp_path / "own")
    fitted().save(tmp_path / "plain")
    load = iso.ContrastiveICA.load
    with pytest.raises(ValueError, match=r"encoder must be given: .* code is not saved"):
        load(tmp_path / "own", loss=iso.InfoNCE(iso.Dot()))
    with pytest.raises(ValueError, match=r"loss must be given: .* code is not saved"):
        load(tmp_path / "own", encoder=own_encoder())
    with pytest.raises(ValueError, match="encoder must be None: the model was fitted with 'mlp'"):
        load(tmp_path / "plain", encoder=own_encoder())
    with pytest.raises(ValueError, match="loss must be None: the model was fitted with 'infonce'"):
        load(tmp_path / "plain", loss=iso.InfoNCE(iso.Dot()))
    with pytest.raises(ValueError, match="encoder and loss must be like the module"):
        load(tmp_path / "own", encoder=nn.Linear(3, 2), loss=iso.InfoNCE(iso.Dot()))


def test_save_overwrites_only_on_request_and_keeps_other_files(tmp_path):
    first, second = fitted(), fitted(random_state=1)
    (tmp_path / "notes.txt").write_text("mine")
    first.save(tmp_path)
    with pytest.raises(FileExistsError, match="holds a model; pass overwrite=True"):
        second.save(tmp_path)
    assert np.array_equal(iso.ContrastiveICA.load(tmp_path).transform(X), first.transform(X))
    second.save(str(tmp_path), overwrite=True)
    assert np.array_equal(iso.ContrastiveICA.load(tmp_path).transform(X), second.transform(X))
    names = ["model.json", "model.safetensors", "notes.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_model_and_its_checkpoints_may_share_a_directory(tmp_path):
    model = iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, random_state=0)
    model.fit(X, X_POS, checkpoint=tmp_path).save(tmp_path)
    model.fit(X, X_POS, checkpoint=tmp_path)
    assert np.array_equal(iso.ContrastiveICA.load(tmp_path).transform(X), model.transform(X))


def test_save_creates_directories_and_refuses_files(tmp_path):
    model = fitted()
    model.save(tmp_path / "a" / "b")
    iso.ContrastiveICA.load(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"directory must be a directory, but .*file is a"):
        model.save(tmp_path / "file")


def test_damaged_and_missing_files_are_named(tmp_path):
    fitted().save(tmp_path)
    path = tmp_path / "model.json"
    body = json.loads(path.read_text())
    body["record"]["parameters"]["n_components"] = 3
    path.write_text(json.dumps(body))
    with pytest.raises(DamagedFileError, match=r"model\.json is damaged: it was changed"):
        iso.ContrastiveICA.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"model\.json does not exist"):
        iso.ContrastiveICA.load(tmp_path / "none")


def test_a_subclass_loads_as_itself(tmp_path):
    class Mine(iso.ContrastiveICA):
        pass

    Mine(2, recipe=RECIPE, random_state=0).fit(X, X_POS).save(tmp_path)
    assert type(Mine.load(tmp_path)) is Mine
