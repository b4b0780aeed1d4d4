"""ContrastiveICA recovers factors, is reproducible, and refuses wrong arguments."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import isolatent as iso
from isolatent.theory import SPACES, Beliefs

WORLD = iso.World(
    iso.Sphere(3),
    iso.Uniform(),
    iso.VonMisesFisher(20.0),
    iso.InvertibleMLP(2, condition_draws=200),
)
SHORT = iso.Recipe(max_steps=40, batch_size=128)


def test_factors_are_recovered_up_to_an_orthogonal_map():
    model = iso.ContrastiveICA(3, recipe=iso.Recipe(max_steps=500, batch_size=256), random_state=0)
    steps = []
    model.fit(WORLD, on_step=steps.append)
    z, _ = WORLD.sample_latents(4000)
    h = model.transform(WORLD.observe(z))
    assert iso.linear_r2(z, h) > 0.98
    assert iso.linear_r2(z, WORLD.observe(z)) < 0.97
    assert model.guarantee_.equivalence == "orthogonal map"
    # The map itself: singular values of the least-squares fit are near one.
    fit, *_ = np.linalg.lstsq(z.numpy(), h, rcond=None)
    assert np.abs(np.linalg.svd(fit, compute_uv=False) - 1).max() < 0.06
    # A learned scale measures the concentration.
    assert model.loss_.similarity.scale.item() == pytest.approx(20.0, rel=0.15)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1].number == steps[-1].total <= 500
    assert steps == model.history_


def test_a_seed_determines_the_model():
    codes = [
        iso.ContrastiveICA(3, recipe=SHORT, random_state=5)
        .fit(WORLD)
        .transform(np.ones((2, 3), np.float32))
        for _ in range(2)
    ]
    assert np.array_equal(*codes)
    other = iso.ContrastiveICA(3, recipe=SHORT, random_state=6).fit(WORLD)
    assert not np.array_equal(codes[0], other.transform(np.ones((2, 3), np.float32)))


@pytest.mark.parametrize(
    "beliefs",
    [
        {"space": "box", "conditional": "laplace"},
        {"space": "box", "conditional": "normal"},
        {"space": "euclidean"},
        {"space": "euclidean", "marginal": "uniform"},
        {"space": "cubegrid"},
        {"space": "hollowball"},
        {"marginal": "unknown"},
        {"marginal": "unknown", "potentials": "none"},
        {"loss": iso.InfoNCE(iso.Dot(learn_scale=True))},
        {"encoder": nn.Linear(3, 3)},
    ],
)
def test_models_with_any_beliefs_are_fitted(beliefs):
    x, x_pos = WORLD.sample_pairs(300)
    model = iso.ContrastiveICA(3, recipe=SHORT, random_state=0, **beliefs).fit(x, x_pos)
    assert model.transform(x).shape == (300, 3)
    assert model.n_features_in_ == 3
    unproven = (
        beliefs.get("encoder") is not None  # its codes are free
        or beliefs.get("potentials") == "none"
        or beliefs == {"space": "euclidean", "marginal": "uniform"}  # there is no such marginal
        or beliefs.get("space") in ("cubegrid", "hollowball")  # not covered by the theorems
    )
    assert (model.guarantee_.equivalence is None) == unproven, model.guarantee_


@pytest.mark.parametrize("space", SPACES)
def test_marginal_and_conditional_follow_from_the_space(space):
    x, x_pos = WORLD.sample_pairs(300)
    recipe = iso.Recipe(max_steps=1, batch_size=8)
    model = iso.ContrastiveICA(3, space=space, recipe=recipe, random_state=0).fit(x, x_pos)
    assert (model.marginal, model.conditional) == (None, None)  # parameters stay as given
    assert model.beliefs_ == Beliefs(space)
    assert model.beliefs_.conditional == ("vmf" if space == "sphere" else "normal")
    assert model.beliefs_.marginal == ("normal" if space == "euclidean" else "uniform")
    learned = isinstance(model.loss_.potential, iso.contrast.NetworkPotential)
    assert learned == (space == "euclidean")


def test_modules_of_the_user_are_not_changed():
    """The same estimator fits the same model again; a float32 encoder takes float64 data."""
    x = np.random.default_rng(0).normal(size=(50, 3))
    encoder, loss = nn.Linear(3, 3), iso.InfoNCE(iso.Dot(learn_scale=True))
    before = [p.clone() for p in (*encoder.parameters(), *loss.parameters())]
    model = iso.ContrastiveICA(3, encoder=encoder, loss=loss, recipe=SHORT, random_state=0)
    first, second = (model.fit(x, x + 0.1).transform(x) for _ in range(2))
    assert np.array_equal(first, second)
    for now, then in zip((*encoder.parameters(), *loss.parameters()), before, strict=True):
        assert torch.equal(now, then)


def test_more_factors_than_features_have_no_guarantee():
    x = np.random.default_rng(0).normal(size=(50, 2))
    model = iso.ContrastiveICA(3, recipe=SHORT).fit(x, x + 0.1)
    assert "3 factors cannot be mixed injectively into 2" in str(model.guarantee_)


def test_it_is_a_scikit_learn_estimator():
    model = iso.ContrastiveICA(3, space="box", conditional="laplace", random_state=1)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.transform(np.ones((2, 3)))


def test_few_pairs_are_not_overfitted():
    """Training stops soon after the held-out loss is least, long before the last step."""
    world = iso.World(
        iso.Sphere(5),
        iso.Uniform(),
        iso.VonMisesFisher(10.0),
        iso.InvertibleMLP(3, condition_draws=200),
    )
    x, x_pos = world.sample_pairs(1000)
    model = iso.ContrastiveICA(5, recipe=iso.Recipe(max_steps=1000, batch_size=128), random_state=0)
    steps = []
    model.fit(x, x_pos, on_step=steps.append)
    assert len(steps) < 900
    losses = [step.held_out for step in steps if step.held_out is not None]
    assert losses.index(min(losses)) < len(losses) - 3
    z, _ = world.sample_latents(2000)
    observed = world.observe(z)
    assert iso.linear_r2(z, model.transform(observed)) > iso.linear_r2(z, observed) + 0.05


X = np.random.default_rng(0).normal(size=(30, 3))
SMALL = X[:, :1, None, None] > np.zeros((8, 8))  # booleans are numbers


@pytest.mark.parametrize(
    ("arguments", "fit", "message"),
    [
        ({}, (X, X[:-1]), "X and X_pos must have the same shape"),
        ({}, (X * np.nan, X), "Input X contains NaN"),
        ({}, (WORLD, X), "X_pos must be None when X is a world"),
        ({"n_components": 0}, (X, X), "n_components must be an integer >= 1"),
        ({"n_components": 1}, (X, X), "n_components must be at least 2 on a sphere"),
        ({"encoder": nn.Identity()}, (X, X), "encoder must have parameters to train"),
        ({"space": "cube"}, (X, X), "space must be one of"),
        ({"loss": "nll"}, (X, X), "loss must be one of"),
        ({"potentials": "some"}, (X, X), "potentials must be one of"),
        ({"potentials": "none", "loss": iso.NCE(iso.Dot())}, (X, X), "potentials must be None"),
        ({"encoder": "transformer"}, (X, X), "encoder must be one of"),
        ({"encoder": nn.Linear(3, 2).double()}, (X, X), "encoder must map 2 observations"),
        ({"recipe": 100}, (X, X), "recipe must be a Recipe"),
        (
            {},
            (iso.datasets.Sprites(),),
            r"pairs of them, such as FactorPairs\(world, .*, got Sprites",
        ),
        ({"encoder": "conv"}, (SMALL, SMALL), "X must have images of 64 × 64 .*, got .N, 1, 8, 8"),
        ({"encoder": "pooled"}, (SMALL, SMALL), "X must have images of at least 16 × 16 .*'pooled"),
        ({"encoder": "residual"}, (SMALL, SMALL), "X must have images of at least 16 × 16"),
    ],
)
def test_wrong_arguments(arguments, fit, message):
    model = iso.ContrastiveICA(**({"n_components": 3, "recipe": SHORT} | arguments))
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(*fit)


@pytest.mark.parametrize(
    ("potentials", "kinds"),
    [
        ("none", (type(None), type(None))),
        ("constant", (type(None), iso.contrast.ConstantPotential)),
        ("learned", (iso.contrast.NetworkPotential, iso.contrast.NetworkPotential)),
    ],
)
def test_potentials_are_those_requested_also_after_loading(tmp_path, potentials, kinds):
    recipe = iso.Recipe(max_steps=2, batch_size=8)
    model = iso.ContrastiveICA(3, loss="nce", potentials=potentials, recipe=recipe).fit(X, X + 0.1)
    model.save(tmp_path)
    for loss in (model.loss_, iso.ContrastiveICA.load(tmp_path).loss_):
        assert (type(loss.potential), type(loss.potential_pos)) == kinds


def test_transform_checks_its_input():
    model = iso.ContrastiveICA(3, recipe=iso.Recipe(max_steps=1, batch_size=8)).fit(X, X + 0.1)
    with pytest.raises(ValueError, match="X has 2 features, but ContrastiveICA is expecting 3"):
        model.transform(X[:, :2])
    with pytest.raises(ValueError, match="could not convert string to float: 'a'"):
        model.transform([["a", "b", "c"]])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.transform(np.where(np.arange(30)[:, None] == 4, np.nan, X))


def test_a_loss_that_is_not_finite_stops_training():
    class Exploding(nn.Module):
        def forward(self, h, h_pos):
            return (h * torch.inf).sum()

    with pytest.raises(FloatingPointError, match="at step 1; try a smaller learning_rate"):
        iso.ContrastiveICA(3, loss=Exploding(), recipe=SHORT).fit(X, X + 0.1)
