"""What held-out pairs say about a fit, and what the card makes of it."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.training.support import Support, measure_support

RECIPE = iso.Recipe(max_steps=150, batch_size=128, warmup=20)
SPHERE = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(15.0), iso.Linear(), seed=0)


def fitted(x, x_pos, recipe=RECIPE, **options):
    model = iso.ContrastiveICA(3, recipe=recipe, random_state=0, **{"space": "sphere"} | options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, x_pos)
    return model, [w for w in caught if issubclass(w.category, IsolatentWarning)]


@pytest.fixture(scope="module")
def pairs():
    return SPHERE.sample_pairs(2000)


def test_a_fit_as_declared_keeps_its_theorem(pairs):
    model, caught = fitted(*pairs)
    assert caught == []
    assert model.guarantee_.equivalence == "orthogonal map"
    assert model.guarantee_.support == str(model.support_)
    assert not model.support_.is_null
    assert abs(model.support_.training - model.support_.information) < 0.3
    assert "gains next to nothing" in str(model.support_)  # the mixing is linear


@pytest.mark.parametrize("seed", range(4))
def test_shuffled_pairs_end_with_nothing_to_find(pairs, seed):
    order = np.random.default_rng(seed).permutation(2000)
    model, caught = fitted(pairs[0], pairs[1][order])
    assert len(caught) == 1
    assert "nothing to find" in str(caught[0].message)
    card = model.guarantee_
    assert (card.equivalence, card.withdrawn, card.reference) == (None, "orthogonal map", "")
    assert str(card).startswith("not supported by these data: ")


@pytest.mark.parametrize(
    "options", [{}, {"loss": "nce"}, {"space": None, "n_init": 1, "relax": (), "axes": None}]
)
def test_independent_noise_ends_with_nothing_to_find(options):
    x, x_pos = np.random.default_rng(0).normal(size=(2, 1500, 4))
    model, caught = fitted(x, x_pos, **options)
    assert len(caught) == 1
    assert "nothing to find" in str(caught[0].message)
    assert model.guarantee_.equivalence is None


def test_a_recording_of_noise_ends_with_nothing_to_find():
    model, caught = fitted(np.random.default_rng(0).normal(size=(1500, 4)), None)
    assert model.support_.is_null
    assert len(caught) == 1


def test_a_loss_without_a_bound_is_compared_with_shuffled_pairs(pairs):
    model, caught = fitted(*pairs, loss="nce")
    assert caught == []
    assert model.support_.linear is None
    assert model.support_.information > 0.1


def test_a_linear_code_that_knows_more_withdraws_the_claim():
    """A hardly trained encoder knows less than canonical correlations."""
    world = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.05), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=4, batch_size=128)
    model, caught = fitted(*world.sample_pairs(2000), recipe=recipe, space="box")
    assert model.support_.linear > model.support_.information
    assert model.guarantee_.withdrawn
    assert "linear code" in str(caught[0].message)
    assert model.guarantee_for(world).equivalence is None


def test_few_held_out_pairs_are_enough_for_what_they_share(pairs):
    model, caught = fitted(pairs[0][:200], pairs[1][:200])
    assert caught == []
    assert model.support_.p_value == 1 / 1000  # the least of 999 permutations
    assert model.guarantee_.equivalence == "orthogonal map"


@pytest.mark.parametrize("space", ["sphere", "box", None])
@pytest.mark.parametrize("n_pairs", [10, 60, 120, 400])
def test_no_number_of_unrelated_pairs_supports_a_claim(space, n_pairs):
    x, x_pos = np.random.default_rng(n_pairs).normal(size=(2, n_pairs, 6))
    recipe = iso.Recipe(max_steps=60, batch_size=32, warmup=5)
    model, caught = fitted(x, x_pos, recipe, space=space, relax=(), axes=None)
    assert model.guarantee_.equivalence is None
    assert model.guarantee_.withdrawn
    text = "nothing was measured" if n_pairs < 100 else "nothing to find"
    assert text in str(model.guarantee_)
    assert any(text in str(warning.message) for warning in caught)


def test_pairs_of_the_training_support_nothing():
    """A recording too short to be split in two has no pairs that were not trained with."""
    x = np.random.default_rng(0).normal(size=(400, 3)).cumsum(0)
    recipe = iso.Recipe(max_steps=20, batch_size=16, warmup=5)
    model, caught = fitted(x, None, recipe, lag=(250, 250))
    assert model.support_ is None
    assert "no pairs were held out" in model.guarantee_.gap
    assert "nothing was measured" in str(caught[0].message)


@pytest.mark.parametrize("n_pairs", [20, 60, 99])
def test_few_unrelated_pairs_are_null_as_often_as_the_level_says(n_pairs):
    """2 in 1000 are not; of 60 runs, 2 or more with a probability of 0.7 %."""
    encoder, loss = nn.Linear(3, 3), iso.InfoNCE(iso.Lp(p=2))
    found = 0
    for seed in range(60):
        x = torch.randn(2, n_pairs, 3, generator=torch.Generator().manual_seed(seed))
        found += not measure_support(encoder, loss, iso.Batch(*x), iso.Batch(*x), 3).is_null
    assert found <= 1


def test_the_linear_code_reaches_the_information_of_gaussian_pairs():
    """Its bound is that of the true ratio of densities, and no more."""
    rng = np.random.default_rng(0)
    rho = np.array([0.95, 0.8, 0.3])
    u = rng.normal(size=(8000, 3))
    v = rho * u + np.sqrt(1 - rho**2) * rng.normal(size=(8000, 3))
    mixing, other = rng.normal(size=(2, 3, 6))
    x, x_pos = (torch.from_numpy(a).float() for a in (u @ mixing, v @ other))
    parts = [iso.Batch(x[rows], x_pos[rows]) for rows in (slice(0, 4000), slice(4000, None))]
    found = measure_support(nn.Linear(6, 3), iso.InfoNCE(iso.Lp(p=2)), parts[1], parts[0], 3)
    information = -0.5 * np.log(1 - rho**2).sum()
    assert information - 0.15 < found.linear < information + 0.05


def test_an_overfitted_encoder_is_told():
    known = {
        "chance": 0.0,
        "above_chance": 1.0,
        "above_chance_error": 0.02,
        "linear": None,
        "linear_lead": 0.0,
        "linear_error": 0.0,
    }
    support = Support(1.0, 0.02, training=3.0, batch_size=64, batches=20, **known)
    assert "overfitted" in support.reason
    assert support._replace(training=1.2).reason == ""


def test_support_survives_saving(pairs, tmp_path):
    model, _ = fitted(*pairs)
    model.save(tmp_path / "model")
    loaded = iso.ContrastiveICA.load(tmp_path / "model")
    assert loaded.support_ == model.support_
    assert loaded.guarantee_ == model.guarantee_
